"""Many numbers, a slice at a time: what sorts or builds long lists keeps all other threads waiting.

A thread gives the interpreter up between two steps of Python, not within ``sorted`` or a garbage
collection that many new objects have brought about. Broken down, either takes about a millisecond.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import islice, pairwise
from typing import Final, TypeVar

SLICE: Final = 4_096
_BITS: Final = SLICE.bit_length() - 1

_T = TypeVar("_T")


def slices(items: Iterable[_T], count: int = SLICE) -> Iterator[list[_T]]:
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
    """Tell it of the whole; what is acked in order comes in order."""
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
    """Tell whether each of some numbers is the one before and one."""
    first, last = numbers[0], numbers[-1]
    return last - first == len(numbers) - 1 and numbers == list(range(first, last + 1))


def span_of(numbers: list[int]) -> tuple[int, int]:
    """Return the lowest and the highest of some numbers, which are ascending mostly."""
    some = sorted(numbers)
    return some[0], some[-1]
