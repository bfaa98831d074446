"""The thread that reads for a loop: work goes in, results come back as calls on the loop.

One thread, so that reads stand in the order of the disk's queue and descriptors need no lock. Work is
a batch, and costs one ``call_soon_threadsafe``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Protocol, TypeAlias, TypeVar

from leveret.msg_store.flush_threads import Loop

Result = TypeVar("Result")
Work: TypeAlias = tuple[Callable[[], Any], Callable[[Any], None]]


class Background(Protocol):
    """Something that does work beside the loop, in order."""

    def do(self, work: Callable[[], Result], then: Callable[[Result], None]) -> None:
        """Do the work, then call ``then`` with the result on the loop."""


class ReadThread:
    """Implements ``Background``.

    Args:
        loop: where all methods are called, and every ``then``.
        on_error: gets what work raised, on the loop; its ``then`` is not called.
        at_end: called on the thread when it ends.
        name: the thread's.
    """

    def __init__(
        self,
        loop: Loop,
        on_error: Callable[[Exception], None],
        at_end: Callable[[], None],
        name: str = "leveret-read",
    ) -> None:
        self._loop = loop
        self._on_error = on_error
        self._at_end = at_end
        self._inbox: SimpleQueue[Work | None] = SimpleQueue()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def do(self, work: Callable[[], Result], then: Callable[[Result], None]) -> None:
        """Do the work, then call ``then`` with the result on the loop."""
        if not self._is_closed:
            self._inbox.put((work, then))

    def close(self) -> None:
        """End; what was begun is done, nothing comes back any more. Blocks for that."""
        if self._is_closed:
            return
        self._is_closed = True
        self._inbox.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (item := self._inbox.get()) is not None and not self._is_closed:
            work, then = item
            try:
                result = work()
            except Exception as error:  # noqa: BLE001  the top of a thread; the loop deals with it
                self._loop.call_soon_threadsafe(self._back, self._on_error, error)
            else:
                self._loop.call_soon_threadsafe(self._back, then, result)
        self._at_end()

    def _back(self, then: Callable[[Any], None], result: Any) -> None:
        if not self._is_closed:
            then(result)
