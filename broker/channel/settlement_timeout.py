"""The time in which a client must settle a delivery (``consumer_timeout``); RabbitMQ's, which checks each minute.

A delivery's age counts from the check that first found it the oldest. No timer runs while nothing is unacked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from leveret.amqp.errors import PreconditionFailed

if TYPE_CHECKING:
    from leveret.actors.runtime.timers import Timer
    from leveret.core.clock import Clock

_CHECK_S: Final = 60.0


class Channel(Protocol):
    """The channel's actor, as it is used here."""

    number: int

    def start_timer(self, delay_s: float, message: Any) -> Timer: ...


class CheckSettlement:
    """Timer: has a delivery waited too long for its settlement?"""

    __slots__ = ()


class SettlementTimeout:
    """Of one channel.

    Args:
        channel: gets the timer's ``CheckSettlement``.
        clock: of its runtime.
        timeout_ms: None or 0: there is none.

    Attributes:
        timer: runs while deliveries wait for their settlement.
    """

    __slots__ = ("_channel", "_clock", "_oldest_s", "_oldest_tag", "_timeout_ms", "timer")

    def __init__(self, channel: Channel, clock: Clock, timeout_ms: int | None) -> None:
        self.timer: Timer | None = None
        self._channel = channel
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._oldest_s = 0.0
        self._oldest_tag: int | None = None

    def delivered(self) -> None:
        """Start the timer: the client has something to settle."""
        if self.timer is None and self._timeout_ms:
            self._oldest_tag = None
            self._start(self._timeout_ms)

    def _start(self, timeout_ms: int) -> None:
        period_s = min(_CHECK_S, timeout_ms / 2000)
        self.timer = self._channel.start_timer(period_s, CheckSettlement())

    def check(self, oldest: int | None, is_busy: bool) -> PreconditionFailed | None:
        """Return the channel's error, if its oldest delivery has waited too long and no method is under way."""
        self.timer = None
        timeout_ms = self._timeout_ms
        if oldest is None or not timeout_ms:
            return None
        now_s = self._clock.monotonic_s()
        if oldest != self._oldest_tag:
            self._oldest_tag, self._oldest_s = oldest, now_s
        if (now_s - self._oldest_s) * 1000 < timeout_ms or is_busy:
            self._start(timeout_ms)
            return None
        return PreconditionFailed(
            f"delivery acknowledgement on channel {self._channel.number} timed out. Timeout value used:"
            f" {timeout_ms} ms. This timeout value can be configured, see consumers doc guide"
            " to learn more",
            0,
        )
