"""The two writer threads, on a real loop and a real disk.

Tests: msg_store/threads/writers.py
"""

from __future__ import annotations

import asyncio
import errno
import threading
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from leveret.msg_store.wal.flush import Flush
from leveret.msg_store.wal.group_commit import GroupCommit, Report
from rigs.store.flush_rig import Running
from rigs.waiting import eventually
from rigs.wire.garbage import garbage_of_block


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Running]:
    running = Running(tmp_path / "store")
    yield running
    running.close()
    assert running.calls.open_files == []
    assert [each.name for each in threading.enumerate() if each.name.startswith("leveret-")] == []


async def test_work_of_one_turn_is_one_flush_and_one_report(store: Running) -> None:
    store.publish(1, 5)
    store.publish(6, 5)

    assert await store.report() == Report(safe=[(1, 1, 10)])
    assert len(store.reports) == 1


async def test_an_ack_in_the_same_turn_saves_its_message_from_the_disk(store: Running) -> None:
    msg_no = store.publish(1)
    store.core.ack(1, [(1, msg_no)])

    assert await store.report() == Report(safe=[(1, 1, 1)])
    assert store.folder.rdq_nos() == []


async def test_work_that_nobody_waits_for_is_flushed_all_the_same(store: Running) -> None:
    store.publish(1, is_awaited=False)

    assert await store.report() == Report(safe=[(1, 1, 1)])


async def test_stopping_flushes_and_what_was_flushed_is_recovered(
    store: Running, tmp_path: Path
) -> None:
    store.publish(1, 3, is_awaited=False)
    await store.stop()
    assert store.reports == [Report(safe=[(1, 1, 3)])]

    again = Running(tmp_path / "store", 2)
    assert [row[0] for row in again.recovered.index.rows(1, 0, 99, 99)] == [1, 2, 3]
    assert not again.recovered.report.tails
    await again.stop()


async def test_stopping_an_idle_store_ends_it(store: Running) -> None:
    await store.stop()
    store.threads.close()

    assert store.reports == []


async def test_closing_with_a_flush_on_its_way_leaves_no_thread(store: Running) -> None:
    store.publish(1, 500)
    await asyncio.sleep(0)
    store.threads.close()
    store.publish(501)
    await asyncio.sleep(0)


async def test_nothing_is_heard_of_a_flush_behind_the_end(store: Running) -> None:
    store.publish(1, 500)
    await asyncio.sleep(0)
    store.threads.end()
    store.threads.close()
    await asyncio.sleep(0)

    assert store.reports == []


async def test_a_store_killed_amid_a_flush_leaves_nothing_to_the_cyclic_collector(
    tmp_path: Path,
) -> None:
    with garbage_of_block() as found:
        running = Running(tmp_path / "store")
        running.publish(1, 500)
        running.threads._start()
        await running.live.kill()
        del running

    assert found == Counter()


async def test_one_store_comes_after_the_other_on_a_loop(store: Running, tmp_path: Path) -> None:
    store.publish(1)
    await store.report()
    store.close()

    again = Running(tmp_path / "store", 2)
    again.publish(2)
    assert await again.report() == Report(safe=[(1, 2, 1)])
    again.close()


async def test_an_error_of_the_disk_is_reported_once_and_ends_the_store(store: Running) -> None:
    store.calls.fail("fdatasync", OSError(errno.EIO, "gone"), "*.jnl")
    store.publish(1)

    report = await store.report()

    assert report.error is not None
    assert "gone" in str(report.error)
    await store.stop()


async def test_a_bug_in_a_writer_is_an_error_of_the_store(store: Running) -> None:
    store.calls.fail("writev", ZeroDivisionError("a bug"), "*.rdq")
    store.publish(1)

    assert "a bug" in str((await store.report()).error)


@pytest.mark.parametrize("part", ["start", "submit", "finish"])
async def test_a_lack_of_memory_on_the_loop_is_an_error_of_the_store(
    store: Running, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError("none left")

    monkeypatch.setattr(store.threads._writers if part == "submit" else store.core, part, fail)
    store.publish(1)

    error = (await store.report()).error
    assert error is not None
    assert isinstance(error.__cause__, MemoryError)
    await store.stop()


async def test_a_full_disk_is_tried_again(store: Running) -> None:
    store.calls.fail("writev", OSError(errno.ENOSPC, "full"), "*.rdq", times=2)
    store.publish(1)

    assert await store.report() == Report(nacked=[(1, 1, 1)])
    store.core.resume()  # as the timer does after a second
    assert await store.report() == Report(safe=[(1, 1, 1)])


async def test_a_shortage_ends_also_when_all_that_waited_has_been_acked(
    store: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody may publish meanwhile, so nobody but the store itself tries again."""
    monkeypatch.setattr("leveret.msg_store.wal.group_commit.SHORTAGE_RETRY_S", 0.01)
    store.calls.fail("pwrite", OSError(errno.ENOSPC, "full"), "*.jnl", times=100)
    msg_no = store.publish(1)
    await store.report()
    assert store.core.shortage is not None
    flushes = 0
    start = store.core.start

    def counted(below: int) -> Flush:
        nonlocal flushes
        flushes += not store.core.pending_ops
        return start(below)

    monkeypatch.setattr(store.core, "start", counted)
    store.core.ack(1, [(1, msg_no)])
    await eventually(lambda: flushes > 2, within_s=5)
    store.calls.heal()

    await eventually(lambda: store.core.shortage is None, within_s=5)


async def test_stopping_on_a_full_disk_gives_up_after_a_try(store: Running) -> None:
    store.calls.fail("writev", OSError(errno.ENOSPC, "full"), "*.rdq", times=100)
    store.publish(1)

    await store.stop()

    assert store.reports[-1].nacked == [(1, 1, 1)]


async def test_stopping_while_the_disk_is_known_to_be_full_ends(store: Running) -> None:
    store.calls.fail("writev", OSError(errno.ENOSPC, "full"), "*.rdq", times=100)
    store.publish(1)
    await store.report()

    await store.stop()


async def test_stopping_on_a_full_disk_with_acks_alone_ends(store: Running) -> None:
    msg_no = store.publish(1)
    await store.report()
    store.calls.fail("pwrite", OSError(errno.ENOSPC, "full"), "*.jnl", times=100)
    store.core.ack(1, [(1, msg_no)])

    await store.stop()

    assert not store.core.is_idle


def test_the_core_is_let_go_when_it_ends(tmp_path: Path) -> None:
    async def run() -> GroupCommit:
        running = Running(tmp_path / "store")
        running.publish(1)
        await running.stop()
        return running.core

    core = asyncio.run(run())

    assert core.wake is None


async def test_an_error_of_the_receiver_does_not_hold_the_store_up(store: Running) -> None:
    loop = asyncio.get_running_loop()
    raised = asyncio.Event()
    loop.set_exception_handler(lambda *_: raised.set())
    store.threads._deliver = lambda _: 1 / 0
    store.publish(1)
    await asyncio.wait_for(raised.wait(), 30)
    store.threads._deliver = store.deliver
    store.publish(2)

    assert await store.report() == Report(safe=[(1, 2, 1)])
