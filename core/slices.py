"""Long loops in slices: other tasks of the event loop run after each slice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from time import perf_counter
from typing import Final, TypeVar

SLICE: Final = 250
SLICE_S: Final = 0.005

T = TypeVar("T")


class Slice:
    """Tells when a loop has worked long enough: ``size`` items, or ``SLICE_S`` of time.

    Time decides only where a loop pauses, never what it does.
    """

    __slots__ = ("_count", "_end_s", "_size")

    def __init__(self, size: int = SLICE) -> None:
        self._size = size
        self.restart()

    def is_over(self) -> bool:
        """Count one item; return whether to yield now."""
        self._count += 1
        return self._count >= self._size or perf_counter() >= self._end_s

    def restart(self) -> None:
        self._count = 0
        self._end_s = perf_counter() + SLICE_S


async def sliced(items: Iterable[T], size: int = SLICE) -> AsyncIterator[T]:
    """Yield the items, and let other tasks run after every ``size`` of them, or ``SLICE_S``.

    An operator's request to a broker with many queues takes seconds; clients must not notice.
    """
    part = Slice(size)
    for item in items:
        yield item
        if part.is_over():
            await asyncio.sleep(0)
            part.restart()
