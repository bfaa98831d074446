"""A plain Thespian actor as its own thread sees it: how it is made, handles messages and calls.

``Handling`` has Thespian's rules: a message whose handling fails is handled once more; if that fails
as well, its sender gets it back in a ``PoisonMessage``. ``Port`` is the system as the actor calls it. Both
survive the ``HostedActor`` that they belong to: an actor may be killed while its handler runs, and later
calls of the handler are ignored.
"""

from __future__ import annotations

import traceback
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from thespian.actors import (
    Actor,
    ActorAddress,
    ActorExitRequest,
    DeadEnvelope,
    PoisonMessage,
    ThespianWatch,
)
from thespian.system.utilis import withPossibleInitArgs

from leveret.actors.runtime.signals import KILL, StopActor
from leveret.core.errors import ActorError
from leveret.core.log.loggers import logger

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from leveret.actors.runtime.ref import Ref
    from leveret.actors.thespian.actor_threads import ActorThread
    from leveret.actors.thespian.turn_order import TurnOrder

log = logger(__name__)


@dataclass(slots=True, eq=False)
class Order:
    """A request to create an actor.

    Attributes:
        actor_class: a class, or the name of one in a loaded source.
        made: done when there is an instance; or with the exception that prevented it.
    """

    actor_class: Any
    requirements: Any
    global_name: str | None
    source_hash: Any
    made: Future[None] = field(default_factory=Future)


class System(Protocol):
    """The system base, as its actors see it.

    ``run``, ``enter``, ``post`` and ``end`` may be called in any thread, the others on the loop's.
    """

    capabilities: dict[str, Any]
    turns: TurnOrder

    def find_class(self, order: Order) -> type[Actor]: ...
    def use_source(self, source_hash: str) -> Callable[[object], None]: ...
    def new_thread(self) -> ActorThread | None: ...
    def create_child(self, parent: Ref, order: Order) -> Ref: ...
    def run(self, function: Callable[..., Any], *args: Any) -> Any: ...
    def enter(self, function: Callable[..., Any], *args: Any) -> None: ...
    def post(self, to: ActorAddress, message: Any, sender: Ref) -> None: ...
    def end(self, ref: Ref, reason: object) -> None: ...
    def dead_letter(self, to: ActorAddress, message: Any) -> None: ...

    # Requests of actors, on the loop's thread; ``turn`` is the number of the turn that makes them.

    def handleDeadLetters(self, address: Ref, enable: bool, turn: int | None) -> None: ...  # noqa: N802
    def registerSourceAuthority(self, address: Ref, turn: int | None) -> None: ...  # noqa: N802
    def updateCapability(self, name: str, value: Any, turn: int | None) -> None: ...  # noqa: N802
    def notifyOnSourceAvailability(self, address: Ref, enable: bool) -> None: ...  # noqa: N802
    def notifyOnSystemRegistrationChanges(self, address: Ref, enable: bool) -> None: ...  # noqa: N802
    def loadActorSource(self, source: Any) -> str: ...  # noqa: N802
    def unloadActorSource(self, source_hash: str) -> None: ...  # noqa: N802
    def actorSystemShutdown(self) -> None: ...  # noqa: N802
    def takes_back(self, letter: DeadEnvelope, sender: Ref, holder: Ref) -> bool: ...


class Host(Protocol):
    """The actor's half on the loop, as its half in the thread sees it."""

    ref: Ref
    global_name: str | None
    source_hash: Any

    def wakeupAfter(self, timePeriod: Any, payload: Any = None) -> None: ...  # noqa: N803


