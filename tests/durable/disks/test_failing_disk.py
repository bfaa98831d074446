"""Syncs and writes of a running broker fail: the store begins anew, the clients stay."""

from __future__ import annotations

import asyncio
import errno
import logging
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from chaos.rig import Chaos, chaos_on
from durable.history import check_contents, loaded
from leveret.broker.registry.registry import QueueEntry
from leveret.core.system.files import Buffer, OsCalls
from rigs.waiting import eventually


class FailingDisk(OsCalls):
    """Fails calls when it is told to; what a failed sync should have written is lost.

    The kernel may drop the pages of a failed sync and call them clean: here they become zeros.
    What an earlier sync has written stays, through whichever descriptor either came.
    """

    def __init__(self) -> None:
        self._armed: tuple[str, str] | None = None
        self._times = 0
        self._synced: dict[Path, int] = {}  # file -> bytes
        self._written: dict[Path, list[tuple[int, int]]] = {}  # file -> at, bytes, not synced
        self._lock = threading.Lock()
        self.failures = 0

    def arm(self, call: str, ending: str, times: int = 1) -> None:
        """Let the next such calls on such a file fail."""
        self._times = times
        self._armed = call, ending

    def _fails(self, call: str, file: Path) -> bool:
        with self._lock:
            if self._armed is None or self._armed[0] != call or file.suffix != self._armed[1]:
                return False
            self._times -= 1
            if not self._times:
                self._armed = None
            self.failures += 1
            return True

    def fdatasync(self, descriptor: int) -> None:
        file, size_bytes = path_of(descriptor), self.size(descriptor)
        written = self._written.pop(file, [])
        if self._fails("fdatasync", file):
            for offset, count in written:
                super().pwrite(descriptor, bytes(count), offset)
            self.truncate(descriptor, min(self._synced.get(file, 64), size_bytes))
            self.truncate(descriptor, size_bytes)
            raise OSError(errno.EIO, "Input/output error")
        super().fdatasync(descriptor)
        self._synced[file] = size_bytes

    def writev(self, descriptor: int, buffers: Sequence[Buffer]) -> int:
        if self._fails("write", path_of(descriptor)):
            raise OSError(errno.EIO, "Input/output error")
        return super().writev(descriptor, buffers)

    def pwrite(self, descriptor: int, data: Buffer, offset: int) -> int:
        if self._fails("write", path_of(descriptor)):
            raise OSError(errno.EIO, "Input/output error")
        count = super().pwrite(descriptor, data, offset)
        self._written.setdefault(path_of(descriptor), []).append((offset, count))
        return count


def path_of(descriptor: int) -> Path:
    """Name the file that is open."""
    return Path(f"/proc/self/fd/{descriptor}").readlink()


@pytest.fixture
def disk() -> FailingDisk:
    return FailingDisk()


@pytest.fixture
async def chaos(tmp_path: Path, disk: FailingDisk) -> AsyncIterator[Chaos]:
    async with chaos_on(disk, tmp_path) as rig:
        yield rig


async def failing(
    chaos: Chaos, disk: FailingDisk, fault: tuple[str, str], counts: list[int]
) -> None:
    """Let so many calls fail at once, time after time under load; nothing confirmed may be lost."""
    channel = await chaos.channel()
    load, history = await asyncio.to_thread(loaded, channel, chaos.broker.addresses[0])
    await asyncio.to_thread(load.wait_for, 150)
    for times in counts:
        failures = disk.failures + times
        disk.arm(*fault, times)
        await eventually(lambda failures=failures: disk.failures == failures)
        await asyncio.to_thread(load.wait_for_new, 150)
        chaos.clock.skip(400.0)  # three crashes in five minutes would end the virtual host
    await asyncio.to_thread(load.settle)
    await asyncio.to_thread(load.stop)

    await asyncio.to_thread(check_contents, channel, history)


@pytest.mark.parametrize("ending", [".rdq", ".jnl"])
@pytest.mark.parametrize("call", ["fdatasync", "write"])
async def test_after_an_error_of_the_disk_nothing_confirmed_is_lost(
    chaos: Chaos, disk: FailingDisk, call: str, ending: str
) -> None:
    await failing(chaos, disk, (call, ending), [1] * 5)


@pytest.mark.parametrize("ending", [".rdq", ".jnl"])
async def test_after_an_error_of_the_recovery_too_nothing_confirmed_is_lost(
    chaos: Chaos, disk: FailingDisk, ending: str
) -> None:
    await failing(chaos, disk, ("fdatasync", ending), [2] * 3)


@pytest.mark.parametrize("ending", [".rdq", ".jnl"])
async def test_of_a_store_that_failed_one_line_tells(
    chaos: Chaos,
    disk: FailingDisk,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    ending: str,
) -> None:
    channel = await chaos.channel()
    names = [f"q{number}" for number in range(50)]

    def used() -> None:
        channel.ok("confirm.select")
        for name in names:
            channel.ok("queue.declare", queue=name, durable=True)
            channel.ok("basic.consume", queue=name, consumer_tag=name)
            publish(name)

    def publish(name: str) -> None:
        channel.publish(name, b"x" * 10_000, delivery_mode=2)

    given_back: list[str] = []
    machine = chaos.broker.node.resources.machine
    note = lambda: given_back.append(threading.current_thread().name)  # noqa: E731
    monkeypatch.setattr(machine, "give_back", note)

    await asyncio.to_thread(used)
    caplog.set_level(logging.INFO)
    disk.arm("fdatasync", ending)
    for name in names:
        await asyncio.to_thread(publish, name)
    await eventually(lambda: any("message store opened" in line for line in caplog.messages))
    await eventually(lambda: all(entry.is_running for entry in queues_of(chaos)))

    severe = [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR]
    assert len(severe) == 1
    assert severe[0].startswith("message store failed, its vhost is restarted vhost=/ error=")
    assert not [line for line in caplog.messages if "Traceback" in line]
    assert given_back == ["leveret-open"], "the memory of the recovery"
    await chaos.round_trip("new")


def queues_of(chaos: Chaos) -> list[QueueEntry]:
    return list(chaos.broker.node.vhosts["/"].topology.queues.values())
