"""A store's group commit and its writer threads on the loop of a test, and what they have reported."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

from leveret.core.files import Files, OsCalls
from leveret.msg_store.format.ballast import Ballast
from leveret.msg_store.format.folder import StoreFolder
from leveret.msg_store.recovery.recovery import Recovery
from leveret.msg_store.threads.writers import SyncTimes
from leveret.msg_store.wal.driver import FlushDriver
from leveret.msg_store.wal.group_commit import Report
from leveret.testing.faulty_files import FaultyCalls
from rigs.store.store_rig import message


class Running:
    """A store on the test's loop, and what it has reported."""

    def __init__(
        self, path: Path, boot_epoch: int = 1, calls: FaultyCalls | OsCalls | None = None
    ) -> None:
        self.calls = calls or FaultyCalls(OsCalls(), random.Random(1))
        self.folder = StoreFolder(Files(self.calls), path, lambda: bytes(16), lambda: 1)
        ballast = Ballast(self.folder.files, path, 1000)
        recovery = Recovery(self.folder, boot_epoch, ballast, lambda: 1)
        self.recovered, self.core = recovery.run()
        self.rdq_log, self.journal_log = recovery.rdq_log, recovery.journal_log
        self.reports: list[Report] = []
        self.reported = asyncio.Event()
        self.syncs = SyncTimes(time.monotonic)
        self.threads = FlushDriver(
            self.core,
            self.rdq_log,
            self.journal_log,
            asyncio.get_running_loop(),
            self.deliver,
            self.syncs,
        )

    def deliver(self, report: Report) -> None:
        self.reports.append(report)
        self.reported.set()

    async def report(self) -> Report:
        await asyncio.wait_for(self.reported.wait(), 30)
        self.reported.clear()
        return self.reports[-1]

    def publish(self, seq: int, count: int = 1, is_awaited: bool = True) -> int:
        first = self.core.write([message(str(seq))] * count, (1,))
        rows = [(first + index, 0) for index in range(count)]
        self.core.publish(1, seq, rows, is_awaited=is_awaited)
        return first

    async def stop(self) -> None:
        stopped = asyncio.Event()
        self.threads.stop(stopped.set)
        await asyncio.wait_for(stopped.wait(), 30)
        self.close()

    def close(self) -> None:
        self.threads.close()
        self.recovered.index.close()
        self.folder.close()
