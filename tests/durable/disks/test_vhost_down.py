"""A vhost whose disk or descriptors fail goes down alone, says why, and comes back by itself."""

from __future__ import annotations

import asyncio
import errno
import logging
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from conformance.raw import error_of
from leveret.broker.node.node import BootEpochs
from leveret.broker.node.outages import PAUSE_S, REMINDER_S, STAYS_DOWN
from leveret.broker.node.store_server import StoreServer, store_folder
from leveret.broker.vhost.states import ENDED, UP, State
from leveret.core import small_set
from leveret.core.errors import StoreError
from leveret.management.errors import RefusedError
from leveret.msg_store import drivers, store
from leveret.msg_store.recovery import recovery
from leveret.msg_store.recovery.recovery import StoreFiles, open_store
from rigs.failing_vhost import VHOST, Disk, filled, running
from rigs.waiting import eventually


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


DOWN = f"access to vhost '{VHOST}' refused for user 'guest': vhost '{VHOST}' is down"


@pytest.mark.parametrize(
    ("code", "call"),
    [
        (errno.EMFILE, "open"),
        (errno.ENFILE, "open"),
        (errno.ENOMEM, "open"),
        (errno.EIO, "fdatasync"),
        (errno.ENOSPC, "write"),
        (errno.EROFS, "open"),
        (errno.EACCES, "names"),
    ],
)
async def test_a_vhost_that_cannot_be_opened_is_tried_until_it_can(
    data: Path,
    disk: Disk,
    code: int,
    call: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running(data, disk) as rig:
        await asyncio.to_thread(filled, await rig.on(VHOST))
    disk.fail(code, call)
    caplog.set_level(logging.INFO)
    begun: list[Path] = []

    def tried_to_open() -> int:
        return begun.count(store_folder(data, VHOST))

    def noted(where: StoreFiles, *args: Any) -> Any:
        begun.append(where.path)
        return open_store(where, *args)

    monkeypatch.setattr(recovery, "open_store", noted)
    async with running(data, disk) as rig:
        assert list(rig.broker.degraded) == [VHOST]
        assert "of the test" in rig.broker.degraded[VHOST]
        assert await rig.refusal(VHOST) == (
            "connection", 541, f"INTERNAL_ERROR - {DOWN}", "connection.open"
        )  # fmt: skip
        await asyncio.to_thread(filled, await rig.on("/"))
        await rig.tried(20)
        descriptors, opened = open_descriptors(), tried_to_open()
        await rig.tried(20)
        assert tried_to_open() == opened + 20, "once in each try"
        assert open_descriptors() <= descriptors
        assert rig.broker.node.epochs.current <= 4, "epochs are not used up"
        (row,) = await rig.admin.vhosts.check_virtual_hosts()
        assert (row["vhost"], row["tries"], row["is_retried"]) == (VHOST, 40, True)
        assert row["next_try_in_s"] <= PAUSE_S
        (shown,) = [each for each in await rig.admin.tree() if each["name"] == f"vhost:{VHOST}"]
        assert shown["state"].startswith("down (")
        assert "of the test" in shown["state"]

        disk.heal()
        await rig.tried(1)
        assert rig.broker.degraded == {}
        await rig.broker.wait_serving()
        channel = await rig.on(VHOST)
        assert (await asyncio.to_thread(channel.get, "q")).body == b"kept"
    assert caplog.text.count(f"vhost is down vhost={VHOST}") == 1
    assert caplog.text.count(f"vhost serves again vhost={VHOST}") == 1
    assert len(caplog.records) < 30, caplog.text
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(
    ("part", "error"),
    [
        ("Backpressure", MemoryError()),
        ("TransientStore", MemoryError()),
        ("RowReader", MemoryError()),
        ("FlushDriver", MemoryError()),
        ("CheckpointDriver", MemoryError()),
        ("Collector", StoreError("of the test")),
    ],
)
async def test_a_store_that_cannot_be_made_of_its_files_is_tried_until_it_can(
    data: Path, disk: Disk, part: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(data, disk) as rig:
        await asyncio.to_thread(filled, await rig.on(VHOST))

    def fail(*_: object) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(store, part, fail)
        async with running(data, disk) as rig:
            assert set(rig.broker.degraded) == {"/", VHOST}
            await rig.tried(2)
            outages = rig.broker.node.outages.by_vhost
            assert all(outage.is_retried for outage in outages.values())
            vhosts = rig.broker.node.vhosts.values()
            await eventually(lambda: all(each.state.now in ENDED for each in vhosts))
            descriptors, threads = open_descriptors(), threading.active_count()
            await rig.tried(2)
            await eventually(lambda: open_descriptors() <= descriptors)
            await eventually(lambda: threading.active_count() <= threads)
            patched.undo()
            await rig.tried(1)
            channel = await rig.on(VHOST)
            assert (await asyncio.to_thread(channel.get, "q")).body == b"kept"


async def test_a_store_that_fails_again_and_again_takes_its_vhost_down_for_a_while_only(
    data: Path, disk: Disk
) -> None:
    async with running(data, disk) as rig:
        channel, other = await rig.on(VHOST), await rig.on("/")
        await asyncio.to_thread(filled, channel)
        await asyncio.to_thread(filled, other)
        disk.fail(errno.EIO, "fdatasync")
        await asyncio.to_thread(channel.publish, "q", b"lost", delivery_mode=2)

        closed = await asyncio.to_thread(channel.connection.read)
        assert error_of(closed) == (
            "connection", 320, f"CONNECTION_FORCED - vhost '{VHOST}' is down", ""
        )  # fmt: skip
        assert rig.vhost.state.now not in UP
        await rig.tried(10)
        assert rig.vhost.state.now not in UP
        await asyncio.to_thread(other.publish, "q", b"on", delivery_mode=2)
        await asyncio.to_thread(other.read_confirms, {2})

        disk.heal()
        await rig.tried(1)
        assert rig.vhost.state.now in UP
        channel = await rig.on(VHOST)
        assert (await asyncio.to_thread(channel.get, "q")).body == b"kept"


async def test_a_vhost_that_is_down_can_be_deleted_at_once(data: Path, disk: Disk) -> None:
    async with running(data, disk) as rig:
        pass
    disk.fail(errno.EMFILE, "open")
    async with running(data, disk) as rig:
        await rig.tried(2)
        await rig.admin.vhosts.delete_vhost(VHOST)
        assert rig.broker.degraded == {}
        failures = disk.failures
        await rig.clock.advance(10 * PAUSE_S)
        assert disk.failures == failures
        assert rig.broker.degraded == {}


async def test_a_vhost_that_cannot_be_started_is_not_added(data: Path, disk: Disk) -> None:
    async with running(data, disk) as rig:
        await rig.admin.vhosts.delete_vhost(VHOST)
        disk.fail(errno.ENOSPC, "write")
        with pytest.raises(RefusedError, match=r"did not start: .*of the test"):
            await rig.admin.vhosts.add_vhost(VHOST)
        assert VHOST not in rig.broker.node.vhosts
        assert rig.broker.degraded == {}

        disk.heal()
        await rig.admin.vhosts.add_vhost(VHOST)
        assert rig.vhost.state.now in UP


async def test_a_bug_keeps_a_vhost_down_until_an_operator_starts_it(
    data: Path, disk: Disk, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(data, disk) as rig:
        pass

    def broken(*_: object) -> None:
        raise AssertionError("a bug")

    with monkeypatch.context() as patched:
        patched.setattr(recovery, "open_store", broken)
        async with running(data, disk) as rig:
            assert set(rig.broker.degraded) == {"/", VHOST}
            await rig.clock.advance(10 * PAUSE_S)
            (row, _) = await rig.admin.vhosts.check_virtual_hosts()
            assert (row["tries"], row["is_retried"], row["next_try_in_s"]) == (0, False, None)
            await rig.clock.advance(2 * REMINDER_S)
            assert (
                caplog.text.count(f'vhost is still down vhost={VHOST} reason="{STAYS_DOWN}"') == 2
            )
            patched.undo()
            assert await rig.admin.vhosts.restart_vhost(VHOST)
            assert not await rig.admin.vhosts.restart_vhost(VHOST)
            assert list(rig.broker.degraded) == ["/"]
            assert rig.vhost.state.now in UP


async def test_the_restarter_has_a_timer_only_while_a_vhost_is_down(data: Path, disk: Disk) -> None:
    async with running(data, disk) as rig:

        async def has_timers_later(count: int) -> None:
            await rig.clock.advance(10 * PAUSE_S)

            def timers() -> int:
                return len(small_set.items(rig.find("infra", "vhost_restarter").cell.timers))

            await eventually(lambda: timers() == count)

        await has_timers_later(0)
        channel = await rig.on(VHOST)
        await asyncio.to_thread(filled, channel)
        for _ in range(2):
            disk.fail(errno.EIO, "fdatasync")
            await asyncio.to_thread(channel.publish, "q", b"lost", delivery_mode=2)
            await eventually(lambda: rig.vhost.state.now is State.FAILED)
            await has_timers_later(1)
            rig.kill(rig.find("infra", "vhost_restarter"))
            await has_timers_later(1)
            disk.heal()
            while rig.broker.degraded:
                await rig.tried(1)
            await has_timers_later(0)
            channel = await rig.on(VHOST)
            await asyncio.to_thread(channel.ok, "confirm.select")


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (recovery, "CountFile"),
        (BootEpochs, "opened"),
        (drivers, "StoreLimits"),
        (store, "MsgStore"),
        (store, "Collector"),
        (StoreServer, "_log_opened"),
    ],
)
async def test_a_bug_while_a_store_is_opened_does_not_keep_its_folder_locked(
    data: Path, disk: Disk, owner: object, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(data, disk) as rig:
        await asyncio.to_thread(filled, await rig.on(VHOST))

    def broken(*_: object, **__: object) -> None:
        raise TypeError("a bug")

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, broken)
        async with running(data, disk) as rig:
            assert rig.broker.degraded == {"/": STAYS_DOWN, VHOST: STAYS_DOWN}
            patched.undo()
            assert await rig.admin.vhosts.restart_vhost(VHOST)
            channel = await rig.on(VHOST)
            assert (await asyncio.to_thread(channel.get, "q")).body == b"kept"


async def test_a_node_stops_while_a_vhost_is_down(data: Path, disk: Disk) -> None:
    async with running(data, disk):
        pass
    disk.fail(errno.EIO, "open")
    async with running(data, disk) as rig:
        await rig.tried(1)


async def test_a_vhost_that_finds_no_thread_as_the_node_starts_holds_up_no_other(
    data: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(data, disk) as rig:
        await asyncio.to_thread(filled, await rig.on(VHOST))
    start = threading.Thread.start
    refused: list[threading.Thread] = []

    def started(thread: threading.Thread) -> None:
        if thread.name == "leveret-open" and not refused:
            refused.append(thread)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", started)
    async with running(data, disk) as rig:
        await eventually(lambda: rig.vhost.state.now is State.RUNNING)
        assert list(rig.broker.degraded) == ["/"]
        await rig.clock.advance(PAUSE_S)
        await rig.broker.wait_serving()
    assert refused


async def test_a_vhost_that_is_deleted_leaves_no_thread_of_a_store_whose_actor_was_killed(
    data: Path, disk: Disk
) -> None:
    def threads() -> Counter[str]:
        return Counter(each.name for each in threading.enumerate())

    async with running(data, disk) as rig:
        await rig.admin.vhosts.delete_vhost(VHOST)
        before = threads()
        await rig.admin.vhosts.add_vhost(VHOST)
        while rig.vhost.state.now not in ENDED:
            await rig.broker.wait_serving()
            server = rig.find(f"vhost:{VHOST}", "queues_and_stores", "msg_store")
            rig.kill(server)
            await eventually(lambda server=server: not server.is_alive)

        await rig.admin.vhosts.delete_vhost(VHOST)
        await eventually(lambda: threads() <= before, threads)


async def test_a_vhost_that_has_no_folder_yet_is_deleted_without_an_error(
    data: Path, disk: Disk, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(thread: threading.Thread) -> None:
        if thread.name == "leveret-open":
            raise RuntimeError("can't start new thread")
        start(thread)

    start = threading.Thread.start
    async with running(data, disk) as rig:
        monkeypatch.setattr(threading.Thread, "start", refused)
        with pytest.raises(RefusedError, match="did not start"):
            await rig.admin.vhosts.add_vhost("w")
    assert "not removed" not in caplog.text
