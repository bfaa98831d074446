"""Reading a queue's rows: those of the index, with all later changes.

Four layers, oldest first: the index, the memtables above it (``read_view``), the flush in flight, and
pending work. A thread reads the index; the others are added when its answer comes, so the result is that of
the turn in which it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol, TypeAlias

from leveret.msg_store.format.rows import SEQ_END, IndexRow
from leveret.msg_store.memtable.read_view import ReadView
from leveret.msg_store.reading.read_thread import Background

GotRows: TypeAlias = Callable[[list[IndexRow], int], None]
"""Gets rows, ascending, and the seq below which they are all there are."""


class IndexRows(Protocol):
    """The index on disk, asked by the thread."""

    def rows(self, queue_no: int, low: int, high: int, limit: int) -> list[IndexRow]:
        """Return the first ``limit`` rows with ``low <= seq < high``, ascending."""


class Above(Protocol):
    """Changes above the index, on the loop."""

    def read_view(self) -> ReadView:
        """Return the memtables whose changes go over a read of the index that begins now."""

    def unwritten(self, queue_no: int, low: int) -> tuple[list[IndexRow], Collection[int]]:
        """Return rows that are not durable yet, ascending, and seqs from ``low`` whose acks are not."""


class RowReader:
    """Reads rows for all queues of a store. On the loop."""

    def __init__(self, above: Above, index: IndexRows, background: Background) -> None:
        self._above = above
        self._index = index
        self._background = background

    def read(self, queue_no: int, low: int, limit: int, then: GotRows) -> None:
        """Find the first rows with ``low <= seq``, at most ``limit``; fewer may come although there are more.

        ``then`` gets them in a later turn, and up to where they go: ``SEQ_END`` when there are no more.
        """
        read_view, index = self._above.read_view(), self._index

        def came(base: list[IndexRow]) -> None:
            then(*self._merged(queue_no, low, limit, read_view, base))

        self._background.submit(lambda: index.rows(queue_no, low, SEQ_END, limit), came)

    def _merged(
        self, queue_no: int, low: int, limit: int, read_view: ReadView, base: list[IndexRow]
    ) -> tuple[list[IndexRow], int]:
        rows = read_view.rows(queue_no, low, SEQ_END, limit, base)
        upto = SEQ_END
        if len(rows) >= limit:
            upto = rows[-1][0] + 1
        elif len(base) >= limit:
            upto = base[-1][0] + 1  # rows behind it in the index were not read
        new, acked = self._above.unwritten(queue_no, low)
        if upto == SEQ_END and new:
            rows = rows + [row for row in new if row[0] >= low]
        if acked:
            rows = [row for row in rows if row[0] not in acked]
        if len(rows) > limit:
            rows = rows[:limit]
            upto = rows[-1][0] + 1
        return rows, upto
