"""The driver of the collector: one thread for its jobs, and tasks on the loop that owns the store.

``wake`` has the collector choose segments a little later, so that a thousand flushes cost one
choice. If no message dies, no timer runs, except the timer that waits for the archive to release a segment.

A job runs in turns: it is put aside after a few megabytes and goes on after a pause, so that it
neither fills the disk's queue before a sync of the journal nor keeps the interpreter's lock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from leveret.core.clock import TimerHandle
from leveret.core.log.loggers import logger
from leveret.msg_store.gc.collector import Collector, Job, Moving, Task, Wait
from leveret.msg_store.gc.scan import TURN
from leveret.msg_store.threads.worker import Loop, MakeWorker, Reached, Steps, ThreadWorker, Worker
from leveret.msg_store.wal.group_commit import GroupCommit


@dataclass(frozen=True, slots=True)
class Pace:
    """How long the collector waits."""

    delay_s: float = 0.1  # from a ``wake`` until it chooses; a little more with very many segments
    pause_s: float = 0.01  # between two turns of a job
    grace_s: float = 1.0  # before the sources of a merge are unlinked
    retry_s: float = 10.0  # after a shortage, unless ``resume`` is called


DELAY_PER_FILE_S: Final = 20e-6  # with a terabyte of segments a choice takes some milliseconds

_PACE: Final = Pace()

log = logger(__name__)


class CollectorDriver:
    """Brings a ``Collector`` onto a loop and its jobs onto a thread, which starts with the first.

    ``failed`` is called when the collector has ended with an error, a damaged index or a bug, after which the
    store must be restarted.
    """

    def __init__(
        self,
        core: Collector,
        commit: GroupCommit,
        loop: Loop,
        failed: Callable[[Exception], None],
        reached: Reached | None = None,
        make_worker: MakeWorker = ThreadWorker,
        pace: Pace = _PACE,
    ) -> None:
        self._core = core
        self._loop = loop
        self._failed = failed
        self._reached = reached
        self._make_worker = make_worker
        self._pace = pace
        self._memtables = commit.memtables
        self._worker: Worker | None = None
        self._tasks: set[Task] = set()
        self._jobs: dict[Task, Steps[None]] = {}
        self._timer: TimerHandle | None = None
        self._end_timer: TimerHandle | None = None  # when the archive lets a segment go
        self._retries: dict[Task, TimerHandle] = {}  # tasks that a shortage holds up
        self._is_closed = False
        commit.index_listeners.append(self.wake)
        self.wake()

    def wake(self) -> None:
        """Begin the tasks that are due, soon; to be called after acks, checkpoints and unpinning."""
        if self._timer is None and not self._is_closed:
            delay_s = self._pace.delay_s + len(self._memtables.files) * DELAY_PER_FILE_S
            self._timer = self._loop.call_later(delay_s, self._begin_tasks)

    def resume(self) -> None:
        """Retry tasks that a shortage holds up: it may have ended."""
        for task, timer in list(self._retries.items()):
            timer.cancel()
            self._retry(task)

    @property
    def is_idle(self) -> bool:
        return self._timer is None and not self._tasks

    def end(self) -> None:
        """Begin nothing any more; the turn of a job that was begun is completed."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._end_timer is not None:
            self._end_timer.cancel()
            self._end_timer = None
        for timer in self._retries.values():
            timer.cancel()
        self._retries.clear()

    def close(self) -> None:
        """End, the thread as well. Blocks for the turn of a job that is running; after ``end``, on any thread.

        Unfinished copies stay as a crash would leave them, and the next start removes them.
        """
        self.end()
        if self._worker is not None:
            self._worker.close()
            self._worker = None
        for steps in self._jobs.values():
            steps.close()
        for task in self._tasks:
            task.close()
        self._jobs.clear()
        self._tasks.clear()

    def closed(self) -> None:
        """After ``close``, on the loop: forget the store."""
        self._failed = _unheard

    # On the loop.

    def _begin_tasks(self) -> None:
        self._timer = None
        while (task := self._core.next_task()) is not None:
            self._tasks.add(task)
            self._advance(task)
        self._wake_at_end()

    def _wake_at_end(self) -> None:
        """Wake when the archive lets a segment go."""
        if self._end_timer is not None:
            self._end_timer.cancel()
            self._end_timer = None
        end_s = self._core.next_end_s()
        if end_s is not None and not self._is_closed:
            self._end_timer = self._loop.call_later(end_s, self.wake)

    def _advance(self, task: Task, error: Exception | None = None) -> None:
        if self._is_closed:
            return
        try:
            wait = next(task) if error is None else task.throw(error)
        except StopIteration:
            self._tasks.discard(task)
            self.wake()
            return
        except Exception as cause:  # noqa: BLE001  it is for the owner of the store to decide
            self._tasks.discard(task)
            self.end()
            self._failed(cause)
            return
        self._handle(wait, task)

    def _handle(self, wait: Job | Moving | Wait, task: Task) -> None:
        if isinstance(wait, Job):
            self._jobs[task] = wait.steps
            self._give(task)
        elif isinstance(wait, Moving):
            wait.when_done(lambda: self._loop.call_soon(self._advance, task))
        elif wait is Wait.RETRY:
            self._retries[task] = self._loop.call_later(self._pace.retry_s, self._retry, task)
        else:
            delay_s = self._pace.grace_s if wait is Wait.GRACE else 0.0
            self._loop.call_later(delay_s, self._advance, task)

    def _retry(self, task: Task) -> None:
        del self._retries[task]
        self._advance(task)

    def _give(self, task: Task) -> None:
        """Have the thread do a turn of the task's job."""
        if self._is_closed:
            return
        if self._worker is None:
            make = self._make_worker
            try:
                self._worker = make(self._loop, "leveret-collector", reached=self._reached)
            except OSError as error:  # no thread can be started
                log.warning("segments are not merged now error=%s", error)
                self._loop.call_later(self._pace.retry_s, self._give, task)
                return
        self._worker.submit(partial(_turn, self._jobs[task]), partial(self._turned, task))

    def _turned(self, task: Task, is_over: bool | None, error: Exception | None) -> None:
        if self._is_closed:
            return
        if is_over or error is not None:
            del self._jobs[task]
            self._advance(task, error)
        else:
            self._loop.call_later(self._pace.pause_s, self._give, task)


def _turn(steps: Steps[None]) -> Steps[bool]:
    """Go on with a job up to where it may be put aside; return whether it is over."""
    for point in steps:
        yield point
        if point == TURN:
            return False
    return True


def _unheard(error: Exception) -> None:
    """The store has ended."""
