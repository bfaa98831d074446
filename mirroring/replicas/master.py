"""The master of a queue's replicas: gives instructions, confirms them, and keeps the in-sync set."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Any, Final

from leveret.mirroring.replicas.changes import RecordChanges
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
from leveret.mirroring.replicas.ports import MasterContent, Outside, SyncPoint
from leveret.mirroring.replicas.record import QueueRecord, Replica, Stored
from leveret.mirroring.replicas.seq_runs import ALL_SEQS, SeqRuns, first_seq_of

DEPOSED: Final = "deposed"
DELETED: Final = "deleted"

RUNS: Final = 10_000  # of live seqs in one message
SPARE_SEQS: Final = 1 << 40  # a master that has fewer asks for the next epoch


class Master:
    """The replica that serves clients, in one epoch.

    Args:
        me: in sync in the record, and its master.
        record: the last one known.
        revision: of the record.
        content: complete, as far as anything was confirmed.
        outside: other replicas, and etcd.
        in_sync_min: with fewer replicas in sync nothing is confirmed.
        runs: of live seqs in one message.

    Attributes:
        me, epoch: who gives instructions.
        next_seq: of the next message.
        last_no: of the instructions given.
        confirmed_no: all instructions up to this one are confirmed.
        redelivered_below: messages below this seq may have been handed out by an earlier master.
        deliverable_below: messages below this seq may be handed out, because all in-sync replicas know of it.
        has_ended: it does nothing more.
    """

    def __init__(
        self,
        me: Replica,
        record: QueueRecord,
        revision: int,
        content: MasterContent,
        outside: Outside,
        in_sync_min: int,
        runs: int = RUNS,
    ) -> None:
        self.me = me
        self.epoch = record.epoch
        self.next_seq = first_seq_of(self.epoch)
        self.last_no = self.confirmed_no = 0
        self.redelivered_below = self.deliverable_below = content.handed_out
        self.has_ended = False
        self._content = content
        self._outside = outside
        self._in_sync_min = in_sync_min
        self._runs = runs
        self._changes = RecordChanges(record, revision, outside.write)
        self._durable_no: dict[Replica, int] = {}
        self._agreed_no = 0  # durable on all waited for; confirmed if these are enough
        self._reading: set[tuple[Replica, int]] = set()  # mirrors, and their pieces
        self._joining: set[Replica] = set()  # complete mirrors that are not in sync yet
        self._late: dict[Replica, int] = {}  # taken out, and what it must have to come back
        self._living = frozenset(record.in_sync)  # as far as is known
        self._to_hand_out: deque[tuple[int, int]] = deque()  # instruction, and seq
        self._unconfirmed: deque[tuple[int, float]] = deque()  # instruction, and when it was given
        content.sync(SyncPoint(self.epoch, 0, 0))

    @property
    def record(self) -> QueueRecord:
        """The last record known."""
        return self._changes.record

    # Clients.

    def publish(self, messages: Any, now_s: float, is_handed_out: bool = False) -> int:
        """Append messages, a sequence; return the number of the instruction, which ``confirmed`` tells later.

        Those that are handed out at once need not be deliverable: a replica that has them knows that.
        """
        first_seq, no = self.next_seq, self.last_no + 1
        self.next_seq += len(messages)
        if is_handed_out:
            self._content.handed_out = self.next_seq
        self._content.publish(first_seq, messages)
        return self._give(Publish(self.epoch, no, first_seq, messages, is_handed_out), now_s)

    def hand_out(self, below: int, now_s: float) -> int:
        """Have messages below a seq become deliverable, which ``deliverable`` tells later."""
        self._content.handed_out = max(self._content.handed_out, below)
        self._to_hand_out.append((self.last_no + 1, below))
        return self._give(HandOut(self.epoch, self.last_no + 1, below), now_s)

    def remove(self, seqs: SeqRuns, now_s: float) -> int:
        """Forget messages; return the number of the instruction."""
        instruction = Remove(self.epoch, self.last_no + 1, seqs)
        self._content.remove(seqs)
        return self._give(instruction, now_s)

    def _give(self, instruction: Instruction, now_s: float) -> int:
        no = self.last_no = instruction.no
        self._unconfirmed.append((no, now_s))
        self._outside.broadcast(instruction)
        self._content.sync(SyncPoint(self.epoch, 0, no))
        return no

    # Its disk, and mirrors.

    def synced(self, point: SyncPoint) -> None:
        """All instructions up to this point are durable here."""
        if point[:2] == (self.epoch, 0):
            self._note_durable(self.me, point.no)

    def receive(self, sender: Replica, message: Direct) -> None:
        """Take a message of a mirror."""
        if self.has_ended:
            return
        if message.epoch > self.epoch:
            self._outside.read()
        elif isinstance(message, Stale):
            pass
        elif isinstance(message, Ask):
            self._outside.send(sender, self._state(message))
        elif message.epoch < self.epoch:
            self._outside.send(sender, Stale(self.epoch))
        elif isinstance(message, Fetch):
            self._read(sender, message)
        elif isinstance(message, Durable):
            self._note_durable(sender, message.no)

    def _state(self, ask: Ask) -> State:
        content, first = self._content, ask.first
        live, end = content.live.from_seq(first, self._runs)
        if is_last := end == ALL_SEQS:
            end = self.next_seq
        return State(
            ask.request, self.epoch, self.last_no, first, end, live, is_last, content.handed_out
        )

    def _read(self, mirror: Replica, fetch: Fetch) -> None:
        """Read messages for a mirror, which asks again and again until they come."""
        reading = mirror, fetch.piece
        if reading not in self._reading:
            self._reading.add(reading)
            self._content.read(fetch.seqs, partial(self._copy, mirror, fetch.piece))

    def _copy(
        self, mirror: Replica, piece: int, below: int, messages: list[tuple[int, Any]]
    ) -> None:
        self._reading.remove((mirror, piece))
        self._outside.send(mirror, Copies(self.epoch, piece, below, tuple(messages)))

    def _note_durable(self, replica: Replica, no: int) -> None:
        self._durable_no[replica] = max(no, self._durable_no.get(replica, 0))
        if no >= self._late.get(replica, 0):
            self._late.pop(replica, None)
            if replica in self._living and replica not in self.record.in_sync:
                self._joining.add(replica)
        self._confirm()
        self._change()

    def _confirm(self) -> None:
        """Confirm what is durable on all replicas that are, or may be, in sync, or are about to be."""
        if self.has_ended:
            return
        waited_for = self._changes.waited_for() | self._joining
        no = min(self._durable_no.get(each, 0) for each in waited_for)
        self._agreed_no = max(no, self._agreed_no)
        while self._to_hand_out and self._to_hand_out[0][0] <= no:
            self.deliverable_below = max(self.deliverable_below, self._to_hand_out.popleft()[1])
            self._outside.deliverable(self.deliverable_below)
        if no > self.confirmed_no and len(self.record.in_sync) >= self._in_sync_min:
            self.confirmed_no = no
            while self._unconfirmed and self._unconfirmed[0][0] <= no:
                self._unconfirmed.popleft()
            self._outside.confirmed(no)

    # The in-sync set.

    def living(self, replicas: frozenset[Replica]) -> None:
        """Take the replicas that run; the others have ended."""
        self._living = replicas | {self.me}
        for numbers in (self._durable_no, self._late):
            for each in numbers.keys() - self._living:
                del numbers[each]
        self._joining &= self._living
        self._confirm()
        self._change()

    def check_lag(self, now_s: float, lag_max_s: float) -> None:
        """Take mirrors out of the in-sync set that an instruction has waited for too long."""
        if not self._unconfirmed or now_s - self._unconfirmed[0][1] <= lag_max_s:
            return
        no = self._unconfirmed[0][0]
        waited_for = {*self.record.in_sync, *self._joining} - {self.me}
        late = {each for each in waited_for if self._durable_no.get(each, 0) < no}
        self._late.update(dict.fromkeys(late, no))
        self._joining -= late
        self._confirm()
        self._change()

    def _change(self) -> None:
        """Ask for the next change of the record, if none is under way and one is wanted."""
        changes = self._changes
        if self.has_ended or changes.is_writing:
            return
        record = changes.record
        wanted = record.shrunk(frozenset(record.in_sync) - self._living | self._late.keys())
        for each in sorted(self._joining):
            if each not in wanted.in_sync and self._durable_no[each] >= self._agreed_no:
                wanted = wanted.grown(each)
        if self.next_seq + SPARE_SEQS > first_seq_of(self.epoch + 1):
            wanted = wanted.promoted(self.me)
        if wanted != record or not changes.is_certain:
            changes.change(wanted)

    def written(self, stored: Stored | None) -> None:
        """A change was answered with the record as it is now; None: the outcome is unknown."""
        self._changes.answered()
        if stored is not None:
            self.seen(stored)
        self._change()

    def seen(self, stored: Stored) -> None:
        """The record was read, or watched."""
        if self.has_ended:
            return
        if stored.record is None:
            self._end(DELETED)
        elif stored.record.epoch > self.epoch:
            self._end(DEPOSED)
        elif self._changes.seen(stored):
            self._joining.difference_update(self.record.in_sync)
            self._confirm()

    def _end(self, reason: str) -> None:
        self.has_ended = True
        self._outside.ended(reason)
