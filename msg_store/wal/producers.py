"""Producer sequences on their way into the journal: they go with the rows that they came with.

A queue that filters duplicates (``broker/queue/publishers/producers``) has the store keep, for each producer, the epoch
and the last sequence that it took in. A flush may take a part of a queue's rows. So each sequence names its row here,
and goes with the flush that takes the row, in the same frame: after a crash both are there, or neither. Hence:

* The sequences of a queue go in the order in which they were issued; the first whose row still waits ends the flush's
  part, so a sequence never overtakes an older one.
* A sequence whose row was acked before a flush took it goes with the next flush.
* The rows of a queue with priorities lie under several numbers and are taken number by number, so that an older
  one could stay behind. A flush takes all rows of such a queue, while it has sequences to write.
* A flush takes ``SLICE_SEQUENCES``, since a client may use a new producer for each message. Of a queue that has more,
  it takes the first ones and no row behind the last of these. Queues with fewer come first: one does not wait for
  what others are flooded with.
* A frame above the last durable position may have lost the messages of some rows. ``recovery.replay`` takes the
  sequences from the first such row on back, and drops the rows behind it that came from the same producer.

Turned down: one record with the last sequence per flush, without rows (recovery could not tell what to take back); an
entry per message in the index (a transaction would grow with the messages that are gone).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from leveret.msg_store.format.journal_records import COUNT_MAX, ProducerSeqs
from leveret.msg_store.format.rows import SEQ_END
from leveret.msg_store.wal.pending import PendingQueue

SLICE_SEQUENCES: Final = 1_000  # some 3 ms of work

# row seq, producer id, epoch, sequence (-1: the producer is forgotten), used at (ms since 1970)
RowSequence: TypeAlias = tuple[int, bytes, int, int, int]


@dataclass(slots=True)
class QueueSequences:
    """The sequences of one queue, in the order issued; its rows are under so many numbers (``levels``)."""

    levels: int
    waiting: list[RowSequence] = field(default_factory=list)

    def row_nos(self, queue_no: int) -> range:
        """Return the numbers of its rows."""
        return range(queue_no, queue_no + self.levels)

    def first_waiting_row(self, queue_no: int, rows: Mapping[int, PendingQueue]) -> int:
        """Return the lowest seq of the queue's rows that no flush has taken; ``SEQ_END`` if there is none."""
        first = SEQ_END
        for each in self.row_nos(queue_no):
            pending = rows.get(each)
            if pending is not None and pending.rows:
                first = min(first, next(iter(pending.rows)))
        return first


class Share(NamedTuple):
    """What a flush takes of the queues that have sequences.

    Attributes:
        whole: the row numbers whose rows it takes together, of queues with priorities.
        ends: the seqs from which on rows stay, by row number; of the others it may take all.
        counts: how many sequences it takes at most, by queue_no; of the others it may take all.
    """

    whole: list[int]
    ends: dict[int, int]
    counts: dict[int, int]


NO_SEQUENCES: Final = Share([], {}, {})


class PendingSequences:
    """The sequences of all queues that no flush has taken."""

    def __init__(self) -> None:
        self._queues: dict[int, QueueSequences] = {}

    def __len__(self) -> int:
        return sum([len(each.waiting) for each in self._queues.values()])

    def add(self, queue_no: int, levels: int, sequences: Sequence[RowSequence]) -> None:
        queue = self._queues.get(queue_no)
        if queue is None:
            queue = self._queues[queue_no] = QueueSequences(levels)
        queue.waiting += sequences

    def drop(self, queue_no: int) -> int:
        """Forget those of a queue that is deleted; return how many there were."""
        queue = self._queues.pop(queue_no, None)
        return len(queue.waiting) if queue is not None else 0

    def clear(self) -> None:
        self._queues.clear()

    def share(self, rows: Mapping[int, PendingQueue]) -> Share:
        """Share the next flush among the queues; ``rows`` wait for it."""
        share, left = Share([], {}, {}), SLICE_SEQUENCES
        for queue_no, queue in sorted(self._queues.items(), key=_waiting_count):
            count, row_nos = len(queue.waiting), queue.row_nos(queue_no)
            # Sequences without a row name row 0: while that waits it cannot be told which row is the last.
            if count > left and queue.first_waiting_row(queue_no, rows):
                last = max([sequence[0] for sequence in queue.waiting[:left]], default=-1)
                share.counts[queue_no] = left
                share.ends.update(dict.fromkeys(row_nos, last + 1))
            if queue.levels > 1:
                share.whole.extend(row_nos)
            left = max(0, left - count)
        return share

    def take(
        self, rows: Mapping[int, PendingQueue], share: Share
    ) -> list[tuple[int, QueueSequences]]:
        """Remove and return those of the share whose rows no longer wait, by queue_no."""
        taken: list[tuple[int, QueueSequences]] = []
        for queue_no, queue in list(self._queues.items()):
            limit, count = queue.first_waiting_row(queue_no, rows), 0
            for sequence in queue.waiting[: share.counts.get(queue_no)]:
                if sequence[0] >= limit:
                    break
                count += 1
            if count:
                taken.append((queue_no, QueueSequences(queue.levels, queue.waiting[:count])))
                del queue.waiting[:count]
            if not queue.waiting:
                del self._queues[queue_no]
        return taken

    def put_back(self, taken: list[tuple[int, QueueSequences]]) -> None:
        """Take back those of a failed flush, in front of later ones."""
        for queue_no, queue in taken:
            later = self._queues.get(queue_no)
            if later is not None:
                queue.waiting += later.waiting
            self._queues[queue_no] = queue


def records_of(queue_no: int, queue: QueueSequences) -> Iterator[ProducerSeqs]:
    """Yield the sequences of a flush as records: runs of one producer and epoch."""
    waiting, levels = queue.waiting, queue.levels
    at, count = 0, len(waiting)
    while at < count:
        row_seq, producer, epoch, seq, used_ms = waiting[at]
        at += 1
        if seq < 0:
            yield ProducerSeqs(queue_no, levels, producer, epoch, used_ms, (), ())
            continue
        row_seqs, seqs = [row_seq], [seq]
        while at < count and len(seqs) < COUNT_MAX:
            later = waiting[at]
            if later[1] != producer or later[2] != epoch or later[3] < 0:
                break
            row_seqs.append(later[0])
            seqs.append(later[3])
            used_ms = later[4]
            at += 1
        yield ProducerSeqs(queue_no, levels, producer, epoch, used_ms, row_seqs, seqs)


def _waiting_count(queue: tuple[int, QueueSequences]) -> int:
    return len(queue[1].waiting)
