"""Freeing large containers without a long stop of the event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from leveret.core.clock import TimerLoop

FREED_ITEMS: Final = 3_000  # in one go, one or two milliseconds


def free_in_slices(containers: list[dict[Any, Any]], loop: TimerLoop) -> None:
    """Empty containers that nobody uses any more: freeing a million items at once takes a tenth of a second."""
    left = FREED_ITEMS
    while containers and left > 0:
        items = containers[-1]
        count = min(left, len(items))
        for _ in range(count):
            items.popitem()
        left -= count
        if not items:
            containers.pop()
    if containers:
        loop.call_later(0.0, free_in_slices, containers, loop)
