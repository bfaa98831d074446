"""A worker: a thread that runs jobs one after the other and hands each result back to the loop.

A job is a generator: it yields the name of each point that it has reached, and returns its result. In a
broker the thread runs it from end to end. A test runs it on a line of its own (``tests/rigs``), lets
other jobs happen between two points, or kills the store there.

The two threads that write a flush are no workers (``writers``): a worker wakes up and hands back with the
interpreter's lock held, and every confirm would wait for that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Protocol, TypeAlias, TypeVar

from leveret.core.clock import TimerLoop
from leveret.core.gil_yielding import NEVER, GilYielding, PendingWork
from leveret.core.log.loggers import logger
from leveret.core.system.shortage import as_os_error
from leveret.core.threads import start_thread

log = logger(__name__)

T = TypeVar("T")
Steps: TypeAlias = Generator[str, None, T]
Then: TypeAlias = Callable[[T | None, Exception | None], None]  # the job's result, or its error
Reached: TypeAlias = Callable[[str], None]


class Loop(TimerLoop, Protocol):
    """The event loop that owns a store: ``asyncio``'s, or one that a test drives step by step."""

    def time(self) -> float: ...
    def call_soon(self, callback: Callable[..., Any], *args: Any) -> object: ...
    def call_soon_threadsafe(self, callback: Callable[..., Any], *args: Any) -> object: ...
    def add_reader(self, descriptor: int, callback: Callable[..., Any], *args: Any) -> object: ...
    def remove_reader(self, descriptor: int) -> object: ...


class Worker(Protocol):
    """Runs jobs in the order in which they were submitted."""

    def submit(self, job: Callable[[], Steps[T]], then: Then[T] | None = None) -> None:
        """Run a job, which makes its generator on the worker's thread. A ``MemoryError`` of a job is an ``OSError``.

        ``then`` is called on the loop with the result or the error. Without it an error is logged.
        """

    def end(self) -> None:
        """Take no further job, and end when the submitted ones are done."""

    def close(self) -> None:
        """End, and wait until all jobs are done. A second call does nothing."""


class MakeWorker(Protocol):
    """Starts a thread with a name; tests pass one that runs jobs when they say so."""

    def __call__(
        self,
        loop: Loop,
        name: str,
        at_end: Callable[[], None] | None = None,
        reached: Reached | None = None,
    ) -> Worker: ...


class ThreadWorker:
    """A worker that is a thread.

    Args:
        loop: gets results. One that has been closed gets none.
        at_end: called on the thread when it ends, to close what the jobs have used.
        reached: called on the thread for each point of a job.
        gil_yielding: gets jobs that have not ended.
    """

    def __init__(
        self,
        loop: Loop,
        name: str,
        at_end: Callable[[], None] | None = None,
        reached: Reached | None = None,
        gil_yielding: GilYielding = NEVER,
    ) -> None:
        self._loop = loop
        self._at_end = at_end
        self._reached = reached
        self._gil_yielding = gil_yielding
        self._inbox: SimpleQueue[
            tuple[Callable[[], Steps[Any]], Then[Any] | None, PendingWork] | None
        ] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        start_thread(self._thread)

    def submit(self, job: Callable[[], Steps[T]], then: Then[T] | None = None) -> None:
        self._inbox.put((job, then, self._gil_yielding.submitted()))

    def end(self) -> None:
        self._inbox.put(None)

    def close(self) -> None:
        self.end()
        self._thread.join()

    def _run(self) -> None:
        while (item := self._inbox.get()) is not None:
            job, then, pending = item
            result, error = self._outcome(job)
            if then is not None:
                with suppress(RuntimeError):  # the loop has been closed meanwhile
                    self._loop.call_soon_threadsafe(then, result, error)
            elif error is not None:
                log.error("job failed worker=%s error=%s", self._thread.name, error)
            pending.done()
            # A waiting thread must not keep the last job and its result.
            del item, job, then, pending, result, error
        if self._at_end is not None:
            self._at_end()
        # Both refer to the owner, which refers to this worker: a cycle.
        self._at_end = self._reached = None

    def _outcome(self, job: Callable[[], Steps[T]]) -> tuple[T | None, Exception | None]:
        steps = job()
        while True:
            try:
                point = next(steps)
                if self._reached is not None:
                    self._reached(point)
            except StopIteration as end:
                return end.value, None
            except MemoryError as error:
                return None, as_os_error(error)
            except Exception as error:  # noqa: BLE001  the top of a thread; the owner deals with it
                return None, error


def as_steps(work: Callable[[], T]) -> Steps[T]:
    """Make a job of a function; partial(as_steps, work) can be submitted."""
    yield "begun"
    return work()
