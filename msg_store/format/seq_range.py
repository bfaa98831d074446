"""A range of seqs but for some: the ready messages of a queue that is purged while others are unacked."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

_Row = TypeVar("_Row", bound="tuple[int, ...]")


@dataclass(frozen=True, slots=True, eq=False)
class SeqRange:
    """Seqs with ``low <= seq < high`` but for those ``kept``, which ascend.

    However many are kept, the range is as quickly made, and a look at one seq takes a search.
    """

    low: int
    high: int
    kept: Sequence[int] = ()

    def __contains__(self, seq: int) -> bool:
        kept = self.kept
        if not self.low <= seq < self.high:
            return False
        at = bisect_left(kept, seq)
        return at == len(kept) or kept[at] != seq

    def first_from(self, seq: int) -> int:
        """Return the first seq of the range from ``seq`` on, if it is not there ``high`` or above."""
        kept = self.kept
        at = bisect_left(kept, seq)
        if at == len(kept) or kept[at] != seq:
            return seq
        end = bisect_right(range(len(kept)), seq - at, at, key=lambda each: kept[each] - each)
        return seq + end - at

    def runs(self) -> Iterator[tuple[int, int]]:
        """Yield the first and the last seq of each stretch of seqs in a row."""
        first = self.first_from(self.low)
        while first < self.high:
            end = self.end_from(first)
            yield first, end - 1
            first = self.first_from(end)

    def end_from(self, seq: int) -> int:
        """Return where the run of seqs of the range ends that begins at ``seq``."""
        at = bisect_left(self.kept, seq)
        return min(self.kept[at], self.high) if at < len(self.kept) else self.high


def rows_outside(rows: list[_Row], ranges: Iterable[SeqRange]) -> list[_Row]:
    """Return the rows, which begin with their seqs and ascend, outside of the ranges, which may overlap."""
    for each in ranges:
        if rows and each.low <= rows[-1][0] and rows[0][0] < each.high:
            rows = [row for row in rows if row[0] not in each]
    return rows
