"""A virtual clock that goes on whenever it is read, as one does while work is done."""

from __future__ import annotations

from leveret.testing.virtual_clock import VirtualClock


class TickingClock(VirtualClock):
    """Time goes on by ``tick_s`` whenever it is read."""

    def __init__(self, tick_s: float = 0.0) -> None:
        super().__init__()
        self.tick_s = tick_s
        self._ticks = 0

    def monotonic_s(self) -> float:
        self._ticks += 1
        return super().monotonic_s() + self._ticks * self.tick_s
