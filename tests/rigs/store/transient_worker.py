"""A process that pages out a million small messages and reports RAM and CPU.

    python transient_worker.py FOLDER COUNT

Prints a line of JSON: RssAnon in bytes after a start-up and with all of it on disk, and seconds of CPU for
paging out, for reading everything back in order, and for acking it.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

from leveret.core.message import origin_of
from leveret.core.system.files import Files
from leveret.msg_store.format.file_header import Identity
from leveret.msg_store.transient.store import TransientStore

QUEUES = 4
BATCH = 1_000
WINDOW = 2_048
ORIGIN, HEAD = origin_of(b"", b"queue"), bytes(14)


def rss_anon_bytes() -> int:
    text = Path("/proc/self/status").read_text()
    found = re.search(r"RssAnon:\s+(\d+) kB", text)
    assert found is not None
    return int(found[1]) * 1024


def body(queue_no: int, seq: int) -> bytes:
    return b"%d/%d" % (queue_no, seq)


class Worker:
    def __init__(self, folder: Path) -> None:
        self.loop = asyncio.get_running_loop()
        self.credit = {no: asyncio.Event() for no in range(QUEUES)}
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

    async def page_out(self, queue_no: int, first: int, count: int) -> None:
        for start in range(first, first + count, BATCH):
            left: list[Any] = []
            for seq in range(start, start + BATCH):
                content = body(queue_no, seq)
                message = (ORIGIN, HEAD, content)
                left.append((seq, message, 0, False, 0, len(content), False, False))
            while left:
                taken = self.store.page_out(queue_no, left)
                del left[:taken]
                if left:
                    self.credit[queue_no].clear()
                    await self.credit[queue_no].wait()
            await asyncio.sleep(0)

    async def rows(self, queue_no: int, low: int, high: int) -> list[Any]:
        answer = self.loop.create_future()
        self.store.rows(queue_no, low, high, WINDOW, answer.set_result)
        return await answer

    async def read_back(self, queue_no: int, count: int) -> None:
        low = 0
        while low < count:
            seqs = [row[0] for row in await self.rows(queue_no, low, min(low + WINDOW, count))]
            assert seqs == list(range(low, min(low + WINDOW, count)))
            for at in range(0, len(seqs), 256):
                answer = self.loop.create_future()
                self.store.read(queue_no, seqs[at : at + 256], answer.set_result)
                found = await answer
                assert len(found) == len(seqs[at : at + 256])
                assert all(found[seq][2] == body(queue_no, seq) for seq in found)
            low += WINDOW

    async def ack(self, queue_no: int, count: int) -> None:
        for low in range(0, count, BATCH):
            acked = [
                (seq, None, 0, False, 0, len(body(queue_no, seq)), True, True)
                for seq in range(low, low + BATCH)
            ]
            self.store.ack(queue_no, acked)
            await asyncio.sleep(0)


async def run(folder: Path, count: int) -> dict[str, float]:
    worker = Worker(folder)
    each = count // QUEUES
    for no in range(QUEUES):  # the cost of a first use is not measured
        await worker.page_out(no, each, BATCH)
    before = rss_anon_bytes()
    result: dict[str, float] = {"before": before}
    for name, work in (
        ("page_out_s", lambda no: worker.page_out(no, 0, each)),
        ("read_back_s", lambda no: worker.read_back(no, each)),
        ("ack_s", lambda no: worker.ack(no, each)),
    ):
        start = time.process_time()
        await asyncio.gather(*[work(no) for no in range(QUEUES)])
        result[name] = time.process_time() - start
        if name == "read_back_s":  # and all is written long since
            result["growth"] = rss_anon_bytes() - before
            result["disk_bytes"] = worker.store.stats().disk_bytes
    worker.store.close()
    return result


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(run(Path(sys.argv[1]), int(sys.argv[2])))) + "\n")
