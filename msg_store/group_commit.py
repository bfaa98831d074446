"""Group commit: many queues' publishes and acks become durable together, or never exist.

The heart of the store, without I/O, threads or clocks. Calls of queues and channels pile up as
*pending* work. When the disk is free, a *flush* takes what is pending: it gives each new message its
place in a segment, makes one journal frame of all rows and acks, and leaves as two jobs. They are
written and synced at the same time (order between the two files does not matter: recovery checks
every row against its record). When both are done, the frame's numbers are durable and the queues are
told which seqs are safe. So the slower the disk, the more goes into one sync.

::

    write, publish, ack --> pending --start()--> Flush(rdq job, journal job) --finish()--> Report
                               |                     one at a time
                               '-- an ack meets its own row: both vanish, the row counts as safe

Invariants:

* A seq is reported safe only if its row and its message are synced, or if it was acked already.
* What a frame calls durable (its mark) was reported durable by both files before it was made.
* A message that anybody may still ask for is in ``bodies``, in the flush, or at its location.
* A message acked everywhere before a flush starts costs no byte on the disk.

Errors: if the disk is full although the reserve was given up, the flush's rows are reported *nacked*,
and everything goes back to pending, places and numbers too; ``resume`` tries again, and a row that was
nacked may be reported safe after all. After any other error the store has **failed**: what was written
since the last mark is unknown, nothing is taken any more, and only recovery helps.

Turned down: a record per message (2 us each instead of 0.3), a sync per queue, journal behind
segment (two waits instead of one), confirming after the write without the sync.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from leveret.core.files import DISK_FULL
from leveret.core.message import Message
from leveret.msg_store.errors import StoreFailed
from leveret.msg_store.flush import Flush, Taken
from leveret.msg_store.journal import Journal
from leveret.msg_store.journal_frames import Mark
from leveret.msg_store.pending import PendingQueue, References, Row, SeqRun, seq_runs
from leveret.msg_store.rdq_writer import RdqWriter
from leveret.msg_store.record import QueueNos

SLICE_OPS: Final = 2_000
SLICE_BYTES: Final = 1024 * 1024
LINGER_S: Final = 0.2  # for work that nobody waits for
FULL_RETRY_S: Final = 1.0


class Due(enum.Enum):
    """When the next flush should start."""

    NEVER = "nothing to do, or one is on its way"
    LATER = "within LINGER_S, unless somebody waits for it before"
    NOW = "somebody waits"
    WHEN_RESUMED = "the disk is full; within FULL_RETRY_S"


@dataclass(frozen=True, slots=True)
class Report:
    """What has become certain, as runs ``(queue_no, first_seq, count)``.

    Attributes:
        safe: on disk, or acked before they got there.
        nacked: could not be written now; they stay pending, are named again at each try that
            fails, and may be safe later.
        error: the store has failed; nothing that was not reported safe can be relied on.
    """

    safe: list[SeqRun] = field(default_factory=list)
    nacked: list[SeqRun] = field(default_factory=list)
    error: StoreFailed | None = None


class GroupCommit:
    """Collects work, makes flushes of it, and says what is safe. For one thread.

    Args:
        rdq: gives places in segments.
        journal: makes frames.
        references: messages that recovery found.
        mark: how far everything is durable now.
        next_msg_no: above all numbers ever given.
        now_ms: wall time, for time stamps that nothing depends on.
        wake: called when there may be work for ``start``.
    """

    def __init__(
        self,
        rdq: RdqWriter,
        journal: Journal,
        references: References,
        mark: Mark,
        next_msg_no: int,
        now_ms: Callable[[], int],
        wake: Callable[[], None],
    ) -> None:
        self.references = references
        self.mark = mark
        self.wake = wake
        self.error: StoreFailed | None = None
        self._rdq = rdq
        self._journal = journal
        self._next_msg_no = next_msg_no
        self._now_ms = now_ms
        self._dirty: dict[int, PendingQueue] = {}
        self._settled: dict[int, list[int]] = {}  # acked before a flush: safe
        self._ops = 0
        self._is_urgent = False
        self._is_full = False
        self._flush: Flush | None = None

    # What queues and channels call.

    def write(self, messages: Sequence[Message], queue_nos: QueueNos) -> int:
        """Take messages that routing sends to these queues, each with one reference per queue.

        Nothing is written before one of the queues has published them.

        Args:
            messages: of one run; those that share origin and head as objects share their meta.
            queue_nos: all persistent queues of the route, at least one, each once.

        Returns:
            The number of the first; the others follow it.

        Raises:
            StoreFailed: the store takes nothing any more. All methods for queues raise it.
        """
        self._check()
        first = self._next_msg_no
        self._next_msg_no = first + len(messages)
        self.references.write(first, messages, queue_nos)
        return first

    def publish(
        self, queue_no: int, first_seq: int, entries: Sequence[Row], is_awaited: bool = True
    ) -> None:
        """Put messages at seqs in a row of a queue.

        Args:
            queue_no: the queue.
            first_seq: the seq of the first; new to the queue and above all before.
            entries: ``(msg_no, expiry_ms)`` of each.
            is_awaited: somebody waits for a confirm; without it the flush may be put off.

        Raises:
            StoreError: one of them was not written for this queue, or is in it already.
        """
        self._check()
        self.references.accept(queue_no, [msg_no for msg_no, _ in entries])
        seqs = range(first_seq, first_seq + len(entries))
        self._pending(queue_no).rows.update(zip(seqs, entries, strict=True))
        self._ops += len(entries)
        self._is_urgent |= is_awaited
        self.wake()

    def ack(self, queue_no: int, acked: Sequence[tuple[int, int]]) -> None:
        """Take ``(seq, msg_no)`` out of a queue; each must be in it, and is named once."""
        self._check()
        pending = self._pending(queue_no)
        take_row, add_ack = pending.rows.pop, pending.acks.append
        settled: list[int] = []
        for seq, _ in acked:
            if take_row(seq, None) is None:
                add_ack(seq)
            else:
                settled.append(seq)
        self.references.release([msg_no for _, msg_no in acked])
        self._ops += len(acked) - 2 * len(settled)
        self._settle(queue_no, settled)
        if not pending:
            del self._dirty[queue_no]
        self.wake()

    def queue_down(self, queue_no: int) -> None:
        """Give up what was written for a queue that will not accept it any more."""
        self._check()
        self.references.queue_down(queue_no)

    def hurry(self) -> None:
        """Let all that is pending be flushed at once."""
        self._is_urgent = self._ops > 0
        self.wake()

    def switch_journal(self) -> None:
        """Begin a new journal file with the next flush."""
        self._journal.switch()

    # What the driver calls.

    def due(self) -> Due:
        """Tell when ``start`` should be called."""
        if self._flush is not None or self.error is not None or not self._ops:
            return Due.NEVER
        if self._is_full:
            return Due.WHEN_RESUMED
        return Due.NOW if self._is_urgent or self._ops >= SLICE_OPS else Due.LATER

    @property
    def is_idle(self) -> bool:
        """Nothing is pending and nothing on its way."""
        return self._flush is None and not self._ops

    def settled(self) -> list[SeqRun]:
        """Return, once, what became safe without a flush."""
        settled, self._settled = self._settled, {}
        return [
            run for queue_no, seqs in settled.items() for run in seq_runs(queue_no, sorted(seqs))
        ]

    def start(self) -> Flush:
        """Take pending work, as much as is good for one flush, and make jobs of it.

        With nothing pending the flush only notes in the journal how far everything is durable.
        """
        self._check()
        assert self._flush is None, "one flush at a time"
        taken = self._take()
        rdq_before, journal_before = self._rdq.place, self._journal.end
        now_ms = self._now_ms()
        rdq, locations = self._rdq.job(taken.items, now_ms)
        self.references.place(locations)
        records = taken.records(self.references.locations)
        journal = self._journal.job(records, self.mark, now_ms)
        self._flush = Flush(taken, rdq, journal, rdq_before, journal_before)
        return self._flush

    def finish(self, *errors: Exception | None) -> Report:
        """Note that both jobs of the flush have ended, each well or with an error."""
        flush, self._flush = self._flush, None
        assert flush is not None, "no flush was started"
        failures = [error for error in errors if error is not None]
        final = [error for error in failures if not _is_disk_full(error)]
        if final:
            return self._fail(final[0])
        return self._put_back(flush) if failures else self._durable(flush)

    def resume(self) -> None:
        """Try again although the disk was full."""
        self._is_full = False
        self.wake()

    # Inside.

    def _check(self) -> None:
        if self.error is not None:
            raise self.error

    def _pending(self, queue_no: int) -> PendingQueue:
        pending = self._dirty.get(queue_no)
        if pending is None:
            pending = self._dirty[queue_no] = PendingQueue()
        return pending

    def _settle(self, queue_no: int, seqs: list[int]) -> None:
        if seqs:
            self._settled.setdefault(queue_no, []).extend(seqs)

    def _take(self) -> Taken:
        taken, ops, size_bytes = Taken(), 0, 0
        while self._dirty and ops < SLICE_OPS and size_bytes < SLICE_BYTES:
            queue_no = next(iter(self._dirty))
            pending = self._dirty.pop(queue_no)
            if pending.acks:
                acks = pending.take_acks(SLICE_OPS - ops)
                taken.acks.append((queue_no, acks))
                ops += len(acks)
            if pending.rows and ops < SLICE_OPS:
                room = SLICE_OPS - ops, SLICE_BYTES - size_bytes
                rows, body_bytes = pending.take_rows(*room, self.references, taken.items)
                taken.rows.append((queue_no, rows))
                ops += len(rows)
                size_bytes += body_bytes
            if pending:
                self._dirty[queue_no] = pending  # behind the others, for the next flush
        self._ops -= ops
        self._is_urgent = self._is_urgent and self._ops > 0
        return taken

    def _durable(self, flush: Flush) -> Report:
        self.mark = Mark(self._journal.end.next_lsn, *self._rdq.reached)
        return Report(safe=[*flush.taken.runs(), *self.settled()])

    def _put_back(self, flush: Flush) -> Report:
        self._rdq.rewind(flush.rdq_before)
        self._journal.rewind(flush.journal_before)
        self.references.displace(flush.taken.items)
        nacked = flush.taken.runs()
        rows, acks = dict(flush.taken.rows), dict(flush.taken.acks)
        for queue_no in rows.keys() | acks.keys():
            pending = self._pending(queue_no)
            gone = pending.put_back(rows.get(queue_no, []), acks.get(queue_no, []))
            self._settle(queue_no, gone)
            if not pending:
                del self._dirty[queue_no]
        self._ops = sum(map(len, self._dirty.values()))
        self._is_full = self._is_urgent = True
        return Report(nacked=nacked, safe=self.settled())

    def _fail(self, cause: Exception) -> Report:
        self.error = StoreFailed(f"the message store cannot go on: {cause}")
        self.error.__cause__ = cause
        self._dirty.clear()
        self._settled.clear()
        self.references.bodies.clear()
        self._ops = 0
        return Report(error=self.error)


def _is_disk_full(error: Exception) -> bool:
    return isinstance(error, OSError) and error.errno in DISK_FULL
