"""A disk whose syncs take as long as the test likes: only clients that wait for a confirm or an ack wait."""

from __future__ import annotations

import asyncio
import select
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from chaos.rig import Chaos, chaos_on
from conformance.raw import Channel
from leveret.core.system.files import OsCalls
from rigs.waiting import eventually

COUNT = 3_000
PUBLISHERS = 3
in_thread = asyncio.to_thread


class SlowDisk(OsCalls):
    """Syncs wait for a permit while the disk is slow.

    Attributes:
        waiting: syncs that have no permit yet.
    """

    def __init__(self) -> None:
        self._permits = threading.Semaphore(0)
        self._is_slow = False
        self.waiting = 0

    def fdatasync(self, descriptor: int) -> None:
        if self._is_slow:
            self.waiting += 1
            self._permits.acquire()
        super().fdatasync(descriptor)

    def slow_down(self) -> None:
        self._is_slow = True

    def let_one_pass(self) -> None:
        self.waiting -= 1
        self._permits.release()

    def speed_up(self) -> None:
        self._is_slow = False
        self.waiting = 0
        self._permits.release(1_000)


@pytest.fixture
def disk() -> SlowDisk:
    return SlowDisk()


@pytest.fixture
async def chaos(tmp_path: Path, disk: SlowDisk) -> AsyncIterator[Chaos]:
    async with chaos_on(disk, tmp_path) as rig:
        yield rig
        disk.speed_up()


async def publishers(chaos: Chaos) -> list[Channel]:
    channels = [await chaos.channel() for _ in range(PUBLISHERS)]

    def publish() -> None:
        for number, channel in enumerate(channels):
            channel.ok("queue.declare", queue=f"q{number}", durable=True)
            channel.ok("queue.bind", queue=f"q{number}", exchange="amq.fanout")
            channel.ok("confirm.select")

    await in_thread(publish)
    return channels


def publish(channel: Channel) -> None:
    for number in range(COUNT):
        channel.publish("", f"{number}", "amq.fanout", delivery_mode=2)


def confirmed(channel: Channel) -> None:
    """Read until everything is confirmed."""
    channel.read_confirms(set(range(1, COUNT + 1)))


async def test_while_the_disk_stands_still_only_its_publishers_wait(
    chaos: Chaos, disk: SlowDisk
) -> None:
    channels = await publishers(chaos)
    disk.slow_down()

    for channel in channels:
        await in_thread(publish, channel)
    await eventually(lambda: disk.waiting)
    for _ in range(3):
        await chaos.round_trip("transient")
    sockets = [channel.connection.socket for channel in channels]
    assert not select.select(sockets, [], [], 0)[0], "something was promised, or somebody sent away"
    disk.speed_up()
    for channel in channels:
        await in_thread(confirmed, channel)

    for number in range(PUBLISHERS):
        assert await in_thread(channels[0].ready, f"q{number}") == PUBLISHERS * COUNT


async def test_the_slower_the_disk_the_more_goes_into_one_sync(
    chaos: Chaos, disk: SlowDisk
) -> None:
    channels = await publishers(chaos)
    disk.slow_down()
    for channel in channels:
        await in_thread(publish, channel)
    waiting = [asyncio.create_task(in_thread(confirmed, channel)) for channel in channels]

    def are_done() -> bool:
        return all(each.done() for each in waiting)

    syncs = 0
    while not are_done():
        await eventually(lambda: disk.waiting or are_done())
        if disk.waiting:
            disk.let_one_pass()
            syncs += 1
            assert syncs < PUBLISHERS * COUNT / 10
    disk.speed_up()

    for each in waiting:
        await each


async def test_a_store_that_dies_amid_a_slow_sync_is_there_again(
    chaos: Chaos, disk: SlowDisk
) -> None:
    channel, *_ = await publishers(chaos)
    disk.slow_down()
    await in_thread(publish, channel)
    await eventually(lambda: disk.waiting)
    store = chaos.find("queues_and_stores", "msg_store")

    chaos.runtime.send(store, "poison")
    disk.speed_up()

    answers: list[int] = []
    while len(answers) < COUNT:
        event = await in_thread(channel.read)
        assert event.name in {"basic.ack", "basic.nack"}, event
        first = answers[-1] + 1 if answers else 1
        answers += range(first, event.delivery_tag + 1)
    queue = chaos.broker.node.vhosts["/"].topology.queues["q0"]
    await eventually(lambda: queue.is_running)
    assert await in_thread(channel.ready, "q0") <= COUNT


async def test_a_store_that_dies_amid_a_sync_that_hangs_holds_up_nobody_else(
    chaos: Chaos, disk: SlowDisk
) -> None:
    """Its files are not opened anew before the threads that have them have ended."""
    channel, *_ = await publishers(chaos)
    disk.slow_down()
    await in_thread(publish, channel)
    await eventually(lambda: disk.waiting)
    vhost = chaos.broker.node.vhosts["/"]
    store = chaos.find("queues_and_stores", "msg_store")

    chaos.kill(store)
    await eventually(lambda: not store.is_alive)
    connection = await chaos.dial()
    answer = await in_thread(connection.open)
    assert answer.name == "connection.close", "the vhost is not up"
    assert disk.waiting
    assert vhost.store.msg_store is None
    disk.speed_up()

    await eventually(lambda: vhost.store.msg_store is not None)
    queue = vhost.topology.queues["q0"]
    await eventually(lambda: queue.is_running)
    assert await in_thread(channel.ready, "q0") <= COUNT