class Port:
    """A Thespian actor's ``_myRef``: serves calls about the actor, passes the others on to the system.

    Attributes:
        turn: the number of the turn that its thread has, or had last; None: it runs on the loop.
    """

    __slots__ = ("_host", "_ref", "_system", "globalName", "source_hash", "turn")

    def __init__(self, host: Host, system: System) -> None:
        self._host = host
        self._ref = host.ref
        self._system = system
        self.globalName = host.global_name  # Thespian's name
        self.source_hash = host.source_hash
        self.turn: int | None = None

    @property
    def address(self) -> Ref:
        return self._ref

    def actor_send(self, target: ActorAddress, message: Any) -> None:
        if self._ref.is_alive:
            self._system.post(target, message, self._ref)

    def createActor(
        self,
        actor_class: Any,
        requirements: Any = None,
        global_name: str | None = None,
        source_hash: Any = None,
    ) -> Ref:
        order = Order(actor_class, requirements, global_name, source_hash or self.source_hash)
        ref: Ref = self._system.run(self._system.create_child, self._ref, order)
        return ref

    def kill_child(self, child: Ref) -> None:
        """End a child at once, also one whose handler is under way; Thespian has nothing like it."""
        self._system.end(child, KILL)

    def wakeupAfter(self, period: timedelta, payload: Any = None) -> None:
        self._system.enter(self._host.wakeupAfter, period, payload)

    def handleDeadLetters(self, address: Ref, enable: bool = True) -> None:  # noqa: N802
        self._ask(self._system.handleDeadLetters, address, enable, self.turn)

    def registerSourceAuthority(self, address: Ref) -> None:  # noqa: N802
        self._ask(self._system.registerSourceAuthority, address, self.turn)

    def updateCapability(self, name: str, value: Any = None) -> None:  # noqa: N802
        self._ask(self._system.updateCapability, name, value, self.turn)

    def notifyOnSourceAvailability(self, address: Ref, enable: bool = True) -> None:  # noqa: N802
        self._ask(self._system.notifyOnSourceAvailability, address, enable)

    def notifyOnSystemRegistrationChanges(  # noqa: N802
        self, address: Ref, enable: bool = True
    ) -> None:
        self._ask(self._system.notifyOnSystemRegistrationChanges, address, enable)

    def loadActorSource(self, source: Any) -> str:  # noqa: N802
        source_hash: str = self._ask(self._system.loadActorSource, source)
        return source_hash

    def unloadActorSource(self, source_hash: str) -> None:  # noqa: N802
        self._ask(self._system.unloadActorSource, source_hash)

    def actorSystemShutdown(self) -> None:  # noqa: N802
        self._ask(self._system.actorSystemShutdown)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise ActorError(f"{name} is not supported")

    def _ask(self, request: Callable[..., Any], *args: Any) -> Any:
        return self._system.run(self._make_request, request, args)

    def _make_request(self, request: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        if not self._ref.is_alive:
            raise ActorError(f"{self._ref} is dead and cannot call {request.__name__}")
        return request(*args)


class Handling:
    """One Thespian actor's instance, and the handling of its messages.

    Attributes:
        inner: the instance; None until it is made.
    """

    __slots__ = ("_ref", "_system", "inner")

    def __init__(self, ref: Ref, system: System) -> None:
        self._ref = ref
        self._system = system
        self.inner: Any = None

    def make(self, actor_class: type[Actor], order: Order, port: Port) -> None:
        """Make the instance; an exception of its constructor ends the actor."""
        maker = withPossibleInitArgs(
            capabilities=self._system.capabilities, requirements=order.requirements
        )
        try:
            inner = maker.create(actor_class)
        except BaseException as error:
            order.made.set_exception(error)
            raise
        inner._myRef = port  # noqa: SLF001  # Thespian's systems set it as well
        self.inner = inner

    def handle(self, message: Any, sender: Ref, reason: object) -> None:
        """Let the actor handle a message, and end it then if there is a ``reason``."""
        if not self._ref.is_alive:
            return  # it was killed while this waited for the thread
        self._let_handle(message, sender)
        if reason is not None:
            raise StopActor(reason)

    def _let_handle(self, message: Any, sender: Ref) -> None:
        try:
            self._receive(message, sender)
        except Exception:
            log.warning("actor failed, to be tried again actor=%s", self._ref, exc_info=True)
        else:
            return
        if isinstance(message, ActorExitRequest) or not self._ref.is_alive:
            return
        try:
            self._receive(message, sender)
        except Exception:
            log.exception("actor failed twice actor=%s", self._ref)
            if self._ref.is_alive and not isinstance(message, PoisonMessage):
                poison = PoisonMessage(message, traceback.format_exc())
                self._system.post(sender, poison, self._ref)

    def _receive(self, message: Any, sender: Ref) -> None:
        if isinstance(self.inner.receiveMessage(message, sender), ThespianWatch):
            log.error("actor returned a ThespianWatch, which is not supported actor=%s", self._ref)
