"""Giving way: a thread that wants the interpreter gets it, though the loop never rests.

CPython hands its lock over in two ways. Who waits may ask for it after the *switch interval* (5 ms); but the
interval begins anew whenever the lock was let go meanwhile, and a loop lets go of it with every system call, for
microseconds: too short for a thread on another processor to wake up and take it. So beside a loop whose turns are
shorter than the interval, and that never rests, a thread waits for its luck: 0.3 to 0.7 s for each of its own
system calls were measured, and a flush that makes a new segment has a dozen.

``leveret serve`` sets an interval shorter than most turns. A service that embeds the broker keeps its own, so there
the loop gives way: when a thread's work is overdue and the loop has not rested, it sleeps now and then for the
time that a thread takes to wake up. While nothing is overdue this costs an entry of a set for each piece of work.

Who gives a thread something on the loop calls ``given``, and ``PendingWork.done`` follows when it is done. A broker
has one of these, however many stores.

Turned down: changing the interval while there is work, which is the service's; resting by ``sleep(0)``, which is as
short as any other system call.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

PATIENCE_S: Final = 0.01  # from when on work is overdue
LOOK_S: Final = 0.001  # between two rests
REST_S: Final = 0.0002
BUSY_SHARE: Final = 0.25  # a loop that was on a processor for less of the time has rested
INTERVAL_S: Final = 0.001  # a shorter one lets threads in by itself


class Timer(Protocol):
    """A call that has been put off."""

    def cancel(self) -> None:
        """Forget it."""


class TimerLoop(Protocol):
    """What is needed of an event loop."""

    def call_later(self, delay_s: float, callback: Callable[..., Any], *args: Any) -> Timer:
        """Call after a time."""


class PendingWork:
    """A piece of work that a thread has."""

    __slots__ = ("_way", "since_s")

    def __init__(self, way: GilYielding | None, since_s: float) -> None:
        self._way = way
        self.since_s = since_s

    def done(self) -> None:
        """Note that it is done; on any thread. A second time does nothing."""
        if self._way is not None:
            self._way.forget(self)


_NOT_NOTED: Final = PendingWork(None, 0.0)


class GilYielding:
    """Lets threads in where their loop keeps them out.

    Args:
        loop: whose threads they are; without one nothing is noted.
        rest: sleeps for some seconds.
        now_s: any clock.
        busy_s: how long the calling thread was on a processor.
    """

    def __init__(
        self,
        loop: TimerLoop | None,
        rest: Callable[[float], None] = time.sleep,
        now_s: Callable[[], float] = time.monotonic,
        busy_s: Callable[[], float] = time.thread_time,
    ) -> None:
        self._loop = loop
        self._rest = rest
        self._now_s = now_s
        self._busy_s = busy_s
        self._given: set[PendingWork] = set()
        self._timer: Timer | None = None
        self._looked_s = self._was_busy_s = 0.0

    def given(self) -> PendingWork:
        """Note that a thread is given something; on the loop."""
        if self._loop is None or sys.getswitchinterval() < INTERVAL_S:
            return _NOT_NOTED
        work = PendingWork(self, self._now_s())
        self._given.add(work)
        if self._timer is None:
            self._look_in(PATIENCE_S)
        return work

    def forget(self, work: PendingWork) -> None:
        """Note that it is done; on any thread."""
        self._given.discard(work)

    def close(self) -> None:
        """Rest no more; on the loop."""
        self._loop = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_in(self, delay_s: float) -> None:
        assert self._loop is not None, "it is closed"
        self._looked_s, self._was_busy_s = self._now_s(), self._busy_s()
        self._timer = self._loop.call_later(delay_s, self._look)

    def _look(self) -> None:
        self._timer = None
        given = list(self._given)  # at once: threads take theirs out meanwhile
        if not given:
            return
        left_s = min(work.since_s for work in given) + PATIENCE_S - self._now_s()
        if left_s <= 0 and self._is_busy():
            self._rest(REST_S)
        self._look_in(max(left_s, LOOK_S))

    def _is_busy(self) -> bool:
        passed_s = self._now_s() - self._looked_s
        return self._busy_s() - self._was_busy_s > BUSY_SHARE * passed_s


NEVER: Final = GilYielding(None)
