"""The backing actor: the half of a queue's pair that owns the backing queue.

The backing queue itself is a plain object. The actor stands for it towards supervisors and monitors. The amqqueue calls
it inline (``proxy``); later events reach the amqqueue as the mails ``Confirmed``, ``Refused`` and ``FetchReady``.

Housekeeping: after each operation that changes the queue ``done`` asks whether it ``needs_timeout``; then the actor
calls its ``timeout`` in turns of its own, one slice of work in each. A queue that can page reports to the node's memory
monitor how many seconds of traffic it keeps in RAM, and takes the answer as its target. It is listed there as active
from an operation until it has reported.

The actor owns the queue's index in the store (``QueueOwner``). The store calls it between turns, never within a call of
the queue; each call becomes mail. The store may still call for a while after the actor's end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from leveret.actors.gen_server import GenServer
from leveret.actors.runtime.signals import NORMAL, SHUTDOWN, is_orderly
from leveret.core.errors import DependencyError
from leveret.msg_store.client import QueueOwner
from leveret.queue_backing.api import FOREVER_S, BackingQueue, Confirmed, FetchReady, Refused

if TYPE_CHECKING:
    from leveret.actors.runtime.ref import Ref
    from leveret.queue_backing.memory_monitor import MemoryMonitor

MakeQueue: TypeAlias = "Callable[[BackingOwner], BackingQueue]"


class _RegistryEntry(Protocol):
    """The queue's registry entry, where a backing actor leaves its address."""

    backing: Ref | None


class BackingOwner(QueueOwner, Protocol):
    """The owner of a queue's index, as the factory of the queue sees it."""

    def use_memory_monitor(self, memory: MemoryMonitor) -> None:
        """Take RAM targets from a monitor; for a queue that can page."""


class KeepHouse:
    """To itself: let the queue do a piece of its work."""

    __slots__ = ()


class StoreResumes:
    """To itself: the store has room again, or has read the requested messages."""

    __slots__ = ()


class SetRamDurationTarget:
    """Keep no more than so many seconds of traffic in RAM."""

    __slots__ = ("duration_s",)

    def __init__(self, duration_s: float) -> None:
        self.duration_s = duration_s


class ReportRamDuration:
    """Report to the node's memory monitor, and set the target it answers."""

    __slots__ = ()


KEEP_HOUSE: Final = KeepHouse()
_STORE_RESUMES: Final = StoreResumes()
_FETCH_READY: Final = FetchReady()


class BackingActor(GenServer):
    """Owns one backing queue; its ``init`` takes the queue's factory and registry entry.

    Attributes:
        queue: the backing queue.
    """

    __slots__ = ("_amqqueue", "_has_work", "_is_listed", "_is_resuming", "_memory", "queue")

    def init(self, make: MakeQueue, entry: _RegistryEntry) -> None:
        """Make the queue, recover its messages, and leave the address in the entry."""
        self.charge_to_callers()
        self._has_work = False
        self._amqqueue: Ref | None = None
        self._memory: MemoryMonitor | None = None
        self._is_listed = True  # for good, if the queue cannot page
        self._is_resuming = False
        self.queue: BackingQueue = make(self)
        self.queue.init(recover=True)
        entry.backing = self.ref

    def attach(self, amqqueue: Ref) -> int:
        """Send the amqqueue later events from now on; return how many messages are ready."""
        self._amqqueue = amqqueue
        return self.queue.len()

    # Housekeeping.

    def done(self) -> None:
        """Schedule the work that an operation left over, and list the queue as active."""
        if not self._has_work and self.queue.needs_timeout():
            self._has_work = True
            self.runtime.turns.again(self.ref, KEEP_HOUSE)
        if not self._is_listed:
            self._list_active()

    def _list_active(self) -> None:
        """Have the memory monitor ask for a report: the queue may hold more or less in RAM."""
        assert self._memory is not None
        self._is_listed = True
        self._memory.active[self.ref] = None

    def _report(self) -> None:
        """Report the RAM duration, again and again until the queue's rates have faded; set the target answered."""
        assert self._memory is not None
        duration_s = self.queue.ram_duration()
        self._set_ram_duration_target(self._memory.report(self.ref, duration_s))
        self._is_listed = False
        if duration_s != FOREVER_S:
            self._list_active()

    def _set_ram_duration_target(self, duration_s: float) -> None:
        self.queue.set_ram_duration_target(duration_s)
        self.done()

    # What the store and the queue's factory call.

    def use_memory_monitor(self, memory: MemoryMonitor) -> None:
        """Take RAM targets from a monitor; for a queue that can page."""
        self._memory = memory
        self._is_listed = False

    def confirmed(self, runs: list[tuple[int, int]]) -> None:
        """Tell the amqqueue that these messages are safe."""
        if self.ref.is_alive and self._amqqueue is not None:
            self.runtime.turns.send(self._amqqueue, Confirmed(runs))

    def nacked(self, runs: list[tuple[int, int]]) -> None:
        """Tell the amqqueue that these messages could not be written now."""
        if self.ref.is_alive and self._amqqueue is not None:
            self.runtime.turns.send(self._amqqueue, Refused(runs))

    def resume(self) -> None:
        """Have the queue's ``resume`` called in a turn of the actor."""
        if self.ref.is_alive and not self._is_resuming:
            self._is_resuming = True
            self.runtime.turns.send(self.ref, _STORE_RESUMES)

    def failed(self, error: Exception) -> None:
        """End with the error of the store; the pair is started anew, by the vhost if the store has failed."""
        is_of_store = isinstance(error, DependencyError)
        reason: object = (SHUTDOWN, str(error)) if is_of_store else error
        self.runtime.exit(self.ref, reason)

    # Mail.

    def handle_cast(self, message: Any) -> None:
        kind = type(message)
        if kind is KeepHouse:
            self._has_work = False
            self.queue.timeout()
            self.done()
            self._tell_fetch_ready()
        elif kind is SetRamDurationTarget:
            self._set_ram_duration_target(message.duration_s)
        elif kind is ReportRamDuration:
            self._report()
        elif kind is StoreResumes:
            self._is_resuming = False
            self.queue.resume()
            self.done()
            self._tell_fetch_ready()
        else:
            super().handle_cast(message)

    def _tell_fetch_ready(self) -> None:
        if self.queue.take_fetch_ready() and self._amqqueue is not None:
            self.post(self._amqqueue, _FETCH_READY)

    def terminate(self, reason: object) -> None:
        """End the queue; much memory is freed in slices after the actor's end."""
        if self._memory is not None:
            self._memory.deregister(self.ref)
        if is_orderly(reason) and not isinstance(reason, tuple):
            self._end_queue()
        else:
            self.queue.abandon()
        runtime = self.runtime
        if self.queue.needs_timeout() and not runtime.is_closed:
            releaser = runtime.spawn(Releaser, self.queue, self.ref.cell.account)
            runtime.send_bulk(releaser, KEEP_HOUSE)

    def _end_queue(self) -> None:
        try:
            self.queue.terminate()
        except DependencyError:  # the store has failed while the vhost was being stopped
            self.queue.abandon()


class Releaser(GenServer):
    """Frees the memory of a queue that has ended, a slice a turn, on the account of that queue."""

    __slots__ = ("_queue",)

    def init(self, queue: BackingQueue, account: int) -> None:
        self._queue = queue
        self.charge_to(account)

    def handle_cast(self, message: Any) -> None:
        self._queue.timeout()
        if self._queue.needs_timeout():
            self.runtime.again(self.ref, KEEP_HOUSE)
        else:
            self.stop(NORMAL)
