"""A manual clock: it follows the machine's clock until a test holds it; then the test sets the time.

The clock belongs to a broker that clients use through sockets while the test controls its time: ``hold`` stops time,
``advance`` moves time forward and runs the due timers, ``skip`` moves time forward and postpones all timers by the
same duration.

Timers of at most ``PACING_S`` also run while time stands still: these are the broker's own pauses between two
reads or tries, without which clients would wait for ever.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from leveret.testing.virtual_clock import Runtimes, VirtualTimer

if TYPE_CHECKING:
    from leveret.core.clock import TimerHandle

PACING_S: Final = 0.05
_TIMERS_PER_ROUND: Final = 20  # an hour has some thousand


class ManualClock:
    """A ``leveret.core.clock.Clock``; every method is for the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._ahead_s = 0.0
        self._held_s: float | None = None
        self._wall_ahead_s = time.time() - loop.time()
        self._timers: list[VirtualTimer] = []
        self._numbers = itertools.count()
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at_s = 0.0
        self._runtimes = Runtimes()
        self.attach = self._runtimes.append
        self.settle = self._runtimes.settle

    # The clock.

    def monotonic_s(self) -> float:
        return self._loop.time() + self._ahead_s if self._held_s is None else self._held_s

    def wall_s(self) -> float:
        """Return seconds since 1970, as set by the test."""
        return self.monotonic_s() + self._wall_ahead_s

    def call_later(self, delay_s: float, callback: Callable[..., Any], *args: Any) -> TimerHandle:
        at_s = self.monotonic_s() + max(0.0, delay_s)
        timer = VirtualTimer(at_s, next(self._numbers), (callback, *args))
        if self._held_s is not None and delay_s <= PACING_S:
            self._loop.call_later(delay_s, timer.run)
        else:
            heapq.heappush(self._timers, timer)
            self._arm()
        return timer

    # Control.

    @property
    def is_held(self) -> bool:
        return self._held_s is not None

    def hold(self) -> None:
        if self._held_s is not None:
            return
        now_s = self._held_s = self.monotonic_s()
        self._disarm()
        while self._timers and self._timers[0].at_s <= now_s + PACING_S:
            timer = heapq.heappop(self._timers)
            self._loop.call_later(max(0.0, timer.at_s - now_s), timer.run)

    def release(self) -> None:
        """Let time pass again, from where it stands."""
        if self._held_s is not None:
            self._ahead_s = self._held_s - self._loop.time()
            self._held_s = None
            self._arm()

    def skip(self, duration_s: float) -> None:
        """Move time forward; timers stay as far away as before."""
        if self._held_s is not None:
            self._held_s += duration_s
        else:
            self._ahead_s += duration_s
        for timer in self._timers:  # their order stays
            timer.at_s += duration_s

    def set_wall_s(self, wall_s: float) -> None:
        self._wall_ahead_s = wall_s - self.monotonic_s()

    async def advance(self, seconds: float) -> None:
        """Move time forward and run the due timers, each at its time and in order.

        Data that clients have sent before is processed first. All consequences are processed before this
        returns, unless they depend on another thread or process.
        """
        was_held = self.is_held
        self.hold()
        assert self._held_s is not None
        until_s = self._held_s + seconds
        await self.settle()
        for number in itertools.count(1):
            timer = _next_due(self._timers, until_s)
            if timer is None:
                break
            self._held_s = max(self._held_s, timer.at_s)
            timer.run()
            self._runtimes.drain()
            if number % _TIMERS_PER_ROUND == 0:
                await asyncio.sleep(0)
        self._held_s = until_s
        await self.settle()
        if not was_held:
            self.release()

    # The event loop's timer for the next timer of this clock.

    def _arm(self) -> None:
        if self._held_s is not None or not self._timers:
            return
        at_s = self._timers[0].at_s - self._ahead_s
        if self._alarm is None or at_s < self._alarm_at_s:
            self._disarm()
            self._alarm_at_s = at_s
            self._alarm = self._loop.call_at(at_s, self._ring)

    def _disarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _ring(self) -> None:
        """Run the due timers; the loop's clock is coarse, so there may be none yet."""
        self._alarm = None
        now_s = self.monotonic_s()
        try:
            while self._held_s is None and self._timers and self._timers[0].at_s <= now_s:
                heapq.heappop(self._timers).run()
        finally:  # the other timers must run although one has failed
            self._arm()


def _next_due(timers: list[VirtualTimer], until_s: float) -> VirtualTimer | None:
    """Take the next pending timer that is due by ``until_s``."""
    while timers and timers[0].at_s <= until_s:
        timer = heapq.heappop(timers)
        if timer.is_pending:
            return timer
    return None
