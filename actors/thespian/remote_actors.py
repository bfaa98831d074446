"""Remote actors: stand-ins in a runtime inside a Thespian actor for the Thespian actors around it.

A ``RemoteActor`` is linked, named and monitored like the actor it stands for, which is a Thespian
actor, on the process bases in a process of its own. It ends when Thespian says that the real one is
gone, of the reason that the real one gave before, else of ``killed``. ``ParentProxy`` stands for the
parent.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any, Protocol

from thespian.actors import ActorAddress, ActorExitRequest

from leveret.actors.actor import OtpActor
from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.signals import KILL, KILLED, LATER, SHUTDOWN, Exit
from leveret.actors.thespian.mail import Began, Begin, Ended, Gone, Ignored, Signal

if TYPE_CHECKING:
    from collections.abc import Callable

    from leveret.actors.thespian.port_runtime import PortRuntime


class Outside(Protocol):
    """The Thespian actor around a runtime, as the runtime sees it."""

    @property
    def myAddress(self) -> ActorAddress: ...  # noqa: N802  # Thespian's name
    def create_supervised(self) -> ActorAddress: ...
    def process_of(self, child: ActorAddress) -> int: ...
    def kill(self, child: ActorAddress) -> bool: ...
    def send(self, targetAddr: ActorAddress, msg: Any) -> None: ...  # noqa: N803  # Thespian's names
    def send_behind(self, message: Any) -> None: ...


class RemoteActor(OtpActor):
    """Stands for a Thespian actor that was started from here."""

    __slots__ = ("_created_at", "_is_plain", "_outside", "_reason", "begun_at", "pid", "token")

    trap_exits = True
    runtime: PortRuntime  # type: ignore[mutable-override]  # no other starts one

    def init(self, actor_class: type, args: tuple[Any, ...], label: str) -> object:
        """Create the real one and send it its ``Begin``; it answers later."""
        runtime = self.runtime
        self._outside = runtime.outside
        self.token = runtime.add(self)
        self._reason: Any = None
        self.begun_at: ActorAddress | None = None
        self._is_plain = not issubclass(actor_class, OtpActor)
        self._created_at = self._outside.create_supervised()
        self.pid = self._outside.process_of(self._created_at)
        parent = None if self.parent is None else self.parent.cell.actor
        path = getattr(parent, "path", "")
        begin = Begin(self.token, os.getpid(), actor_class, args, path, label)
        self._outside.send(self._created_at, begin)
        return LATER

    @property
    def has_reason(self) -> bool:
        """Whether the real one has told the reason of its end."""
        return self._reason is not None

    @property
    def has_lost_its_process(self) -> bool:
        """Whether the real one had a process of its own which is gone and reaped."""
        if self.pid:
            try:
                os.kill(self.pid, 0)
            except ProcessLookupError:
                return True
        return False

    @property
    def address(self) -> ActorAddress:
        """Where the real one is; the address that it gave itself as soon as that is known."""
        return self._created_at if self.begun_at is None else self.begun_at

    def is_at(self, address: ActorAddress) -> bool:
        return address in (self._created_at, self.begun_at)

    def handle_mail(self, message: Any, sender: Ref | None) -> None:
        """Handle messages of the real one and of Thespian; pass all others on to the real one."""
        kind = type(message)
        if kind is Began:
            self.started()
        elif kind is Ignored:
            self._let_go()
            self.terminate(None)  # which the end of an actor that ignored its start leaves out
            self.runtime.ignore(self.ref.cell)
        elif kind is Ended:
            self._reason = (message.reason,)
            self._let_go()
        elif kind is Gone:
            unsaid = SHUTDOWN if self.runtime.is_ending else KILLED
            self.stop(self._reason[0] if self._reason else unsaid)
        elif kind is Exit:
            self.signal(message.reason)
        else:
            self._outside.send(self.address, self.runtime.outward(message))

    def signal(self, reason: object) -> None:
        """Pass an exit signal on. Processes, and plain actors, which may block, are killed by the system."""
        if reason == KILL and self.pid:
            try:
                os.kill(self.pid, signal.SIGKILL)
            except ProcessLookupError:
                return  # it is dead, and Thespian is about to say so
            self._reason = self._reason or (KILLED,)  # unless it has a last word under way
        elif reason == KILL and self._is_plain and self._outside.kill(self._created_at):
            self._reason = self._reason or (KILLED,)
        else:
            self._outside.send(self.address, Signal(reason))

    def _let_go(self) -> None:
        """Let the real one exit: its reason has come before the news of its exit."""
        self._outside.send(self.address, ActorExitRequest())

    def terminate(self, reason: object) -> None:
        """Forget the token; later messages about it are duplicates."""
        self.runtime.remove(self.token)


class ParentProxy(OtpActor):
    """Stands for the parent of the runtime's own actor, and is told of its end."""

    trap_exits = True

    def init(self, path: str, on_end: Callable[[Any], None]) -> None:
        """Take the place in the tree that the parent has."""
        self.path = path
        self._on_end = on_end

    def handle_mail(self, message: Any, sender: Ref | None) -> None:
        if type(message) is Exit:
            self._on_end(message.reason)
