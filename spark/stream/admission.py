"""Admission: how much of what is there a batch takes. No I/O.

A limit of rows or bytes holds for the whole batch. It is divided among the stores by their unread bytes, as Spark's
Kafka source divides it among partitions, so that none starves; a record is taken whole, and at least one of each
store. Bytes are those of the records, counted for each row. Rows can only be counted by reading, so the records of a
store are walked until its share is full, or ``PASSED_BYTES_MAX`` of other queues were passed over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from leveret.msg_store.archive.archive import Position
from leveret.spark.scan.gather import Numbers
from leveret.spark.stream.offsets import Range

PASSED_BYTES_MAX: Final = 1 << 30

_START: Final = Position(0, 0)


@dataclass(frozen=True, slots=True)
class Limit:
    """Of a batch; None: no bound."""

    rows: int | None = None
    size_bytes: int | None = None

    def __bool__(self) -> bool:
        return self.rows is not None or self.size_bytes is not None

    def share(self, part: int, whole: int) -> Limit:
        """Return the share of a store that has ``part`` of all unread bytes."""
        return Limit(_share(self.rows, part, whole), _share(self.size_bytes, part, whole))


def _share(limit: int | None, part: int, whole: int) -> int | None:
    return None if limit is None else max(1, limit * part // whole)


def shares(limit: Limit, unread: Mapping[str, int]) -> dict[str, Limit]:
    """Divide a limit among stores by their unread bytes."""
    whole = sum(unread.values())
    return {store_id: limit.share(part, whole) for store_id, part in unread.items() if part}


@dataclass(slots=True)
class Meter:
    """Counts the records of one store in order, up to its limit."""

    limit: Limit
    rows: int = 0
    size_bytes: int = 0
    passed_bytes: int = 0  # of records without rows

    def take(self, rows: Numbers, lengths: Numbers) -> int:
        """Take records; return how many fit, all of them if fewer than there are were not.

        Args:
            rows: of each record.
            lengths: of the records.
        """
        all_rows = self.rows + np.cumsum(rows)
        all_bytes = self.size_bytes + np.cumsum(rows * lengths)
        fits = np.ones(len(rows), np.bool_)
        if self.limit.rows is not None:
            fits &= all_rows <= self.limit.rows
        if self.limit.size_bytes is not None:
            fits &= all_bytes <= self.limit.size_bytes
        if not self.rows:
            fits[: int(np.argmax(rows > 0)) + 1] = True  # the first row is always taken
        count = len(rows) if fits.all() else int(np.argmin(fits))
        if count:
            self.rows, self.size_bytes = int(all_rows[count - 1]), int(all_bytes[count - 1])
            self.passed_bytes += int(lengths[:count][rows[:count] == 0].sum())
        return count

    @property
    def is_far(self) -> bool:
        """So much was passed over that a batch of few rows is better than a longer look."""
        return self.passed_bytes >= PASSED_BYTES_MAX


def cut(ranges: Sequence[Range], end: Position, begin: Position = _START) -> tuple[Range, ...]:
    """Return what lies between two positions."""
    kept: list[Range] = []
    for part in ranges:
        low = max(part.low, begin.byte) if part.segment == begin.segment else part.low
        high = min(part.high, end.byte) if part.segment == end.segment else part.high
        if begin.segment <= part.segment <= end.segment and low < high:
            kept.append(Range(part.segment, low, high))
    return tuple(kept)


def room_of(sizes_bytes: Sequence[int], partition_bytes: int, count_min: int) -> int:
    """Return how many bytes a partition has, about, so that there are ``count_min`` at least, of equal size."""
    total = sum(sizes_bytes)
    return max(1, -(-total // max(1, count_min, -(-total // partition_bytes))))


def packed(sizes_bytes: Sequence[int], room_bytes: int) -> list[range]:
    """Divide pieces of work into partitions, in order; return the places of each.

    A partition is closed when the next piece would make it larger by more than half of that piece.
    """
    made: list[range] = []
    first, used = 0, 0
    for place, size_bytes in enumerate(sizes_bytes):
        if place > first and used + size_bytes // 2 >= room_bytes:
            made.append(range(first, place))
            first, used = place, 0
        used += size_bytes
    if first < len(sizes_bytes):
        made.append(range(first, len(sizes_bytes)))
    return made
