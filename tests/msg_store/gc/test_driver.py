"""The collector's thread, with all others, on a real loop, a real disk and a real index."""

from __future__ import annotations

import asyncio
import errno
import random
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from leveret.core.message import BODY
from leveret.core.system.files import OsCalls
from leveret.msg_store.checkpoint.checkpoint import CheckpointLimits
from leveret.msg_store.gc import copy as collector_copy
from leveret.msg_store.gc.driver import Pace
from rigs.disk.faulty_files import FaultyCalls
from rigs.store.collector.collector_running import QUICK, Running, drawn

OFTEN = CheckpointLimits(rows=500)


Open: TypeAlias = Callable[..., Running]


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[Open]:
    """Open stores in the test's folder; whatever becomes of the test, none is left running."""
    async with AsyncExitStack() as stack:

        def running(*args: Any, **options: Any) -> Running:
            store = Running(tmp_path, *args, **options)
            stack.callback(store.kill)
            return store

        yield running
    assert [each.name for each in threading.enumerate() if each.name.startswith("leveret-")] == []


@pytest.fixture
async def store(opened: Open) -> Running:
    return opened(checkpoint=OFTEN, file_bytes=1 << 15)


async def test_ten_thousand_reads_while_segments_are_merged(
    store: Running, rng: random.Random
) -> None:
    reads = 0
    in_use: set[int] = set()

    async def reader() -> None:
        nonlocal reads
        while reads < 10_000 or store.collector.collected.moved < 200:
            some = rng.sample(sorted(set(store.rows.values()) - in_use), 50)
            reads += 50
            in_use.update(some)
            for msg_no, message in zip(some, await store.read(some), strict=True):
                assert message is not None
                assert message[BODY] == store.bodies[msg_no]
            in_use.difference_update(some)

    async def writer() -> None:
        while reads < 10_000 or store.collector.collected.moved < 200:
            store.publish(200, rng.choice([100, 1000]))
            await store.all_safe()
            if len(store.rows) > 500:
                free = {seq: no for seq, no in store.rows.items() if no not in in_use}
                store.ack(drawn(rng, free, 0.7))
            await store.all_safe()

    store.publish(500, 500)
    await store.all_safe()
    await asyncio.gather(writer(), *(reader() for _ in range(4)))

    assert store.collector.collected.removed
    assert store.contents.losses == 0


async def test_what_was_collected_is_there_after_a_stop_and_a_start(
    store: Running, opened: Open, rng: random.Random
) -> None:
    for _ in range(5):
        store.publish(400, 500)
        await store.all_safe()
        store.ack(drawn(rng, store.rows, 0.8))
        await store.all_safe()
    await store.until(lambda: store.collecting.is_idle and store.collector.collected.moved > 0)
    await store.stop()

    again = opened(2)
    again.bodies = store.bodies
    msg_nos = sorted(store.rows.values())
    assert [message and message[BODY] for message in await again.read(msg_nos)] == [
        store.bodies[no] for no in msg_nos
    ]


async def test_a_merge_that_a_shortage_holds_up_goes_on_when_writing_does(
    opened: Open, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leveret.msg_store.wal.group_commit.SHORTAGE_RETRY_S", 0.01)
    calls = FaultyCalls(OsCalls(), rng)
    store = opened(checkpoint=OFTEN, calls=calls, pace=replace(QUICK, retry_s=600.0))
    calls.fail("open", OSError(errno.ENOSPC, "injected"), "*.rdt")
    while not store.collector.collected.given_up:
        store.publish(400, 500)
        await store.all_safe()
        store.ack(drawn(rng, store.rows, 0.8))
        await store.all_safe()

    calls.fail("writev", OSError(errno.ENOSPC, "injected"), times=2)
    store.publish(1, 500)
    await store.all_safe()

    await store.until(lambda: store.collector.collected.merges > 0)


async def test_the_disk_runs_full_and_has_room_again(opened: Open, rng: random.Random) -> None:
    calls = FaultyCalls(OsCalls(), rng)
    store = opened(checkpoint=OFTEN, calls=calls)
    calls.fail("copy_range", OSError(errno.ENOSPC, "injected"), "*.rdt", times=3)
    calls.fail("writev", OSError(errno.ENOSPC, "injected"), "*.rdt", times=3)
    for _ in range(4):
        store.publish(400, 500)
        await store.all_safe()
        store.ack(drawn(rng, store.rows, 0.8))
        await store.all_safe()

    await store.until(lambda: store.collector.collected.merges > 0)

    assert store.collector.collected.given_up >= 1


async def test_closing_in_the_middle_of_a_merge_leaves_what_the_next_start_removes(
    opened: Open, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collector_copy, "PIECE_BYTES", 1000)
    monkeypatch.setattr(collector_copy, "SYNC_BYTES", 1)  # a turn per piece
    is_copying, go_on = threading.Event(), threading.Event()

    def reached(point: str) -> None:
        if point == "copied":
            is_copying.set()
            go_on.wait()

    store = opened(checkpoint=OFTEN, reached=reached)
    rdq = store.opened.folder.rdq
    for _ in range(5):
        store.publish(400, 500)
        await store.all_safe()
        store.ack(drawn(rng, store.rows, 0.7))
        await store.all_safe()
    await store.until(is_copying.is_set)
    go_on.set()
    store.kill()
    assert any(rdq.glob("*.rdt"))

    again = opened(2)
    assert not any(rdq.glob("*.rdt"))
    again.bodies = store.bodies
    msg_nos = sorted(store.rows.values())
    found = await again.read(msg_nos)
    assert [message and message[BODY] for message in found] == [store.bodies[no] for no in msg_nos]


async def test_a_store_at_rest_has_no_timer_and_no_thread_of_the_collector(store: Running) -> None:
    store.publish(10, 10)
    await store.all_safe()

    await store.until(lambda: store.collecting.is_idle)

    assert "leveret-collector" not in [each.name for each in threading.enumerate()]


async def through(store: Running, messages: int, leaves: int | None = None) -> int:
    """Send messages of 1 KiB through a queue of 5,000; return the most that lay on the disk.

    With ``leaves`` it waits now and then until so many bytes lie there at most.
    """
    most = 0
    for sent in range(0, messages, 1_000):
        store.publish(1_000, 1_000)
        if len(store.rows) > 5_000:
            store.ack(list(store.rows)[:1_000])
        await store.until(lambda: len(store.core.holds.bodies) < 2_000)
        store.bodies.clear()
        most = max(most, store.size_bytes())
        if leaves is not None and sent % 10_000 == 0:
            await store.until(lambda: store.size_bytes() <= leaves)
    return most


async def test_what_passes_through_a_shallow_queue_leaves_the_disk_again(opened: Open) -> None:
    store = opened(file_bytes=1 << 23)

    await through(store, 60_000, leaves=4 * (1 << 23))
    await store.until(lambda: store.collecting.is_idle)

    assert store.collector.collected.merges == 0
    assert store.collector.collected.removed > 3


@pytest.mark.slow
async def test_a_million_messages_through_a_shallow_queue_take_320_mb_at_most(opened: Open) -> None:
    store = opened(file_bytes=1 << 26, pace=Pace())

    assert await through(store, 1_000_000) < 320_000_000
