"""Control over the time of a broker that runs on its own thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from leveret.testing.broker import BrokerThread


class VirtualTime:
    """During the block the broker's time stands still, except for ``advance``.

    TTLs, heartbeats, time-outs and restarts use this time; clients use the machine's time.
    """

    def __init__(self, broker: BrokerThread) -> None:
        self._broker = broker
        self._clock = broker.clock

    def __repr__(self) -> str:
        state = "stands still" if self._clock.is_held else "goes by itself"
        return f"<time of {self._broker!r}, {state}>"

    def advance(self, seconds: float) -> None:
        """Move time forward; the due timers have run when this returns."""
        self._broker.wait_for(self._clock.advance(seconds))

    def skip(self, seconds: float) -> None:
        """Move time forward without timers coming nearer, so that restarts lie further apart."""
        self._broker.run(self._clock.skip, seconds)

    @property
    def now_s(self) -> float:
        return self._broker.run(self._clock.monotonic_s)

    @property
    def wall_s(self) -> float:
        """Seconds since 1970, for the broker."""
        return self._broker.run(self._clock.wall_s)

    def set_wall_s(self, wall_s: float) -> None:
        """Set the wall clock; monotonic time does not change."""
        self._broker.run(self._clock.set_wall_s, wall_s)

    def hold(self) -> None:
        self._broker.run(self._clock.hold)

    def release(self) -> None:
        """Let time pass by itself again."""
        self._broker.run(self._clock.release)

    def __enter__(self) -> Self:
        self.hold()
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._broker.is_running:
            self.release()
