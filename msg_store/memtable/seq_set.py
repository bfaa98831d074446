"""Acked seqs of one queue: runs, and a set of scattered seqs. A long run costs no more than a short one.

A consumer that drains a queue acks seqs in a row, and each flush has the next of them.

Long lists are sorted and built a slice at a time: a thread gives the interpreter up between two steps of
Python, not within ``sorted`` or a garbage collection that many new objects have brought about. Broken
down, either takes about a millisecond.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator
from itertools import chain, islice, pairwise
from typing import Final, TypeVar

SEQS_PER_SLICE: Final = 4_096
_BITS: Final = SEQS_PER_SLICE.bit_length() - 1

_T = TypeVar("_T")


class SeqSet(Collection[int]):
    """A set of seqs that only grows."""

    __slots__ = ("_firsts", "_lasts", "_others")

    def __init__(self) -> None:
        self._firsts: list[int] = []  # of runs, ascending, with a gap between one and the next
        self._lasts: list[int] = []
        self._others: set[int] = set()  # seqs outside the runs

    def add(self, rows: dict[int, int]) -> dict[int, int]:
        """Take the seqs of rows; return the rows whose seqs are new."""
        if not self.isdisjoint(rows):
            rows = {seq: msg_no for seq, msg_no in rows.items() if seq not in self}
        self._others.update(rows)
        return rows

    def add_run(self, first: int, last: int) -> bool:
        """Add a run; return False, with nothing added, if it is not above all runs or a seq of it is here."""
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
        """Tell whether the set may have a seq between two seqs, both included."""
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
    """Yield the first and last of the runs of seqs, in a set or any other collection."""
    return seqs.runs() if isinstance(seqs, SeqSet) else runs(seqs)


def slices(items: Iterable[_T], count: int = SEQS_PER_SLICE) -> Iterator[list[_T]]:
    """Yield the items, at most ``count`` at once."""
    left = iter(items)
    while some := list(islice(left, count)):
        yield some


def ascending(numbers: Collection[int]) -> Iterator[list[int]]:
    """Yield different numbers in ascending lists, each above the one before."""
    some = list(slices(numbers))
    if len(some) <= 1 or _is_ascending(some):
        yield from map(sorted, some)
        return
    parts: dict[int, list[int]] = {}
    for number in numbers:
        parts.setdefault(number >> _BITS, []).append(number)
    for part in sorted(parts):
        yield sorted(parts[part])


def _is_ascending(some: list[list[int]]) -> bool:
    """Return whether all numbers ascend, as those of a queue that is acked in order do."""
    return all(part == sorted(part) for part in some) and all(
        one[-1] < other[0] for one, other in pairwise(some)
    )


def runs(numbers: Collection[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and last of stretches without a hole, ascending, of different numbers."""
    for some in ascending(numbers):
        yield from stretches(some)


def stretches(numbers: list[int]) -> Iterable[tuple[int, int]]:
    """Return the first and last of each stretch without a hole; given ascending, each once."""
    if not numbers:
        return []
    if numbers[-1] - numbers[0] == len(numbers) - 1:
        return [(numbers[0], numbers[-1])]
    firsts = [no for before, no in pairwise(numbers) if no != before + 1]
    lasts = [before for before, no in pairwise(numbers) if no != before + 1]
    return zip([numbers[0], *firsts], [*lasts, numbers[-1]], strict=True)


def is_run(numbers: list[int]) -> bool:
    """Tell whether numbers ascend without a hole."""
    first, last = numbers[0], numbers[-1]
    return last - first == len(numbers) - 1 and numbers == list(range(first, last + 1))


def span_of(numbers: Iterable[int]) -> tuple[int, int]:
    """Return the lowest and the highest of some numbers, which mostly ascend."""
    some = sorted(numbers)
    return some[0], some[-1]
