"""A range of seqs but for some: the ready messages of a queue that is purged while others are unacked."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass


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
        """Yield the half-open runs without a kept seq, ascending."""
        low = self.low
        for seq in self.kept[bisect_left(self.kept, low) : bisect_left(self.kept, self.high)]:
            if low < seq:
                yield low, seq
            low = seq + 1
        if low < self.high:
            yield low, self.high
