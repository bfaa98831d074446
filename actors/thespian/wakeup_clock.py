"""The clock of a runtime inside one of Thespian's own actors: its timers are wakeups."""

from __future__ import annotations

import itertools
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from leveret.actors.thespian.mail import Alarm

if TYPE_CHECKING:
    from collections.abc import Callable


class _Handle:
    """One wakeup to come; Thespian cannot take it back, so it is ignored when it comes."""

    __slots__ = ("_number", "_waiting")

    def __init__(self, waiting: dict[int, Any], number: int) -> None:
        self._waiting = waiting
        self._number = number

    def cancel(self) -> None:
        self._waiting.pop(self._number, None)


class WakeupClock:
    """Real time, and timers by way of ``wakeupAfter``.

    On ``simpleSystemBase`` wakeups come only while the program is inside ``ask``, ``tell`` or
    ``listen``, so timers are as late as that.

    Args:
        wakeup_after: Thespian's ``wakeupAfter`` of the actor whose clock this is.
    """

    def __init__(self, wakeup_after: Callable[[timedelta, Any], None]) -> None:
        self._wakeup_after = wakeup_after
        self._waiting: dict[int, tuple[Callable[..., Any], tuple[Any, ...]]] = {}
        self._numbers = itertools.count()

    def monotonic_s(self) -> float:
        return time.monotonic()

    def wall_s(self) -> float:
        return time.time()

    def call_later(self, delay_s: float, callback: Callable[..., Any], *args: Any) -> _Handle:
        """Call ``callback(*args)`` when the wakeup comes."""
        number = next(self._numbers)
        self._waiting[number] = (callback, args)
        self._wakeup_after(timedelta(seconds=delay_s), Alarm(number))
        return _Handle(self._waiting, number)

    def ring(self, alarm: Alarm) -> None:
        """Make the call of a wakeup that came, unless it was cancelled."""
        callback, args = self._waiting.pop(alarm.number, (None, ()))
        if callback is not None:
            callback(*args)
