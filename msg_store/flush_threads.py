"""The thin driver of group commit: two writer threads, and calls on the loop that owns the work.

All of ``GroupCommit`` runs on the loop. A flush goes to both threads at once; each writes and syncs
its file, with the interpreter's lock released, and whoever is last calls back to the loop, once. Where
only the journal is to be synced, its thread does the work of both: waking another costs more.
``turn`` is put on the loop when work arrives, not run at once: what else happens in that turn goes
into the same flush, and an ack may still save its message from the disk.

The loop is a Protocol that ``asyncio`` loops fulfil; tests bring their own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Any, Protocol, TypeAlias

from leveret.msg_store.append_log import AppendLog, Job
from leveret.msg_store.group_commit import GroupCommit
from leveret.msg_store.reports import FULL_RETRY_S, LINGER_S, Due, Report

Work: TypeAlias = Sequence[tuple[AppendLog, Job]]
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

    def do(self, work: Work, then: Callable[[Exception | None], None]) -> None:
        """Carry jobs out up to the first error and call ``then``, on whatever thread."""

    def close(self) -> None:
        """Finish what was given."""


class WriterThread:
    """A writer that is a thread."""

    def __init__(self, name: str, reached: Reached) -> None:
        self._reached = reached
        self._inbox: SimpleQueue[tuple[Work, Callable[[Exception | None], None]] | None]
        self._inbox = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def do(self, work: Work, then: Callable[[Exception | None], None]) -> None:
        """Carry out some jobs and call ``then`` on this thread."""
        self._inbox.put((work, then))

    def close(self) -> None:
        """Finish what was given and end the thread."""
        self._inbox.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (given := self._inbox.get()) is not None:
            work, then = given
            then(self._outcome(work))

    def _outcome(self, work: Work) -> Exception | None:
        try:
            for log, job in work:
                for point in log.run(job):
                    self._reached(point)
        except Exception as error:  # noqa: BLE001  the top of a thread; the loop deals with it
            return error
        return None


MakeWriter = Callable[[str, Reached], Writer]


class FlushThreads:
    """Brings a ``GroupCommit`` onto a loop and its jobs onto two threads.

    Args:
        core: taken over; its ``wake`` is set.
        rdq: carries out the segments' jobs.
        journal: carries out the journal's jobs.
        loop: where all methods are called.
        deliver: gets each report that says something.
        reached: called on a writer thread for each point of a job; for figures, and for tests that
            kill there.
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
        reached: Reached = lambda _: None,
        make_writer: MakeWriter = WriterThread,
        progressed: Callable[[], None] = lambda: None,
    ) -> None:
        self._core = core
        self._loop = loop
        self._deliver = deliver
        self._progressed = progressed
        self._logs = rdq, journal
        self._rdq_writer = make_writer("leveret-rdq", reached)
        self._journal_writer = make_writer("leveret-journal", reached)
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
