"""A store under full load, with a model of the rows that are durable at every LSN where a memtable ends.

Publishes to some queues, fan-out included, acks at random, so that the collector merges and unlinks and
checkpoints never rest; on the real disk, with real threads.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

from leveret.core.gil_yielding import GilYielding
from leveret.core.message import Message, origin_of
from leveret.msg_store.checkpoint.checkpoint import CheckpointLimits
from leveret.msg_store.drivers import StoreLimits, threads
from leveret.msg_store.gc.choose import ChoiceLimits
from leveret.msg_store.gc.driver import Pace
from leveret.msg_store.memtable.memtable import Memtable
from leveret.msg_store.offline.inspection import Inspection
from leveret.msg_store.wal.flush import Flush
from leveret.msg_store.wal.group_commit import GroupCommit, Report
from leveret.msg_store.wal.pending import EVERY_NO
from rigs.store.live_store import LiveStore, files_at

QUEUES = (1, 2, 3)
RDQ_FILE_BYTES = 60_000
DEPTH = 400
LIMITS = StoreLimits(
    checkpoint=CheckpointLimits(rows=300, journal_bytes=30_000),
    choice=ChoiceLimits(file_bytes=RDQ_FILE_BYTES),
    pace=Pace(delay_s=0.0, pause_s=0.0, grace_s=0.0),
)
Rows = dict[tuple[int, int], int]  # queue_no and seq -> msg_no


def body_of(msg_no: int) -> bytes:
    rng = random.Random(msg_no)
    return rng.randbytes(rng.choice([0, 10, 300, 3_000]))


class Oracle:
    """Watches a group commit.

    Attributes:
        durable: the rows that the last flush left.
        at: the durable rows, by the LSN where a memtable ended.
    """

    def __init__(self, core: GroupCommit, durable: Rows | None = None) -> None:
        self.durable = dict(durable or {})
        self.at: dict[int, Rows] = {}
        flushes: list[Flush] = []
        start, finish, rotate = core.start, core.finish, core.rotate

        def started(below: int = EVERY_NO) -> Flush:
            flushes.append(start(below))
            return flushes[-1]

        def finished(*errors: Exception | None) -> Report:
            report, flush = finish(*errors), flushes.pop()
            if not any(errors):
                self._add(flush)
            return report

        def rotated(*arguments: Any, **more: Any) -> Memtable:
            memtable = rotate(*arguments, **more)
            self.at[memtable.checkpoint.lsn] = dict(self.durable)
            return memtable

        core.start, core.finish, core.rotate = started, finished, rotated

    def _add(self, flush: Flush) -> None:
        for queue_no, rows in flush.rows.items():
            self.durable.update({(queue_no, row[0]): row[1] for row in rows})
        for queue_no, acks in flush.batch.acks.items():
            for seq, _ in acks:
                del self.durable[queue_no, seq]


class LoadedStore:
    """The store and its load."""

    def __init__(self, path: Path, boot_epoch: int, seed: int) -> None:
        self.rng = random.Random(seed)
        where = files_at(path, rdq_file_bytes=RDQ_FILE_BYTES, journal_file_bytes=20_000)
        self.gil_yielding = GilYielding(asyncio.get_running_loop())
        self.live = LiveStore(where, boot_epoch, LIMITS, drivers=threads(self.gil_yielding))
        self.store, self.errors = self.live.store, self.live.errors
        self.core, recovered = self.store.core, self.live.opened.recovered
        durable: Rows = {
            (no, row[0]): row[1]
            for no in QUEUES
            for row in recovered.index.rows(no, 0, 1 << 64, 1 << 30)
        }
        self.held = [(*key, msg_no) for key, msg_no in durable.items()]
        self.oracle = Oracle(self.core, durable)
        self.next_seq = dict.fromkeys(QUEUES, recovered.next_no)

    def publish(self) -> None:
        """Publish some messages to some queues."""
        queue_nos = tuple(self.rng.sample(QUEUES, self.rng.choice([1, 1, 2, 3])))
        first, count = self.core.next_msg_no, self.rng.randint(1, 20)
        messages: list[Message] = [
            (origin_of(b"x", b"key"), b"head", body_of(msg_no))
            for msg_no in range(first, first + count)
        ]
        assert self.core.write(messages, queue_nos) == first
        for queue_no in queue_nos:
            seq = self.next_seq[queue_no]
            self.next_seq[queue_no] += count
            self.core.publish(queue_no, seq, [(first + n, 0) for n in range(count)])
            self.held += [(queue_no, seq + n, first + n) for n in range(count)]

    def ack(self) -> None:
        """Ack some, more of them the deeper the queues are."""
        self.rng.shuffle(self.held)
        count = max(0, len(self.held) - DEPTH) + self.rng.randrange(20)
        taken, self.held = self.held[:count], self.held[count:]
        for queue_no, seq, msg_no in taken:
            self.core.ack(queue_no, [(seq, msg_no)])

    async def work(self) -> None:
        """Publish and ack until cancelled."""
        while True:
            self.publish()
            self.ack()
            await asyncio.sleep(0)

    async def snapshot(self, target: Path) -> None:
        """Make a snapshot, or raise its error."""
        done: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self.store.snapshot(target, done.set_result)
        error = await asyncio.wait_for(done, 60)
        if error is not None:
            raise error

    async def stop(self) -> None:
        await self.live.stop()
        self.gil_yielding.close()


def rows_of(store: Inspection) -> Rows:
    """Return all rows of an offline store."""
    return {
        (queue_no, row[0]): row[1] for queue_no in store.queue_nos() for row in store.rows(queue_no)
    }
