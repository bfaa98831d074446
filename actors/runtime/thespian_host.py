"""Plain Thespian actors on the runtime, with OTP's rule about exceptions.

``ThespianHost`` is the actor the runtime sees; inside it is the Thespian ``Actor``, whose
``_myRef`` is a ``Port``. An exception in ``receiveMessage`` ends the actor and its parent gets
``ChildActorExited``; nothing is retried. ``ActorExitRequest`` is delivered, then ends the actor
and, through the links, its children. What the runtime has nothing for (source loading,
capabilities, conventions) is refused with ``ActorError``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from thespian.actors import Actor, ActorExitRequest, ChildActorExited

from leveret.actors.actor import OtpActor
from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.signals import NORMAL, SHUTDOWN, Exit, Started, StartResult
from leveret.actors.runtime.small_set import items_of
from leveret.core.errors import ActorError

if TYPE_CHECKING:
    from datetime import timedelta


class Port:
    """What a Thespian actor calls through ``_myRef``."""

    __slots__ = ("_host",)

    def __init__(self, host: ThespianHost) -> None:
        self._host = host

    @property
    def address(self) -> Ref:
        """The actor's address."""
        return self._host.ref

    @property
    def globalName(self) -> str:  # noqa: N802
        """The name it was created under."""
        return self._host.global_name

    def actor_send(self, target: Ref, message: Any) -> None:
        """Send with the actor as sender."""
        self._host.post(target, message)

    def wakeupAfter(self, period: timedelta, payload: Any = None) -> None:
        """Send the actor a WakeupMessage later."""
        self._host.wakeupAfter(period, payload)

    def createActor(
        self,
        actor_class: type,
        requirements: object = None,
        global_name: str | None = None,
        source_hash: object = None,
    ) -> Ref:
        """Start a child, or find the actor of that global name."""
        if requirements or source_hash:
            raise ActorError("requirements and loaded sources are not supported")
        return self._host.create(actor_class, global_name)

    def __getattr__(self, name: str) -> Any:
        raise ActorError(f"Thespian's {name} is not supported")


class ThespianHost(OtpActor):
    """Runs one Thespian actor."""

    trap_exits = True

    def init(self, actor_class: type[Actor]) -> None:
        """Make the Thespian actor."""
        self.global_name = next(iter(items_of(self.ref.cell.names)), "")
        self.inner = actor_class()
        self.inner._myRef = Port(self)  # noqa: SLF001  # Thespian's systems set it as well

    def create(self, actor_class: type, global_name: str | None) -> Ref:
        """Start a child actor; its failure comes as ChildActorExited."""
        found = self.runtime.whereis(global_name) if global_name else None
        if found is not None:
            return found
        child: list[Ref] = []

        def started(result: StartResult) -> None:
            if type(result) is not Started:
                child.append(self.ref)

        ref = self.runtime.start_link(
            self.ref, actor_class, (), started, label=actor_class.__name__, name=global_name or ""
        )
        if child:
            self.post(self.ref, ChildActorExited(ref))
        return ref

    def handle_mail(self, message: Any, sender: Ref | None) -> object:
        """Give a mail to the Thespian actor."""
        if type(message) is Exit:
            if sender is None or sender is self.parent:
                self.stop(message.reason)
            message = ChildActorExited(sender)
        self.inner.receiveMessage(message, self.ref if sender is None else sender)
        if isinstance(message, ActorExitRequest):
            self.stop(SHUTDOWN if message.isRecursive else NORMAL)
        return None

    def terminate(self, reason: object) -> None:
        """Part from the Thespian actor."""
        self.inner._myRef = None  # noqa: SLF001  # as in init
