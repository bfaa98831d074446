"""One queue of a store on a real disk, with all threads, for tests of the collector."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from leveret.core.message import Message, origin_of
from leveret.core.system.files import SystemCalls
from leveret.msg_store.checkpoint.checkpoint import CheckpointLimits
from leveret.msg_store.drivers import StoreLimits
from leveret.msg_store.gc.choose import ChoiceLimits
from leveret.msg_store.gc.driver import Pace
from leveret.msg_store.wal.group_commit import Report
from rigs.store.live_store import LiveStore, files_at

QUICK = Pace(delay_s=0.0, pause_s=0.0, grace_s=0.0, retry_s=0.01)


class Running:
    """Publishes, reads and acks the messages of one queue as fast as the disk takes them."""

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
        where = files_at(path / "store", calls, rdq_file_bytes=file_bytes)
        limits = StoreLimits(
            checkpoint=checkpoint or CheckpointLimits(),
            choice=ChoiceLimits(file_bytes=file_bytes),
            pace=pace,
        )
        self.live = LiveStore(where, boot_epoch, limits, self._deliver, reached)
        self.opened, self.core = self.live.opened, self.live.core
        self.collector, self.collecting = self.live.collector, self.live.collecting
        self.contents, self.read_cache = self.live.store.contents, self.live.store.read_cache
        self.safe = 0
        self.rows: dict[int, int] = {}  # seq -> msg_no
        self.bodies: dict[int, bytes] = {}
        self.next_seq = self.opened.recovered.next_no
        self.error: Exception | None = None
        self.turned = asyncio.Event()

    def _deliver(self, report: Report) -> None:
        self.error = self.error or report.error
        self.safe += sum(count for _, _, count in report.safe)
        self.turned.set()

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
        found = self.contents.cached(msg_nos)
        while None in found:
            came = asyncio.Event()
            self.contents.prefetch([(no, len(self.bodies[no])) for no in msg_nos], came.set)
            await asyncio.wait_for(came.wait(), 60)
            found = self.contents.cached(msg_nos)
        self.read_cache.drop(msg_nos)
        return found

    async def stop(self) -> None:
        """Stop cleanly."""
        await self.live.stop()

    def kill(self) -> None:
        """End at once."""
        self.live.close()

    def size_bytes(self) -> int:
        """Return how much room the store takes on the disk."""
        size_bytes = 0
        for path in self.opened.folder.path.rglob("*"):
            with suppress(FileNotFoundError):  # removed a moment ago
                if path.is_file():
                    size_bytes += path.stat().st_blocks * 512
        return size_bytes


def drawn(rng: random.Random, rows: dict[int, int], share: float) -> list[int]:
    """Draw some of the seqs."""
    return [seq for seq in rows if rng.random() < share]
