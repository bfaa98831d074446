"""Two vhosts, one of which is on a disk that fails or hangs as a test says."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from chaos.rig import Chaos
from conformance.raw import Connection, error_of
from leveret.broker.node.outages import PAUSE_S
from leveret.broker.node.store_server import store_folder
from leveret.core.addresses import Address
from leveret.core.system.files import Buffer, Files, OsCalls
from leveret.management.node_admin import NodeAdmin
from leveret.server.broker import Broker
from leveret.server.config.config import Config
from leveret.testing.manual_clock import ManualClock
from rigs.waiting import eventually

VHOST = "v"
HANGS_AT_MOST_S = 30.0  # so that a test of a loop that waits for the disk fails and ends


class Disk(OsCalls):
    """Calls on the files of one vhost fail with ``error`` while there is one, or hang; the others work."""

    def __init__(self, data: Path) -> None:
        self._folder = store_folder(data, VHOST)
        self.error: OSError | None = None
        self.calls: frozenset[str] = frozenset()
        self.failures = 0
        self._goes_on = threading.Event()
        self._goes_on.set()
        self.hanging = 0  # calls that have not returned

    def hang(self, *calls: str) -> None:
        """Let calls on the files wait until ``heal``."""
        self._goes_on.clear()
        self.calls = frozenset(calls)

    def fail(self, code: int, *calls: str) -> None:
        self.error, self.calls = OSError(code, "of the test"), frozenset(calls)

    def heal(self) -> None:
        self.error = None
        self._goes_on.set()

    def _meets(self, call: str, path: Path) -> None:
        if call in self.calls and path.is_relative_to(self._folder) and not self._goes_on.is_set():
            self.hanging += 1
            self._goes_on.wait(HANGS_AT_MOST_S)
            self.hanging -= 1
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

    def pread(self, descriptor: int, count: int, offset: int) -> bytes:
        self._meets("read", Path(f"/proc/self/fd/{descriptor}").readlink())
        return super().pread(descriptor, count, offset)

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


def filled(channel: Any, queue: str = "q") -> None:
    """Declare a durable queue with one message, which is confirmed."""
    channel.ok("queue.declare", queue=queue, durable=True)
    channel.ok("confirm.select")
    channel.publish(queue, b"kept", delivery_mode=2)
    channel.read_confirms({1})


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
