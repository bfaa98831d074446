"""Dead letters of ``AsyncioBase``: messages that cannot be delivered, and the actor that wants them.

That actor is the latest that asked (``leveret.actors.thespian.turn_order``). Who gives them up, or ends, leaves
nobody behind: no earlier one comes back by itself. An actor gets dead letters only as long as it
wants them: those that still wait in its mailbox then go to who handles them now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from thespian.actors import ActorAddress, ChildActorExited, DeadEnvelope

if TYPE_CHECKING:
    from collections.abc import Callable

    from leveret.actors.runtime.ref import Ref
    from leveret.actors.thespian.turn_order import TurnOrder


class DeadLetters:
    """Who handles dead letters, and their way there; on the loop's thread.

    Args:
        turns: which turn counts.
        send: sends a message in the system's name.

    Attributes:
        handler: the actor that handles them; it may be dead.
    """

    def __init__(self, turns: TurnOrder, send: Callable[[Ref, Any], None]) -> None:
        self._turns = turns
        self._send = send
        self.handler: Ref | None = None

    def set_handler(self, ref: Ref, is_one: bool, turn: int | None) -> None:
        """Let an actor handle them, or not any more."""
        if not is_one:
            if self.handler is ref:
                self.handler = None
        elif self._turns.is_latest(DeadLetters, turn):
            self.handler = ref

    def add(self, to: ActorAddress, message: Any) -> None:
        """Give a message that cannot be delivered to the handler, if there is one."""
        handler = self.handler
        if handler is None or isinstance(message, DeadEnvelope | ChildActorExited):
            return
        if handler.is_alive:
            self._send(handler, DeadEnvelope(to, message))
