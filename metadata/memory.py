"""Metadata that ends with the process: for tests and temporary brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.core.errors import StoreError
from leveret.metadata.tables import Contents, Key, Row

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from leveret.metadata.interface import Deliver, Then


class MemoryStore:
    """``Metadata`` over a dict.

    Args:
        deliver: calls the outcomes back; ``loop.call_soon`` does so after the caller's turn.
    """

    def __init__(self, deliver: Deliver) -> None:
        self._deliver = deliver
        self._rows: dict[tuple[int, Key], Row] = {}
        self._boot_epoch = 0
        self._queue_no = 0
        self._is_closed = False

    def load(self) -> Contents:
        contents = Contents()
        for row in self._rows.values():
            contents.add(row)
        return contents

    def write(self, puts: Sequence[Row], deletes: Sequence[Row], then: Then) -> None:
        if self._is_closed:
            raise StoreError("metadata store is closed")
        for row in deletes:
            self._rows.pop((row.TABLE, row.key), None)
        for row in puts:
            self._rows[row.TABLE, row.key] = row
        self._deliver(lambda: then(None))

    def next_boot_epoch(self) -> int:
        self._boot_epoch += 1
        return self._boot_epoch

    def next_queue_no(self) -> int:
        self._queue_no += 1
        return self._queue_no

    def copy_to(self, directory: Path) -> None:
        """Refuse: the rows are in memory only."""
        raise StoreError("metadata that is kept in memory has no copy on disk")

    def close(self) -> None:
        self._is_closed = True
