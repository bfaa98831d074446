"""A store never has more descriptors open than connections leave to it, whatever it does at the same time."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import resource
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from leveret.core.limits import DESCRIPTORS_OF_SEGMENTS, DESCRIPTORS_OF_VHOST
from leveret.msg_store.checkpoint.checkpoint import CheckpointLimits
from leveret.msg_store.drivers import StoreLimits
from leveret.msg_store.gc.choose import ChoiceLimits
from leveret.msg_store.gc.driver import Pace
from leveret.msg_store.transient.paging_core import Limits as TransientLimits
from leveret.msg_store.wal.group_commit import Report
from rigs.queues.owned_queue import Owned
from rigs.store.live_store import LiveStore, files_at
from rigs.waiting import eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")

OF_NOTIFIER = 2  # a pipe or an eventfd, which have no path
LIMITS = StoreLimits(
    checkpoint=CheckpointLimits(rows=150),
    choice=ChoiceLimits(file_bytes=4_000),
    pace=Pace(delay_s=0.001, pause_s=0.0, grace_s=0.01),
    transient=TransientLimits(file_bytes=2_000),
)


class Counted:
    """Counts the descriptors below a folder at every point of a store's jobs."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self.most: list[str] = []

    def look(self, _: object = None) -> None:
        found = []
        for name in os.listdir("/proc/self/fd"):
            try:
                path = os.readlink(f"/proc/self/fd/{name}")
            except OSError:  # closed meanwhile
                continue
            if path.startswith(self._folder):
                found.append(path.removeprefix(self._folder))
        if len(found) > len(self.most):
            self.most = found


async def test_a_store_under_load_keeps_to_its_descriptors(tmp_path: Path) -> None:
    counted = Counted(tmp_path)
    where = files_at(tmp_path / "store", rdq_file_bytes=4_000)
    running = LiveStore(where, 1, LIMITS, counted.look, counted.look)
    queue = Owned(running, 1)
    queue.queue.set_queue_mode("lazy")
    done: list[Exception | None] = []
    for batch in range(60):
        queue.publish(40, persistent=bool(batch % 3), first=40 * batch)
        if batch == 30:
            running.store.snapshot(tmp_path / "snapshot", done.append)
    await queue.until(lambda: len(queue.safe) == 1600)
    stats = running.store.stats()
    assert stats.segments > DESCRIPTORS_OF_SEGMENTS

    for _ in range(4):
        every_other = queue.queue.fetch(200, 1 << 40, ack_required=True).seqs[::2]
        queue.queue.ack(every_other)
    await queue.fetch_all()
    await eventually(lambda: done and running.collecting.is_idle)
    await running.stop()

    assert done == [None]
    assert running.errors == []
    assert len(counted.most) > DESCRIPTORS_OF_SEGMENTS, sorted(counted.most)
    assert len(counted.most) + OF_NOTIFIER <= DESCRIPTORS_OF_VHOST, sorted(counted.most)


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Have every call that makes a descriptor fail (EMFILE), in all threads of this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_segment_that_cannot_be_begun_for_lack_of_descriptors_is_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    reports: list[Report] = []
    where = files_at(tmp_path / "store", rdq_file_bytes=4_000)
    running = LiveStore(where, 1, LIMITS, reports.append)
    queue = Owned(running, 1)
    queue.nacked = lambda runs: None  # type: ignore[method-assign]
    queue.publish(100)
    await queue.until(lambda: len(queue.safe) == 100)

    with no_descriptors():
        queue.publish(100, first=100)
        await eventually(lambda: sum(bool(report.nacked) for report in reports) == 2)
        assert running.store.is_short
        assert running.store.stats().shortage == "EMFILE"
    await queue.until(lambda: len(queue.safe) == 200)
    await eventually(lambda: not running.store.is_short)

    assert running.errors == []
    lines = [text for text in caplog.messages if "part=writing" in text]
    assert [text.split(" part=")[0] for text in lines] == [
        "store short of a resource, tries again",
        "store resumed",
    ]
    assert "reason=EMFILE" in lines[0]
    await running.stop()


@pytest.mark.parametrize("threads", range(7))
async def test_a_store_whose_threads_cannot_be_started_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    before = {*threading.enumerate()}
    open_before = len(os.listdir("/proc/self/fd"))
    start, left = threading.Thread.start, [threads]

    def started(thread: threading.Thread) -> None:
        if not left[0]:
            raise RuntimeError("can't start new thread")
        left[0] -= 1
        start(thread)

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", started)
        with pytest.raises(OSError, match="new thread"):
            LiveStore(files_at(tmp_path / "store"), 1)
    await asyncio.sleep(0)

    assert {*threading.enumerate()} == before
    assert len(os.listdir("/proc/self/fd")) == open_before
    again = LiveStore(files_at(tmp_path / "store"), 2)
    await again.stop()


async def test_a_store_that_ends_waits_for_the_thread_that_closes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leveret.msg_store.store.END_RETRY_S", 0.01)
    running = LiveStore(files_at(tmp_path / "store"), 1)
    make, left = running.store._make_worker, [2]

    def made(*args: Any) -> Any:
        left[0] -= 1
        if left[0] >= 0:
            raise OSError(errno.EAGAIN, "can't start new thread")
        return make(*args)

    monkeypatch.setattr(running.store, "_make_worker", made)

    await running.kill()

    again = LiveStore(files_at(tmp_path / "store"), 2)
    await again.stop()
