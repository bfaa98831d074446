"""A store never has more descriptors open than connections leave to it, whatever it does at the same time."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from leveret.core.limits import DESCRIPTORS_OF_SEGMENTS, DESCRIPTORS_OF_VHOST
from leveret.msg_store.checkpoint.checkpoint import CheckpointLimits
from leveret.msg_store.drivers import StoreLimits
from leveret.msg_store.gc.choose import ChoiceLimits
from leveret.msg_store.gc.driver import Pace
from leveret.msg_store.transient.index import Limits as TransientLimits
from rigs.store.live_store import LiveStore, files_at
from rigs.store.owned_queue import Owned

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")

OF_NOTIFIER = 2  # a pipe or an eventfd, which have no path
LIMITS = StoreLimits(
    checkpoint=CheckpointLimits(rows=150),
    choice=ChoiceLimits(file_bytes=4_000),
    pace=Pace(look_s=0.001, pause_s=0.0, grace_s=0.01),
    transient=TransientLimits(file_bytes=2_000, map_bytes=1 << 16),
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
    figures = running.store.figures()
    assert figures.segments > DESCRIPTORS_OF_SEGMENTS

    for _ in range(4):
        every_other = queue.queue.fetch(200, 1 << 40, ack_required=True).seqs[::2]
        queue.queue.ack(every_other)
    await queue.fetch_all()
    await queue.until(lambda: done and running.collecting.is_idle)
    await running.stop()

    assert done == [None]
    assert running.errors == []
    assert len(counted.most) > DESCRIPTORS_OF_SEGMENTS, sorted(counted.most)
    assert len(counted.most) + OF_NOTIFIER <= DESCRIPTORS_OF_VHOST, sorted(counted.most)
