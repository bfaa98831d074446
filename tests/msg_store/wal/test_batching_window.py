"""When a flush begins: at once, or where acks cancel writes, when none has come for a while."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from leveret.core.batching import FlushWindow
from leveret.msg_store.drivers import StoreLimits
from leveret.msg_store.wal.flush import SLICE_BYTES, SLICE_OPS, Flush
from leveret.msg_store.wal.group_commit import Report
from rigs.store.flush_rig import Running
from rigs.store.store_rig import message

POLICY = FlushWindow()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Running]:
    running = Running(tmp_path / "store")
    yield running
    running.close()


async def rounds(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def is_held_back(store: Running, seq: int) -> bool:
    """Publish; return whether it waits for acks, when it has been written."""
    store.publish(seq)
    await rounds(3)
    is_waiting = store.core.pending_ops == 1
    assert await store.report() == Report(safe=[(1, seq, 1)])
    return is_waiting


async def test_an_ack_that_comes_soon_saves_its_message_from_the_disk(tmp_path: Path) -> None:
    long = FlushWindow(window_s=10.0)  # the machine may be slow
    store = Running(tmp_path / "store", limits=StoreLimits(flushes=long))
    for seq in range(1, 20):
        msg_no = store.publish(seq)
        await rounds(POLICY.quiet_rounds // 2)
        store.core.ack(1, [(seq, msg_no)])

        assert await store.report() == Report(safe=[(1, seq, 1)])
    assert store.folder.rdq_nos() == []
    store.close()


async def test_without_acks_few_flushes_wait_for_them(store: Running) -> None:
    waited = [await is_held_back(store, seq) for seq in range(1, 3 * POLICY.rest_flushes)]

    assert waited[0]
    assert waited.count(True) == 3
    assert waited[: POLICY.rest_flushes + 2] == [True] + [False] * POLICY.rest_flushes + [True]


async def test_after_an_ack_that_came_soon_others_are_waited_for(store: Running) -> None:
    assert await is_held_back(store, 1)
    assert not await is_held_back(store, 2)
    for seq in range(3, 3 + POLICY.rest_flushes):
        msg_no = store.publish(seq)
        await rounds(3)
        if store.core.pending_ops:
            store.core.ack(1, [(seq, msg_no)])
            await store.report()
            break
        await store.report()

    waits = [True] * POLICY.tries + [False]
    assert [await is_held_back(store, 100 + no) for no in range(len(waits))] == waits


@pytest.mark.parametrize(("count", "size_bytes"), [(SLICE_OPS, 1), (1, SLICE_BYTES)])
async def test_what_fills_a_flush_does_not_wait(
    store: Running, count: int, size_bytes: int
) -> None:
    first = store.core.write([message("a" * size_bytes)] * count, (1,))
    store.core.publish(1, 1, [(first + index, 0) for index in range(count)])
    await rounds(3)

    assert store.core.pending_ops == 0
    assert await store.report() == Report(safe=[(1, 1, count)])


async def test_one_that_nobody_acks_is_written_whatever_comes_behind_it(store: Running) -> None:
    store.publish(1)
    async with asyncio.timeout(30):
        seq = 1
        while not store.reports:
            seq += 1
            msg_no = store.publish(seq)
            await rounds(1)
            store.core.ack(1, [(seq, msg_no)])

    assert store.reports[0].safe[0][:2] == (1, 1)
    assert store.folder.rdq_nos() == [1]


async def test_in_a_busy_loop_the_younger_ones_are_left(
    store: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushes: list[Flush] = []
    start = store.core.start

    def noted(below: int) -> Flush:
        flushes.append(start(below))
        return flushes[-1]

    monkeypatch.setattr(store.core, "start", noted)
    first = younger = store.publish(1)
    async with asyncio.timeout(30):
        seq = 1
        while not flushes:
            if younger != first:
                store.core.ack(1, [(seq, younger)])
            seq += 1
            younger = store.publish(seq)
            await rounds(1)

    assert flushes[0].batch.rows == {1: [(1, first, 0)]}
    await store.report()


async def test_acks_alone_do_not_wait_for_a_quiet_loop(store: Running) -> None:
    msg_no = store.publish(1)
    await store.report()
    store.core.ack(1, [(1, msg_no)])
    flushed = store.core.durable
    async with asyncio.timeout(30):
        seq = 1
        while store.core.durable == flushed:
            seq += 1
            msg_no = store.publish(seq)
            store.core.ack(1, [(seq, msg_no)])
            await rounds(1)

    assert store.core.memtables.active.row_count == 0


async def test_without_a_window_no_flush_waits_although_acks_come_soon(tmp_path: Path) -> None:
    store = Running(tmp_path / "at once", limits=StoreLimits(flushes=None))
    for seq in range(1, 3 * POLICY.rest_flushes):
        msg_no = store.publish(seq)
        store.core.ack(1, [(seq, msg_no)])  # is reported safe without the disk
        assert await store.report() == Report(safe=[(1, seq, 1)])

        assert not await is_held_back(store, 1000 + seq)
    store.close()
