"""The producers of a store's queues, on the loop: their last sequences, durable or not.

A queue that is restarted while the store runs finds its rows, pending or not (``client``), and here the sequences
that go with them. ``wal/producers`` brings them to the disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from leveret.msg_store.format.rows import ProducerRow, Producers
from leveret.msg_store.wal.producers import RowSequence

if TYPE_CHECKING:
    from leveret.msg_store.wal.group_commit import GroupCommit


class QueueProducers:
    """The producers of one queue, for its amqqueue; its rows are under so many numbers (``levels``)."""

    __slots__ = ("_core", "_levels", "_queue_no", "_rows")

    def __init__(self, core: GroupCommit, rows: Producers, queue_no: int, levels: int) -> None:
        self._core = core
        self._rows = rows
        self._queue_no = queue_no
        self._levels = levels

    def __len__(self) -> int:
        return len(self._rows.get(self._queue_no, ()))

    def entries(self) -> dict[bytes, ProducerRow]:
        """Return a copy of them, by id."""
        return dict(self._rows.get(self._queue_no, {}))

    def changed(self, changes: Sequence[RowSequence]) -> None:
        """Write changes with the rows that they name, which were issued before."""
        rows = self._rows.setdefault(self._queue_no, {})
        for _, producer, epoch, seq, used_ms in changes:
            if seq < 0:
                rows.pop(producer, None)
            else:
                rows[producer] = epoch, seq, used_ms
        self._core.produced(self._queue_no, self._levels, changes)
