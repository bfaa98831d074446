"""AsyncioBase: our runtime as a system base of Thespian.

``ActorSystem(systemBase=AsyncioBase())`` runs plain Thespian actors, with Thespian's rules, and
``OtpActor`` classes, with OTP's, side by side on one event loop: its own, in a thread of its own,
or that of the ``Runtime`` it is given. The program outside may use the system from any thread; on
the loop's own thread it may create and ``tell`` but not wait (``ask``, ``listen``).

Plain actors may block, as on Thespian's other bases, where each has a process: their code runs in
threads (``leveret.actors.thespian.actor_threads``), up to as many as the capability ``Actor Threads`` says;
0: none, and it runs on the loop. That saves the way to a thread and back for each message, and
then an actor that blocks blocks all. ``OtpActor`` classes run on the loop in any case.

Thespian tells a system base that is given as an object nothing of the system, hence capabilities
are an argument of ``AsyncioBase``.

Not there: other hosts (conventions), and waiting for files (``ThespianWatch``).
"""

from __future__ import annotations

import logging.config
import sys
import time
from typing import TYPE_CHECKING, Any, Final, cast

from thespian.actors import (
    Actor,
    ActorAddress,
    ActorExitRequest,
    ActorSystem,
    ChildActorExited,
    DeadEnvelope,
    NoCompatibleSystemForActor,
    Thespian_StatusReq,
    Thespian_SystemStatus,
    ThespianGeneration,
    ValidatedSource,
)
from thespian.system.utilis import actualActorClass, checkActorCapabilities

from leveret.actors.actor import OtpActor
from leveret.actors.runtime.loop_bridge import LoopBridge
from leveret.actors.runtime.loop_thread import LoopThread
from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.signals import (
    SHUTDOWN,
    Ignored,
    Started,
    StartError,
    StartFailed,
    StartResult,
)
from leveret.actors.thespian.actor_threads import ACTOR_THREADS, ActorThreads
from leveret.actors.thespian.external import Administrator, Endpoint, External
from leveret.actors.thespian.handling import Order
from leveret.actors.thespian.hosted_actor import HostedActor
from leveret.actors.thespian.sources import Sources
from leveret.actors.thespian.turn_order import TurnOrder
from leveret.core.errors import ActorError

if TYPE_CHECKING:
    import asyncio
    import queue

    from leveret.actors.runtime.runtime import Runtime
    from leveret.actors.runtime.scheduler import Turns

SYSTEM_ADDRESS: Final = ActorAddress("/ActorSys")
_OURS: Final = (HostedActor, Endpoint, Administrator)


