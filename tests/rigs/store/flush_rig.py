"""A store on the loop of a test, and the reports of its group commit."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

from leveret.core.system.files import OsCalls
from leveret.msg_store.drivers import DEFAULT_LIMITS, StoreLimits
from leveret.msg_store.wal.group_commit import Report
from rigs.disk.faulty_files import FaultyCalls
from rigs.store.live_store import LiveStore, ended, files_at
from rigs.store.store_rig import message


class Running:
    """Keeps the reports of a store; ``calls`` may fail at the test's word."""

    def __init__(
        self,
        path: Path,
        boot_epoch: int = 1,
        calls: FaultyCalls | OsCalls | None = None,
        limits: StoreLimits = DEFAULT_LIMITS,
    ) -> None:
        self.calls = calls or FaultyCalls(OsCalls(), random.Random(1))
        self.reports: list[Report] = []
        self.reported = asyncio.Event()
        self.live = LiveStore(files_at(path, self.calls), boot_epoch, limits, self.deliver)
        self.core, self.recovered = self.live.core, self.live.recovered
        self.folder = self.live.folder
        self.threads, self.syncs = self.live.flushes, self.live.syncs
        self.rdq_log, self.journal_log = self.live.opened.rdq_log, self.live.opened.journal_log

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
        """Stop the writer threads cleanly; all other threads end as by a kill."""
        await ended(self.threads.stop)
        self.close()

    def close(self) -> None:
        self.live.close()
