"""Reading a queue's rows: the rows of the index, with all later changes.

Four layers, oldest first: the index, the memtables above it (``read_view``), the flush in flight, and
pending work. A thread reads the index; the others are added when its answer comes, so the result is that of
the turn in which it is given.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

from leveret.core.clock import TimerLoop
from leveret.core.system.shortage import ShortageLog, is_shortage
from leveret.msg_store.format.rows import SEQ_END, Index, IndexRow
from leveret.msg_store.memtable.read_view import ReadView
from leveret.msg_store.threads.worker import Worker, as_steps
from leveret.msg_store.wal.group_commit import GroupCommit

RETRY_S: Final = 1.0  # after a shortage

T = TypeVar("T")
GotRows: TypeAlias = Callable[[list[IndexRow], int], None]
"""Gets rows, ascending, and the seq below which no row is left out."""


class ReadThread:
    """The reader thread as the parts of the store that read see it: a single one, so that descriptors need no lock.

    Work that meets a shortage is done again after ``RETRY_S``. ``on_error`` gets any other error, on the loop,
    instead of ``then``.
    """

    def __init__(
        self,
        worker: Worker,
        on_error: Callable[[Exception], None],
        loop: TimerLoop,
        shortages: ShortageLog,
    ) -> None:
        self._worker = worker
        self._on_error = on_error
        self._loop = loop
        self._shortages = shortages
        self._is_closed = False

    def submit(self, work: Callable[[], T], then: Callable[[T], None] | None = None) -> None:
        """Do the work, then call ``then`` with its result on the loop."""
        if not self._is_closed:
            self._worker.submit(partial(as_steps, work), partial(self._done, work, then))

    def _done(
        self,
        work: Callable[[], Any],
        then: Callable[[Any], None] | None,
        result: Any,
        error: Exception | None,
    ) -> None:
        if self._is_closed:
            return
        if error is not None and is_shortage(error):
            self._shortages.note(error)
            self._loop.call_later(RETRY_S, self.submit, work, then)
            return
        if self._shortages.error is not None:
            self._shortages.note(None)
        if error is not None:
            self._on_error(error)
        elif then is not None:
            then(result)

    def end(self) -> None:
        """Take nothing any more, and hand nothing back."""
        self._is_closed = True

    def close(self) -> None:
        """End, the worker as well. Blocks until submitted work is done."""
        self.end()
        self._worker.close()

    def closed(self) -> None:
        """After ``close``, on the loop: forget the store."""
        self._on_error = _unheard


def _unheard(error: Exception) -> None:
    """The store has ended."""


class RowReader:
    """Reads rows for all queues of a store. On the loop."""

    def __init__(self, core: GroupCommit, index: Index, background: ReadThread) -> None:
        self._core = core
        self._index = index
        self._background = background

    def read(self, queue_no: int, low: int, limit: int, then: GotRows) -> None:
        """Find the first rows with ``low <= seq``, at most ``limit``; fewer may come although there are more.

        ``then`` gets them in a later turn, and the seq below which none is left out: ``SEQ_END`` at the end.
        """
        read_view, index = self._core.memtables.read_view(), self._index

        def came(base: list[IndexRow]) -> None:
            then(*self._merged(queue_no, low, limit, read_view, base))

        self._background.submit(lambda: index.rows(queue_no, low, SEQ_END, limit), came)

    def _merged(
        self, queue_no: int, low: int, limit: int, read_view: ReadView, base: list[IndexRow]
    ) -> tuple[list[IndexRow], int]:
        core, rows = self._core, read_view.rows(queue_no, low, SEQ_END, limit, base)
        upto = SEQ_END
        if len(rows) >= limit:
            upto = rows[-1][0] + 1
        elif len(base) >= limit:
            upto = base[-1][0] + 1  # rows behind it in the index were not read
        acked = core.acked_meanwhile(queue_no, low)
        new = [row for row in core.unwritten_rows(queue_no) if low <= row[0] < upto]
        if new:
            is_behind = (
                not rows or new[0][0] > rows[-1][0]
            )  # all but those of a mirror that catches up
            rows = rows + new if is_behind else sorted(rows + new)
        if acked:
            rows = [row for row in rows if row[0] not in acked]
        if len(rows) > limit:
            rows = rows[:limit]
            upto = rows[-1][0] + 1
        return rows, upto
