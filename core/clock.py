"""Time, injected: time-dependent code uses a Clock, so that tests run on virtual time.

``SystemClock`` is the machine's clock on an event loop; ``leveret.testing.virtual_clock`` is for tests.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextvars import Context, copy_context
from heapq import heapify, heappop, heappush
from typing import Any, Final, Protocol

_RESOLUTION_S: Final = 0.001  # of the loops' timers


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


class _Call:
    """A scheduled call; its clock drops it when its time comes.

    Calls are ordered by time, and then by age. A heap of tuples would take 130 bytes more for each, and a tuple that a
    periodic call has left is the one that it gets next: it would never leave the memory that a burst has taken.
    """

    __slots__ = ("_clock", "args", "callback", "due_s", "number")

    def __init__(
        self,
        clock: SystemClock,
        due_s: float,
        number: int,
        callback: Callable[..., Any],
        args: tuple[Any, ...],
    ) -> None:
        self._clock = clock
        self.due_s = due_s
        self.number = number
        self.callback: Callable[..., Any] | None = callback
        self.args = args

    def __lt__(self, other: _Call) -> bool:
        if self.due_s == other.due_s:
            return self.number < other.number
        return self.due_s < other.due_s

    def __hash__(self) -> int:
        """For sets of timers: a compiled class with ``__lt__`` and without this cannot be hashed."""
        return self.number

    def cancel(self) -> None:
        """Cancel the call; harmless when it has already run."""
        if self.callback is not None:
            self.callback, self.args = None, ()
            self._clock.cancelled_one()


class SystemClock:
    """The machine's time; timers run on the given loop.

    Attributes:
        monotonic_s: the loop's time, so that timers and readings agree; the loop's own method, as it is called often.

    The loop has one timer, for the earliest call. Thousands of its own would cost memory that stays: uvloop keeps
    hundreds of freed ones for their next use, which hold the memory around them.
    """

    __slots__ = ("_calls", "_cancelled", "_context", "_loop", "_made", "_timer", "monotonic_s")

    def __init__(self, loop: ClockLoop) -> None:
        self.monotonic_s: Callable[[], float] = loop.time
        self._loop = loop
        self._context = copy_context()  # one for all calls: the loop would make one for each
        self._calls: list[_Call] = []  # a heap
        self._made = 0
        self._cancelled = 0  # of them; they stay until they are due, or too many
        self._timer: TimerHandle | None = None

    def wall_s(self) -> float:
        return time.time()

    def call_later(self, delay_s: float, callback: Callable[..., Any], *args: Any) -> TimerHandle:
        self._made += 1
        now_s = self._loop.time()
        call = _Call(self, now_s + max(delay_s, 0.0), self._made, callback, args)
        heappush(self._calls, call)
        if self._calls[0] is call:
            self._set_timer(call.due_s, now_s)
        return call

    def cancelled_one(self) -> None:
        """Forget cancelled calls when they are more than the others; without any other the loop has no timer."""
        self._cancelled += 1
        if self._cancelled == len(self._calls):
            self._calls.clear()
            self._cancelled = 0
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        elif 2 * self._cancelled > len(self._calls):
            self._calls = [each for each in self._calls if each.callback is not None]
            heapify(self._calls)
            self._cancelled = 0

    def _set_timer(self, due_s: float, now_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        delay_s = max(due_s - now_s, 0.0)
        self._timer = self._loop.call_later(delay_s, self._call_due, context=self._context)

    def _call_due(self) -> None:
        self._timer = None
        try:
            self._make_due()
        finally:
            self._set_timer_if_none()

    def _make_due(self) -> None:
        """Make the calls that are due now; a call that one of them schedules waits for the next timer."""
        made, due_s = self._made, self._loop.time() + _RESOLUTION_S
        while (calls := self._calls) and calls[0].due_s <= due_s and calls[0].number <= made:
            call = heappop(calls)
            callback, args = call.callback, call.args
            if callback is None:
                self._cancelled -= 1
                continue
            call.callback, call.args = None, ()
            callback(*args)

    def _set_timer_if_none(self) -> None:
        """Set the timer for the earliest call, unless a call that was just made has set one."""
        if self._calls and self._timer is None:
            self._set_timer(self._calls[0].due_s, self._loop.time())
