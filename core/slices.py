"""Long loops in slices: other tasks of the event loop run after each slice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Final, TypeVar

SLICE: Final = 250

T = TypeVar("T")


async def sliced(items: Iterable[T], size: int = SLICE) -> AsyncIterator[T]:
    """Yield the items, and let other tasks run after every ``size`` of them.

    An operator's request to a broker with many queues takes seconds; clients must not notice.
    """
    for number, item in enumerate(items, 1):
        yield item
        if number % size == 0:
            await asyncio.sleep(0)
