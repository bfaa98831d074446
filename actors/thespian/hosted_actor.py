"""A plain Thespian actor on the runtime, with Thespian's rules; ``AsyncioBase`` creates them.

``ActorExitRequest`` is handed to the actor, then ends it, and, unless it is not recursive, its
children. A parent gets ``ChildActorExited``. (``leveret.actors.runtime.thespian_host`` has the same actors
with OTP's rules.)

The constructor and the handlers run in the thread that the system has for the actor, one mail at a
time, and may block (``leveret.actors.thespian.handling``); ``leveret.actors.thespian.turn_order`` decides which thread
goes first. Everything in this module runs on the loop's thread.
Requests of a handler enter the loop in the order made; the handler waits only for a request with a result,
such as ``createActor``, and the loop never waits for a handler. Meanwhile mail waits in the actor's
inbox; a kill does not wait. Where the system has no threads, handlers run on the loop as the code of
other actors does.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from thespian.actors import (
    Actor,
    ActorExitRequest,
    ChildActorExited,
    DeadEnvelope,
    Thespian_ActorStatus,
    Thespian_StatusReq,
    WakeupMessage,
)
from thespian.system.timing import ExpirationTimer, timePeriodSeconds
from thespian.system.utilis import checkActorCapabilities

from leveret.actors.actor import OtpActor
from leveret.actors.runtime.signals import NORMAL, SHUTDOWN, Exit
from leveret.actors.thespian.handling import Handling, Port

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from leveret.actors.runtime.ref import Ref
    from leveret.actors.thespian.actor_threads import ActorThread
    from leveret.actors.thespian.handling import Order, System
    from leveret.actors.thespian.turn_order import Turn, TurnOrder


class HostedActor(OtpActor):
    """Runs one Thespian actor.

    A Thespian class with a method ``runs_on_loop(message)`` is made on the loop, and handles there the
    messages for which that method returns True.
    """

    trap_exits = True

    def init(self, system: System, order: Order) -> None:
        """Have the Thespian actor made; mail waits until that is done."""
        self.global_name = order.global_name
        self.source_hash = order.source_hash
        self._requirements = order.requirements
        self._system = system
        self._thread: ActorThread | None = None
        self._children: list[Ref] = []
        self._wakeups: list[tuple[WakeupMessage, ExpirationTimer]] = []
        self._class: type[Actor] = system.find_class(order)
        if order.source_hash:
            self.runtime.watch(self.ref, system.use_source(order.source_hash))
        self._chooses = hasattr(self._class, "runs_on_loop")
        self._handling = Handling(self.ref, system)
        self._port = Port(self, system)
        make = partial(self._handling.make, self._class, order, self._port)
        thread = None if self._chooses else self._own_thread()
        if thread is None:
            make()
            order.made.set_result(None)
        else:
            self._hand_over(thread, make, partial(_settle, order.made))

    def _hand_over(
        self, thread: ActorThread, work: Callable[[], None], over: Callable[[], object] = bool
    ) -> None:
        """Run a job in the actor's thread, ``over`` behind it; an exception in the job ends the actor."""
        self.runtime.turns.hold_mail(self.ref.cell)
        turns = self._system.turns
        turn = turns.new_turn(self._class)
        self._port.turn = turn.number
        done = partial(self._system.enter, self._handled, thread)
        start = partial(thread.do, partial(_take_turn, turns, turn, work, done, over))
        if thread.turn_count:
            start()
        else:
            turns.queue(turn, start)
        thread.turn_count += 1

    def _handled(self, thread: ActorThread, error: BaseException | None) -> None:
        thread.turn_count -= 1
        self.runtime.turns.handled(self.ref, error)

    def _own_thread(self) -> ActorThread | None:
        if self._thread is None:
            thread = self._thread = self._system.new_thread()
            if thread is not None:
                leave = partial(_leave, self._system.turns, self._class, thread)
                self.runtime.watch(self.ref, lambda _: leave())
        return self._thread

    def add_child(self, ref: Ref) -> None:
        """Note a child, for the actor's status."""
        if ref not in self._children:
            self._children.append(ref)

    def wakeupAfter(self, timePeriod: Any, payload: Any = None) -> None:  # noqa: N803
        """Send oneself a WakeupMessage later, and note it for the actor's status."""
        if self.ref.is_alive:
            message = WakeupMessage(timePeriod, payload)
            self._wakeups.append((message, ExpirationTimer(timePeriod)))
            self.start_timer(timePeriodSeconds(timePeriod), message)

    def suits(self, capabilities: dict[str, Any]) -> bool:
        """Tell whether the system still has the capabilities that the actor requires."""
        return bool(checkActorCapabilities(self._class, capabilities, self._requirements))

    def handle_mail(self, message: Any, sender: Ref | None) -> object:
        if type(message) is Exit:
            if sender is None or sender is self.parent:
                if message.reason != NORMAL:  # else it was told not to take its children along
                    self._let_handle(ActorExitRequest(), self.ref, message.reason)
                return None
            if sender in self._children:
                self._children.remove(sender)
            message = ChildActorExited(sender)
        sender = self.ref if sender is None else sender
        if type(message) is DeadEnvelope and self._system.takes_back(message, sender, self.ref):
            return None
        if self._wakeups and isinstance(message, WakeupMessage):
            self._wakeups = [waiting for waiting in self._wakeups if waiting[0] is not message]
        if isinstance(message, Thespian_StatusReq):
            self._tell_status(sender)
        elif isinstance(message, ActorExitRequest):
            self._let_handle(message, sender, SHUTDOWN if message.isRecursive else NORMAL)
        else:
            self._let_handle(message, sender)
        return None

    def _let_handle(self, message: Any, sender: Ref, reason: object = None) -> None:
        """Let the Thespian actor handle a message, and end it then if there is a ``reason``."""
        is_on_loop = self._chooses and self._handling.inner.runs_on_loop(message)
        thread = None if is_on_loop else self._own_thread()
        if thread is None:
            self._handling.handle(message, sender, reason)
        else:
            self._hand_over(thread, partial(self._handling.handle, message, sender, reason))

    def _tell_status(self, sender: Ref) -> None:
        name = self._class.__name__
        status = Thespian_ActorStatus(self.ref, name, None, self.parent, self.source_hash)
        for child in self._children:
            status.addChild(child)
        status.addWakeups([(self.ref, timer) for _, timer in self._wakeups])
        self._system.post(sender, status, self.ref)

    def terminate(self, reason: object) -> None:
        """Part from the Thespian actor; its waiting mail becomes dead letters."""
        inbox = self.ref.cell.inbox
        while inbox:
            message, _ = inbox.popleft()
            if type(message) is not Exit:
                self._system.dead_letter(self.ref, message)
        if self._handling.inner is not None:
            self._handling.inner._myRef = None  # noqa: SLF001  # as it was set


def _leave(turns: TurnOrder, actor_class: type, thread: ActorThread) -> None:
    """Leave the thread of a dead actor, whose last turn may still wait in the line."""
    turn = turns.new_turn(actor_class)

    def start() -> None:
        thread.leave()
        turns.end(turn)

    turns.queue(turn, start)


def _take_turn(
    turns: TurnOrder,
    turn: Turn,
    work: Callable[[], None],
    done: Callable[[BaseException | None], None],
    over: Callable[[], object],
) -> None:
    """Run a job and report its exception, if any; in the actor's thread."""
    failure: BaseException | None = None
    turns.begin(turn)
    try:
        work()
    except BaseException as error:  # noqa: BLE001  # any exception ends the actor
        failure = error
    try:
        done(failure)
    finally:
        del failure  # it holds this frame
        turns.end(turn)
        over()


def _settle(made: Future[None]) -> None:
    """Release the caller that waits for an actor to be made, unless that has failed."""
    if not made.done():
        made.set_result(None)
