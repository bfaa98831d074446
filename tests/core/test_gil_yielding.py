"""GIL yielding: threads get the interpreter beside a busy event loop; on a clock set by hand, and with real threads."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from leveret.core.gil_yielding import BUSY_SHARE, CHECK_S, NEVER, OVERDUE_S, SLEEP_S, GilYielding
from leveret.core.system.files import Files
from leveret.metadata.store import MetadataStore
from leveret.msg_store.format.append_log import AppendLog, Job, LogEnd, Part
from leveret.msg_store.format.ballast import Ballast
from leveret.msg_store.threads.worker import Steps, ThreadWorker
from leveret.msg_store.threads.writers import SyncTimes, WriterThreads
from rigs.waiting import eventually


class Clock:
    """A loop whose time passes by hand; ``share`` of it is spent on a processor."""

    def __init__(self) -> None:
        self.now_s = self.busy_s = 0.0
        self.share = 1.0
        self.sleeps: list[float] = []
        self._timers: list[tuple[float, int, Callable[..., Any]]] = []
        self._count = 0

    def call_later(self, delay_s: float, callback: Callable[..., Any], *args: Any) -> Clock:
        assert not args
        self._count += 1
        heapq.heappush(self._timers, (self.now_s + delay_s, self._count, callback))
        return self

    def cancel(self) -> None:
        self._timers.clear()  # there is one at most

    def _to(self, at_s: float) -> None:
        self.busy_s += self.share * (at_s - self.now_s)
        self.now_s = at_s

    def sleep(self, delay_s: float) -> None:
        self.sleeps.append(self.now_s)
        self.now_s += delay_s

    def run(self, seconds: float) -> None:
        end_s = self.now_s + seconds
        while self._timers and self._timers[0][0] <= end_s:
            at_s, _, callback = heapq.heappop(self._timers)
            self._to(max(at_s, self.now_s))
            callback()
        self._to(max(end_s, self.now_s))

    @property
    def has_timer(self) -> bool:
        return bool(self._timers)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def gil_yielding(clock: Clock) -> GilYielding:
    return GilYielding(clock, clock.sleep, lambda: clock.now_s, lambda: clock.busy_s)


def test_the_loop_sleeps_while_work_is_overdue_and_no_longer(
    clock: Clock, gil_yielding: GilYielding
) -> None:
    work = gil_yielding.submitted()
    clock.run(OVERDUE_S * 0.9)
    assert clock.sleeps == []
    clock.run(OVERDUE_S * 1.1)
    count = OVERDUE_S / (CHECK_S + SLEEP_S)
    assert count * 0.8 <= len(clock.sleeps) <= count * 1.2
    work.done()
    sleeps = len(clock.sleeps)
    clock.run(1.0)
    assert len(clock.sleeps) == sleeps
    assert not clock.has_timer


def test_work_that_is_done_in_time_costs_no_sleep(clock: Clock, gil_yielding: GilYielding) -> None:
    for _ in range(1_000):
        work = gil_yielding.submitted()
        clock.run(OVERDUE_S * 0.9)
        work.done()
    assert clock.sleeps == []


def test_work_that_is_done_in_time_does_not_hide_overdue_work(
    clock: Clock, gil_yielding: GilYielding
) -> None:
    gil_yielding.submitted()
    for _ in range(20):
        work = gil_yielding.submitted()
        clock.run(OVERDUE_S / 5)
        work.done()
    assert clock.sleeps


@pytest.mark.parametrize(("share", "sleeps"), [(BUSY_SHARE * 0.9, False), (BUSY_SHARE * 1.1, True)])
def test_a_loop_that_was_idle_does_not_sleep(
    clock: Clock, gil_yielding: GilYielding, share: float, sleeps: bool
) -> None:
    clock.share = share
    gil_yielding.submitted()
    clock.run(1.0)
    assert bool(clock.sleeps) is sleeps


def test_work_can_be_submitted_again_after_a_pause(clock: Clock, gil_yielding: GilYielding) -> None:
    gil_yielding.submitted().done()
    clock.run(1.0)
    assert not clock.has_timer
    gil_yielding.submitted()
    clock.run(1.0)
    assert clock.sleeps


def test_done_twice_does_nothing(clock: Clock, gil_yielding: GilYielding) -> None:
    work = gil_yielding.submitted()
    work.done()
    work.done()
    clock.run(1.0)
    assert clock.sleeps == []


def test_a_closed_loop_neither_sleeps_nor_sets_timers(
    clock: Clock, gil_yielding: GilYielding
) -> None:
    work = gil_yielding.submitted()
    gil_yielding.close()
    assert not clock.has_timer
    gil_yielding.submitted().done()
    work.done()
    gil_yielding.close()
    clock.run(1.0)
    assert clock.sleeps == []


def test_without_a_loop_nothing_is_noted() -> None:
    NEVER.submitted().done()


def test_with_a_short_interval_nothing_is_noted(
    clock: Clock, gil_yielding: GilYielding, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "getswitchinterval", lambda: 0.0005)
    gil_yielding.submitted()
    assert not clock.has_timer


# Real threads. Each step is a system call that releases the GIL and takes it again.

STEPS = 100


def calls() -> None:
    for _ in range(STEPS):
        time.sleep(0.0001)  # as long as a disk that is quick


def steps() -> Steps[None]:
    yield "begun"
    calls()


def on_a_worker(gil_yielding: GilYielding, done: Callable[[], None], _: Path) -> Callable[[], None]:
    worker = ThreadWorker(asyncio.get_running_loop(), "test-worker", gil_yielding=gil_yielding)
    worker.submit(steps, lambda *_: done())
    return worker.close


def on_writer_threads(
    gil_yielding: GilYielding, done: Callable[[], None], path: Path
) -> Callable[[], None]:
    """Each job creates a file, which the compiled kernel leaves to Python."""
    log = AppendLog(Files(), path, "%d", Ballast(Files(), path, 1000))
    writers = WriterThreads(asyncio.get_running_loop(), SyncTimes(time.monotonic), gil_yielding)
    ends = [LogEnd(0, 0), *(LogEnd(no, 1) for no in range(1, 21))]
    jobs = [Job(*each, [Part(each[1].file_no, b"h", ())]) for each in itertools.pairwise(ends)]

    def then(errors: Sequence[Exception]) -> None:
        assert not errors
        if jobs:
            writers.submit((), [(log, jobs.pop(0))], then)
        else:
            done()

    def close() -> None:
        writers.end()
        writers.close()
        log.close()

    then(())
    return close


def on_the_metadata_thread(
    gil_yielding: GilYielding, done: Callable[[], None], path: Path
) -> Callable[[], None]:
    deliver = asyncio.get_running_loop().call_soon_threadsafe
    store = MetadataStore(path / "metadata", deliver, gil_yielding=gil_yielding)
    left = [20]

    def then(_: object) -> None:
        left[0] -= 1
        if left[0]:
            store.write((), (), then)
        else:
            done()

    store.write((), (), then)
    return store.close


@pytest.mark.parametrize("begin", [on_a_worker, on_writer_threads, on_the_metadata_thread])
async def test_a_thread_gets_on_beside_a_loop_that_is_always_busy(
    tmp_path: Path,
    begin: Callable[[GilYielding, Callable[[], None], Path], Callable[[], None]],
) -> None:
    """Without GIL yielding each step takes half a second or so, where there are two processors."""
    is_done = threading.Event()

    async def spin() -> None:
        while True:
            sum(range(20_000))
            await asyncio.sleep(0)

    spinning = asyncio.create_task(spin())
    gil_yielding = GilYielding(asyncio.get_running_loop())
    close = begin(gil_yielding, is_done.set, tmp_path)
    try:
        await eventually(is_done.is_set)
    finally:
        spinning.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await spinning
        close()
        gil_yielding.close()
