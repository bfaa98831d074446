"""The driver of group commit: its calls on the loop, and the writer threads.

All of ``GroupCommit`` runs on the loop. A flush goes to both writers at once (``threads.writers``), and the loop
is told when both have ended.

``_turn`` is put on the loop when work arrives, not run at once: all other work of this turn of the loop goes
into the same flush, and an ack may still cancel the write of its message. Where acks do, a flush is held back for a
*batching window* (``FlushWindow`` in ``core/batching.py``; with ``latency = "low"`` never): it starts when the loop has
polled its sockets ``quiet_rounds`` times and no work has come of it, or with as much as a flush takes. In a loop that
is busy all the time it starts at the end of the window, after ``window_s``, with the messages that came before the
window, while acks may still come for the others; a message waits for two windows at most. So a consumer that acks at
once spares the disk the message, and the publisher the sync, the more so the more the loop has to do; and no confirm
waits for acks that do not come. RabbitMQ, too, confirms a message at once that is acked before its store has written
it. Acks alone wait for ``LINGER_S`` at most, as ever.

An error on the loop amid the begin or the end of a flush, such as a lack of memory, fails the store: nobody knows
how far the flush was done, and recovery takes the complete part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from leveret.core.batching import FlushWindow
from leveret.core.clock import TimerHandle
from leveret.msg_store.format.append_log import AppendLog
from leveret.msg_store.threads.worker import Loop
from leveret.msg_store.threads.writers import Writers
from leveret.msg_store.wal.flush import SLICE_BYTES, SLICE_OPS
from leveret.msg_store.wal.group_commit import LINGER_S, GroupCommit, Report
from leveret.msg_store.wal.pending import EVERY_NO

Deliver = Callable[[Report], None]


class FlushDriver:
    """Brings a ``GroupCommit`` onto a loop and its jobs onto two threads.

    Args:
        core: taken over; its ``wake`` is set.
        rdq, journal: the logs of segments and journal, on which ``writers`` carry out the jobs.
        deliver: gets each report that is not empty.
        window: how long flushes wait for acks; None: not at all.
        progressed: called when a flush has ended.
    """

    def __init__(
        self,
        core: GroupCommit,
        rdq: AppendLog,
        journal: AppendLog,
        loop: Loop,
        writers: Writers,
        deliver: Deliver,
        window: FlushWindow | None,
        progressed: Callable[[], None] | None = None,
    ) -> None:
        self._core = core
        self._loop = loop
        self._deliver = deliver
        self._progressed = progressed
        self._logs = rdq, journal
        self._writers = writers
        self._is_scheduled = False
        self._window = window
        self._is_held_back = False  # the flush that is due
        self._held_until_s = 0.0
        self._window_until_s = 0.0
        self._older_below = 0  # messages numbered so came before the window
        self._quiet_rounds = 0
        self._taken = 0  # of the core's work, at the last look
        self._tries = 1  # flushes left that wait for acks; below 1: so many have not
        self._timer: TimerHandle | None = None
        self._on_stopped: Callable[[], None] | None = None
        self._is_closed = False
        core.wake = self._wake

    def stop(self, then: Callable[[], None]) -> None:
        """Flush all that is pending, note in the journal that it is durable, end, call ``then``.

        ``close`` is left to ``then``: in a store that has failed a flush in flight may hang.
        With a full disk pending work is given up after one more try; a store that has failed
        has nothing to flush.
        """
        self._on_stopped = then
        self._core.hurry()
        self._wake()

    def end(self) -> None:
        """Start no flush any more. The flush in flight is completed, pending work is not written."""
        self._is_closed, self._on_stopped = True, None
        self._core.wake = None
        self._cancel_timer()
        self._writers.end()

    def close(self) -> None:
        """End, with the threads, and close the files. Blocks until the flush in flight is written."""
        self.end()
        self._writers.close()
        for log in self._logs:
            log.close()

    def closed(self) -> None:
        """After ``close``, on the loop: forget the store."""
        self._deliver, self._progressed = _unheard, None

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
        window = self._window
        if cancelled := self._core.take_cancelled():
            if window is not None:
                self._tries = window.tries
            self._deliver(Report(safe=cancelled))
        delay_s = self._core.delay_s()
        if delay_s != 0.0:
            self._is_held_back = False
        if delay_s == 0.0:
            if window is not None and self._tries > 0:
                self._hold_back(window)
            else:
                self._start()
        elif delay_s is not None and self._timer is None:
            self._timer = self._loop.call_later(delay_s, self._delay_over)
        elif self._on_stopped is not None and self._core.is_idle:
            self._start()  # the closing frame

    def _hold_back(self, window: FlushWindow) -> None:
        """Start the flush that is due at the end of its batching window; check again in each round of the loop."""
        core = self._core
        now_s = self._loop.time()
        if not self._is_held_back:
            self._is_held_back = True
            self._held_until_s = now_s + LINGER_S
            self._begin_window(window, now_s)
        elif core.taken == self._taken:
            self._quiet_rounds += 1
        else:
            self._quiet_rounds = 0
        self._taken = core.taken
        if (
            self._quiet_rounds >= window.quiet_rounds
            or core.pending_ops >= SLICE_OPS
            or core.holds.body_bytes >= SLICE_BYTES
            or now_s >= self._held_until_s
        ):
            self._start()
        elif now_s < self._window_until_s:
            self._wake()
        elif core.has_older_work(self._older_below):
            self._start(self._older_below)
        else:
            self._begin_window(window, now_s)
            self._wake()

    def _begin_window(self, window: FlushWindow, now_s: float) -> None:
        self._window_until_s = now_s + window.window_s
        self._older_below = self._core.next_msg_no
        self._quiet_rounds = 0

    def _delay_over(self) -> None:
        self._timer = None
        if self._core.is_short:
            self._core.resume()
        else:
            self._core.hurry()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start(self, below: int = EVERY_NO) -> None:
        self._cancel_timer()
        self._is_held_back = False
        if self._window is not None:
            self._tries = self._tries - 1 if self._tries > 1 - self._window.rest_flushes else 1
        is_last = self._on_stopped is not None and self._core.is_idle
        try:
            flush = self._core.start(below)
            rdq, journal = zip(self._logs, (flush.rdq, flush.journal), strict=True)
            ended = partial(self._finished, is_last)
            if flush.rdq.is_inline or not flush.rdq.parts:
                self._writers.submit((), (rdq, journal), ended)
            else:
                self._writers.submit((rdq,), (journal,), ended)
        except Exception as error:  # noqa: BLE001  # a lack of memory, say, with a part of the flush made
            self._deliver(self._core.fail(error))
            if self._on_stopped is not None:
                self._wake()

    def _finished(self, is_last: bool, errors: Sequence[Exception]) -> None:
        try:
            report = self._core.finish(*errors)
        except Exception as error:  # noqa: BLE001  # as above, with a part of the memtables changed
            report = self._core.fail(error)
        is_over = self._on_stopped is not None and (is_last or self._core.is_short)
        try:
            if report.safe or report.nacked or report.error is not None:
                self._deliver(report)
            if self._progressed is not None:
                self._progressed()
        finally:  # an error of the receiver is the loop's, and does not hold the store up
            if is_over:
                self._end()
            elif self._core.has_work or self._on_stopped is not None:
                self._wake()

    def _end(self) -> None:
        then = self._on_stopped
        self.end()
        if then is not None:
            then()


def _unheard(report: Report) -> None:
    """The store has ended."""
