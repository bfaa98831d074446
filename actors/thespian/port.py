"""Actors under OTP's rules on Thespian's own systems: simple, TCP, UDP.

Thespian creates a ``SupervisedActor``. Its first message (``Begin``) names the class it is to run: a
plain Thespian ``Actor``, which then is called as if it were alone, or an ``OtpActor`` such as a
supervisor, which gets a runtime of its own (``leveret.actors.thespian.port_runtime``). It adds to
Thespian:

* an exception ends the actor at once, before Thespian can hand it the message again;
* its starter is told when its start is over, and the reason of its end (``Ended``) before
  Thespian's ``ChildActorExited``, which is the proof that it is gone;
* it can be told to stop, and killed, with its process where it has one;
* on Linux its process dies with the process that started it, however that dies.

A plain actor that sends itself ``ActorExitRequest`` ends of ``normal``; the request of another actor is a
``shutdown``.
"""

from __future__ import annotations

import os
import pickle
import socket
from datetime import timedelta
from typing import Any, Final

from thespian.actors import (
    Actor,
    ActorAddress,
    ActorExitRequest,
    ChildActorExited,
    PoisonMessage,
    WakeupMessage,
)
from thespian.system.transport.IPBase import UDPv4ActorAddress
from thespian.system.utilis import withPossibleInitArgs

from leveret.actors.actor import OtpActor
from leveret.actors.processes.die_with_parent import die_with_parent
from leveret.actors.runtime.calls import Answer, From, Request
from leveret.actors.runtime.signals import (
    KILL,
    KILLED,
    NOPROC,
    NORMAL,
    SHUTDOWN,
    CallExit,
    Crash,
    Started,
    StartFailed,
    StartResult,
    StopActor,
)
from leveret.actors.thespian.mail import (
    FROM_CHILDREN,
    OURS,
    Alarm,
    Began,
    Begin,
    Call,
    CheckChildren,
    Ended,
    Gone,
    Ignored,
    Signal,
    Unheard,
)
from leveret.actors.thespian.port_runtime import PortRuntime
from leveret.actors.thespian.wakeup_clock import WakeupClock
from leveret.core.log.loggers import logger

log = logger(__name__)

UNHEARD_S: Final = 2.0


class SupervisedActor(Actor):  # type: ignore[misc]  # Thespian has no types
    """An actor that Thespian creates; its first message names the class it runs."""

    def __init__(self, capabilities: dict[str, Any] | None = None) -> None:
        self.capabilities = capabilities or {}
        self._begin: Begin | None = None
        self._starter: ActorAddress | None = None
        self._body: _PlainBody | _OtpBody | None = None
        self._askers: list[ActorAddress] = []

    def runs_on_loop(self, message: Any) -> bool:
        """Tell ``AsyncioBase`` where this runs: an OtpActor on its loop, a plain one in a thread."""
        begin = self._begin or message
        return type(begin) is Begin and issubclass(begin.actor_class, OtpActor)

    def receiveMessage(self, message: Any, sender: ActorAddress) -> Any:
        """Handle one message; exceptions of the actor inside do not leave it."""
        if type(message) is Begin and self._begin is None:
            return self._become(message, sender)
        if isinstance(message, PoisonMessage) and isinstance(message.poisonMessage, OURS):
            return None  # its receiver has ended, which is reported by other means
        body = self._body
        if body is None:  # not begun, or ended: the message is lost, as for the dead
            self._answer_for_the_dead(message, sender)
            return None
        if type(message) is Signal:
            if message.is_asked:
                self._askers.append(sender)
            return body.signal(message.reason)
        if isinstance(message, ActorExitRequest):
            return body.exit_requested(NORMAL if sender == self.myAddress else SHUTDOWN)
        return body.handle(message, sender)

    def _answer_for_the_dead(self, message: Any, sender: ActorAddress) -> None:
        if isinstance(message, WakeupMessage) and type(message.payload) is Unheard:
            self.send(self.myAddress, ActorExitRequest())
        elif self._begin is not None and type(message) is Signal and message.is_asked:
            self.send(sender, Ended(None, NOPROC))

    def _become(self, begin: Begin, sender: ActorAddress) -> None:
        self._begin, self._starter = begin, sender
        if begin.pid == os.getppid():  # else it is in the same process, or another's child
            die_with_parent(begin.pid)
        is_ours = issubclass(begin.actor_class, OtpActor)
        self._body = _OtpBody(self) if is_ours else _PlainBody(self)
        self._body.begin(begin)

    def create_supervised(self) -> ActorAddress:
        return self.createActor(SupervisedActor)

    def process_of(self, child: ActorAddress) -> int:
        """Return the number of a child's own process, which Thespian has no call for; 0: none."""
        for found in getattr(self._myRef, "_child_procs", ()):
            if found.childAddr == child:
                return int(found.childProc.pid)
        return 0

    def kill(self, child: ActorAddress) -> bool:
        """Kill a child, if the system can: ``AsyncioBase``. Return whether it does."""
        kill = getattr(self._myRef, "kill_child", None)
        if kill is not None:
            kill(child)
        return kill is not None

    def send_behind(self, message: Any) -> None:
        """Send itself a message that comes behind all that was sent to it before.

        On ``multiprocUDPBase`` mail to oneself overtakes the datagrams that wait in the socket, so it goes as one.
        """
        details = self.myAddress.addressDetails
        if isinstance(details, UDPv4ActorAddress):
            with socket.socket(*details.socketArgs) as sender:
                sender.sendto(pickle.dumps(message), details.sockname)
        else:
            self.send(self.myAddress, message)

    # Called by the body.

    def began(self) -> None:
        self._tell_starter(Began(self._token, os.getpid()))

    def ignored(self) -> None:
        self._tell_starter(Ignored(self._token))
        self._go()

    def failed(self, reason: Any) -> None:
        self._tell_starter(Ended(self._token, self._portable(reason)))
        self._go()

    def ended(self, reason: Any) -> None:
        """Tell the starter, and actors that asked for it, the reason of the end, and go."""
        if self._body is None:
            return
        end = Ended(self._token, self._portable(reason))
        if self._token is not None:
            self._tell_starter(end)
        for asker in self._askers:
            self.send(asker, end)
        self._go()

    @property
    def _token(self) -> int | None:
        return None if self._begin is None else self._begin.token

    def _tell_starter(self, message: Any) -> None:
        self.send(self._starter, message)

    def _go(self) -> None:
        """Be dead for everybody; the supervisor that has got the reason lets the actor exit.

        If UDP lost the reason, the actor exits by itself after ``UNHEARD_S``.
        """
        self._body = None
        if self._token is None:
            self.send(self.myAddress, ActorExitRequest())
        else:
            self.wakeupAfter(timedelta(seconds=UNHEARD_S), Unheard())

    def _portable(self, reason: Any) -> Any:
        """Return the reason, or its text if it cannot be sent to another process."""
        try:
            pickle.dumps(reason)
        except Exception:  # noqa: BLE001  # whatever its own code raises
            return repr(reason)
        return reason


