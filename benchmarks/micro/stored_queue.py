"""Costs of a message in a variable queue on a real store, threads and disk included.

Three ways: *straight*, published, confirmed, fetched and acked while it is in RAM; *backlog*, all are
published and confirmed, paged out, then read back and acked; *transient*, the same with transients.
CPU microseconds of the whole process per message, and messages per second, of one run each.

    .venv/bin/python -P benchmarks/micro/stored_queue.py [messages] [folder]
"""

from __future__ import annotations

import asyncio
import platform
import sys
import tempfile
import time
from pathlib import Path

from leveret.core.clock import SystemClock
from leveret.core.message import Message, origin_of
from leveret.core.system.files import Files
from leveret.msg_store.format.ballast import Ballast
from leveret.msg_store.recovery.recovery import StoreFiles, open_store
from leveret.msg_store.store import MsgStore
from leveret.queue_backing.index.stored import StoredIndex
from leveret.queue_backing.variable.queue import VariableQueue

MESSAGES = 200_000
BATCH = 100
OUTSTANDING = 4_000
BYTES_MAX = 256 * 1024
BODY_BYTES = 1024


class Owner:
    """Takes the queue's confirms and other events in the loop."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self.queue: VariableQueue
        self.confirmed_count = 0

    def confirmed(self, runs: list[tuple[int, int]]) -> None:
        self.confirmed_count += sum(count for _, count in runs)
        self.changed.set()

    def resume(self) -> None:
        self.queue.resume()
        self.changed.set()

    def nacked(self, runs: list[tuple[int, int]]) -> None:
        raise AssertionError(runs)

    def failed(self, error: Exception) -> None:
        raise error


class Bench:
    def __init__(self, folder: Path, count: int) -> None:
        files = Files()
        where = StoreFiles(files, folder, Ballast(files, folder, 0), lambda: 0)
        loop = asyncio.get_running_loop()
        self.store = MsgStore(open_store(where, 1), loop, loop.time, self.failed)
        self.count = count
        self.owner = Owner()
        index = StoredIndex(self.store.client(1, True), self.owner)
        self.queue = VariableQueue(index, SystemClock(loop))
        self.owner.queue = self.queue
        self.queue.init(False)

    def failed(self, error: Exception) -> None:
        raise error

    def batch(self) -> list[Message]:
        origin, head = origin_of(b"", b"queue"), bytes(14)
        return [(origin, head, bytes(BODY_BYTES)) for _ in range(BATCH)]

    def publish(self, persistent: bool = True) -> None:
        messages = self.batch()
        number = self.store.write(messages, (1,)) if persistent else 0
        self.queue.publish(messages, persistent, None, BATCH * BODY_BYTES, False, number)

    async def change(self) -> None:
        while self.queue.needs_timeout():
            self.queue.timeout()
            await asyncio.sleep(0)
        self.owner.changed.clear()
        await asyncio.wait_for(self.owner.changed.wait(), 60)

    async def straight(self) -> None:
        published, owner = 0, self.owner
        start = owner.confirmed_count
        while owner.confirmed_count - start < self.count:
            while (
                published < self.count and published - owner.confirmed_count + start < OUTSTANDING
            ):
                self.publish()
                published += BATCH
                await asyncio.sleep(0)
            await self.change()
            while self.queue.len():
                self.queue.ack(self.queue.fetch(BATCH, BYTES_MAX, True).seqs)

    async def fill(self, persistent: bool = True) -> None:
        owner = self.owner
        self.queue.set_queue_mode("lazy")
        start = owner.confirmed_count
        for published in range(0, self.count, BATCH):
            self.publish(persistent)
            await asyncio.sleep(0)
            while persistent and published - owner.confirmed_count + start >= OUTSTANDING:
                await self.change()
        while persistent and owner.confirmed_count - start < self.count:
            await self.change()

    async def drain(self) -> None:
        while self.queue.len():
            self.owner.changed.clear()
            fetched = self.queue.fetch(BATCH, BYTES_MAX, True)
            self.queue.ack(fetched.seqs)
            await asyncio.sleep(0)
            if fetched.pending:
                await asyncio.wait_for(self.owner.changed.wait(), 60)
        self.queue.set_queue_mode("default")

    async def stop(self) -> None:
        stopped = asyncio.Event()
        self.queue.terminate()
        self.store.stop(stopped.set)
        await stopped.wait()


async def run(folder: Path, count: int) -> None:
    bench = Bench(folder / "store", count)
    steps = [
        ("straight", bench.straight),
        ("backlog, in", bench.fill),
        ("backlog, out", bench.drain),
        ("transient, in", lambda: bench.fill(persistent=False)),
        ("transient, out", bench.drain),
    ]
    for name, step in steps:
        cpu_s, wall_s = time.process_time(), time.perf_counter()
        await step()
        cpu_s, wall_s = time.process_time() - cpu_s, time.perf_counter() - wall_s
        print(f"{name:15} {cpu_s / count * 1e6:6.2f} us CPU  {count / wall_s:9.0f} messages/s")
    await bench.stop()


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else MESSAGES
    where = sys.argv[2] if len(sys.argv) > 2 else None
    print(f"Python {platform.python_version()}, {count} messages of {BODY_BYTES} bytes")
    with tempfile.TemporaryDirectory(dir=where) as folder:
        asyncio.run(run(Path(folder), count))


if __name__ == "__main__":
    main()
