"""Stores on a real disk and the running loop; the product puts their parts together, as in a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from leveret.core.system.files import Files, SystemCalls
from leveret.msg_store.drivers import DEFAULT_LIMITS, THREADS, Drivers, StoreLimits
from leveret.msg_store.format.ballast import Ballast
from leveret.msg_store.recovery.recovery import Opened, StoreFiles, open_store
from leveret.msg_store.store import MsgStore
from leveret.msg_store.threads.worker import Loop, MakeWorker, Reached, ThreadWorker
from leveret.msg_store.wal.group_commit import Report


def files_at(
    path: Path, calls: SystemCalls | None = None, ballast_bytes: int = 1000, **more: Any
) -> StoreFiles:
    """Return the place of a store, with a ballast in it; ``more`` goes to ``StoreFiles``."""
    files = Files(calls) if calls is not None else Files()
    more.setdefault("now_ms", lambda: 1)
    return StoreFiles(files, path, Ballast(files, path, ballast_bytes), **more)


def opened_at(path: Path, boot_epoch: int) -> Opened:
    """Recover a store that no process has open any more."""
    return open_store(files_at(path, ballast_bytes=0), boot_epoch)


class LiveStore:
    """A ``MsgStore`` with its threads.

    Args:
        heard: gets the reports of group commit, as the queues do.
        reached: called on the threads for each point of checkpoints, merges and reads.

    Attributes:
        errors: those after which the store was of no use.
    """

    def __init__(
        self,
        where: StoreFiles,
        boot_epoch: int,
        limits: StoreLimits = DEFAULT_LIMITS,
        heard: Callable[[Report], None] | None = None,
        reached: Reached | None = None,
        drivers: Drivers = THREADS,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.opened = opened = open_store(where, boot_epoch)
        self.core, self.recovered, self.folder = opened.core, opened.recovered, opened.folder
        self.index = self.recovered.index
        self.errors: list[Exception] = []
        if reached is not None:
            drivers = replace(drivers, make_worker=_telling(reached))
        self.store = store = MsgStore(opened, loop, loop.time, self.errors.append, drivers, limits)
        if heard is not None:
            _tell_also(heard, store)
        self.flushes, self.syncs = store._flusher, store._syncs
        self.checkpointer = store._checkpointer
        self.collector, self.collecting = store._collector, store._collecting

    async def stop(self) -> None:
        """Stop cleanly, or as far as the disk and the parts allow."""
        await ended(self.store.stop)

    async def kill(self) -> None:
        await ended(self.store.kill)

    def close(self) -> None:
        """End as a kill would, and wait for the threads; the folder is free."""
        self.store._close_files()


def _tell_also(heard: Callable[[Report], None], store: MsgStore) -> None:
    """Have a store's reports heard before its queues get them."""

    def deliver(report: Report) -> None:
        heard(report)
        store._deliver(report)

    store._flusher._deliver = store._index_threads._deliver = deliver


async def ended(end: Callable[[Callable[[], None]], None]) -> None:
    """Begin an end, and wait until its ``then`` is called."""
    ended = asyncio.Event()
    end(ended.set)
    await asyncio.wait_for(ended.wait(), 60)


def _telling(listener: Reached) -> MakeWorker:
    """Return a maker of threads that also tell the listener each point of their jobs."""

    def make(
        loop: Loop,
        name: str,
        at_end: Callable[[], None] | None = None,
        reached: Reached | None = None,
    ) -> ThreadWorker:
        def tell(point: str) -> None:
            if reached is not None:
                reached(point)
            listener(point)

        return ThreadWorker(loop, name, at_end, tell)

    return make
