"""Records of a range of bytes, found one behind the other by their headers, and the rows they are.

The bytes of a range are final, so records must follow each other without a gap, but for bytes that a crash has torn.
All else is damage of the disk: an error, or passed over to the next record whose checksum is right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from leveret.msg_store.archive.archive import Ranges
from leveret.msg_store.format.errors import Corrupt
from leveret.msg_store.format.record import HEADER_BYTES, total_len_at
from leveret.spark.scan.gather import Numbers
from leveret.spark.scan.segment import Segment
from leveret.spark.stream.offsets import Range

AT_ONCE: Final = 16_384

Damaged: TypeAlias = Callable[[int, str], None]  # (offset, why); returns to pass it over


@dataclass(frozen=True, slots=True)
class Places:
    """Records in a row: where they begin, and their lengths."""

    offsets: Numbers
    lengths: Numbers

    def end_of(self, count: int) -> int:
        """Return where the first so many records end."""
        return (
            int(self.offsets[count - 1] + self.lengths[count - 1])
            if count
            else int(self.offsets[0])
        )

    def where(self, mask: Numbers) -> Places:
        return self if mask.all() else Places(self.offsets[mask], self.lengths[mask])


def places_of(
    segment: Segment, part: Range, torn: Ranges, damaged: Damaged, at_once: int = AT_ONCE
) -> Iterator[Places]:
    """Yield the records of a range, so many at once; ``damaged`` is called where none begins."""
    offsets: list[int] = []
    lengths: list[int] = []
    behind_torn = dict(torn)
    at, high = part.low, min(part.high, segment.size_bytes)
    while at < high:
        if at in behind_torn:
            at = behind_torn[at]
            continue
        length = _length_at(segment, at, high)
        if not length:
            damaged(at, "no record begins there")
            at = _next_good(segment, at, high)
            continue
        offsets.append(at)
        lengths.append(length)
        at += length
        if len(offsets) == at_once:
            yield Places(np.array(offsets, np.int64), np.array(lengths, np.int64))
            offsets, lengths = [], []
    if offsets:
        yield Places(np.array(offsets, np.int64), np.array(lengths, np.int64))
    if high < part.high and at < part.high:
        damaged(high, f"the segment ends there, and should have {part.high} bytes")


def _length_at(segment: Segment, at: int, high: int) -> int:
    """Return the length of the record that begins at an offset and ends in the range; 0 if none does."""
    try:
        length = (
            total_len_at(segment.bytes_at(at, HEADER_BYTES)) if at + HEADER_BYTES <= high else 0
        )
    except Corrupt:
        return 0
    return length if at + length <= high else 0


def _next_good(segment: Segment, at: int, high: int) -> int:
    while (at := segment.next_magic(at)) < high:
        if _length_at(segment, at, high) and is_good(segment, np.array([at]))[0]:
            return at
    return high


def pieces_of(segment: Segment, part: Range, torn: Ranges, size_bytes: int) -> Iterator[Range]:
    """Cut a range between records, into pieces of about this size."""
    low = part.low
    for places in places_of(segment, part, torn, _pass_over):
        for offset in places.offsets.tolist():
            if offset - low >= size_bytes:
                yield Range(part.segment, low, offset)
                low = offset
    yield Range(part.segment, low, part.high)


def _pass_over(_: int, __: str) -> None:
    """Leave damage to the tasks: the piece before it contains it."""


def is_good(segment: Segment, offsets: Numbers) -> Numbers:
    """Return for each record whether its checksum is right."""
    return segment.checked(segment.headers(offsets), offsets)
