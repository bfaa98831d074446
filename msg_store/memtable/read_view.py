"""A read view: the memtables whose changes a reader of the index must apply to its rows.

The index is read in a thread, and meanwhile memtables are committed to it and dropped. A read view keeps
all memtables from the start of the read until its end. So every change since the index's checkpoint is in
one of them, and applying a change that the index had already changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet

from leveret.msg_store.format.rows import IndexRow, Location
from leveret.msg_store.memtable.memtable import Memtable, newest_table
from leveret.msg_store.memtable.seq_set import span_of


class ReadView:
    """The memtables above an index that is being read, oldest first.

    ``Memtables`` adds each memtable that begins while the read view is in use.
    """

    __slots__ = ("__weakref__", "memtables")

    def __init__(self, memtables: list[Memtable]) -> None:
        self.memtables = memtables

    def rows(
        self, queue_no: int, low: int, high: int, limit: int, base: list[IndexRow]
    ) -> list[IndexRow]:
        """Return the first rows of a queue as of now.

        Args:
            queue_no: the queue.
            low: the first seq.
            high: the seq behind the last.
            limit: how many at most.
            base: what the index's ``rows`` returned for the same, not changed.

        Returns:
            Rows, ascending. If ``base`` has ``limit`` rows, rows behind its last seq are not known,
            and only rows up to there are returned, none perhaps; ``next_low`` tells where to go on.
        """
        touched = [each for each in self.memtables if _touches(each, queue_no)]
        if not touched:
            return base
        if len(base) >= limit:
            high = min(high, base[-1][0] + 1)
        gone = [each.acked[queue_no] for each in touched if queue_no in each.acked]
        # A memtable's rows are new in it, so those of the index come from below all of them.
        near = [each for each in gone if base and each.reaches(base[0][0], base[-1][0])]
        seqs = [row[0] for row in base] if near else []
        if not all(each.isdisjoint(seqs) for each in near):
            base = [row for row in base if not any(row[0] in each for each in near)]
        if not any(queue_no in each.rows for each in touched):
            return base
        merged = {row[0]: row for row in base}
        for index, memtable in enumerate(touched):
            later = [
                each.acked[queue_no] for each in touched[index + 1 :] if queue_no in each.acked
            ]
            for row in memtable.rows_between(queue_no, low, high, limit, later):
                merged[row[0]] = row
        return [merged[seq] for seq in sorted(merged)[:limit]]

    def locations(
        self, msg_nos: Iterable[int], base: Mapping[int, Location]
    ) -> dict[int, Location]:
        """Return where messages lie as of now; ``base`` is what the index returned for them.

        The reference counts may be old; a message that is missing in the result is gone.
        """
        found: dict[int, Location] = {}
        memtables = self.memtables[::-1]
        for msg_no in msg_nos:
            table = newest_table(msg_no, memtables)
            location = base.get(msg_no) if table is None else table[msg_no]
            if location is not None:
                found[msg_no] = location
        return found

    def spoken_of(self, msg_nos: Collection[int]) -> Iterator[AbstractSet[int]]:
        """Yield the messages of memtables that may say something about any of these."""
        if not msg_nos:
            return
        low, high = span_of(msg_nos)
        for memtable in self.memtables:
            if not memtable.says_nothing_of(msg_nos, low, high):
                yield memtable.inserted.keys()
                yield memtable.changed.keys()


def next_low(rows: list[IndexRow], base: list[IndexRow], limit: int, high: int) -> int:
    """Return the seq from which to ask on after ``ReadView.rows``; ``high`` if there is nothing more."""
    if len(rows) == limit:
        return rows[-1][0] + 1
    return base[-1][0] + 1 if len(base) == limit else high


def _touches(memtable: Memtable, queue_no: int) -> bool:
    return queue_no in memtable.rows or queue_no in memtable.acked
