"""The runtime inside one of Thespian's own actors: its children are Thespian actors.

One ``OtpActor``, such as a supervisor, runs on a ``PortRuntime`` of its own, which Thespian's messages
drive. For each Thespian actor that it starts the runtime keeps a ``RemoteActor``.

A ``RemoteActor`` is linked, named and monitored like the actor it stands for, which is a Thespian
actor, on the process bases in a process of its own. It ends when Thespian says that the real one is
gone, of the reason that the real one gave before, else of ``killed``. ``ParentProxy`` stands for the
parent.

Addresses: inside the runtime an actor has a ``Ref``, outside Thespian's ``ActorAddress``; mail that
goes out is translated (``outward``), and calls that come in (``inward``). Links and monitors exist
between a parent and its children, not with foreign actors (``ForeignRef``).
"""

from __future__ import annotations

import dataclasses
import os
import signal
from operator import is_not
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakValueDictionary

from thespian.actors import ActorAddress, ActorExitRequest, ChildActorExited

from leveret.actors.actor import OtpActor
from leveret.actors.runtime.actor_ref import ActorRef
from leveret.actors.runtime.calls import Reply, Request
from leveret.actors.runtime.ref import SUSPENDED, Cell, Ref
from leveret.actors.runtime.runtime import Runtime
from leveret.actors.runtime.signals import KILL, KILLED, LATER, SHUTDOWN, Exit, StartResult
from leveret.actors.thespian.mail import Began, Begin, CheckChildren, Ended, Gone, Ignored, Signal
from leveret.core.errors import ActorError

if TYPE_CHECKING:
    from collections.abc import Callable

    from leveret.actors.runtime.signals import MonitorRef
    from leveret.actors.thespian.wakeup_clock import WakeupClock


class HostActor(Protocol):
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

    __slots__ = ("_created_at", "_host", "_is_plain", "_reason", "begun_at", "pid", "token")

    trap_exits = True
    runtime: PortRuntime  # type: ignore[mutable-override]  # no other starts one

    def init(self, actor_class: type, args: tuple[Any, ...], label: str) -> object:
        """Create the real one and send it its ``Begin``; it answers later."""
        runtime = self.runtime
        self._host = runtime.host
        self.token = runtime.add(self)
        self._reason: Any = None
        self.begun_at: ActorAddress | None = None
        self._is_plain = not issubclass(actor_class, OtpActor)
        self._created_at = self._host.create_supervised()
        self.pid = self._host.process_of(self._created_at)
        parent = None if self.parent is None else self.parent.cell.actor
        path = getattr(parent, "path", "")
        begin = Begin(self.token, os.getpid(), actor_class, args, path, label)
        self._host.send(self._created_at, begin)
        return LATER

    @property
    def has_reason(self) -> bool:
        """Whether the real actor has sent the reason of its end."""
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
            self._host.send(self.address, self.runtime.outward(message))

    def signal(self, reason: object) -> None:
        """Pass an exit signal on. Processes, and plain actors, which may block, are killed by the system."""
        if reason == KILL and self.pid:
            try:
                os.kill(self.pid, signal.SIGKILL)
            except ProcessLookupError:
                return  # it is dead, and Thespian is about to say so
            self._reason = self._reason or (KILLED,)  # unless it has a last word under way
        elif reason == KILL and self._is_plain and self._host.kill(self._created_at):
            self._reason = self._reason or (KILLED,)
        else:
            self._host.send(self.address, Signal(reason))

    def _let_go(self) -> None:
        """Let the real one exit: its reason has come before the news of its exit."""
        self._host.send(self.address, ActorExitRequest())

    def terminate(self, reason: object) -> None:
        """Forget the token; later messages about it are duplicates."""
        self.runtime.remove(self.token)


class ParentProxy(OtpActor):
    """Stands for the parent of the runtime's own actor, and gets its end."""

    trap_exits = True

    def init(self, path: str, on_end: Callable[[Any], None]) -> None:
        """Take the place in the tree that the parent has."""
        self.path = path
        self._on_end = on_end

    def handle_mail(self, message: Any, sender: Ref | None) -> None:
        if type(message) is Exit:
            self._on_end(message.reason)


