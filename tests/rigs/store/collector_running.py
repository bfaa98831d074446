"""A store with all its threads on the test's loop and a real disk, for the collector."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from leveret.core.files import Files, OsCalls, SystemCalls
from leveret.core.message import Message, origin_of
from leveret.msg_store.checkpoint.checkpoint import CheckpointLimits
from leveret.msg_store.format.ballast import Ballast
from leveret.msg_store.format.pins import Pins
from leveret.msg_store.gc.choose import ChoiceLimits
from leveret.msg_store.gc.collector import Collector
from leveret.msg_store.gc.driver import CollectorDriver, Pace
from leveret.msg_store.reading.contents import ContentReader
from leveret.msg_store.reading.read_cache import ReadCache
from leveret.msg_store.reading.rows import ReadThread
from leveret.msg_store.reading.segments import SegmentReader
from leveret.msg_store.recovery.recovery import StoreFiles
from leveret.msg_store.threads.worker import ThreadWorker
from leveret.msg_store.wal.group_commit import Report
from rigs.store.live_store import LiveStore

QUICK = Pace(look_s=0.0, pause_s=0.0, grace_s=0.0, retry_s=0.01)


class Running:
    """One queue's messages, published, read and acked as fast as the disk takes them."""

    def __init__(
        self,
        path: Path,
        boot_epoch: int = 1,
        *,
        file_bytes: int = 1 << 16,
        checkpoint: CheckpointLimits | None = None,
        pace: Pace = QUICK,
        calls: SystemCalls | None = None,
        reached: Callable[[str], None] | None = None,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        files = Files(calls or OsCalls())
        ballast = Ballast(files, path, 1000)
        where = StoreFiles(files, path / "store", ballast, lambda: 7, file_bytes)
        limits = checkpoint or CheckpointLimits()
        self.live = LiveStore(where, boot_epoch, self._deliver, limits)
        self.opened, self.core, index = self.live.opened, self.live.core, self.live.index
        self.memtables = self.core.memtables
        self.safe = 0
        self.rows: dict[int, int] = {}  # seq -> msg_no
        self.bodies: dict[int, bytes] = {}
        self.next_seq = self.opened.recovered.next_no
        self.error: Exception | None = None
        self.turned = asyncio.Event()
        self.checkpointer, folder = self.live.checkpointer, self.live.folder
        self.segments = SegmentReader(folder)
        worker = ThreadWorker(self.loop, "leveret-read", self.segments.close)
        self.reader = ReadThread(worker, self._failed)
        self.read_cache = ReadCache(1 << 26)
        self.contents = ContentReader(
            self.core,
            self.memtables,
            self.segments,
            index,
            self.reader,
            self.loop,
            self.read_cache,
        )
        self.pins = Pins()
        self.removed: list[int] = []
        self.collector = Collector(
            folder,
            self.core,
            self.memtables,
            index,
            self.pins,
            lambda: 7,
            self._removed,
            self.checkpointer.request,
            ChoiceLimits(file_bytes=file_bytes),
        )
        self.collecting = CollectorDriver(
            self.collector, self.core, self.loop, self._failed, reached, pace=pace
        )
        self.pins.freed = self.collecting.wake

    # What the parts ask and tell.

    def _deliver(self, report: Report) -> None:
        self.error = self.error or report.error
        self.safe += sum(count for _, _, count in report.safe)
        self.turned.set()

    def _failed(self, error: Exception) -> None:
        self.error = error
        self.turned.set()

    def _removed(self, file_nos: list[int]) -> None:
        self.removed += file_nos
        self.contents.segments_removed(file_nos)
        self.turned.set()

    # What a test does.

    def publish(self, count: int, size: int) -> None:
        bodies = [b"%d." % (self.next_seq + index) + b"x" * size for index in range(count)]
        origin = origin_of(b"", b"queue")
        first = self.core.write([(origin, b"head", body) for body in bodies], (1,))
        self.core.publish(1, self.next_seq, [(first + index, 0) for index in range(count)])
        self.rows.update((self.next_seq + index, first + index) for index in range(count))
        self.bodies.update((first + index, body) for index, body in enumerate(bodies))
        self.next_seq += count

    def ack(self, seqs: list[int]) -> None:
        self.core.ack(1, [(seq, self.rows.pop(seq)) for seq in seqs])

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until something is so, looked at whenever anything happens."""
        async with asyncio.timeout(60):
            while not is_so():
                assert self.error is None, self.error
                self.turned.clear()
                self.loop.call_later(0.01, self.turned.set)
                await self.turned.wait()

    async def all_safe(self) -> None:
        """Wait until all that was published is on disk or acked."""
        self.core.hurry()
        await self.until(lambda: self.core.is_idle)

    async def read(self, msg_nos: list[int]) -> list[Message | None]:
        """Read contents as a queue does, and let them go again."""
        found = self.contents.look(msg_nos)
        while None in found:
            came = asyncio.Event()
            self.contents.prefetch([(no, len(self.bodies[no])) for no in msg_nos], came.set)
            await asyncio.wait_for(came.wait(), 60)
            found = self.contents.look(msg_nos)
        self.read_cache.drop(msg_nos)
        return found

    async def stop(self) -> None:
        """Stop cleanly."""
        self.collecting.close()
        await self.live.stop()
        self.reader.close()
        self.live.folder.close()

    def kill(self) -> None:
        """End at once."""
        self.collecting.close()
        self.reader.close()
        self.live.close()

    def size_bytes(self) -> int:
        """Return what lies on the disk."""
        size_bytes = 0
        for path in self.opened.folder.path.rglob("*"):
            with suppress(FileNotFoundError):  # removed a moment ago
                if path.is_file():
                    size_bytes += path.stat().st_blocks * 512
        return size_bytes


def drawn(rng: random.Random, rows: dict[int, int], share: float) -> list[int]:
    """Draw some of the seqs."""
    return [seq for seq in rows if rng.random() < share]
