"""Threads for the handlers of plain Thespian actors, which may block.

An actor gets its thread with its first job and keeps it for life, so that an sqlite3 connection or
thread-local state stays right. It has the thread to itself while there are no more than
``threads_max`` actors; later actors share the threads with the fewest actors.

Threads are made when they are needed and kept for the actors to come. They are daemons: Python does
not wait at its end for a handler that never returns. An actor that is killed leaves when the handler
under way has returned, and only then the thread counts as free.
"""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, Final

from leveret.core.errors import ActorError

if TYPE_CHECKING:
    from collections.abc import Callable

ACTOR_THREADS: Final = 128


class ActorThread:
    """One thread, for one actor or several; jobs are done in the order given, and must not raise.

    Attributes:
        actor_count: actors that have it.
        turn_count: turns that it was given and that have not ended, as counted on the loop.
    """

    def __init__(self, pool: ActorThreads) -> None:
        self._pool = pool
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.actor_count = 0
        self.turn_count = 0
        self._thread = threading.Thread(target=self._run, name="leveret-actor", daemon=True)
        self._thread.start()

    def do(self, job: Callable[[], None]) -> None:
        self._jobs.put(job)

    def leave(self) -> None:
        """Count one actor less when its jobs are done."""
        self._jobs.put(lambda: self._pool.left(self))

    def end(self) -> None:
        """Let the thread end when its jobs are done."""
        self._jobs.put(None)

    @property
    def is_current(self) -> bool:
        return threading.current_thread() is self._thread

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            del job  # or it would keep the last message while it waits


class ActorThreads:
    """The threads of one system.

    Args:
        threads_max: how many there may be; 0: none, actors run on the loop.

    Raises:
        ActorError: ``threads_max`` is not an integer from 0 on.
    """

    def __init__(self, threads_max: int) -> None:
        if not isinstance(threads_max, int) or threads_max < 0:
            raise ActorError(f"Actor Threads is {threads_max!r}, must be an integer from 0 on")
        self._threads_max = threads_max
        self._threads: list[ActorThread] = []
        self._is_closed = False
        self._lock = threading.Lock()

    def enter(self) -> ActorThread | None:
        """Return a thread for one more actor, which must ``leave`` it; None if there are none."""
        if not self._threads_max:
            return None
        with self._lock:
            thread = min(self._threads, key=lambda thread: thread.actor_count, default=None)
            if thread is None or (thread.actor_count and len(self._threads) < self._threads_max):
                thread = ActorThread(self)
                self._threads.append(thread)
            thread.actor_count += 1
            return thread

    def left(self, thread: ActorThread) -> None:
        """Note that an actor is done with a thread."""
        with self._lock:
            thread.actor_count -= 1
            self._end_idle()

    def close(self) -> None:
        """Let each thread end when its actors have left it."""
        with self._lock:
            self._is_closed = True
            self._end_idle()

    def has_current(self) -> bool:
        with self._lock:
            return any(thread.is_current for thread in self._threads)

    def _end_idle(self) -> None:
        if self._is_closed:
            for thread in self._threads:
                if not thread.actor_count:
                    thread.end()
            self._threads = [thread for thread in self._threads if thread.actor_count]
