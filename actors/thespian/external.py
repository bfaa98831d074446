"""The program outside an ``AsyncioBase``: it sends messages to actors, and waits for theirs."""

from __future__ import annotations

import queue
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from thespian.system import isInternalActorSystemMessage

from leveret.actors.actor import OtpActor
from leveret.actors.runtime.signals import SHUTDOWN, Exit

if TYPE_CHECKING:
    from collections.abc import Callable

    from thespian.actors import ActorAddress

    from leveret.actors.runtime.ref import Ref
    from leveret.actors.thespian.turn_order import TurnOrder


class Base(Protocol):
    """The system base, as the program outside sees it."""

    def run(self, function: Callable[..., Any], *args: Any) -> Any: ...
    def start_endpoint(self, answers: queue.SimpleQueue[Any]) -> Ref: ...
    def post(self, to: ActorAddress, message: Any, sender: Ref) -> None: ...
    def end(self, ref: Ref, reason: object) -> None: ...
    def refuse_waiting(self, call: str) -> None: ...
    def newPrimaryActor(self, *args: Any) -> Ref: ...  # noqa: N802  # Thespian's name


class Endpoint(OtpActor):
    """The program outside, as actors see it."""

    trap_exits = True

    def init(self, answers: queue.SimpleQueue[Any], turns: TurnOrder) -> None:
        self._answers = answers
        self._turns = turns

    def handle_mail(self, message: Any, sender: Ref | None) -> None:
        """Keep a message, unless it is one of Thespian's internal ones."""
        if type(message) is Exit:
            self.stop(message.reason)
        if not isInternalActorSystemMessage(message):
            self._turns.answer(partial(self._answers.put, message))


class Administrator(OtpActor):
    """The system itself, as actors see it."""

    trap_exits = True

    def init(self, handle: Callable[[Any, Ref], None]) -> None:
        self._handle = handle

    def handle_mail(self, message: Any, sender: Ref | None) -> None:
        if type(message) is Exit:
            self.stop(message.reason)
        self._handle(message, self.ref if sender is None else sender)


class External:
    """One way into the system, for one thread of the program."""

    def __init__(self, base: Base) -> None:
        self._base = base
        self._answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.ref: Ref = base.run(base.start_endpoint, self._answers)
        self.newPrimaryActor = base.newPrimaryActor

    def tell(self, target: ActorAddress, message: Any) -> None:
        self._base.post(target, message, self.ref)

    def ask(self, target: ActorAddress, message: Any, timeout: Any = None) -> Any:
        """Send a message and wait for the next message of any actor; see ``listen``."""
        self._base.refuse_waiting("ask")
        self.tell(target, message)
        return self.listen(timeout)

    def listen(self, timeout: Any = None) -> Any:
        """Wait for the next message; None when the time is over. Not on the loop's own thread.

        ``timeout``: seconds, or a ``timedelta``; None: for ever.
        """
        self._base.refuse_waiting("listen")
        if isinstance(timeout, timedelta):
            timeout = timeout.total_seconds()
        try:
            return self._answers.get(timeout=None if timeout is None else max(0.0, timeout))
        except queue.Empty:
            return None

    def exit_context(self) -> None:
        self._base.end(self.ref, SHUTDOWN)
