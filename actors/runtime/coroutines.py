"""Turns that last longer than a drain: coroutine handlers, and handlers in other threads.

For actors at the edges only (``async_handlers``), never on queue paths: each such mail costs a task, and
the actor's other mail waits until it is done. Exit signals do not wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leveret.actors.runtime.cell import BUSY, DEAD_CELL, Cell
from leveret.actors.runtime.events import Events
from leveret.actors.runtime.signals import SHUTDOWN
from leveret.core.errors import ActorError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine

    from leveret.actors.runtime.ref import Ref


class CoroutineTurns(Events):
    """Runs coroutines for actors, as tasks of the loop."""

    def run_task(self, cell: Cell, coroutine: Coroutine[Any, Any, object]) -> None:
        """Run a coroutine handler; the actor's mail waits until it is done."""
        self.hold_mail(cell)
        self.new_task(cell, coroutine, self._handler_done)

    def hold_mail(self, cell: Cell) -> None:
        """Let an actor's mail wait until ``handled``: the handler goes on elsewhere."""
        cell.state |= BUSY

    def handled(self, ref: Ref, error: BaseException | None = None) -> None:
        """Go on with an actor's mail; or end the actor, for what its handler raised elsewhere."""
        cell = ref.cell
        if cell is DEAD_CELL:
            return
        cell.state &= ~BUSY
        if error is not None:
            self._failed(cell, error)
        else:
            self._leave(cell)

    def new_task(
        self,
        cell: Cell,
        coroutine: Coroutine[Any, Any, object],
        done: Callable[[Cell, asyncio.Task[Any]], None],
    ) -> asyncio.Task[Any]:
        """Run a coroutine for an actor; it is cancelled when the actor ends before it.

        Args:
            cell: the actor's.
            coroutine: what to run.
            done: called with cell and task when it ends, unless the actor is dead by then.
        """
        if self.loop is None:
            coroutine.close()
            raise ActorError("coroutines need an event loop")
        ref = cell.ref
        task = cell.task = self.loop.create_task(coroutine)
        self._tasks.add(task)

        def ended(task: asyncio.Task[Any]) -> None:
            self._tasks.discard(task)
            if not task.cancelled():
                task.exception()  # seen: asyncio need not complain
            if ref.cell is not DEAD_CELL:
                ref.cell.task = None
                done(ref.cell, task)

        task.add_done_callback(ended)
        return task

    def await_at_shutdown(self, future: asyncio.Future[Any]) -> None:
        """Let ``shutdown`` wait for this, too, within its time."""
        self._tasks.add(future)
        future.add_done_callback(self._tasks.discard)

    def abandon(self, task: asyncio.Task[Any]) -> None:
        """Stop counting on the end of a task that does not let itself be cancelled."""
        self._tasks.discard(task)
        self.abandoned_tasks += 1

    def _handler_done(self, cell: Cell, task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            cell.state &= ~BUSY
            self.end(cell, SHUTDOWN)
        else:
            self.handled(cell.ref, task.exception())
