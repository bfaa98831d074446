"""The order of turns: handlers in threads are as predictable as on the loop.

A *turn* is one message, or the constructor, in an actor's thread (``leveret.actors.thespian.actor_threads``).
On the loop one handler runs at a time, so the effects of different actors come in the order in which they
were given their messages. Threads are late, each by another time. Three rules bring the order back.

*The line.* A turn is given to its thread when the turn before it has ended. That is for quick
handlers: a turn that does not end within ``PATIENCE`` is left behind, and only the begin of a turn of a
slow class is waited for. So actors that block do it beside each other. A class is slow
when ``SLOW_TURNS`` more of its turns have lasted longer than ``QUICK_S`` than have not. On a busy
machine quick turns do that as well, hence more than a few are needed, and patience, which runs from the
turn's begin, is counted in steps of the loop, which is then as busy, and not by the clock. A turn whose
thread is busy with another actor's turn, because actors share it, does not stand in the line.

*The answers.* Answers of a turn to the program outside are kept until the turn has ended, or is left
behind. Else the program could send the actor a message while it still counts as busy; the message would
wait, and so come after a later message to another actor.

*The numbers.* A wait with a time-out proves nothing. The handler of dead letters, the source authority
and each capability can be set by several actors, and the last one counts. Each turn has a number, and a
value that it sets counts only if no later turn has set the same thing. Since an actor has one turn at a
time it follows that, once the handlers have returned, the values are as if the handlers had run in the
order of their turns, however late any thread was.

Messages of slow actors to one receiver come in any order, as everywhere in Thespian.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

QUICK_S: Final = 0.002
SLOW_TURNS: Final = 8
_SLOWNESS_MAX: Final = 2 * SLOW_TURNS
STEP_S: Final = 0.005
PATIENCE: Final = 10  # steps


@dataclass(slots=True, eq=False)
class Turn:
    """A turn of an actor."""

    number: int  # its place among all turns
    actor_class: type
    began_s: float | None = None  # None: not yet
    patience: int = PATIENCE  # how many steps the next one still waits for it


class TurnOrder:
    """The turns of one system; on the loop's thread, but for ``begin`` and ``end``."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._numbers = itertools.count(1)
        self._set_in: dict[object, int] = {}
        self._slowness: WeakKeyDictionary[type, int] = WeakKeyDictionary()
        self._lock = threading.Lock()
        self._first: Turn | None = None  # of the line; it was given to its thread
        self._others: deque[tuple[Turn, Callable[[], None]]] = deque()
        self._answers: list[Callable[[], None]] = []
        self._is_watched = False

    def new_turn(self, actor_class: type) -> Turn:
        """Return the turn that comes after all others so far."""
        return Turn(next(self._numbers), actor_class)

    def is_latest(self, thing: object, number: int | None) -> bool:
        """Note that a turn sets ``thing``, unless a later one has; return whether it may.

        ``number`` is the turn's; None: it is done now, by the program or on the loop.
        """
        if number is None:
            number = next(self._numbers)
        if number < self._set_in.get(thing, 0):
            return False
        self._set_in[thing] = number
        return True

    # The line.

    def queue(self, turn: Turn, start: Callable[[], None]) -> None:
        """Call ``start``, in some thread, when the turns before have ended, or are slow."""
        with self._lock:
            is_first = self._first is None
            if is_first:
                self._first = turn
            else:
                self._others.append((turn, start))
        if is_first:
            start()
        else:
            self._watch_soon()

    def answer(self, give: Callable[[], None]) -> None:
        """Call the short ``give``, in some thread, when the present turn has ended, or is slow."""
        with self._lock:
            if self._first is None:
                give()
                return
            self._answers.append(give)
        self._watch_soon()

    def begin(self, turn: Turn) -> None:
        """Note that a turn begins; in the actor's thread."""
        turn.began_s = time.perf_counter()
        if self._slowness.get(turn.actor_class, 0) >= SLOW_TURNS:
            self._let_pass(turn)

    def end(self, turn: Turn) -> None:
        """Note that a turn has ended, and its requests are on their way; in the actor's thread."""
        if turn.began_s is not None:
            self._judge(turn, is_slow=time.perf_counter() - turn.began_s > QUICK_S)
        self._let_pass(turn)

    def _let_pass(self, turn: Turn) -> None:
        """Let the next one start, if this is the first in the line."""
        with self._lock:
            if turn is not self._first:
                return
            for give in self._answers:
                give()
            self._answers.clear()
            self._first, start = self._others.popleft() if self._others else (None, None)
        if start is not None:
            start()

    def _watch_soon(self) -> None:
        if not self._is_watched:
            self._is_watched = True
            self._loop.call_later(STEP_S, self._watch)

    def _watch(self) -> None:
        """Leave the first one behind when patience with it is at an end."""
        turn = self._first
        if turn is None or not (self._others or self._answers):
            self._is_watched = False
            return
        if turn.began_s is not None:
            turn.patience -= 1
        if not turn.patience:
            self._judge(turn, is_slow=True)  # now: it may not end for long
            self._let_pass(turn)
        self._loop.call_later(STEP_S, self._watch)

    def _judge(self, turn: Turn, is_slow: bool) -> None:
        """Count a turn for or against its class."""
        with self._lock:
            slowness = self._slowness.get(turn.actor_class, 0) + (1 if is_slow else -1)
            self._slowness[turn.actor_class] = min(max(slowness, 0), _SLOWNESS_MAX)
