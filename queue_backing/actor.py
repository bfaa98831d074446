"""The backing actor: the half of a queue's pair that owns the backing queue.

The backing queue itself is a plain object. The actor stands for it towards supervisors and monitors, and
takes its housekeeping as mail. The amqqueue calls it inline (``proxy``); later events reach the amqqueue as
the mails ``Confirmed``, ``Refused`` and ``FetchReady``.

What operations leave over is done in turns of its own (``housekeeping``). A queue that can page reports to the node's
memory monitor how many seconds of traffic it keeps in RAM, and takes the answer as its target.

What the store tells a queue on disk comes as mail (``store_mail``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from leveret.actors.gen_server import GenServer
from leveret.actors.runtime.signals import NORMAL, is_orderly
from leveret.core.errors import DependencyError
from leveret.msg_store.client import QueueOwner
from leveret.queue_backing.api import BackingQueue, FetchReady
from leveret.queue_backing.housekeeping import KEEP_HOUSE, Housekeeping, KeepHouse
from leveret.queue_backing.store_mail import StoreMail, StoreResumes

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


class SetRamDurationTarget:
    """Keep no more than so many seconds of traffic in RAM."""

    __slots__ = ("duration_s",)

    def __init__(self, duration_s: float) -> None:
        self.duration_s = duration_s


class ReportRamDuration:
    """Report to the node's memory monitor, and set the target it answers."""

    __slots__ = ()


_FETCH_READY: Final = FetchReady()


class BackingActor(GenServer):
    """Owns one backing queue; its ``init`` takes the queue's factory and registry entry.

    Attributes:
        queue: the backing queue.
        housekeeping: what its operations leave to be done.
    """

    __slots__ = ("_store_mail", "housekeeping", "queue")

    def init(self, make: MakeQueue, entry: _RegistryEntry) -> None:
        """Make the queue, recover its messages, and leave the address in the entry."""
        self._store_mail = owner = StoreMail(self.runtime, self.ref)
        self.queue = make(owner)
        self.housekeeping = Housekeeping(self.runtime.turns, self.ref, self.queue, owner.memory)
        self.queue.init(recover=True)
        entry.backing = self.ref

    def attach(self, amqqueue: Ref) -> int:
        """Send the amqqueue later events from now on; return how many messages are ready."""
        self._store_mail.amqqueue = amqqueue
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
            self._store_mail.resumes = False
            self.queue.resume()
            self.housekeeping.done()
            self._tell_fetch_ready()
        else:
            super().handle_cast(message)

    def _tell_fetch_ready(self) -> None:
        amqqueue = self._store_mail.amqqueue
        if self.queue.take_fetch_ready() and amqqueue is not None:
            self.post(amqqueue, _FETCH_READY)

    def terminate(self, reason: object) -> None:
        """End the queue; much memory is freed in slices after the actor's end."""
        if self._store_mail.memory is not None:
            self._store_mail.memory.deregister(self.ref)
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
