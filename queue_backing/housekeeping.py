"""Housekeeping: what the operations of a backing queue leave to be done.

After each operation that changes the queue ``done`` asks whether it ``needs_timeout``; then the backing actor calls its
``timeout`` in later turns, one slice of work in each. A queue that reports to the node's memory monitor is listed there
as active, until it has reported.

The proxy and the actor share it. It is a class of its own because no actor can be compiled, and nearly every message
comes by here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.queue_backing.api import FOREVER_S

if TYPE_CHECKING:
    from leveret.actors.runtime.ref import Ref
    from leveret.actors.runtime.scheduler import Turns
    from leveret.queue_backing.api import BackingQueue
    from leveret.queue_backing.memory_monitor import MemoryMonitor


class KeepHouse:
    """Mail of a backing actor to itself: let the queue do a piece of its work."""

    __slots__ = ()


KEEP_HOUSE: Final = KeepHouse()


class Housekeeping:
    """The housekeeping of one queue.

    Args:
        turns: of the runtime of its backing actor.
        actor: the backing actor.
        queue: its backing queue.
        memory: gets reports of the queue's RAM; None: the queue cannot page.
    """

    __slots__ = ("_actor", "_has_work", "_is_listed", "_memory", "_queue", "_turns")

    def __init__(
        self, turns: Turns, actor: Ref, queue: BackingQueue, memory: MemoryMonitor | None
    ) -> None:
        self._queue = queue
        self._has_work = False
        self._is_listed = memory is None  # then for good
        self._turns = turns
        self._actor = actor
        self._memory = memory

    def done(self) -> None:
        """Schedule the work that an operation left over, and list the queue as active."""
        if not self._has_work and self._queue.needs_timeout():
            self._has_work = True
            self._turns.again(self._actor, KEEP_HOUSE)
        if not self._is_listed:
            self._list_active()

    def keep_house(self) -> None:
        """Let the queue do a piece of its work; schedule the rest."""
        self._has_work = False
        self._queue.timeout()
        self.done()

    # The memory monitor.

    def _list_active(self) -> None:
        """Have the memory monitor ask for a report: the queue may hold more or less in RAM."""
        assert self._memory is not None
        self._is_listed = True
        self._memory.active[self._actor] = None

    def report(self) -> None:
        """Report the RAM duration, again and again until the queue's rates have faded; set the target answered."""
        assert self._memory is not None
        duration_s = self._queue.ram_duration()
        self.set_ram_duration_target(self._memory.report(self._actor, duration_s))
        self._is_listed = False
        if duration_s != FOREVER_S:
            self._list_active()

    def set_ram_duration_target(self, duration_s: float) -> None:
        self._queue.set_ram_duration_target(duration_s)
        self.done()
