"""Rows that became safe without a flush: they were acked before one took them.

They are told when nothing older of their queue waits, so that a queue's rows become safe in their
order. (RabbitMQ confirms an acked message at once; few frames that say "all up to here" are worth more
than the milliseconds.)
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from leveret.msg_store.wal.pending import PendingQueue, SeqRun, TakenAck, seq_runs


class CancelledWrites:
    """What has not been told yet, by queue_no."""

    def __init__(self) -> None:
        self._seqs: dict[int, list[int]] = {}

    def __bool__(self) -> bool:
        return bool(self._seqs)

    def add(self, queue_no: int, acked: Sequence[TakenAck]) -> None:
        """Take rows that will never be written."""
        if acked:
            self._seqs.setdefault(queue_no, []).extend([seq for seq, _ in acked])

    def take(self, dirty: Mapping[int, PendingQueue]) -> list[SeqRun]:
        """Return, once, what has nothing older of its queue among the rows that wait."""
        seqs_by_queue, self._seqs = self._seqs, {}
        runs: list[SeqRun] = []
        for queue_no, seqs in seqs_by_queue.items():
            seqs.sort()
            pending = dirty.get(queue_no)
            if pending is not None and pending.rows:
                count = bisect_left(seqs, next(iter(pending.rows)))
                if count < len(seqs):
                    self._seqs[queue_no] = seqs[count:]
                    del seqs[count:]
            runs += seq_runs(queue_no, seqs)
        return runs

    def clear(self) -> None:
        """Forget all: nobody is told any more."""
        self._seqs.clear()
