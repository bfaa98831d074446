"""A clock whose time jumps to the next timer.

With a runtime on an event loop::

    clock = VirtualClock()
    runtime = Runtime(clock=clock)
    ...
    await clock.advance(5.0)

Without an event loop, the test drives the runtime and calls ``jump`` instead of ``advance``.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from typing import Any, Protocol

_SETTLE_ROUNDS = 10


class Drivable(Protocol):
    """The methods of a runtime that the clock uses."""

    @property
    def is_idle(self) -> bool: ...
    def run_until_idle(self) -> None: ...


class Runtimes(list[Drivable]):
    """The runtimes that a clock drives; a Runtime attaches itself."""

    def drain(self) -> None:
        for runtime in self:
            runtime.run_until_idle()

    async def settle(self) -> None:
        """Process everything that needs no time to pass: also tasks, and data in the loop's sockets."""
        quiet = 0
        while quiet < _SETTLE_ROUNDS:
            self.drain()
            await asyncio.sleep(0)
            quiet = quiet + 1 if all(runtime.is_idle for runtime in self) else 0


class VirtualTimer:
    """One scheduled call."""

    __slots__ = ("_call", "at_s", "number")

    def __init__(self, at_s: float, number: int, call: tuple[Any, ...]) -> None:
        self.at_s = at_s
        self.number = number
        self._call: tuple[Any, ...] | None = call

    @property
    def is_pending(self) -> bool:
        return self._call is not None

    def cancel(self) -> None:
        self._call = None

    def run(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            call[0](*call[1:])

    def __lt__(self, other: VirtualTimer) -> bool:
        return (self.at_s, self.number) < (other.at_s, other.number)


class VirtualClock:
    """A ``leveret.core.clock.Clock`` for tests."""

    def __init__(self, wall_s: float = 1_700_000_000.0) -> None:
        self._now_s = 0.0
        self._wall_offset_s = wall_s
        self._timers: list[tuple[float, int, VirtualTimer]] = []  # tuples compare fastest
        self._numbers = itertools.count()
        self._runtimes = Runtimes()
        self.attach = self._runtimes.append
        self.settle = self._runtimes.settle

    def monotonic_s(self) -> float:
        return self._now_s

    def wall_s(self) -> float:
        return self._wall_offset_s + self._now_s

    def set_wall_s(self, wall_s: float) -> None:
        self._wall_offset_s = wall_s - self._now_s

    def call_later(self, delay_s: float, callback: Callable[..., Any], *args: Any) -> VirtualTimer:
        """Schedule a call; timers of the same time run in the order of their creation."""
        at_s = self._now_s + max(0.0, delay_s)
        number = next(self._numbers)
        timer = VirtualTimer(at_s, number, (callback, *args))
        heapq.heappush(self._timers, (at_s, number, timer))
        return timer

    @property
    def pending_count(self) -> int:
        return sum(timer.is_pending for _, _, timer in self._timers)

    def drive(self, instead: Callable[[Drivable], Drivable]) -> None:
        """Have something else driven instead of each attached runtime, such as what drives it more slowly."""
        self._runtimes[:] = [instead(each) for each in self._runtimes]

    def jump(self, seconds: float) -> None:
        """Move time forward without an event loop; attached runtimes are driven by hand."""
        until_s = self._now_s + seconds
        self._runtimes.drain()
        while self._run_next(until_s):
            self._runtimes.drain()
        self._now_s = until_s

    async def advance(self, seconds: float) -> None:
        """Move time forward; after each timer the runtimes and the loop's tasks run until idle."""
        until_s = self._now_s + seconds
        await self.settle()
        while self._run_next(until_s):
            await self.settle()
        self._now_s = until_s

    def _run_next(self, until_s: float) -> bool:
        """Run the next timer that is due by ``until_s`` at its time; return False if there is none."""
        timers = self._timers
        while timers and timers[0][0] <= until_s:
            at_s, _, timer = heapq.heappop(timers)
            if timer.is_pending:
                self._now_s = max(self._now_s, at_s)
                timer.run()
                return True
        return False
