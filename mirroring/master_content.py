"""MasterContent: the messages of a master, in the backing queue that serves its clients."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from leveret.core.entry import EXPIRY_MS, MESSAGE, PERSISTENT, SEQ
from leveret.core.message import BODY
from leveret.mirroring.replicas.seq_runs import LiveSeqs, SeqRuns, seqs_of
from leveret.mirroring.replicated import Replicated

if TYPE_CHECKING:
    from leveret.core.entry import Entry
    from leveret.mirroring.replicas.ports import SyncPoint
    from leveret.mirroring.replicated import Batch
    from leveret.mirroring.sync_points import SyncPoints
    from leveret.queue_backing.api import BackingQueue

READ_MESSAGES: Final = 2_000  # that one read passes, wanted or not
READ_BYTES: Final = 1024 * 1024

Found = Callable[[int, list[tuple[int, Any]]], None]


class MasterContent:
    """See ``replicas.ports.MasterContent`` for the methods. Messages leave by way of ``MirroredQueue``.

    Args:
        queue: expects gaps if there are any.
        live: the seqs of its messages.
        handed_out: messages below this seq may have been handed out.
        points: the sync points of this queue.
    """

    def __init__(
        self, queue: BackingQueue, live: LiveSeqs, handed_out: int, points: SyncPoints
    ) -> None:
        self.live = live
        self.handed_out = handed_out
        self.points = points
        self._queue = queue
        self._reads: deque[tuple[SeqRuns, Found]] = deque()  # that wait for the disk

    def publish(self, first_seq: int, batch: Batch) -> None:
        publish = self._queue.publish_delivered if batch.is_straight else self._queue.publish
        first, is_safe = publish(
            batch.messages,
            batch.is_persistent,
            batch.expiries,
            batch.size_bytes,
            first_msg_no=batch.first_msg_no,
        )
        assert first == first_seq, "master and queue count differently"
        end = first + len(batch)
        self.live.add(first, end)
        if not is_safe:
            self.points.wait_for(first, len(batch))

    def remove(self, seqs: SeqRuns) -> None:
        for first, end in seqs:
            self.live.remove(first, end)

    def sync(self, point: SyncPoint) -> None:
        self.points.add(point)

    def read(self, seqs: SeqRuns, found: Found) -> None:
        self._reads.append((seqs, found))
        if len(self._reads) == 1:
            self.resume()

    def resume(self) -> None:
        """Go on with reads, as far as the messages are in RAM; called after ``FetchReady``."""
        reads = self._reads
        while reads:
            wanted = _Wanted(reads[0][0])
            self._queue.fold(wanted.step, None, wanted.below)
            if wanted.is_pending and not wanted.found:
                return
            if not (wanted.is_pending or wanted.is_full):
                wanted.below = reads[0][0][-1][1]
            reads.popleft()[1](wanted.below, wanted.found)


class _Wanted:
    """The messages of one read that are found in RAM.

    Attributes:
        below: all that are wanted below this seq are in ``found``, if they are in the queue.
        is_pending: the next message must be read first.
        is_full: one read finds no more.
    """

    def __init__(self, seqs: SeqRuns) -> None:
        self.below = seqs[0][0]
        self.found: list[tuple[int, Replicated]] = []
        self.is_pending = self.is_full = False
        self._seqs = list(seqs_of(seqs))
        self._passed = self._bytes = 0

    def step(self, entry: Entry | None, is_unacked: bool, _: None) -> tuple[bool, None]:
        """Take a message of a fold; return whether it goes on."""
        if entry is None:
            self.is_pending = True
            return False, None
        seq, seqs = entry[SEQ], self._seqs
        at = bisect_left(seqs, seq)
        if at == len(seqs):
            return False, None
        self.below = seq + 1
        self._passed += 1
        if seqs[at] == seq:
            message = entry[MESSAGE]
            self.found.append((seq, Replicated(message, entry[PERSISTENT], entry[EXPIRY_MS])))
            self._bytes += len(message[BODY])
        self.is_full = self._passed == READ_MESSAGES or self._bytes >= READ_BYTES
        return not self.is_full, None
