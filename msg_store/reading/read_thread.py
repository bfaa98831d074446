"""The reader thread as the parts of the store that read see it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeVar

from leveret.msg_store.threads.worker import Steps, Worker

Result = TypeVar("Result")


class Background(Protocol):
    """Something that does work beside the loop, in order."""

    def do(self, work: Callable[[], Result], then: Callable[[Result], None]) -> None:
        """Do the work, then call ``then`` with the result on the loop."""


class ReadThread:
    """``Background`` on a worker: one, so that reads stand in line and descriptors need no lock.

    Args:
        worker: does the work.
        on_error: gets what work raised, on the loop; its ``then`` is not called.
    """

    def __init__(self, worker: Worker, on_error: Callable[[Exception], None]) -> None:
        self._worker = worker
        self._on_error = on_error
        self._is_closed = False

    def do(self, work: Callable[[], Result], then: Callable[[Result], None]) -> None:
        """Do the work, then call ``then`` with the result on the loop."""
        if not self._is_closed:
            self._worker.do(partial(_steps, work), partial(self._back, then))

    def _back(self, then: Callable[[Any], None], result: Any, error: Exception | None) -> None:
        if self._is_closed:
            return
        if error is not None:
            self._on_error(error)
        else:
            then(result)

    def end(self) -> None:
        """Take nothing any more, and let nothing come back."""
        self._is_closed = True

    def close(self) -> None:
        """End, the worker as well. Blocks until it has done what it was given."""
        self.end()
        self._worker.close()


def _steps(work: Callable[[], Result]) -> Steps[Result]:
    yield "reading"
    return work()
