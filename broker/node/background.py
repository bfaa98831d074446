"""Blocking work of the node, each in a thread of its own beside the loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from leveret.core.threads import start_thread

if TYPE_CHECKING:
    from leveret.core.gil_yielding import GilYielding

T = TypeVar("T")


def start(
    gil_yielding: GilYielding,
    loop: asyncio.AbstractEventLoop,
    name: str,
    work: Callable[[], T],
    then: Callable[[T | Exception], object],
    daemon: bool = False,
) -> threading.Thread:
    """Work in a thread, then call ``then`` on the loop with the result or the exception.

    A loop that was closed meanwhile, because the broker has ended, is not called. The process waits for
    the thread unless it is a ``daemon``.

    Raises:
        OSError: the system has no room for another thread.
    """
    pending = gil_yielding.submitted()

    def run() -> None:
        result: T | Exception
        try:
            result = work()
        except Exception as error:  # noqa: BLE001  the top of a thread; ``then`` deals with it
            result = error
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(then, result)
        del result  # an error's traceback refers to this frame: a cycle
        pending.done()

    thread = threading.Thread(target=run, name=name, daemon=daemon)
    try:
        start_thread(thread)
    except OSError:
        pending.done()
        raise
    return thread


async def in_thread(gil_yielding: GilYielding, name: str, work: Callable[[], object]) -> None:
    """Work in a thread and wait for its end, also when cancelled meanwhile; raise its exception."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[object] = loop.create_future()
    start(gil_yielding, loop, name, work, done.set_result)
    cancelled: asyncio.CancelledError | None = None
    while not done.done():
        try:
            await asyncio.shield(done)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    if isinstance(failure := done.result(), Exception):
        raise failure
