"""Turns of actors: their mail, their exit signals, their ends.

A turn handles at most ``TURN_MAILS`` waiting mails of one actor; actors whose mails are batches keep their
own budgets in messages and bytes. Turns come from the run queues (``scheduler``), from callbacks of the
loop (``run_as``, ``run_event``) and from inline calls (``inline``).

Order: mails of one sender to one receiver are handled in the order sent (for classes with
``prioritise``: within a level). An exit signal acts before any waiting mail, after the handler
under way.

An actor's end, in this order: ``terminate`` runs (not after a kill); names are freed, timers
cancelled; waiting mail becomes dead letters; the instance's attributes are dropped, so
that no cycle keeps messages alive; links and monitors are told (``end_signals``); a start that was not
acknowledged has failed. Nothing here recurses along links: an actor that dies of a signal does so in its own turn.

Differs from OTP: ``terminate`` also runs when an actor that does not trap exits dies of a signal.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from leveret.actors.runtime import links, timers
from leveret.actors.runtime.cell import (
    ACTIVE,
    AFAR,
    BUSY,
    COROUTINES,
    DEAD,
    DEAD_CELL,
    DOOMED,
    IDLE,
    NO_HANDLER,
    PRIORITY,
    QUEUED,
    SUSPENDED,
    YIELDED,
    Cell,
    Mail,
)
from leveret.actors.runtime.end_signals import EndSignals
from leveret.actors.runtime.inbox import MERGING_MAILS, PLAIN_MAILS, Levels, absorbs
from leveret.actors.runtime.scheduler import WOKEN_MAX, Scheduler
from leveret.actors.runtime.signals import (
    KILLED,
    NORMAL,
    SHUTDOWN,
    CallExit,
    Crash,
    Exit,
    StartFailed,
    StartResult,
    StopActor,
)
from leveret.core.errors import ActorError, DependencyError
from leveret.core.log.loggers import logger

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine

    from leveret.actors.runtime.actor_table import ActorTable
    from leveret.actors.runtime.ref import Ref
    from leveret.actors.runtime.tasks import Tasks
    from leveret.core.clock import Clock

log = logger(__name__)

TURN_MAILS: Final = 200
END_MAILS: Final = 5  # an end counts as so many, so that a drain looks at the clock behind each

UNTRAPPABLE: Final = object()  # doom of an actor that got a 'kill'


class Turns:
    """Gives actors their turns and ends them.

    Attributes:
        scheduler: its run queues.
        dead_letters: mails that found their actor dead, or died with it.
        on_dead_letter: called with ``(message, sender)`` for each of them, if set.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop | None, clock: Clock, table: ActorTable, tasks: Tasks
    ) -> None:
        self.scheduler: Final = Scheduler(loop, clock, self._turn)
        self.dead_letters = 0
        self.on_dead_letter: Callable[[object, Ref | None], None] | None = None
        self._ready: Final = self.scheduler.ready
        self._end_signals: Final = EndSignals(self.scheduler, self.signal)
        self._table = table
        self._tasks = tasks

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
            kind = last.__class__
            if kind not in PLAIN_MAILS and (
                last.absorb(message) if kind in MERGING_MAILS else absorbs(last, message)
            ):
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
            if not self.scheduler.is_awake:
                self.scheduler.wake()

    def send_now(self, to: Ref, message: Any, sender: Ref | None = None) -> bool:
        """Send, and let the receiver handle it at once when it has nothing else to do; return whether it did.

        That is the schedule in which its turn comes next. It saves the way through the run queue where
        nothing is gained by letting mail gather: from a reader to its channels, from queues to channels.
        A receiver that is busy, has mail waiting or wants it sorted gets an ordinary ``send``.
        """
        cell = to.cell
        if cell.state or cell.inbox or cell.kind:
            self.send(to, message, sender)
            return False
        self.scheduler.mails += 1
        cell.state = ACTIVE
        try:
            cell.handler.handle(message, sender)
        except BaseException as error:  # noqa: BLE001  # any exception ends the receiver
            self._failed(cell, error)
            return True
        if cell.state == ACTIVE and not cell.inbox:
            cell.state = IDLE
        else:
            self.leave(cell)
        return True

    def send_bulk(self, to: Ref, message: Any, sender: Ref | None = None) -> None:
        """Send one of a great number of mails: a receiver that is idle waits in the bulk queue."""
        cell = to.cell
        if cell.state or cell.inbox:
            self.send(to, message, sender)
        else:
            self.put_bulk(cell, (message, sender))

    def put_bulk(self, cell: Cell, mail: Mail) -> None:
        """Put a mail into a live actor's mailbox as it is; if idle, the actor waits in the bulk queue."""
        if cell.state or cell.inbox:
            self.put(cell, mail)
        else:
            cell.state = QUEUED  # ``put`` will not queue it
            self.put(cell, mail)
            self.scheduler.add_bulk(cell)

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

    def end_turn(self, ref: Ref) -> None:
        """Have an actor's turn end behind the handler under way; its other mail waits in the bulk queue."""
        cell = ref.cell
        if cell.state & ACTIVE and cell.has_mail():
            cell.state |= YIELDED

    def put(self, cell: Cell, mail: Mail) -> None:
        """Put a mail into a live actor's mailbox as it is."""
        if cell.inbox is None:
            cell.inbox = deque()
        cell.inbox.append(mail)
        if not cell.state:
            self.scheduler.add(cell)

    def _dead_letter(self, message: object, sender: Ref | None) -> None:
        self.dead_letters += 1
        if self.on_dead_letter is not None:
            self.on_dead_letter(message, sender)

    # Exit signals.

    def signal(self, cell: Cell, reason: object, sender: Ref | None, may_ignore: bool) -> None:
        """Send a live actor an exit signal other than ``kill``.

        ``may_ignore``: an actor that does not trap exits ignores ``normal``.
        """
        if cell.actor.trap_exits:
            self.put(cell, (Exit(sender, reason), sender))
        elif not (may_ignore and isinstance(reason, str) and reason == NORMAL):
            self.doom(cell, reason)

    def doom(self, cell: Cell, reason: object) -> None:
        """Note the reason an actor will end for; the first counts, but a kill overrules."""
        if not cell.state & DOOMED or reason is UNTRAPPABLE:
            cell.doom = reason
        cell.state |= DOOMED
        if not cell.state & (QUEUED | ACTIVE):
            self.scheduler.add(cell)

    # Suspension.

    def suspend(self, ref: Ref) -> None:
        """Let an actor's mail wait until ``resume``; exit signals still act."""
        if ref.cell.state & AFAR:
            raise ActorError(f"{ref!r} is on another node: suspend it there")
        if ref.is_alive:
            ref.cell.state |= SUSPENDED

    def resume(self, ref: Ref) -> None:
        cell = ref.cell
        if cell.state & SUSPENDED:
            cell.state &= ~SUSPENDED
            if not cell.state and cell.has_mail():
                self.scheduler.add(cell)

    # Turns by the run queues.

    def _turn(self, cell: Cell) -> int:
        """Let one actor handle its mail; return how many mails that were."""
        inbox = cell.inbox
        left = TURN_MAILS
        if cell.state != QUEUED or cell.kind:
            if (
                cell.state != QUEUED
                or cell.kind != PRIORITY
                or not inbox
                or cell.levels
                or (len(inbox) > 1 and not _are_unsorted(inbox, cell.actor.unsorted))
            ):
                return self._odd_turn(cell)
            left = min(TURN_MAILS, len(inbox))
        if not inbox:
            cell.state = IDLE
            return 1
        cell.state = ACTIVE
        budget = left
        handler = cell.handler
        try:
            while True:
                message, sender = inbox.popleft()
                left -= 1
                handler.handle(message, sender)
                if cell.state != ACTIVE or not inbox or not left:
                    break
        except BaseException as error:  # noqa: BLE001  # any exception ends this actor
            self._failed(cell, error)
            return budget - left
        if cell.state != ACTIVE:
            self.leave(cell)
        elif inbox:
            cell.state = IDLE
            self.scheduler.add_bulk(cell)
        else:
            cell.state = IDLE
        return budget - left

    def _odd_turn(self, cell: Cell) -> int:
        cell.state &= ~QUEUED
        if cell.state & DEAD:
            return 1
        if cell.state & DOOMED:
            self.end_doomed(cell)
            return END_MAILS
        if cell.state & (SUSPENDED | BUSY):
            return 1
        return self.handle_waiting(cell, TURN_MAILS)

    def handle_waiting(self, cell: Cell, budget: int) -> int:
        """Let an actor of any kind handle up to ``budget`` waiting mails."""
        cell.state |= ACTIVE
        handler = cell.handler
        left = budget
        try:
            while left and (mail := self._next_mail(cell)) is not None:
                left -= 1
                result = handler.handle(mail[0], mail[1])
                if result is not None and cell.kind & COROUTINES:
                    self._run_handler(cell, result)
                if cell.state & (DOOMED | SUSPENDED | BUSY | DEAD | YIELDED):
                    break
        except BaseException as error:  # noqa: BLE001  # any exception ends this actor
            self._failed(cell, error)
        else:
            self.leave(cell)
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

    def leave(self, cell: Cell) -> None:
        """Take an actor off the call stack; end it, or queue it if mail waits."""
        state = cell.state & ~ACTIVE
        cell.state = state & ~YIELDED
        if state & DEAD:
            return
        if state & DOOMED:
            self.end_doomed(cell)
        elif state == YIELDED:
            self.scheduler.add_bulk(cell)
        elif not state & ~YIELDED and cell.has_mail():
            self.scheduler.add(cell)

    # Turns by callbacks of the loop.

    def run_as(self, ref: Ref, function: Callable[..., object], *args: object) -> None:
        """Run ``function`` as a turn of an actor: an exception ends that actor.

        This is how asyncio's callbacks enter. A dead actor is a dead letter. If the actor's code
        is on the stack already, the call is part of its present turn. A suspended actor is run all
        the same: only its mail waits.
        """
        cell = ref.cell
        state = cell.state
        if state & (DEAD | ACTIVE | DOOMED):
            if state & ACTIVE:
                function(*args)
            else:
                self._dead_letter(function, None)
            return
        cell.state = state | ACTIVE
        ready = self._ready
        longest = len(ready) + WOKEN_MAX
        try:
            function(*args)
        except BaseException as error:  # noqa: BLE001  # any exception ends this actor
            self._failed(cell, error)
        else:
            if cell.state == ACTIVE and not cell.inbox and not cell.kind:
                cell.state = IDLE
            else:
                self.leave(cell)
        if len(ready) > longest:
            self.scheduler.limit_woken(longest)

    def run_event(self, ref: Ref, function: Callable[[Any], object], data: Any) -> None:
        """Run a socket event as a turn of an actor (``run_as``), and drain when it is the last one."""
        scheduler = self.scheduler
        was_awake = scheduler.is_awake
        scheduler.is_awake = True
        ready, cell = self._ready, ref.cell
        longest = len(ready) + WOKEN_MAX
        if cell.state:
            self.run_as(ref, function, data)
        else:  # the same, spelled out because it runs at every event
            cell.state = ACTIVE
            try:
                function(data)
            except BaseException as error:  # noqa: BLE001  # any exception ends this actor
                self._failed(cell, error)
            else:
                if cell.state == ACTIVE and not cell.inbox and not cell.kind:
                    cell.state = IDLE
                else:
                    self.leave(cell)
        if len(ready) > longest:
            scheduler.limit_woken(longest)
        scheduler.drain_if_last(was_awake)

    # Turns that last longer than a drain: coroutine handlers, and handlers in other threads.

    def _run_handler(self, cell: Cell, coroutine: Coroutine[Any, Any, object]) -> None:
        self.hold_mail(cell)
        self._tasks.new_task(cell, coroutine, self._handler_done)

    def _handler_done(self, cell: Cell, task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            cell.state &= ~BUSY
            self.end(cell, SHUTDOWN)
        else:
            self.handled(cell.ref, task.exception())

    def hold_mail(self, cell: Cell) -> None:
        """Let mail, but not exit signals, wait until ``handled``: the handler goes on elsewhere."""
        cell.state |= BUSY

    def handled(self, ref: Ref, error: BaseException | None = None) -> None:
        """Go on with an actor's mail; or end the actor for the ``error`` of its handler."""
        cell = ref.cell
        if cell is DEAD_CELL:
            return
        cell.state &= ~BUSY
        if error is not None:
            self._failed(cell, error)
        else:
            self.leave(cell)

    # Ends.

    def _failed(self, cell: Cell, error: BaseException) -> None:
        """End an actor because of an exception in its code."""
        cell.state &= ~ACTIVE
        if not cell.state & DEAD:
            self.end(cell, reason_of(error, cell))
        if isinstance(error, KeyboardInterrupt):
            raise error

    def end_doomed(self, cell: Cell) -> None:
        """End an actor that has got an exit signal."""
        if cell.doom is UNTRAPPABLE:
            self.end(cell, KILLED, is_graceful=False)
        else:
            self.end(cell, cell.doom)

    def end(self, cell: Cell, reason: object, is_graceful: bool = True) -> None:
        """End an actor now, with mail still waiting; ``is_graceful``: ``terminate`` runs first."""
        if is_graceful:
            reason = self._terminate(cell, reason)
        cell.state, cell.doom = DEAD, reason
        parent, then = cell.parent, cell.starting
        if then is not None and parent is not None:
            links.unlink(cell.ref, parent)
        cell.ref.cell = DEAD_CELL
        table = self._table
        table.remove(cell)
        if cell.timers is not None:
            timers.cancel_all(cell)
        self._empty(cell)
        self._end_signals.send(cell, reason, parent)
        if then is not None:
            self.tell_starter(parent, then, StartFailed(reason))
        if not table.live and table.on_empty is not None:
            table.on_empty()

    def end_remote(self, ref: Ref, reason: object, dead: Cell) -> None:
        """Tell the links and monitors here that an actor of another node has ended, or cannot be reached.

        Args:
            ref: its address.
            reason: of its end.
            dead: the address's cell from now on: ``DEAD_CELL`` or ``LOST_CELL``.
        """
        cell, ref.cell = ref.cell, dead
        if not cell.state & DEAD:
            cell.state, cell.ref = DEAD, ref
            self._end_signals.send(cell, reason, None)

    def _terminate(self, cell: Cell, reason: object) -> object:
        """Run ``terminate`` and return the final reason."""
        cell.state |= ACTIVE
        try:
            cell.actor.terminate(reason)
        except BaseException as error:  # noqa: BLE001  # it is dying anyhow
            return reason_of(error, cell)
        return reason

    def _empty(self, cell: Cell) -> None:
        """Drop everything a dead actor held."""
        task, cell.task = cell.task, None
        if task is not None:
            task.cancel()
        waiting = [*(cell.inbox or ()), *(cell.levels or ())] if cell.has_mail() else ()
        actor = cell.actor
        cell.inbox = cell.levels = cell.actor = None
        cell.handler = NO_HANDLER
        cell.parent = cell.starting = cell.names = None
        cell.label = ""
        actor.drop_attributes()
        for message, sender in waiting:
            self._dead_letter(message, sender)

    def tell_starter(
        self, parent: Ref | None, then: Callable[[StartResult], None], result: StartResult
    ) -> None:
        """Report the outcome of a start, in a turn of the parent if there is one."""
        if parent is not None:
            if parent.is_alive:
                self.run_as(parent, then, result)
            return
        try:
            then(result)
        except Exception as error:  # noqa: BLE001  # it is no actor's code
            self.scheduler.report("callback of a start failed", error)


def _are_unsorted(inbox: deque[Mail], unsorted: frozenset[type]) -> bool:
    """Whether several mails of an actor with priorities may be handled as they came.

    That is so for mails of the classes that the actor calls ``unsorted``, as for a single mail. One look is at a
    turn's worth.
    """
    some = inbox if len(inbox) <= TURN_MAILS else islice(inbox, TURN_MAILS)
    for mail in some:  # noqa: SIM110  # a generator costs more than the few mails there are
        if mail[0].__class__ not in unsorted:
            return False
    return True


def reason_of(error: BaseException, cell: Cell) -> object:
    """Return the exit reason for an exception of an actor; log a crash."""
    if isinstance(error, StopActor):
        return error.reason
    if isinstance(error, CallExit):
        return error.exit_reason
    if isinstance(error, DependencyError):
        return (SHUTDOWN, str(error))
    crash = Crash(error)
    log.error("actor crashed actor=%s reason=%r\n%s", cell.describe(), crash, crash.traceback)
    return crash
