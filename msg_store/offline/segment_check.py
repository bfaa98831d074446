"""The check of one segment: its records against the locations that the index has in it.

It knows nothing but the segment and those locations, and what it takes and returns can be pickled. So segments can be
checked one after the other, or at the same time by processes that see the same files (``leveret.spark.jobs``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeAlias

from leveret.msg_store.format.errors import Corrupt
from leveret.msg_store.format.file_header import HEADER_BYTES, MOVED
from leveret.msg_store.format.folder import StorePaths
from leveret.msg_store.offline.locations import Locations, picked
from leveret.msg_store.reading.record_table import RecordTable, read_table
from leveret.msg_store.reading.verify import Segment


class Fault(NamedTuple):
    """A message that is not at its location.

    Attributes:
        is_damage: there is no whole record there; else the bytes are those of another one, or behind the file's end.
    """

    msg_no: int
    why: str
    is_damage: bool


class SegmentCheck(NamedTuple):
    """What the check of a segment has found.

    Attributes:
        damage: of the segment's header; empty if there is none.
        is_copy: the collector has written it.
        records: how many whole records there are.
        damaged_bytes: that belong to no whole record.
        unnamed: whole records that no location names.
    """

    file_no: int
    size_bytes: int
    damage: str
    is_copy: bool
    records: int
    damaged_bytes: int
    faults: list[Fault]
    unnamed: Locations


CheckSegments: TypeAlias = Callable[
    [StorePaths, Iterable[tuple[int, Locations]]], Iterator[SegmentCheck]
]
"""Checks segments of a store, given by number with the locations in them; the checks come in any order."""


def check_one_by_one(
    folder: StorePaths, segments: Iterable[tuple[int, Locations]]
) -> Iterator[SegmentCheck]:
    """Check segments in this process, one after the other."""
    return (check_segment(folder, file_no, locations) for file_no, locations in segments)


def check_segment(folder: StorePaths, file_no: int, locations: Locations) -> SegmentCheck:
    """Read all records of a segment and compare them with the locations of messages in it; raises ``OSError``."""
    faults: list[Fault] = []
    with Segment(folder, file_no) as segment:
        table, size_bytes = read_table(segment), segment.size_bytes
        is_live = bytearray(len(table))
        at_record = good_end = 0
        for at, offset in enumerate(locations.offsets):
            while at_record < len(table) and table.offsets[at_record] < offset:
                if table.good[at_record]:
                    good_end = table.offsets[at_record] + table.lengths[at_record]
                at_record += 1
            is_record = at_record < len(table) and table.offsets[at_record] == offset
            is_good = is_record and bool(table.good[at_record])
            if is_good and _is_same(table, at_record, locations, at):
                is_live[at_record] = 1
            elif why := _fault_at(segment, file_no, locations, at):
                is_inside = good_end <= offset <= size_bytes - locations.lengths[at]
                faults.append(Fault(locations.msg_nos[at], why, is_inside and not is_good))
        rest = [at for at, is_good in enumerate(table.good) if is_good and not is_live[at]]
        return SegmentCheck(
            file_no,
            size_bytes,
            segment.damage,
            is_copy=segment.header is not None and bool(segment.header.flags & MOVED),
            records=sum(table.good),
            damaged_bytes=size_bytes - HEADER_BYTES - table.good_bytes,
            faults=faults,
            unnamed=picked(rest, table.msg_nos, table.offsets, table.lengths, table.body_sizes),
        )


def _is_same(table: RecordTable, at_record: int, locations: Locations, at: int) -> bool:
    return (
        table.msg_nos[at_record] == locations.msg_nos[at]
        and table.lengths[at_record] == locations.lengths[at]
        and table.body_sizes[at_record] == locations.sizes[at]
    )


def _fault_at(segment: Segment, file_no: int, locations: Locations, at: int) -> str:
    """Read a message where it should be; return the fault, with its place."""
    offset, why = locations.offsets[at], ""
    try:
        record = segment.read(offset, locations.lengths[at], locations.msg_nos[at])
        if len(record.body) != locations.sizes[at]:
            why = f"a body of {len(record.body)} bytes, {locations.sizes[at]} expected"
    except Corrupt as error:
        why = str(error)
    except OSError as error:  # perhaps only these bytes cannot be read
        why = error.strerror or str(error)
    return why and f"{why}, segment {file_no:08x}, offset {offset}"
