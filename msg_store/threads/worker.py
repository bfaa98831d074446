"""A worker: a thread that does one job after the other and hands each result back to the loop.

A job is a generator: it yields the name of each point that it has reached, so that tests can stop or
interleave jobs there, and returns its result.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from queue import SimpleQueue
from typing import Any, Protocol, TypeAlias, TypeVar

from leveret.core.gil_yielding import NEVER, GilYielding, PendingWork, TimerLoop

T = TypeVar("T")
Steps: TypeAlias = Generator[str, None, T]
Then: TypeAlias = Callable[[T | None, Exception | None], None]
Reached: TypeAlias = Callable[[str], None]


class Loop(TimerLoop, Protocol):
    """The event loop that owns a store: ``asyncio``'s, or one that a test drives step by step."""

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> object:
        """Call in the next turn."""

    def call_soon_threadsafe(self, callback: Callable[..., Any], *args: Any) -> object:
        """Call in the next turn; from any thread."""

    def add_reader(self, descriptor: int, callback: Callable[..., Any], *args: Any) -> object:
        """Call whenever the descriptor can be read."""

    def remove_reader(self, descriptor: int) -> object:
        """Call no more."""


class Worker(Protocol):
    """Does jobs in order."""

    def do(self, job: Callable[[], Steps[T]], then: Then[T]) -> None:
        """Do a job; ``then`` gets its result or its error on the loop."""

    def close(self) -> None:
        """End when what was given is done."""


class MakeWorker(Protocol):
    """Makes workers."""

    def __call__(self, loop: Loop, name: str, at_end: Callable[[], None]) -> Worker:
        """Make one that calls ``at_end`` when it ends."""


class ThreadWorker:
    """A worker that is a thread."""

    def __init__(
        self, loop: Loop, name: str, at_end: Callable[[], None], gil_yielding: GilYielding = NEVER
    ) -> None:
        self._gil_yielding = gil_yielding
        self._loop = loop
        self._at_end = at_end
        self._inbox: SimpleQueue[tuple[Callable[[], Steps[Any]], Then[Any], PendingWork] | None]
        self._inbox = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def do(self, job: Callable[[], Steps[T]], then: Then[T]) -> None:
        """Do a job."""
        self._inbox.put((job, then, self._gil_yielding.submitted()))

    def close(self) -> None:
        """Finish what was given, and end; a second time does nothing."""
        self._inbox.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (work := self._inbox.get()) is not None:
            job, then, pending = work
            self._loop.call_soon_threadsafe(then, *outcome(job()))
            pending.done()
            del work, job, then  # or the last job would be kept while there is none
        self._at_end()


def outcome(steps: Steps[T]) -> tuple[T | None, Exception | None]:
    """Go through a job; return its result or its error."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, None
        except Exception as error:  # noqa: BLE001  the top of a thread; the loop deals with it
            return None, error
