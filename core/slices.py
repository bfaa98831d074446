"""Long loops in slices: other tasks of the event loop run after each slice."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Final, TypeVar

SLICE_ITEMS: Final = 250
SLICE_S: Final = 0.005

T = TypeVar("T")


class TurnBudget:
    """Tells when a loop has worked long enough: ``items`` of them, or ``SLICE_S`` of time.

    Time decides only where a loop pauses, never what it does.

    Args:
        items: per slice.
        now_s: a clock that goes on within a turn; uvloop's own stands still.
    """

    __slots__ = ("_count", "_end_s", "_items", "_now_s")

    def __init__(
        self, items: int = SLICE_ITEMS, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._items = items
        self._now_s = now_s
        self.restart()

    def is_used_up(self) -> bool:
        """Count one item; return whether to yield now."""
        self._count += 1
        return self._count >= self._items or self._now_s() >= self._end_s

    def restart(self) -> None:
        self._count = 0
        self._end_s = self._now_s() + SLICE_S


async def sliced(items: Iterable[T], size: int = SLICE_ITEMS) -> AsyncIterator[T]:
    """Yield the items, and let other tasks run after every ``size`` of them, or ``SLICE_S``.

    An operator's request to a broker with many queues takes seconds; clients must not notice.
    """
    budget = TurnBudget(size)
    for item in items:
        yield item
        if budget.is_used_up():
            await asyncio.sleep(0)
            budget.restart()
