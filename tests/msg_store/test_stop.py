"""A store that is stopped in order while one of its threads hangs in a call of the disk."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from leveret.core.system.files import OsCalls
from leveret.msg_store.checkpoint.checkpoint import CheckpointLimits
from leveret.msg_store.format.errors import StoreLocked
from rigs.store.collector.collector_running import Running, drawn
from rigs.store.live_store import opened_at
from rigs.store.transient_rig import entry
from rigs.waiting import eventually

HANGS_AT_MOST_S = 20.0  # so that a test of a loop that waits for the disk fails and ends


class Disk(OsCalls):
    """A disk on which one call hangs, for files in a folder and with a suffix, when the test says so."""

    def __init__(self) -> None:
        self._goes_on = threading.Event()
        self._hangs_at = ("", "", "")
        self.hanging = 0

    def hang(self, call: str, folder: str, suffix: str) -> None:
        self._hangs_at = (call, folder, suffix)

    def heal(self) -> None:
        self._goes_on.set()

    def _meets(self, call: str, path: Path) -> None:
        if (call, path.parent.name, path.suffix) == self._hangs_at and not self._goes_on.is_set():
            self.hanging += 1
            self._goes_on.wait(HANGS_AT_MOST_S)
            self.hanging -= 1

    def open(self, path: Path, flags: int) -> int:
        self._meets("open", path)
        return super().open(path, flags)

    def pread(self, descriptor: int, count: int, offset: int) -> bytes:
        self._meets("pread", Path(f"/proc/self/fd/{descriptor}").readlink())
        return super().pread(descriptor, count, offset)

    def fdatasync(self, descriptor: int) -> None:
        self._meets("fdatasync", Path(f"/proc/self/fd/{descriptor}").readlink())
        super().fdatasync(descriptor)

    def unlink(self, path: Path) -> None:
        self._meets("unlink", path)
        super().unlink(path)


class Stopping:
    """A store of one queue with messages on the disk; a thread of it can be made to hang."""

    def __init__(self, path: Path, rng: random.Random) -> None:
        self.disk = Disk()
        self._rng = rng
        self.running = Running(
            path, calls=self.disk, checkpoint=CheckpointLimits(rows=500), file_bytes=1 << 15
        )
        self.store = self.running.live.store
        self.reading: asyncio.Task[object] | None = None
        self.ended = asyncio.Event()

    async def hang(self, thread: str) -> None:
        await self.publish()
        match thread:
            case "reader":
                self.disk.hang("pread", "rdq", ".rdq")
                msg_nos = list(self.running.rows.values())
                self.reading = asyncio.ensure_future(self.running.read(msg_nos))
            case "merge":
                self.disk.hang("open", "rdq", ".rdt")
                await self.publish_and_ack()
            case "removal":
                self.disk.hang("unlink", "rdq", ".rdq")
                await self.publish_and_ack()
            case "transients":
                self.disk.hang("open", "transient", ".rdq")
                self.store.transients.page_out(2, [entry(seq) for seq in range(50)])
        await eventually(lambda: self.disk.hanging)

    async def publish(self) -> None:
        self.running.publish(300, 500)
        await self.running.all_safe()

    async def publish_and_ack(self) -> None:
        while not self.disk.hanging:
            await self.publish()
            self.running.ack(drawn(self._rng, self.running.rows, 0.8))
            await self.running.all_safe()

    async def stop(self) -> None:
        """Stop in order, and wait until all is written and the files are being closed."""
        self.store.stop(self.ended.set)
        await eventually(lambda: self.store.core.error is not None)

    async def end(self) -> None:
        self.disk.heal()
        await asyncio.wait_for(self.ended.wait(), 30)


@pytest.fixture
async def stopping(tmp_path: Path, rng: random.Random) -> AsyncIterator[Stopping]:
    stopping = Stopping(tmp_path, rng)
    yield stopping
    stopping.disk.heal()
    stopping.running.kill()
    if stopping.reading is not None:
        stopping.reading.cancel()
        with suppress(asyncio.CancelledError):
            await stopping.reading
    await eventually(
        lambda: not [each for each in threading.enumerate() if each.name.startswith("leveret-")]
    )


@pytest.mark.parametrize("thread", ["reader", "merge", "removal", "transients"])
async def test_a_thread_that_hangs_delays_the_end_of_its_store_and_not_the_loop(
    stopping: Stopping, tmp_path: Path, thread: str
) -> None:
    await stopping.hang(thread)
    stopping.running.publish(5, 500)

    await stopping.stop()
    assert stopping.disk.hanging, "the loop has waited for it"
    assert not stopping.ended.is_set()
    with pytest.raises(StoreLocked):
        opened_at(tmp_path / "store", 2)
    await stopping.end()

    opened = opened_at(tmp_path / "store", 2)
    recovered = opened.recovered
    assert recovered.is_clean
    assert recovered.queues[1].messages == len(stopping.running.rows)
    assert not recovered.report.is_damage
    assert not recovered.report.dropped
    opened.close()


async def test_a_store_that_has_failed_is_stopped_while_a_flush_hangs(
    stopping: Stopping, tmp_path: Path
) -> None:
    await stopping.publish()
    stopping.disk.hang("fdatasync", "journal", ".jnl")
    stopping.running.publish(1, 500)
    await eventually(lambda: stopping.disk.hanging)
    stopping.store._part_failed(ZeroDivisionError("a bug"))

    stopping.store.stop(stopping.ended.set)
    await eventually(lambda: stopping.store._is_closed)
    assert stopping.disk.hanging, "the loop has waited for it"
    assert not stopping.ended.is_set()
    await stopping.end()

    opened = opened_at(tmp_path / "store", 2)
    assert opened.recovered.memtables.terms[1].messages == 301
    opened.close()


@pytest.mark.parametrize(
    "part", ["_flusher", "_collecting", "_reader", "transients", "_index_threads"]
)
async def test_a_bug_in_the_end_of_a_part_leaves_no_folder_locked(
    stopping: Stopping, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    reported: list[str] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, about: reported.append(repr(about.get("exception")))
    )
    kind = type(getattr(stopping.store, part))
    close = kind.close

    def broken(closed: object) -> None:
        close(closed)
        raise TypeError("a bug")

    await stopping.publish()
    with monkeypatch.context() as patched:
        patched.setattr(kind, "close", broken)
        stopping.store.stop(stopping.ended.set)
        await stopping.end()

    opened = opened_at(tmp_path / "store", 2)
    assert opened.recovered.is_clean
    opened.close()
    assert reported == ["TypeError('a bug')"]


async def test_a_store_can_be_killed_while_its_files_are_closed(stopping: Stopping) -> None:
    await stopping.hang("reader")
    await stopping.stop()
    killed = asyncio.Event()

    stopping.store.kill(killed.set)
    await asyncio.sleep(0)
    assert not killed.is_set()
    await stopping.end()

    assert killed.is_set()
