"""A mirror: follows the master, catches up with it, and becomes master when that has ended."""

from __future__ import annotations

from enum import Enum
from typing import Final

from leveret.mirroring.replicas.history import parting
from leveret.mirroring.replicas.messages import (
    Ask,
    Copies,
    Direct,
    Durable,
    Fetch,
    HandOut,
    Instruction,
    Publish,
    Remove,
    Stale,
    State,
)
from leveret.mirroring.replicas.ports import Content, Outside, SyncPoint
from leveret.mirroring.replicas.record import QueueRecord, Replica, Stored
from leveret.mirroring.replicas.seq_runs import (
    ALL_SEQS,
    NO_SEQS,
    SeqRuns,
    common,
    first_seqs,
    without,
)

FETCHED: Final = 1_000  # messages of one piece


class Phase(Enum):
    """What a mirror does."""

    ASKING = "asks the master for its state"
    COPYING = "fetches messages that it lacks"
    COMPLETE = "has all that the master had when it gave the last instruction known"
    ENDED = "does nothing more"


class Mirror:
    """A replica that is not master.

    Args:
        me: this replica.
        stored: the record, as read since this replica has begun.
        content: what the disk has kept.
        outside: other replicas, and etcd.
        fetched: messages of one piece.

    Attributes:
        phase: what it does.
        record: the last one known.
        last_no: of the instructions applied, in the master's epoch.
    """

    def __init__(
        self,
        me: Replica,
        stored: Stored,
        content: Content,
        outside: Outside,
        fetched: int = FETCHED,
    ) -> None:
        assert stored.record is not None, "the queue exists"
        self.me = me
        self.phase = Phase.ASKING
        self.record: QueueRecord = stored.record
        self._revision = stored.revision
        self._content = content
        self._outside = outside
        self._epoch = stored.record.epoch  # the highest known
        self._request = 0
        self._early: list[Instruction] = []  # that came while the state was asked for
        self.last_no = 0
        self._missing: SeqRuns = NO_SEQS  # to be fetched
        self._fetching: SeqRuns = NO_SEQS
        self._piece = 0
        self._fetched = fetched
        self._living: frozenset[Replica] | None = None  # not known yet
        self._is_writing = False

    def start(self) -> None:
        """Begin to follow the master, or become master."""
        if not self._promote():
            self._ask()

    def rejoined(self) -> None:
        """Ask the master for its state: instructions may have been missed, since this one had left the ring."""
        if self.phase is not Phase.ENDED:
            self._ask()  # also if it asks already: an answer on its way may be older

    def tick(self) -> None:
        """Ask again for what may have been lost; called from time to time."""
        if self.phase is Phase.ASKING:
            if not self._promote():
                self._ask()
        elif self.phase is Phase.COPYING and self._fetching:
            self._outside.send(self.record.master, Fetch(self._epoch, self._piece, self._fetching))
        elif self.phase is Phase.COMPLETE:
            self._sync()

    # The master's state.

    def _ask(self) -> None:
        self.phase = Phase.ASKING
        self._missing = self._fetching = NO_SEQS
        if self.record.master != self.me:
            self._request += 1
            self._outside.send(self.record.master, Ask(self._request, self._epoch))

    def receive(self, sender: Replica, message: Direct) -> None:
        """Take a message of the master, or of another mirror that is mistaken."""
        if self.phase is Phase.ENDED:
            return
        if message.epoch > self._epoch:
            self._outside.read()
        elif message.epoch < self._epoch:
            if isinstance(message, Ask | Fetch | Durable):
                self._outside.send(sender, Stale(self._epoch))
        elif self.phase is Phase.ASKING:
            if isinstance(message, State) and message.request == self._request:
                self._take_state(message)
        elif isinstance(message, Copies) and self.phase is Phase.COPYING:
            self._take_copies(message)

    def _take_state(self, state: State) -> None:
        content = self._content
        parted = parting(content.history, content.next_seq, state.history, state.next_seq)
        ours = content.live()
        kept = common(without(ours, ((parted, ALL_SEQS),)), state.live)
        content.remove(without(ours, kept))
        content.adopt(state.history, state.next_seq, state.handed_out)
        self.last_no, self._missing = state.no, without(state.live, kept)
        self.phase = Phase.COPYING
        early, self._early = self._early, []
        for each in early:
            if each.epoch == state.epoch and self.phase is not Phase.ASKING:
                self._apply(each)
        if self.phase is Phase.COPYING:
            self._fetch()

    def _fetch(self) -> None:
        self._fetching = first_seqs(self._missing, self._fetched)
        self._piece += 1
        if self._fetching:
            self._outside.send(self.record.master, Fetch(self._epoch, self._piece, self._fetching))
        else:
            self.phase = Phase.COMPLETE
            self._sync()

    def _sync(self) -> None:
        self._content.sync(SyncPoint(self._epoch, self._request, self.last_no))

    def _take_copies(self, copies: Copies) -> None:
        if copies.piece != self._piece:
            return
        wanted = self._fetching
        seqs = {seq for first, end in wanted for seq in range(first, end)}
        self._content.insert((seq, each) for seq, each in copies.messages if seq in seqs)
        self._missing = without(self._missing, wanted)
        self._fetch()

    # Instructions.

    def instruct(self, instruction: Instruction) -> None:
        """Take an instruction of the ring."""
        if self.phase is Phase.ENDED or instruction.epoch < self._epoch:
            return
        if instruction.epoch > self._epoch:
            self._early.append(instruction)
            self._outside.read()
        elif self.phase is Phase.ASKING:
            self._early.append(instruction)
        else:
            self._apply(instruction)

    def _apply(self, instruction: Instruction) -> None:
        if instruction.no <= self.last_no:
            return
        if instruction.no != self.last_no + 1:
            self._early.append(instruction)
            self._ask()
            return
        self.last_no = instruction.no
        if isinstance(instruction, Publish):
            if instruction.is_handed_out:
                self._content.hand_out(instruction.first_seq + len(instruction.messages))
            self._content.publish(instruction.first_seq, instruction.messages)
        elif isinstance(instruction, HandOut):
            self._content.hand_out(instruction.below)
        else:
            self._remove(instruction)
        if self.phase is Phase.COMPLETE:
            self._sync()

    def _remove(self, instruction: Remove) -> None:
        self._content.remove(instruction.seqs)
        self._missing = without(self._missing, instruction.seqs)
        self._fetching = without(self._fetching, instruction.seqs)

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
            self.phase = Phase.ENDED
            self._outside.became_master(stored)
        elif is_later:
            self._epoch = record.epoch
            self._early = [each for each in self._early if each.epoch >= record.epoch]
            self.phase = Phase.ASKING  # also while it asks to become master
            if not self._promote():
                self._ask()
        else:
            self._promote()
