"""Time, injected: time-dependent code uses a Clock, so that tests run on virtual time.

``SystemClock`` is the machine's clock on an event loop; ``leveret.testing.virtual_clock`` is for tests.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any, Protocol


class TimerHandle(Protocol):
    """A scheduled call that can be cancelled."""

    def cancel(self) -> None:
        """Cancel the call; harmless when it has already run."""


class TimerLoop(Protocol):
    """An event loop's timers."""

    def call_later(self, delay_s: float, callback: Callable[..., Any], *args: Any) -> TimerHandle:
        """Call ``callback(*args)`` once, ``delay_s`` from now."""


class ClockLoop(Protocol):
    """An event loop's clock and timers; asyncio's, which this module does not import."""

    def time(self) -> float:
        """Return monotonic seconds."""

    def call_later(
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context
    ) -> TimerHandle:
        """Call ``callback(*args)`` in a context once, ``delay`` seconds from now."""


class Clock(TimerLoop, Protocol):
    """Monotonic and wall time in seconds, and scheduled calls."""

    def monotonic_s(self) -> float:
        """Return seconds that never go back; only differences are meaningful."""

    def wall_s(self) -> float:
        """Return seconds since 1970, by the machine's clock."""


class SystemClock:
    """The machine's time; timers run on the given loop."""

    __slots__ = ("_context", "_loop")

    def __init__(self, loop: ClockLoop) -> None:
        self._loop = loop
        self._context = copy_context()  # one for all calls: the loop would make one for each

    def monotonic_s(self) -> float:
        """Return the loop's time, so that timers and readings agree."""
        return self._loop.time()

    def wall_s(self) -> float:
        return time.time()

    def call_later(self, delay_s: float, callback: Callable[..., Any], *args: Any) -> TimerHandle:
        return self._loop.call_later(delay_s, callback, *args, context=self._context)
