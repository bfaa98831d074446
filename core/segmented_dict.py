"""SegmentedDict: a dict by numbers that may have millions of items, none of whose operations takes long.

A dict moves all its items when it has to grow, and keeps the room of those that were deleted: one of a million takes
50 ms for it. This one has a dict for each ``SEGMENT_KEYS`` numbers that follow each other, and gives a segment up when
it is empty. An operation on one number takes 0.2 us more than a dict's, so who has few items has them in a dict:
``grown`` exchanges it when there are many.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping, Sequence, ValuesView
from itertools import chain
from typing import Any, Final, TypeAlias, TypeVar

V = TypeVar("V")

SEGMENT_BITS: Final = 16
SEGMENT_KEYS: Final = 1 << SEGMENT_BITS
_MISSING: Final[Any] = object()


class _Values(ValuesView[V]):
    """The values; of a million, as fast as those of a dict."""

    _mapping: SegmentedDict[V]

    def __iter__(self) -> Iterator[V]:
        segments = self._mapping._segments.values()  # noqa: SLF001 - its own view
        return chain.from_iterable(segment.values() for segment in segments)


class SegmentedDict(MutableMapping[int, V]):
    """Items in the order of their segments, and in that of their insertion within each.

    Segments are in the order in which they began: for numbers that are added ascending, iteration is ascending.

    Args:
        items: to begin with.
    """

    __slots__ = ("_count", "_segments")

    def __init__(self, items: dict[int, V]) -> None:
        self._count = 0
        self._segments: dict[int, dict[int, V]] = {}
        self.update(items.items())

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(self._segments.values())

    def __contains__(self, number: object) -> bool:
        assert isinstance(number, int)
        segment = self._segments.get(number >> SEGMENT_BITS)
        return segment is not None and number in segment

    def __getitem__(self, number: int) -> V:
        segment = self._segments.get(number >> SEGMENT_BITS)
        if segment is None:
            raise KeyError(number)
        return segment[number]

    def values(self) -> ValuesView[V]:
        return _Values(self)

    def __setitem__(self, number: int, value: V) -> None:
        segment = self._segments.get(number >> SEGMENT_BITS)
        if segment is None:
            segment = self._segments[number >> SEGMENT_BITS] = {}
        before = len(segment)
        segment[number] = value
        self._count += len(segment) - before

    def update(  # type: ignore[override]  # no other form is needed
        self, pairs: Iterable[tuple[int, V]]
    ) -> None:
        """Put items."""
        segments, at, added = self._segments, -1, 0
        segment: dict[int, V] = {}
        for number, value in pairs:
            if number >> SEGMENT_BITS != at:
                added += len(segment)
                at = number >> SEGMENT_BITS
                segment = segments.setdefault(at, {})
                added -= len(segment)
            segment[number] = value
        self._count += added + len(segment)

    def __delitem__(self, number: int) -> None:
        self.pop(number)

    def pop(self, number: int, default: Any = _MISSING) -> Any:
        """Remove an item and return its value, or ``default``; KeyError: there is neither."""
        segment = self._segments.get(number >> SEGMENT_BITS)
        value = _MISSING if segment is None else segment.pop(number, _MISSING)
        if value is _MISSING or segment is None:
            if default is _MISSING:
                raise KeyError(number)
            return default
        self._count -= 1
        if not segment:
            del self._segments[number >> SEGMENT_BITS]
        return value

    def segments_of(self, numbers: Iterable[int]) -> list[dict[int, V]]:
        """Return the segments that have items of these numbers, or of their neighbours."""
        wanted = {number >> SEGMENT_BITS for number in numbers}
        return [segment for at in wanted if (segment := self._segments.get(at)) is not None]

    def popitem(self) -> tuple[int, V]:
        """Remove the last item of the last segment; KeyError: there is none."""
        if not self._segments:
            raise KeyError("popitem of an empty dict")
        last = next(reversed(self._segments))
        segment = self._segments[last]
        item = segment.popitem()
        self._count -= 1
        if not segment:
            del self._segments[last]
        return item


ByNumber: TypeAlias = "dict[int, V] | SegmentedDict[V]"


def grown(items: ByNumber[V]) -> ByNumber[V]:
    """Return items in the container for so many: one to keep in the place of the one given.

    A ``SegmentedDict`` stays one until it is empty.
    """
    if type(items) is dict:
        return SegmentedDict(items) if len(items) > SEGMENT_KEYS else items
    return items or {}


def those_in(items: ByNumber[V], numbers: Sequence[int]) -> set[int]:
    """Return those of the numbers that have items; neighbours are quick, as they are in one segment."""
    if isinstance(items, dict):
        return items.keys() & numbers
    found: set[int] = set()
    for segment in items.segments_of(numbers):
        found |= segment.keys() & numbers
    return found
