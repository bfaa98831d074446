"""A worker on a thread: order, results, errors, its end."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

import pytest

from leveret.msg_store.threads.worker import Steps, ThreadWorker, as_steps


def steps(result: int, *points: str) -> Steps[int]:
    yield from points
    return result


def fails() -> Steps[int]:
    yield "begun"
    raise OSError("the disk is gone")


async def test_jobs_run_in_order_and_results_come_back_on_the_loop() -> None:
    outcomes: list[tuple[int | None, Exception | None]] = []
    points: list[str] = []
    home = threading.get_ident()

    def then(result: int | None, error: Exception | None) -> None:
        assert threading.get_ident() == home
        outcomes.append((result, error))

    worker = ThreadWorker(asyncio.get_running_loop(), "test-worker", reached=points.append)
    worker.submit(partial(steps, 1, "a", "b"), then)
    worker.submit(partial(as_steps, lambda: 2), then)
    worker.close()
    await asyncio.sleep(0)

    assert outcomes == [(1, None), (2, None)]
    assert points == ["a", "b", "begun"]


async def test_an_error_reaches_the_owner_and_the_next_job_runs() -> None:
    outcomes: list[str] = []
    worker = ThreadWorker(asyncio.get_running_loop(), "test-worker")

    worker.submit(fails, lambda _, error: outcomes.append(str(error)))
    worker.submit(partial(steps, 3), lambda result, _: outcomes.append(str(result)))
    worker.close()
    await asyncio.sleep(0)

    assert outcomes == ["the disk is gone", "3"]


async def test_an_error_without_an_owner_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    worker = ThreadWorker(asyncio.get_running_loop(), "test-worker")

    worker.submit(fails)
    worker.close()

    assert 'job failed worker=test-worker error="the disk is gone"' in caplog.text


def test_a_worker_whose_loop_is_closed_still_ends_in_order() -> None:
    loop = asyncio.new_event_loop()
    gate, done = threading.Event(), list[str]()
    worker = ThreadWorker(loop, "test-worker", lambda: done.append("at_end"))

    def waits() -> None:
        gate.wait()
        done.append("job")

    worker.submit(partial(as_steps, waits), lambda *_: done.append("then"))
    worker.end()
    loop.close()
    gate.set()
    worker.close()

    assert done == ["job", "at_end"]
    worker.close()  # a second time does nothing
