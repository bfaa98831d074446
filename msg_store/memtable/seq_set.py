"""Acked seqs of one queue: long runs cost no more than short ones, and what is scattered is a set.

Who drains a queue acks seqs in a row, and each flush has the next of them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator
from itertools import chain

from leveret.msg_store.format.ascending import runs


class SeqSet(Collection[int]):
    """A set of seqs that only grows."""

    __slots__ = ("_firsts", "_lasts", "_others")

    def __init__(self) -> None:
        self._firsts: list[int] = []  # of runs, ascending, with a gap between one and the next
        self._lasts: list[int] = []
        self._others: set[int] = set()  # none that is in a run

    def add(self, rows: dict[int, int]) -> dict[int, int]:
        """Take the seqs of rows; return the rows whose seqs are new."""
        if not self.isdisjoint(rows):
            rows = {seq: msg_no for seq, msg_no in rows.items() if seq not in self}
        self._others.update(rows)
        return rows

    def add_run(self, first: int, last: int) -> bool:
        """Take a run above all runs; return False, and take nothing, if it is not, or some are here."""
        end = self._lasts[-1] if self._lasts else -2
        if first <= end or (self._others and not self._others.isdisjoint(range(first, last + 1))):
            return False
        if first == end + 1:
            self._lasts[-1] = last
        else:
            self._firsts.append(first)
            self._lasts.append(last)
        return True

    def isdisjoint(self, seqs: Collection[int]) -> bool:
        """Tell whether none of them is here."""
        if not self._others.isdisjoint(seqs):
            return False
        at = bisect_right(self._firsts, max(seqs, default=-1)) - 1
        if at < 0 or self._lasts[at] < min(seqs):
            return True
        return not any(map(self._is_in_run, seqs))

    def reaches(self, low: int, high: int) -> bool:
        """Tell whether there may be some between two seqs, both included."""
        at = bisect_right(self._firsts, high) - 1
        return bool(self._others) or (at >= 0 and self._lasts[at] >= low)

    def runs(self) -> Iterator[tuple[int, int]]:
        """Yield the first and last of runs; not all ascending."""
        yield from zip(self._firsts, self._lasts, strict=True)
        yield from runs(self._others)

    def _is_in_run(self, seq: int) -> bool:
        at = bisect_right(self._firsts, seq) - 1
        return at >= 0 and seq <= self._lasts[at]

    def __contains__(self, seq: object) -> bool:
        return seq in self._others or (isinstance(seq, int) and self._is_in_run(seq))

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(range(first, last + 1) for first, last in self.runs())

    def __len__(self) -> int:
        in_runs = sum(self._lasts) - sum(self._firsts) + len(self._firsts)
        return in_runs + len(self._others)


def runs_of(seqs: Collection[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and last of the runs of seqs, whatever they are in."""
    return seqs.runs() if isinstance(seqs, SeqSet) else runs(seqs)
