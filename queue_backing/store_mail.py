"""StoreMail: what the store tells a queue on disk, as mail.

The store calls the owner of a queue's index between turns, never within a call of the queue. It is a class of its own
because no actor can be compiled, and each confirm of a persistent message comes by here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.actors.runtime.signals import SHUTDOWN
from leveret.core.errors import DependencyError
from leveret.queue_backing.api import Confirmed, Refused

if TYPE_CHECKING:
    from leveret.actors.runtime.ref import Ref
    from leveret.actors.runtime.runtime import Runtime
    from leveret.actors.runtime.scheduler import Turns
    from leveret.queue_backing.memory_monitor import MemoryMonitor


class StoreResumes:
    """Mail of a backing actor to itself: the store has room again, or has read the requested messages."""

    __slots__ = ()


_STORE_RESUMES: Final = StoreResumes()


class StoreMail:
    """The owner of the index of one backing actor; see ``QueueOwner`` for what the store calls.

    Attributes:
        amqqueue: gets ``Confirmed`` and ``Refused``; None until it has attached.
        memory: gives the queue its RAM targets, if it can page.
        resumes: a ``StoreResumes`` is on its way.
    """

    __slots__ = ("_actor", "_runtime", "_turns", "amqqueue", "memory", "resumes")

    def __init__(self, runtime: Runtime, actor: Ref) -> None:
        self._runtime = runtime
        self._turns: Turns = runtime.turns
        self._actor = actor
        self.amqqueue: Ref | None = None
        self.memory: MemoryMonitor | None = None
        self.resumes = False

    def use_memory_monitor(self, memory: MemoryMonitor) -> None:
        """Take RAM targets from a monitor; for a queue that can page."""
        self.memory = memory

    def confirmed(self, runs: list[tuple[int, int]]) -> None:
        if self.amqqueue is not None:
            self._turns.send(self.amqqueue, Confirmed(runs))

    def nacked(self, runs: list[tuple[int, int]]) -> None:
        """Tell the amqqueue that these messages could not be written now."""
        if self.amqqueue is not None:
            self._turns.send(self.amqqueue, Refused(runs))

    def resume(self) -> None:
        """Have the queue's ``resume`` called in a turn of the actor."""
        if not self.resumes:
            self.resumes = True
            self._turns.send(self._actor, _STORE_RESUMES)

    def failed(self, error: Exception) -> None:
        """End with the error of the store; the pair is started anew, by the vhost if the store has failed."""
        is_elsewhere = isinstance(error, DependencyError)
        reason: object = (SHUTDOWN, str(error)) if is_elsewhere else error
        self._runtime.exit(self._actor, reason)
