"""Backpressure: on when too much waits for the disk, off when half of it is gone."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator

import pytest

from leveret.msg_store.wal.backpressure import Backpressure, BackpressureLimits
from rigs.queues.stored_rig import StoreBench, StoredQueue, publish

FULL = OSError(errno.ENOSPC, "full")


@pytest.fixture
def bench(rng: random.Random) -> Iterator[StoreBench]:
    bench = StoreBench(rng)
    yield bench
    bench.close()


def limited(bench: StoreBench, ops: int = 1 << 30, size_bytes: int = 1 << 30) -> Backpressure:
    backpressure = bench.store.backpressure = Backpressure(
        bench.store.core, BackpressureLimits(ops, size_bytes)
    )
    return backpressure


def test_it_is_off_as_long_as_little_waits(bench: StoreBench) -> None:
    backpressure = limited(bench, ops=100)

    publish(StoredQueue(bench), 100)

    assert not backpressure.is_on


def test_too_many_operations_put_it_on_until_half_of_them_are_done(bench: StoreBench) -> None:
    backpressure, went_on = limited(bench, ops=100), []
    queue = StoredQueue(bench)
    publish(queue, 101)
    publish(queue, 1)
    assert backpressure.is_on

    backpressure.wait(lambda: went_on.append("one"))
    backpressure.update()
    assert went_on == []
    bench.run()

    assert went_on == ["one"]
    assert not backpressure.is_on


def test_too_many_bytes_put_it_on(bench: StoreBench) -> None:
    backpressure = limited(bench, size_bytes=99)

    publish(StoredQueue(bench), 10)  # of nine bytes each
    assert not backpressure.is_on
    publish(StoredQueue(bench, 2), 2)
    assert backpressure.is_on

    bench.run()
    assert bench.store.core.holds.body_bytes == 0
    assert not backpressure.is_on


def test_acked_messages_do_not_count(bench: StoreBench) -> None:
    backpressure = limited(bench, size_bytes=99)
    queue = StoredQueue(bench)

    for _ in range(20):
        publish(queue, 10)
        queue.queue.ack(queue.queue.fetch(10, 1 << 30, ack_required=True).seqs)

    assert not backpressure.is_on
    assert bench.store.core.holds.body_bytes == 0


def test_an_index_that_does_not_follow_puts_it_on(bench: StoreBench) -> None:
    backpressure = limited(bench)
    queue = StoredQueue(bench)
    for _ in range(3):
        publish(queue, 10)
        bench.store.core.hurry()
        finish_flush(bench)
        bench.store.core.rotate()
    backpressure.update()
    assert backpressure.is_on

    bench.run()

    assert not backpressure.is_on


def finish_flush(bench: StoreBench) -> None:
    """Make pending work durable without the threads."""
    core = bench.store.core
    flush = core.start()
    for log, job in ((bench.opened.rdq_log, flush.rdq), (bench.opened.journal_log, flush.journal)):
        for _ in log.run(job):
            pass
    core.finish(None, None)


def test_one_that_was_forgotten_is_not_called(bench: StoreBench) -> None:
    backpressure, went_on = limited(bench, ops=10), []
    queue = StoredQueue(bench)
    publish(queue, 20)
    publish(queue, 1)

    def resume() -> None:
        went_on.append("no")

    backpressure.wait(resume)
    backpressure.forget(resume)
    bench.run()

    assert went_on == []


@pytest.mark.parametrize("end", ["kill", "failure"])
def test_when_the_store_ends_everybody_goes_on(bench: StoreBench, end: str) -> None:
    backpressure, went_on = limited(bench, ops=10), []
    queue = StoredQueue(bench)
    publish(queue, 20)
    publish(queue, 1)
    backpressure.wait(lambda: went_on.append("yes"))

    if end == "kill":
        bench.store.kill()
    else:
        bench.disk.fail("fdatasync", OSError(errno.EIO, "gone"))
        bench.run()

    assert went_on == ["yes"]
    backpressure.update()
    assert not backpressure.is_on


def test_a_full_disk_is_told_once_and_so_is_its_end(rng: random.Random) -> None:
    bench, told = StoreBench(rng), []
    bench.store._shortage_changed = lambda: told.append(bench.store.is_short)
    queue = StoredQueue(bench)
    bench.disk.fail("writev", FULL, "*.rdq", times=8)
    publish(queue, 3)

    bench.run(jumps=30)

    assert told == [True, False]
    bench.close()
