"""RamTarget: how many messages of a queue may be in RAM, from the seconds of traffic it is granted.

Four averages per second: messages in, out, into the unacked, acked. Each is an exponentially weighted
moving average with a half life of five seconds, brought up to date from raw counters whenever a
hundred messages have passed, so that the message path only adds integers.

The *RAM duration* is how many seconds of traffic are in RAM: half the mean of two samples of the number
of messages in RAM, over the mean rate. RabbitMQ declares the previous sample but never stores it, so that its
figure is half of what its formula intends (``rabbit_variable_queue:ram_duration/1`` of 3.6 to 3.10).
Differs from RabbitMQ: we store it.
"""

from __future__ import annotations

from math import exp, expm1, log
from typing import TYPE_CHECKING, Final

from leveret.queue_backing.api import FOREVER_S

if TYPE_CHECKING:
    from leveret.core.clock import Clock

INFINITE: Final = FOREVER_S  # the target of a queue that need not page
TARGET_SLACK_DIVISOR: Final = 16
HALF_LIFE_S: Final = 5.0
IDLE_PER_S: Final = 0.01  # with all rates below it, a duration means nothing
UPDATE_AFTER: Final = 100  # messages in and out

_DECAY_PER_S: Final = log(0.5) / HALF_LIFE_S


def moving_average(rate: float, count: int, elapsed_s: float) -> float:
    """Return the rate after ``count`` more in the last ``elapsed_s``; unchanged when that is 0."""
    if elapsed_s <= 0:
        return rate
    exponent = elapsed_s * _DECAY_PER_S
    # 1 - exp(x) is 0 for the shortest times, by which the infinite momentary rate is multiplied.
    return count * (-expm1(exponent) / elapsed_s) + rate * exp(exponent)


class Rates:
    """The four averages, per second; ``at_s`` is when they were last brought up to date."""

    __slots__ = ("ack_in", "ack_out", "at_s", "incoming", "outgoing")

    def __init__(self, now_s: float) -> None:
        self.incoming = self.outgoing = self.ack_in = self.ack_out = 0.0
        self.at_s = now_s

    def update(self, now_s: float, incoming: int, outgoing: int, ack_in: int, ack_out: int) -> None:
        elapsed_s = now_s - self.at_s
        self.at_s = now_s
        self.incoming = moving_average(self.incoming, incoming, elapsed_s)
        self.outgoing = moving_average(self.outgoing, outgoing, elapsed_s)
        self.ack_in = moving_average(self.ack_in, ack_in, elapsed_s)
        self.ack_out = moving_average(self.ack_out, ack_out, elapsed_s)

    def total(self) -> float:
        return self.incoming + self.outgoing + self.ack_in + self.ack_out

    def acks_grow_faster(self) -> bool:
        """Whether the unacked messages grow faster than the ready ones."""
        return self.ack_in - self.ack_out > self.incoming - self.outgoing

    def duration_s(self, in_ram: int, in_ram_before: int) -> float:
        """Return the RAM duration for two samples of the messages in RAM, ready and unacked."""
        fastest = max(self.incoming, self.outgoing, self.ack_in, self.ack_out)
        if fastest < IDLE_PER_S:
            return float("inf")
        return (in_ram + in_ram_before) / (4 * self.total())


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
        reduce_above: how many a publish lets pass before it reduces memory.
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
            self.target = float(int(duration_s * self.rates.total()))
        return self.target < before

    def reduce_above_target(self) -> None:
        """Have publishes reduce memory when the target is passed by more than the slack."""
        self.reduce_above = reduce_above(self.target, self._slack)

    def reduce_always(self) -> None:
        """Have every publish reduce memory: the queue becomes lazy."""
        self.reduce_above = -1.0

    def clear(self) -> None:
        self.target = self.reduce_above = INFINITE


NO_TARGET: Final = RamTarget(None, 0)  # shared by queues that do not page
