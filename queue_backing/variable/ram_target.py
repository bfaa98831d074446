"""RamTarget: how many messages of a queue may be in RAM, from the seconds of traffic it is granted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.queue_backing.api import FOREVER_S
from leveret.queue_backing.rates import Rates

if TYPE_CHECKING:
    from leveret.core.clock import Clock

INFINITE: Final = FOREVER_S  # the target of a queue that need not page
TARGET_SLACK_DIVISOR: Final = 16


def reduce_above(target: float, slack: int) -> float:
    """Return up to how many messages in RAM a publish does not reduce."""
    return target if target == INFINITE else target + max(slack, target // TARGET_SLACK_DIVISOR)


class RamTarget:
    """The target of one queue, and the rates it follows from.

    Args:
        clock: for the rates; None for a queue that does not page, whose target never changes.
        slack: messages by which the target may be passed.

    Attributes:
        rates: averages per second, brought up to date every hundred messages.
        incoming, outgoing, ack_in, ack_out: messages since then.
        target: how many messages, ready and unacked, may be in RAM.
        reduce_above: how many a publish lets pass before it looks.
        before: messages in RAM when the duration was last asked for.
    """

    __slots__ = ("_clock", "_slack", "ack_in", "ack_out", "before", "incoming", "outgoing", "rates",
        "reduce_above", "target")  # fmt: skip

    def __init__(self, clock: Clock | None, slack: int) -> None:
        self._clock = clock
        self._slack = slack
        self.rates = Rates(clock.monotonic_s() if clock is not None else 0.0)
        self.incoming = self.outgoing = self.ack_in = self.ack_out = 0
        self.before = 0
        self.target: float = INFINITE
        self.reduce_above: float = INFINITE

    def update_rates(self) -> None:
        assert self._clock is not None
        now_s = self._clock.monotonic_s()
        self.rates.update(now_s, self.incoming, self.outgoing, self.ack_in, self.ack_out)
        self.incoming = self.outgoing = self.ack_in = self.ack_out = 0

    def duration_s(self, in_ram: int) -> float:
        """Return how many seconds of traffic so many messages in RAM are."""
        self.update_rates()
        before, self.before = self.before, in_ram
        return self.rates.duration_s(in_ram, before)

    def aim_at(self, duration_s: float) -> bool:
        """Set the target; return whether it is lower than before."""
        before = self.target
        self.target = duration_s
        if duration_s != INFINITE:
            self.target = int(duration_s * self.rates.total())
        return self.target < before

    def look_at_target(self) -> None:
        """Have publishes look when the target is passed by more than the slack."""
        self.reduce_above = reduce_above(self.target, self._slack)

    def look_always(self) -> None:
        """Have every publish look: the queue becomes lazy."""
        self.reduce_above = -1

    def clear(self) -> None:
        self.target = self.reduce_above = INFINITE


NO_TARGET: Final = RamTarget(None, 0)  # shared by queues that do not page
