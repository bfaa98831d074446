"""Which epoch has assigned which seqs: from the first seq of an epoch to that of the next one."""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias


class EpochStart(NamedTuple):
    """An epoch, and its first seq."""

    epoch: int
    first_seq: int


History: TypeAlias = tuple[EpochStart, ...]

NO_HISTORY: Final[History] = ()


def continued(history: History, epoch: int, next_seq: int) -> History:
    """Return the history of a replica that becomes master; epochs that have assigned no seq are left out."""
    return (*(each for each in history if each.first_seq < next_seq), EpochStart(epoch, next_seq))


def parting(one: History, one_end: int, other: History, other_end: int) -> int:
    """Return the first seq that is not the same message in two replicas, of which each has a history and a next seq.

    Only one master assigns seqs in an epoch, and mirrors take over its history. So two replicas that know the
    same epoch agree on all seqs before it, and within it as far as both have it.
    """
    ends, other_ends = _ends(one, one_end), _ends(other, other_end)
    last = max(ends.keys() & other_ends.keys(), default=None)
    return min(ends[last], other_ends[last]) if last is not None else 0


def _ends(history: History, end: int) -> dict[EpochStart, int]:
    nexts = [each.first_seq for each in history[1:]]
    return dict(zip(history, [*nexts, end], strict=True)) if history else {}
