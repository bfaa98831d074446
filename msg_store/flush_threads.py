"""The thin driver of group commit: two writer threads, and calls on the loop that owns the work.

All of ``GroupCommit`` runs on the loop. A flush goes to both threads at once; each writes and syncs
its file, with the interpreter's lock released, and whoever is last calls back to the loop, once. Where
only the journal is to be synced, its thread does the work of both: waking another costs more.

What needs nothing but writes and syncs is given to a thread as ``AppendLog.steps``, which the kernel's
``Caller`` makes without a line of Python: so it begins while the loop still ends its turn. All else, and
what such a step fails with, is for ``AppendLog.run``, on the same thread.

``turn`` is put on the loop when work arrives, not run at once: what else happens in that turn goes
into the same flush, and an ack may still save its message from the disk.

The loop is a Protocol that ``asyncio`` loops fulfil; tests bring their own.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias

from leveret.msg_store.append_log import AppendLog, Job, Step
from leveret.msg_store.group_commit import GroupCommit
from leveret.msg_store.kernel import Caller
from leveret.msg_store.reports import FULL_RETRY_S, LINGER_S, Due, Report
from leveret.msg_store.sync_times import SyncTimes

Work: TypeAlias = Sequence[tuple[AppendLog, Job]]
Then: TypeAlias = Callable[[Exception | None], None]
Given: TypeAlias = tuple[Work, Then, Sequence[int] | None]  # how many steps each job has
Deliver = Callable[[Report], None]
Reached = Callable[[str], None]


class Timer(Protocol):
    """A call that has been put off."""

    def cancel(self) -> None:
        """Forget it."""


class Loop(Protocol):
    """What is needed of an event loop."""

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> object:
        """Call in the next turn."""

    def call_soon_threadsafe(self, callback: Callable[..., Any], *args: Any) -> object:
        """Call in the next turn; from any thread."""

    def call_later(self, delay_s: float, callback: Callable[..., Any], *args: Any) -> Timer:
        """Call after a time."""


class Writer(Protocol):
    """Carries out jobs."""

    def do(self, work: Work, then: Then) -> None:
        """Carry jobs out up to the first error and call ``then``, on whatever thread."""

    def close(self) -> None:
        """Finish what was given."""


class WriterThread:
    """A writer that is a thread; it is given work when it has done what it was given before."""

    def __init__(self, name: str, syncs: SyncTimes) -> None:
        self._syncs = syncs
        self._caller = Caller()
        run = partial(self._caller.run, self._done)
        self._thread = threading.Thread(target=run, name=name, daemon=True)
        self._thread.start()

    def do(self, work: Work, then: Then) -> None:
        """Carry out some jobs and call ``then`` on this thread."""
        steps: list[Step] = []
        sizes: list[int] = []
        for log, job in work:
            some = log.steps(job)
            if some is None:
                self._caller.give([], (work, then, None))
                return
            steps += some
            sizes.append(len(some))
        self._caller.give(steps, (work, then, sizes))

    def close(self) -> None:
        """Finish what was given and end the thread; a second time does nothing."""
        if self._thread.is_alive():
            self._caller.close()
            self._thread.join()

    def _done(self, given: Given, count: int, error_no: int, sync_ns: int) -> None:
        work, then, sizes = given
        if sizes is None:
            then(self._outcome(self._run(work)))
        elif error_no:
            failed = OSError(error_no, os.strerror(error_no))
            then(self._outcome(self._go_on(work, sizes, count, failed)))
        else:
            for log, job in work:
                log.stepped(job)
            self._syncs.took(sync_ns / 1e9)
            then(None)

    def _run(self, work: Work) -> Iterator[str]:
        for log, job in work:
            yield from log.run(job)

    def _go_on(
        self, work: Work, sizes: Sequence[int], count: int, failed: OSError
    ) -> Iterator[str]:
        """Do what is left when a step has failed after ``count`` others, its job once more perhaps."""
        error: OSError | None = failed
        for (log, job), size in zip(work, sizes, strict=True):
            if error is not None and count >= size:
                count -= size
                log.stepped(job)
                continue
            yield from log.run(job, error, count == size - 1 and not job.is_carried)
            error = None

    def _outcome(self, points: Iterator[str]) -> Exception | None:
        try:
            for point in points:
                self._syncs.reached(point)
        except Exception as error:  # noqa: BLE001  the top of a thread; the loop deals with it
            return error
        return None


MakeWriter = Callable[[str, SyncTimes], Writer]


class FlushThreads:
    """Brings a ``GroupCommit`` onto a loop and its jobs onto two threads.

    Args:
        core: taken over; its ``wake`` is set.
        rdq: carries out the segments' jobs.
        journal: carries out the journal's jobs.
        loop: where all methods are called.
        deliver: gets each report that says something.
        syncs: is told of each sync on a writer thread.
        make_writer: makes the writers.
        progressed: called when a flush has ended.
    """

    def __init__(
        self,
        core: GroupCommit,
        rdq: AppendLog,
        journal: AppendLog,
        loop: Loop,
        deliver: Deliver,
        syncs: SyncTimes,
        make_writer: MakeWriter = WriterThread,
        progressed: Callable[[], None] = lambda: None,
    ) -> None:
        self._core = core
        self._loop = loop
        self._deliver = deliver
        self._progressed = progressed
        self._logs = rdq, journal
        self._rdq_writer = make_writer("leveret-rdq", syncs)
        self._journal_writer = make_writer("leveret-journal", syncs)
        self._is_scheduled = False
        self._timer: Timer | None = None
        self._on_stopped: Callable[[], None] | None = None
        self._is_closed = False
        core.wake = self._wake

    def stop(self, then: Callable[[], None]) -> None:
        """Flush all that is pending, note in the journal that it is durable, end, call ``then``.

        With a full disk what is pending is given up after one more try; a store that has failed
        has nothing to flush.
        """
        self._on_stopped = then
        self._core.hurry()
        self._wake()

    def end(self) -> None:
        """Begin nothing any more. A flush on its way is completed, what is pending is not."""
        self._is_closed, self._on_stopped = True, None
        self._core.wake = _nothing
        self._cancel_timer()

    def close(self) -> None:
        """End, the threads as well, and close the files. Blocks for the flush on its way."""
        self.end()
        for writer in (self._rdq_writer, self._journal_writer):
            writer.close()
        for log in self._logs:
            log.close()

    def _wake(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_scheduled = False
        if self._is_closed:
            return
        if self._on_stopped is not None and self._core.error is not None:
            self._end()
            return
        if settled := self._core.settled():
            self._deliver(Report(safe=settled))
        due = self._core.due()
        if due is Due.NOW:
            self._start()
        elif due is Due.LATER and self._timer is None:
            self._timer = self._loop.call_later(LINGER_S, self._hurry)
        elif due is Due.WHEN_RESUMED and self._timer is None:
            self._timer = self._loop.call_later(FULL_RETRY_S, self._resume)
        elif self._on_stopped is not None and self._core.is_idle:
            self._start()  # the closing frame

    def _hurry(self) -> None:
        self._timer = None
        self._core.hurry()

    def _resume(self) -> None:
        self._timer = None
        self._core.resume()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start(self) -> None:
        self._cancel_timer()
        is_last = self._on_stopped is not None and self._core.is_idle
        flush = self._core.start()
        rdq, journal = zip(self._logs, (flush.rdq, flush.journal), strict=True)
        if flush.rdq.is_carried or not flush.rdq.parts:
            self._journal_writer.do((rdq, journal), partial(self._ended, is_last))
            return
        errors: list[Exception | None] = []
        lock = threading.Lock()

        def ended(error: Exception | None) -> None:
            with lock:
                errors.append(error)
                both = len(errors) == 2
            if both:
                self._ended(is_last, *errors)

        self._rdq_writer.do((rdq,), ended)
        self._journal_writer.do((journal,), ended)

    def _ended(self, is_last: bool, *errors: Exception | None) -> None:
        """Go back to the loop."""
        self._loop.call_soon_threadsafe(self._finished, errors, is_last)

    def _finished(self, errors: Sequence[Exception | None], is_last: bool) -> None:
        report = self._core.finish(*errors)
        is_over = self._on_stopped is not None and (is_last or self._core.is_full)
        try:
            if report.safe or report.nacked or report.error is not None:
                self._deliver(report)
            self._progressed()
        finally:  # an error of the receiver is the loop's, and does not hold the store up
            if is_over:
                self._end()
            elif self._core.pending_ops or self._on_stopped is not None:
                self._wake()

    def _end(self) -> None:
        then = self._on_stopped
        self.close()
        if then is not None:
            then()


def _nothing() -> None:
    """Wake nobody."""
