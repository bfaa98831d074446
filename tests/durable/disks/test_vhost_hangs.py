"""A vhost whose store is being opened on a disk that hangs holds up no other vhost, and can be deleted."""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from conformance.raw import error_of
from leveret.actors.runtime.signals import KILL
from leveret.broker.node import store_server
from leveret.broker.node.bootstrap import OTHERS_WAIT_S
from leveret.broker.node.outages import OPENING, PAUSE_S, SLOW_S
from leveret.broker.node.store_server import store_folder
from leveret.broker.vhost.states import ENDED, UP, State
from leveret.core.addresses import Address
from leveret.core.system.files import Files
from leveret.server import broker as broker_module
from leveret.server.broker import Broker
from leveret.server.config.config import Config
from leveret.testing.manual_clock import ManualClock
from rigs.failing_vhost import VHOST, Disk, Rig, filled, running
from rigs.waiting import eventually

WITHIN_S = 10.0


@pytest.fixture
def removed_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """A deletion does not wait for the files."""
    monkeypatch.setattr(store_server, "REMOVED_WITHIN_S", 0.01)


async def used(rig: Rig, vhost: str = VHOST) -> Any:
    """Return a channel of the vhost, whose queue has messages."""
    channel = await rig.on(vhost)
    await asyncio.to_thread(filled, channel)
    return channel


async def hangs(rig: Rig) -> None:
    """Let the vhost's store die and be opened again, which does not end."""
    rig.disk.hang("open")
    rig.kill(rig.find(f"vhost:{VHOST}", "queues_and_stores", "msg_store"))
    await eventually(lambda: rig.disk.hanging)


async def reader_hangs(rig: Rig) -> asyncio.Task[Any]:
    """Let the thread hang that reads a message of a lazy queue; return the task that gets it."""

    def fill() -> None:
        channel.ok("queue.declare", queue="lazy", durable=True, arguments={"x-queue-mode": "lazy"})
        channel.ok("confirm.select")
        channel.publish("lazy", b"k" * 5000, delivery_mode=2)
        channel.read_confirms({1})

    channel = await rig.on(VHOST)
    await asyncio.to_thread(fill)
    rig.disk.hang("read")
    getting = asyncio.create_task(asyncio.to_thread(channel.get, "lazy"))
    await eventually(lambda: rig.disk.hanging)
    return getting


