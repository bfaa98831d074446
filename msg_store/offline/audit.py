"""The audit of a store: every row, every message, every count, compared with what should be.

A start looks at what the journal brought and believes the rest; this believes nothing. It goes over

1. the places of all messages,
2. the rows of all queues: each has a message, each message as many rows as are counted,
3. the segments: each message lies where it should, whole, with its checksum; those that do not are
   searched for in all segments,
4. the sums: what a queue and a segment are said to hold is what they hold.

What a start would find in the journal (``findings``) is found by ``inspection`` before.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from leveret.msg_store.format.errors import Corrupt
from leveret.msg_store.format.rows import FileRow, IndexRow, Location
from leveret.msg_store.memtable.memtable import Terms
from leveret.msg_store.offline.audit_locations import UNKNOWN, Places
from leveret.msg_store.offline.inspection import Inspection
from leveret.msg_store.reading.verify import Segment, search

Progress: TypeAlias = Callable[[str, int, int], None]  # what, how much of it, of how much

WINDOW_BYTES: Final = 1 << 20
_TOLD_EVERY: Final = 4_096


class LostRow(NamedTuple):
    """A row whose message cannot be read."""

    queue_no: int
    seq: int
    msg_no: int
    size_bytes: int
    reason: str


@dataclass(slots=True)
class Audit:
    """What is wrong.

    Attributes:
        places: all messages.
        queues: what each queue holds, by counting.
        lost: rows whose messages cannot be read.
        unreadable: messages that are not where they should be.
        bare: messages that have no place, with how many rows name them.
        elsewhere: where some of both were found.
        odd: rows that give another body size than their message's place, by queue; ``row, size``.
        counts: messages whose rows are not as many as the index says: ``(said, counted)``.
        terms: queues that do not hold what they are said to.
        files: segments of which not as much is needed as is said.
        sizes: how long each segment is.
        notes: what does no harm and is worth knowing.
    """

    places: Places = field(default_factory=Places)
    queues: dict[int, Terms] = field(default_factory=dict)
    lost: list[LostRow] = field(default_factory=list)
    unreadable: dict[int, Location] = field(default_factory=dict)
    bare: Counter[int] = field(default_factory=Counter)
    elsewhere: dict[int, Location] = field(default_factory=dict)
    odd: dict[int, list[tuple[IndexRow, int]]] = field(default_factory=dict)
    counts: dict[int, tuple[int, int]] = field(default_factory=dict)
    terms: dict[int, tuple[Terms, Terms]] = field(default_factory=dict)
    files: dict[int, tuple[FileRow, FileRow]] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        """Nothing is wrong."""
        is_complete = not (self.unreadable or self.bare)
        return is_complete and not (self.odd or self.counts or self.terms or self.files)


def audit(store: Inspection, progress: Progress) -> Audit:
    """Go over a store.

    Raises:
        IndexDamaged: the index turned out to be damaged on the way.
    """
    return _Auditor(store, progress).run()


class _Auditor:
    def __init__(self, store: Inspection, progress: Progress) -> None:
        self._store = store
        self._progress = progress
        self._found = Audit()
        self._wrong: dict[int, str] = {}  # by msg_no

    def run(self) -> Audit:
        for msg_no, place in self._store.places():
            self._found.places.add(msg_no, place)
        self._count_rows()
        self._read_messages()
        if self._wrong:
            self._found.elsewhere = search(self._store.folder, self._wrong)
            self._judge_odd()
            self._name_rows()
        self._compare_counts()
        self._compare_terms()
        self._compare_files()
        return self._found

    def _count_rows(self) -> None:
        places, done = self._found.places, 0
        said = self._store.recovered.tables.terms
        total = sum(terms.messages for terms in said.values())
        for queue_no in self._store.queue_nos():
            terms = self._found.queues[queue_no] = Terms()
            for row in self._store.rows(queue_no):
                seq, msg_no, size, _, _ = row
                terms.messages += 1
                terms.size_bytes += size
                terms.next_seq = seq + 1
                at = places.count(msg_no)
                if at == UNKNOWN:
                    self._found.bare[msg_no] += 1
                    self._wrong[msg_no] = "the index has no place for it"
                elif places.sizes[at] != size:
                    self._found.odd.setdefault(queue_no, []).append((row, places.sizes[at]))
                done += 1
                if not done % _TOLD_EVERY:
                    self._progress("rows", done, total)

    # Segments.

    def _read_messages(self) -> None:
        places, done = self._found.places, 0
        total = sum(places.lengths)
        present = set(self._store.folder.rdq_nos())
        for file_no, those in places.by_file().items():
            if file_no not in present:
                why = f"segment {file_no:08x} is missing"
                self._note_wrong(those, why)
                continue
            with Segment(self._store.folder, file_no) as segment:
                if segment.damage:
                    self._found.notes.append(f"segment {file_no:08x}: {segment.damage}")
                self._read_segment(segment, those, done, total)
            done += sum(places.lengths[at] for at in those)
            self._progress("messages", done, total)

    def _read_segment(self, segment: Segment, those: array[int], done: int, total: int) -> None:
        places, start, data = self._found.places, 0, b""
        for count, at in enumerate(those, 1):
            offset, length = places.offsets[at], places.lengths[at]
            if not start <= offset <= start + len(data) - length:
                start = offset
                try:
                    data = segment.bytes_at(offset, max(length, WINDOW_BYTES))
                except OSError:  # perhaps it is only what lies behind that cannot be read
                    data = b""
            if why := self._wrong_at(segment, at, data, start):
                self._note_wrong([at], why)
            done += length
            if not count % _TOLD_EVERY:
                self._progress("messages", done, total)

    def _wrong_at(self, segment: Segment, at: int, data: bytes, start: int) -> str:
        places = self._found.places
        msg_no, length, offset = places.msg_nos[at], places.lengths[at], places.offsets[at]
        where = f"segment {places.file_nos[at]:08x}, offset {offset}"
        try:
            record = (
                segment.decode(data, length, offset - start)
                if data
                else segment.read(offset, length)
            )
        except Corrupt as error:
            return f"{error}, {where}"
        except OSError as error:
            return f"{error.strerror or error}, {where}"
        if record.msg_no != msg_no:
            return f"message {record.msg_no:#x} lies where {msg_no:#x} should, {where}"
        if len(record.body) != places.sizes[at]:
            return f"a body of {len(record.body)} bytes, {places.sizes[at]} expected, {where}"
        return ""

    def _note_wrong(self, those: Iterable[int], why: str) -> None:
        places = self._found.places
        for at in those:
            self._wrong[places.msg_nos[at]] = why
            self._found.unreadable[places.msg_nos[at]] = places.place(at)

    def _name_rows(self) -> None:
        for queue_no in self._found.queues:
            for seq, msg_no, size, _, _ in self._store.rows(queue_no):
                why = self._wrong.get(msg_no)
                if why is not None and msg_no not in self._found.elsewhere:
                    self._found.lost.append(LostRow(queue_no, seq, msg_no, size, why))

    def _judge_odd(self) -> None:
        """Hold rows against the messages that were found, where it was the place that is wrong."""
        elsewhere = self._found.elsewhere
        for queue_no, some in self._found.odd.items():
            true = [(row, elsewhere.get(row[1], (0, 0, 0, size, 0))[3]) for row, size in some]
            self._found.odd[queue_no] = [(row, size) for row, size in true if row[2] != size]
        self._found.odd = {no: some for no, some in self._found.odd.items() if some}

    # Sums.

    def _compare_counts(self) -> None:
        places = self._found.places
        for at, msg_no in enumerate(places.msg_nos):
            if places.counts[at] != places.rows[at]:
                self._found.counts[msg_no] = (places.counts[at], places.rows[at])

    def _compare_terms(self) -> None:
        for queue_no, counted in self._found.queues.items():
            said = self._store.recovered.tables.terms.get(queue_no, Terms())
            is_same = (said.messages, said.size_bytes) == (counted.messages, counted.size_bytes)
            if not is_same or said.next_seq < counted.next_seq:
                self._found.terms[queue_no] = (said, counted)

    def _compare_files(self) -> None:
        places, counted = self._found.places, dict.fromkeys(self._store.folder.rdq_nos(), 0)
        for at, file_no in enumerate(places.file_nos):
            if file_no in counted and places.rows[at]:
                counted[file_no] += places.lengths[at]
        for file_no, state in self._store.recovered.tables.files.items():
            valid_bytes = counted.get(file_no, 0)
            self._found.sizes[file_no] = state.size_bytes
            if state.valid_bytes != valid_bytes:
                said = FileRow(state.valid_bytes, state.size_bytes)
                self._found.files[file_no] = (said, FileRow(valid_bytes, state.size_bytes))
