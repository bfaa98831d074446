"""Replay: the journal records above the checkpoint become a memtable.

The index is the log up to the checkpoint's LSN, so records below it are skipped. A record above has the
effect that its flush had when it became durable (``Memtables``). A row or message that an ack or a move
names may be in the index only; then it is read there.

After damage, parts of the log may be missing or repeated, without harm to the rest: a publish of a row
that exists is skipped, as is an ack of a row that does not, and of two locations of a message the one in
the higher file wins, because the collector copies to higher files.

Sequences of producers go with their rows. A crash may have lost messages of the last frames, whose rows are then
dropped; ``roll_back`` takes the sequences of these rows and of all later ones of the same producer back. So a producer
that sends again what was not confirmed finds neither a sequence without its message nor a message without its sequence.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from math import inf
from operator import add

from leveret.msg_store.format.journal_frames import DurablePosition, Frame
from leveret.msg_store.format.journal_records import (
    AckRange,
    Acks,
    JournalRecord,
    Move,
    ProducerSeqs,
    Publishes,
)
from leveret.msg_store.format.rows import (
    Index,
    IndexRow,
    Location,
    ProducerKey,
    ProducerRow,
    Producers,
)
from leveret.msg_store.memtable.memtables import ANY_SOURCE, Memtables, Relocation

_PAGE_ROWS = 2_000
_RESOLVED_AT_ONCE = 10_000
_SPARSE = 4


class Replay:
    """Applies journal records from ``from_lsn`` on to memtables, which have the index's counts and no changes.

    All below ``durable`` was durable; frames that are read raise it.
    """

    def __init__(
        self, memtables: Memtables, index: Index, from_lsn: int, durable: DurablePosition
    ) -> None:
        self._durable = durable
        self.ends: dict[int, int] = {}  # by segment: the end of its last record that a row names
        self.moved: set[int] = set()  # messages that the collector copied
        self.msg_no_seen = 0
        self.file_no_seen = 0
        self._memtables = memtables
        self._index = index
        self._from_lsn = from_lsn
        self._known_queues = set(index.queues())
        self._above_index: float = inf  # the index has no message from this number on
        self._young: list[tuple[int, int, int, int]] = []  # LSN, queue_no, first_seq, count
        self.producers: Producers = index.producers()
        self.rolled_back: dict[ProducerKey, ProducerRow | None] = {}
        # Of frames that were not known to be durable: LSN, record, the row before it.
        self._young_sequences: list[tuple[int, ProducerSeqs, ProducerRow | None]] = []

    def add(self, frame: Frame, records: list[JournalRecord]) -> None:
        self._durable = max(self._durable, frame.durable)
        self._young = [run for run in self._young if run[0] >= self._durable.lsn]
        if self._young_sequences:
            durable = self._durable.lsn
            self._young_sequences = [each for each in self._young_sequences if each[0] >= durable]
        for lsn, record in enumerate(records, frame.first_lsn):
            if lsn < self._from_lsn:
                continue
            match record:
                case Publishes():
                    self._publishes(record, lsn)
                case Acks(queue_no, seqs):
                    self._acked(queue_no, seqs)
                case AckRange(queue_no, first, last):
                    self._ack_range(queue_no, first, last)
                case ProducerSeqs():
                    self._produced(record, lsn)
                case Move(msg_no, file_no, offset, length):
                    self.moved.add(msg_no)
                    self.file_no_seen = max(self.file_no_seen, file_no)
                    copy = Relocation(msg_no, ANY_SOURCE, file_no, offset, length)
                    self._memtables.moved([copy], lambda _: None)

    def publish(self, run: Publishes) -> None:
        """Add rows without a journal record; a queue's rows stay in order."""
        self._publishes(run, 0)
        rows = self._memtables.active.rows
        if run.queue_no in rows:
            rows[run.queue_no] = dict(sorted(rows[run.queue_no].items()))

    def finish(self) -> None:
        """Look up the counts in the index that acks and copies need."""
        wanted = self._memtables.unresolved()
        for first in range(0, len(wanted), _RESOLVED_AT_ONCE):
            some = wanted[first : first + _RESOLVED_AT_ONCE]
            self._memtables.resolve(some, self._index.locations(some))

    def young_rows(self) -> set[tuple[int, int]]:
        """Return ``(queue_no, seq)`` of the rows that were not known to be durable."""
        return {
            (queue_no, seq)
            for _, queue_no, first, count in self._young
            for seq in range(first, first + count)
        }

    def _produced(self, record: ProducerSeqs, lsn: int) -> None:
        before = self.producers.get(record.queue_no, {}).get(record.producer)
        self._young_sequences.append((lsn, record, before))
        row = (record.epoch, record.seqs[-1], record.used_ms) if record.seqs else None
        self.set_producer((record.queue_no, record.producer), row)

    def set_producer(self, key: ProducerKey, row: ProducerRow | None) -> None:
        queue_no, producer = key
        self._memtables.produced(queue_no, producer, row)
        producers = self.producers.setdefault(queue_no, {})
        if row is None:
            producers.pop(producer, None)
        else:
            producers[producer] = row

    def roll_back(self, dropped: set[tuple[int, int]]) -> list[tuple[int, int, int]]:
        """Take back the sequences of rows ``(queue_no, seq)`` that were dropped, and of the same producers' later ones.

        Returns:
            The rows of the later sequences, ``(queue_no, seq, msg_no)``: they are to be dropped as well.
        """
        also: list[tuple[int, int, int]] = []
        for _, record, before in self._young_sequences:
            key = record.queue_no, record.producer
            first = 0
            if key not in self.rolled_back:
                first = _first_dropped(record, dropped)
                if first < 0:
                    continue
                kept = (record.epoch, record.seqs[first - 1], record.used_ms) if first else before
                self.rolled_back[key] = kept
                self.set_producer(key, kept)
            for queue_no in range(record.queue_no, record.queue_no + record.levels):
                rows = self._memtables.active.rows.get(queue_no, {})
                also += [
                    (queue_no, seq, rows[seq][1])
                    for seq in record.row_seqs[first:]
                    if seq in rows and (queue_no, seq) not in dropped
                ]
        return also

    def _publishes(self, run: Publishes, lsn: int) -> None:
        memtables, queue_no, first = self._memtables, run.queue_no, run.first_seq
        count = len(run.msg_nos)
        expiries = run.expiries_ms or [0] * count
        columns = zip(run.msg_nos, run.body_sizes, expiries, strict=True)
        rows = [(seq, *column, run.flags) for seq, column in enumerate(columns, first)]
        spans = zip(run.msg_nos, run.offsets, run.lengths, run.body_sizes, strict=True)
        locations = {
            no: (run.file_no, offset, length, size, 1) for no, offset, length, size in spans
        }
        self.msg_no_seen = max(self.msg_no_seen, *run.msg_nos)
        self.file_no_seen = max(self.file_no_seen, run.file_no)
        end = max(
            map(add, run.offsets, run.lengths)
        )  # a fan-out may have placed the last one first
        self.ends[run.file_no] = max(end, self.ends.get(run.file_no, 0))
        terms = memtables.terms.get(queue_no)
        if terms is not None and first < terms.next_seq:
            known = {seq for seq, _ in self._present(queue_no, range(first, first + count))}
            rows = [row for row in rows if row[0] not in known]
            locations = {row[1]: locations[row[1]] for row in rows}
        if not rows:
            return
        unknown = [msg_no for msg_no in locations if not memtables.knows(msg_no)]
        indexed = self._indexed(unknown)
        new = {no: locations[no] for no in unknown if no not in indexed}
        memtables.placed(new)
        memtables.files.hold(run.file_no, sum(location[2] for location in new.values()))
        memtables.published(queue_no, rows)
        if len(new) != len(rows):
            memtables.count_rows(dict.fromkeys(locations, 1), new, locations)
        self._young.append((lsn, queue_no, first, count))

    def _indexed(self, msg_nos: list[int]) -> dict[int, Location]:
        """Look messages up in the index, unless it has none of such high numbers, as with nearly all."""
        if not msg_nos or (lowest := min(msg_nos)) >= self._above_index:
            return {}
        if not self._index.scan_locations(lowest, 1):
            self._above_index = lowest
            return {}
        return self._index.locations(msg_nos)

    def _present(self, queue_no: int, seqs: Sequence[int]) -> list[tuple[int, int]]:
        """Return ``(seq, msg_no)`` of the seqs that have a row."""
        rows = self._memtables.active.rows.get(queue_no, {})
        present = [(seq, rows[seq][1]) for seq in seqs if seq in rows]
        if len(present) == len(seqs) or queue_no not in self._known_queues:
            return present
        acked = self._memtables.active.acked.get(queue_no, ())
        wanted = {seq for seq in seqs if seq not in rows and seq not in acked}
        return present + [(row[0], row[1]) for row in self._in_index(queue_no, wanted)]

    def _in_index(self, queue_no: int, wanted: set[int]) -> list[IndexRow]:
        if not wanted:
            return []
        low, high = min(wanted), max(wanted) + 1
        if high - low > _SPARSE * len(wanted):
            return [row for seq in wanted for row in self._index.rows(queue_no, seq, seq + 1, 1)]
        return [row for row in pages(self._index, queue_no, low, high) if row[0] in wanted]

    def _acked(self, queue_no: int, seqs: Sequence[int]) -> None:
        if present := self._present(queue_no, seqs):
            self._memtables.acked(queue_no, present)

    def _ack_range(self, queue_no: int, first: int, last: int) -> None:
        active = self._memtables.active
        rows, count = active.rows.get(queue_no, {}), last - first + 1
        if count <= len(rows):
            present = [(seq, rows[seq][1]) for seq in range(first, last + 1) if seq in rows]
        else:
            present = [(seq, row[1]) for seq, row in rows.items() if first <= seq <= last]
        if len(present) < count and queue_no in self._known_queues:
            acked = active.acked.get(queue_no, ())
            below = iter(pages(self._index, queue_no, first, last + 1))
            while page := list(islice(below, _PAGE_ROWS)):
                live = [(row[0], row[1]) for row in page if row[0] not in acked]
                if live:
                    self._memtables.acked(queue_no, live)
        if present:
            self._memtables.acked(queue_no, present)


def _first_dropped(record: ProducerSeqs, dropped: set[tuple[int, int]]) -> int:
    """Return the position of the first row that was dropped; -1: none was."""
    queue_nos = range(record.queue_no, record.queue_no + record.levels)
    for at, seq in enumerate(record.row_seqs):
        if any((queue_no, seq) in dropped for queue_no in queue_nos):
            return at
    return -1


def pages(index: Index, queue_no: int, low: int, high: int) -> Iterable[IndexRow]:
    """Yield all rows of a range, however many."""
    while rows := index.rows(queue_no, low, high, _PAGE_ROWS):
        yield from rows
        low = rows[-1][0] + 1
