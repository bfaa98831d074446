"""Plain Thespian actors on the runtime, with OTP's rule about exceptions.

``ThespianHost`` is the actor the runtime sees; inside it is the Thespian ``Actor``, whose
``_myRef`` is a ``Port``. An exception in ``receiveMessage`` ends the actor and its parent gets
``ChildActorExited``; nothing is retried. ``ActorExitRequest`` is delivered, then ends the actor
and, through the links, its children. Source loading, capabilities and conventions do not exist on
the runtime and are refused with ``ActorError``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from thespian.actors import Actor, ActorExitRequest, ChildActorExited, WakeupMessage

from leveret.actors.runtime.actor_ref import TIMER
from leveret.actors.runtime.ref import MailHandler, Ref
from leveret.actors.runtime.signals import NORMAL, SHUTDOWN, Exit, Started, StartResult, StopActor
from leveret.actors.runtime.timers import Timer
from leveret.core import small_set
from leveret.core.errors import ActorError

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from leveret.core.clock import Clock


class HostRuntime(Protocol):
    """What a host asks of its runtime."""

    clock: Clock
    send: Callable[[Ref, Any, Ref | None], None]

    def child_of(
        self, parent: Ref, actor_class: type, name: str, then: Callable[[StartResult], None]
    ) -> Ref:
        """Find the actor of that name, or start one linked with ``parent``."""


class Port:
    """A Thespian actor's ``_myRef``: its way to the system."""

    __slots__ = ("_host",)

    def __init__(self, host: ThespianHost) -> None:
        self._host = host

    @property
    def address(self) -> Ref:
        return self._host.ref

    @property
    def globalName(self) -> str:  # noqa: N802
        return self._host.global_name

    def actor_send(self, target: Ref, message: Any) -> None:
        self._host.runtime.send(target, message, self._host.ref)

    def wakeupAfter(self, period: timedelta, payload: Any = None) -> None:
        mail = (WakeupMessage(period, payload), TIMER)
        Timer(self._host.runtime.clock, self._host.ref.cell, period.total_seconds(), mail)

    def createActor(
        self,
        actor_class: type,
        requirements: object = None,
        global_name: str | None = None,
        source_hash: object = None,
    ) -> Ref:
        """Start a child, or find the actor of that global name; a failure comes as ChildActorExited."""
        if requirements or source_hash:
            raise ActorError("requirements and loaded sources are not supported")
        runtime, parent = self._host.runtime, self._host.ref
        results: list[StartResult] = []
        ref = runtime.child_of(parent, actor_class, global_name or "", results.append)
        if results and type(results[0]) is not Started:
            runtime.send(parent, ChildActorExited(ref), parent)
        return ref

    def __getattr__(self, name: str) -> Any:
        raise ActorError(f"Thespian's {name} is not supported")


class ThespianHost(MailHandler):
    """Runs one Thespian actor.

    Attributes:
        ref: the actor's address; set by the runtime.
        runtime: likewise.
        inner: the Thespian actor.
    """

    trap_exits = True
    async_handlers = False
    ref: Ref
    runtime: HostRuntime

    def init(self, actor_class: type[Actor]) -> None:
        self.global_name = next(iter(small_set.items(self.ref.cell.names)), "")
        self.inner = actor_class()
        self.inner._myRef = Port(self)  # noqa: SLF001  # Thespian's systems set it as well

    def handle_mail(self, message: Any, sender: Ref | None) -> None:
        if type(message) is Exit:
            if sender is None or sender is self.ref.cell.parent:
                _stop(message.reason)
            message = ChildActorExited(sender)
        self.inner.receiveMessage(message, self.ref if sender is None else sender)
        if isinstance(message, ActorExitRequest):
            _stop(SHUTDOWN if message.isRecursive else NORMAL)

    def terminate(self, reason: object) -> None:
        self.inner._myRef = None  # noqa: SLF001  # as in init

    def drop_attributes(self) -> None:
        """Forget everything but the address; the runtime calls it at the end."""
        ref, runtime = self.ref, self.runtime
        self.__dict__.clear()
        self.ref, self.runtime = ref, runtime


def _stop(reason: object) -> NoReturn:
    raise StopActor(reason)
