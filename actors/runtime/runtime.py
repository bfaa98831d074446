"""The runtime: actors on one event loop, and how the world outside reaches them.

It is put together from parts, each with state and a file of its own:

* ``scheduler``: run queues and drains; mail, turns, exit signals, ends;
* ``inline``: calls between actors answered at once;
* ``tasks``: coroutines that run for actors;
* ``actor_table``: the live actors and their names;
* here: starts, links and monitors by address, calls from tasks, shutdown.

Everything runs on the loop's thread; ``send_threadsafe`` is for other threads. A runtime may live in a
foreign loop beside other things and leaves nothing behind in it.
"""

from __future__ import annotations

import asyncio
import secrets
from functools import partial
from typing import TYPE_CHECKING, Any

from leveret.actors.runtime import links
from leveret.actors.runtime.actor_ref import ActorRef
from leveret.actors.runtime.actor_table import ActorTable
from leveret.actors.runtime.calls import Answer, From, Reply, Request
from leveret.actors.runtime.inline import InlineCalls
from leveret.actors.runtime.ref import (
    ACTIVE,
    COROUTINES,
    DEAD,
    DOOMED,
    PRIORITY,
    REMOTE,
    UNACKED,
    Cell,
    Ref,
)
from leveret.actors.runtime.remote import Routes
from leveret.actors.runtime.scheduler import UNTRAPPABLE, Turns, reason_of
from leveret.actors.runtime.signals import (
    IGNORE,
    KILL,
    LATER,
    NORMAL,
    SHUTDOWN,
    TIMEOUT,
    CallExit,
    Exit,
    Ignored,
    MonitorRef,
    Started,
    StartError,
    StartFailed,
    StartResult,
    Watch,
)
from leveret.actors.runtime.tasks import Tasks
from leveret.actors.runtime.thespian_host import ThespianHost
from leveret.core import small_set
from leveret.core.batching import BALANCED, BusyWaits
from leveret.core.clock import Clock, SystemClock
from leveret.core.errors import ActorError

if TYPE_CHECKING:
    from collections.abc import Callable

_SHUTDOWN_S = 10.0


