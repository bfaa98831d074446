"""The time of a broker on its own thread, in the hands of a test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from leveret.testing.broker import BrokerThread


class VirtualTime:
    """While the block lasts the broker's time stands still and passes by ``advance`` only.

    Message and queue TTLs, heartbeats, time-outs and restarts go by it; what clients do goes by the
    machine's time.

    Args:
        broker: whose time.
    """

    def __init__(self, broker: BrokerThread) -> None:
        self._broker = broker
        self._clock = broker.clock

    def advance(self, seconds: float) -> None:
        """Let time pass, and what falls due happen; done when this returns."""
        self._broker.wait_for(self._clock.advance(seconds))

    def skip(self, seconds: float) -> None:
        """Let time have passed without any timer coming nearer: restarts then lie further apart."""
        self._broker.run(self._clock.skip, seconds)

    @property
    def now_s(self) -> float:
        """Seconds that never go back."""
        return self._broker.run(self._clock.monotonic_s)

    @property
    def wall_s(self) -> float:
        """Seconds since 1970, as the broker believes."""
        return self._broker.run(self._clock.wall_s)

    def set_wall_s(self, wall_s: float) -> None:
        """Let the wall clock jump; nothing that runs by monotonic time notices."""
        self._broker.run(self._clock.set_wall_s, wall_s)

    def hold(self) -> None:
        """Let time stand still from now on."""
        self._broker.run(self._clock.hold)

    def release(self) -> None:
        """Let time go by itself from now on."""
        self._broker.run(self._clock.release)

    def __enter__(self) -> Self:
        self.hold()
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._broker.is_running:
            self.release()
