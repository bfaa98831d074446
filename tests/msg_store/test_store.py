"""The whole store on a real loop, real threads, a real disk and LMDB.

Tests: msg_store/archive_writer.py, msg_store/client.py
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from leveret.core.message import BODY
from leveret.msg_store.archive.archive import Retention
from leveret.msg_store.checkpoint.checkpoint import CheckpointLimits
from leveret.msg_store.drivers import StoreLimits
from leveret.msg_store.format.errors import StoreFailed, StoreLocked
from rigs.queues.owned_queue import Owned
from rigs.queues.variable_rig import UNBOUNDED, message
from rigs.store.live_store import LiveStore, files_at, opened_at
from rigs.waiting import eventually

STORE_LIMITS = StoreLimits(checkpoint=CheckpointLimits(rows=150))


def running_at(path: Path, boot_epoch: int = 1) -> LiveStore:
    return LiveStore(files_at(path, rdq_file_bytes=20_000), boot_epoch, STORE_LIMITS)


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[LiveStore]:
    running = running_at(tmp_path / "store")
    yield running
    await running.kill()
    await eventually(lambda: "leveret-end" not in {each.name for each in threading.enumerate()})
    assert [each.name for each in threading.enumerate() if each.name.startswith("leveret-")] == []


def bodies(count: int) -> list[bytes]:
    return [message(100, n)[BODY] for n in range(count)]


async def test_messages_go_to_the_disk_and_come_back_in_order(running: LiveStore) -> None:
    queue = Owned(running, 1)
    queue.queue.set_queue_mode("lazy")
    for batch in range(20):
        queue.publish(50, first=50 * batch)
    await queue.until(lambda: len(queue.safe) == 1000)

    assert await queue.fetch_all() == bodies(1000)
    assert running.store.stats().contents_read > 0


async def test_transients_are_paged_out_and_come_back_among_persistent_ones(
    running: LiveStore,
) -> None:
    queue = Owned(running, 1)
    queue.queue.set_queue_mode("lazy")
    for batch in range(20):
        queue.publish(50, persistent=bool(batch % 2), first=50 * batch)
    await queue.until(lambda: len(queue.safe) == 500)

    assert await queue.fetch_all() == bodies(1000)


async def test_a_stopped_store_goes_on_where_it_was(running: LiveStore, tmp_path: Path) -> None:
    queue = Owned(running, 1)
    queue.publish(300)
    await queue.until(lambda: len(queue.safe) == 300)
    queue.queue.fetch(100, UNBOUNDED, ack_required=True)
    queue.queue.terminate()
    await running.stop()

    again = running_at(tmp_path / "store", 2)
    assert again.opened.recovered.is_clean
    queue = Owned(again, 1, is_new=False)
    assert queue.queue.next_seq == 300
    assert await queue.fetch_all() == bodies(300)
    await again.stop()


async def test_a_killed_store_loses_nothing_that_was_confirmed(
    running: LiveStore, tmp_path: Path
) -> None:
    queue = Owned(running, 1)
    queue.publish(300)
    await queue.until(lambda: len(queue.safe) == 300)
    await running.kill()

    again = running_at(tmp_path / "store", 2)
    queue = Owned(again, 1, is_new=False)
    assert queue.queue.len() == 300
    assert queue.queue.next_seq > 300
    assert await queue.fetch_all() == bodies(300)
    await again.kill()


async def test_a_queue_is_archived_from_the_durable_end_on(running: LiveStore) -> None:
    """What a flush under way has placed is placed anew, if it fails, and readers go no further than the durable end."""
    Owned(running, 1).publish(10)
    running.core.start()

    running.store.retain((1,), "q", Retention(1))

    since = running.core.archive.queues[1].since
    assert since == running.core.durable[1:]
    assert since < running.core.rdq.reached


async def test_two_cannot_have_the_same_store(running: LiveStore, tmp_path: Path) -> None:
    with pytest.raises(StoreLocked):
        opened_at(tmp_path / "store", 2)


async def test_a_store_that_was_only_opened_can_be_let_go(
    running: LiveStore, tmp_path: Path
) -> None:
    await running.stop()

    opened_at(tmp_path / "store", 2).close()

    again = running_at(tmp_path / "store", 3)
    await again.stop()


async def test_a_failed_part_fails_the_store_and_tells_all_queues(running: LiveStore) -> None:
    failures: list[Exception] = []
    queue = Owned(running, 1)
    queue.failed = failures.append  # type: ignore[method-assign]

    running.store._part_failed(ZeroDivisionError("a bug"))
    running.store._part_failed(ZeroDivisionError("another"))

    assert len(failures) == len(running.errors) == 1
    running.store.queue_down(1)
    running.store.delete_queue(1)
    await running.stop()


async def test_a_store_that_was_ended_takes_nothing_and_holds_nothing(running: LiveStore) -> None:
    queue = Owned(running, 1)
    queue.publish(5)
    running.store.kill()

    assert not running.store.core.holds.bodies
    with pytest.raises(StoreFailed, match="closed"):
        queue.publish(1)
    queue.queue.terminate()
    await running.stop()
    running.store.kill()
    assert running.store.durable_at_failure is None
