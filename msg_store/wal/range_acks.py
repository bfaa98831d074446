"""Ranges of seqs that are to be acked: what is in them must be read from the index first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from leveret.msg_store.format.rows import IndexRow
from leveret.msg_store.memtable.read_view import ReadView, next_low

SLICE_ROWS = 2_000


@dataclass(slots=True, eq=False)
class RangeAck:
    """What is left of a range: ``low <= seq < high``.

    Attributes:
        then: called when the acks of all of it have been issued.
        view: while it is read: since when.
    """

    queue_no: int
    low: int
    high: int
    then: Callable[[], None] | None
    view: ReadView | None = None

    def rows(self, base: list[IndexRow]) -> list[IndexRow]:
        """Return the rows of the slice that was read, and go on to the next."""
        assert self.view is not None, "nobody was asked to read"
        rows = self.view.rows(self.queue_no, self.low, self.high, SLICE_ROWS, base)
        self.view = None
        self.low = next_low(rows, base, SLICE_ROWS, self.high)
        return rows

    @property
    def is_done(self) -> bool:
        """Nothing is left."""
        return self.low >= self.high
