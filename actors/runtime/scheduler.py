"""The scheduler: two run queues on one event loop.

A *drain* takes actors from the run queue, one *turn* each, until the queue is empty or a budget of
``DRAIN_MAILS`` mails or ``DRAIN_S`` is used up; then it does the same with the *bulk queue*, runs what
asked to run after it (socket writes) and goes back to the loop, which does I/O. There is at most one
drain on its way, by one ``call_soon``. A turn handles at most ``TURN_MAILS`` waiting mails of one actor;
actors whose mails are batches keep their own budgets in messages and bytes.

The bulk queue is for work that is long: an actor that has more to do than a turn should last
(``again``, or mail left over), and whoever gets mail from it in great numbers (``send_bulk``). So the
others wait for one turn of it, not for a round of all of it, and it gets at least as much of each
drain as they do. The place in a queue belongs to the actor, not to the mail: whatever else it gets
meanwhile waits with it.

Order: mails of one sender to one receiver are handled in the order sent (for classes with
``prioritise``: within a level). An exit signal acts before any waiting mail, after the handler
under way.

A runtime without a loop is driven by hand: nothing runs until ``run_until_idle``.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from leveret.actors.runtime.cell import (
    ACTIVE,
    BUSY,
    COROUTINES,
    DEAD,
    DOOMED,
    IDLE,
    PRIORITY,
    QUEUED,
    SUSPENDED,
    YIELDED,
    Cell,
    Mail,
)
from leveret.actors.runtime.inbox import PLAIN_MAILS, Levels, absorbs
from leveret.actors.runtime.signals import (
    KILL,
    KILLED,
    NORMAL,
    CallExit,
    Crash,
    Exit,
    StopActor,
)
from leveret.core.errors import ActorError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine

    from leveret.actors.runtime.ref import Ref
    from leveret.core.clock import Clock

log = logging.getLogger(__name__)

TURN_MAILS: Final = 200
DRAIN_MAILS: Final = 2_000  # of each queue
DRAIN_S: Final = 0.005  # of each queue, and what is under way then
_FEW_MAILS: Final = 4  # are handled without a look at the clock, which costs a little

_UNTRAPPABLE: Final = object()  # doom of who got a 'kill'


class Scheduler(ABC):
    """Run queue, turns, signals.

    Attributes:
        mails: mails handled.
        drains: times the run queue was drained.
        dead_letters: mails that found their actor dead, or died with it.
        abandoned_tasks: coroutines that swallowed their cancellation.
        on_dead_letter: called with ``(message, sender)`` for each of them, if set.
    """

    clock: Clock

    def __init__(self, loop: asyncio.AbstractEventLoop | None) -> None:
        self.loop = loop
        self.mails = 0
        self.drains = 0
        self.dead_letters = 0
        self.on_dead_letter: Callable[[object, Ref | None], None] | None = None
        self.abandoned_tasks = 0
        self._tasks: set[asyncio.Future[Any]] = set()
        self._ready: deque[Cell] = deque()
        self._bulk: deque[Cell] = deque()
        self._after: list[Callable[[], None]] = []
        self._is_awake = False  # a drain is running or on its way
        self._is_draining = False
        self._turns = 0  # given to who waited in the run queue
        self._rounds: deque[tuple[int, Callable[[], None]]] = deque()  # only as long as some wait
        self._coming: asyncio.Handle | None = None
        # asyncio's own loops: what is left to run before they do I/O again. Others: not known.
        self._loop_ready: deque[Any] | None = getattr(loop, "_ready", None)
        self._loop_waker: Any = getattr(loop, "_read_from_self", None)  # runs after a thread's call

    # Mail.

    def send(self, to: Ref, message: Any, sender: Ref | None = None) -> None:
        """Put a mail into an actor's mailbox.

        If the last mail that waits there has a method ``absorb`` and its ``absorb(message)`` is
        true, it has taken the message in, and nothing is queued; the sender of the mail is then
        still that of its first part.
        """
        cell = to.cell
        inbox = cell.inbox
        if inbox:
            last = inbox[-1][0]
            if last.__class__ not in PLAIN_MAILS and absorbs(last, message):
                return
        elif inbox is None:
            if cell.state & DEAD:
                self._dead_letter(message, sender)
                return
            inbox = cell.inbox = deque()
        inbox.append((message, sender))
        if not cell.state:
            cell.state = QUEUED
            self._ready.append(cell)
            if not self._is_awake:
                self._wake()

    cast = send

    def send_now(self, to: Ref, message: Any, sender: Ref | None = None) -> None:
        """Send, and let the receiver handle it at once when it has nothing else to do.

        That is the schedule in which its turn comes next. It saves the way through the run queue where
        nothing is gained by letting mail gather: from a reader to its channels, from queues to channels.
        A receiver that is busy, has mail waiting or wants it sorted gets an ordinary ``send``.
        """
        cell = to.cell
        if cell.state or cell.inbox or cell.kind:
            self.send(to, message, sender)
            return
        self.mails += 1
        cell.state = ACTIVE
        try:
            cell.actor.handle_mail(message, sender)
        except BaseException as error:  # noqa: BLE001  # whatever it is, it ends the receiver
            self._failed(cell, error)
            return
        if cell.state == ACTIVE and not cell.inbox:
            cell.state = IDLE
        else:
            self._leave(cell)

    def send_bulk(self, to: Ref, message: Any, sender: Ref | None = None) -> None:
        """Send one of a great number of mails: a receiver that is idle waits in the bulk queue."""
        cell = to.cell
        if cell.state or cell.inbox:
            self.send(to, message, sender)
        else:
            cell.state = QUEUED  # ``put`` will not queue it
            self.put(cell, (message, sender))
            self._queue_bulk(cell)

    def again(self, ref: Ref, message: Any) -> None:
        """Send an actor, in its own turn, a mail to go on with, and end that turn behind the handler.

        Its next turn comes by the bulk queue.
        """
        cell = ref.cell
        if cell.state & ACTIVE:
            cell.state |= YIELDED
            self.put(cell, (message, ref))
        else:
            self.send_bulk(ref, message, ref)

    def put(self, cell: Cell, mail: Mail) -> None:
        """Put a mail into a live actor's mailbox as it is."""
        if cell.inbox is None:
            cell.inbox = deque()
        cell.inbox.append(mail)
        if not cell.state:
            self._queue(cell)

    def _dead_letter(self, message: object, sender: Ref | None) -> None:
        self.dead_letters += 1
        if self.on_dead_letter is not None:
            self.on_dead_letter(message, sender)

    # Exit signals.

    def exit(self, to: Ref, reason: object, sender: Ref | None = None) -> None:
        """Send an exit signal: ends the actor, or is mail to it if it traps exits.

        ``'kill'`` cannot be trapped and ends it as ``'killed'``; ``'normal'`` from another actor
        is ignored by who does not trap.
        """
        cell = to.cell
        if cell.state & DEAD:
            return
        if isinstance(reason, str) and reason == KILL:
            self._doom(cell, _UNTRAPPABLE)
        else:
            self._signal(cell, reason, sender, may_ignore=sender is not to)

    def _signal(self, cell: Cell, reason: object, sender: Ref | None, may_ignore: bool) -> None:
        if cell.actor.trap_exits:
            self.put(cell, (Exit(sender, reason), sender))
        elif not (may_ignore and isinstance(reason, str) and reason == NORMAL):
            self._doom(cell, reason)

    def _doom(self, cell: Cell, reason: object) -> None:
        """Note the reason an actor will end for; the first counts, but a kill overrules."""
        if not cell.state & DOOMED or reason is _UNTRAPPABLE:
            cell.doom = reason
        cell.state |= DOOMED
        if not cell.state & (QUEUED | ACTIVE):
            self._queue(cell)

    def stop_after(self, cell: Cell, reason: object) -> None:
        """End an actor when the handler under way has returned."""
        self._doom(cell, reason)

    def _end_doomed(self, cell: Cell) -> None:
        if cell.doom is _UNTRAPPABLE:
            self.end(cell, KILLED, is_graceful=False)
        else:
            self.end(cell, cell.doom)

    @abstractmethod
    def end(self, cell: Cell, reason: object, is_graceful: bool = True) -> None:
        """End an actor now; see ``Lifecycle``."""

    @abstractmethod
    def run_task(self, cell: Cell, coroutine: Coroutine[Any, Any, object]) -> None:
        """Run a coroutine handler; see ``CoroutineTurns``."""

    def _failed(self, cell: Cell, error: BaseException) -> None:
        """End an actor because of what escaped from its code."""
        cell.state &= ~ACTIVE
        if not cell.state & DEAD:
            self.end(cell, reason_of(error, cell))
        if isinstance(error, KeyboardInterrupt):
            raise error

    # Suspension.

    def suspend(self, ref: Ref) -> None:
        """Let an actor's mail wait until ``resume``; exit signals still act."""
        if ref.is_alive:
            ref.cell.state |= SUSPENDED

    def resume(self, ref: Ref) -> None:
        """Undo ``suspend``."""
        cell = ref.cell
        if cell.state & SUSPENDED:
            cell.state &= ~SUSPENDED
            if not cell.state and cell.has_mail():
                self._queue(cell)

    # The run queues.

    def _queue(self, cell: Cell) -> None:
        cell.state |= QUEUED
        self._ready.append(cell)
        if not self._is_awake:
            self._wake()

    def _queue_bulk(self, cell: Cell) -> None:
        cell.state |= QUEUED
        self._bulk.append(cell)
        if not self._is_awake:
            self._wake()

    def _wake(self) -> None:
        self._is_awake = True
        if self.loop is not None:
            self._coming = self.loop.call_soon(self.drain)

    def after_drain(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` once, when the present or next drain ends, before the loop does I/O."""
        self._after.append(callback)
        if not self._is_awake:
            self._wake()

    def after_round(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` once, after the drain by which all have had a turn that wait now.

        For what brings work: if that comes from one round of the run queue to the next, it piles up no
        higher than in one round, and who has mail waits no longer than that.
        """
        if self._ready:
            self._rounds.append((self._turns + len(self._ready), callback))
        else:
            self.after_drain(callback)

    def drain(self) -> None:
        """Run what is in the run queues, within the budgets. The loop calls this."""
        if self._is_draining:
            raise ActorError("the runtime is draining already; actor code must not drain it")
        if self._coming is not None:
            self._coming.cancel()
            self._coming = None
        self._is_awake = self._is_draining = True
        self.drains += 1
        ready, bulk = self._ready, self._bulk
        try:
            mails = turns = 0
            while ready and mails < _FEW_MAILS:
                mails += self._turn(ready.popleft())
                turns += 1
            self.mails += mails
            if ready:
                turns += self._serve(ready, _FEW_MAILS)
            self._turns += turns
            if bulk:
                self._serve(bulk, 0)
            if self._rounds:
                self._end_rounds()
            if self._after:
                self._run_after()
        finally:
            self._is_awake = self._is_draining = False
            if ready or bulk or self._after:
                self._wake()

    def _serve(self, queue: deque[Cell], mails_per_look: int) -> int:
        """Give turns until the queue is empty or one of its budgets is used up; return how many."""
        left, turns = DRAIN_MAILS, 0
        look_at = left - mails_per_look
        until_s = None
        while queue and left > 0:
            left -= self._turn(queue.popleft())
            turns += 1
            if left < look_at:
                look_at = left - mails_per_look
                now_s = self.clock.monotonic_s()
                if until_s is None:
                    until_s = now_s + DRAIN_S
                elif now_s >= until_s:
                    break
        self.mails += DRAIN_MAILS - left
        return turns

    def _end_rounds(self) -> None:
        rounds, turns = self._rounds, self._turns
        while rounds and rounds[0][0] <= turns:
            self._after.append(rounds.popleft()[1])

    def run_until_idle(self) -> None:
        """Drain by hand until nothing is left to do at this moment."""
        while self._ready or self._bulk or self._after:
            self.drain()

    @property
    def is_idle(self) -> bool:
        """Whether no actor has anything to do at this moment."""
        return not (self._ready or self._bulk or self._after)

    def _run_after(self) -> None:
        callbacks, self._after = self._after, []
        for callback in callbacks:
            try:
                callback()
            except Exception as error:  # noqa: BLE001  # the others must run
                self._report("callback after a drain failed", error)

    def _report(self, what: str, error: BaseException) -> None:
        """Tell the loop's exception handler; without a loop, the log."""
        if self.loop is not None:
            self.loop.call_exception_handler({"message": what, "exception": error})
        else:
            log.error("%s", what, exc_info=error)

    # Turns.

    def _turn(self, cell: Cell) -> int:
        """Let one actor handle its mail; return how many mails that were."""
        inbox = cell.inbox
        left = TURN_MAILS
        if cell.state != QUEUED or cell.kind:
            if cell.state != QUEUED or cell.kind != PRIORITY or not _is_unsorted(cell):
                return self._odd_turn(cell)
            left = len(inbox or ())
        if not inbox:
            cell.state = IDLE
            return 1
        cell.state = ACTIVE
        budget = left
        handle = cell.actor.handle_mail
        try:
            while inbox and left:
                message, sender = inbox.popleft()
                left -= 1
                handle(message, sender)
                if cell.state != ACTIVE:
                    break
        except BaseException as error:  # noqa: BLE001  # whatever it is, it ends this actor
            self._failed(cell, error)
            return budget - left
        if cell.state != ACTIVE:
            self._leave(cell)
        elif inbox:
            cell.state = IDLE
            self._queue_bulk(cell)
        else:
            cell.state = IDLE
        return budget - left

    def _odd_turn(self, cell: Cell) -> int:
        cell.state &= ~QUEUED
        if cell.state & DEAD:
            return 1
        if cell.state & DOOMED:
            self._end_doomed(cell)
            return 1
        if cell.state & (SUSPENDED | BUSY):
            return 1
        return self._handle_waiting(cell, TURN_MAILS)

    def _handle_waiting(self, cell: Cell, budget: int) -> int:
        """Let an actor of any kind handle up to ``budget`` waiting mails."""
        cell.state |= ACTIVE
        handle = cell.actor.handle_mail
        left = budget
        try:
            while left and (mail := self._next_mail(cell)) is not None:
                left -= 1
                result = handle(*mail)
                if result is not None and cell.kind & COROUTINES:
                    self.run_task(cell, result)
                if cell.state & (DOOMED | SUSPENDED | BUSY | DEAD | YIELDED):
                    break
        except BaseException as error:  # noqa: BLE001  # whatever it is, it ends this actor
            self._failed(cell, error)
        else:
            self._leave(cell)
        return budget - left + 1

    def _next_mail(self, cell: Cell) -> Mail | None:
        inbox = cell.inbox
        if cell.kind & PRIORITY:
            if cell.levels is None:
                cell.levels = Levels()
            if inbox:
                cell.levels.take(inbox, cell.actor.prioritise)
            return cell.levels.pop()
        return inbox.popleft() if inbox else None

    def _leave(self, cell: Cell) -> None:
        """Take an actor off the call stack and see what is next for it."""
        state = cell.state & ~ACTIVE
        cell.state = state & ~YIELDED
        if state & DEAD:
            return
        if state & DOOMED:
            self._end_doomed(cell)
        elif state == YIELDED:
            self._queue_bulk(cell)
        elif not state & ~YIELDED and cell.has_mail():
            self._queue(cell)


def _is_unsorted(cell: Cell) -> bool:
    """Whether the mail of an actor with priorities may be handled as it came.

    That is so for a single mail, and for mails of the classes that the actor calls ``unsorted``.
    """
    inbox = cell.inbox
    if cell.levels or not inbox:
        return False
    if len(inbox) == 1:
        return True
    unsorted = cell.actor.unsorted
    for mail in inbox:  # noqa: SIM110  # a generator costs more than the few mails there are
        if mail[0].__class__ not in unsorted:
            return False
    return True


def reason_of(error: BaseException, cell: Cell) -> object:
    """Return the exit reason that stands for what an actor raised."""
    if isinstance(error, StopActor):
        return error.reason
    if isinstance(error, CallExit):
        return error.exit_reason
    crash = Crash(error)
    log.error("actor crashed actor=%s reason=%r\n%s", cell.describe(), crash, crash.traceback)
    return crash
