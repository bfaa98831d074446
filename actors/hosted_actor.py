"""A plain Thespian actor on the runtime, with Thespian's rules: what ``AsyncioBase`` creates.

A message whose handling fails is handled once more; if that fails as well, its sender gets it back
in a ``PoisonMessage`` and the actor lives on. ``ActorExitRequest`` is handed to the
actor, then ends it, and, unless it is not recursive, its children. A parent gets
``ChildActorExited``. (``leveret.actors.thespian_host`` has the same actors with OTP's rules.)
"""

from __future__ import annotations

import logging
import traceback
from typing import TYPE_CHECKING, Any, Final, Protocol

from thespian.actors import (
    Actor,
    ActorAddress,
    ActorExitRequest,
    ChildActorExited,
    PoisonMessage,
    Thespian_ActorStatus,
    Thespian_StatusReq,
    ThespianWatch,
    WakeupMessage,
)
from thespian.system.timing import ExpirationTimer, timePeriodSeconds
from thespian.system.utilis import checkActorCapabilities

from leveret.actors.actor import OtpActor
from leveret.actors.ref import Ref
from leveret.actors.signals import NORMAL, SHUTDOWN, Exit
from leveret.core.errors import ActorError

if TYPE_CHECKING:
    from datetime import timedelta

log = logging.getLogger(__name__)

OF_THE_SYSTEM: Final = frozenset(
    {
        "actorSystemShutdown",
        "handleDeadLetters",
        "loadActorSource",
        "notifyOnSourceAvailability",
        "notifyOnSystemRegistrationChanges",
        "registerSourceAuthority",
        "unloadActorSource",
        "updateCapability",
    }
)


class System(Protocol):
    """What an actor needs of the system base it is on; all of it runs on the loop's thread."""

    def make(self, actor_class: Any, requirements: Any, source_hash: Any) -> Actor:
        """Make a Thespian actor's instance."""

    def create_child(
        self, parent: Ref, actor_class: Any, requirements: Any, global_name: Any, source_hash: Any
    ) -> Ref:
        """Start an actor as somebody's child."""

    def deliver(self, to: ActorAddress, message: Any, sender: Ref) -> None:
        """Send, or make it a dead letter."""

    def dead_letter(self, to: ActorAddress, message: Any) -> None:
        """Give a message that cannot be delivered to the handler of those."""


class Port:
    """What a Thespian actor calls through ``_myRef``: its own affairs; the rest is the system's."""

    __slots__ = ("_host", "_system")

    def __init__(self, host: HostedActor, system: System) -> None:
        self._host = host
        self._system = system

    @property
    def address(self) -> Ref:
        """The actor's address."""
        return self._host.ref

    @property
    def globalName(self) -> str | None:  # noqa: N802
        """The name it was created under."""
        return self._host.global_name

    def actor_send(self, target: ActorAddress, message: Any) -> None:
        """Send with the actor as sender."""
        self._system.deliver(target, message, self._host.ref)

    def createActor(
        self,
        actor_class: Any,
        requirements: Any = None,
        global_name: str | None = None,
        source_hash: Any = None,
    ) -> Ref:
        """Start a child, or find the actor of that global name."""
        source_hash = source_hash or self._host.source_hash
        return self._system.create_child(
            self._host.ref, actor_class, requirements, global_name, source_hash
        )

    def wakeupAfter(self, period: timedelta, payload: Any = None) -> None:
        """Send the actor a WakeupMessage later."""
        self._host.wakeupAfter(period, payload)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in OF_THE_SYSTEM:
            raise ActorError(f"{name} is not supported")
        return getattr(self._system, name)


class HostedActor(OtpActor):
    """Runs one Thespian actor."""

    trap_exits = True

    def init(
        self,
        system: System,
        actor_class: Any,
        requirements: Any,
        global_name: str | None,
        source_hash: Any,
    ) -> None:
        """Make the Thespian actor."""
        self.global_name = global_name
        self.source_hash = source_hash
        self._requirements = requirements
        self._system = system
        self._children: list[Ref] = []
        self._wakeups: list[tuple[WakeupMessage, ExpirationTimer]] = []
        self.inner = system.make(actor_class, requirements, source_hash)
        self.inner._myRef = Port(self, system)  # noqa: SLF001  # Thespian's systems set it as well

    def add_child(self, ref: Ref) -> None:
        """Note a child, for who asks for the actor's status."""
        if ref not in self._children:
            self._children.append(ref)

    def wakeupAfter(self, timePeriod: Any, payload: Any = None) -> None:  # noqa: N803
        """Send oneself a WakeupMessage later, and note it for who asks for the status."""
        message = WakeupMessage(timePeriod, payload)
        self._wakeups.append((message, ExpirationTimer(timePeriod)))
        self.start_timer(timePeriodSeconds(timePeriod), message)

    def suits(self, capabilities: dict[str, Any]) -> bool:
        """Tell whether the system still has what the actor requires."""
        return bool(checkActorCapabilities(type(self.inner), capabilities, self._requirements))

    def handle_mail(self, message: Any, sender: Ref | None) -> object:
        """Give a mail to the Thespian actor."""
        if type(message) is Exit:
            if sender is None or sender is self.parent:
                self._parent_ended(message.reason)
                return None
            if sender in self._children:
                self._children.remove(sender)
            message = ChildActorExited(sender)
        sender = self.ref if sender is None else sender
        if self._wakeups and isinstance(message, WakeupMessage):
            self._wakeups = [waiting for waiting in self._wakeups if waiting[0] is not message]
        if isinstance(message, Thespian_StatusReq):
            self._tell_status(sender)
            return None
        self._let_handle(message, sender)
        if isinstance(message, ActorExitRequest):
            self.stop(SHUTDOWN if message.isRecursive else NORMAL)
        return None

    def _parent_ended(self, reason: object) -> None:
        if reason != NORMAL:  # else it was told not to take its children along
            self._let_handle(ActorExitRequest(), self.ref)
            self.stop(reason)

    def _let_handle(self, message: Any, sender: Ref) -> None:
        try:
            self._handle(message, sender)
        except Exception:
            log.warning("actor failed, to be tried again actor=%s", self.ref, exc_info=True)
        else:
            return
        if isinstance(message, ActorExitRequest):
            return
        try:
            self._handle(message, sender)
        except Exception:
            log.exception("actor failed twice actor=%s", self.ref)
            if not isinstance(message, PoisonMessage):
                poison = PoisonMessage(message, traceback.format_exc())
                self._system.deliver(sender, poison, self.ref)

    def _handle(self, message: Any, sender: Ref) -> None:
        if isinstance(self.inner.receiveMessage(message, sender), ThespianWatch):
            log.error("actor returned a ThespianWatch, which is not supported actor=%s", self.ref)

    def _tell_status(self, sender: Ref) -> None:
        name = type(self.inner).__name__
        status = Thespian_ActorStatus(self.ref, name, None, self.parent, self.source_hash)
        for child in self._children:
            status.addChild(child)
        status.addWakeups([(self.ref, timer) for _, timer in self._wakeups])
        self._system.deliver(sender, status, self.ref)

    def terminate(self, reason: object) -> None:
        """Part from the Thespian actor; what waits for it becomes dead letters."""
        inbox = self.ref.cell.inbox
        while inbox:
            message, _ = inbox.popleft()
            if type(message) is not Exit:
                self._system.dead_letter(self.ref, message)
        self.inner._myRef = None  # noqa: SLF001  # as in init
