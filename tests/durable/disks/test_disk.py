"""Disks that stall or are full, below a running broker: publishers wait, nothing is lost."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import random
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from chaos.rig import Chaos
from conformance.raw import Channel
from leveret.core.addresses import Address
from leveret.core.system.files import Files, OsCalls
from leveret.server.broker import Broker
from leveret.server.config.config import Config
from leveret.testing.manual_clock import ManualClock
from rigs.disk.faulty_files import FaultyCalls
from rigs.waiting import eventually


class Disk(FaultyCalls):
    """A disk that can stall: ``follows`` is cleared and set."""

    def __init__(self) -> None:
        self.follows = threading.Event()
        self.follows.set()
        super().__init__(OsCalls(), random.Random(1), lambda _: self._wait())

    def _wait(self) -> None:
        self.follows.wait()

    def stall(self) -> None:
        self.follows.clear()
        self.delay("fdatasync", 0.5)

    def go_on(self) -> None:
        self.heal()
        self.follows.set()


class Rig(Chaos):
    """A broker on such a disk."""

    disk: Disk


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    clock, disk = ManualClock(asyncio.get_running_loop()), Disk()
    config = Config(listen=(Address("127.0.0.1", 0),), data_dir=tmp_path / "data")
    async with Broker(config, clock, Files(disk)) as broker:
        rig = Rig(broker, clock)
        rig.disk = disk
        yield rig
        disk.go_on()
        rig.close()


async def publisher(rig: Rig, **options: bool) -> Channel:
    channel = await rig.channel()

    def prepare() -> None:
        channel.ok("queue.declare", queue="q", durable=True)
        channel.ok("confirm.select")

    await asyncio.to_thread(prepare)
    return channel


def confirmed(channel: Channel, count: int) -> None:
    """Read confirms until so many publishes have theirs."""
    tag = 0
    while tag < count:
        answer = channel.read()
        assert answer.name == "basic.ack", answer
        tag = answer.delivery_tag


class Flood(threading.Thread):
    """Publishes many persistent messages; it gets stuck where the broker does not read."""

    def __init__(self, channel: Channel, count: int) -> None:
        super().__init__(daemon=True)
        self.channel = channel
        self.left = count
        channel.connection.socket.settimeout(60.0)

    def run(self) -> None:
        with contextlib.suppress(OSError):  # the connection has ended
            for number in range(self.left):
                self.channel.publish("q", b"%08d" % number, delivery_mode=2)
                self.left -= 1


async def test_a_disk_that_stalls_stops_publishers_and_nobody_else(rig: Rig) -> None:
    count = 60_000
    channel, other = await publisher(rig), await rig.channel()
    node = rig.broker.node
    store = node.vhosts["/"].store.msg_store
    assert store is not None
    rig.disk.stall()

    flood = Flood(channel, count)
    flood.start()
    await eventually(lambda: store.backpressure.is_on)
    reader = node.connections.readers[rig.reader_of(channel.connection)]
    await eventually(lambda: reader.read_control.is_blocked)

    await rig.round_trip("transient")
    consumed = await asyncio.to_thread(other.get, "q", no_ack=False)
    assert consumed.body == b"%08d" % 0
    await asyncio.to_thread(other.send, "basic.ack", delivery_tag=consumed.delivery_tag)
    assert store.core.pending_ops < 50_000, "more was read after the disk got stuck"
    assert node.resources.alarms.raised == ()

    rig.disk.go_on()
    await asyncio.to_thread(confirmed, channel, count)
    flood.join(10.0)
    assert flood.left == 0
    assert not store.backpressure.is_on
    await eventually(lambda: not reader.read_control.is_blocked)
    assert await asyncio.to_thread(other.ready, "q") == count - 1


async def test_a_channel_that_ends_while_the_disk_stalls_takes_its_connection_along(
    rig: Rig,
) -> None:
    channel = await publisher(rig)
    store = rig.broker.node.vhosts["/"].store.msg_store
    assert store is not None
    rig.disk.stall()
    flood = Flood(channel, 60_000)
    flood.start()
    await eventually(lambda: store.backpressure.is_on)
    reader = rig.broker.node.connections.readers[rig.reader_of(channel.connection)]
    await eventually(lambda: reader.read_control.is_blocked)

    rig.kill(rig.channel_of(channel.connection))

    closed = await asyncio.to_thread(channel.connection.read)
    assert (closed.name, closed.reply_code) == ("connection.close", 541)
    assert not reader.read_control.is_blocked, "else nobody would hear close-ok"
    channel.connection.drop()
    flood.join(10.0)


@pytest.mark.parametrize(
    ("point", "code"),
    [
        ("writev", errno.ENOSPC),
        ("open", errno.EMFILE),
        ("open", errno.ENFILE),
        ("writev", errno.ENOMEM),
        ("fsync_dir", errno.EDQUOT),
    ],
)
async def test_a_shortage_blocks_publishers_until_it_has_passed(
    rig: Rig, point: str, code: int
) -> None:
    channel = await publisher(rig)
    node = rig.broker.node
    store = node.vhosts["/"].store.msg_store
    assert store is not None
    pattern = "rdq" if point == "fsync_dir" else "*.rdq"
    rig.disk.fail(point, OSError(code, os.strerror(code)), pattern, times=1 << 30)

    await asyncio.to_thread(channel.publish, "q", b"1", delivery_mode=2)
    answer = await asyncio.to_thread(channel.read)
    assert answer.name == "basic.nack"
    assert node.resources.alarms.raised == ("disk",)
    assert store.stats().shortage == errno.errorcode[code]
    await asyncio.to_thread(channel.publish, "q", b"2", delivery_mode=2)
    blocked = await asyncio.to_thread(channel.connection.read)
    assert (blocked.name, blocked.reason) == ("connection.blocked", "low on disk")

    rig.disk.heal()
    unblocked = await asyncio.to_thread(channel.connection.read)
    assert unblocked.name == "connection.unblocked"
    answer = await asyncio.to_thread(channel.read)
    assert (answer.name, answer.delivery_tag) == ("basic.ack", 2)
    assert node.resources.alarms.raised == ()
    assert node.vhosts["/"].store.msg_store is store, "it failed, and was opened anew"


async def test_confirms_come_also_where_nobody_waited_for_the_ones_before(rig: Rig) -> None:
    without, channel = await rig.channel(), await publisher(rig)
    store = rig.broker.node.vhosts["/"].store.msg_store
    assert store is not None

    await asyncio.to_thread(without.publish, "q", b"1", delivery_mode=2)
    await eventually(lambda: store.stats().messages == 1)
    await asyncio.to_thread(channel.publish, "q", b"2", delivery_mode=2)

    answer = await asyncio.to_thread(channel.read)
    assert (answer.name, answer.delivery_tag) == ("basic.ack", 1)
