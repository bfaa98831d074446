"""Deletions that a crash cut in two, and definitions that were lost: nothing stays for ever.

The crash is made by taking rows out of the metadata of a broker that has ended.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from chaos.rig import Chaos
from conformance.raw import Channel, Connection
from leveret.broker.node import maintenance, orphans
from leveret.broker.node.maintenance import Maintenance
from leveret.broker.node.store_server import store_folder
from leveret.broker.queue.supervisor import RESTARTS_MAX
from leveret.core.addresses import Address
from leveret.management.node_admin import NodeAdmin
from leveret.metadata.store import MetadataStore
from leveret.metadata.tables import BindingRow, DeletedQueueRow, QueueRow, Row, VhostRow
from leveret.msg_store.format.ballast import BALLAST_BYTES
from leveret.msg_store.format.file_header import HEADER_BYTES
from leveret.msg_store.store import MsgStore
from leveret.msg_store.wal.group_commit import SLICE_ROWS
from leveret.server.broker import Broker
from leveret.server.config.config import Config
from leveret.testing.manual_clock import ManualClock
from rigs.waiting import eventually

WEEK_S = orphans.KEPT_MS / 1000
in_thread = asyncio.to_thread


class WallClock(ManualClock):
    """A clock whose wall time can be changed."""

    def __init__(self) -> None:
        super().__init__(asyncio.get_running_loop())
        self.ahead_s = 0.0

    def wall_s(self) -> float:
        return super().wall_s() + self.ahead_s


class Node:
    """A running broker and what tests do to it."""

    def __init__(self, broker: Broker, clock: WallClock) -> None:
        self.broker = broker
        self.clock = clock
        self.chaos = Chaos(broker, clock)

    def store(self, vhost: str = "/") -> MsgStore:
        store = self.broker.node.vhosts[vhost].store.msg_store
        assert store is not None
        return store

    def filled(self, vhost: str = "/") -> set[int]:
        """Return the numbers of the queues that have messages in the store."""
        return {no for no, count in self.store(vhost).message_counts().items() if count}

    async def add_vhost(self, vhost: str) -> None:
        admin = NodeAdmin(self.broker)
        await admin.vhosts.add_vhost(vhost)
        await admin.users.set_permissions(vhost, "guest", ".*", ".*", ".*")

    async def look(self) -> None:
        """Let maintenance look, and wait until it is done."""
        ref = self.chaos.find("infra", "maintenance")
        actor = ref.cell.actor
        self.broker.runtime.run_as(ref, actor.check_disk)
        await eventually(lambda: actor._thread is None)

    async def use(self, work: Callable[[Channel], None], vhost: str = "/") -> None:
        """Do something with a channel."""

        def run() -> None:
            connection = Connection(self.broker.addresses[0])
            try:
                assert connection.open(vhost=vhost).name == "connection.open-ok"
                work(connection.channel())
            finally:
                connection.drop()

        await in_thread(run)


@asynccontextmanager
async def running(data: Path, ahead_s: float = 0.0) -> AsyncIterator[Node]:
    clock = WallClock()
    clock.ahead_s = ahead_s
    config = Config(listen=(Address("127.0.0.1", 0),), data_dir=data)
    async with Broker(config, clock) as broker:
        yield Node(broker, clock)


def fill(*queues: str, priorities: int = 0) -> Callable[[Channel], None]:
    arguments = {"x-max-priority": priorities} if priorities else {}

    def work(channel: Channel) -> None:
        channel.ok("confirm.select")
        for queue in queues:
            channel.ok("queue.declare", queue=queue, durable=True, arguments=arguments)
            for number in range(20):
                channel.publish(queue, f"{queue} {number}", delivery_mode=2, priority=number % 4)
        channel.read_confirms(set(range(1, 20 * len(queues) + 1)))

    return work


def holds(queue: str, count: int) -> Callable[[Channel], None]:
    def work(channel: Channel) -> None:
        assert channel.ok("queue.declare", queue=queue, durable=True).message_count == count

    return work


def in_memory_with_priorities(channel: Channel) -> None:
    channel.ok("queue.declare", queue="memory", arguments={"x-max-priority": 255})


async def lose(data: Path, *rows: Row, puts: Sequence[Row] = ()) -> None:
    """Take rows out of the metadata of a broker that has ended, and put others in."""
    loop = asyncio.get_running_loop()
    store = MetadataStore(data / "metadata", loop.call_soon_threadsafe)
    done: asyncio.Future[object] = loop.create_future()
    store.write(puts, rows, done.set_result)
    assert await done is None
    store.close()


async def test_messages_of_a_queue_that_is_not_defined_go_after_a_week(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.use(fill("q", "other"))
        await node.use(fill("p", priorities=3))
        await node.look()
        assert len(node.filled()) == 6
    await lose(tmp_path, QueueRow("/", "q"), QueueRow("/", "p"))

    async with running(tmp_path) as node:
        await node.use(in_memory_with_priorities)  # which has no numbers in the store
        await node.look()
        assert len(node.filled()) == 6
        assert len(list(store_folder(tmp_path, "/").glob(orphans.LIST))) == 1
        await node.use(holds("q", 0))  # another queue of the same name sees nothing of it
        await node.use(fill("q"))
    async with running(tmp_path, WEEK_S - 60) as node:
        await node.look()
        assert len(node.filled()) == 7
        node.clock.ahead_s = WEEK_S
        await node.look()
        await eventually(lambda: len(node.filled()) == 2)
        await node.look()
        assert not list(store_folder(tmp_path, "/").glob(orphans.LIST))
        await node.use(holds("q", 20))
        await node.use(holds("other", 20))


async def test_messages_of_a_queue_whose_deletion_was_cut_off_go_at_once(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.use(fill("q"))
        (queue_no,) = node.filled()
    # As after kill -9 between the deletion of the definition and that of the messages.
    await lose(tmp_path, QueueRow("/", "q"), puts=[DeletedQueueRow(queue_no)])

    async with running(tmp_path) as node:
        await node.use(holds("q", 0))
        await node.look()
        await eventually(lambda: not node.filled())
        assert not list(store_folder(tmp_path, "/").glob(orphans.LIST))
        assert node.broker.node.metadata.deleted_queues == {queue_no}
        await node.look()
        assert node.broker.node.metadata.deleted_queues == set()
    async with running(tmp_path) as node:
        assert node.broker.node.metadata.deleted_queues == set()


async def test_many_queues_whose_deletion_was_cut_off_go_in_several_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path) as node:
        await node.use(fill("a", "b", "c", "d", "e"))
        puts = [DeletedQueueRow(no) for no in node.filled()]
    await lose(tmp_path, *(QueueRow("/", name) for name in "abcde"), puts=puts)
    counts = []
    remove = Maintenance._remove_queues

    def counting(self: Maintenance) -> None:
        caplog.clear()
        known = len(node.broker.node.metadata.deleted_queues)
        remove(self)
        removed = sum("orphan removed" in text for text in caplog.messages)
        counts.append((removed, known - len(node.broker.node.metadata.deleted_queues)))

    monkeypatch.setattr(maintenance, "QUEUES_PER_TURN", 2)
    monkeypatch.setattr(Maintenance, "_remove_queues", counting)

    async with running(tmp_path) as node:
        await node.look()
        await eventually(lambda: not node.filled())
        assert counts == [(2, 0), (2, 0), (1, 0)]
        counts.clear()
        await node.look()
        await eventually(lambda: not node.broker.node.metadata.deleted_queues)
        assert counts == [(0, 2), (0, 2), (0, 1)]


async def test_a_long_queue_that_is_deleted_is_noted_until_its_messages_are_gone(
    tmp_path: Path,
) -> None:
    def fill_and_delete(channel: Channel) -> None:
        for queue, count in (("long", SLICE_ROWS + 1), ("short", 20)):
            channel.ok("queue.declare", queue=queue, durable=True)
            for _ in range(count):
                channel.publish(queue, "m", delivery_mode=2)
            channel.ok("queue.declare", queue=queue, durable=True, passive=True)
            channel.ok("confirm.select")
            channel.publish(queue, "last", delivery_mode=2)
            channel.read()
            channel.ok("queue.delete", queue=queue)

    async with running(tmp_path) as node:
        await node.use(fill_and_delete)
        metadata = node.broker.node.metadata
        (queue_no,) = metadata.deleted_queues
        stored = metadata.store.load().deleted_queues
        assert stored == [DeletedQueueRow(queue_no)]
        await eventually(lambda: not node.filled())
        await node.look()
        assert metadata.deleted_queues == set()
        await eventually(lambda: not metadata.store.load().deleted_queues)


async def test_the_folder_of_a_vhost_that_is_not_defined_goes_after_a_week(tmp_path: Path) -> None:
    folder = store_folder(tmp_path, "v")
    async with running(tmp_path) as node:
        await node.add_vhost("v")
        await node.use(fill("q"), "v")
    await lose(tmp_path, VhostRow("v"), QueueRow("v", "q"))

    async with running(tmp_path) as node:
        await node.look()
        assert (folder / orphans.LIST).exists()
    async with running(tmp_path, WEEK_S) as node:
        await node.look()
        await eventually(lambda: not list((tmp_path / "vhosts").glob(f"{folder.name}*")))


async def test_a_vhost_that_is_made_again_has_its_folder_and_no_old_message(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as node:
        await node.add_vhost("v")
        await node.use(fill("q"), "v")
    await lose(tmp_path, VhostRow("v"), QueueRow("v", "q"))

    async with running(tmp_path) as node:
        await node.look()
        await node.add_vhost("v")
        await node.use(holds("q", 0), "v")
        await node.use(fill("q"), "v")
        node.clock.ahead_s = 2 * WEEK_S
        await node.look()  # the folder has a vhost, so now it is rows that are seen, first now
        assert len(node.filled("v")) == 2
        node.clock.ahead_s = 3 * WEEK_S
        await node.look()
        await eventually(lambda: len(node.filled("v")) == 1)
        await node.use(holds("q", 20), "v")


async def test_a_vhost_that_is_deleted_takes_its_folder_along(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.add_vhost("v")
        assert store_folder(tmp_path, "v").exists()

        await NodeAdmin(node.broker).vhosts.delete_vhost("v")

        assert len(list((tmp_path / "vhosts").iterdir())) == 1


async def test_a_cancelled_deletion_of_a_vhost_does_not_wait_for_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of a broker cancels the clients of its control socket."""
    may_end, remove = threading.Event(), orphans.remove

    def slow(path: Path) -> None:
        may_end.wait()
        remove(path)

    async with running(tmp_path) as node:
        await node.add_vhost("v")
        monkeypatch.setattr(orphans, "remove", slow)
        deleting = asyncio.create_task(NodeAdmin(node.broker).vhosts.delete_vhost("v"))
        await eventually(lambda: bool(list((tmp_path / "vhosts").glob("*.deleted"))))
        try:
            deleting.cancel()
            _, waiting = await asyncio.wait([deleting], timeout=5)
            assert not waiting
        finally:
            may_end.set()
        await eventually(lambda: len(list((tmp_path / "vhosts").iterdir())) == 1)