class Runtime:
    """Actors on one event loop.

    Methods that this class would only pass on are the parts' own, bound in ``__init__``: a message costs no
    further call.

    Args:
        clock: for timers; the loop's own time by default. A clock with a method ``attach`` is
            given this runtime (virtual clocks drain it after each timer).
        loop: the running one by default. Without any, the runtime is driven by hand with
            ``run_until_idle`` and needs a ``clock``.
        name: of the node, part of every address.
        creation: tells apart runtimes that have had the same name; by default a random number.
        busy_wait: how long the loop polls before it sleeps; None: it sleeps at once.

    Attributes:
        loop: where everything runs.
        node: name and creation number; part of every address.
        started_count: actors ever started.
        last_number: of the actor started last; numbers are never given twice.
        routes: the ways to other nodes.
        tasks: coroutines that run for the actors.
        turns: mail, turns, exit signals and ends of the actors.
    """

    def __init__(
        self,
        clock: Clock | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
        name: str = "leveret",
        creation: int | None = None,
        busy_wait: BusyWaits | None = BALANCED.busy_wait,
    ) -> None:
        self.loop = loop = loop or _running_loop()
        if clock is None:
            if loop is None:
                raise ActorError("a runtime needs an event loop or a clock")
            clock = SystemClock(loop)
        self.clock: Clock = clock
        self.node = f"{name}/{secrets.randbits(32) if creation is None else creation}"
        self.started_count = 0
        self.last_number = 0
        self._is_closed = False
        self._table = table = ActorTable()
        self.routes = Routes(self.node, table.by_number)
        self.tasks = Tasks(loop)
        self.turns = turns = Turns(loop, clock, table, self.tasks, busy_wait)
        scheduler = turns.scheduler
        inline = InlineCalls(turns)

        self.send = turns.send
        self.send_now = turns.send_now
        self.send_bulk = turns.send_bulk
        self.again = turns.again
        self.end_turn = turns.end_turn
        self.suspend = turns.suspend
        self.resume = turns.resume
        self.run_as = turns.run_as
        self.run_event = turns.run_event
        self.run_callback = scheduler.run_callback
        self.call_inline = inline.call_inline
        self.after_drain = scheduler.after_drain
        self.after_round = scheduler.after_round
        self.drain = scheduler.drain
        self.run_until_idle = scheduler.run_until_idle
        self.register = table.register
        self.unregister = table.unregister
        self.whereis = table.whereis
        self.by_number = table.by_number
        self.cells = table.cells
        self.sweep = table.sweep

        attach = getattr(clock, "attach", None)
        if attach is not None:
            attach(self)

    # Starts. ``start_link`` is Erlang's: the new actor runs ``init`` at once and nested in the caller,
    # linked before ``init``, and the result comes through ``then``; children started inside ``init``
    # nest. Differs from OTP: a parent that does not trap exits is not ended by a child whose start
    # fails; it has ``then``.

    def spawn(
        self, actor_class: type, *args: object, name: str = "", label: str | Callable[[], str] = ""
    ) -> Ref:
        """Start an actor without parent or links; StartError: it failed, or its name is taken."""
        outcome: list[StartResult] = []
        ref = self.start_link(None, actor_class, args, outcome.append, label, name)
        if outcome and isinstance(outcome[0], StartFailed):
            raise StartError(outcome[0].reason)
        return ref

    def start_link(
        self,
        parent: Ref | None,
        actor_class: type,
        args: tuple[Any, ...],
        then: Callable[[StartResult], None],
        label: str | Callable[[], str] = "",
        name: str = "",
    ) -> Ref:
        """Start an actor linked with ``parent``; ``then`` gets the outcome, once.

        ``then`` is called before this returns unless ``init`` returns LATER; in that case it is
        called, as code of the parent, when the actor calls ``started`` or dies before.

        Args:
            parent: the actor's parent; None: it has none.
            actor_class: an ``OtpActor``, or a plain class of Thespian.
            args: of its ``init``.
            then: called with the outcome.
            label: shown in logs and status; a text or a function that returns one.
            name: registered for it.

        Returns:
            The address, which is dead already if the start failed or was ignored.
        """
        if self._is_closed:
            raise ActorError("the runtime is shut down")
        if not hasattr(actor_class, "handle_mail"):
            actor_class, args = ThespianHost, (actor_class,)
        cell = self._new_cell(actor_class, label)
        cell.account = cell.ref.num
        if parent is not None:
            if not parent.is_alive:
                raise ActorError(f"parent {parent} is dead")
            if parent.cell.state & REMOTE:
                raise ActorError(f"parent {parent} is on another node: start the actor there")
            cell.parent = parent
            cell.account = parent.cell.account
            links.link(cell, parent)
        ref = cell.ref
        self._table.live[ref.num] = cell
        self.started_count += 1
        cell.starting = then
        cell.state = ACTIVE
        if name:
            owner = self.whereis(name)
            if owner is not None:
                self.turns.end(cell, ("already_started", owner), is_graceful=False)
                return ref
            self.register(name, ref)
        self._init(cell, args)
        return ref

    def child_of(
        self, parent: Ref, actor_class: type, name: str, then: Callable[[StartResult], None]
    ) -> Ref:
        """Find the actor of that name, or start one linked with ``parent``, as ``createActor`` of Thespian does."""
        found = self.whereis(name) if name else None
        if found is not None:
            return found
        return self.start_link(parent, actor_class, (), then, actor_class.__name__, name)

    def _new_cell(self, actor_class: Any, label: str | Callable[[], str]) -> Cell:
        cell = Cell()
        self.last_number += 1
        cell.ref = ActorRef(self.node, self.last_number, cell)
        cell.turns = self.turns
        cell.label = label
        cell.kind = UNACKED
        if actor_class.async_handlers:
            cell.kind |= COROUTINES
        if hasattr(actor_class, "prioritise"):
            cell.kind |= PRIORITY
        cell.actor = actor = actor_class()
        actor.ref = cell.ref
        actor.runtime = self
        cell.handler = actor
        return cell

    def _init(self, cell: Cell, args: tuple[Any, ...]) -> None:
        turns = self.turns
        try:
            value = cell.actor.init(*args)
        except BaseException as error:  # any exception fails the start
            turns.end(cell, reason_of(error, cell), is_graceful=False)
            if isinstance(error, KeyboardInterrupt):
                raise
            return
        if value is IGNORE:
            self.ignore(cell)
        elif value is LATER or cell.starting is None or cell.state & DOOMED:
            turns.leave(cell)
        else:
            then, cell.starting = cell.starting, None
            cell.kind &= ~UNACKED
            turns.leave(cell)
            turns.tell_starter(cell.parent, then, Started(cell.ref, value))

    def ignore(self, cell: Cell) -> None:
        """End an actor that has not acknowledged its start, as if ``init`` had returned IGNORE."""
        parent, then = cell.parent, cell.starting
        cell.starting = None
        if parent is not None:
            links.unlink(cell.ref, parent)
        self.turns.end(cell, NORMAL, is_graceful=False)
        if then is not None:
            self.turns.tell_starter(parent, then, Ignored())

    def acknowledge(self, cell: Cell, value: object) -> None:
        """Report the start of an actor whose ``init`` returned, or will return, LATER."""
        then, cell.starting = cell.starting, None
        if then is None:
            raise ActorError(f"{cell.describe()} has acknowledged its start already")
        cell.kind &= ~UNACKED
        self.turns.tell_starter(cell.parent, then, Started(cell.ref, value))

    # Exit signals, links and monitors.

    def exit(self, to: Ref, reason: object, sender: Ref | None = None) -> None:
        """Send an exit signal: ends the actor, or is mail to it if it traps exits.

        ``'kill'`` cannot be trapped and ends it as ``'killed'``; ``'normal'`` from another actor
        is ignored by actors that do not trap.
        """
        cell = to.cell
        if cell.state & (DEAD | REMOTE):
            if cell.state & REMOTE:
                self.turns.put(cell, (Exit(sender, reason), sender))
            return
        if isinstance(reason, str) and reason == KILL:
            self.turns.doom(cell, UNTRAPPABLE)
        else:
            self.turns.signal(cell, reason, sender, may_ignore=sender is not to)

    def link(self, one: Ref, other: Ref) -> None:
        """Link two actors; if one is dead the other gets its exit signal ``noproc``, or ``noconnection``."""
        if not one.is_alive or one.cell.state & REMOTE:
            one, other = other, one
        if not one.is_alive or one is other:
            return
        if one.cell.state & REMOTE:
            raise ActorError(
                f"{one!r} and {other!r}: one of two linked actors must be of this node"
            )
        if other.is_alive:
            links.tell_link(one, other)
            links.link(one.cell, other)
        elif not small_set.contains(one.cell.links, other):  # else its exit is on its way
            self.turns.signal(one.cell, other.cell.doom, other, may_ignore=True)

    def monitor(self, watcher: Ref, target: Ref) -> MonitorRef:
        """Let ``watcher`` get one ``Down`` when ``target`` ends."""
        monitor = MonitorRef(watcher, target)
        links.watch(monitor)
        return monitor

    demonitor = staticmethod(links.unwatch)

    def watch(self, target: Ref, callback: Callable[[object], None]) -> Watch:
        """Call ``callback(reason)`` when ``target`` ends; for code outside the actors."""
        watch = Watch(target, callback)
        links.watch(watch)
        return watch

    # Calls from outside, replies.

    async def call(self, to: Ref, request: Any, timeout_s: float | None = 5.0) -> Any:
        """Ask an actor from a task.

        Raises:
            CallExit: the actor is dead, dies, or does not answer in time.
            ActorError: the actor is in another process and ``request`` cannot go there.
        """
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def fail(reason: object) -> None:
            if not future.done():
                future.set_exception(CallExit(to, reason))

        watch = self.watch(to, fail)
        timer = None if timeout_s is None else self.clock.call_later(timeout_s, fail, TIMEOUT)
        try:
            self.send(to, Request(From(Answer(future)), request))
            return await future
        finally:
            links.unwatch(watch)
            if timer is not None:
                timer.cancel()

    def reply(self, frm: From, value: object) -> None:
        if isinstance(frm.to, Answer):
            frm.to.give(value)
        else:
            self.send(frm.to, Reply(frm.tag, value))

    async def join(self, ref: Ref) -> object:
        """Wait for an actor's end and return its reason; ``noproc`` if it has ended already."""
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        watch = self.watch(ref, Answer(future).give)
        try:
            return await future
        finally:
            links.unwatch(watch)

    def when_written(self, sender: Ref, to: Ref, message: Any) -> None:
        """Send an actor a message when all that it has sent to another has left this process, or is lost.

        Mail that the credit of a receiver in another process does not cover waits in this one, and so does mail for a
        slow link. An actor that sends much sends a part, then asks for such a message to go on with.

        Args:
            sender: an actor of this process.
            to: any actor; nothing waits for one of this process, or one that is dead.
            message: comes back to ``sender``, from itself, behind its other work.
        """
        call = partial(self.again, sender, message)
        if not links.waits_for(to, sender, call):
            call()

    async def written(self, to: Ref) -> None:
        """Wait until all that tasks have sent to an actor has left this process, or is lost."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if links.waits_for(to, None, partial(Answer(future).give, None)):
            await future

    def send_threadsafe(self, to: Ref, message: Any) -> None:
        if self.loop is None:
            raise ActorError("a runtime driven by hand takes no mail from other threads")
        self.loop.call_soon_threadsafe(self.send, to, message)

    # Figures.

    @property
    def mails(self) -> int:
        return self.turns.scheduler.mails

    @property
    def drains(self) -> int:
        return self.turns.scheduler.drains

    @property
    def dead_letters(self) -> int:
        """Mails that found their actor dead, or died with it."""
        return self.turns.dead_letters

    @property
    def abandoned_tasks(self) -> int:
        """Coroutines that swallowed their cancellation."""
        return self.tasks.abandoned_count

    @property
    def actor_count(self) -> int:
        return len(self._table.live)

    @property
    def is_idle(self) -> bool:
        return self.turns.scheduler.is_idle

    @property
    def is_closed(self) -> bool:
        """Whether it is shut down, or is being shut down: nothing can be started any more."""
        return self._is_closed

    # Shutdown.

    async def shutdown(self, timeout_s: float = _SHUTDOWN_S) -> None:
        """End all actors and leave no timer, task or callback in the loop.

        Those without a parent get the exit ``shutdown``, the latest first; actors that are left after
        ``timeout_s`` (of real time) are killed. Nothing can be started from the call on.
        """
        loop = asyncio.get_running_loop()
        self._is_closed = True
        for cell in reversed(list(self.cells())):
            if cell.parent is None:
                self.exit(cell.ref, SHUTDOWN)
        self.run_until_idle()
        if self._table.live:
            empty: asyncio.Future[bool] = loop.create_future()
            self._table.on_empty = lambda: Answer(empty).give(True)
            await asyncio.wait([empty], timeout=timeout_s)
            self._table.on_empty = None
        for cell in self.cells():
            self.exit(cell.ref, KILL)
        self.run_until_idle()
        if self.tasks.pending:
            await asyncio.wait(self.tasks.pending, timeout=timeout_s)
        self.run_until_idle()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
