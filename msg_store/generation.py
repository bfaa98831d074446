"""A generation: what the log did between two rotations, as ``tables`` keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from leveret.msg_store.index_rows import (
    Batch,
    Checkpoint,
    FileRow,
    IndexRow,
    Location,
    QueueTerms,
)


class Generation:
    """Changes to rows of queues and places of messages. See ``tables`` for the words.

    Attributes:
        number: growing by one.
        rows: by queue and seq; published in this generation.
        acked: by queue; rows of generations below or of the index that are gone.
        born: messages placed in this generation.
        changed: messages from below with another place or count; None: gone.
        row_count: rows and acked together.
        dirty_queues, dirty_files: whose terms and states have changed.
        queues, files, checkpoint: captured when it was frozen.
        owed: segments to be synced before it may be in the index.
    """

    __slots__ = (
        "acked",
        "born",
        "changed",
        "checkpoint",
        "dirty_files",
        "dirty_queues",
        "files",
        "number",
        "owed",
        "queues",
        "row_count",
        "rows",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.rows: dict[int, dict[int, IndexRow]] = {}
        self.acked: dict[int, set[int]] = {}
        self.born: dict[int, Location] = {}
        self.changed: dict[int, Location | None] = {}
        self.row_count = 0
        self.dirty_queues: set[int] = set()
        self.dirty_files: set[int] = set()
        self.queues: dict[int, QueueTerms | None] = {}
        self.files: dict[int, FileRow | None] = {}
        self.checkpoint: Checkpoint | None = None
        self.owed: frozenset[int] = frozenset()

    @property
    def weight(self) -> int:
        """How many rows a checkpoint will have to write, about."""
        return self.row_count + len(self.changed)

    @property
    def is_empty(self) -> bool:
        """Nothing happened."""
        return not (self.weight or self.born or self.dirty_queues or self.dirty_files)

    def batch(self) -> Batch:
        """Return it as a transaction; once frozen, from any thread."""
        return Batch(
            self.rows,
            self.acked,
            [*self.born.items(), *self.changed.items()],
            self.files,
            self.queues,
            self.checkpoint,
        )

    def rows_between(
        self, queue_no: int, low: int, high: int, limit: int, gone: Sequence[set[int]]
    ) -> list[IndexRow]:
        """Return the first ``limit`` rows with ``low <= seq < high`` that are in no set of ``gone``."""
        rows = self.rows.get(queue_no)
        if not rows:
            return []
        first = max(low, next(iter(rows)))
        last = min(high, next(reversed(rows)) + 1)
        is_sparse = last - first > _SPARSE * len(rows)
        seqs = (
            sorted(seq for seq in rows if first <= seq < last) if is_sparse else range(first, last)
        )
        found: list[IndexRow] = []
        for seq in seqs:
            row = rows.get(seq)
            if row is None or any(seq in each for each in gone):
                continue
            found.append(row)
            if len(found) == limit:
                break
        return found


_SPARSE: Final = 8  # with more seqs to probe per row it is cheaper to go through the rows
