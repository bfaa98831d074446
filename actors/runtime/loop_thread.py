"""A runtime on an event loop of its own, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from leveret.actors.runtime.runtime import Runtime

if TYPE_CHECKING:
    from collections.abc import Callable


class LoopThread:
    """Runs from its making until ``stop``.

    Args:
        on_end: called in the thread when the loop is closed.

    Attributes:
        runtime: the actors; use it on its loop only.
    """

    runtime: Runtime
    _over: asyncio.Event

    def __init__(self, on_end: Callable[[], None]) -> None:
        self._on_end = on_end
        self._is_ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="leveret-actors", daemon=True)
        self._thread.start()
        self._is_ready.wait()

    def _run(self) -> None:
        asyncio.run(self._live())
        self._on_end()

    async def _live(self) -> None:
        self.runtime = Runtime()
        self._over = asyncio.Event()
        self._is_ready.set()
        await self._over.wait()
        await self.runtime.shutdown()

    def stop(self, waits: bool = True) -> None:
        """End all actors, then the loop and the thread.

        ``waits`` for that, unless this is the thread. An actor that is to end cannot.
        """
        loop = self.runtime.loop
        assert loop is not None
        with suppress(RuntimeError):  # it is closed already
            loop.call_soon_threadsafe(self._over.set)
        if waits and threading.current_thread() is not self._thread:
            self._thread.join()
