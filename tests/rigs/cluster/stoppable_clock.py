"""The virtual clock of one of several nodes, which can be stopped as a process by SIGSTOP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from leveret.testing.virtual_clock import VirtualClock, VirtualTimer


class StoppableClock:
    """A clock whose timers wait while it is stopped; time goes on.

    What else calls a stopped node has to be held back, too: its network, and its clients.

    Args:
        clock: of all nodes.

    Attributes:
        is_stopped: between ``stop`` and ``resume``.
    """

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.is_stopped = False
        self._held: list[VirtualTimer] = []
        self.attach = clock.attach
        self.settle = clock.settle
        self.monotonic_s = clock.monotonic_s
        self.wall_s = clock.wall_s

    def call_later(self, delay_s: float, callback: Callable[..., Any], *args: Any) -> VirtualTimer:
        timer = VirtualTimer(0.0, 0, (callback, *args))
        self._clock.call_later(delay_s, self._due, timer)
        return timer

    def _due(self, timer: VirtualTimer) -> None:
        if self.is_stopped:
            self._held.append(timer)
        else:
            timer.run()

    def stop(self) -> None:
        self.is_stopped = True

    def resume(self) -> None:
        """Go on: all that has become due meanwhile is called soon."""
        self.is_stopped = False
        held, self._held = self._held, []
        for timer in held:
            self._clock.call_later(0.0, timer.run)
