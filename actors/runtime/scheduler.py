"""The scheduler chooses the actor that runs next, gives it a turn, and carries out the end of actors.

**Drains.** Two run queues share an event loop. A *drain* takes actors from the run queue, one *turn* each, until
the queue is empty or a budget of ``DRAIN_MAILS`` mails or ``DRAIN_S`` is used up; then it does the same with the
*bulk queue*, runs the callbacks registered with ``after_drain`` (socket writes) and goes back to the loop, which does
I/O. At most one drain is on its way, by one ``call_soon``. Where mail has followed soon lately, the loop does not sleep
at once (``busy_wait``).

The bulk queue is for long work: actors that have more to do than a turn should last, those that such a turn wakes,
and receivers of mail in great numbers: of the actors that another turn wakes, all but the first ``WOKEN_MAX``.
Those wait there too that a drain has had no time for. So the other actors wait for a few turns of long work, not
for a round of all of it, and long work gets at least as much of each drain as they do. The bulk queue is fair
(``fair_queue.py``): the accounts that long work is charged to share its time. The place in a queue belongs to the
actor, not to the mail: mail that it gets meanwhile waits with it. Timers of housekeeping have places of their own
in the bulk queue (``DeferredJob``), so that other mail of their actors does not wait for them.

A scheduler without a loop is driven by hand: nothing runs until ``run_until_idle``.

**Turns.** A turn handles at most ``TURN_MAILS`` waiting mails of one actor; actors whose mails are batches keep their
own budgets in messages and bytes. Turns come from the run queues, from callbacks of the loop (``run_as``,
``run_event``) and from inline calls (``inline``).

Order: mails of one sender to one receiver are handled in the order sent (for classes with
``prioritise``: within a level). An exit signal acts before any waiting mail, after the handler
under way.

**Ends.** An actor's end, in this order: ``terminate`` runs (not after a kill); names are freed, timers
cancelled; waiting mail becomes dead letters; the instance's attributes are dropped, so
that no cycle keeps messages alive; links and monitors are told; a start that was not
acknowledged has failed. Nothing here recurses along links: an actor that dies of a signal does so in its own turn.

Each linked actor is told by an exit signal, each that monitors it by a ``Down``. Thousands may be linked with one actor
or monitor it, and it may monitor thousands. The turn in which it ends sends ``SIGNALS_MAX`` signals. Each later round
of the bulk queue sends as many again, first those of the actor that ended first. So a few hundred actors at a time
handle their signal, and the mails and timers that this causes are never in memory for all of them. An actor whose
signal is not sent yet still has its link or monitor, and can remove it. The parent's signal is the last: it restarts
the actor, or answers who asked for the stop, after all others were told.

Differs from OTP: ``terminate`` also runs when an actor that does not trap exits dies of a signal.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from leveret.actors.runtime import links, timers
from leveret.actors.runtime.busy_wait import BusyWait
from leveret.actors.runtime.fair_queue import FairQueue
from leveret.actors.runtime.inbox import MERGING_MAILS, PLAIN_MAILS, Levels, absorbs
from leveret.actors.runtime.ref import (
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
    Dispatcher,
)
from leveret.actors.runtime.signals import (
    KILLED,
    NORMAL,
    SHUTDOWN,
    CallExit,
    Crash,
    Exit,
    MonitorRef,
    StartFailed,
    StartResult,
    StopActor,
)
from leveret.core import small_set
from leveret.core.errors import ActorError, DependencyError
from leveret.core.log.loggers import logger

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine, Iterator

    from leveret.actors.runtime.actor_table import ActorTable
    from leveret.actors.runtime.fair_queue import Place
    from leveret.actors.runtime.inbox import Mail
    from leveret.actors.runtime.ref import DeferredJob, Ref
    from leveret.actors.runtime.tasks import Tasks
    from leveret.core.batching import BusyWaits
    from leveret.core.clock import Clock

log = logger(__name__)

DRAIN_MAILS: Final = 2_000  # of each queue
LONG_TURN_S: Final = 0.001  # a turn of the bulk queue so long comes behind what is to be written
DRAIN_S: Final = 0.005  # of each queue, and the turn under way then
# By a few turns, an event or callback, or all bulk turns of a drain. Each compares the length of the run queue by
# itself: a function for it would cost the message path more than the comparison.
WOKEN_MAX: Final = 64
EVENTS_MAX: Final = 128  # socket events in a row; then the mails that they brought are handled
_FEW_MAILS: Final = 4  # are handled without a look at the clock, which costs a little
_QUIET: Final = 3  # handles that bring no mail

_Rounds: TypeAlias = "deque[tuple[int, Callable[[], None]]]"  # due at this drain, or turn; callback
TURN_MAILS: Final = 200
END_MAILS: Final = 5  # an end counts as so many, so that a drain looks at the clock behind each

SIGNALS_MAX: Final = 200  # sent in the turn in which an actor ends, and in each later round

UNTRAPPABLE: Final = object()  # doom of an actor that got a 'kill'


class Scheduler:
    """Decides when which actor has its turn.

    Args:
        loop: where drains run; None: they are called by hand.
        clock: for the budget of a drain.
        busy_wait: how long the loop polls behind a drain; None: not at all.
        turn: gives an actor from a run queue its turn; returns how many mails it handled.

    Attributes:
        clock: read between turns of a long drain.
        ready: the run queue; appending to it takes a call of ``wake`` unless ``is_awake``.
        is_awake: a drain is running or on its way.
        mails: mails handled.
        drains: times the run queue was drained.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop | None,
        clock: Clock,
        turn: Callable[[Cell], int],
        busy_wait: BusyWaits | None,
    ) -> None:
        self.loop = loop
        self.ready: Final[deque[Cell]] = deque()
        self.is_awake = False
        self.mails = 0
        self.drains = 0
        self.clock = clock
        self._turn = turn
        self._bulk: Final = FairQueue()
        self._after: list[Callable[[], None]] = []
        self._is_draining = False
        # Actors of the run queue that wait in the bulk queue, by the drain that had no time for them.
        self._shared: dict[int, int] = {}
        self._rounds: _Rounds = deque()  # due at the drain by which all had a turn or are shared
        self._bulk_turns = 0
        self._bulk_rounds: _Rounds = deque()
        self._has_passed = False  # a drain has ended before a long turn, and none has begun since
        self._coming: asyncio.Handle | None = None
        self._busy_wait: Final = (
            None if loop is None or busy_wait is None else BusyWait(loop, busy_wait)
        )
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
        self._bulk.put(cell.account, cell)
        if not self.is_awake:
            self.wake()

    def expect(self, account: int, takes_s: float) -> None:
        """Announce a long turn of an account (``FairQueue.expect``)."""
        self._bulk.expect(account, takes_s)

    def defer(self, job: DeferredJob, account: int) -> None:
        """Run a job when its account's actors have had a turn that wait in the bulk queue now."""
        self._bulk.put(account, job)
        if not self.is_awake:
            self.wake()

    def wake(self) -> None:
        """Ask the loop for a drain."""
        self.is_awake = True
        if self.loop is not None:
            self._coming = self.loop.call_soon(self.drain)

    def put_off_drain(self) -> None:
        """Let a drain that is coming wait for the callbacks that were put on the loop since."""
        if self._coming is not None and self.loop is not None:
            self._coming.cancel()
            self._coming = self.loop.call_soon(self.drain)

    def after_drain(self, callback: Callable[[], None], is_first: bool = False) -> None:
        """Call ``callback`` once, when the present or next drain ends, before the loop does I/O.

        ``is_first``: it is called before the callbacks that are registered already. Writes to sockets are, so that
        peers read their answers while the store starts a flush, which takes milliseconds.
        """
        if is_first:
            self._after.insert(0, callback)
        else:
            self._after.append(callback)
        if not self.is_awake:
            self.wake()

    def after_round(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` once, after the drain by which all have had a turn that wait now.

        For sources of work: mail that comes once per round of the run queue piles up no higher than in one
        round, and an actor with mail waits no longer than that.
        """
        if self.ready or self._shared:
            self._rounds.append((self.drains + 1, callback))
        else:
            self.after_drain(callback)

    def after_bulk_round(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` once, after the drain by which all in the bulk queue have had a turn that wait now."""
        if self._bulk.count:
            self._bulk_rounds.append((self._bulk_turns + self._bulk.count, callback))
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
            mails = 0
            before = len(ready)
            while ready and mails < _FEW_MAILS:
                mails += turn(ready.popleft())
            self.mails += mails
            if ready:
                self._serve(before)
            if bulk.count and with_bulk:
                self._serve_bulk()
            if self._rounds:
                self._end_rounds()
            if self._after:
                self._run_after()
        finally:
            self.is_awake = self._is_draining = False
            if ready or bulk.count or self._after:
                self.wake()
            elif self._busy_wait is not None:
                self._busy_wait.begin()

    def _serve(self, before: int) -> None:
        """Give turns until the run queue is empty or one of its budgets is used up.

        ``before``: how many were in the run queue before the turns that were given last. The time begins with the
        first look at the clock.
        """
        ready, turn = self.ready, self._turn
        left = DRAIN_MAILS
        look_at = left - _FEW_MAILS
        until_s = inf
        longest = before + WOKEN_MAX
        if len(ready) > longest:
            self.limit_woken(longest)
            longest += WOKEN_MAX
        while ready and left > 0:
            left -= turn(ready.popleft())
            if len(ready) > longest:
                self.limit_woken(longest)
            if left < look_at:
                look_at = left - _FEW_MAILS
                longest = len(ready) + WOKEN_MAX  # the next few turns may wake as many
                now_s = self.clock.monotonic_s()
                if until_s == inf:
                    until_s = now_s + DRAIN_S
                elif now_s >= until_s:
                    break
        self.mails += DRAIN_MAILS - left
        if ready:
            self._share_rest()

    def _serve_bulk(self) -> None:
        """Give turns until the bulk queue is empty or a budget is used up.

        The actors that such a turn wakes wait in the bulk queue too: what long work causes is long work. If something
        waits to be written, the drain ends before a turn that will be long, and the next drain that comes to a long
        turn begins it. A turn that would end behind the time of this drain is left to the next, but for the first.
        """
        ready, bulk, clock = self.ready, self._bulk, self.clock
        now_s = clock.monotonic_s()
        until_s = now_s + DRAIN_S
        left, turns = DRAIN_MAILS, 0
        before = len(ready)
        while bulk.count and left > 0:
            takes_s = bulk.next_takes_s()
            if takes_s >= LONG_TURN_S:
                if self._after and not self._has_passed:
                    self._has_passed = True
                    break
                if turns and now_s + takes_s > until_s:
                    break
                self._has_passed = False
            left -= self._bulk_turn(bulk.take())
            turns += 1
            if len(ready) > before:
                self.limit_woken(before, bulk.account)
            began_s, now_s = now_s, clock.monotonic_s()
            bulk.charge(now_s - began_s)
            if now_s >= until_s:
                break
        self.mails += DRAIN_MAILS - left
        self._bulk_turns += turns
        rounds = self._bulk_rounds
        while rounds and (rounds[0][0] <= self._bulk_turns or not bulk.count):
            self._after.append(rounds.popleft()[1])

    def _bulk_turn(self, place: Place) -> int:
        if place.__class__ is Cell:
            if place.shared_by:
                self._had_turn(place)
            return self._turn(place)
        woken = cast("DeferredJob", place).run()
        return 1 if woken is None else self._turn(woken)

    def _share_rest(self) -> None:
        """Let actors wait in the bulk queue that a drain has had no time for: they share the next with long work."""
        ready, bulk = self.ready, self._bulk
        self._shared[self.drains] = len(ready)
        while ready:
            cell = ready.popleft()
            cell.shared_by = self.drains
            bulk.put(cell.account, cell)

    def _had_turn(self, cell: Cell) -> None:
        """Count a turn of an actor that a drain had no time for."""
        drain, cell.shared_by = cell.shared_by, 0
        left = self._shared[drain] - 1
        if left:
            self._shared[drain] = left
        else:
            del self._shared[drain]

    def limit_woken(self, longest: int, account: int = 0) -> None:
        """Let actors that a turn has woken wait in the bulk queue, until the run queue has no more than ``longest``.

        Else one client that sends to thousands of queues at once would make all others wait for these.

        Args:
            longest: how many stay in the run queue.
            account: of the actor that has woken them; 0: several have.
        """
        ready, bulk = self.ready, self._bulk
        woken = [ready.pop() for _ in range(len(ready) - longest)]
        for cell in reversed(woken):
            if account and cell.follows:
                cell.account = account
            bulk.put(cell.account, cell)

    def _end_rounds(self) -> None:
        """Call back those whose rounds are over: all that waited then have had a turn."""
        rounds, shared = self._rounds, self._shared
        over = self.drains
        if shared:
            over = next(iter(shared)) - 1
        elif not self.ready:
            over += 1
        while rounds and rounds[0][0] <= over:
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
        while self.ready or self._bulk.count or self._after:
            self.drain()

    @property
    def is_idle(self) -> bool:
        """Whether no actor has anything to do at this moment."""
        return not (self.ready or self._bulk.count or self._after)

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
        elif not (self.ready or self._bulk.count or self._after):
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


class Turns(Dispatcher):
    """Gives actors their turns and ends them.

    Attributes:
        scheduler: its run queues.
        dead_letters: mails that found their actor dead, or died with it.
        on_dead_letter: called with ``(message, sender)`` for each of them, if set.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop | None,
        clock: Clock,
        table: ActorTable,
        tasks: Tasks,
        busy_wait: BusyWaits | None,
    ) -> None:
        self.scheduler: Final = Scheduler(loop, clock, self._turn, busy_wait)
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
            cell.handler.handle_mail(message, sender)
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

    def expect(self, ref: Ref, takes_s: float) -> None:
        """Announce the length of the long turn that an actor is about to wait for.

        It counts where nothing else of the actor's account waits in the bulk queue; else its last turn does.
        """
        self.scheduler.expect(ref.cell.account, takes_s)

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

    def defer(self, job: DeferredJob, cell: Cell) -> None:
        """Run a job of an actor in the bulk queue."""
        self.scheduler.defer(job, cell.account)

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
                handler.handle_mail(message, sender)
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
                result = handler.handle_mail(mail[0], mail[1])
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
            self.scheduler.limit_woken(longest, cell.account)

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
            scheduler.limit_woken(longest, cell.account)
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
    """Return the exit reason for an exception of an actor; a crash is logged."""
    if isinstance(error, StopActor):
        return error.reason
    if isinstance(error, CallExit):
        return error.exit_reason
    if isinstance(error, DependencyError):
        return (SHUTDOWN, str(error))
    return crash_of(error, cell.describe())