class AsyncioBase:
    """A system base for Thespian's ``ActorSystem``.

    Args:
        system: the system, when it makes the base itself by its name (``register``).
        logDefs: as ``ActorSystem``'s; logging is left alone by default.
        capabilities: what actors can require; and ``Actor Threads``, see above.
        runtime: where to run; the default is one of its own, in a thread.

    Attributes:
        turns: the order of the handlers' turns.
    """

    def __init__(
        self,
        system: ActorSystem | None = None,
        logDefs: Any = None,  # noqa: N803  # Thespian's name
        *,
        capabilities: dict[str, Any] | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        if logDefs:
            logging.config.dictConfig(logDefs)
        self.capabilities: dict[str, Any] = (
            dict(capabilities or {}) if system is None else system.capabilities
        )
        self._add_capabilities()
        if runtime is not None and runtime.loop is None:
            raise ActorError("AsyncioBase needs a runtime with an event loop")
        self._threads = ActorThreads(self.capabilities["Actor Threads"])
        self._thread = LoopThread(self._loop_ended) if runtime is None else None
        self.runtime: Runtime = self._thread.runtime if self._thread is not None else runtime  # type: ignore[assignment]
        loop: asyncio.AbstractEventLoop = self.runtime.loop  # type: ignore[assignment]
        self._bridge = LoopBridge(loop)
        self.run = self._bridge.run
        self.enter = self._bridge.enter
        self._is_over = False
        self.turns = TurnOrder(loop)
        self._dead_letter_handler: Ref | None = None  # it may be dead
        self._sources = Sources(self._send)
        self.use_source = self._sources.use
        self.new_thread = self._threads.enter
        self._admin: Ref = self.run(self.runtime.spawn, Administrator, self._handle)
        external = External(self)
        self.tell, self.ask, self.listen = external.tell, external.ask, external.listen

    def _add_capabilities(self) -> None:
        self.capabilities.setdefault("Actor Threads", ACTOR_THREADS)
        self.capabilities.update(
            {
                "Python Version": tuple(sys.version_info),
                "Thespian Generation": ThespianGeneration,
                "Thespian Version": str(int(time.time() * 1000)),
                "Thespian ActorSystem Name": "asyncio",
                "Thespian ActorSystem Version": 1,
                "Thespian Watch Supported": False,
                "Leveret Async Handlers": True,
                "AllowRemoteActorSources": "No",
            }
        )

    # Threads.

    def refuse_waiting(self, call: str) -> None:
        """Raise ActorError on the loop's own thread, for a call that waits."""
        if self._bridge.is_on_loop():
            raise ActorError(f"{call} would wait on the event loop that has to answer it")

    # Called by ActorSystem.

    def newPrimaryActor(  # noqa: N802  # Thespian's name
        self, actor_class: Any, requirements: Any, global_name: str | None, source_hash: Any
    ) -> Ref:
        """Create a top-level actor, or find the one of that global name.

        Threads of the program wait until it has been made; the loop's thread and actors do not.
        """
        order = Order(actor_class, requirements, global_name, source_hash)
        ref: Ref
        ref, result = self.run(self._start, None, order)
        failure = order.made.exception() if self._is_awaited(order, result) else None
        if isinstance(failure, Exception):
            raise failure
        if failure is not None:
            raise StartError(repr(failure))
        if isinstance(result, StartFailed | Ignored):
            raise StartError(getattr(result, "reason", "ignore"))
        return ref

    def _is_awaited(self, order: Order, result: StartResult | None) -> bool:
        if order.made.done():
            return True
        if self._bridge.is_on_loop() or self._threads.has_current():
            return False  # the thread that is to make it may be this one
        return isinstance(result, Started) and is_plain(order)

    def external_clone(self) -> External:
        """Return another way in, for ``ActorSystem.private``."""
        return External(self)

    def shutdown(self) -> None:
        """End all actors; and the thread, if there is one."""
        self._is_over = True
        self._sources.unload_all()
        if self._thread is not None:
            self._thread.stop(waits=not self._threads.has_current())
        else:
            self.enter(self._end_all)
            self._threads.close()

    def _loop_ended(self) -> None:
        """Release callers that wait for the loop, and the threads."""
        self._bridge.close()
        self._threads.close()

    def _end_all(self) -> None:
        for cell in self.runtime.cells():
            if cell.parent is None and isinstance(cell.actor, _OURS):
                self.runtime.exit(cell.ref, SHUTDOWN)

    # For the program outside.

    def post(self, to: ActorAddress, message: Any, sender: Ref) -> None:
        self.enter(self.deliver, to, message, sender)

    def end(self, ref: Ref, reason: object) -> None:
        self.enter(self.runtime.exit, ref, reason)

    def start_endpoint(self, answers: queue.SimpleQueue[Any]) -> Ref:
        """Start the actor that stands for a program; on the loop's thread."""
        return self.runtime.spawn(Endpoint, answers, self.turns)

    # Creating actors, on the loop's thread.

    def create_child(self, parent: Ref, order: Order) -> Ref:
        """Start an actor as a child of a hosted one, which gets its failure."""
        if not parent.is_alive:
            raise ActorError(f"{parent} is dead and cannot create an actor")
        ref, result = self._start(parent, order)
        if result is None or isinstance(result, Started):
            parent.cell.actor.add_child(ref)
        else:
            self.runtime.send(parent, ChildActorExited(ref), self._admin)
        return ref

    def _start(self, parent: Ref | None, order: Order) -> tuple[Ref, StartResult | None]:
        """Start an actor; without a result it is there already, or will answer later.

        A plain actor counts as started when it has an address; if then it cannot be made it ends.
        """
        found = self.runtime.whereis(order.global_name) if order.global_name else None
        if found is not None:
            return found, None
        actor_class = order.actor_class
        label = getattr(actor_class, "__name__", str(actor_class))
        args: tuple[Any, ...] = ()
        if is_plain(order):
            actor_class, args = HostedActor, (self, order)
        results: list[StartResult] = []
        ref = self.runtime.start_link(
            parent, actor_class, args, results.append, label, order.global_name or ""
        )
        return ref, results[0] if results else None

    def find_class(self, order: Order) -> type[Actor]:
        """Return the class of an actor to be, if this system suits it."""
        try:
            finder = self._sources.find(order.source_hash) if order.source_hash else None
            found: type[Actor] = actualActorClass(order.actor_class, finder)
            if not checkActorCapabilities(found, self.capabilities, order.requirements):
                raise NoCompatibleSystemForActor(found, "No compatible ActorSystem could be found")
        except Exception as error:
            order.made.set_exception(error)
            raise
        return found

    # Mail, on the loop's thread.

    def deliver(self, to: ActorAddress, message: Any, sender: Ref) -> None:
        """Send, or make it a dead letter."""
        if to == SYSTEM_ADDRESS:
            to = self._admin
        if not isinstance(to, Ref) or not to.is_alive:
            self.dead_letter(to, message)
        elif to.cell.turns is self.runtime.turns:
            self.runtime.send(to, message, sender)
        else:
            turns = cast("Turns", to.cell.turns)  # of another AsyncioBase in this process
            loop: Any = turns.scheduler.loop
            loop.call_soon_threadsafe(turns.send, to, message, sender)

    def _send(self, to: Ref, message: Any) -> None:
        self.enter(self.deliver, to, message, self._admin)

    def _handle(self, message: Any, sender: Ref) -> None:
        """Handle messages to the system itself."""
        if isinstance(message, ValidatedSource):
            self._sources.validated(message)
        elif isinstance(message, Thespian_StatusReq):
            self.deliver(sender, self._status(), self._admin)

    def _status(self) -> Thespian_SystemStatus:
        status = Thespian_SystemStatus(SYSTEM_ADDRESS, None, self.capabilities, self._is_over)
        status.setDeadLetterHandler(self._dead_letter_handler)
        for cell in self.runtime.cells():
            if cell.parent is None and isinstance(cell.actor, HostedActor):
                status.addChild(cell.ref)
                if cell.actor.global_name:
                    status.addGlobalActor(cell.actor.global_name, cell.ref)
        return status

    def dead_letter(self, to: ActorAddress, message: Any) -> None:
        """Give a message that cannot be delivered to the dead letter handler, if there is one."""
        handler = self._dead_letter_handler
        if handler is None or isinstance(message, DeadEnvelope | ChildActorExited):
            return
        if handler.is_alive:
            self._send(handler, DeadEnvelope(to, message))

    def takes_back(self, letter: DeadEnvelope, sender: Ref, holder: Ref) -> bool:
        """Take a dead letter of the system from an actor that is the handler no longer."""
        if sender is not self._admin or holder is self._dead_letter_handler:
            return False
        self.dead_letter(letter.deadAddress, letter.deadMessage)
        return True

    # Requests of actors and of the program; ``turn`` is the number of the turn that makes them.

    def handleDeadLetters(  # noqa: N802
        self, address: Ref, enable: bool = True, turn: int | None = None
    ) -> None:
        """Let an actor get the dead letters, or not any more; the actor that asked last gets them.

        When it gives them up, or ends, no earlier handler comes back by itself. Dead letters that wait
        in the mailbox of a handler that gave them up go to its successor.
        """
        if not enable:
            if self._dead_letter_handler is address:
                self._dead_letter_handler = None
        elif self.turns.is_latest("dead letters", turn):
            self._dead_letter_handler = address

    def _handleDeadLetters(self, address: Ref, enable: bool) -> None:  # noqa: N802
        self.enter(self.handleDeadLetters, address, enable)

    def updateCapability(  # noqa: N802
        self, name: str, value: Any = None, turn: int | None = None
    ) -> None:
        """Set a capability, or remove it; actors that miss it from then on get an exit request."""
        self.run(self._update_capability, name, value, turn)

    def _update_capability(self, name: str, value: Any, turn: int | None) -> None:
        if not self.turns.is_latest(("capability", name), turn):
            return
        if value is None:
            self.capabilities.pop(name, None)
        else:
            self.capabilities[name] = value
        for cell in self.runtime.cells():
            actor = cell.actor
            if isinstance(actor, HostedActor) and not actor.suits(self.capabilities):
                self.runtime.send(cell.ref, ActorExitRequest(), self._admin)

    def registerSourceAuthority(self, address: Ref, turn: int | None = None) -> None:  # noqa: N802
        """Let an actor validate loaded sources; the actor that asked last does."""
        if self.turns.is_latest(Sources, turn):
            self._sources.set_authority(address)

    def notifyOnSourceAvailability(self, address: Ref, enable: bool = True) -> None:  # noqa: N802
        self._sources.set_listener(address, enable)

    def loadActorSource(self, source: Any) -> str:  # noqa: N802
        source_hash: str = self.run(self._sources.load, source)
        return source_hash

    def unloadActorSource(self, source_hash: str) -> None:  # noqa: N802
        self.run(self._sources.unload, source_hash)

    def notifyOnSystemRegistrationChanges(  # noqa: N802
        self, address: Ref, enable: bool = True
    ) -> None:
        """Accept, and do nothing: there are no other systems to report."""

    def actorSystemShutdown(self) -> None:  # noqa: N802
        self.shutdown()


def is_plain(order: Order) -> bool:
    """Whether the actor is one of Thespian's own kind, and not of ours."""
    wanted = order.actor_class
    return not (isinstance(wanted, type) and issubclass(wanted, OtpActor))


def register() -> None:
    """Make ``ActorSystem("asyncioBase")`` work, as for Thespian's own bases."""
    sys.modules.setdefault("thespian.system.asyncioBase", sys.modules[__name__])


ActorSystemBase = AsyncioBase  # the name that Thespian looks for in the module of a base
