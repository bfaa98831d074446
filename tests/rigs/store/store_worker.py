"""A process that publishes and acks as fast as it can and prints its confirms; made to be killed.

    python store_worker.py FOLDER BOOT_EPOCH SEED

Prints one line per event, flushed: ``c QUEUE FIRST COUNT`` confirmed, ``p QUEUE SEQ MSG_NO SIZE`` is
about to be published, ``a QUEUE SEQ`` acked, ``d QUEUE SEQ`` the ack is durable. Bodies follow from
the message's number (``body_of``).
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from leveret.core.message import Message, origin_of
from leveret.msg_store.checkpoint.checkpoint import CheckpointLimits
from leveret.msg_store.drivers import StoreLimits
from leveret.msg_store.format.rows import SEQ_END
from leveret.msg_store.recovery.replay import pages
from leveret.msg_store.threads.writers import Then, Work, Writers
from leveret.msg_store.wal.group_commit import GroupCommit, Report
from rigs.store.live_store import LiveStore, files_at

QUEUES = (1, 2, 3)
BATCH = 20
LIMITS = StoreLimits(checkpoint=CheckpointLimits(rows=300, journal_bytes=30_000))


def body_of(text: str, size: int) -> bytes:
    return random.Random(text).randbytes(size)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Worker:
    def __init__(self, path: Path, boot_epoch: int, seed: int) -> None:
        self.rng = random.Random(seed)
        where = files_at(path, now_ms=now_ms, rdq_file_bytes=200_000, journal_file_bytes=20_000)
        live = LiveStore(where, boot_epoch, LIMITS, self.deliver)
        recovered, self.core, self.checkpointer = live.recovered, live.core, live.checkpointer
        self.live = live
        self.next_seq = dict.fromkeys(QUEUES, recovered.next_no)
        self.held = [
            (no, row[0], row[1]) for no in QUEUES for row in pages(recovered.index, no, 0, SEQ_END)
        ]
        live.flushes._writers = Telling(live.flushes._writers, self.core, self.say)

    def say(self, lines: str) -> None:
        """One system call, so that a kill leaves whole lines."""
        os.write(1, lines.encode())

    def deliver(self, report: Report) -> None:
        self.say("".join("c {} {} {}\n".format(*run) for run in report.safe))

    def publish(self) -> None:
        queue_nos = tuple(self.rng.sample(QUEUES, self.rng.choice([1, 1, 2, 3])))
        count, size = self.rng.randint(1, BATCH), self.rng.choice([10, 100, 1000, 9000])
        texts = [f"{self.rng.getrandbits(60)}" for _ in range(count)]
        messages: list[Message] = [
            (origin_of(b"", text.encode()), b"head", body_of(text, size)) for text in texts
        ]
        first = self.core.write(messages, queue_nos)
        for queue_no in queue_nos:
            seq = self.next_seq[queue_no]
            self.next_seq[queue_no] += count
            rows = range(count)
            self.say("".join(f"p {queue_no} {seq + n} {first + n} {size}\n" for n in rows))
            self.core.publish(queue_no, seq, [(first + n, 0) for n in rows])
            self.held += [(queue_no, seq + n, first + n) for n in rows]

    def ack(self) -> None:
        self.rng.shuffle(self.held)
        count = max(0, len(self.held) - 200) + self.rng.randrange(BATCH)
        taken, self.held = self.held[:count], self.held[count:]
        self.say("".join(f"a {queue_no} {seq}\n" for queue_no, seq, _ in taken))
        for queue_no, seq, msg_no in taken:
            self.core.ack(queue_no, [(seq, msg_no)])

    async def run(self) -> None:
        self.say("ready\n")
        while True:
            self.publish()
            if self.rng.random() < 0.5:
                self.ack()
            if self.rng.random() < 0.02:
                self.checkpointer.request()
            await asyncio.sleep(0)


class Telling:
    """Writers that tell which acks each flush made durable."""

    def __init__(self, writers: Writers, core: GroupCommit, say: Callable[[str], None]) -> None:
        self.writers, self.core, self.say = writers, core, say
        self.end, self.close = writers.end, writers.close

    def submit(self, rdq: Work, journal: Work, then: Then) -> None:
        acks = self.core._flush.batch.acks

        def ended(errors: Sequence[Exception]) -> None:
            assert not errors, errors
            then(errors)
            for queue_no, some in acks.items():
                self.say("".join(f"d {queue_no} {seq}\n" for seq, _ in some))

        self.writers.submit(rdq, journal, ended)


async def main() -> None:
    path, boot_epoch, seed = sys.argv[1:]
    await Worker(Path(path), int(boot_epoch), int(seed)).run()


if __name__ == "__main__":
    asyncio.run(main())
