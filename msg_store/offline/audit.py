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

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from leveret.core.system.files import Files
from leveret.msg_store.format.rows import IndexDamaged, IndexRow, Location
from leveret.msg_store.memtable.memtable import LiveTerms
from leveret.msg_store.offline.inspection import Inspection
from leveret.msg_store.offline.locations import UNKNOWN, LocationTable
from leveret.msg_store.offline.segment_check import CheckSegments, Fault, check_one_by_one
from leveret.msg_store.offline.store_at import queue_text
from leveret.msg_store.reading.verify import MISSING

Progress: TypeAlias = Callable[[str, int, int], None]  # the step, done, total

_PROGRESS_EVERY: Final = 4_096


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
        self.unlocated: Counter[int] = (
            Counter()
        )  # messages without a location: how many rows each has
        self.relocated: dict[int, Location] = {}  # where some of both were found
        # Rows with another body size than their message, by queue; and that size:
        self.odd: dict[int, list[tuple[IndexRow, int]]] = {}
        # Wrong counts and sums of the index, each with the counted ones:
        self.counts: dict[int, tuple[int, int]] = {}  # rows of a message
        self.terms: dict[int, tuple[LiveTerms, LiveTerms]] = {}  # of a queue
        self.files: dict[int, tuple[int, int]] = {}  # live bytes of a segment
        self.notes: list[str] = []  # harmless damage
        # The records of the segments:
        self.records = 0  # whole ones, with a right checksum
        self.garbage_records = self.garbage_bytes = 0  # whole ones that no location needs
        self.damaged_bytes = 0  # that belong to no whole record
        self.damaged: set[int] = set()  # messages at whose locations there is no whole record
        self.doubled: dict[int, list[Location]] = {}  # second records; no copies of the collector
        self._progress = progress
        self._check = check
        self._faults: dict[int, str] = {}  # why messages cannot be read at their locations

    @property
    def is_index_sound(self) -> bool:
        """The audit itself found nothing wrong in the index."""
        wrong = (self.unreadable, self.unlocated, self.odd, self.counts, self.terms, self.files)
        return not any(wrong)

    @property
    def is_sound(self) -> bool:
        """Neither the inspection nor the audit found damage; a torn end from a crash is not damage."""
        is_damaged = self.store.report.is_damage or self.store.format_damage
        return self.is_index_sound and not is_damaged

    def reason(self, msg_no: int) -> str:
        """Return why a message that is ``unreadable`` or ``unlocated`` cannot be read at its location."""
        return self._faults[msg_no]

    def indexed(self) -> Iterator[tuple[int, Location, Location | None]]:
        """Yield the messages of the index, ascending, with the location that it has and the true one.

        That is None if no row needs the message, or it cannot be read.
        """
        table, relocated = self.locations, self.relocated
        for at, msg_no in enumerate(table.msg_nos):
            said, rows = table.location(at), table.rows[at]
            if not rows or (msg_no in self.unreadable and msg_no not in relocated):
                yield msg_no, said, None
            else:
                yield msg_no, said, (*relocated.get(msg_no, said)[:4], rows)

    def unindexed(self) -> Iterator[tuple[int, None, Location]]:
        """Yield the messages that the index has no location of, and that were found, in the same way."""
        for msg_no, rows in self.unlocated.items():
            if msg_no in self.relocated:
                yield msg_no, None, (*self.relocated[msg_no][:4], rows)

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
                f"of segment {file_no:08x} {before} bytes are said to be needed, and {after} are"
            )

    # The work.

    def run(self) -> Audit:
        """Do all of it; return the audit."""
        for msg_no, location in self.store.locations():
            self.locations.add(msg_no, location)
        self._count_rows()
        self._read_messages()
        if self._faults:
            self._judge_odd()
            self._name_rows()
        self._compare_sums()
        return self

    def _count_rows(self) -> None:
        locations, done = self.locations, 0
        total = sum(terms.messages for terms in self.store.queues.values())
        for queue_no in self.store.queue_nos():
            terms = self.queues[queue_no] = LiveTerms()
            for row in self.store.rows(queue_no):
                seq, msg_no, size, _, _ = row
                if seq < terms.next_seq:
                    raise IndexDamaged(f"rows of queue {queue_no} are out of order")
                terms.messages += 1
                terms.size_bytes += size
                terms.next_seq = seq + 1
                at = locations.count(msg_no)
                if at == UNKNOWN:
                    self.unlocated[msg_no] += 1
                    self._faults[msg_no] = "the index has no location for it"
                elif locations.sizes[at] != size:
                    self.odd.setdefault(queue_no, []).append((row, locations.sizes[at]))
                done += 1
                if not done % _PROGRESS_EVERY:
                    self._progress("rows", done, total)

    # Segments.

    def _read_messages(self) -> None:
        locations, folder, done = self.locations, self.store.folder, 0
        by_file, file_nos = locations.by_file(), folder.rdq_nos()
        total = sum(state.size_bytes for state in self.store.recovered.memtables.files.values())
        for file_no in by_file.keys() - set(file_nos):
            for at in by_file[file_no]:
                msg_no = locations.msg_nos[at]
                self._note(Fault(msg_no, f"segment {file_no:08x} {MISSING}", False))
        copies: set[int] = set()  # segments that the collector has written
        others: dict[int, list[Location]] = {}  # whole records that are not at locations
        segments = ((no, locations.at(by_file.get(no, ()))) for no in file_nos)
        for found in self._check(folder, segments):
            if found.damage:
                self.notes.append(f"segment {found.file_no:08x}: {found.damage}")
            if found.is_copy:
                copies.add(found.file_no)
            self.records += found.records
            self.damaged_bytes += found.damaged_bytes
            for fault in found.faults:
                self._note(fault)
            for msg_no, offset, length, size in zip(*found.unnamed, strict=True):
                if msg_no in self.unlocated or locations.find(msg_no) != UNKNOWN:
                    record = (found.file_no, offset, length, size, 0)
                    others.setdefault(msg_no, []).append(record)
                else:
                    self.garbage_records += 1
                    self.garbage_bytes += length
            done += found.size_bytes
            self._progress("messages", done, total)
        self._judge_others(others, copies)

    def _note(self, fault: Fault) -> None:
        msg_no = fault.msg_no
        self._faults[msg_no] = fault.why
        self.unreadable[msg_no] = self.locations.location(self.locations.find(msg_no))
        if fault.is_damage:
            self.damaged.add(msg_no)

    def _judge_others(self, others: dict[int, list[Location]], copies: set[int]) -> None:
        """Separate relocated messages from second records; of several records the last segment's counts."""
        for msg_no, records in others.items():
            if msg_no in self._faults:
                records.sort()  # segments may come in any order
                kept = self.relocated[msg_no] = records.pop()
            else:
                kept = self.locations.location(self.locations.find(msg_no))
            self.garbage_records += len(records)
            self.garbage_bytes += sum(record[2] for record in records)
            for record in records:
                if copies.isdisjoint((record[0], kept[0])):
                    self.doubled.setdefault(msg_no, []).append(record)
        if self.doubled:
            self.notes.append(
                f"{len(self.doubled)} messages have a second record; a compaction removes it"
            )

    def _name_rows(self) -> None:
        for queue_no in self.queues:
            for seq, msg_no, size, _, _ in self.store.rows(queue_no):
                why = self._faults.get(msg_no)
                if why is not None:
                    is_found = msg_no in self.relocated
                    rows = self.misplaced if is_found else self.lost
                    rows.append(LostRow(queue_no, seq, msg_no, size, why))

    def _judge_odd(self) -> None:
        """Compare odd rows with the messages that were found, where the location was wrong."""
        relocated = self.relocated
        for queue_no, odd in self.odd.items():
            true = [(row, relocated.get(row[1], (0, 0, 0, size, 0))[3]) for row, size in odd]
            self.odd[queue_no] = [(row, size) for row, size in true if row[2] != size]
        self.odd = {no: odd for no, odd in self.odd.items() if odd}

    # Sums.

    def _compare_sums(self) -> None:
        """Compare counts and sums; a relocated message counts to the live bytes of the segment where it was found."""
        table, relocated, live_bytes = self.locations, self.relocated, Counter[int]()
        columns = (table.msg_nos, table.counts, table.rows, table.file_nos, table.lengths)
        for msg_no, said, rows, file_no, length in zip(*columns, strict=True):
            if said != rows:
                self.counts[msg_no] = (said, rows)
            if rows and msg_no not in relocated:
                live_bytes[file_no] += length
        for msg_no, (file_no, _, length, _, _) in relocated.items():
            at = table.find(msg_no)
            if at == UNKNOWN or table.rows[at]:
                live_bytes[file_no] += length
        for queue_no, terms in self.queues.items():
            known = self.store.queues.get(queue_no, LiveTerms())
            is_same = (known.messages, known.size_bytes) == (terms.messages, terms.size_bytes)
            if not is_same or known.next_seq < terms.next_seq:
                self.terms[queue_no] = (known, terms)
        for file_no, state in self.store.recovered.memtables.files.items():
            if state.valid_bytes != live_bytes[file_no]:
                self.files[file_no] = (state.valid_bytes, live_bytes[file_no])


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
