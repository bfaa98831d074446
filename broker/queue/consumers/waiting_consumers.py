"""The consumers of a queue with ``x-single-active-consumer`` that wait: the highest priority first, then the oldest."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leveret.broker.queue.consumers.consumer import Consumer


class WaitingConsumers:
    """Consumers that wait to become active; ``add``, ``discard`` and ``take_first`` walk over none of the others."""

    __slots__ = ("_levels", "_priorities")

    def __init__(self) -> None:
        self._priorities: list[int] = []  # ascending
        # A dict would walk over all that have been taken from its front.
        self._levels: dict[int, OrderedDict[Consumer, None]] = {}

    def add(self, consumer: Consumer) -> None:
        priority = consumer.spec.priority
        level = self._levels.get(priority)
        if level is None:
            level = self._levels[priority] = OrderedDict()
            insort(self._priorities, priority)
        level[consumer] = None

    def discard(self, consumer: Consumer) -> bool:
        """Take a consumer out; return whether it waited."""
        priority = consumer.spec.priority
        level = self._levels.get(priority)
        if level is None or consumer not in level:
            return False
        del level[consumer]
        if not level:
            del self._levels[priority]
            del self._priorities[bisect_left(self._priorities, priority)]
        return True

    def take_first(self) -> Consumer | None:
        """Take out the consumer that becomes active next, None if nobody waits."""
        if not self._priorities:
            return None
        consumer = next(iter(self._levels[self._priorities[-1]]))
        self.discard(consumer)
        return consumer