async def test_a_store_that_hangs_as_it_is_opened_holds_up_no_other_vhost(
    data: Path, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(data, disk) as rig:
        await used(rig)
        await hangs(rig)
        admin = rig.admin.vhosts

        await asyncio.wait_for(admin.add_vhost("w"), WITHIN_S)
        rig.kill(rig.find("vhost:w", "queues_and_stores"))
        await eventually(lambda: rig.broker.node.vhosts["w"].state.now in UP)
        await asyncio.wait_for(admin.delete_vhost("w"), WITHIN_S)

        assert rig.broker.degraded == {VHOST: OPENING}
        assert (await rig.refusal(VHOST))[1] == 541
        (row,) = await admin.check_virtual_hosts()
        assert (row["tries"], row["is_retried"], row["next_try_in_s"]) == (0, True, None)
        (shown,) = [each for each in await rig.admin.tree() if each["name"] == f"vhost:{VHOST}"]
        assert shown["state"] == f"down ({OPENING})"
        assert not await admin.restart_vhost(VHOST), "it is being started"
        for _ in range(int(SLOW_S / PAUSE_S) + 1):
            await rig.clock.advance(PAUSE_S)
        assert caplog.text.count(f"vhost is down vhost={VHOST}") == 1

        disk.heal()
        await asyncio.wait_for(rig.broker.wait_serving(), WITHIN_S)
        channel = await rig.on(VHOST)
        assert (await asyncio.to_thread(channel.get, "q")).body == b"kept"
    assert caplog.text.count(f"vhost serves again vhost={VHOST}") == 1


@pytest.mark.usefixtures("removed_later")
async def test_a_vhost_whose_store_hangs_can_be_deleted_and_added_again(
    data: Path, disk: Disk
) -> None:
    async with running(data, disk) as rig:
        await used(rig)
        await hangs(rig)
        admin = rig.admin.vhosts

        await asyncio.wait_for(admin.delete_vhost(VHOST), WITHIN_S)
        assert VHOST not in rig.broker.node.vhosts
        assert rig.broker.degraded == {}
        assert not [each for each in rig.nodes() if f"vhost:{VHOST}" in each.labels]

        adding = asyncio.create_task(admin.add_vhost(VHOST))
        await asyncio.wait_for(admin.add_vhost("w"), WITHIN_S)
        assert not adding.done(), "its folder is still used by the thread that hangs"
        disk.heal()
        await asyncio.wait_for(adding, WITHIN_S)
        await rig.admin.users.set_permissions(VHOST, "guest", ".*", ".*", ".*")
        channel = await rig.on(VHOST)
        await asyncio.to_thread(channel.ok, "queue.declare", queue="q", durable=True)
        assert await asyncio.to_thread(channel.ready, "q") == 0, "the messages are gone"


@pytest.mark.parametrize("call", ["fdatasync", "write"])
@pytest.mark.usefixtures("removed_later")
async def test_a_vhost_whose_open_store_hangs_can_be_deleted(
    data: Path, disk: Disk, call: str
) -> None:
    async with running(data, disk) as rig:
        channel = await used(rig)
        disk.hang(call)
        await asyncio.to_thread(channel.publish, "q", b"x" * 5000, delivery_mode=2)
        await eventually(lambda: disk.hanging)

        await asyncio.wait_for(rig.admin.vhosts.delete_vhost(VHOST), WITHIN_S)
        await asyncio.wait_for(rig.admin.vhosts.add_vhost("w"), WITHIN_S)
        assert not [each for each in rig.nodes() if f"vhost:{VHOST}" in each.labels]


@pytest.mark.parametrize("hanging", ["flush", "closing frame", "checkpoint"])
@pytest.mark.usefixtures("removed_later")
async def test_a_vhost_that_hangs_as_it_is_restarted_can_be_deleted(
    data: Path, disk: Disk, hanging: str
) -> None:
    """Its store was told to stop in order, which the disk does not let it do."""
    async with running(data, disk) as rig:
        channel = await used(rig)
        disk.hang("names" if hanging == "checkpoint" else "fdatasync")
        if hanging == "flush":
            await asyncio.to_thread(channel.publish, "q", b"x", delivery_mode=2)
            await eventually(lambda: disk.hanging)
        vhost, queues = rig.vhost, rig.find(f"vhost:{VHOST}", "queues_and_stores", "queues")
        rig.kill(queues)
        await eventually(lambda: not queues.is_alive and disk.hanging)

        await asyncio.wait_for(rig.admin.vhosts.delete_vhost(VHOST), WITHIN_S)
        assert vhost.state.now in ENDED
        await asyncio.wait_for(rig.admin.vhosts.add_vhost("w"), WITHIN_S)
        assert VHOST in rig.broker.node.removals, (
            "its folder is still used by the thread that hangs"
        )

        removed = rig.broker.node.removals[VHOST]
        disk.heal()
        await asyncio.wait_for(removed, WITHIN_S)
        assert not store_folder(data, VHOST).exists()


async def test_a_vhost_whose_reader_hangs_as_it_is_restarted_holds_up_no_other_vhost(
    data: Path, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with running(data, disk) as rig:
        getting = await reader_hangs(rig)
        server = rig.find(f"vhost:{VHOST}", "queues_and_stores", "msg_store")
        store = rig.vhost.store.msg_store
        rig.kill(rig.find(f"vhost:{VHOST}", "queues_and_stores", "queues"))
        await eventually(lambda: store.core.error is not None)

        await asyncio.wait_for(rig.admin.vhosts.add_vhost("w"), WITHIN_S)
        assert disk.hanging
        assert server.is_alive, "the successor waits for it"

        disk.heal()
        await asyncio.gather(getting, return_exceptions=True)
        await eventually(lambda: rig.vhost.state.now in UP and not server.is_alive)
        channel = await rig.on(VHOST)
        assert (await asyncio.to_thread(channel.get, "lazy")).body == b"k" * 5000
    assert [text for text in caplog.messages if "opened vhost=v clean=True" in text]


async def test_a_store_that_hangs_as_it_is_stopped_ends_with_its_supervisor(
    data: Path, disk: Disk
) -> None:
    async with running(data, disk) as rig:
        await used(rig)
        stores = rig.find(f"vhost:{VHOST}", "queues_and_stores")
        server = rig.find(f"vhost:{VHOST}", "queues_and_stores", "msg_store")
        disk.hang("fdatasync")
        rig.kill(rig.find(f"vhost:{VHOST}", "queues_and_stores", "queues"))
        await eventually(lambda: disk.hanging)
        rig.kill(stores)
        await eventually(lambda: not server.is_alive)

        disk.heal()
        await asyncio.wait_for(rig.broker.wait_serving(), WITHIN_S)
        channel = await rig.on(VHOST)
        assert (await asyncio.to_thread(channel.get, "q")).body == b"kept"


async def test_other_vhosts_serve_soon_where_one_hangs_at_the_start(
    data: Path, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(data, disk) as rig:
        await used(rig)
        await used(rig, "/")
    disk.hang("open")

    clock = ManualClock(asyncio.get_running_loop())
    clock.hold()
    config = Config(listen=(Address("127.0.0.1", 0),), data_dir=data)
    broker = Broker(config, clock, Files(disk))
    starting = asyncio.create_task(broker.start())
    try:
        await eventually(
            lambda: disk.hanging and broker.node.vhosts["/"].state.now is State.RUNNING
        )
        assert not starting.done(), "it may be over soon"
        await clock.advance(OTHERS_WAIT_S)
        await asyncio.wait_for(starting, WITHIN_S)
        rig = Rig(broker, clock)
        assert broker.degraded == {VHOST: OPENING}
        channel = await rig.on("/")
        assert (await asyncio.to_thread(channel.get, "q")).body == b"kept"
        assert error_of(await asyncio.to_thread((await rig.dial()).open, vhost=VHOST))[1] == 541

        disk.heal()
        await asyncio.wait_for(broker.wait_serving(), WITHIN_S)
        channel = await rig.on(VHOST)
        assert (await asyncio.to_thread(channel.get, "q")).body == b"kept"
        rig.close()
    finally:
        disk.heal()
        await broker.stop()


async def test_a_broker_stops_while_a_store_hangs(data: Path, disk: Disk) -> None:
    async with running(data, disk) as rig:
        await hangs(rig)
        await asyncio.wait_for(rig.broker.stop(), WITHIN_S)


async def test_a_broker_stops_while_a_reader_hangs(
    data: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_module, "STOP_S", 0.1)
    monkeypatch.setattr(broker_module, "CLOSE_S", 0.1)
    async with running(data, disk) as rig:
        getting = await reader_hangs(rig)
        await asyncio.wait_for(rig.broker.stop(), WITHIN_S)
        assert disk.hanging
        await asyncio.gather(getting, return_exceptions=True)

    async with running(data, disk) as rig:
        channel = await rig.on(VHOST)
        assert (await asyncio.to_thread(channel.get, "lazy")).body == b"k" * 5000


def test_a_store_that_is_opened_behind_the_end_of_the_loop_is_closed(
    data: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_module, "CLOSE_S", 0.1)

    async def hang() -> None:
        async with running(data, disk) as rig:
            await used(rig)
            await hangs(rig)
            await asyncio.wait_for(rig.broker.stop(), WITHIN_S)
            monkeypatch.setattr(disk, "heal", lambda: None)  # as ``running`` ends

    async def look() -> None:
        await eventually(lambda: not disk.hanging and not opening.is_alive())
        async with running(data, disk) as rig:
            await rig.tried(1)
            channel = await rig.on(VHOST)
            assert (await asyncio.to_thread(channel.get, "q")).body == b"kept"

    asyncio.run(hang())
    monkeypatch.undo()
    (opening,) = (each for each in threading.enumerate() if each.name == "leveret-open")
    disk.heal()
    asyncio.run(look())


async def test_a_killed_store_server_waits_for_the_thread_that_opens_its_files(
    data: Path, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with running(data, disk) as rig:
        await used(rig)
        await hangs(rig)
        server = rig.find(f"vhost:{VHOST}", "queues_and_stores", "msg_store")
        rig.runtime.exit(server, KILL)
        await eventually(lambda: not server.is_alive)
        disk.heal()
        await asyncio.wait_for(rig.broker.wait_serving(), WITHIN_S)
        channel = await rig.on(VHOST)
        assert (await asyncio.to_thread(channel.get, "q")).body == b"kept"
    assert "not opened" not in caplog.text


@pytest.mark.usefixtures("removed_later")
async def test_a_folder_that_hangs_is_not_removed_after_the_end_of_the_broker(
    data: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next broker in the process may have a vhost of that name."""
    monkeypatch.setattr(broker_module, "CLOSE_S", 0.01)
    async with running(data, disk) as rig:
        await used(rig)
        await hangs(rig)
        await rig.admin.vhosts.delete_vhost(VHOST)
        removed = rig.broker.node.removals[VHOST]
        await rig.broker.stop()

        disk.heal()
        await asyncio.wait_for(removed, WITHIN_S)
    assert store_folder(data, VHOST).is_dir()
