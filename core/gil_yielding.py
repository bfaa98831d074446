"""GIL yielding: worker threads get the interpreter although the event loop is always busy.

CPython hands its lock over in two ways. A waiting thread may request it after the *switch interval* (5 ms), but the
interval starts again each time the lock is released meanwhile, and an event loop releases it with every system
call, for microseconds: too short for a thread on another processor to wake up and take it. Beside a loop that is
always busy, with turns shorter than the interval, a thread waited 0.3 to 0.7 s (measured) after each of its own
system calls; a flush that creates a new segment makes a dozen.

``leveret serve`` sets an interval shorter than most turns. A service that embeds the broker keeps its own interval,
so there the loop yields: while a job of a thread is overdue and the loop has not been idle, the loop sleeps now and
then for the time that a thread needs to wake up. While no job is overdue this costs a set entry for each job.

Submitting a job to a thread goes with a call of ``submitted`` on the loop; ``PendingWork.done`` follows when the job
is done. A broker has one ``GilYielding``, however many stores.

Turned down: changing the interval while jobs are pending (it belongs to the service); ``sleep(0)``, which is as
short as any other system call.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Final

from leveret.core.clock import TimerHandle, TimerLoop

OVERDUE_S: Final = 0.01  # a job older than this is overdue
CHECK_S: Final = 0.001  # between two sleeps
SLEEP_S: Final = 0.0002
BUSY_SHARE: Final = 0.25  # a loop that was on a processor for a smaller share of the time was idle
SWITCH_INTERVAL_S: Final = 0.001  # with a shorter switch interval yielding is not needed


class PendingWork:
    """A job that was submitted to a thread."""

    __slots__ = ("_gil_yielding", "since_s")

    def __init__(self, gil_yielding: GilYielding | None, since_s: float) -> None:
        self._gil_yielding = gil_yielding
        self.since_s = since_s

    def done(self) -> None:
        """Mark the job as done; on any thread. A second call does nothing."""
        if self._gil_yielding is not None:
            self._gil_yielding.forget(self)


_UNTRACKED: Final = PendingWork(None, 0.0)


class GilYielding:
    """Makes an event loop sleep briefly while jobs of its threads are overdue.

    Args:
        loop: submits the jobs; without a loop no job is tracked.
        sleep: blocks for some seconds.
        now_s: a monotonic clock.
        busy_s: CPU time of the calling thread.
    """

    def __init__(
        self,
        loop: TimerLoop | None,
        sleep: Callable[[float], None] = time.sleep,
        now_s: Callable[[], float] = time.monotonic,
        busy_s: Callable[[], float] = time.thread_time,
    ) -> None:
        self._loop = loop
        self._sleep = sleep
        self._now_s = now_s
        self._busy_s = busy_s
        self._pending: set[PendingWork] = set()
        self._timer: TimerHandle | None = None
        self._checked_s = self._checked_busy_s = 0.0

    def submitted(self) -> PendingWork:
        """Track a job that is submitted to a thread; on the loop."""
        if self._loop is None or sys.getswitchinterval() < SWITCH_INTERVAL_S:
            return _UNTRACKED
        work = PendingWork(self, self._now_s())
        self._pending.add(work)
        if self._timer is None:
            self._check_in(OVERDUE_S)
        return work

    def forget(self, work: PendingWork) -> None:
        """Stop tracking a job; on any thread."""
        self._pending.discard(work)

    def close(self) -> None:
        """Stop yielding; on the loop."""
        self._loop = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check_in(self, delay_s: float) -> None:
        assert self._loop is not None, "GIL yielding is closed"
        self._checked_s, self._checked_busy_s = self._now_s(), self._busy_s()
        self._timer = self._loop.call_later(delay_s, self._check)

    def _check(self) -> None:
        self._timer = None
        pending = list(self._pending)  # a copy in one step: threads remove their jobs meanwhile
        if not pending:
            return
        left_s = min(work.since_s for work in pending) + OVERDUE_S - self._now_s()
        if left_s <= 0 and self._is_busy():
            self._sleep(SLEEP_S)
        self._check_in(max(left_s, CHECK_S))

    def _is_busy(self) -> bool:
        passed_s = self._now_s() - self._checked_s
        return self._busy_s() - self._checked_busy_s > BUSY_SHARE * passed_s


NEVER: Final = GilYielding(None)
