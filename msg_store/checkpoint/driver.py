"""The thin driver of checkpoints: a thread that reads the index and one that writes it.

Reads are short and flushes may wait for one, so they do not stand in line behind a write, which may
take a second. Both call back to the loop once per job.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeAlias

from leveret.core.errors import StoreError
from leveret.core.gil_yielding import NEVER, GilYielding, PendingWork, Timer
from leveret.msg_store.checkpoint.checkpoint import IDLE_S, Checkpointer
from leveret.msg_store.format.append_log import Reserve
from leveret.msg_store.format.folder import StoreFolder
from leveret.msg_store.format.rows import Index
from leveret.msg_store.threads.worker import Loop, Reached
from leveret.msg_store.wal.driver import Deliver
from leveret.msg_store.wal.group_commit import GroupCommit
from leveret.msg_store.wal.reports import FULL_RETRY_S, Report

Work: TypeAlias = Callable[[], None]


class IndexWorker:
    """A thread that does one thing after the other."""

    def __init__(self, name: str, gil_yielding: GilYielding = NEVER) -> None:
        self._gil_yielding = gil_yielding
        self._inbox: SimpleQueue[tuple[Work, PendingWork] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def do(self, work: Work) -> None:
        """Do something on the thread; it must not raise."""
        self._inbox.put((work, self._gil_yielding.submitted()))

    def close(self) -> None:
        """Finish what was given, and end the thread."""
        self._inbox.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (item := self._inbox.get()) is not None:
            work, pending = item
            work()
            pending.done()
            del item, work, pending  # else the last job stays referenced while the thread is idle


MakeIndexWorker: TypeAlias = Callable[[str], IndexWorker]


class CheckpointDriver:
    """Brings a ``Checkpointer`` onto a loop and its jobs onto two threads.

    Args:
        core: taken over; its ``wake_index`` is set.
        checkpointer: over the same core.
        index: closed at the end.
        folder: the store's.
        reserve: to be given up when the disk is full.
        loop: where all methods are called.
        deliver: gets the report of a store that has failed.
        reached: called on the writing thread for each point; for tests that kill there.
        make_index_worker: makes the threads.
        progressed: called when generations have begun or ended, perhaps.
    """

    def __init__(
        self,
        core: GroupCommit,
        checkpointer: Checkpointer,
        index: Index,
        folder: StoreFolder,
        reserve: Reserve,
        loop: Loop,
        deliver: Deliver,
        reached: Reached = lambda _: None,
        make_index_worker: MakeIndexWorker = IndexWorker,
        progressed: Callable[[], None] = lambda: None,
    ) -> None:
        self._core = core
        self._checkpointer = checkpointer
        self._index = index
        self._folder = folder
        self._reserve = reserve
        self._loop = loop
        self._deliver = deliver
        self._reached = reached
        self._progressed = progressed
        self._reader = make_index_worker("leveret-index-reader")
        self._writer = make_index_worker("leveret-checkpoint")
        self._is_scheduled = self._is_closed = False
        self._is_moving = False  # something has happened since the timer was set
        self._quiet: Timer | None = None
        self._retry: Timer | None = None
        self._on_stopped: Callable[[], None] | None = None
        core.wake_index = self._wake
        self._wake()

    def stop(self, then: Callable[[], None]) -> None:
        """Write what is durable to the index, note a clean end, close it, call ``then``.

        To be called when the flush threads have stopped. If the disk is full, or the store has
        failed, what is in the journals stays there for the next start.
        """
        self._on_stopped = then
        self._checkpointer.stop()

    def end(self) -> None:
        """Begin nothing any more; what is being written is written."""
        self._is_closed, self._on_stopped = True, None
        self._core.wake_index = _nothing
        for timer in (self._quiet, self._retry):
            if timer is not None:
                timer.cancel()

    def close(self) -> None:
        """End, the threads as well, and close the index. Blocks for what is being written."""
        self.end()
        self._reader.close()
        self._writer.close()
        self._index.close()

    def closed(self) -> None:
        """After ``close``, on the loop: tell who still waits."""
        self._checkpointer.end_snapshot(StoreError("the store was closed"))

    def _wake(self) -> None:
        self._is_moving = True
        if not self._is_scheduled and (self._checkpointer.may_act or self._is_timer_due):
            self._is_scheduled = True
            self._loop.call_soon(self._turn)

    @property
    def _is_timer_due(self) -> bool:
        return self._quiet is None and self._checkpointer.may_become_quiet

    def _turn(self, is_quiet: bool = False) -> None:
        self._is_scheduled = False
        if self._is_closed:
            return
        self._checkpointer.turn(is_quiet)
        self._start_read()
        self._start_write()
        self._progressed()
        if self._on_stopped is not None and self._checkpointer.is_stopped:
            self._end()
        elif not is_quiet and self._is_timer_due:
            self._await_quiet()

    def _await_quiet(self) -> None:
        self._is_moving = False
        self._quiet = self._loop.call_later(IDLE_S, self._is_quiet)

    def _is_quiet(self) -> None:
        self._quiet = None
        if self._is_moving:
            self._await_quiet()
        else:
            self._turn(is_quiet=True)

    def _start_read(self) -> None:
        job = self._checkpointer.read_job()
        if job is None:
            return

        def work() -> None:
            error: Exception | None = None
            try:
                job.run(self._index)
            except Exception as caught:  # noqa: BLE001  the top of a thread; the loop deals with it
                error = caught
            self._loop.call_soon_threadsafe(
                lambda: self._done(self._checkpointer.read_done(job, error))
            )

        self._reader.do(work)

    def _start_write(self) -> None:
        job = self._checkpointer.write_job()
        if job is None:
            return

        def work() -> None:
            error: Exception | None = None
            try:
                for point in job.run(self._index, self._folder, self._reserve):
                    self._reached(point)
            except Exception as caught:  # noqa: BLE001  the top of a thread; the loop deals with it
                error = caught
            self._loop.call_soon_threadsafe(
                lambda: self._done(self._checkpointer.write_done(job, error))
            )

        self._writer.do(work)

    def _done(self, report: Report | None) -> None:
        if self._is_closed:
            return
        try:
            if report is not None:
                self._deliver(report)
        finally:  # an error of the receiver is the loop's, and does not hold the store up
            if self._checkpointer.is_full and self._retry is None:
                self._retry = self._loop.call_later(FULL_RETRY_S, self._resume)
            self._wake()
            self._progressed()

    def _resume(self) -> None:
        self._retry = None
        self._checkpointer.resume()

    def _end(self) -> None:
        then = self._on_stopped
        self.close()
        self.closed()
        if then is not None:
            then()


def _nothing() -> None:
    """Wake nobody."""
