"""The end mark on the loop: a moment behind the flushes, one write for many of them."""

from __future__ import annotations

import errno
import random

import pytest

from leveret.msg_store.end_marks import INTERVAL_S, EndMarks
from leveret.msg_store.format.end_mark import NAME, read_mark
from leveret.msg_store.format.journal_frames import DurablePosition
from rigs.store.step_loop import StepLoop
from rigs.store.store_rig import STORE, StoreRig


class Marked:
    """A store, and the loop that its mark is written by."""

    def __init__(self, rng: random.Random) -> None:
        self.rig = StoreRig(rng)
        self.loop = StepLoop(rng)
        thread = self.loop.line("leveret-read")
        self.marks = EndMarks(self.rig.core, self.rig.opened.mark, thread.submit, self.loop, STORE)

    def flush(self) -> None:
        self.rig.publish((1,))
        self.rig.run_flush()
        if not self.marks.is_due:
            self.marks.begin()

    def pass_time(self, delay_s: float) -> None:
        self.loop.clock.jump(delay_s)
        self.loop.turn()
        while self.loop.step():
            self.loop.turn()

    @property
    def durable(self) -> DurablePosition:
        found = read_mark(self.rig.folder)
        assert found is not None
        return found.durable

    @property
    def writes(self) -> int:
        return self.rig.disk.seen.get("pwrite", 0)


@pytest.fixture
def marked(rng: random.Random) -> Marked:
    return Marked(rng)


def test_many_flushes_cost_one_write(marked: Marked) -> None:
    before, writes = marked.durable, marked.writes
    for _ in range(50):
        marked.flush()
    assert marked.durable == before
    journal_writes = marked.writes - writes

    marked.pass_time(INTERVAL_S)

    assert marked.durable == marked.rig.core.durable
    assert marked.writes - writes == journal_writes + 1


def test_the_last_flush_is_marked_too_and_then_nothing_is_due(marked: Marked) -> None:
    marked.flush()
    marked.loop.clock.jump(INTERVAL_S)
    marked.flush()  # while the thread writes
    marked.pass_time(0)
    marked.pass_time(INTERVAL_S)
    assert marked.durable == marked.rig.core.durable

    marked.pass_time(INTERVAL_S)
    assert not marked.marks.is_due
    assert not marked.loop.clock.pending_count


def test_a_short_disk_delays_it(marked: Marked) -> None:
    marked.flush()
    marked.rig.disk.fail("pwrite", OSError(errno.ENOSPC, "full"), f"*{NAME}")
    marked.pass_time(INTERVAL_S)
    assert marked.durable < marked.rig.core.durable

    marked.pass_time(INTERVAL_S)
    assert marked.durable == marked.rig.core.durable


def test_after_the_end_nothing_is_written(marked: Marked) -> None:
    before = marked.durable
    marked.flush()
    marked.marks.end()
    marked.flush()
    marked.pass_time(1.0)
    assert marked.durable == before
