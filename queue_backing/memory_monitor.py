"""Memory monitor: how many seconds of traffic every queue of a node may keep in RAM.

Queues report their RAM duration every few seconds and get the desired one as the answer; between the
reports the monitor works it out anew from the memory in use, and pushes it to queues that must shrink
at once. With ``m`` the share of the limit that is in use, ``S`` and ``n`` sum and number of the finite
durations reported, the first of these that fits:

====================================  ================
disk alarm                            infinite: paging would only fill the disk
the limit is 0                        0
``n`` = 0 and ``m`` >= 1              0
``m`` < paging ratio, or ``n`` = 0    infinite
``m`` < 0.95                          (S + 1) / n / m
else                                  S / n / m
====================================  ================

The 1 keeps the sum from sticking at 0 when all queues are on disk. Source: ``rabbit_memory_monitor``.
Differs from RabbitMQ: above the limit queues page even if none has any traffic; else the messages of idle
queues would keep publishers blocked for ever.

The monitor neither measures nor ticks: the memory watch calls ``update``, and has the queues in ``active``
report. A queue puts itself there when it is used: an unused queue's duration does not change.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from itertools import islice
from typing import Any, Final

from leveret.core.limits import MEMORY_PAGING_RATIO

INFINITE_S: Final = float("inf")
INTERVAL_S: Final = 2.5  # memory_monitor_interval

_INCREMENT_S: Final = 1.0
_INCREMENT_BELOW: Final = 0.95
_EPSILON_S: Final = 1e-6  # a sum below is 0 with rounding errors


def desired_duration_s(
    ratio: float,
    sum_s: float,
    count: int,
    disk_alarm: bool,
    paging_ratio: float = MEMORY_PAGING_RATIO,
) -> float:
    """Return the duration desired of each queue.

    Args:
        ratio: memory in use by the limit; infinite when the limit is 0.
        sum_s: of the finite durations reported.
        count: how many durations were finite.
        disk_alarm: the disk is nearly full.
        paging_ratio: a ratio below which nothing is paged.
    """
    if disk_alarm:
        return INFINITE_S
    if ratio == INFINITE_S:
        return 0.0
    if count == 0:
        return 0.0 if ratio >= 1.0 else INFINITE_S
    if ratio < paging_ratio:
        return INFINITE_S
    if ratio < _INCREMENT_BELOW:
        sum_s += _INCREMENT_S
    return sum_s / count / ratio


class MemoryMonitor:
    """The durations of all queues of a node.

    Args:
        paging_ratio: the share of the limit from which on queues page.

    Attributes:
        active: queues that have been used since they reported, as keys.
        desired_s: the seconds of traffic that each queue should keep in RAM.
    """

    __slots__ = ("_count", "_reported", "_sent", "_sum_s", "active", "desired_s", "paging_ratio")

    def __init__(self, paging_ratio: float = MEMORY_PAGING_RATIO) -> None:
        self.paging_ratio = paging_ratio
        self.active: dict[Any, None] = {}
        self._reported: dict[Hashable, float] = {}
        self._sent: dict[Hashable, float] = {}
        self._sum_s = 0.0
        self._count = 0
        self.desired_s = INFINITE_S

    def report(self, queue: Hashable, duration_s: float) -> float:
        """Take a queue's RAM duration; return the desired one, which the queue sets as its target."""
        self._take_out(queue)
        self._reported[queue] = duration_s
        if duration_s != INFINITE_S:
            self._sum_s += duration_s
            self._count += 1
        self._sent[queue] = self.desired_s
        return self.desired_s

    def take_active(self) -> list[Any]:
        """Return the queues that should report, and wait for their next use."""
        active, self.active = list(self.active), {}
        return active

    @property
    def count(self) -> int:
        return len(self._sent)

    def forget_some(self, count: int, is_gone: Callable[[Any], bool]) -> None:
        """Forget those of the next ``count`` queues that ended without deregistering; all have their turn."""
        for queue in list(islice(self._sent, count)):
            if is_gone(queue):
                self.deregister(queue)
            else:
                self._sent[queue] = self._sent.pop(queue)  # behind the others

    def deregister(self, queue: Hashable) -> None:
        """Forget a queue; unknown ones are passed over."""
        self._take_out(queue)
        self._sent.pop(queue, None)
        self.active.pop(queue, None)

    def _take_out(self, queue: Hashable) -> None:
        before_s = self._reported.pop(queue, INFINITE_S)
        if before_s != INFINITE_S:
            self._count -= 1
            self._sum_s -= before_s
            if self._sum_s < _EPSILON_S:
                self._sum_s = 0.0

    def update(
        self, used_bytes: int, limit_bytes: int, disk_alarm: bool
    ) -> list[tuple[Any, float]]:
        """Work out the desired duration anew.

        Returns:
            The queues that must take the new duration before their next report, each with it: queues
            whose last answer and whose own report were above it; with the disk alarm, which stops
            paging, queues whose last answer was below it.
        """
        ratio = used_bytes / limit_bytes if limit_bytes else INFINITE_S
        desired_s = self.desired_s = desired_duration_s(
            ratio, self._sum_s, self._count, disk_alarm, self.paging_ratio
        )
        if desired_s == INFINITE_S and not disk_alarm:
            return []
        notified = [queue for queue in self._sent if self._must_hear(queue, disk_alarm)]
        self._sent.update(dict.fromkeys(notified, desired_s))
        return [(queue, desired_s) for queue in notified]

    def _must_hear(self, queue: Hashable, disk_alarm: bool) -> bool:
        sent_s, desired_s = self._sent[queue], self.desired_s
        if disk_alarm:
            return desired_s > sent_s
        return desired_s < sent_s and desired_s < self._reported[queue]
