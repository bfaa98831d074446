"""The driver of checkpoints: a thread that reads the index and a thread that writes it.

Reads are short and flushes may wait for one, so they do not stand in line behind a write, which may
take a second. Both call back to the loop once per job.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from leveret.core.clock import TimerHandle
from leveret.core.errors import StoreError
from leveret.core.freeing import free_in_slices
from leveret.msg_store.checkpoint.checkpoint import IDLE_S, Checkpointer
from leveret.msg_store.format.ballast import Ballast
from leveret.msg_store.format.folder import StoreFolder
from leveret.msg_store.format.rows import Index
from leveret.msg_store.threads.worker import Loop, MakeWorker, Reached, ThreadWorker, as_steps
from leveret.msg_store.wal.driver import Deliver
from leveret.msg_store.wal.group_commit import SHORTAGE_RETRY_S, GroupCommit, Report

FREE_RETRY_S: Final = 0.05  # a read of the index takes less, as a rule


class CheckpointDriver:
    """Brings a ``Checkpointer`` onto a loop and its jobs onto two threads.

    ``close`` closes the index. ``deliver`` gets the report of a store that has failed; ``reached`` is called
    on the writing thread for each point of a job, ``progressed`` when memtables may have been frozen or dropped.
    """

    def __init__(
        self,
        core: GroupCommit,
        checkpointer: Checkpointer,
        index: Index,
        folder: StoreFolder,
        ballast: Ballast,
        loop: Loop,
        deliver: Deliver,
        reached: Reached | None = None,
        make_worker: MakeWorker = ThreadWorker,
        progressed: Callable[[], None] | None = None,
    ) -> None:
        self._core = core
        self._checkpointer = checkpointer
        self._index = index
        self._folder = folder
        self._ballast = ballast
        self._loop = loop
        self._deliver = deliver
        self._progressed = progressed
        self._reader = make_worker(loop, "leveret-index-reader")
        self._writer = make_worker(loop, "leveret-checkpoint", reached=reached)
        self._is_scheduled = self._is_closed = False
        self._is_moving = False  # something has happened since the timer was set
        self._quiet: TimerHandle | None = None
        self._retry: TimerHandle | None = None
        self._freeing: TimerHandle | None = None
        self._on_stopped: Callable[[], None] | None = None
        core.index_listeners.append(self._wake)
        self._wake()

    def stop(self, then: Callable[[], None]) -> None:
        """Write all durable changes to the index, note a clean end, end, call ``then``; ``close`` is left to it.

        To be called when the last flush has ended. If the disk is full, or the store has
        failed, the journals stay for the next start to replay.
        """
        self._on_stopped = then
        self._checkpointer.stop()

    def end(self) -> None:
        """Begin no job any more; a transaction that was begun is completed."""
        self._is_closed, self._on_stopped = True, None
        self._core.index_listeners.clear()
        for timer in (self._quiet, self._retry, self._freeing):
            if timer is not None:
                timer.cancel()

    def close(self) -> None:
        """End, the threads as well, and close the index. Blocks until the write under way has ended."""
        self.end()
        self._reader.close()
        self._writer.close()
        self._index.close()

    def closed(self) -> None:
        """After ``close``, on the loop: fail a snapshot that waits, and forget the store."""
        self._checkpointer.end_snapshot(StoreError("the store was closed"))
        self._deliver, self._progressed = _unheard, None

    def _wake(self) -> None:
        self._is_moving = True
        if self._is_scheduled or self._is_closed:
            return
        if self._checkpointer.may_act or self._is_timer_due:
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
        self._report_progress()
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
        if job is not None:
            work = partial(as_steps, partial(job.run, self._index))
            done = self._checkpointer.read_done
            self._reader.submit(work, lambda _, error: self._done(done(job, error)))

    def _start_write(self) -> None:
        job = self._checkpointer.write_job()
        if job is not None:
            work = partial(job.run, self._index, self._folder, self._ballast)
            done = self._checkpointer.write_done
            self._writer.submit(work, lambda _, error: self._done(done(job, error)))

    def _done(self, report: Report | None) -> None:
        if self._is_closed:
            return
        try:
            if report is not None:
                self._deliver(report)
        finally:  # an error of the receiver is the loop's, and does not hold the store up
            if self._checkpointer.is_short and self._retry is None:
                self._retry = self._loop.call_later(SHORTAGE_RETRY_S, self._resume)
            if self._freeing is None:
                self._free_committed()
            self._wake()
            self._report_progress()

    def _free_committed(self) -> None:
        """Free memtables that are in the index: some hundred thousand objects, so in slices."""
        self._freeing = None
        for memtable in self._checkpointer.take_committed():
            free_in_slices(memtable.containers(), self._loop)
        if self._checkpointer.has_committed:
            self._freeing = self._loop.call_later(FREE_RETRY_S, self._free_committed)

    def _report_progress(self) -> None:
        if self._progressed is not None:
            self._progressed()

    def _resume(self) -> None:
        self._retry = None
        self._checkpointer.resume()

    def _end(self) -> None:
        then = self._on_stopped
        self.end()
        if then is not None:
            then()


def _unheard(report: Report) -> None:
    """The store has ended."""
