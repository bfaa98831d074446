"""Time, injected: time-dependent code uses a Clock, so that tests run on virtual time.

``SystemClock`` is the machine's clock on an asyncio loop; ``leveret.testing.virtual_clock`` is for tests.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Protocol


class TimerHandle(Protocol):
    """A scheduled call that can be cancelled."""

    def cancel(self) -> None:
        """Cancel the call; harmless when it has already run."""


class Clock(Protocol):
    """Monotonic and wall time in seconds, and scheduled calls."""

    def monotonic_s(self) -> float:
        """Return seconds that never go back; only differences are meaningful."""

    def wall_s(self) -> float:
        """Return seconds since 1970, by the machine's clock."""

    def call_later(self, delay_s: float, callback: Callable[..., Any], *args: Any) -> TimerHandle:
        """Call ``callback(*args)`` once, ``delay_s`` from now."""


class SystemClock:
    """The machine's time; timers run on the given loop."""

    __slots__ = ("_loop",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def monotonic_s(self) -> float:
        """Return the loop's time, so that timers and readings agree."""
        return self._loop.time()

    def wall_s(self) -> float:
        return time.time()

    def call_later(self, delay_s: float, callback: Callable[..., Any], *args: Any) -> TimerHandle:
        return self._loop.call_later(delay_s, callback, *args)