def crash_of(error: BaseException, actor: str) -> Crash:
    """Return the exit reason of the ``actor`` from which the exception has escaped; write the one record about it."""
    crash = Crash(error)
    log.error("actor crashed actor=%s reason=%r\n%s", actor, crash, crash.traceback)
    return crash


class EndSignals:
    """Sends the signals of actors that have ended, a bounded number in each round.

    Args:
        scheduler: tells when a round of the bulk queue is over.
        send_exit: sends a live actor an exit signal.
    """

    def __init__(
        self, scheduler: Scheduler, send_exit: Callable[[Cell, object, Ref | None, bool], None]
    ) -> None:
        self._scheduler = scheduler
        self._send_exit = send_exit
        self._ends: deque[Iterator[bool]] = deque()

    def send(self, cell: Cell, reason: object, parent: Ref | None) -> None:
        """Send the signals of an actor that has just ended, or begin to."""
        signals = self._signals(cell, reason, parent)
        if next(islice(signals, SIGNALS_MAX - 1, None), False):
            self._ends.append(signals)
            if len(self._ends) == 1:
                self._scheduler.after_bulk_round(self._go_on)

    def _go_on(self) -> None:
        scheduler, ends, left = self._scheduler, self._ends, SIGNALS_MAX
        longest = len(scheduler.ready) + WOKEN_MAX
        try:
            while ends and left:
                left -= sum(1 for _ in islice(ends[0], left))
                if left:
                    ends.popleft()
        finally:  # also when a callback from outside has failed
            if len(scheduler.ready) > longest:
                scheduler.limit_woken(longest)
            if ends:
                scheduler.after_bulk_round(self._go_on)

    def _signals(self, cell: Cell, reason: object, parent: Ref | None) -> Iterator[bool]:
        ref = cell.ref
        told: list[Ref | MonitorRef]
        told = [*small_set.items(cell.links), *small_set.items(cell.watchers)]
        monitors = small_set.items(cell.monitors)
        cell.links = cell.watchers = cell.monitors = None
        if len(told) > SIGNALS_MAX and parent is not None:  # else all are told in this turn
            told.sort(key=lambda each: _hearer(each) is parent)
        for each in told:
            if isinstance(each, MonitorRef):
                if links.leave_watcher(each):
                    each.tell(reason)
            elif links.leave_link(each.cell, ref):
                self._send_exit(each.cell, reason, ref, True)
            yield True
        for monitor in monitors:
            links.leave_monitor(monitor)
            yield True


def _hearer(signal: Ref | MonitorRef) -> Ref | None:
    return signal.watcher if isinstance(signal, MonitorRef) else signal
