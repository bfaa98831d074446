"""The scheduler: two run queues on one event loop.

A *drain* takes actors from the run queue, one *turn* each (``turns``), until the queue is empty or a
budget of ``DRAIN_MAILS`` mails or ``DRAIN_S`` is used up; then it does the same with the *bulk queue*, runs
the callbacks registered with ``after_drain`` (socket writes) and goes back to the loop, which does I/O.
At most one drain is on its way, by one ``call_soon``. Where mail has followed soon lately, the loop does not sleep
at once (``busy_wait``).

The bulk queue is for long work: actors that have more to do than a turn should last, and receivers of
mail in great numbers: of the actors that a turn wakes, or a drain of the bulk queue, all but the first
``WOKEN_MAX``. So the other actors wait for one turn of long work, not for a round of all of it, and
long work gets at least as much of each drain as they do. The place in a queue belongs to the actor, not to the
mail: mail that it gets meanwhile waits with it. Timers of housekeeping have places of their own in the bulk queue
(``Errand``), so that other mail of their actors does not wait for them.

A scheduler without a loop is driven by hand: nothing runs until ``run_until_idle``.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar, cast

from leveret.actors.runtime.busy_wait import BusyWait
from leveret.actors.runtime.cell import QUEUED, Cell
from leveret.core.errors import ActorError
from leveret.core.log.loggers import logger

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from leveret.core.clock import Clock

log = logger(__name__)

DRAIN_MAILS: Final = 2_000  # of each queue
DRAIN_S: Final = 0.005  # of each queue, and the turn under way then
# By a few turns, an event or callback, or all bulk turns of a drain. Each compares the length of the run queue by
# itself: a function for it would cost the message path more than the comparison.
WOKEN_MAX: Final = 64
EVENTS_MAX: Final = 128  # socket events in a row; then the mails that they brought are handled
_FEW_MAILS: Final = 4  # are handled without a look at the clock, which costs a little
_QUIET: Final = 3  # handles that bring no mail

_Place = TypeVar("_Place", bound="Cell | Errand")
_Rounds: TypeAlias = "deque[tuple[int, Callable[[], None]]]"  # due at this turn, callback


class Errand(Protocol):
    """Work in the bulk queue that belongs to no actor's turn, such as a timer's mail."""

    def run(self) -> Cell | None:
        """Do it; return the actor that has its turn now, None when nobody has."""


class Scheduler:
    """Decides when which actor has its turn.

    Args:
        loop: where drains run; None: they are called by hand.
        clock: for the budget of a drain.
        turn: gives an actor from a run queue its turn; returns how many mails it handled.

    Attributes:
        clock: read between turns of a long drain.
        ready: the run queue; appending to it takes a call of ``wake`` unless ``is_awake``.
        is_awake: a drain is running or on its way.
        mails: mails handled.
        drains: times the run queue was drained.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop | None, clock: Clock, turn: Callable[[Cell], int]
    ) -> None:
        self.loop = loop
        self.ready: Final[deque[Cell]] = deque()
        self.is_awake = False
        self.mails = 0
        self.drains = 0
        self.clock = clock
        self._turn = turn
        self._bulk: Final[deque[Cell | Errand]] = deque()
        self._after: list[Callable[[], None]] = []
        self._is_draining = False
        self._turns = 0  # given from the run queue while rounds were under way
        self._rounds: _Rounds = deque()
        self._bulk_turns = 0
        self._bulk_rounds: _Rounds = deque()
        self._coming: asyncio.Handle | None = None
        self._busy_wait: Final = None if loop is None else BusyWait(loop)
        self._events = 0  # of sockets since the last drain
        # asyncio's own loops: the handles left to run before they do I/O again. Others: not known.
        self._loop_ready: deque[Any] | None = getattr(loop, "_ready", None)
        self._loop_waker: Any = getattr(loop, "_read_from_self", None)  # runs after a thread's call

    # The run queues.

    def add(self, cell: Cell) -> None:
        cell.state |= QUEUED
        self.ready.append(cell)
        if not self.is_awake:
            self.wake()

    def add_bulk(self, cell: Cell) -> None:
        cell.state |= QUEUED
        self._bulk.append(cell)
        if not self.is_awake:
            self.wake()

    def add_errand(self, errand: Errand) -> None:
        """Run an errand when all have had a turn that wait in the bulk queue now."""
        self._bulk.append(errand)
        if not self.is_awake:
            self.wake()

    def wake(self) -> None:
        """Ask the loop for a drain."""
        self.is_awake = True
        if self.loop is not None:
            self._coming = self.loop.call_soon(self.drain)

    def after_drain(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` once, when the present or next drain ends, before the loop does I/O."""
        self._after.append(callback)
        if not self.is_awake:
            self.wake()

    def after_round(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` once, after the drain by which all have had a turn that wait now.

        For sources of work: mail that comes once per round of the run queue piles up no higher than in one
        round, and an actor with mail waits no longer than that.
        """
        if self.ready:
            self._rounds.append((self._turns + len(self.ready), callback))
        else:
            self.after_drain(callback)

    def after_bulk_round(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` once, after the drain by which all in the bulk queue have had a turn that wait now."""
        if self._bulk:
            self._bulk_rounds.append((self._bulk_turns + len(self._bulk), callback))
        else:
            self.after_drain(callback)

    # Drains.

    def drain(self, with_bulk: bool = True) -> None:
        """Give turns from the run queues, within the budgets. The loop calls this."""
        if self._is_draining:
            raise ActorError("the runtime is draining already; actor code must not drain it")
        if self._coming is not None:
            self._coming.cancel()
            self._coming = None
        self.is_awake = self._is_draining = True
        self._events = 0
        self.drains += 1
        ready, bulk, turn = self.ready, self._bulk, self._turn
        try:
            mails = turns = 0
            before = len(ready)
            while ready and mails < _FEW_MAILS:
                mails += turn(ready.popleft())
                turns += 1
            self.mails += mails
            if ready:
                turns += self._serve(ready, turn, before, _FEW_MAILS)
            if bulk and with_bulk:
                until_s = self.clock.monotonic_s() + DRAIN_S
                self._bulk_turns += self._serve(bulk, self._bulk_turn, len(ready), 0, until_s)
                self._end_rounds(self._bulk_rounds, self._bulk_turns, bulk)
            if self._rounds:
                self._turns += turns
                self._end_rounds(self._rounds, self._turns, ready)
            if self._after:
                self._run_after()
        finally:
            self.is_awake = self._is_draining = False
            if ready or bulk or self._after:
                self.wake()
            elif self._busy_wait is not None:
                self._busy_wait.begin()

    def _bulk_turn(self, place: Cell | Errand) -> int:
        if place.__class__ is not Cell:
            cell = cast("Errand", place).run()
            if cell is None:
                return 1
            place = cell
        return self._turn(place)

    def _serve(
        self,
        queue: deque[_Place],
        turn: Callable[[_Place], int],
        before: int,
        mails_per_look: int,
        until_s: float | None = None,
    ) -> int:
        """Give turns until the queue is empty or one of its budgets is used up; return how many.

        ``before``: how many were in the run queue before the turns that were given last. ``until_s`` None: the time
        begins with the first look at the clock.
        """
        ready = self.ready
        left, turns = DRAIN_MAILS, 0
        look_at = left - mails_per_look
        longest = before + WOKEN_MAX
        if len(ready) > longest:
            self.limit_woken(longest)
            longest += WOKEN_MAX
        while queue and left > 0:
            left -= turn(queue.popleft())
            turns += 1
            if len(ready) > longest:
                self.limit_woken(longest)
            if left < look_at:
                look_at = left - mails_per_look
                if queue is ready:  # the next few turns may wake as many
                    longest = len(ready) + WOKEN_MAX
                now_s = self.clock.monotonic_s()
                if until_s is None:
                    until_s = now_s + DRAIN_S
                elif now_s >= until_s:
                    break
        self.mails += DRAIN_MAILS - left
        return turns

    def limit_woken(self, longest: int) -> None:
        """Let actors that a turn has woken wait in the bulk queue, until the run queue has no more than ``longest``.

        Else one client that sends to thousands of queues at once would make all others wait for these.
        """
        ready, bulk = self.ready, self._bulk
        woken = [ready.pop() for _ in range(len(ready) - longest)]
        bulk.extend(reversed(woken))

    def _end_rounds(self, rounds: _Rounds, turns: int, queue: deque[_Place]) -> None:
        while rounds and (rounds[0][0] <= turns or not queue):
            self._after.append(rounds.popleft()[1])

    def _run_after(self) -> None:
        callbacks, self._after = self._after, []
        for callback in callbacks:
            try:
                callback()
            except Exception as error:  # noqa: BLE001  # the others must run
                self.report("callback after a drain failed", error)

    def report(self, text: str, error: BaseException) -> None:
        """Tell the loop's exception handler of an error in code of no actor; without a loop, the log."""
        if self.loop is not None:
            self.loop.call_exception_handler({"message": text, "exception": error})
        else:
            log.error("%s", text, exc_info=error)

    def run_until_idle(self) -> None:
        """Drain by hand until nothing is left to do at this moment."""
        while self.ready or self._bulk or self._after:
            self.drain()

    @property
    def is_idle(self) -> bool:
        """Whether no actor has anything to do at this moment."""
        return not (self.ready or self._bulk or self._after)

    # Callbacks of the loop.

    def run_callback(self, function: Callable[..., object], *args: object) -> None:
        """Run a callback that another thread has put on the loop, and drain as after a socket event."""
        was_awake = self.is_awake
        self.is_awake = True
        longest = len(self.ready) + WOKEN_MAX
        try:
            function(*args)
        finally:
            if len(self.ready) > longest:
                self.limit_woken(longest)
            self.drain_if_last(was_awake)

    def drain_if_last(self, was_awake: bool) -> None:
        """Drain behind the last event of a round of the loop; before others, let the drain wait.

        A drain that waits for the loop's next round costs a poll of the selector. It is worth it only
        while other sockets have events in this round, whose mail then is handled together.

        Args:
            was_awake: ``is_awake`` before the event; during the event it is set, so that mail asks
                for no drain.
        """
        if was_awake:
            if self._coming is not None:
                self._events += 1
                if self._is_last():
                    self.drain()
                elif self._events >= EVENTS_MAX:
                    self.drain(with_bulk=False)
        elif not (self.ready or self._bulk or self._after):
            self.is_awake = False
        elif self._is_last():
            self.drain()
        else:
            self.wake()

    def _is_last(self) -> bool:
        """Tell whether nothing that may bring mail is left in this round of the loop.

        A drain that is coming brings none, nor does a poll of the busy wait, nor the callback that empties the
        pipe by which threads wake the loop; it stands behind the callbacks they have put there.
        """
        others = self._loop_ready
        if not others:
            return others is not None
        busy_wait = self._busy_wait
        poll = None if busy_wait is None else busy_wait.handle
        count = len(others)
        if count > _QUIET:
            return False
        for index in range(count):  # not an iterator: threads put more behind them at any moment
            handle = others[index]
            callback = handle._callback  # noqa: SLF001  of asyncio, as `_ready`
            if handle is not self._coming and handle is not poll and callback != self._loop_waker:
                return False
        return True
