"""Coroutines that run for actors, as tasks of the loop.

For actors at the edges only (``async_handlers``, services, connections), never on queue paths: each
costs a task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leveret.actors.runtime.ref import DEAD_CELL, Cell
from leveret.core.errors import ActorError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine


class Tasks:
    """The tasks of one runtime's actors.

    Attributes:
        pending: tasks and futures that a shutdown waits for.
        abandoned_count: coroutines that swallowed their cancellation.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop | None) -> None:
        self._loop = loop
        self.pending: set[asyncio.Future[Any]] = set()
        self.abandoned_count = 0

    def new_task(
        self,
        cell: Cell,
        coroutine: Coroutine[Any, Any, object],
        done: Callable[[Cell, asyncio.Task[Any]], None],
    ) -> asyncio.Task[Any]:
        """Run a coroutine for an actor; it is cancelled when the actor ends before it.

        ``done`` is called when the task has ended, unless the actor is dead by then.
        """
        if self._loop is None:
            coroutine.close()
            raise ActorError("coroutines need an event loop")
        ref = cell.ref
        task = cell.task = self._loop.create_task(coroutine)
        self.pending.add(task)

        def ended(task: asyncio.Task[Any]) -> None:
            self.pending.discard(task)
            if not task.cancelled():
                task.exception()  # seen: asyncio need not complain
            if ref.cell is not DEAD_CELL:
                ref.cell.task = None
                done(ref.cell, task)

        task.add_done_callback(ended)
        return task

    def await_at_shutdown(self, future: asyncio.Future[Any]) -> None:
        """Let ``shutdown`` wait for this, too, within its time."""
        self.pending.add(future)
        future.add_done_callback(self.pending.discard)

    def abandon(self, task: asyncio.Task[Any]) -> None:
        """Stop counting on the end of a task that does not let itself be cancelled."""
        self.pending.discard(task)
        self.abandoned_count += 1
