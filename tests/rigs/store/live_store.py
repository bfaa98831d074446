"""A store on a real disk with the threads of flushes and of checkpoints, on the running loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from leveret.core.files import Files, SystemCalls
from leveret.msg_store.checkpoint.checkpoint import Checkpointer, CheckpointLimits
from leveret.msg_store.checkpoint.driver import CheckpointDriver
from leveret.msg_store.format.ballast import Ballast
from leveret.msg_store.recovery.recovery import StoreFiles, open_store
from leveret.msg_store.threads.writers import SyncTimes
from leveret.msg_store.wal.driver import FlushDriver
from leveret.msg_store.wal.group_commit import Report


def files_at(path: Path, calls: SystemCalls | None = None, ballast_bytes: int = 1000) -> StoreFiles:
    """Return where a store lies, with a ballast in it."""
    files = Files(calls) if calls is not None else Files()
    return StoreFiles(files, path, Ballast(files, path, ballast_bytes), lambda: 1)


class LiveStore:
    """The parts that every store needs; rigs add theirs.

    Args:
        where: the store.
        boot_epoch: of this start.
        deliver: gets reports.
        checkpoint: the limits of checkpoints; None: none are made.
        reached: called for the points of checkpoints.
    """

    def __init__(
        self,
        where: StoreFiles,
        boot_epoch: int,
        deliver: Callable[[Report], None],
        checkpoint: CheckpointLimits | None,
        reached: Callable[[str], None] | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.opened = opened = open_store(where, boot_epoch)
        self.core, self.recovered, self.folder = opened.core, opened.recovered, opened.folder
        self.index = self.recovered.index
        self.syncs = SyncTimes(loop.time)
        self.flushes = FlushDriver(
            self.core, opened.rdq_log, opened.journal_log, loop, deliver, self.syncs
        )
        self.checkpointer = Checkpointer(self.core, opened.index_location, checkpoint)
        self.checkpoints: CheckpointDriver | None = None
        if checkpoint is not None:
            self.checkpoints = CheckpointDriver(
                self.core,
                self.checkpointer,
                self.index,
                self.folder,
                where.reserve,
                loop,
                deliver,
                reached,
            )

    async def stop(self) -> None:
        """Stop cleanly; the folder stays locked."""
        for driver in (self.flushes, self.checkpoints):
            if driver is not None:
                stopped = asyncio.Event()
                driver.stop(stopped.set)
                await asyncio.wait_for(stopped.wait(), 60)

    def close(self) -> None:
        """End as a kill would, but for the threads; the folder is free."""
        self.flushes.close()
        if self.checkpoints is not None:
            self.checkpoints.close()
        self.index.close()
        self.folder.close()
