"""The backing queue as an actor: one half of a queue's pair.

The backing queue itself is a plain object. This actor owns it, is what supervisors and monitors see
of it, and takes its housekeeping as mail. The amqqueue calls it inline (``proxy``); late news go back
as the mails ``Confirmed``, ``Refused`` and ``Resident``.

After every operation that changes the queue it is asked whether it ``needs_timeout``: *timed* work is
done in the actor's next turns, one slice each; *idle* work 200 ms later.

A queue that can page tells the node's memory monitor how many seconds of traffic it keeps in RAM, when the
monitor asks, and keeps to what it is answered.

A queue on disk has this actor as its index's owner (``stored_index.IndexOwner``): what the store tells
comes in between the actor's turns and is turned into mail.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from leveret.actors.gen_server import GenServer
from leveret.actors.runtime.signals import is_orderly
from leveret.queue_backing.api import (
    FOREVER_S,
    BackingQueue,
    Confirmed,
    Refused,
    Resident,
    Urgency,
)
from leveret.queue_backing.index.stored import IndexOwner

if TYPE_CHECKING:
    from leveret.actors.runtime.ref import Ref
    from leveret.core.clock import Clock
    from leveret.queue_backing.memory_monitor import MemoryMonitor

MakeQueue: TypeAlias = "Callable[[BackingOwner], BackingQueue]"

IDLE_S: Final = 0.2


class Home(Protocol):
    """Where a backing actor leaves its address: the queue's registry entry."""

    backing: Ref | None


class BackingOwner(IndexOwner, Protocol):
    """What a backing actor is to those who make its queue."""

    def use_memory_of(self, memory: MemoryMonitor) -> None:
        """Keep to what a monitor wants; for a queue that can page."""


class HouseKeeping:
    """Mail to itself: do a piece of what the queue needs."""

    __slots__ = ()


class SetRamDurationTarget:
    """Keep no more than so many seconds of traffic in RAM."""

    __slots__ = ("duration_s",)

    def __init__(self, duration_s: float) -> None:
        self.duration_s = duration_s


class ReportRamDuration:
    """Tell the node's memory monitor how much is in RAM, and keep to what it wants."""

    __slots__ = ()


class StoreResumes:
    """The store takes more, or has read what was asked for."""

    __slots__ = ()


_HOUSEKEEPING: Final = HouseKeeping()
_STORE_RESUMES: Final = StoreResumes()
_RESIDENT: Final = Resident()


class BackingActor(GenServer):
    """Owns one backing queue; its ``init`` takes what makes it, and the queue's entry.

    Attributes:
        queue: the backing queue.
    """

    __slots__ = ("_amqqueue", "_has_work", "_is_reporting", "_memory", "_resumes", "queue")

    def init(self, make: MakeQueue, home: Home) -> None:
        """Make the queue, start it with what it finds, and leave the address in ``home``."""
        self._amqqueue: Ref | None = None
        self._memory: MemoryMonitor | None = None
        self._has_work = self._resumes = False
        self._is_reporting = True  # or need not
        self.queue = make(self)
        self.queue.init(recover=True)
        home.backing = self.ref

    def use_memory_of(self, memory: MemoryMonitor) -> None:
        """Keep to what a monitor wants; for a queue that can page."""
        self._memory = memory
        self._is_reporting = False

    # Inline calls of the amqqueue.

    def attach(self, amqqueue: Ref) -> int:
        """Send the amqqueue late news from now on; return how many messages are ready."""
        self._amqqueue = amqqueue
        return self.queue.len()

    def plan_work(self) -> None:
        """See what the queue needs after an operation."""
        if not self._has_work and (urgency := self.queue.needs_timeout()) is not None:
            self._plan(urgency)
        if not self._is_reporting:
            self._will_report()

    def _will_report(self) -> None:
        """Be asked how much is in RAM, since it may have changed."""
        assert self._memory is not None
        self._is_reporting = True
        self._memory.active[self.ref] = None

    def _plan(self, urgency: Urgency) -> None:
        self._has_work = True
        if urgency == "timed":
            self.runtime.again(self.ref, _HOUSEKEEPING)
        else:
            self.start_timer(IDLE_S, _HOUSEKEEPING)

    # Mail.

    def handle_cast(self, message: Any) -> None:
        """Take housekeeping."""
        if isinstance(message, HouseKeeping):
            self._keep_house()
        elif isinstance(message, SetRamDurationTarget):
            self._set_ram_duration_target(message.duration_s)
        elif isinstance(message, ReportRamDuration):
            self._report()
        elif isinstance(message, StoreResumes):
            self._resumes = False
            self.queue.resume()
            self.plan_work()
            self._tell_resident()
        else:
            super().handle_cast(message)

    def handle_info(self, message: Any) -> None:
        """Take housekeeping that was put off."""
        if isinstance(message, HouseKeeping):
            self._keep_house()
        else:
            super().handle_info(message)

    def _report(self) -> None:
        """Tell how much is in RAM; go on telling until the queue's rates have faded."""
        assert self._memory is not None
        duration_s = self.queue.ram_duration()
        self._set_ram_duration_target(self._memory.report(self.ref, duration_s))
        self._is_reporting = False
        if duration_s != FOREVER_S:
            self._will_report()

    def _set_ram_duration_target(self, duration_s: float) -> None:
        self.queue.set_ram_duration_target(duration_s)
        self.plan_work()

    def _keep_house(self) -> None:
        self._has_work = False
        self.queue.timeout()
        self.plan_work()
        self._tell_resident()

    def _tell_resident(self) -> None:
        if self.queue.take_resident() and self._amqqueue is not None:
            self.post(self._amqqueue, _RESIDENT)

    # What the store tells: not in a turn of this actor.

    def confirmed(self, runs: list[tuple[int, int]]) -> None:
        """Tell the amqqueue that these ``(first_seq, count)`` are safe."""
        if self._amqqueue is not None:
            self.runtime.send(self._amqqueue, Confirmed(runs))

    def resume(self) -> None:
        """Let the queue go on in a turn of this actor."""
        if not self._resumes:
            self._resumes = True
            self.runtime.send(self.ref, _STORE_RESUMES)

    def nacked(self, runs: list[tuple[int, int]]) -> None:
        """Say what could not be written now."""
        if self._amqqueue is not None:
            self.runtime.send(self._amqqueue, Refused(runs))

    def failed(self, error: Exception) -> None:
        """End: the queue cannot go on with what it knows."""
        self.runtime.exit(self.ref, error)

    def terminate(self, reason: object) -> None:
        """End the queue; what is large is freed in slices after the actor's end."""
        if self._memory is not None:
            self._memory.deregister(self.ref)
        if is_orderly(reason):
            self.queue.terminate()
        else:
            self.queue.abandon()
        if self.queue.needs_timeout() is not None:
            _release(self.runtime.clock, self.queue)


def _release(clock: Clock, queue: BackingQueue) -> None:
    queue.timeout()
    if queue.needs_timeout() is not None:
        clock.call_later(0.0, _release, clock, queue)
