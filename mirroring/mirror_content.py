"""MirrorContent: the messages of a mirror, in a backing queue of its node.

Instructions name messages by their seqs. A backing queue removes only unacked messages. So a mirror first makes all
messages unacked up to the highest seq that an instruction removes (it *takes* them), and then acks the named ones. Most
messages are removed in the order of the queue, so few of those that were taken stay. A mirror that becomes master puts
these back. RabbitMQ's mirrors do the same, but by lengths.

Messages whose rows must be read first are taken later (``resume``); until then they are *leaving*, and live no more.

A message that the mirror has removed may have to be added again: the next master has it. The store takes no seq whose
ack is on its way to the disk, so ``settle`` notes these acks, and ``is_settled`` tells when they are there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby, islice
from typing import TYPE_CHECKING, Final

from leveret.mirroring.replicas.seq_runs import LiveSeqs, SeqRuns, runs_of, seqs_of
from leveret.mirroring.sync_points import SyncPoints

if TYPE_CHECKING:
    from leveret.core.message import Message
    from leveret.mirroring.replicas.ports import SyncPoint
    from leveret.mirroring.replicated import Batch, Replicated
    from leveret.queue_backing.api import ReplicaQueue

SLICE: Final = 2_000  # messages of one turn


class MirrorContent:
    """See ``replicas.ports.Content`` for the methods; a mirror gives no copies, so nothing is read.

    Args:
        queue: has just been initialised.
        write: writes contents of persistent messages for this queue; returns the number of the first.
        acks_on_way: returns the seqs of this queue whose acks are on their way to the disk.
        synced: is called with each ``SyncPoint`` that is reached.
    """

    def __init__(
        self,
        queue: ReplicaQueue,
        write: Callable[[list[Message]], int],
        acks_on_way: Callable[[], set[int]],
        synced: Callable[[SyncPoint], None],
    ) -> None:
        self.live = LiveSeqs()
        self.handed_out = 0
        self.queue = queue
        self._write = write
        self._acks_on_way = acks_on_way
        self.points = SyncPoints(synced)
        self._loaded = 0  # seqs below are in ``live``
        self._leaving = LiveSeqs()  # removed, but not from the queue yet
        self._taken = LiveSeqs()  # unacked in the queue
        self._unsettled: set[int] = set()
        self._must_settle = False
        queue.expect_gaps()

    # Start.

    def load(self) -> bool:
        """Take in the seqs of some messages that the disk has kept; return whether these were the last.

        If not, more are to be had in the next turn, or after ``FetchReady``.
        """
        found = self.queue.ready_seqs(self._loaded, SLICE)
        for first, end in runs_of(found.seqs):
            self.live.add(first, end)
        if found.seqs:
            self._loaded = found.seqs[-1] + 1
        self.handed_out = self.live.end
        return not found.pending and len(found.seqs) < SLICE

    # Messages come and go.

    def publish(self, first_seq: int, batch: Batch) -> None:
        queue, some = self.queue, batch.messages
        first_msg_no = self._write(some) if batch.is_persistent else first_seq
        queue.skip_to(first_seq)
        _, is_safe = queue.publish(
            some, batch.is_persistent, batch.expiries, first_msg_no=first_msg_no
        )
        self._added(first_seq, len(some), is_safe)

    def insert(self, messages: Iterable[tuple[int, Replicated]]) -> None:
        for (_, is_persistent), run in groupby(enumerate(messages), _place):
            pairs = [pair for _, pair in run]
            first_seq, some = pairs[0][0], [each.message for _, each in pairs]
            expiries = [each.expiry_ms for _, each in pairs]
            first_msg_no = self._write(some) if is_persistent else first_seq
            is_safe = self.queue.insert(first_seq, some, is_persistent, expiries, first_msg_no)
            self._added(first_seq, len(some), is_safe)

    def _added(self, first: int, count: int, is_safe: bool) -> None:
        self.live.add(first, first + count)
        if not is_safe:
            self.points.wait_for(first, count)

    def remove(self, seqs: SeqRuns) -> None:
        for run in seqs:
            for first, end in self.live.within(*run):
                self.live.remove(first, end)
                self._leaving.add(first, end)
        self.resume()

    def resume(self) -> bool:
        """Remove some of the messages that are leaving; return whether the next turn can remove more.

        Called after ``FetchReady``, too.
        """
        leaving, taken = self._leaving, self._taken
        if not leaving.end:
            return False
        found = self.queue.take_below(leaving.end, SLICE)
        for first, end in runs_of(found.seqs):
            taken.add(first, end)
        gone = [part for run in leaving.from_seq(0, SLICE)[0] for part in taken.within(*run)]
        for first, end in gone:
            leaving.remove(first, end)
            taken.remove(first, end)
        self.queue.ack(list(seqs_of(tuple(gone))))
        return bool(leaving.end) and not found.pending

    # The disk.

    def sync(self, point: SyncPoint) -> None:
        self.points.add(point)

    def settle(self) -> None:
        """Remember which acks must be on disk before any of their seqs is added again."""
        self._must_settle = True

    @property
    def is_settled(self) -> bool:
        """Whether they are."""
        if self._must_settle:
            if self._leaving.end:
                return False
            self._unsettled, self._must_settle = self._acks_on_way(), False
        if self._unsettled:
            self._unsettled &= self._acks_on_way()
        return not self._unsettled

    # Promotion.

    def put_back(self) -> bool:
        """Put some messages that were taken back to their places; return whether these were the last.

        No message may be leaving. Then the messages below the mark count as handed out, and no others.
        """
        seqs = list(islice(seqs_of(self._taken.from_seq(0, SLICE)[0]), SLICE))
        if seqs:
            self.queue.requeue(seqs)
            self._taken.remove(seqs[0], seqs[-1] + 1)
        self.queue.set_next_deliver(self.handed_out)
        return not self._taken.end


def _place(numbered: tuple[int, tuple[int, Replicated]]) -> tuple[int, bool]:
    """Group messages of one kind at seqs in a row."""
    at, (seq, each) = numbered
    return seq - at, each.is_persistent
