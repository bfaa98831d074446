"""Many numbers, a slice at a time: what sorts or builds long lists keeps all other threads waiting.

A thread gives the interpreter up between two steps of Python, not within ``sorted`` or a garbage
collection that many new objects have brought about. Broken down, either takes about a millisecond.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import islice
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
    if len(numbers) <= SLICE:
        yield sorted(numbers)
        return
    parts: dict[int, list[int]] = {}
    for number in numbers:
        parts.setdefault(number >> _BITS, []).append(number)
    for part in sorted(parts):
        yield sorted(parts[part])
