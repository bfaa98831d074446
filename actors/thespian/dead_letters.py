"""Dead letters of ``AsyncioBase``: messages that cannot be delivered, and the actor that wants them.

The handler is the actor that asked last (``leveret.actors.thespian.turn_order``). When it gives the dead letters
up, or ends, no earlier handler comes back by itself. Dead letters that still wait in the mailbox of a
handler that gave them up go to its successor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from thespian.actors import ActorAddress, ChildActorExited, DeadEnvelope

if TYPE_CHECKING:
    from collections.abc import Callable

    from leveret.actors.runtime.ref import Ref
    from leveret.actors.thespian.turn_order import TurnOrder


class DeadLetters:
    """The handler of dead letters, and their way there; on the loop's thread.

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
        handler = self.handler
        if handler is None or isinstance(message, DeadEnvelope | ChildActorExited):
            return
        if handler.is_alive:
            self._send(handler, DeadEnvelope(to, message))
