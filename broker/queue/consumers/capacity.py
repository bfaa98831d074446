"""The consumer capacity of a queue: the share of time in which a message would have gone to a consumer at once.

RabbitMQ's figure (``rabbit_queue_consumers:capacity/1``): consumers are *busy* from the moment when a message finds
none that can take it until one can again. Each cycle of both gives a ratio, and older ratios fade with a half-life of
a second.

Only changes are timed: a queue whose consumers keep up looks at no clock. Cycles are added up until they take
``CYCLES_S``, since consumers with a small prefetch may be busy and ready again with each message.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

HALF_LIFE_S: Final = 1.0
CYCLES_S: Final = 0.05


class Capacity:
    """The moving average of one queue.

    Args:
        now_s: a clock that goes on.

    Attributes:
        is_busy: a message has found no consumer that could take it.
    """

    __slots__ = ("_average", "_changed_s", "_now_s", "_ready_s", "_since_s", "is_busy")

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self.is_busy = False
        self._average = 1.0
        self._since_s = self._changed_s = now_s()  # of the cycles added up, and of the last change
        self._ready_s = 0.0  # within those cycles

    def busy(self) -> None:
        """Note that no consumer can take the next message."""
        if not self.is_busy:
            self.is_busy = True
            now_s = self._now_s()
            self._ready_s += now_s - self._changed_s
            self._changed_s = now_s

    def ready(self) -> None:
        """Note that a consumer can take messages again."""
        if self.is_busy:
            self.is_busy = False
            self._changed_s = now_s = self._now_s()
            if now_s - self._since_s >= CYCLES_S:
                self._average = self._with(now_s, self._ready_s)
                self._since_s, self._ready_s = now_s, 0.0

    def now(self) -> float:
        """Return the share, from 0 to 1."""
        now_s = self._now_s()
        return self._with(now_s, self._ready_s + (now_s - self._changed_s) * (not self.is_busy))

    def _with(self, now_s: float, ready_s: float) -> float:
        """Return the average with the cycles until now."""
        time_s = now_s - self._since_s
        if time_s <= 0.0:
            return self._average
        weight = math.exp(time_s * math.log(0.5) / HALF_LIFE_S)
        return ready_s / time_s * (1 - weight) + self._average * weight
