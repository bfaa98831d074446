"""Openings: how many message stores of a node are opened at once.

Opening a store recovers it, which takes a core and the memory of whole files; many recoveries beside each other
would take both from clients that are served already. An opening that takes long, on a disk that hangs or with
much to recover, does not hold up the next ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from leveret.core.clock import Clock, TimerHandle

AT_ONCE: Final = 2
PATIENCE_S: Final = 2.0  # after it an opening does not count any more


class Openings:
    """The running and the waiting openings of one node."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._under_way: dict[Callable[[], object], TimerHandle] = {}
        self._waiting: deque[Callable[[], object]] = deque()
        self._is_beginning = False

    def enter(self, begin: Callable[[], object]) -> None:
        """Call ``begin`` when fewer than ``AT_ONCE`` openings run; the opening ends with ``leave(begin)``."""
        self._waiting.append(begin)
        self._next()

    def leave(self, begin: Callable[[], object]) -> None:
        """End an opening, and begin the next; harmless when it has left already."""
        timer = self._under_way.pop(begin, None)
        if timer is not None:
            timer.cancel()
        self._next()

    def _next(self) -> None:
        if self._is_beginning:
            return  # an opening that leaves as it begins: the loop below begins the next
        self._is_beginning = True
        try:
            while self._waiting and len(self._under_way) < AT_ONCE:
                begin = self._waiting.popleft()
                self._under_way[begin] = self._clock.call_later(PATIENCE_S, self.leave, begin)
                begin()
        finally:
            self._is_beginning = False
