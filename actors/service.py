"""Service: a coroutine function as an actor, so that a supervisor can own it.

How it ends: the coroutine returns: ``normal``; an exception escapes: ``Crash``; it is cancelled:
``shutdown``. An exit signal cancels the coroutine, and the service ends with the signal's reason
when the coroutine has ended; a coroutine that swallows the cancellation is abandoned after
``stop_timeout_s``, reported and counted (``runtime.abandoned_tasks``).
"""

from __future__ import annotations

import inspect
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from leveret.actors.actor import OtpActor
from leveret.actors.runtime.actor_ref import TIMER
from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.signals import LATER, NORMAL, SHUTDOWN, Exit
from leveret.core.errors import ActorError
from leveret.core.log.loggers import logger

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine

    from leveret.actors.runtime.ref import Cell

log = logger(__name__)

_current: ContextVar[Service] = ContextVar("leveret_service")


@dataclass(slots=True)
class ServiceSpec:
    """The coroutine of a service and how it starts and stops.

    Attributes:
        body: called as ``body(service, *args)``.
        args: its arguments.
        waits_for_ready: the start is acknowledged by ``service.ready()``, not at once.
        stop_timeout_s: how long the body may take to end once it is cancelled.
    """

    body: Callable[..., Coroutine[Any, Any, object]]
    args: tuple[Any, ...] = ()
    waits_for_ready: bool = False
    stop_timeout_s: float = 5.0


class Service(OtpActor):
    """Runs the coroutine of a ``ServiceSpec``."""

    trap_exits = True

    def init(self, spec: ServiceSpec, *more: Any) -> object:
        """Start the coroutine; ``more`` arguments follow the spec's."""
        self._is_ready = not spec.waits_for_ready
        self._stop_timeout_s = spec.stop_timeout_s
        self._reason: object = None
        self._is_stopping = False
        coroutine = spec.body(self, *spec.args, *more)
        self._task = self.runtime.tasks.new_task(self.ref.cell, coroutine, _body_done)
        return None if self._is_ready else LATER

    def ready(self, value: object = None) -> None:
        """Acknowledge the start; called by the body, more than once is fine."""
        if not self._is_ready:
            self._is_ready = True
            self.started(value)

    def handle_mail(self, message: Any, sender: Ref | None) -> object:
        """Stop on exit signals."""
        if type(message) is Exit:
            if sender is self.parent or message.reason != NORMAL:
                self._stop_body(message.reason)
            return None
        if sender is TIMER:
            log.error("service swallowed its cancellation label=%s", self.ref.cell.describe())
            self.runtime.tasks.abandon(self._task)
            self.stop(self._reason)
        return super().handle_mail(message, sender)

    def _stop_body(self, reason: object) -> None:
        if not self._is_stopping:
            self._is_stopping = True
            self._reason = reason
            self._task.cancel()
            self.start_timer(self._stop_timeout_s, None)

    def finish(self, task: asyncio.Task[Any]) -> None:
        """End as the body ended."""
        if task.cancelled():
            self.stop(self._reason if self._is_stopping else SHUTDOWN)
        error = task.exception()
        if error is not None:
            raise error
        self.stop(self._reason if self._is_stopping else NORMAL)


async def plain(
    service: Service, function: Callable[..., Coroutine[Any, Any, object]], *args: Any
) -> object:
    """Run a coroutine function that does not take the service; the body of such a service."""
    _current.set(service)
    running = function(*args)
    if not inspect.isawaitable(running):
        raise ActorError(
            f"a service is a coroutine function (async def), but {function!r} has returned {running!r}"
        )
    return await running


def current_service() -> Service:
    """Return the service whose coroutine, started with ``plain``, is running.

    Raises:
        ActorError: the code runs in no service.
    """
    service = _current.get(None)
    if service is None:
        raise ActorError("this is not the coroutine of a service")
    return service


def ready(value: object = None) -> None:
    """Acknowledge the start of the service whose coroutine is running; ``value`` is for its starter."""
    current_service().ready(value)


def _body_done(cell: Cell, task: asyncio.Task[Any]) -> None:
    cell.actor.runtime.run_as(cell.ref, cell.actor.finish, task)
