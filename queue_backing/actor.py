"""The backing actor: the half of a queue's pair that owns the backing queue.

The backing queue itself is a plain object. The actor stands for it towards supervisors and monitors, and
takes its housekeeping as mail. The amqqueue calls it inline (``proxy``); later events reach the amqqueue as
the mails ``Confirmed``, ``Refused`` and ``FetchReady``.

What operations leave over is done in turns of its own (``housekeeping``). A queue that can page reports to the node's
memory monitor how many seconds of traffic it keeps in RAM, and takes the answer as its target.

A queue on disk has this actor as the owner of its index (``QueueOwner``): the store calls it between turns,
and the actor turns the calls into mail.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from leveret.actors.gen_server import GenServer
from leveret.actors.runtime.signals import NORMAL, SHUTDOWN, is_orderly
from leveret.core.errors import DependencyError
from leveret.msg_store.client import QueueOwner
from leveret.queue_backing.api import BackingQueue, Confirmed, FetchReady, Refused
from leveret.queue_backing.housekeeping import KEEP_HOUSE, Housekeeping, KeepHouse

if TYPE_CHECKING:
    from leveret.actors.runtime.ref import Ref
    from leveret.queue_backing.memory_monitor import MemoryMonitor

MakeQueue: TypeAlias = "Callable[[BackingOwner], BackingQueue]"


class _RegistryEntry(Protocol):
    """The queue's registry entry, where a backing actor leaves its address."""

    backing: Ref | None


class BackingOwner(QueueOwner, Protocol):
    """A backing actor, as the factory of its queue sees it."""

    def use_memory_monitor(self, memory: MemoryMonitor) -> None:
        """Take RAM targets from a monitor; for a queue that can page."""


class SetRamDurationTarget:
    """Keep no more than so many seconds of traffic in RAM."""

    __slots__ = ("duration_s",)

    def __init__(self, duration_s: float) -> None:
        self.duration_s = duration_s


class ReportRamDuration:
    """Report to the node's memory monitor, and set the target it answers."""

    __slots__ = ()


class StoreResumes:
    """Mail to itself: the store has room again, or has read the requested messages."""

    __slots__ = ()


_STORE_RESUMES: Final = StoreResumes()
_FETCH_READY: Final = FetchReady()


class BackingActor(GenServer):
    """Owns one backing queue; its ``init`` takes the queue's factory and registry entry.

    Attributes:
        queue: the backing queue.
        housekeeping: what its operations leave to be done.
    """

    __slots__ = ("_amqqueue", "_memory", "_resumes", "housekeeping", "queue")

    def init(self, make: MakeQueue, entry: _RegistryEntry) -> None:
        """Make the queue, recover its messages, and leave the address in the entry."""
        self._amqqueue: Ref | None = None
        self._memory: MemoryMonitor | None = None
        self._resumes = False
        self.queue = make(self)
        self.housekeeping = Housekeeping(self.runtime.turns, self.ref, self.queue, self._memory)
        self.queue.init(recover=True)
        entry.backing = self.ref

    def use_memory_monitor(self, memory: MemoryMonitor) -> None:
        """Take RAM targets from a monitor; for a queue that can page."""
        self._memory = memory

    def attach(self, amqqueue: Ref) -> int:
        """Send the amqqueue later events from now on; return how many messages are ready."""
        self._amqqueue = amqqueue
        return self.queue.len()

    # Mail.

    def handle_cast(self, message: Any) -> None:
        if isinstance(message, KeepHouse):
            self.housekeeping.keep_house()
            self._tell_fetch_ready()
        elif isinstance(message, SetRamDurationTarget):
            self.housekeeping.set_ram_duration_target(message.duration_s)
        elif isinstance(message, ReportRamDuration):
            self.housekeeping.report()
        elif isinstance(message, StoreResumes):
            self._resumes = False
            self.queue.resume()
            self.housekeeping.done(None)
            self._tell_fetch_ready()
        else:
            super().handle_cast(message)

    def _tell_fetch_ready(self) -> None:
        if self.queue.take_fetch_ready() and self._amqqueue is not None:
            self.post(self._amqqueue, _FETCH_READY)

    # Called by the store, not in a turn of this actor.

    def confirmed(self, runs: list[tuple[int, int]]) -> None:
        if self._amqqueue is not None:
            self.runtime.send(self._amqqueue, Confirmed(runs))

    def resume(self) -> None:
        """Call the queue's ``resume`` in a turn of this actor."""
        if not self._resumes:
            self._resumes = True
            self.runtime.send(self.ref, _STORE_RESUMES)

    def nacked(self, runs: list[tuple[int, int]]) -> None:
        """Tell the amqqueue that these messages could not be written now."""
        if self._amqqueue is not None:
            self.runtime.send(self._amqqueue, Refused(runs))

    def failed(self, error: Exception) -> None:
        """End with the error of the store; the pair is started anew, by the vhost if the store has failed."""
        is_elsewhere = isinstance(error, DependencyError)
        self.runtime.exit(self.ref, (SHUTDOWN, str(error)) if is_elsewhere else error)

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
            runtime.send_bulk(runtime.spawn(Releaser, self.queue), KEEP_HOUSE)

    def _end_queue(self) -> None:
        try:
            self.queue.terminate()
        except DependencyError:  # the store has failed while the vhost was being stopped
            self.queue.abandon()


class Releaser(GenServer):
    """Frees the memory of a queue that has ended, a slice a turn; many of them share the time of long work."""

    __slots__ = ("_queue",)

    def init(self, queue: BackingQueue) -> None:
        self._queue = queue

    def handle_cast(self, message: Any) -> None:
        self._queue.timeout()
        if self._queue.needs_timeout():
            self.runtime.again(self.ref, KEEP_HOUSE)
        else:
            self.stop(NORMAL)