class _PlainBody:
    """A plain Thespian actor; it has the host's address and its system's services."""

    inner: Actor

    def __init__(self, host: SupervisedActor) -> None:
        self.host = host

    def begin(self, begin: Begin) -> None:
        """Make the actor, with the arguments of its spec if there are any."""
        maker = withPossibleInitArgs(capabilities=self.host.capabilities, requirements=None)
        make = begin.actor_class if begin.args else maker.create
        arguments = begin.args or (begin.actor_class,)
        try:
            self.inner = make(*arguments)
        except (Exception, SystemExit, StopActor) as error:  # noqa: BLE001  # the start failed
            self.host.failed(_reason_of(error, begin.actor_class))
            return
        self.inner._myRef = self.host._myRef  # noqa: SLF001  # Thespian's systems set it as well
        self.host.began()

    def handle(self, message: Any, sender: ActorAddress) -> Any:
        """Let the actor handle a message; an exception ends it."""
        if type(message) is Call:
            message = message.request
        try:
            return self.inner.receiveMessage(message, sender)
        except (Exception, SystemExit, StopActor, CallExit) as error:  # noqa: BLE001  # it ends it
            self.host.ended(_reason_of(error, type(self.inner)))
            return None

    def signal(self, reason: Any) -> None:
        """End the actor; unless it is killed, it gets an ``ActorExitRequest`` before."""
        if reason == KILL:
            self.host.ended(KILLED)
            return
        self.handle(ActorExitRequest(), self.host._starter)  # noqa: SLF001  # its sender
        self.host.ended(reason)

    def exit_requested(self, reason: Any) -> None:
        self.handle(ActorExitRequest(), self.host.myAddress)
        self.host.ended(reason)


class _OtpBody:
    """An OtpActor with a runtime of its own, driven by the host's messages."""

    def __init__(self, host: SupervisedActor) -> None:
        self.host = host

    def begin(self, begin: Begin) -> None:
        self._clock = WakeupClock(self.host.wakeupAfter)
        self.runtime = PortRuntime(self._clock, self.host)
        self.runtime.start_own(begin, self._started, self.host.ended)
        self.runtime.run_until_idle()

    def _started(self, result: StartResult) -> None:
        if type(result) is Started:
            self.host.began()
        elif type(result) is StartFailed:
            self.host.failed(result.reason)
        else:
            self.host.ignored()

    def handle(self, message: Any, sender: ActorAddress) -> None:
        """Sort a message, and let the runtime do all there is to do."""
        runtime = self.runtime
        if isinstance(message, FROM_CHILDREN):
            runtime.tell_child(message, sender)
        elif isinstance(message, ChildActorExited):
            runtime.child_exited(message.childAddress)
        elif type(message) is CheckChildren:
            runtime.check_children()
        elif type(message) is Gone:
            runtime.tell_gone(message)
        elif isinstance(message, WakeupMessage) and type(message.payload) is Alarm:
            self._clock.ring(message.payload)
        elif type(message) is Call:
            frm = From(_Reply(self, sender))
            self._send(Request(frm, runtime.inward(message.request)), sender)
        else:
            self._send(message, sender)
        runtime.run_until_idle()

    def _send(self, message: Any, sender: ActorAddress) -> None:
        assert self.runtime.own is not None
        self.runtime.send(self.runtime.own, message, self.runtime.ref_of(sender))

    def signal(self, reason: Any) -> None:
        own = self.runtime.own
        assert own is not None
        self.runtime.exit(own, reason, own.cell.parent)
        self.runtime.run_until_idle()

    def exit_requested(self, reason: Any) -> None:
        """Tell the actor to shut down in any case; Thespian tells its children at the same time."""
        self.runtime.is_ending = True
        self.signal(SHUTDOWN)


class _Reply(Answer):
    """The answer of a call that came from a Thespian actor or program."""

    __slots__ = ("_asker", "_body")

    def __init__(self, body: _OtpBody, asker: ActorAddress) -> None:
        self._body = body
        self._asker = asker

    def give(self, value: object) -> None:
        self._body.host.send(self._asker, self._body.runtime.outward(value))


def _reason_of(error: BaseException, actor_class: type) -> Any:
    if isinstance(error, StopActor):
        return error.reason
    if isinstance(error, CallExit):
        return error.exit_reason
    crash = Crash(error)
    log.error("actor crashed actor=%s reason=%r\n%s", actor_class.__name__, crash, crash.traceback)
    return crash
