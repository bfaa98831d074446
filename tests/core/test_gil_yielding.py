"""Threads get the interpreter beside a loop that never rests: the rule on a clock by hand, and real threads."""

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

from leveret.core.files import Files
from leveret.core.gil_yielding import BUSY_SHARE, LOOK_S, NEVER, PATIENCE_S, REST_S, GilYielding
from leveret.metadata.store import MetadataStore
from leveret.msg_store.checkpoint.driver import IndexWorker
from leveret.msg_store.format.append_log import AppendLog, Job, Part, Place
from leveret.msg_store.format.ballast import Ballast
from leveret.msg_store.threads.sync_times import SyncTimes
from leveret.msg_store.threads.worker import Steps, ThreadWorker
from leveret.msg_store.threads.writers import WriterThreads
from rigs.waiting import eventually


class Clock:
    """A loop whose time passes by hand; ``share`` of it is spent on a processor."""

    def __init__(self) -> None:
        self.now_s = self.busy_s = 0.0
        self.share = 1.0
        self.rests: list[float] = []
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

    def rest(self, delay_s: float) -> None:
        self.rests.append(self.now_s)
        self.now_s += delay_s

    def run(self, seconds: float) -> None:
        end_s = self.now_s + seconds
        while self._timers and self._timers[0][0] <= end_s:
            at_s, _, callback = heapq.heappop(self._timers)
            self._to(max(at_s, self.now_s))
            callback()
        self._to(max(end_s, self.now_s))

    @property
    def is_waited_for(self) -> bool:
        return bool(self._timers)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def way(clock: Clock) -> GilYielding:
    return GilYielding(clock, clock.rest, lambda: clock.now_s, lambda: clock.busy_s)


def test_the_loop_rests_while_work_is_overdue_and_no_longer(clock: Clock, way: GilYielding) -> None:
    work = way.given()
    clock.run(PATIENCE_S * 0.9)
    assert clock.rests == []
    clock.run(PATIENCE_S * 1.1)
    count = PATIENCE_S / (LOOK_S + REST_S)
    assert count * 0.8 <= len(clock.rests) <= count * 1.2
    work.done()
    rests = len(clock.rests)
    clock.run(1.0)
    assert len(clock.rests) == rests
    assert not clock.is_waited_for


def test_work_that_is_done_in_time_costs_no_rest(clock: Clock, way: GilYielding) -> None:
    for _ in range(1_000):
        work = way.given()
        clock.run(PATIENCE_S * 0.9)
        work.done()
    assert clock.rests == []


def test_work_that_is_done_in_time_does_not_hide_what_is_not(
    clock: Clock, way: GilYielding
) -> None:
    way.given()
    for _ in range(20):
        work = way.given()
        clock.run(PATIENCE_S / 5)
        work.done()
    assert clock.rests


@pytest.mark.parametrize(("share", "rests"), [(BUSY_SHARE * 0.9, False), (BUSY_SHARE * 1.1, True)])
def test_a_loop_that_has_rested_does_not_rest_once_more(
    clock: Clock, way: GilYielding, share: float, rests: bool
) -> None:
    clock.share = share
    way.given()
    clock.run(1.0)
    assert bool(clock.rests) is rests


def test_work_can_be_given_again_after_a_pause(clock: Clock, way: GilYielding) -> None:
    way.given().done()
    clock.run(1.0)
    assert not clock.is_waited_for
    way.given()
    clock.run(1.0)
    assert clock.rests


def test_to_be_done_twice_does_nothing(clock: Clock, way: GilYielding) -> None:
    work = way.given()
    work.done()
    work.done()
    clock.run(1.0)
    assert clock.rests == []


def test_nothing_comes_after_the_end(clock: Clock, way: GilYielding) -> None:
    work = way.given()
    way.close()
    assert not clock.is_waited_for
    way.given().done()
    work.done()
    way.close()
    clock.run(1.0)
    assert clock.rests == []


def test_without_a_loop_nothing_is_noted() -> None:
    NEVER.given().done()


def test_with_a_short_interval_nothing_is_noted(
    clock: Clock, way: GilYielding, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "getswitchinterval", lambda: 0.0005)
    way.given()
    assert not clock.is_waited_for


# Real threads. Each step is a system call that lets go of the interpreter's lock, and wants it back.

STEPS = 100


def calls() -> None:
    for _ in range(STEPS):
        time.sleep(0.0001)  # as long as a disk that is quick


def steps() -> Steps[None]:
    yield "begun"
    calls()


def on_a_lane(way: GilYielding, done: Callable[[], None], _: Path) -> Callable[[], None]:
    def work() -> None:
        calls()
        done()

    lane = IndexWorker("test-lane", way)
    lane.do(work)
    return lane.close


def on_a_worker(way: GilYielding, done: Callable[[], None], _: Path) -> Callable[[], None]:
    worker = ThreadWorker(asyncio.get_running_loop(), "test-worker", lambda: None, way)
    worker.do(steps, lambda *_: done())
    return worker.close


def of_writers(way: GilYielding, done: Callable[[], None], path: Path) -> Callable[[], None]:
    """Each job makes a file, which is nothing that a kernel does."""
    log = AppendLog(Files(), path, "%d", Ballast(Files(), path, 1000))
    writers = WriterThreads(asyncio.get_running_loop(), SyncTimes(time.monotonic), way)
    ends = [Place(0, 0), *(Place(no, 1) for no in range(1, 21))]
    jobs = [Job(*each, [Part(each[1].file_no, b"h", ())]) for each in itertools.pairwise(ends)]

    def then(errors: Sequence[Exception]) -> None:
        assert not errors
        if jobs:
            writers.do((), [(log, jobs.pop(0))], then)
        else:
            done()

    def close() -> None:
        writers.end()
        writers.close()
        log.close()

    then(())
    return close


def in_metadata(way: GilYielding, done: Callable[[], None], path: Path) -> Callable[[], None]:
    deliver = asyncio.get_running_loop().call_soon_threadsafe
    store = MetadataStore(path / "metadata", deliver, way=way)
    left = [20]

    def then(_: object) -> None:
        left[0] -= 1
        if left[0]:
            store.write((), (), then)
        else:
            done()

    store.write((), (), then)
    return store.close


@pytest.mark.parametrize("begin", [on_a_lane, on_a_worker, of_writers, in_metadata])
async def test_a_thread_gets_on_beside_a_loop_that_never_rests(
    tmp_path: Path,
    begin: Callable[[GilYielding, Callable[[], None], Path], Callable[[], None]],
) -> None:
    """Without giving way each step takes half a second or so, where there are two processors."""
    is_done = threading.Event()

    async def spin() -> None:
        while True:
            sum(range(20_000))
            await asyncio.sleep(0)

    spinning = asyncio.create_task(spin())
    way = GilYielding(asyncio.get_running_loop())
    close = begin(way, is_done.set, tmp_path)
    try:
        await eventually(is_done.is_set)
    finally:
        spinning.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await spinning
        close()
        way.close()
