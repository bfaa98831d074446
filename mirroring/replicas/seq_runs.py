"""Sets of seqs as runs: ascending ``(first, end)`` with a gap between one and the next, ``end`` not included."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

SeqRuns: TypeAlias = tuple[tuple[int, int], ...]

NO_SEQS: Final[SeqRuns] = ()
ALL_SEQS: Final = 1 << 62


def runs_of(seqs: Iterable[int]) -> SeqRuns:
    """Return the runs of ascending seqs."""
    found: list[tuple[int, int]] = []
    for seq in seqs:
        if found and found[-1][1] == seq:
            found[-1] = (found[-1][0], seq + 1)
        else:
            found.append((seq, seq + 1))
    return tuple(found)


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


def common(runs: SeqRuns, others: SeqRuns) -> SeqRuns:
    """Return the seqs that both have."""
    return without(runs, without(((0, ALL_SEQS),), others))


def first_seqs(runs: SeqRuns, count: int) -> SeqRuns:
    """Return the lowest ``count`` seqs."""
    found: list[tuple[int, int]] = []
    for first, end in runs:
        if count <= 0:
            break
        found.append((first, min(end, first + count)))
        count -= end - first
    return tuple(found)