class _Outbox:
    """The mailbox of a foreign actor: mail put into it is sent at once; it is always empty."""

    __slots__ = ("_address", "_runtime")

    def __init__(self, runtime: PortRuntime, address: ActorAddress) -> None:
        self._runtime = runtime
        self._address = address

    def __bool__(self) -> bool:
        return False

    def __len__(self) -> int:
        return 0

    def append(self, mail: tuple[Any, Ref | None]) -> None:
        message = mail[0]
        if isinstance(message, Request | Reply):
            raise ActorError("calls do not reach actors of Thespian's own systems; send a message")
        self._runtime.host.send(self._address, self._runtime.outward(message))


class ForeignRef(ActorRef):
    """The address of a Thespian actor that was not started from here."""

    __slots__ = ("address",)

    def __init__(self, runtime: PortRuntime, address: ActorAddress) -> None:
        cell = Cell()
        super().__init__("thespian", 0, cell)
        cell.ref = self
        cell.turns = runtime.turns
        cell.label = str(address)
        cell.state = SUSPENDED  # senders leave it alone
        cell.inbox = _Outbox(runtime, address)  # type: ignore[assignment]
        self.address = address

    def __str__(self) -> str:
        return str(self.address)


class PortRuntime(Runtime):
    """A runtime for one actor; all actors that it starts are Thespian actors.

    Args:
        clock: its timers.
        host: the Thespian actor around the runtime.

    Attributes:
        own: the actor that it is for.
        is_ending: Thespian ends this actor and its children, in no order. A child that gave no
            reason ends of ``shutdown`` then, else of ``killed``.
    """

    def __init__(self, clock: WakeupClock, host: HostActor) -> None:
        super().__init__(clock)
        self.host = host
        self.is_ending = False
        self.own: Ref | None = None
        self._tokens = 0
        self._remote: dict[int, RemoteActor] = {}
        self._begun: dict[str, RemoteActor] = {}  # by address
        self._ended: WeakValueDictionary[str, Ref] = WeakValueDictionary()
        self._foreign: WeakValueDictionary[str, ForeignRef] = WeakValueDictionary()

    # Starting.

    def start_own(
        self, begin: Begin, then: Callable[[StartResult], None], on_end: Callable[[Any], None]
    ) -> None:
        path = begin.path or "thespian"
        parent = super().start_link(None, ParentProxy, (path, on_end), lambda _: None, path)
        label = begin.label or begin.actor_class.__name__
        self.own = super().start_link(parent, begin.actor_class, begin.args, then, label)

    def start_link(
        self,
        parent: Ref | None,
        actor_class: type,
        args: tuple[Any, ...],
        then: Callable[[StartResult], None],
        label: str | Callable[[], str] = "",
        name: str = "",
    ) -> Ref:
        """Start a Thespian actor; ``then`` gets the outcome when it has answered."""
        text = label() if callable(label) else label
        return super().start_link(parent, RemoteActor, (actor_class, args, text), then, text, name)

    # Remote actors.

    def add(self, actor: RemoteActor) -> int:
        self._tokens += 1
        self._remote[self._tokens] = actor
        return self._tokens

    def remove(self, token: int) -> None:
        actor = self._remote.pop(token, None)
        if actor is not None:
            address = str(actor.address)
            self._begun.pop(address, None)
            self._ended[address] = actor.ref

    def tell_child(self, message: Began | Ignored | Ended, sender: ActorAddress) -> None:
        """Hand a child's message to its remote actor, unless that has ended."""
        actor = self._remote.get(message.token or 0)
        if actor is not None:
            actor.begun_at = sender
            self._begun[str(sender)] = actor
            self.send(actor.ref, message)

    def child_exited(self, address: ActorAddress) -> None:
        """Take note that a child exited; Thespian's second message about it is ignored.

        While Thespian handles the exit, it forgets other children whose processes it finds gone, without a
        message. Hence ``CheckChildren``, which comes after that.
        """
        actor = self._begun.get(str(address))
        if actor is None:  # it ended before it sent its address
            actor = next((other for other in self._remote.values() if other.is_at(address)), None)
        if actor is not None:
            self._exited(actor)
        if any(other.pid for other in self._remote.values()):
            self.host.send(self.host.myAddress, CheckChildren())

    def check_children(self) -> None:
        """Send the ``ChildActorExited`` that Thespian has left out for children whose processes are gone."""
        for actor in self._remote.values():
            if actor.has_lost_its_process:
                actor.pid = 0  # sent once
                self.host.send(self.host.myAddress, ChildActorExited(actor.address))

    def _exited(self, actor: RemoteActor) -> None:
        """End a remote actor when the last message of the real one, which its exit may overtake on UDP, has come."""
        gone = Gone(actor.token)
        if actor.has_reason or self.is_ending:
            self.tell_gone(gone)
        else:
            self.host.send_behind(gone)

    def tell_gone(self, gone: Gone) -> None:
        """End the remote actor whose real one is gone."""
        actor = self._remote.get(gone.token)
        if actor is not None:
            self.send(actor.ref, gone)

    # Signals.

    def exit(self, to: Ref, reason: object, sender: Ref | None = None) -> None:
        """Send an exit signal; a kill of a remote actor is that of the real one."""
        actor = to.cell.actor
        if isinstance(to, ForeignRef):
            raise ActorError("exit signals go to children only")
        if type(actor) is RemoteActor and reason == KILL:
            actor.signal(KILL)
        else:
            super().exit(to, reason, sender)

    def link(self, one: Ref, other: Ref) -> None:
        self._refuse_foreign(one, other)
        super().link(one, other)

    def monitor(self, watcher: Ref, target: Ref) -> MonitorRef:
        self._refuse_foreign(target)
        return super().monitor(watcher, target)

    @staticmethod
    def _refuse_foreign(*refs: Ref) -> None:
        for ref in refs:
            if isinstance(ref, ForeignRef):
                raise ActorError(f"links and monitors do not reach {ref} on a Thespian system")

    # Addresses.

    def ref_of(self, address: ActorAddress) -> Ref:
        """Return the ref of a child, or of a foreign actor: the same as long as it is in use."""
        child = self._begun.get(str(address))
        if child is not None:
            return child.ref
        found = self._foreign.get(str(address))
        if found is None:
            found = self._foreign[str(address)] = ForeignRef(self, address)
        return found

    def _subject(self, address: ActorAddress) -> Ref:
        """Return the actor that a request names; it may be a child that has ended and is to be restarted."""
        ended = None if str(address) in self._begun else self._ended.get(str(address))
        return ended or self.ref_of(address)

    def outward(self, value: Any) -> Any:
        """Translate a ref in an outgoing message: the message itself, or in tuples, lists and dicts."""
        kind = type(value)
        if kind is tuple or kind is list:
            return kind([self.outward(item) for item in value])
        if kind is dict:
            return {key: self.outward(item) for key, item in value.items()}
        if isinstance(value, ForeignRef):
            return value.address
        if isinstance(value, Ref) and value.node == self.node:
            return self._address_of(value)
        return value

    def _address_of(self, ref: Ref) -> Any:
        actor = ref.cell.actor
        if type(actor) is RemoteActor:
            return actor.address
        return self.host.myAddress if ref is self.own else str(ref)

    def inward(self, request: Any) -> Any:
        """Translate an address in an incoming call: the call itself, or in a tuple or its fields."""
        if isinstance(request, ActorAddress):
            return self._subject(request)
        if type(request) is tuple:
            items = tuple([self.inward(item) for item in request])
            return items if any(map(is_not, items, request)) else request
        if dataclasses.is_dataclass(request) and not isinstance(request, type):
            names = [field.name for field in dataclasses.fields(request) if field.init]
            found = {name: self.inward(getattr(request, name)) for name in names}
            changed = {
                name: new for name, new in found.items() if new is not getattr(request, name)
            }
            return dataclasses.replace(request, **changed) if changed else request
        return request
