"""Group commit: many queues' publishes and acks become durable together, or never exist.

The heart of the store, without I/O, threads or clocks. Calls of queues and channels pile up as
*pending* work. When no flush is in flight, the next one takes the pending work: it gives each new message its
place in a segment, makes one journal frame of all rows and acks, and leaves as two jobs. They are
written and synced at the same time (order between the two files does not matter: recovery checks every
row against its record), or with one sync if the messages are few and go *inline* into the frame. When both are
done, the frame's numbers are durable and the queues are told which seqs are safe. So the slower the
disk, the more goes into one sync.

::

    write, publish, ack --> pending --start()--> Flush(rdq job, journal job) --finish()--> Report
                               |                     one at a time                 '--> memtables
                               '-- an ack meets its own row: both vanish, the row counts as safe

Invariants:

* A seq is reported safe only if its row and its message are synced, or if it was acked already.
* The position that a frame calls durable was reported durable by both files before the frame was made.
* A message that a queue may still read is in ``bodies``, in the flush, or at its location.
* ``memtables`` has all durable changes and no others: between two flushes, the log up to ``durable``.
* A message acked everywhere before a flush starts costs no byte on the disk, unless one of its queues is archived
  (``archive``): then its rows there are written, each with its ack in the same frame.

Errors: after a shortage (``core/system/shortage.py``: a disk that is full although the ballast was given up, no
descriptor, no memory) the flush's rows are reported *nacked*, and everything goes back to pending, places and numbers
too; ``resume`` tries again, and a row that was nacked may be reported safe after all. After any other error the store
has **failed**: it is unknown which bytes behind the last durable position are on the disk, no work is taken any more,
and the store must be recovered.

Turned down: a record per message (2 us each instead of 0.3), a sync per queue, journal behind
segment (two waits instead of one), confirming after the write without the sync.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from leveret.core.message import BODY, Message
from leveret.core.system.shortage import is_shortage
from leveret.msg_store.archive.archive import Archive
from leveret.msg_store.format.errors import StoreFailed
from leveret.msg_store.format.file_header import EPOCH_SHIFT
from leveret.msg_store.format.journal_frames import DurablePosition
from leveret.msg_store.format.journal_records import PERSISTENT
from leveret.msg_store.format.record import QueueNos
from leveret.msg_store.format.rows import SEQ_END, Checkpoint, IndexRow, Location
from leveret.msg_store.format.seq_range import SeqRange
from leveret.msg_store.memtable.memtable import Memtable
from leveret.msg_store.memtable.memtables import Memtables, Relocation
from leveret.msg_store.memtable.read_view import ReadView, next_low
from leveret.msg_store.wal.flush import (
    SLICE_OPS,
    Flush,
    FlushBatch,
    QueueRange,
    Relocations,
    index_rows,
    journal_records,
)
from leveret.msg_store.wal.journal import Journal
from leveret.msg_store.wal.pending import (
    EVERY_NO,
    Ack,
    CancelledWrites,
    Holds,
    PendingQueue,
    Row,
    SeqRun,
    msg_no_of,
)
from leveret.msg_store.wal.producers import NO_SEQUENCES, PendingSequences, RowSequence
from leveret.msg_store.wal.segment_writer import SegmentWriter

LINGER_S: Final = 0.2  # for work that no confirm depends on
SHORTAGE_RETRY_S: Final = 1.0
SLICE_ROWS: Final = 2_000  # of a range of seqs that is acked
KEPT_MAX: Final = 1_000  # seqs within a range that is announced


@dataclass(slots=True)
class Report:
    """News for the queues, as runs ``(queue_no, first_seq, count)``.

    Attributes:
        nacked: could not be written now; they stay pending, are named again at each try that
            fails, and may be safe later.
        error: the store has failed; nothing that was not reported safe can be relied on.
    """

    safe: list[SeqRun] = field(default_factory=list)  # on disk, or acked before they got there
    nacked: list[SeqRun] = field(default_factory=list)
    error: StoreFailed | None = None


@dataclass(slots=True, eq=False)
class RangeAck:
    """A range of seqs that is acked: its rows are read first.

    Attributes:
        low: where it goes on.
        read_view: the changes since the read of a slice began; None between reads.
    """

    queue_no: int
    seqs: SeqRange
    then: Callable[[], None] | None  # called when all acks of the range have been issued
    read_view: ReadView | None = None
    low: int = 0

    def __post_init__(self) -> None:
        self.low = self.seqs.low

    @property
    def high(self) -> int:
        return self.seqs.high

    def rows(self, base: list[IndexRow]) -> list[IndexRow]:
        """Return the rows of the slice that was read, and go on to the next."""
        assert self.read_view is not None, "no read was started"
        rows = self.read_view.rows(self.queue_no, self.low, self.high, SLICE_ROWS, base)
        self.read_view = None
        self.low = self.seqs.first_from(next_low(rows, base, SLICE_ROWS, self.high))
        return [row for row in rows if row[0] in self.seqs]

    @property
    def is_done(self) -> bool:
        return self.low >= self.high


class GroupCommit:
    """Collects work, makes flushes of it, and reports which seqs are safe. For one thread.

    Args:
        holds: of messages that are held; made for this ``GroupCommit``.
        memtables: the durable state, over the same ``holds``.
        durable: how far everything is durable now.
        boot_epoch: of this start; messages are numbered from there.
        now_ms: wall time, for time stamps of messages.
        archive: the queues whose settled messages stay; none by default.
        has_end_mark: the store has an end mark (``format.end_mark``).

    Attributes:
        index_listeners: called after each flush and each checkpoint, and when an index read is wanted.
        pending_ops: how much waits for a flush.
        next_msg_no: the number of the next message.
        taken: how many publishes and acks have come so far, cancelled ones included.
        is_short: the last flush met a shortage, and waits for ``resume``.
        shortage: the shortage that the last flush met.
    """

    def __init__(
        self,
        rdq: SegmentWriter,
        journal: Journal,
        holds: Holds,
        memtables: Memtables,
        durable: DurablePosition,
        boot_epoch: int,
        now_ms: Callable[[], int],
        archive: Archive | None = None,
        has_end_mark: bool = False,
    ) -> None:
        self.archive = archive if archive is not None else Archive()
        self.has_end_mark = has_end_mark
        self.holds = holds
        self.memtables = memtables
        self.durable = durable
        self.boot_epoch = boot_epoch
        self.wake: Callable[[], None] | None = None  # called when there may be work for ``start``
        self.index_listeners: list[Callable[[], None]] = []
        self.error: StoreFailed | None = None
        self.range_acks: list[RangeAck] = []
        self.shortage: Exception | None = None
        self.is_rotating = False  # no flush is started as long as counts are owed
        holds.unheld = memtables.unheld
        self.rdq = rdq
        self.journal = journal
        self.next_msg_no = boot_epoch << EPOCH_SHIFT
        self._now_ms = now_ms
        self._pending: defaultdict[int, PendingQueue] = defaultdict(PendingQueue)
        self._cancelled = CancelledWrites()
        self._sequences = PendingSequences()
        self._relocations: list[Relocations] = []
        self._unannounced: list[QueueRange] = []
        self._closed_queues: set[int] = set()
        self.pending_ops = 0
        self.taken = 0
        self._is_urgent = False
        self.is_short = False
        self._is_turn_of_acks = False  # they make room, and need less of it than messages
        self._flush: Flush | None = None
        self._in_flight: dict[int, tuple[Message, QueueNos]] | None = None  # for the first reader

    # For queues and channels.

    def write(
        self, messages: Sequence[Message], queue_nos: QueueNos, size_bytes: int | None = None
    ) -> int:
        """Take messages of one run that routing sends to these queues, each with one reference per queue.

        Nothing is written before one of the queues has published them. Messages that share origin and head as
        objects share their meta. ``queue_nos`` are all persistent queues of the route, at least one, each once;
        ``size_bytes`` that of the bodies together, if the caller knows.

        Returns:
            The number of the first; the others follow it.

        Raises:
            StoreFailed: the store takes nothing any more. All methods for queues raise it.
        """
        if self.error is not None:
            raise self.error
        first = self.next_msg_no
        self.next_msg_no = first + len(messages)
        if size_bytes is None:
            size_bytes = sum([len(message[BODY]) for message in messages])
        self.holds.write(first, messages, queue_nos, size_bytes)
        return first

    def publish(
        self,
        queue_no: int,
        first_seq: int,
        entries: Sequence[Row],
        is_awaited: bool = True,
        routed_as: int | None = None,
    ) -> None:
        """Put messages ``(msg_no, expiry_ms)`` at seqs in a row of a queue, which has none of them.

        No ack of these seqs may be pending (``acked_meanwhile``), and no range may be in work that they lie in.

        ``is_awaited``: a publisher waits for a confirm; otherwise the flush may be put off. ``routed_as``: their
        queue's route number, when it keeps its rows under several numbers (one per priority).

        Raises:
            StoreError: one of them was not written for this queue, or is in it already.
        """
        if self.error is not None:
            raise self.error
        if self._closed_queues:
            self._reopen(queue_no)
        accepts = queue_no if routed_as is None else routed_as
        self.holds.accept(accepts, list(map(msg_no_of, entries)))
        pending = self._pending[queue_no]
        rows = pending.rows
        if rows and first_seq < next(reversed(rows)):
            pending.is_sorted = False
        for seq, row in enumerate(entries, first_seq):
            rows[seq] = row
        self.pending_ops += len(entries)
        self.taken += len(entries)
        self._is_urgent |= is_awaited
        if self.wake is not None:
            self.wake()

    def ack(self, queue_no: int, acked: Sequence[Ack]) -> None:
        """Take ``(seq, msg_no)`` out of a queue, which has each of them; each is named once."""
        if self.error is not None:
            raise self.error
        if self._closed_queues:
            self._reopen(queue_no)
        pending = self._pending[queue_no]
        cancelled: list[Ack] = []
        if queue_no in self.archive.row_nos:
            pending.settle(acked)
        else:
            cancelled = pending.ack(acked)
        self.pending_ops += len(acked) - 2 * len(cancelled)
        self.taken += len(acked)
        if cancelled:
            self.holds.release([msg_no for _, msg_no in cancelled])
            self._cancelled.add(queue_no, cancelled)
        if not pending:
            del self._pending[queue_no]
        if self.wake is not None:
            self.wake()

    def ack_range(
        self, queue_no: int, seqs: SeqRange, then: Callable[[], None] | None = None
    ) -> None:
        """Remove all rows of a queue within a range; none that is published later lies in it.

        Rows that are in RAM, and some more, go with the next flush: nothing that is published later is
        confirmed before that. Rows of the index are looked up first, and taken out a slice at a time. ``then``
        is called when the acks of all have been issued.

        The next flush *announces* the range: after a crash behind it, replay takes out all of it at once. Each
        journal announces the ranges that are left. It does not announce a range with more than ``KEPT_MAX`` kept
        seqs: of such a range, slices that were not acked yet come back after a crash.
        """
        self._check()
        pending = self._pending.get(queue_no)
        rows = [(seq, row[0]) for seq, row in pending.rows.items()] if pending else []
        if self._flush is not None:
            in_flight = self._flush.batch.rows.get(queue_no, ())
            rows += [(seq, msg_no) for seq, msg_no, _ in in_flight]
        recent = self.memtables.read_view().rows(queue_no, seqs.low, seqs.high, SLICE_ROWS, [])
        rows += [row[:2] for row in recent]
        acked = self.acked_meanwhile(queue_no)
        rows = [row for row in rows if row[0] in seqs and row[0] not in acked]
        if rows:
            self.ack(queue_no, rows)
        self.range_acks.append(RangeAck(queue_no, seqs, then))
        self._announce(self.range_acks[-1:])
        self.wake_index()

    def _announce(self, ranges: list[RangeAck]) -> None:
        """Have the next flush announce ranges."""
        new = [each for each in ranges if len(each.seqs.kept) <= KEPT_MAX]
        if new:
            self._unannounced += new
            self.pending_ops += len(new)
            self.hurry()

    @property
    def has_unannounced(self) -> bool:
        """The present journal may lack a range that the previous journal has announced."""
        return bool(self._unannounced or (self._flush is not None and self._flush.batch.ranges))

    def acked_meanwhile(self, queue_no: int, low: int = 0) -> set[int]:
        """Return the seqs of a queue, from ``low`` on, whose acks are pending or in flight."""
        pending = self._pending.get(queue_no)
        seqs = {seq for seq, _ in pending.acks if seq >= low} if pending else set()
        if pending and pending.settled:
            seqs.update([seq for seq in pending.settled if seq >= low])
        if self._flush is not None:
            seqs |= self._flush.batch.acked(queue_no, low)
        return seqs

    def produced(self, queue_no: int, levels: int, sequences: Sequence[RowSequence]) -> None:
        """Take sequences of producers, in order; each goes with the row that it names, which was issued before.

        ``queue_no`` is the queue's first number; its rows are under so many (``levels``).
        """
        self._check()
        self._sequences.add(queue_no, levels, sequences)
        self.pending_ops += len(sequences)
        if self.wake is not None:
            self.wake()

    def queue_down(self, queue_no: int) -> None:
        self._check()
        self.holds.queue_down(queue_no)

    @property
    def has_residents(self) -> bool:
        """Some messages are in RAM because they are not on disk yet."""
        return bool(self.holds.bodies or (self._flush is not None and self._flush.batch.items))

    def resident(self, msg_no: int) -> Message | None:
        """Return such a message; None if it is on disk, or gone."""
        item = self.holds.bodies.get(msg_no)
        if item is None and self._flush is not None:
            if self._in_flight is None:
                self._in_flight = dict(self._flush.batch.items)
            item = self._in_flight.get(msg_no)
        return item[0] if item is not None else None

    def unwritten_rows(self, queue_no: int) -> list[IndexRow]:
        """Return the rows of a queue that are not durable yet, ascending."""
        found = list(self._flush.rows.get(queue_no, ())) if self._flush is not None else []
        pending, count = self._pending.get(queue_no), len(found)
        if pending:
            found += [
                (seq, msg_no, self._size_of(msg_no), expiry_ms, PERSISTENT)
                for seq, (msg_no, expiry_ms) in pending.rows.items()
            ]
            is_behind = count in (0, len(found)) or found[count - 1] < found[count]
            if not (pending.is_sorted and is_behind):
                found.sort()
        return found

    def _size_of(self, msg_no: int) -> int:
        message = self.resident(msg_no)
        return len(message[BODY]) if message else self.holds.locations[msg_no][3]

    def close_queue(self, queue_no: int, next_seq: int, next_deliver: int) -> None:
        """Note the seqs that a queue resumes with at the start after a clean stop.

        A later publish or ack of the queue makes that void. Messages below ``next_deliver`` were handed out.
        """
        self.queue_down(queue_no)
        self.memtables.close_queue(queue_no, next_seq, next_deliver)
        self._closed_queues.add(queue_no)

    def delete_queue(self, queue_no: int, then: Callable[[], None] | None = None) -> None:
        """Remove all messages of a queue, and forget the queue when that is durable."""
        self.queue_down(queue_no)
        self.pending_ops -= self._sequences.drop(queue_no)
        self.ack_range(queue_no, SeqRange(0, SEQ_END), then)
        self.memtables.forget_queue(queue_no)

    def move(self, relocations: Sequence[Relocation], then: Callable[[bool], None]) -> None:
        """Move messages to the collector's copies, which are synced.

        ``then`` is called once per copy, in a later turn perhaps, with whether the copy is used. It is not if the
        message is gone, lies elsewhere, or is held: its next row may name the old place.
        """
        self._check()
        self._relocations.append(Relocations(list(relocations), then))
        self.pending_ops += len(relocations)
        self._is_urgent = True
        if self.wake is not None:
            self.wake()

    def wake_index(self) -> None:
        """Tell the drivers of checkpoints and of the collector that there may be work."""
        for listener in self.index_listeners:
            listener()

    def hurry(self) -> None:
        """Let all that is pending be flushed at once."""
        self._is_urgent = self.pending_ops > 0
        if self.wake is not None:
            self.wake()

    # For the driver.

    def delay_s(self) -> float | None:
        """Tell in how many seconds ``start`` should be called; None: there is nothing to flush now.

        After ``SHORTAGE_RETRY_S`` it is ``resume`` that should be called: a shortage may have passed. With a shortage
        there is a flush also when all that waited has been cancelled: publishers wait to be told that it is over.
        """
        if self._flush is not None or self.error is not None or self.is_rotating:
            return None
        if not self.has_work:
            return None
        if self.is_short:
            return SHORTAGE_RETRY_S
        return (
            0.0
            if not self.pending_ops or self._is_urgent or self.pending_ops >= SLICE_OPS
            else LINGER_S
        )

    @property
    def has_work(self) -> bool:
        """Something is to be written, if only a frame that shows that a shortage is over."""
        return bool(self.pending_ops) or self.shortage is not None

    @property
    def is_idle(self) -> bool:
        """Nothing is pending, nothing on its way, and no range is left to be acked."""
        return self._flush is None and not self.pending_ops and not self.range_acks

    def take_cancelled(self) -> list[SeqRun]:
        """Return, once, the seqs that became safe without a flush; in order, unless the disk is full."""
        if self._flush is not None or not self._cancelled:
            return []  # a flush's report has them
        runs = self._cancelled.take({} if self.is_short else self._pending)
        self._is_urgent = self._is_urgent or bool(self._cancelled)
        return runs

    def has_older_work(self, below: int) -> bool:
        """Tell whether more is pending than acks and rows of messages with this number or a higher one."""
        if self._relocations or self._unannounced or not self.pending_ops:
            return True
        for pending in self._pending.values():
            for msg_no, _ in pending.rows.values():
                if msg_no < below:
                    return True
                break
        return False

    def start(self, below: int = EVERY_NO) -> Flush:
        """Take pending work, as much as is good for one flush, and make jobs of it.

        ``below``: no rows of messages with this number or a higher one are taken. With nothing pending the flush only
        notes in the journal how far everything is durable.
        """
        self._check()
        assert self._flush is None, "one flush at a time"
        batch = FlushBatch(relocations=self._take_relocations(), is_of_acks=self._is_turn_of_acks)
        self._is_turn_of_acks = False
        share = self._sequences.share(self._pending) if self._sequences else NO_SEQUENCES
        self.pending_ops -= batch.take_whole(self._pending, self.holds, share)
        self.pending_ops -= batch.take(self._pending, self.holds, below, share)
        self.pending_ops -= len(self._unannounced)
        if self._sequences and not batch.is_of_acks:
            batch.sequences = self._sequences.take(self._pending, share)
            self.pending_ops -= sum(len(each.waiting) for _, each in batch.sequences)
        batch.ranges, self._unannounced = list(self._unannounced), []
        self._is_urgent = self._is_urgent and self.pending_ops > 0
        rdq_before, journal_before = self.rdq.place, self.journal.end
        now_ms = self._now_ms()
        rdq, new = self.rdq.job(batch.items, now_ms)
        late = self._late(batch, new)
        places = new | late if late else new
        rows = {no: index_rows(some, places) for no, some in batch.rows.items()}
        records = journal_records(rows, batch, places, rdq)
        makes_room = bool(records) and not rows and not batch.sequences  # acks or moves
        journal = self.journal.job(records, self.durable, now_ms, makes_room)
        self._flush = Flush(batch, rows, new, late, rdq, journal, rdq_before, journal_before)
        return self._flush

    def finish(self, *errors: Exception | None) -> Report:
        """Note that both jobs of the flush have ended, each well or with an error."""
        flush, self._flush, self._in_flight = self._flush, None, None
        assert flush is not None, "no flush was started"
        if self.error is not None:
            return Report()  # it has failed meanwhile, and said so
        failures = [error for error in errors if error is not None]
        final = [error for error in failures if not is_shortage(error)]
        if final:
            return self.fail(final[0])
        if failures:
            self.shortage = failures[0]
        elif not (flush.batch.is_of_acks and self._pending):
            self.shortage = None
        return self._put_back(flush) if failures else self._durable(flush)

    def can_rotate(self) -> bool:
        """Tell whether the memtables are exactly the log up to ``durable``, and no count is owed."""
        return self._flush is None and self.error is None and not self.memtables.has_unresolved

    def rotate(self, is_clean: bool = False) -> Memtable:
        """Begin a new memtable and a new journal file; ``is_clean``: nothing will be written any more."""
        assert self.can_rotate(), "a memtable is a range of the log"
        self.journal.switch()
        self.is_rotating = False
        if not is_clean:
            self._announce([each for each in self.range_acks if each not in self._unannounced])
        if self.wake is not None:
            self.wake()
        lsn, journal_no = self.journal.end.next_lsn, self.journal.next_file_no
        next_file_no, owed = self.rdq.next_file_no, self.rdq.take_owed()
        since: tuple[int, int] | None = None
        if self.has_end_mark:
            since = min(self.holds.locations.values(), default=self.rdq.reached)[:2]
        point = Checkpoint(lsn, journal_no, self.boot_epoch, next_file_no, is_clean, since)
        return self.memtables.rotate(point, owed)

    def fail(self, cause: Exception) -> Report:
        self.error = StoreFailed(f"the message store cannot go on: {cause}")
        self.error.__cause__ = cause
        self._pending.clear()
        self._sequences.clear()
        self._cancelled.clear()
        self._relocations.clear()
        self._unannounced.clear()
        self.range_acks.clear()
        self.holds.clear_bodies()
        self.pending_ops = 0
        return Report(error=self.error)

    def resume(self) -> None:
        self.is_short = False
        if self.wake is not None:
            self.wake()

    # Inside.

    def _check(self) -> None:
        if self.error is not None:
            raise self.error

    def _reopen(self, queue_no: int) -> None:
        if queue_no in self._closed_queues:
            self._closed_queues.discard(queue_no)
            self.memtables.reopen_queue(queue_no)

    def _late(self, batch: FlushBatch, new: dict[int, Location]) -> dict[int, Location]:
        """Return the places of messages in a flush that were written before."""
        locations = self.holds.locations
        if not locations:
            return {}
        return {no: locations[no] for no in batch.msg_nos() if no not in new}

    def _take_relocations(self) -> list[Relocations]:
        """Take the collector's next copies, without copies of messages that are held."""
        first, self._relocations = self._relocations[:1], self._relocations[1:]
        held = self.holds.counts
        for relocations in first:
            copies = [each for each in relocations.copies if each.msg_no not in held]
            for _ in range(len(relocations.copies) - len(copies)):
                self.pending_ops -= 1
                relocations.then(False)
            relocations.copies = copies
        return first

    def _durable(self, flush: Flush) -> Report:
        self.durable = DurablePosition(self.journal.end.next_lsn, *self.rdq.reached)
        batch, memtables = flush.batch, self.memtables
        rows = flush.add_to(memtables)
        if self.archive:
            self.archive.written(batch.items, flush.new, flush.rdq.parts, self._now_ms())
        if self.holds.counts:
            self.holds.durable(rows or dict.fromkeys(flush.new, 1), flush.new)
        for queue_no, queue in batch.sequences:
            for _, producer, epoch, seq, used_ms in queue.waiting:
                memtables.produced(queue_no, producer, (epoch, seq, used_ms) if seq >= 0 else None)
        for queue_no, acks in batch.acks.items():
            memtables.acked(queue_no, acks)
        for relocations in batch.relocations:
            memtables.moved(relocations.copies, relocations.then)
        self.wake_index()
        return Report(safe=[*flush.batch.runs(), *self.take_cancelled()])

    def _put_back(self, flush: Flush) -> Report:
        self.rdq.rewind(flush.rdq_before)
        self.journal.rewind(flush.journal_before)
        self.holds.put_back(flush.batch.items)
        self._relocations = flush.batch.relocations + self._relocations
        self._unannounced = flush.batch.ranges + self._unannounced
        leaving = self.memtables.leaving
        self._sequences.put_back([each for each in flush.batch.sequences if each[0] not in leaving])
        nacked = flush.batch.runs()
        rows, acks = flush.batch.rows, flush.batch.acks
        for queue_no in rows.keys() | acks.keys():
            pending = self._pending[queue_no]
            is_archived = queue_no in self.archive.row_nos
            gone = pending.put_back(rows.get(queue_no, []), acks.get(queue_no, []), is_archived)
            self.holds.release([msg_no for _, msg_no in gone])
            self._cancelled.add(queue_no, gone)
            if not pending:
                del self._pending[queue_no]
        self.pending_ops = sum(map(len, self._pending.values()))
        self.pending_ops += sum(len(relocations.copies) for relocations in self._relocations)
        self.pending_ops += len(self._unannounced) + len(self._sequences)
        self.is_short = self._is_urgent = True
        has_acks = any(pending.acks for pending in self._pending.values())
        self._is_turn_of_acks = has_acks and bool(rows)
        return Report(nacked=nacked, safe=self.take_cancelled())
