"""Sets of seqs as runs: ascending ``(first, end)`` with a gap between one and the next, ``end`` not included.

A *seq* has the epoch of the master that has assigned it in its upper bits. Only one master assigns seqs in an epoch, so
the same seq is the same message in all replicas, and a later message has a higher seq.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import chain, starmap
from typing import Final, TypeAlias

SeqRuns: TypeAlias = tuple[tuple[int, int], ...]

NO_SEQS: Final[SeqRuns] = ()
ALL_SEQS: Final = 1 << 62
EPOCH_SHIFT: Final = 42  # a million epochs, of 4,000,000,000,000 messages each


def first_seq_of(epoch: int) -> int:
    """Return the first seq of an epoch."""
    return epoch << EPOCH_SHIFT


def runs_of(seqs: Iterable[int]) -> SeqRuns:
    """Return the runs of ascending seqs."""
    found: list[tuple[int, int]] = []
    for seq in seqs:
        if found and found[-1][1] == seq:
            found[-1] = (found[-1][0], seq + 1)
        else:
            found.append((seq, seq + 1))
    return tuple(found)


def seqs_of(runs: SeqRuns) -> Iterator[int]:
    """Return the seqs, ascending."""
    return chain.from_iterable(starmap(range, runs))


def without(runs: SeqRuns, others: SeqRuns) -> SeqRuns:
    """Return the seqs of ``runs`` that ``others`` has not."""
    found: list[tuple[int, int]] = []
    at = 0
    for first, end in runs:
        while at < len(others) and others[at][1] <= first:
            at += 1
        start, later = first, at
        while later < len(others) and others[later][0] < end:
            if start < others[later][0]:
                found.append((start, others[later][0]))
            start = others[later][1]
            later += 1
        if start < end:
            found.append((start, end))
    return tuple(found)


def between(runs: SeqRuns, first: int, end: int) -> SeqRuns:
    """Return the seqs from ``first`` on below ``end``."""
    some = ((max(low, first), min(high, end)) for low, high in runs)
    return tuple(each for each in some if each[0] < each[1])


def first_seqs(runs: SeqRuns, count: int) -> SeqRuns:
    """Return the lowest ``count`` seqs."""
    found: list[tuple[int, int]] = []
    for first, end in runs:
        if count <= 0:
            break
        found.append((first, min(end, first + count)))
        count -= end - first
    return tuple(found)


class LiveSeqs:
    """A set of seqs that changes, kept as runs: a queue that is consumed in order has one."""

    __slots__ = ("_ends", "_firsts")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._ends: list[int] = []

    @property
    def end(self) -> int:
        """The seq behind the last one; 0 when there is none."""
        return self._ends[-1] if self._ends else 0

    def add(self, first: int, end: int) -> None:
        """Add the seqs of a run, some of which may be there."""
        firsts, ends = self._firsts, self._ends
        if ends and ends[-1] == first:  # most are appended
            ends[-1] = end
            return
        low, high = bisect_left(ends, first), bisect_right(firsts, end)
        if low < high:
            first, end = min(first, firsts[low]), max(end, ends[high - 1])
        firsts[low:high], ends[low:high] = [first], [end]

    def remove(self, first: int, end: int) -> None:
        """Remove the seqs of a run, as far as they are there."""
        firsts, ends = self._firsts, self._ends
        low, high = bisect_right(ends, first), bisect_left(firsts, end)
        if low >= high:
            return
        starts, stops = [firsts[low], end], [first, ends[high - 1]]
        left = [each for each in zip(starts, stops, strict=True) if each[0] < each[1]]
        firsts[low:high], ends[low:high] = [each[0] for each in left], [each[1] for each in left]

    def from_seq(self, first: int, limit: int) -> tuple[SeqRuns, int]:
        """Return the first ``limit`` runs from a seq on, and where the next begins, ``ALL_SEQS`` when there is none."""
        low = bisect_right(self._ends, first)
        some = zip(self._firsts[low : low + limit], self._ends[low : low + limit], strict=True)
        following = self._firsts[low + limit : low + limit + 1]
        runs = tuple((max(each, first), end) for each, end in some)
        return runs, following[0] if following else ALL_SEQS

    def within(self, first: int, end: int) -> SeqRuns:
        """Return the seqs from ``first`` on below ``end``."""
        low, high = bisect_right(self._ends, first), bisect_left(self._firsts, end)
        some = zip(self._firsts[low:high], self._ends[low:high], strict=True)
        return tuple((max(each, first), min(stop, end)) for each, stop in some)
