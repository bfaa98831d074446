"""The delivery counts of a store's queues, on the loop: changes are written by a thread a moment later.

Only the last count of a message is written, however often it changed meanwhile. An error of the disk is logged once
and delays the writing: the counts are in memory, and limits hold (``format/count_file.py`` has the file).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

from leveret.core.clock import TimerLoop
from leveret.core.log.loggers import logger
from leveret.core.system.shortage import as_os_error
from leveret.msg_store.format.count_file import ALL, Count, CountFile, Counts

log = logger(__name__)

WRITE_S: Final = 0.1  # after the first change
WRITTEN_AT_ONCE: Final = 4_000
RETRY_S: Final = 1.0

Submit: TypeAlias = Callable[[Callable[[], Any], Callable[[Any], None]], None]


class DeliveryCountLog:
    """The counts of all queues of a store.

    Args:
        file: written on the thread that ``submit`` uses.
        counts: as read from it.
        submit: runs a function on that thread, then another on the loop with the result.
        loop: of the store.
    """

    def __init__(self, file: CountFile, counts: Counts, submit: Submit, loop: TimerLoop) -> None:
        self._file = file
        self._counts = counts
        self._submit = submit
        self._loop = loop
        # Seqs by queue_no. A dict would walk over all that have been taken from its front.
        self._changed: OrderedDict[int, set[int]] = OrderedDict()
        self._forgotten: list[Count] = []  # queues, before their changes
        self._is_writing = False
        self._failed = False

    def of(self, queue_no: int) -> QueueCounts:
        """Return a queue's part."""
        return QueueCounts(self, queue_no)

    def counts(self, queue_no: int) -> dict[int, int]:
        """Return the counts of a queue by seq, which it changes in place."""
        return self._counts.setdefault(queue_no, {})

    def changed(self, queue_no: int, seqs: Sequence[int]) -> None:
        """Have changed counts written."""
        self._changed.setdefault(queue_no, set()).update(seqs)
        self._write_in(WRITE_S)

    def forget(self, queue_no: int) -> None:
        """Forget the counts of a queue, which was purged or deleted."""
        self._changed.pop(queue_no, None)
        if self._counts.pop(queue_no, None) is not None:
            self._forgotten.append((queue_no, ALL, 0))
            self._write_in(WRITE_S)

    def _write_in(self, delay_s: float) -> None:
        if not self._is_writing:
            self._is_writing = True
            self._loop.call_later(delay_s, self._write)

    def _write(self) -> None:
        changes = self._take(WRITTEN_AT_ONCE)
        file = self._file

        def work() -> OSError | None:
            try:
                file.write(changes)
            except (OSError, MemoryError) as error:
                return as_os_error(error) if isinstance(error, MemoryError) else error
            return None

        self._submit(work, self._written)

    def _take(self, limit: int) -> list[Count]:
        changes, self._forgotten = self._forgotten, []
        while self._changed and len(changes) < limit:
            queue_no, seqs = next(iter(self._changed.items()))
            some = [seqs.pop() for _ in range(min(len(seqs), limit - len(changes)))]
            if not seqs:
                del self._changed[queue_no]
            get = self._counts.get(queue_no, {}).get
            changes += [(queue_no, seq, get(seq, 0)) for seq in some]
        return changes

    def _written(self, error: OSError | None) -> None:
        if error is not None and not self._failed:
            log.warning("delivery counts not written yet error=%s", error)
        self._failed = error is not None
        self._is_writing = False
        if self._failed:
            self._write_in(RETRY_S)
        elif self._changed or self._forgotten:
            self._write_in(0.0)

    def end(self) -> None:
        """Write the remaining counts: the store stops in order."""
        while self._changed or self._forgotten:
            self._submit(partial(self._file.write, self._take(WRITTEN_AT_ONCE)), _ignore)


class QueueCounts:
    """The counts of one queue, for its amqqueue."""

    __slots__ = ("_log", "_queue_no")

    def __init__(self, log: DeliveryCountLog, queue_no: int) -> None:
        self._log = log
        self._queue_no = queue_no

    def counts(self) -> dict[int, int]:
        return self._log.counts(self._queue_no)

    def changed(self, seqs: Sequence[int]) -> None:
        self._log.changed(self._queue_no, seqs)

    def forget(self) -> None:
        """Forget all; ``counts`` is another dict from now on."""
        self._log.forget(self._queue_no)


def _ignore(_: object) -> None:
    pass
