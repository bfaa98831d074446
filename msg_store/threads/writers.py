"""The two writer threads of a store, and how they tell the loop that a flush is written.

Each writes and syncs one of the two logs, with the interpreter's lock released. Where only the journal is
to be synced, its thread does the work of both: waking another costs more.

Jobs of nothing but writes and syncs are submitted as ``AppendLog.steps``. The kernel's ``Caller`` makes these
system calls without a line of Python, so it begins while the loop still ends its turn; then its ``Notifier`` wakes
the loop by a descriptor that the loop polls, once for both threads. So a flush needs the interpreter's lock at no
time between the turn that made it and the turn that ends it. Other jobs, and steps that failed, are run by
``AppendLog.run`` on the same thread.

Turned down: a ``Worker`` (``worker``) for each log. Its thread waits for the lock before it can begin and before it
can hand back, and ``call_soon_threadsafe`` costs a call object, a socket and an exception: every confirm would wait
for that.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, Protocol, TypeAlias

from leveret.core.gil_yielding import NEVER, GilYielding, PendingWork
from leveret.core.system.shortage import as_os_error
from leveret.core.threads import start_thread
from leveret.msg_store.format.append_log import AppendLog, Job, Step
from leveret.msg_store.format.kernel import KERNEL_NAME, Caller, Notifier
from leveret.msg_store.threads.worker import Loop

Work: TypeAlias = Sequence[tuple[AppendLog, Job]]
Then: TypeAlias = Callable[[Sequence[Exception]], None]

_BEFORE_SYNC: Final = "written"  # points of a job
_AFTER_SYNC: Final = "synced"
_COUNT_BYTES: Final = 8  # written by a notifier


class SyncTimes:
    """How long the disk takes to sync, for status: taken on the writer threads, read on the loop."""

    __slots__ = ("_began_s", "_lock", "_monotonic_s", "count", "longest_s", "total_s")

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s
        self._began_s: dict[int, float] = {}  # by thread
        self._lock = threading.Lock()
        self.count = 0
        self.total_s = self.longest_s = 0.0

    def reached(self, point: str) -> None:
        """Note a point of a job, on its thread."""
        if point == _BEFORE_SYNC:
            self._began_s[threading.get_ident()] = self._monotonic_s()
        elif point == _AFTER_SYNC:
            began_s = self._began_s.pop(threading.get_ident(), None)
            if began_s is not None:
                self.took(self._monotonic_s() - began_s)

    def took(self, seconds: float) -> None:
        """Count a sync, from any thread."""
        with self._lock:
            self.count += 1
            self.total_s += seconds
            self.longest_s = max(self.longest_s, seconds)


class Writers(Protocol):
    """Carries out the jobs of flushes."""

    def submit(self, rdq: Work, journal: Work, then: Then) -> None:
        """Carry out each writer's jobs up to its first error; both writers at the same time.

        Without jobs of segments the journal's writer does both. ``then`` is called on the loop with the errors.
        """

    def end(self) -> None:
        """Let no ``then`` be called any more. On the loop."""

    def close(self) -> None:
        """After ``end``: finish the flush in flight. On any thread."""


class WriterThreads:
    """Writers that are threads; one flush at a time. For the loop, but for ``close``."""

    def __init__(self, loop: Loop, syncs: SyncTimes, gil_yielding: GilYielding = NEVER) -> None:
        self._loop = loop
        self._read_end, self._write_end = _notification_ends()
        self._notifier = Notifier(self._write_end)
        self._threads: list[_WriterThread] = []
        try:
            for name in ("leveret-rdq", "leveret-journal"):
                self._threads.append(_WriterThread(name, self._notifier, syncs, gil_yielding))
        except BaseException:  # no thread can be started
            self._close()
            raise
        self._rdq, self._journal = self._threads
        self._busy: list[_WriterThread] = []
        self._errors: list[Exception] = []
        self._then: Then | None = None
        self._has_ended = self._is_closed = False
        loop.add_reader(self._read_end, self._notified)

    def submit(self, rdq: Work, journal: Work, then: Then) -> None:
        self._then = then
        if rdq:
            self._busy = [self._rdq, self._journal]
            self._notifier.expect(2)
            self._rdq.begin(rdq)
        else:
            self._busy = [self._journal]
            self._notifier.expect(1)
        self._journal.begin(journal)

    def _notified(self) -> None:
        os.read(self._read_end, _COUNT_BYTES)
        self._busy = [each for each in self._busy if not each.is_done(self._errors)]
        if self._busy:
            self._notifier.expect(len(self._busy))
            for each in self._busy:
                each.begin_again()
            return
        then, self._then = self._then, None
        errors, self._errors = self._errors, []
        assert then is not None, "no flush is in flight"
        then(errors)

    def end(self) -> None:
        if not self._has_ended:
            self._has_ended = True
            self._then = None
            self._loop.remove_reader(self._read_end)

    def close(self) -> None:
        """Finish the flush in flight and end the threads; a second time does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        self._close()

    def _close(self) -> None:
        for each in self._threads:
            each.close()
        for descriptor in {self._read_end, self._write_end}:
            os.close(descriptor)


