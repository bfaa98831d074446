"""The audit of an offline store: every row, location, message, count and sum is checked.

A start reads the messages that the journal brought and trusts the rest; an audit trusts nothing. It
reads, behind the inspection (``inspection``),

1. the locations of all messages,
2. the rows of all queues: each has a message, each message as many rows as the index counts,
3. the segments: all records, with their checksums. Each message lies at its location; otherwise its record may lie
   elsewhere. All other records are garbage, which the collector has not removed yet,
4. the sums: messages and bytes of queues, live bytes of segments.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from leveret.core.system.files import Files
from leveret.msg_store.format.rows import FileRow, IndexDamaged, IndexRow, Location
from leveret.msg_store.memtable.memtable import LiveTerms
from leveret.msg_store.offline.inspection import Inspection
from leveret.msg_store.offline.locations import UNKNOWN, LocationTable
from leveret.msg_store.offline.segment_check import CheckSegments, SegmentCheck, check_one_by_one
from leveret.msg_store.reading.record_table import RecordTable
from leveret.msg_store.reading.verify import MISSING

Progress: TypeAlias = Callable[[str, int, int], None]  # the step, done, total

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

    def __init__(
        self, store: Inspection, progress: Progress, check: CheckSegments = check_one_by_one
    ) -> None:
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
        # The records of the segments:
        self.records = 0  # whole ones, with a right checksum
        self.garbage_records = self.garbage_bytes = 0  # whole ones that no location needs
        self.damaged_bytes = 0  # that belong to no whole record
        self.damaged: set[int] = set()  # messages at whose locations there is no whole record
        self.doubled: dict[int, list[Location]] = {}  # second records; no copies of the collector
        self._is_copy: dict[int, bool] = {}  # segments that the collector has written
        self._strays: dict[int, list[Location]] = {}  # whole records that are not at locations
        self._progress = progress
        self._check = check
        self._wrong: dict[int, str] = {}  # by msg_no

    @property
    def is_index_sound(self) -> bool:
        """The audit itself found nothing wrong in the index."""
        is_complete = not (self.unreadable or self.bare)
        return is_complete and not (self.odd or self.counts or self.terms or self.files)

    @property
    def is_sound(self) -> bool:
        """Neither the inspection nor the audit found damage; a torn end from a crash is not damage."""
        is_damaged = self.store.report.is_damage or self.store.format_damage
        return self.is_index_sound and not is_damaged

    def reason(self, msg_no: int) -> str:
        """Return why a message that is ``unreadable`` or ``bare`` cannot be read at its location."""
        return self._wrong[msg_no]

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
        locations, folder, done = self.locations, self.store.folder, 0
        by_file, file_nos = locations.by_file(), folder.rdq_nos()
        total = sum(state.size_bytes for state in self.store.recovered.memtables.files.values())
        for file_no in by_file.keys() - set(file_nos):
            for at in by_file[file_no]:
                self._note_wrong(at, f"segment {file_no:08x} {MISSING}", is_damage=False)
        nothing: array[int] = array("I")
        segments = ((no, locations.at(by_file.get(no, nothing))) for no in file_nos)
        for found in self._check(folder, segments):
            self._add(found, by_file.get(found.file_no, nothing))
            done += found.size_bytes
            self._progress("messages", done, total)
        self._judge_strays()

    def _add(self, found: SegmentCheck, positions: array[int]) -> None:
        if found.damage:
            self.notes.append(f"segment {found.file_no:08x}: {found.damage}")
        self._is_copy[found.file_no] = found.is_copy
        self.records += found.records
        self.damaged_bytes += found.damaged_bytes
        for at, why, is_damage in found.wrong:
            self._note_wrong(positions[at], why, is_damage)
        for at in range(len(found.strays)):
            self._note_stray(found.file_no, found.strays, at)

    def _note_wrong(self, at: int, why: str, is_damage: bool) -> None:
        msg_no = self.locations.msg_nos[at]
        self._wrong[msg_no] = why
        self.unreadable[msg_no] = self.locations.location(at)
        if is_damage:
            self.damaged.add(msg_no)

    def _note_stray(self, file_no: int, table: RecordTable, at: int) -> None:
        msg_no, length = table.msg_nos[at], table.lengths[at]
        if msg_no in self.bare or self.locations.find(msg_no) != UNKNOWN:
            place = (file_no, table.offsets[at], length, table.body_sizes[at], 0)
            self._strays.setdefault(msg_no, []).append(place)
        else:
            self.garbage_records += 1
            self.garbage_bytes += length

    def _judge_strays(self) -> None:
        """Tell messages that were found elsewhere from second records; of several the last segment's counts."""
        for msg_no, places in self._strays.items():
            if msg_no in self._wrong:
                places.sort()  # segments may come in any order
                home = self.elsewhere[msg_no] = places.pop()
            else:
                home = self.locations.location(self.locations.find(msg_no))
            self.garbage_records += len(places)
            self.garbage_bytes += sum(place[2] for place in places)
            for place in places:
                if not (self._is_copy.get(place[0]) or self._is_copy.get(home[0])):
                    self.doubled.setdefault(msg_no, []).append(place)
        self._strays.clear()
        if self.doubled:
            self.notes.append(
                f"{len(self.doubled)} messages have a second record; a compaction removes it"
            )

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
        """Compare the live bytes of segments; of a message that was found elsewhere, they are there."""
        locations = self.locations
        counted = dict.fromkeys(self.store.folder.rdq_nos(), 0)
        for at, file_no in enumerate(locations.file_nos):
            if (
                file_no in counted
                and locations.rows[at]
                and locations.msg_nos[at] not in self.elsewhere
            ):
                counted[file_no] += locations.lengths[at]
        for msg_no, (file_no, _, length, _, _) in self.elsewhere.items():
            at = locations.find(msg_no)
            if at == UNKNOWN or locations.rows[at]:
                counted[file_no] += length
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
    check: CheckSegments = check_one_by_one,
) -> Iterator[Audit]:
    """Inspect a store and audit it. An index in which damage is met meanwhile is not used.

    ``index_damage``, ``may_rebuild``, ``files`` and errors are those of ``Inspection``; ``check`` reads the segments.
    """
    with ExitStack() as stack:
        store = stack.enter_context(Inspection(path, index_damage, may_rebuild, files))
        try:
            audit = Audit(store, progress, check).run()
        except IndexDamaged as error:
            if index_damage:
                raise
            stack.close()
            store = stack.enter_context(Inspection(path, str(error), may_rebuild, files))
            audit = Audit(store, progress, check).run()
        yield audit
