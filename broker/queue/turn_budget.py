"""TurnBudget: a turn of a queue's actor ends when it has handled a turn's worth of messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.core.limits import TURN_MESSAGES

if TYPE_CHECKING:
    from leveret.actors.runtime.ref import Ref
    from leveret.actors.runtime.scheduler import Turns


class TurnBudget:
    """The budget of one actor, in messages."""

    __slots__ = ("_actor", "_left", "_turns")

    def __init__(self, turns: Turns, actor: Ref) -> None:
        self._turns = turns
        self._actor = actor
        self._left = TURN_MESSAGES

    def charge(self, count: int) -> None:
        """Count messages that were handled, or work that costs as much; end the turn when they are a turn's worth."""
        self._left -= count
        if self._left <= 0:
            self._left = TURN_MESSAGES
            self._turns.end_turn(self._actor)