class _WriterThread:
    """One writer: a ``Caller`` on its thread, and the jobs that it has."""

    def __init__(
        self, name: str, notifier: Notifier, syncs: SyncTimes, gil_yielding: GilYielding
    ) -> None:
        self._syncs = syncs
        self._caller = Caller(notifier)
        self._work: Work = ()
        self._sizes: list[int] | None = None  # how many steps each job has
        self._again: Callable[[], Iterator[str]] | None = None
        self._gil_yielding = gil_yielding
        self._pending: PendingWork | None = None  # what needs the interpreter
        self._runs_on = threading.Thread(target=self._caller.run, name=name, daemon=True)
        start_thread(self._runs_on)

    def begin(self, work: Work) -> None:
        steps: list[Step] = []
        sizes: list[int] = []
        self._work, self._sizes = work, sizes
        for log, job in work:
            some = log.steps(job)
            if some is None:
                self._run(partial(_run, work))
                return
            steps += some
            sizes.append(len(some))
        if KERNEL_NAME == "py":
            self._pending = self._gil_yielding.submitted()
        self._caller.submit(steps)

    def begin_again(self) -> None:
        assert self._again is not None, "there is nothing to be done again"
        self._run(self._again)

    def _run(self, points: Callable[[], Iterator[str]]) -> None:
        self._sizes = self._again = None
        self._pending = self._gil_yielding.submitted()
        self._caller.submit_call(partial(self._outcome, points))

    def is_done(self, errors: list[Exception]) -> bool:
        """Take the outcome, errors included; return False if a job must be run again."""
        if self._pending is not None:
            self._pending.done()
            self._pending = None
        outcome = self._caller.take_outcome()
        assert outcome is not None, "the notifier was called before the work was done"
        count, error_no, sync_ns, error = outcome
        work, sizes = self._work, self._sizes
        if sizes is None:
            if isinstance(error, Exception):
                errors.append(error)
        elif error_no:
            failed = OSError(error_no, os.strerror(error_no))
            self._again = partial(_finish_work, work, sizes, count, failed)
            return False
        else:
            for log, job in work:
                log.stepped(job)
            self._syncs.took(sync_ns / 1e9)
        self._work = ()
        return True

    def _outcome(self, points: Callable[[], Iterator[str]]) -> Exception | None:
        try:
            for point in points():
                self._syncs.reached(point)
        except MemoryError as error:
            return as_os_error(error)
        except Exception as error:  # noqa: BLE001  the top of a thread; the loop deals with it
            return error
        return None

    def close(self) -> None:
        self._caller.close()
        self._runs_on.join()


def _run(work: Work) -> Iterator[str]:
    for log, job in work:
        yield from log.run(job)


def _finish_work(work: Work, sizes: Sequence[int], count: int, failed: OSError) -> Iterator[str]:
    """Finish work whose step number ``count`` has failed; its job may be run once more."""
    error: OSError | None = failed
    for (log, job), size in zip(work, sizes, strict=True):
        if error is not None and count >= size:
            count -= size
            log.stepped(job)
            continue
        yield from log.run(job, error, count == size - 1 and not job.is_inline)
        error = None


def _notification_ends() -> tuple[int, int]:
    """Return a descriptor that can be read when eight bytes have been written to the other."""
    if hasattr(os, "eventfd"):
        descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        return descriptor, descriptor
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    return read_end, write_end
