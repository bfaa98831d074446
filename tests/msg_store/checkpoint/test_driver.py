"""A whole store with its LMDB and its four threads, on a real loop and a real disk.

Tests: msg_store/drivers.py
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from leveret.core.freeing import FREED_ITEMS
from leveret.msg_store.checkpoint.checkpoint import CheckpointLimits
from leveret.msg_store.checkpoint.driver import CheckpointDriver
from leveret.msg_store.drivers import StoreLimits
from leveret.msg_store.format.rows import SEQ_END, IndexDamaged
from leveret.msg_store.format.seq_range import SeqRange
from leveret.msg_store.memtable.memtable import Memtable
from leveret.msg_store.threads.worker import Loop
from leveret.msg_store.wal.group_commit import Report
from rigs.store.live_store import LiveStore, files_at
from rigs.store.store_rig import StoreRig, message

SMALL = CheckpointLimits(rows=50, journal_bytes=1 << 20, idle_rows=5)


class Running:
    """Keeps the reports of a store, and the points that its threads have reached."""

    def __init__(self, path: Path, boot_epoch: int = 1, limits: CheckpointLimits = SMALL) -> None:
        self.reports: list[Report] = []
        self.points: list[str] = []
        self.changed = asyncio.Event()
        self.loop = asyncio.get_running_loop()
        self.live = LiveStore(
            files_at(path), boot_epoch, StoreLimits(checkpoint=limits), self.deliver, self.reached
        )
        self.recovered, self.core, self.index = (
            self.live.recovered,
            self.live.core,
            self.live.index,
        )
        self.folder, self.checkpointer = self.live.folder, self.live.checkpointer
        self.core.index_listeners.append(self.changed.set)
        self.seq = self.recovered.next_no

    def deliver(self, report: Report) -> None:
        self.reports.append(report)
        self.changed.set()

    def reached(self, point: str) -> None:
        self.points.append(point)
        self.loop.call_soon_threadsafe(self.changed.set)

    def publish(self, count: int) -> None:
        first = self.core.write([message(f"m{n}") for n in range(count)], (1,))
        self.core.publish(1, self.seq, [(first + n, 0) for n in range(count)])
        self.seq += count

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                self.changed.clear()
                await self.changed.wait()

    @property
    def safe(self) -> int:
        return sum(run[2] for report in self.reports for run in report.safe)

    async def stop(self) -> None:
        await self.live.stop()

    def close(self) -> None:
        """End as a kill would, but for the threads."""
        self.live.close()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Running]:
    running = Running(tmp_path / "store")
    yield running
    running.close()
    assert [each.name for each in threading.enumerate() if each.name.startswith("leveret-")] == []


def rows(store: Running) -> list[tuple[int, int]]:
    return [row[:2] for row in store.index.rows(1, 0, SEQ_END, 1 << 20)]


async def test_many_rows_go_into_the_index_and_out_of_ram(store: Running) -> None:
    store.publish(100)
    await store.until(
        lambda: not store.core.memtables.active.weight and "committed" in store.points
    )

    assert len(rows(store)) == 100
    store.core.ack(1, rows(store))
    await store.until(lambda: store.core.memtables.committed >= 3)
    assert rows(store) == []


async def test_a_few_rows_go_into_the_index_when_it_is_quiet(store: Running) -> None:
    store.publish(6)
    await store.until(lambda: "committed" in store.points)

    assert len(rows(store)) == 6


async def test_a_clean_stop_and_a_clean_start(store: Running, tmp_path: Path) -> None:
    store.publish(120)
    store.core.close_queue(1, store.seq, store.seq - 20)
    await store.stop()
    assert store.safe == 120

    again = Running(tmp_path / "store", 2)
    assert again.recovered.is_clean
    terms = again.recovered.queues[1]
    assert (terms.messages, terms.next_deliver, terms.is_clean) == (120, store.seq - 20, True)
    await again.stop()


async def test_a_purge_of_much_is_worked_off(store: Running) -> None:
    store.publish(10_000)
    await store.until(lambda: store.safe == 10_000)
    done = asyncio.Event()
    store.core.ack_range(1, SeqRange(0, store.seq), done.set)
    await asyncio.wait_for(done.wait(), 60)
    await store.until(lambda: not store.core.pending_ops)
    await store.stop()

    assert store.core.memtables.terms[1].messages == 0


async def test_an_index_damaged_while_it_is_used_is_rebuilt_at_the_next_start(
    store: Running, tmp_path: Path
) -> None:
    store.publish(30)
    await store.until(lambda: store.safe == 30)

    def broken(*_: object) -> None:
        raise IndexDamaged("garbage")

    store.index.write = broken  # type: ignore[method-assign]
    store.checkpointer.request()
    await store.until(lambda: store.reports[-1].error is not None)
    store.close()

    again = Running(tmp_path / "store", 2)
    assert again.recovered.report.rebuilt
    assert len(rows(again)) == 30
    await again.stop()


def zeroed(path: Path) -> None:
    size_bytes = path.stat().st_size
    os.truncate(path, 0)
    os.truncate(path, size_bytes)


def garbage(path: Path) -> None:
    """Overwrite all pages in use but the two with the roots."""
    with path.open("r+b") as file:
        for at in range(2 * 4096, 1 << 17, 4096):
            file.seek(at)
            file.write(random.Random(at).randbytes(4096))


@pytest.mark.parametrize(
    "damage",
    [lambda path: path.unlink(), zeroed, lambda path: os.truncate(path, 4096), garbage],
    ids=["deleted", "zeroed", "truncated", "garbage"],
)
async def test_whatever_becomes_of_the_index_nothing_confirmed_is_lost(
    store: Running, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    for count in (60, 70, 80, 20):
        before = store.safe
        store.publish(count)
        await store.until(lambda before=before, count=count: store.safe == before + count)
        if count > 50:
            committed = store.core.memtables.committed
            await store.until(
                lambda committed=committed: store.core.memtables.committed > committed
            )
    assert min(store.folder.journal_nos()) > 1
    store.close()
    damage(tmp_path / "store" / "store.lmdb" / "data.mdb")

    again = Running(tmp_path / "store", 2)
    assert again.recovered.report.rebuilt
    assert len(rows(again)) == 230
    await again.stop()
    once_more = Running(tmp_path / "store", 3)
    assert not once_more.recovered.report.rebuilt
    assert len(rows(once_more)) == 230
    await once_more.stop()


class HandLoop:
    """A loop that is turned by hand; its callbacks and timers can be looked at."""

    def __init__(self) -> None:
        self.soon: list[Callable[..., None]] = []
        self.later: list[Callable[..., None]] = []

    def time(self) -> float:
        raise AssertionError("nobody asks for the time")

    def call_soon(self, callback: Callable[..., None], *args: object) -> None:
        self.soon.append(partial(callback, *args))

    call_soon_threadsafe = call_soon

    def call_later(self, delay_s: float, callback: Callable[..., None], *args: object) -> HandLoop:
        self.later.append(partial(callback, *args))
        return self

    def cancel(self) -> None:
        raise AssertionError("no timer is taken back")

    def turn(self) -> None:
        while self.soon:
            self.soon.pop(0)()

    def fire(self) -> None:
        self.later.pop(0)()


class NoWorker:
    """A worker that never gets to its jobs."""

    def __init__(self, loop: Loop, name: str, **_: object) -> None: ...

    def submit(self, job: object, then: object = None) -> None: ...

    def end(self) -> None: ...

    def close(self) -> None: ...


def driven(rig: StoreRig, make_worker: type[NoWorker]) -> HandLoop:
    """Drive the checkpoints of a rig; return the loop."""
    loop = HandLoop()
    CheckpointDriver(
        rig.core,
        rig.checkpointer,
        rig.location.index,
        rig.folder,
        rig.ballast,
        loop,
        rig.reports.append,
        make_worker=make_worker,
    )
    return loop


def test_a_flush_asks_for_a_turn_only_if_something_may_be_due(rng: random.Random) -> None:
    rig = StoreRig(rng, limits=CheckpointLimits(rows=20, idle_rows=5))
    loop = driven(rig, NoWorker)
    for _ in range(2):
        rig.publish((1,), 2)
        rig.run_flush()
        assert loop.soon == loop.later == []

    rig.publish((1,), 2)
    rig.run_flush()
    loop.turn()
    assert len(loop.later) == 1  # it may come to rest
    rig.publish((1,), 2)
    rig.run_flush()
    assert loop.soon == []

    loop.fire()  # something has happened meanwhile
    assert (rig.core.memtables.frozen, len(loop.later)) == ([], 1)
    loop.fire()
    assert (len(rig.core.memtables.frozen), loop.later) == (1, [])


def size(memtable: Memtable) -> int:
    return sum(map(len, memtable.containers()))


class AtOnce(NoWorker):
    """A worker that does each job when it is submitted."""

    def __init__(self, loop: Loop, name: str, **_: object) -> None:
        self._loop = loop

    def submit(self, job: Callable[[], Iterator[str]], then: Callable[..., None]) -> None:
        for _ in job():
            pass
        self._loop.call_soon(then, None, None)


def test_what_is_in_the_index_is_freed_in_slices_once_no_read_needs_it(rng: random.Random) -> None:
    rig = StoreRig(rng, limits=CheckpointLimits(rows=FREED_ITEMS))
    loop = driven(rig, AtOnce)
    rig.publish((1,), 2 * FREED_ITEMS)
    memtable = rig.core.memtables.active
    while rig.core.pending_ops:
        rig.run_flush()
    read_view = rig.core.memtables.read_view()
    before = size(memtable)
    loop.turn()
    while memtable in rig.core.memtables.frozen:
        loop.fire()
    loop.fire()

    assert size(memtable) == before > 2 * FREED_ITEMS
    assert len(read_view.rows(1, 0, SEQ_END, SEQ_END, [])) == 2 * FREED_ITEMS
    del read_view
    left = [size(memtable)]
    while loop.later:
        loop.fire()
        left.append(size(memtable))

    assert left[-1] == 0
    assert max(before - after for before, after in pairwise(left)) <= FREED_ITEMS
