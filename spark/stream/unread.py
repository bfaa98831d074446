"""Unread bytes: what lies between two positions of a store, and where its records of a time begin."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from leveret.core.errors import StoreError
from leveret.msg_store.archive.archive import OFFSET_MAX, Position, Ranges
from leveret.msg_store.format.errors import Corrupt
from leveret.msg_store.format.file_header import HEADER_BYTES, MOVED
from leveret.spark.scan.segment import Segment
from leveret.spark.stream.archived_store import ArchivedStore
from leveret.spark.stream.offsets import Range
from leveret.spark.stream.walking import places_of

Report = Callable[[str], None]  # of what is lost; raises where that is an error


def unread(store: ArchivedStore, start: Position, end: Position, report: Report) -> list[Range]:
    """Return the ranges between two positions; a segment that is gone has none.

    Raises:
        StoreError: the last segment does not reach its watermark.
    """
    found: list[Range] = []
    for number in store.segments(start.segment, end.segment):
        low = max(HEADER_BYTES, start.byte if number == start.segment else 0)
        bound = store.contents.ends.get(number, OFFSET_MAX)
        if number == end.segment:
            bound = min(bound, end.byte)
        if bound <= low:
            continue  # a crash may have left less than a header
        try:
            header, size_bytes = store.header(number)
        except FileNotFoundError:
            continue  # ``losses`` tells whether it had anything
        except Corrupt as error:
            report(f"{where(store, number)} cannot be read: {error}")
            continue
        if header.flags & MOVED:
            continue
        if number == end.segment and size_bytes < bound:
            raise StoreError(
                f"{where(store, number)} has {size_bytes} bytes and its watermark is {bound}: a power cut took them;"
                " they come back from the journal when the broker starts, then start the query again"
            )
        if low < min(bound, size_bytes):
            found.append(Range(number, low, min(bound, size_bytes)))
    return found


def where(store: ArchivedStore, segment: int) -> str:
    """Return a segment as errors name it."""
    return f"segment {segment:08x} of vhost '{store.vhost}' ({store.path})"


def torn_in(store: ArchivedStore, segment: int) -> Ranges:
    """Return what crashes have torn in a segment."""
    return store.contents.torn.get(segment, ())


def position_at(store: ArchivedStore, start: Position, time_ms: int, report: Report) -> Position:
    """Return where the first record behind ``start`` lies that was taken in at a time or later; else the watermark."""
    ranges = unread(store, start, store.contents.watermark, report)
    first = 0
    for place, part in enumerate(ranges):
        try:
            header, _ = store.header(part.segment)
        except FileNotFoundError:
            continue
        if header.created_ms <= time_ms:  # which is the time of its first record
            first = place
    for part in ranges[first:]:
        try:
            segment = Segment(store.segment_path(part.segment), store.contents.uuid)
        except FileNotFoundError:
            continue
        with segment:
            for places in places_of(segment, part, torn_in(store, part.segment), _pass_over):
                is_late = segment.headers(places.offsets)["ts_ms"] >= time_ms
                if is_late.any():
                    return Position(part.segment, int(places.offsets[np.argmax(is_late)]))
    return store.contents.watermark


def _pass_over(_: int, __: str) -> None:
    """Leave damage to those who read the records."""
