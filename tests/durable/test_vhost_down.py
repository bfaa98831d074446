"""A vhost whose disk or descriptors fail goes down alone, says why, and comes back by itself."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from chaos.rig import Chaos
from conformance.raw import Connection, error_of
from leveret.broker.node.node import VHOST_KEEPER
from leveret.broker.node.store_server import store_folder
from leveret.broker.node.vhost_keeper import PAUSE_S
from leveret.core.errors import StoreError
from leveret.core.files import Buffer, Files, OsCalls
from leveret.msg_store import store
from leveret.msg_store.recovery import recovery
from leveret.server.admin.node_admin import NodeAdmin
from leveret.server.broker import Broker
from leveret.server.config.config import Address, Config
from leveret.server.errors import RefusedError
from leveret.testing.manual_clock import ManualClock
from rigs.waiting import eventually

VHOST = "v"


class Disk(OsCalls):
    """Calls on the files of one vhost fail with ``error``, while there is one; the others work."""

    def __init__(self, data: Path) -> None:
        self._folder = store_folder(data, VHOST)
        self.error: OSError | None = None
        self.calls: frozenset[str] = frozenset()
        self.failures = 0

    def fail(self, code: int, *calls: str) -> None:
        self.error, self.calls = OSError(code, "of the test"), frozenset(calls)

    def heal(self) -> None:
        self.error = None

    def _meets(self, call: str, path: Path) -> None:
        if self.error is not None and call in self.calls and path.is_relative_to(self._folder):
            self.failures += 1
            raise OSError(self.error.errno, self.error.strerror, str(path))

    def open(self, path: Path, flags: int) -> int:
        self._meets("open", path)
        return super().open(path, flags)

    def fdatasync(self, descriptor: int) -> None:
        self._meets("fdatasync", Path(f"/proc/self/fd/{descriptor}").readlink())
        super().fdatasync(descriptor)

    def pwrite(self, descriptor: int, data: Buffer, offset: int) -> int:
        self._meets("write", Path(f"/proc/self/fd/{descriptor}").readlink())
        return super().pwrite(descriptor, data, offset)

    def writev(self, descriptor: int, buffers: Sequence[Buffer]) -> int:
        self._meets("write", Path(f"/proc/self/fd/{descriptor}").readlink())
        return super().writev(descriptor, buffers)

    def names(self, folder: Path) -> list[str]:
        self._meets("names", folder)
        return super().names(folder)


class Rig(Chaos):
    """A broker with two vhosts, one of which is on the disk that fails."""

    disk: Disk
    admin: NodeAdmin

    @property
    def vhost(self) -> Any:
        return self.broker.node.vhosts[VHOST]

    async def tried(self, times: int) -> None:
        """Let the vhost be started so many times."""
        outages = self.broker.node.outages.by_vhost
        for _ in range(times):
            before = outages[VHOST].tries if VHOST in outages else -1
            await self.clock.advance(PAUSE_S)
            await eventually(
                lambda before=before: VHOST not in outages or outages[VHOST].tries > before
            )

    async def refusal(self, vhost: str) -> tuple[str, int, str, str]:
        connection = await self.dial()
        return error_of(await asyncio.to_thread(connection.open, vhost=vhost))

    async def on(self, vhost: str) -> Any:
        connection: Connection = await self.connect(vhost=vhost)
        return await asyncio.to_thread(connection.channel)


@asynccontextmanager
async def running(data: Path, disk: Disk) -> AsyncIterator[Rig]:
    clock = ManualClock(asyncio.get_running_loop())
    config = Config(listen=(Address("127.0.0.1", 0),), data_dir=data)
    async with Broker(config, clock, Files(disk)) as broker:
        rig = Rig(broker, clock)
        rig.disk, rig.admin = disk, NodeAdmin(broker)
        if VHOST not in broker.node.vhosts:
            await rig.admin.vhosts.add_vhost(VHOST)
            await rig.admin.users.set_permissions(VHOST, "guest", ".*", ".*", ".*")
        clock.hold()
        yield rig
        disk.heal()
        rig.close()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def disk(data: Path) -> Disk:
    return Disk(data)


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def filled(channel: Any, queue: str = "q") -> None:
    channel.ok("queue.declare", queue=queue, durable=True)
    channel.ok("confirm.select")
    channel.publish(queue, b"kept", delivery_mode=2)
    channel.read_confirms({1})


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
    data: Path, disk: Disk, code: int, call: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(data, disk) as rig:
        await asyncio.to_thread(filled, await rig.on(VHOST))
    disk.fail(code, call)

    caplog.set_level(logging.INFO)
    async with running(data, disk) as rig:
        assert list(rig.broker.degraded) == [VHOST]
        assert "of the test" in rig.broker.degraded[VHOST]
        assert await rig.refusal(VHOST) == (
            "connection", 541, f"INTERNAL_ERROR - {DOWN}", "connection.open"
        )  # fmt: skip
        await asyncio.to_thread(filled, await rig.on("/"))
        await rig.tried(20)
        descriptors = open_descriptors()
        await rig.tried(20)
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


@pytest.mark.parametrize("error", [MemoryError(), StoreError("of the test")])
async def test_a_store_that_cannot_be_made_of_its_files_is_tried_until_it_can(
    data: Path, disk: Disk, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(data, disk) as rig:
        await asyncio.to_thread(filled, await rig.on(VHOST))

    def fail(*_: object) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(store.MsgStore, "_make_collector", fail)
        async with running(data, disk) as rig:
            assert set(rig.broker.degraded) == {"/", VHOST}
            await rig.tried(10)
            outages = rig.broker.node.outages.by_vhost
            assert all(outage.is_retried for outage in outages.values())
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
        assert not rig.vhost.is_up
        await rig.tried(10)
        assert not rig.vhost.is_up
        await asyncio.to_thread(other.publish, "q", b"on", delivery_mode=2)
        await asyncio.to_thread(other.read_confirms, {2})

        disk.heal()
        await rig.tried(1)
        assert rig.vhost.is_up
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
        keeper: Any = rig.broker.runtime.whereis(VHOST_KEEPER)
        kept = [each for each in vars(keeper.cell.actor).values() if isinstance(each, dict | set)]
        assert not any(VHOST in each for each in kept), "its name is forgotten"


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
        assert rig.vhost.is_up


async def test_a_bug_keeps_a_vhost_down_until_an_operator_starts_it(
    data: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
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
            patched.undo()
            assert await rig.admin.vhosts.restart_vhost(VHOST)
            assert not await rig.admin.vhosts.restart_vhost(VHOST)
            assert list(rig.broker.degraded) == ["/"]
            assert rig.vhost.is_up


async def test_a_node_stops_while_a_vhost_is_down(data: Path, disk: Disk) -> None:
    async with running(data, disk):
        pass
    disk.fail(errno.EIO, "open")
    async with running(data, disk) as rig:
        await rig.tried(1)
