"""Costs of the transient store: messages are paged out, their rows read, their contents read, all acked.

On an asyncio loop with both threads and a real folder, four queues at once. Prints CPU microseconds per
message, of all threads together, and the bytes per message on the disk beyond its body.

    .venv/bin/python -P benchmarks/micro/transient_store.py [COUNT]
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from leveret.core.message import origin_of
from leveret.core.system.files import Files
from leveret.msg_store.format.file_header import Identity
from leveret.msg_store.transient.store import TransientStore

QUEUES = 4
BATCH = 1_000
WINDOW = 2_048
AHEAD = 256
ORIGIN, HEAD = origin_of(b"", b"queue"), bytes(14)


class Run:
    def __init__(self, folder: Path, size: int) -> None:
        self.message = (ORIGIN, HEAD, bytes(size))
        self.loop = asyncio.get_running_loop()
        self.credit = [asyncio.Event() for _ in range(QUEUES)]
        self.store = TransientStore(
            Files(),
            folder / "transient",
            Identity(bytes(16), 1),
            self.loop,
            lambda: 1,
            lambda no: self.credit[no].set(),
            lambda *lost: sys.exit(f"lost {lost}"),
            lambda error: sys.exit(f"failed {error!r}"),
        )

    def entries(self, low: int) -> list[Any]:
        message, size = self.message, len(self.message[2])
        return [(seq, message, 0, False, 0, size, False, False) for seq in range(low, low + BATCH)]

    async def page_out(self, no: int, count: int) -> None:
        for low in range(0, count, BATCH):
            left = self.entries(low)
            while left:
                taken = self.store.page_out(no, left)
                left = left[taken:]
                if left:
                    self.credit[no].clear()
                    await self.credit[no].wait()

    async def ask(self, method: Callable[..., None], *args: Any) -> Any:
        answer = self.loop.create_future()
        method(*args, answer.set_result)
        return await answer

    async def rows(self, no: int, count: int) -> None:
        for low in range(0, count, WINDOW):
            await self.ask(self.store.rows, no, low, low + WINDOW, WINDOW)

    async def contents(self, no: int, count: int) -> None:
        for low in range(0, count, AHEAD):
            await self.ask(self.store.read, no, range(low, min(low + AHEAD, count)))

    async def ack(self, no: int, count: int) -> None:
        for low in range(0, count, BATCH):
            self.store.ack(no, self.entries(low))
            await asyncio.sleep(0)
        while self.store.stats().live:  # noqa: ASYNC110  acks have no callback
            await asyncio.sleep(0.01)


async def measure(work: Callable[[int, int], Awaitable[None]], count: int) -> float:
    start = time.process_time()
    await asyncio.gather(*[work(no, count // QUEUES) for no in range(QUEUES)])
    return (time.process_time() - start) / count * 1e6


async def main(count: int) -> None:
    for size in (20, 1_024, 16_384):
        with tempfile.TemporaryDirectory() as folder:
            run = Run(Path(folder), size)
            costs = [await measure(run.page_out, count)]
            costs += [await measure(run.rows, count), await measure(run.contents, count)]
            stats = run.store.stats()
            costs += [await measure(run.ack, count)]
            run.store.close()
        words = ("page out", "rows", "contents", "ack")
        text = ", ".join(f"{word} {cost:.1f}" for word, cost in zip(words, costs, strict=True))
        beyond = stats.disk_bytes / stats.live - size
        print(f"{size} bytes: {text} us of CPU per message; {beyond:.0f} bytes beside the body")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 80_000))
