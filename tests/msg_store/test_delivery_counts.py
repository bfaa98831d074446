"""Delivery counts on the loop: the last count of each message is written, a moment later, on another thread."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from leveret.msg_store import delivery_counts
from leveret.msg_store.delivery_counts import RETRY_S, WRITE_S, DeliveryCountLog
from leveret.msg_store.format.count_file import ALL, Count
from leveret.testing.virtual_clock import VirtualClock


class Written:
    """A file that keeps what it is given, and fails when told to."""

    def __init__(self) -> None:
        self.changes: list[list[Count]] = []
        self.error: Exception | None = None

    def write(self, changes: list[Count]) -> None:
        self.changes.append(changes)
        if self.error is not None:
            raise self.error

    def take(self) -> list[list[Count]]:
        taken, self.changes = self.changes, []
        return taken


class Bench:
    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.file = Written()
        self.jobs: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []
        counts: Any = {1: {7: 2}}
        submit = lambda work, then: self.jobs.append((work, then))  # noqa: E731
        self.log = DeliveryCountLog(self.file, counts, submit, self.clock)  # type: ignore[arg-type]

    def work(self) -> None:
        while self.jobs:
            work, then = self.jobs.pop(0)
            then(work())

    def wait(self, seconds: float = WRITE_S) -> list[list[Count]]:
        self.clock.jump(seconds)
        self.work()
        return self.file.take()


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_the_last_count_of_each_message_is_written_once(bench: Bench) -> None:
    counts = bench.log.counts(1)
    assert counts == {7: 2}
    for count in (1, 2, 3):
        counts[9] = count
        bench.log.changed(1, [9])
    del counts[7]
    bench.log.changed(1, [7])

    assert bench.wait(WRITE_S / 2) == []
    assert [sorted(changes) for changes in bench.wait()] == [[(1, 7, 0), (1, 9, 3)]]
    assert bench.wait(60) == []


def test_changes_during_a_write_wait_for_the_next(bench: Bench) -> None:
    counts = bench.log.counts(2)
    counts[1] = 1
    bench.log.changed(2, [1])
    bench.clock.jump(WRITE_S)
    counts[1] = 2
    bench.log.changed(2, [1])
    bench.clock.jump(60)
    assert len(bench.jobs) == 1

    bench.work()
    assert bench.wait(0.001) == [[(2, 1, 1)], [(2, 1, 2)]]


def test_many_changes_are_written_in_pieces(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery_counts, "WRITTEN_AT_ONCE", 3)
    bench.log.counts(1).update(dict.fromkeys(range(8), 1))
    bench.log.changed(1, range(8))

    pieces = bench.wait()
    for _ in range(5):
        pieces += bench.wait(0.001)
    assert [len(piece) for piece in pieces] == [3, 3, 2]
    written = [change for piece in pieces for change in piece]
    assert sorted(written) == [(1, seq, 1) for seq in range(8)]


def test_a_deleted_queue_is_forgotten_whole(bench: Bench) -> None:
    bench.log.forget(5)
    assert bench.wait() == []
    bench.log.forget(1)
    assert bench.wait() == [[(1, ALL, 0)]]
    assert bench.log.counts(1) == {}


def test_a_queue_that_was_purged_counts_anew(bench: Bench) -> None:
    queue = bench.log.of(1)
    queue.counts()[8] = 4
    queue.changed([7, 8])
    queue.forget()
    queue.counts()[8] = 1
    queue.changed([8])

    assert bench.wait() == [[(1, ALL, 0), (1, 8, 1)]]


def test_an_error_is_told_once_and_tried_again(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "leveret")
    bench.file.error = OSError(28, "full")
    bench.log.changed(1, [7])
    assert bench.wait() == [[(1, 7, 2)]]
    assert bench.wait(RETRY_S) == [[]]
    bench.file.error = MemoryError()
    assert bench.wait(RETRY_S) == [[]]
    bench.file.error = None
    assert bench.wait(RETRY_S) == [[]]
    assert bench.wait(60) == []
    assert [each.getMessage() for each in caplog.records] == [
        'delivery counts not written yet error="[Errno 28] full"'
    ]


def test_the_end_writes_what_is_left(bench: Bench) -> None:
    bench.log.changed(1, [7])

    bench.log.end()

    bench.work()
    assert bench.file.take() == [[(1, 7, 2)]]
