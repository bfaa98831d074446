"""The reader thread as the parts of the store that read see it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeVar

from leveret.msg_store.threads.worker import Worker, as_steps

Result = TypeVar("Result")


class Background(Protocol):
    """A thread that does one read after the other."""

    def submit(
        self, work: Callable[[], Result], then: Callable[[Result], None] | None = None
    ) -> None:
        """Do the work, then call ``then`` with its result on the loop."""


class ReadThread:
    """``Background`` on a worker: a single one, so that descriptors need no lock.

    Args:
        worker: does the work.
        on_error: gets what work raised, on the loop, instead of ``then``.
    """

    def __init__(self, worker: Worker, on_error: Callable[[Exception], None]) -> None:
        self._worker = worker
        self._on_error = on_error
        self._is_closed = False

    def submit(
        self, work: Callable[[], Result], then: Callable[[Result], None] | None = None
    ) -> None:
        """Do the work, then call ``then`` with its result on the loop."""
        if not self._is_closed:
            self._worker.submit(partial(as_steps, work), partial(self._done, then))

    def _done(
        self, then: Callable[[Any], None] | None, result: Any, error: Exception | None
    ) -> None:
        if self._is_closed:
            return
        if error is not None:
            self._on_error(error)
        elif then is not None:
            then(result)

    def end(self) -> None:
        """Take nothing any more, and hand nothing back."""
        self._is_closed = True

    def close(self) -> None:
        """End, the worker as well. Blocks until it has done what was submitted."""
        self.end()
        self._worker.close()
