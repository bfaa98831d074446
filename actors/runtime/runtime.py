"""The runtime: actors on one event loop, and how the world outside reaches them.

It is put together from layers, each in a file of its own:

* ``scheduler``: run queues, turns, mail, exit signals;
* ``events``: how the callbacks of the loop become turns;
* ``inline``: calls between actors answered at once;
* ``lifecycle``: start, end, names;
* here: links and monitors by address, calls from tasks, shutdown.

Everything runs on the loop's thread; ``send_threadsafe`` is the one door for other threads. A
runtime may live in a foreign loop beside other things and leaves nothing behind in it.
"""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING, Any

from leveret.actors.runtime import links
from leveret.actors.runtime.calls import Answer, From, Reply, Request
from leveret.actors.runtime.cell import IDLE
from leveret.actors.runtime.lifecycle import Lifecycle
from leveret.actors.runtime.links import MonitorRef, Watch
from leveret.actors.runtime.signals import KILL, NOPROC, SHUTDOWN, TIMEOUT, CallExit
from leveret.core.clock import Clock, SystemClock
from leveret.core.errors import ActorError

if TYPE_CHECKING:
    from collections.abc import Callable

    from leveret.actors.runtime.ref import Ref

_SHUTDOWN_S = 10.0


class Runtime(Lifecycle):
    """Actors on one event loop.

    Args:
        clock: for timers; the loop's own time by default. A clock with a method ``attach`` is
            given this runtime (virtual clocks drain it after each timer).
        loop: the running one by default. Without any, the runtime is driven by hand with
            ``run_until_idle`` and needs a ``clock``.
        name: of the node, part of every address.
    """

    def __init__(
        self,
        clock: Clock | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
        name: str = "leveret",
    ) -> None:
        super().__init__(loop or _running_loop(), name)
        if clock is None:
            if self.loop is None:
                raise ActorError("a runtime needs an event loop or a clock")
            clock = SystemClock(self.loop)
        self.clock: Clock = clock
        self._swept_to = 0
        attach = getattr(clock, "attach", None)
        if attach is not None:
            attach(self)

    # Links and monitors.

    def link(self, one: Ref, other: Ref) -> None:
        """Link two actors; if one is dead the other gets its exit signal ``noproc``."""
        if one.is_alive and other.is_alive:
            if one is not other:
                links.link(one.cell, other.cell)
        elif one.is_alive:
            self._signal(one.cell, NOPROC, other, may_ignore=True)
        elif other.is_alive:
            self._signal(other.cell, NOPROC, one, may_ignore=True)

    def monitor(self, watcher: Ref, target: Ref) -> MonitorRef:
        """Let ``watcher`` get one ``Down`` when ``target`` ends."""
        monitor = MonitorRef(watcher, target)
        links.watch(monitor)
        return monitor

    def demonitor(self, monitor: MonitorRef) -> None:
        """Take a monitor back; its ``Down`` is not handled any more."""
        links.unwatch(monitor)

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
        """Answer a call."""
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

    def send_threadsafe(self, to: Ref, message: Any) -> None:
        """Send from another thread."""
        if self.loop is None:
            raise ActorError("a runtime driven by hand takes no mail from other threads")
        self.loop.call_soon_threadsafe(self.send, to, message)

    # Housekeeping.

    def sweep(self, actors_max: int | None = None) -> int:
        """Give back the empty mailboxes of idle actors, about 700 bytes each; return how many.

        Args:
            actors_max: look at no more than so many actors; the next call goes on about there
                (places shift when actors end).
        """
        first = self._swept_to
        if actors_max is None or first >= len(self._cells):
            first = 0
        last = len(self._cells) if actors_max is None else first + actors_max
        self._swept_to = last
        swept = 0
        for cell in islice(self._cells, first, last):
            if cell.state == IDLE and not cell.inbox and not cell.levels:
                swept += cell.inbox is not None
                cell.inbox = cell.levels = None
        return swept

    async def shutdown(self, timeout_s: float = _SHUTDOWN_S) -> None:
        """End all actors and leave no timer, task or callback in the loop.

        Those without a parent get the exit ``shutdown``, the latest first; whoever is left after
        ``timeout_s`` (of real time) is killed. Nothing can be started from the call on.
        """
        loop = asyncio.get_running_loop()
        self._is_closed = True
        for cell in reversed(list(self._cells)):
            if cell.parent is None:
                self.exit(cell.ref, SHUTDOWN)
        self.run_until_idle()
        if self._cells:
            await self._emptied(loop, timeout_s)
        for cell in list(self._cells):
            self.exit(cell.ref, KILL)
        self.run_until_idle()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)
        self.run_until_idle()

    async def _emptied(self, loop: asyncio.AbstractEventLoop, timeout_s: float) -> None:
        """Wait until no actor is left, or the time is over."""
        empty: asyncio.Future[bool] = loop.create_future()
        self._on_empty = lambda: Answer(empty).give(True)
        await asyncio.wait([empty], timeout=timeout_s)
        self._on_empty = None


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
