"""Syncs and writes of a running broker fail: the store begins anew, the clients stay (F-21)."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from chaos.rig import Chaos, chaos_on
from durable.history import contents, loaded
from leveret.core.files import Buffer, OsCalls
from waiting import eventually


class FailingDisk(OsCalls):
    """Fails one call when it is told to; what a failed sync should have written is lost.

    The kernel may drop the pages of a failed sync and call them clean: here they become zeros.
    """

    def __init__(self) -> None:
        self._armed: tuple[str, str] | None = None
        self._synced: dict[int, int] = {}  # descriptor -> bytes
        self._lock = threading.Lock()
        self.failures = 0

    def arm(self, call: str, ending: str) -> None:
        """Let the next such call on such a file fail."""
        self._armed = call, ending

    def _fails(self, call: str, descriptor: int) -> bool:
        with self._lock:
            name = Path(f"/proc/self/fd/{descriptor}").readlink().name
            if self._armed is None or self._armed[0] != call or not name.endswith(self._armed[1]):
                return False
            self._armed = None
            self.failures += 1
            return True

    def close(self, descriptor: int) -> None:
        self._synced.pop(descriptor, None)
        super().close(descriptor)

    def fdatasync(self, descriptor: int) -> None:
        size_bytes = self.size(descriptor)
        if self._fails("fdatasync", descriptor):
            before = self._synced.get(descriptor, 64)
            self.truncate(descriptor, min(before, size_bytes))
            self.truncate(descriptor, size_bytes)
            raise OSError(errno.EIO, "Input/output error")
        super().fdatasync(descriptor)
        self._synced[descriptor] = size_bytes

    def writev(self, descriptor: int, buffers: Sequence[Buffer]) -> int:
        if self._fails("writev", descriptor):
            raise OSError(errno.EIO, "Input/output error")
        return super().writev(descriptor, buffers)


@pytest.fixture
def disk() -> FailingDisk:
    return FailingDisk()


@pytest.fixture
async def chaos(tmp_path: Path, disk: FailingDisk) -> AsyncIterator[Chaos]:
    async with chaos_on(disk, tmp_path) as rig:
        yield rig


@pytest.mark.parametrize("ending", [".rdq", ".jnl"])
@pytest.mark.parametrize("call", ["fdatasync", "writev"])
async def test_f21_after_an_error_nothing_confirmed_is_lost(
    chaos: Chaos, disk: FailingDisk, call: str, ending: str
) -> None:
    channel = await chaos.channel()
    load, history = await asyncio.to_thread(loaded, channel, chaos.broker.addresses[0])
    for failures in range(1, 6):
        await asyncio.to_thread(load.wait_for, len(history.confirmed) + 150)
        disk.arm(call, ending)
        await eventually(lambda failures=failures: disk.failures == failures)
        chaos.clock.skip(400.0)
    await asyncio.to_thread(load.wait_for, len(history.confirmed) + 150)
    await asyncio.to_thread(load.settle)
    await asyncio.to_thread(load.stop)

    def check() -> None:
        history.check(contents(channel, "kept"), contents(channel, "consumed"))

    await asyncio.to_thread(check)
