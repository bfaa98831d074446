"""How fast a queue fills and empties, and how long what it keeps in RAM will last.

Four averages per second: messages in, out, into the unacked, acked. Each is an exponentially weighted
moving average with a half life of five seconds, brought up to date from raw counters whenever a
hundred messages have passed, so that the message path only adds integers.

The *RAM duration* is how many seconds of traffic are in RAM: half the mean of two samples of what is
there, over the mean rate. RabbitMQ declares the previous sample but never stores it, so that its
figure is half of what its formula intends (``rabbit_variable_queue:ram_duration/1`` of 3.6 to 3.10).
Differs from RabbitMQ: we store it.
"""

from __future__ import annotations

from math import exp, expm1, log
from typing import Final

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
        """Return the RAM duration for two samples of what is in RAM, ready and unacked."""
        fastest = max(self.incoming, self.outgoing, self.ack_in, self.ack_out)
        if fastest < IDLE_PER_S:
            return float("inf")
        return (in_ram + in_ram_before) / (4 * self.total())
