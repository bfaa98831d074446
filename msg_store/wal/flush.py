"""One flush: pending work as records, frames and jobs.

Rows of a queue become one PUBS record per run of seqs that follow each other and lie in one segment;
acks one ACKR per run, and so do ranges that are announced. All records of a flush are one frame: inline messages,
rows, producer sequences, acks, ranges, and last the moves, each of which replaces the place that a row before may
have named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from leveret.msg_store.format import journal_records as records
from leveret.msg_store.format.append_log import Job, LogEnd
from leveret.msg_store.format.record import Unwritten
from leveret.msg_store.format.rows import SEQ_END, IndexRow, Location
from leveret.msg_store.format.seq_range import SeqRange
from leveret.msg_store.memtable.memtables import Memtables, Relocation
from leveret.msg_store.wal.journal import JournalEnd
from leveret.msg_store.wal.pending import (
    EVERY_NO,
    Ack,
    Holds,
    PendingQueue,
    SeqRow,
    SeqRun,
    seq_of,
    seq_runs,
)
from leveret.msg_store.wal.producers import NO_SEQUENCES, QueueSequences, Share, records_of

SLICE_OPS: Final = 2_000  # 1,000 took more CPU where acks come, and no login was faster
SLICE_ACKS: Final = 20_000  # some 10 ms of work
SLICE_BYTES: Final = 1024 * 1024
_NO_LIMIT: Final = 1 << 62


@dataclass(slots=True)
class Relocations:
    """Copies of the collector; ``then`` is called for each with whether it is used."""

    copies: list[Relocation]
    then: Callable[[bool], None]


class QueueRange(Protocol):
    """Seqs of a queue."""

    @property
    def queue_no(self) -> int: ...

    @property
    def seqs(self) -> SeqRange: ...


@dataclass(slots=True)
class FlushBatch:
    """The pending work of one flush."""

    rows: dict[int, list[SeqRow]] = field(default_factory=dict)  # by queue_no
    acks: dict[int, list[Ack]] = field(default_factory=dict)  # likewise, each ascending
    items: list[Unwritten] = field(default_factory=list)
    relocations: list[Relocations] = field(default_factory=list)
    ranges: list[QueueRange] = field(default_factory=list)  # to be announced
    sequences: list[tuple[int, QueueSequences]] = field(default_factory=list)  # by queue_no
    is_of_acks: bool = False  # messages wait, since the disk is full

    def take_whole(
        self, pending_queues: dict[int, PendingQueue], holds: Holds, share: Share
    ) -> int:
        """Take the pending work of queues with priorities, whatever the limits; return how many operations."""
        ops = 0
        if self.is_of_acks:
            return ops
        for queue_no in share.whole:
            pending = pending_queues.pop(queue_no, None)
            if pending is None:
                continue
            if pending.acks:
                ops += self._take_acks(queue_no, pending, len(pending.acks))
            if pending.rows:
                ops += self._take_rows(queue_no, pending, holds, share=share)[0]
            if pending:
                pending_queues[queue_no] = pending
        return ops

    def _take_rows(
        self,
        queue_no: int,
        pending: PendingQueue,
        holds: Holds,
        limits: tuple[int, int] = (_NO_LIMIT, _NO_LIMIT),
        below: int = EVERY_NO,
        share: Share = NO_SEQUENCES,
    ) -> tuple[int, int]:
        """Take rows of a queue, so many and with so many bytes; return how many operations, and the bytes."""
        end = share.ends.get(queue_no, SEQ_END)
        rows, size_bytes = pending.take_rows(*limits, holds, self.items, below, end)
        if rows:
            self.rows.setdefault(queue_no, []).extend(rows)
        ops = len(rows)
        if pending.settled:
            ops += self._add_acks(queue_no, pending.take_settled(rows))
        return ops, size_bytes

    def take(
        self,
        pending_queues: dict[int, PendingQueue],
        holds: Holds,
        below: int = EVERY_NO,
        share: Share = NO_SEQUENCES,
    ) -> int:
        """Take pending work up to the limits of a slice; return how many operations were taken.

        ``below``: rows of messages with this number or a higher one stay, and those behind them in their queues.

        A queue with work left goes behind the others. Acks of queues that got no turn are taken as well: they
        are little work, and an ack must not wait for more than the flush in flight, however much is
        published to other queues.
        """
        ops, size_bytes = sum(len(relocations.copies) for relocations in self.relocations), 0
        acked, visited = 0, list[int]()
        if self.is_of_acks:
            return ops + self._take_acks_of_others(pending_queues, SLICE_ACKS)
        for queue_no, pending in pending_queues.items():
            if ops >= SLICE_OPS or size_bytes >= SLICE_BYTES or acked >= SLICE_ACKS:
                break
            visited.append(queue_no)
            if pending.acks:
                count = self._take_acks(queue_no, pending, SLICE_ACKS - acked)
                ops, acked = ops + count, acked + count
            if pending.rows and ops < SLICE_OPS:
                limits = SLICE_OPS - ops, SLICE_BYTES - size_bytes
                count, body_bytes = self._take_rows(queue_no, pending, holds, limits, below, share)
                ops, size_bytes = ops + count, size_bytes + body_bytes
        for queue_no in visited:  # at the end: a look for the first key passes all that are gone
            pending = pending_queues.pop(queue_no)
            if pending:
                pending_queues[queue_no] = pending
        if not pending_queues:
            return ops
        return ops + self._take_acks_of_others(pending_queues, SLICE_ACKS - acked)

    def _take_acks(self, queue_no: int, pending: PendingQueue, count_max: int) -> int:
        return self._add_acks(queue_no, pending.take_acks(count_max))

    def _add_acks(self, queue_no: int, acks: list[Ack]) -> int:
        if queue_no in self.acks:
            self.acks[queue_no] += acks
            self.acks[queue_no].sort()
        elif acks:
            self.acks[queue_no] = acks
        return len(acks)

    def _take_acks_of_others(self, pending_queues: dict[int, PendingQueue], count_max: int) -> int:
        """Take the acks of queues that got no turn."""
        count, emptied = 0, list[int]()
        for queue_no, pending in pending_queues.items():
            if count == count_max:
                break
            if pending.acks and queue_no not in self.acks:
                count += self._take_acks(queue_no, pending, count_max - count)
                if not pending:
                    emptied.append(queue_no)
        for queue_no in emptied:
            del pending_queues[queue_no]
        return count

    def runs(self) -> list[SeqRun]:
        """Return the rows as runs, for the report."""
        runs: list[SeqRun] = []
        for queue_no, rows in self.rows.items():
            runs += seq_runs(queue_no, list(map(seq_of, rows)))
        return runs

    def acked(self, queue_no: int, low: int) -> set[int]:
        """Return the seqs from ``low`` on that are acked; a consumer that drains the queue acks lower ones."""
        acks = self.acks.get(queue_no)
        return {seq for seq, _ in acks if seq >= low} if acks and acks[-1][0] >= low else set()

    def msg_nos(self) -> list[int]:
        return [row[1] for rows in self.rows.values() for row in rows]


@dataclass(slots=True)
class Flush:
    """A flush in flight: two jobs, and the places to go back to if one fails.

    The jobs may be done in any order and at the same time, unless the segments' job is inline: then it is
    done first.
    """

    batch: FlushBatch  # the pending work that it took
    rows: dict[int, list[IndexRow]]  # by queue_no, as the index has them
    new: dict[int, Location]  # places of its messages
    late: dict[int, Location]  # places of messages that were written before
    rdq: Job
    journal: Job
    rdq_before: LogEnd  # where each job begins
    journal_before: JournalEnd

    def add_to(self, memtables: Memtables) -> Mapping[int, int] | None:
        """Add its rows and messages, now durable, to the memtables.

        Returns how many rows each message has in it; None if each has one and is new.
        """
        memtables.placed(self.new)
        size_bytes = self.rdq.start.offset
        for part in self.rdq.parts:
            if part.header is not None:
                size_bytes = len(part.header)
            record_bytes = sum(map(len, part.buffers))
            size_bytes += record_bytes
            memtables.files.fill(part.file_no, record_bytes, size_bytes)
        row_count = 0
        for queue_no, rows in self.rows.items():
            memtables.published(queue_no, rows)
            row_count += len(rows)
        if row_count == len(self.new):
            return None
        counts = Counter(self.batch.msg_nos())
        memtables.count_rows(counts, self.new, self.late)
        return counts


def index_rows(rows: list[SeqRow], places: dict[int, Location]) -> list[IndexRow]:
    """Return rows as the index has them."""
    return [
        (seq, msg_no, places[msg_no][3], expiry_ms, records.PERSISTENT)
        for seq, msg_no, expiry_ms in rows
    ]


def journal_records(
    rows: dict[int, list[IndexRow]], batch: FlushBatch, places: dict[int, Location], rdq: Job
) -> list[bytes]:
    """Return the journal records of a flush; ``rdq`` writes its messages."""
    made = []
    if rdq.is_inline:
        data = b"".join(rdq.parts[0].buffers)
        made.append(records.encode_redo(*rdq.start, data))
    for queue_no, some in rows.items():
        if len(some) == 1:
            made.append(records.encode_publish(queue_no, some[0], places[some[0][1]]))
            continue
        made += [records.encode_publishes(run) for run in publishes(queue_no, some, places)]
    for queue_no, sequences in batch.sequences:
        made += [records.encode_producer(each) for each in records_of(queue_no, sequences)]
    for queue_no, acks in batch.acks.items():
        made += records.encode_acks(queue_no, list(map(seq_of, acks)))
    for each in batch.ranges:
        made += [records.encode_ack_run(each.queue_no, *run) for run in each.seqs.runs()]
    for relocations in batch.relocations:
        made += [
            records.encode_move(records.Move(msg_no, file_no, offset, length))
            for msg_no, _, file_no, offset, length in relocations.copies
        ]
    return made


def publishes(
    queue_no: int, rows: list[IndexRow], locations: dict[int, Location]
) -> Iterator[records.Publishes]:
    """Yield a queue's rows as runs: seqs in a row, one segment, not too long for a record."""
    places = [locations[row[1]] for row in rows]
    first, last_seq, last_file = 0, rows[0][0] - 1, places[0][0]
    for index, (row, place) in enumerate(zip(rows, places, strict=True)):
        is_next = row[0] == last_seq + 1 and place[0] == last_file
        if not is_next or index - first == records.COUNT_MAX:
            yield _run(queue_no, rows[first:index], places[first:index])
            first = index
        last_seq, last_file = row[0], place[0]
    yield _run(queue_no, rows[first:], places[first:])


def _run(queue_no: int, rows: list[IndexRow], places: list[Location]) -> records.Publishes:
    _, msg_nos, sizes, expiries, _ = zip(*rows, strict=True)
    file_nos, offsets, lengths, _, _ = zip(*places, strict=True)
    seq, some = rows[0][0], expiries if any(expiries) else None
    return records.Publishes(
        queue_no, seq, records.PERSISTENT, file_nos[0], msg_nos, offsets, lengths, sizes, some
    )