async def test_a_removal_that_a_crash_cut_off_is_gone_on_with(tmp_path: Path) -> None:
    half = tmp_path / "vhosts" / "0123-4.deleted" / "rdq"
    half.mkdir(parents=True)
    (half / "00000001.rdq").touch()

    async with running(tmp_path) as node:
        await node.look()
        await eventually(lambda: not half.parent.exists())


async def test_a_crashed_queue_that_is_deleted_takes_its_messages_along(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.use(fill("q"))
        await node.use(fill("p", priorities=3))
        for queue in ("q", "p"):
            entry = node.broker.node.vhosts["/"].topology.queues[queue]
            for _ in range(RESTARTS_MAX + 1):
                ref = entry.ref
                node.chaos.kill(ref)
                await eventually(
                    lambda entry=entry, ref=ref: entry.ref is not ref or entry.state == "crashed"
                )
            assert entry.state == "crashed"
        assert len(node.filled()) == 5

        await node.use(lambda channel: channel.ok("queue.delete", queue="q"))
        await node.use(lambda channel: channel.ok("queue.delete", queue="p"))

        await eventually(lambda: not node.filled())


async def test_a_durable_queue_without_a_number_gets_one(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        row = QueueRow("/", "q", True)
        binding = BindingRow("/", "amq.fanout", "queue", "q", b"", {})
        done: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        node.broker.node.metadata.store.write([row, binding], [], done.set_result)
        assert await done is None

    async with running(tmp_path) as node:
        await node.use(fill("q"))
    async with running(tmp_path) as node:
        await node.use(holds("q", 20))


async def test_the_ballast_is_made_while_the_broker_runs(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        ballast = tmp_path / "ballast"
        assert not ballast.exists()

        await node.look()
        assert ballast.stat().st_blocks * 512 >= BALLAST_BYTES
        assert node.broker.node.ballast.release()
        assert not ballast.exists()


async def test_a_vhost_whose_folder_is_gone_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path) as node:
        assert node.store().stats().damage == []
        await node.use(fill("q"))
    shutil.rmtree(store_folder(tmp_path, "/"))

    async with running(tmp_path) as node:
        await node.use(holds("q", 0))
        (damage,) = node.store().stats().damage
    assert "messages of 1 queues" in damage
    assert "message store is gone, a new one was made" in caplog.text


async def test_a_journal_cut_short_is_named_in_log_and_status_and_costs_no_message(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy"
    async with running(data) as node:
        await node.use(fill("q"))
        marks = node.store()._marks
        await eventually(lambda: not marks.is_due)
        ignored = shutil.ignore_patterns("*.sock")
        shutil.copytree(data, copy, ignore=ignored)  # as after kill -9
    journal = max((store_folder(copy, "/") / "journal").iterdir())
    os.truncate(journal, HEADER_BYTES + 60)

    async with running(copy) as node:
        await node.use(holds("q", 20))
        (damage,) = node.store().stats().damage
    assert "are missing at its end" in damage
    assert damage in caplog.text
