"""The audit of an offline store: every row, location, message, count and sum is checked.

A start reads the messages that the journal brought and trusts the rest; an audit trusts nothing. It
reads, behind the inspection (``inspection``),

1. the locations of all messages,
2. the rows of all queues: each has a message, each message as many rows as the index counts,
3. the segments: each message lies at its location, whole, with its checksum; otherwise all segments are
   searched for it,
4. the sums: messages and bytes of queues, live bytes of segments.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from leveret.core.files import Files
from leveret.msg_store.format.errors import Corrupt
from leveret.msg_store.format.rows import FileRow, IndexDamaged, IndexRow, Location
from leveret.msg_store.memtable.memtable import LiveTerms
from leveret.msg_store.offline.audit_locations import UNKNOWN, LocationTable
from leveret.msg_store.offline.inspection import Inspection
from leveret.msg_store.reading.verify import Segment, search

Progress: TypeAlias = Callable[[str, int, int], None]  # the step, done, total

WINDOW_BYTES: Final = 1 << 20
_TOLD_EVERY: Final = 4_096


class LostRow(NamedTuple):
    """A row whose message cannot be read."""

    queue_no: int
    seq: int
    msg_no: int
    size_bytes: int
    reason: str


class Audit:
    """An audit and its findings. The store is kept open as long as the audit is used."""

    def __init__(self, store: Inspection, progress: Progress) -> None:
        self.store = store
        self.locations = LocationTable()  # all messages
        self.queues: dict[int, LiveTerms] = {}  # messages, bytes and next seq of each, as counted
        self.lost: list[LostRow] = []  # rows whose messages cannot be read
        self.misplaced: list[LostRow] = []  # rows whose messages lie in another segment
        self.unreadable: dict[int, Location] = {}  # messages that are not at these locations
        self.bare: Counter[int] = Counter()  # messages without a location: how many rows each has
        self.elsewhere: dict[int, Location] = {}  # where some of both were found
        # Rows with another body size than their message, by queue; and that size:
        self.odd: dict[int, list[tuple[IndexRow, int]]] = {}
        # Wrong figures of the index, each with the counted ones:
        self.counts: dict[int, tuple[int, int]] = {}  # rows of a message
        self.terms: dict[int, tuple[LiveTerms, LiveTerms]] = {}  # of a queue
        self.files: dict[int, tuple[FileRow, FileRow]] = {}  # of a segment
        self.sizes: dict[int, int] = {}  # how long each segment is
        self.notes: list[str] = []  # harmless damage
        self._progress = progress
        self._wrong: dict[int, str] = {}  # by msg_no

    @property
    def is_index_sound(self) -> bool:
        """The audit itself found nothing wrong."""
        is_complete = not (self.unreadable or self.bare)
        return is_complete and not (self.odd or self.counts or self.terms or self.files)

    @property
    def is_sound(self) -> bool:
        """Neither the inspection nor the audit found damage; a torn end from a crash is not damage."""
        is_damaged = self.store.report.is_damage or self.store.format_damage
        return self.is_index_sound and not is_damaged

    def wrong_counts(self, names: Mapping[int, str]) -> Iterator[str]:
        """Yield the counts and sums of the index that are wrong, one line each."""
        if self.counts:
            yield f"{len(self.counts)} messages have another number of rows than the index says"
        for queue_no, (said, counted) in self.terms.items():
            yield (
                f"{queue_text(queue_no, names.get(queue_no))} is said to have {said.messages}"
                f" messages of {said.size_bytes} bytes below seq {said.next_seq}, and has"
                f" {counted.messages} of {counted.size_bytes} below {counted.next_seq}"
            )
        for file_no, (before, after) in self.files.items():
            yield (
                f"of segment {file_no:08x} {before.valid_bytes} bytes are said to be needed,"
                f" and {after.valid_bytes} are"
            )

    # The work.

    def run(self) -> Audit:
        """Do all of it; return the audit."""
        for msg_no, location in self.store.locations():
            self.locations.add(msg_no, location)
        self._count_rows()
        self._read_messages()
        if self._wrong:
            self.elsewhere = search(self.store.folder, self._wrong)
            self._judge_odd()
            self._name_rows()
        self._compare_counts()
        self._compare_terms()
        self._compare_files()
        return self

    def _count_rows(self) -> None:
        locations, done = self.locations, 0
        total = sum(terms.messages for terms in self.store.queues.values())
        for queue_no in self.store.queue_nos():
            terms = self.queues[queue_no] = LiveTerms()
            for row in self.store.rows(queue_no):
                seq, msg_no, size, _, _ = row
                terms.messages += 1
                terms.size_bytes += size
                terms.next_seq = seq + 1
                at = locations.count(msg_no)
                if at == UNKNOWN:
                    self.bare[msg_no] += 1
                    self._wrong[msg_no] = "the index has no location for it"
                elif locations.sizes[at] != size:
                    self.odd.setdefault(queue_no, []).append((row, locations.sizes[at]))
                done += 1
                if not done % _TOLD_EVERY:
                    self._progress("rows", done, total)

    # Segments.

    def _read_messages(self) -> None:
        locations, done = self.locations, 0
        total = sum(locations.lengths)
        present = set(self.store.folder.rdq_nos())
        for file_no, positions in locations.by_file().items():
            if file_no not in present:
                why = f"segment {file_no:08x} is missing"
                self._note_wrong(positions, why)
                continue
            with Segment(self.store.folder, file_no) as segment:
                if segment.damage:
                    self.notes.append(f"segment {file_no:08x}: {segment.damage}")
                self._read_segment(segment, positions, done, total)
            done += sum(locations.lengths[at] for at in positions)
            self._progress("messages", done, total)

    def _read_segment(self, segment: Segment, positions: array[int], done: int, total: int) -> None:
        locations, start, data = self.locations, 0, b""
        for count, at in enumerate(positions, 1):
            offset, length = locations.offsets[at], locations.lengths[at]
            if not start <= offset <= start + len(data) - length:
                start = offset
                try:
                    data = segment.bytes_at(offset, max(length, WINDOW_BYTES))
                except OSError:  # perhaps only bytes behind the message cannot be read
                    data = b""
            if why := self._wrong_at(segment, at, data, start):
                self._note_wrong([at], why)
            done += length
            if not count % _TOLD_EVERY:
                self._progress("messages", done, total)

    def _wrong_at(self, segment: Segment, at: int, data: bytes, start: int) -> str:
        locations = self.locations
        msg_no, length, offset = locations.msg_nos[at], locations.lengths[at], locations.offsets[at]
        why = ""
        try:
            record = (
                segment.decode(data, length, msg_no, offset - start)
                if data
                else segment.read(offset, length, msg_no)
            )
            if len(record.body) != locations.sizes[at]:
                why = f"a body of {len(record.body)} bytes, {locations.sizes[at]} expected"
        except Corrupt as error:
            why = str(error)
        except OSError as error:
            why = error.strerror or str(error)
        return why and f"{why}, segment {locations.file_nos[at]:08x}, offset {offset}"

    def _note_wrong(self, positions: Iterable[int], why: str) -> None:
        locations = self.locations
        for at in positions:
            self._wrong[locations.msg_nos[at]] = why
            self.unreadable[locations.msg_nos[at]] = locations.location(at)

    def _name_rows(self) -> None:
        for queue_no in self.queues:
            for seq, msg_no, size, _, _ in self.store.rows(queue_no):
                why = self._wrong.get(msg_no)
                if why is not None:
                    is_found = msg_no in self.elsewhere
                    rows = self.misplaced if is_found else self.lost
                    rows.append(LostRow(queue_no, seq, msg_no, size, why))

    def _judge_odd(self) -> None:
        """Compare odd rows with the messages that were found, where the location was wrong."""
        elsewhere = self.elsewhere
        for queue_no, odd in self.odd.items():
            true = [(row, elsewhere.get(row[1], (0, 0, 0, size, 0))[3]) for row, size in odd]
            self.odd[queue_no] = [(row, size) for row, size in true if row[2] != size]
        self.odd = {no: odd for no, odd in self.odd.items() if odd}

    # Sums.

    def _compare_counts(self) -> None:
        locations = self.locations
        if locations.counts == locations.rows:
            return
        for at, msg_no in enumerate(locations.msg_nos):
            if locations.counts[at] != locations.rows[at]:
                self.counts[msg_no] = (locations.counts[at], locations.rows[at])

    def _compare_terms(self) -> None:
        for queue_no, counted in self.queues.items():
            said = self.store.queues.get(queue_no, LiveTerms())
            is_same = (said.messages, said.size_bytes) == (counted.messages, counted.size_bytes)
            if not is_same or said.next_seq < counted.next_seq:
                self.terms[queue_no] = (said, counted)

    def _compare_files(self) -> None:
        locations = self.locations
        counted = dict.fromkeys(self.store.folder.rdq_nos(), 0)
        for at, file_no in enumerate(locations.file_nos):
            if file_no in counted and locations.rows[at]:
                counted[file_no] += locations.lengths[at]
        for file_no, state in self.store.recovered.memtables.files.items():
            valid_bytes = counted.get(file_no, 0)
            self.sizes[file_no] = state.size_bytes
            if state.valid_bytes != valid_bytes:
                said = FileRow(state.valid_bytes, state.size_bytes)
                self.files[file_no] = (said, FileRow(valid_bytes, state.size_bytes))


def queue_text(queue_no: int, name: str | None) -> str:
    """Return a queue's name for people."""
    return f"queue {name!r}" if name is not None else f"queue number {queue_no}"


@contextmanager
def audited(
    path: Path,
    progress: Progress,
    index_damage: str = "",
    may_rebuild: bool = True,
    files: Files | None = None,
) -> Iterator[Audit]:
    """Inspect a store and audit it. An index in which damage is met meanwhile is not used.

    ``index_damage``, ``may_rebuild``, ``files`` and errors are those of ``Inspection``.
    """
    with ExitStack() as stack:
        store = stack.enter_context(Inspection(path, index_damage, may_rebuild, files))
        try:
            audit = Audit(store, progress).run()
        except IndexDamaged as error:
            if index_damage:
                raise
            stack.close()
            store = stack.enter_context(Inspection(path, str(error), may_rebuild, files))
            audit = Audit(store, progress).run()
        yield audit
