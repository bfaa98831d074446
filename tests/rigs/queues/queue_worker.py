"""A process with variable queues over a store, all threads running; made to be killed.

    python queue_worker.py FOLDER BOOT_EPOCH SEED

It publishes persistent and transient messages to three queues, one or several at a time, fetches, acks
and requeues, changes RAM targets, and says what happens, a line per message: ``p QUEUE ID`` before it is
published, ``c QUEUE ID`` confirmed, ``f QUEUE ID`` fetched, ``a QUEUE ID`` before it is acked. Ids are the
first bytes of the bodies, which follow from them (``body_of``); ids of transients end with ``t``.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from pathlib import Path

from leveret.core.message import BODY, Message, origin_of
from leveret.msg_store.checkpoint.checkpoint import CheckpointLimits
from leveret.msg_store.drivers import StoreLimits
from leveret.msg_store.gc.choose import ChoiceLimits
from leveret.msg_store.gc.driver import Pace
from leveret.msg_store.store import MsgStore
from leveret.queue_backing.index.stored import StoredIndex
from leveret.queue_backing.variable.limits import Limits
from leveret.queue_backing.variable.queue import VariableQueue
from rigs.store.live_store import LiveStore, files_at

QUEUES = (1, 2, 3)
BATCH = 20
FILE_BYTES = 100_000
LIMITS = Limits(segment=32, io_batch=1, step=200, read_max=32, slack=0, read_ahead=32)
STORE_LIMITS = StoreLimits(
    checkpoint=CheckpointLimits(rows=400, journal_bytes=40_000),
    choice=ChoiceLimits(file_bytes=FILE_BYTES, small_files_max=3),
    pace=Pace(delay_s=0.01, pause_s=0.0, grace_s=0.01, retry_s=0.1),
)


class Clock:
    def monotonic_s(self) -> float:
        return time.monotonic()


def body_of(name: str) -> bytes:
    """Return the body of the message with this id."""
    rng = random.Random(name)
    return name.encode() + b" " + rng.randbytes(rng.choice([5, 100, 1000, 5000]))


def name_of(body: bytes) -> str:
    """Return the id of a message; fails if the body does not follow from it."""
    name = body.split(b" ", 1)[0].decode()
    assert body == body_of(name), f"the body of {name} is not its own"
    return name


def running_store(folder: Path, epoch: int) -> LiveStore:
    where = files_at(folder, rdq_file_bytes=FILE_BYTES, journal_file_bytes=FILE_BYTES)
    running = LiveStore(where, epoch, STORE_LIMITS)
    report = running.opened.recovered.report
    assert not report.is_damage, report
    return running


def stop_process(error: Exception) -> None:
    """End at once: nothing here is expected to fail."""
    sys.stderr.write(f"failed: {error!r}\n")
    os._exit(3)


class Queue:
    """One queue and the confirms it owes."""

    def __init__(self, store: MsgStore, queue_no: int) -> None:
        self.no = queue_no
        self.queue = VariableQueue(StoredIndex(store.client(queue_no), self), Clock(), LIMITS)
        self.queue.init(True)
        self.owed: dict[int, str] = {}
        self.unacked: dict[int, str] = {}
        self.changed = asyncio.Event()
        self.lines: list[str] = []

    def say(self, kind: str, name: str) -> None:
        self.lines.append(f"{kind} {self.no} {name}\n")

    def publish(self, messages: list[Message], names: list[str], first: int) -> None:
        seq, is_safe = self.queue.publish(messages, bool(first), None, None, False, first)
        if not is_safe:
            self.owed.update(enumerate(names, seq))

    def fetch(self, limit: int) -> None:
        fetched = self.queue.fetch(limit, 100_000, ack_required=True)
        for seq, each in zip(fetched.seqs, fetched.messages, strict=True):
            self.unacked[seq] = name_of(each[BODY])
            self.say("f", self.unacked[seq])

    def settle(self, rng: random.Random) -> None:
        some = rng.sample(sorted(self.unacked), len(self.unacked) // 2)
        names = [self.unacked.pop(seq) for seq in some]
        if rng.random() < 0.2:
            self.queue.requeue(some)
            return
        for name in names:
            self.say("a", name)
        self.flush()
        self.queue.ack(some)

    def work(self) -> None:
        if self.queue.needs_timeout():
            self.queue.timeout()

    def flush(self) -> None:
        """One system call, so that a kill leaves whole lines."""
        if self.lines:
            os.write(1, "".join(self.lines).encode())
            self.lines.clear()

    def confirmed(self, runs: list[tuple[int, int]]) -> None:
        for first, count in runs:
            for seq in range(first, first + count):
                self.say("c", self.owed.pop(seq))
        self.flush()

    def resume(self) -> None:
        self.queue.resume()
        self.changed.set()

    def nacked(self, runs: list[tuple[int, int]]) -> None:
        stop_process(AssertionError(runs))

    def failed(self, error: Exception) -> None:
        stop_process(error)


class Worker:
    def __init__(self, folder: Path, epoch: int, seed: int) -> None:
        self.rng = random.Random(seed)
        self.epoch = epoch
        self.count = 0
        self.store = running_store(folder, epoch).store
        self.queues = {no: Queue(self.store, no) for no in QUEUES}

    def publish(self) -> None:
        rng = self.rng
        is_persistent = rng.random() < 0.8
        numbers = tuple(sorted(rng.sample(QUEUES, rng.choice([1, 1, 2, 3]))))
        names = []
        for _ in range(rng.randint(1, BATCH)):
            self.count += 1
            names.append(f"{self.epoch:03}-{self.count:08}{'p' if is_persistent else 't'}")
        origin = origin_of(b"", b"key")
        messages = [(origin, b"head", body_of(name)) for name in names]
        first = self.store.write(messages, numbers) if is_persistent else 0
        for no in numbers:
            for name in names:
                self.queues[no].say("p", name)
            self.queues[no].flush()
            self.queues[no].publish(messages, names, first)

    async def run(self) -> None:
        os.write(1, b"ready\n")
        rng = self.rng
        while True:
            if sum(queue.queue.depth() for queue in self.queues.values()) < 2_000:
                self.publish()
            queue = self.queues[rng.choice(QUEUES)]
            queue.fetch(rng.randint(1, 30))
            if rng.random() < 0.5:
                queue.settle(rng)
            if rng.random() < 0.05:
                queue.queue.ram.rates.incoming = 1.0
                queue.queue.set_ram_duration_target(rng.choice([0.0, 20.0, float("inf")]))
            queue.work()
            queue.flush()
            await asyncio.sleep(0)


async def main() -> None:
    folder, epoch, seed = sys.argv[1:]
    await Worker(Path(folder), int(epoch), int(seed)).run()


if __name__ == "__main__":
    asyncio.run(main())
