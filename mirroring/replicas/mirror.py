"""A mirror: follows the master, catches up with it, and becomes master when that has ended."""

from __future__ import annotations

from enum import Enum
from typing import Final

from leveret.mirroring.replicas.messages import (
    Ask,
    Copies,
    Direct,
    Durable,
    Fetch,
    HandOut,
    Instruction,
    Publish,
    Stale,
    State,
)
from leveret.mirroring.replicas.ports import MirrorContent, Outside, SyncPoint
from leveret.mirroring.replicas.record import QueueRecord, Replica, Stored
from leveret.mirroring.replicas.seq_runs import (
    NO_SEQS,
    SeqRuns,
    between,
    first_seqs,
    seqs_of,
    without,
)

FETCHED: Final = 1_000  # messages of one piece


class Phase(Enum):
    """What a mirror does."""

    ASKING = "asks the master for its live seqs"
    COPYING = "fetches messages that it lacks"
    COMPLETE = "has all that the master had when it gave the last instruction known"
    ENDED = "does nothing more"


class Mirror:
    """A replica that is not master.

    It applies instructions in all phases, since a seq is added once and removed for good.

    Args:
        me: this replica.
        stored: the record, as read since this replica has begun.
        content: what the disk has kept.
        outside: other replicas, and etcd.
        fetched: messages of one piece.

    Attributes:
        phase: what it does.
        record: the last one known.
        last_no: of the instructions applied, in the master's epoch; None: none since it asks.
    """

    def __init__(
        self,
        me: Replica,
        stored: Stored,
        content: MirrorContent,
        outside: Outside,
        fetched: int = FETCHED,
    ) -> None:
        assert stored.record is not None
        self.me = me
        self.phase = Phase.ASKING
        self.record: QueueRecord = stored.record
        self._revision = stored.revision
        self._content = content
        self._outside = outside
        self._epoch = stored.record.epoch  # the highest known
        self._request = 0
        self._asked = 0  # the seq from which on it asks
        self._first_no = 0  # of the instructions since it asks
        self.last_no: int | None = None
        self._handed_out = 0  # by instructions since it asks
        self._missing: SeqRuns = NO_SEQS  # to be fetched
        self._fetching: SeqRuns = NO_SEQS
        self._piece = 0
        self._fetched = fetched
        self._living: frozenset[Replica] | None = None  # not known yet
        self._is_writing = False

    def start(self) -> None:
        """Begin to follow the master, or become master."""
        if self.record.master == self.me:
            self._become_master()
        elif not self._promote():
            self._ask()

    def rejoined(self) -> None:
        """Ask the master for its state: instructions may have been missed, since this one had left the ring."""
        if self.phase is not Phase.ENDED:
            self._ask()  # also if it asks already: an answer on its way may be older

    def tick(self) -> None:
        """Ask again for what may have been lost; called from time to time."""
        if self.phase is Phase.ASKING:
            if not self._promote():
                self._ask_on()
        elif self.phase is Phase.COPYING and self._fetching:
            self._outside.send(self.record.master, Fetch(self._epoch, self._piece, self._fetching))
        elif self.phase is Phase.COMPLETE:
            self._sync()

    # The master's state.

    def _ask(self) -> None:
        """Ask for all live seqs of the master, the first of them now."""
        self._begin()
        self._ask_on()

    def _begin(self) -> None:
        """Know nothing of the master's state."""
        self.phase = Phase.ASKING
        self._content.settle()
        self._missing = self._fetching = NO_SEQS
        self.last_no = None
        self._handed_out = self._asked = 0
        self._request += 1

    def _ask_on(self) -> None:
        if self.record.master != self.me:
            ask = Ask(self._request, self._epoch, self._asked)
            self._outside.send(self.record.master, ask)

    def receive(self, sender: Replica, message: Direct) -> None:
        """Take a message of the master, or of another mirror that is mistaken."""
        if self.phase is Phase.ENDED:
            return
        if message.epoch > self._epoch:
            self._outside.read()
        elif message.epoch < self._epoch:
            if isinstance(message, Ask | Fetch | Durable):
                self._outside.send(sender, Stale(self._epoch))
        elif isinstance(message, State) and self.phase is Phase.ASKING:
            is_expected = (message.request, message.first) == (self._request, self._asked)
            if is_expected and self._content.is_settled:  # or else it comes again
                self._take_state(message)
        elif isinstance(message, Copies):
            self._take_copies(message)

    def _take_state(self, state: State) -> None:
        if self._asked == 0 and not self._follows(state.no):
            self._ask()
            return
        ours = self._content.live.within(state.first, state.end)
        self._content.remove(without(ours, state.live))
        self._content.handed_out = max(state.handed_out, self._handed_out)
        self._missing += without(state.live, ours)
        self._asked = state.end
        if state.is_last:
            self.phase = Phase.COPYING
            self._fetch()
        else:
            self._ask_on()

    def _follows(self, no: int) -> bool:
        """Begin behind the instruction that a state was taken after; return whether none behind it was missed."""
        if self.last_no is None:
            self.last_no = no
        elif self._first_no > no + 1:
            return False
        self.last_no = max(self.last_no, no)
        return True

    def _fetch(self) -> None:
        self._fetching = first_seqs(self._missing, self._fetched)
        self._piece += 1
        if self._fetching:
            self._outside.send(self.record.master, Fetch(self._epoch, self._piece, self._fetching))
        else:
            self.phase = Phase.COMPLETE
            self._sync()

    def _sync(self) -> None:
        assert self.last_no is not None
        self._content.sync(SyncPoint(self._epoch, self._request, self.last_no))

    def _take_copies(self, copies: Copies) -> None:
        if self.phase is not Phase.COPYING or copies.piece != self._piece:
            return
        got = between(self._fetching, 0, copies.below)
        wanted = set(seqs_of(got))
        self._content.insert((seq, each) for seq, each in copies.messages if seq in wanted)
        self._missing = without(self._missing, got)
        self._fetch()

    # Instructions.

    def instruct(self, instruction: Instruction) -> None:
        """Take an instruction of the ring."""
        if self.phase is Phase.ENDED or instruction.epoch < self._epoch:
            return
        if instruction.epoch > self._epoch:
            self._outside.read()
        elif self.last_no is None:
            self._first_no = instruction.no
            self._apply(instruction)
        elif instruction.no == self.last_no + 1:
            self._apply(instruction)
        elif instruction.no > self.last_no:
            self._ask()

    def _apply(self, instruction: Instruction) -> None:
        self.last_no = instruction.no
        if isinstance(instruction, Publish):
            self._publish(instruction)
        elif isinstance(instruction, HandOut):
            self._hand_out(instruction.below)
        else:
            self._content.remove(instruction.seqs)
            self._lacks_no_more(instruction.seqs)
        if self.phase is Phase.COMPLETE:
            self._sync()

    def _publish(self, publish: Publish) -> None:
        content, messages = self._content, publish.messages
        first, end = publish.first_seq, publish.first_seq + len(messages)
        if publish.is_handed_out:
            self._hand_out(end)
        run = ((first, end),)
        if content.live.end <= first:
            content.publish(first, messages)
        else:  # copies were faster
            new = seqs_of(without(run, content.live.within(first, end)))
            content.insert((seq, messages[seq - first]) for seq in new)
        self._lacks_no_more(run)

    def _hand_out(self, below: int) -> None:
        self._handed_out = max(self._handed_out, below)
        self._content.handed_out = max(self._content.handed_out, below)

    def _lacks_no_more(self, seqs: SeqRuns) -> None:
        self._missing = without(self._missing, seqs)
        self._fetching = without(self._fetching, seqs)

    def synced(self, point: SyncPoint) -> None:
        """All instructions up to this point are durable here, and all that was copied before."""
        if self.phase is Phase.COMPLETE and point[:2] == (self._epoch, self._request):
            self._outside.send(self.record.master, Durable(self._epoch, point.no))

    # The record.

    def living(self, replicas: frozenset[Replica]) -> None:
        """Take the replicas that run; the others have ended."""
        self._living = replicas | {self.me}
        self._promote()

    def _promote(self) -> bool:
        """Ask to become master if it is this one's turn; return whether it has asked."""
        if self._is_writing or self.phase is Phase.ENDED or not self._is_next():
            return False
        self._is_writing = True
        self._outside.write(self.record.promoted(self.me), self._revision)
        return True

    def _is_next(self) -> bool:
        """Whether this replica is the oldest that may become master, as far as it knows."""
        record, living = self.record, self._living
        if living is None or record.master in living:
            return False
        candidates = [each for each in record.in_sync if each in living]
        if not candidates:  # what the disks of those that have ended have kept is complete, too
            by_node = {each.node: each for each in living}
            candidates = [by_node[each.node] for each in record.in_sync if each.node in by_node]
        return candidates[:1] == [self.me]

    def written(self, stored: Stored | None) -> None:
        """The change was answered with the record as it is now; None: the outcome is unknown."""
        self._is_writing = False
        if stored is None:
            self._outside.read()
        else:
            self.seen(stored)

    def seen(self, stored: Stored) -> None:
        """The record was read, or watched."""
        if self.phase is Phase.ENDED or stored.revision < self._revision:
            return
        record = stored.record
        if record is None:
            self.phase = Phase.ENDED
            self._outside.ended("deleted")
            return
        is_later = record.epoch > self.record.epoch
        self.record, self._revision = record, stored.revision
        if record.master == self.me:
            self._become_master()
        elif is_later:
            self._epoch = record.epoch
            self._begin()  # also while it asks to become master
            if not self._promote():
                self._ask_on()
        else:
            self._promote()

    def _become_master(self) -> None:
        self.phase = Phase.ENDED
        self._outside.became_master(Stored(self.record, self._revision))
