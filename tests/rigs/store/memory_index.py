"""An index in memory, for stores on a faulty disk: LMDB maps real files.

It survives crashes as LMDB does: a transaction is complete when ``write`` has returned, and absent before. ``fail``
makes transactions fail, ``fail_reads`` reads.
"""

from __future__ import annotations

import copy
from bisect import bisect_left
from collections.abc import Iterable
from typing import Any

from leveret.msg_store.format.rows import (
    Batch,
    Checkpoint,
    FileRow,
    IndexDamaged,
    IndexRow,
    Location,
    ProducerRow,
    Producers,
    QueueTerms,
)


class MemoryIndex:
    """``rows.Index``."""

    def __init__(self) -> None:
        self.by_queue: dict[int, dict[int, IndexRow]] = {}
        self.by_msg_no: dict[int, Location] = {}
        self.by_file: dict[int, FileRow] = {}
        self.terms: dict[int, QueueTerms] = {}
        self.by_producer: dict[tuple[int, bytes], ProducerRow] = {}
        self.writes = 0
        self.copies: dict[Any, Any] = {}  # images by folder
        self._checkpoint: Checkpoint | None = None
        self._errors: list[Exception] = []
        self._read_errors: list[Exception] = []
        self._sorted: dict[int, list[int]] = {}

    def fail(self, error: Exception, times: int = 1) -> None:
        self._errors += [error] * times

    def fail_reads(self, error: Exception, times: int = 1) -> None:
        """Raise the error from reads of rows and locations."""
        self._read_errors += [error] * times

    @property
    def has_read_faults(self) -> bool:
        """Whether a read is about to fail."""
        return bool(self._read_errors)

    def heal(self) -> None:
        self._errors.clear()
        self._read_errors.clear()

    def _reached(self) -> None:
        if self._read_errors:
            raise self._read_errors.pop(0)

    def image(self) -> Any:
        parts = (
            self.by_queue,
            self.by_msg_no,
            self.by_file,
            self.terms,
            self._checkpoint,
            self.by_producer,
        )
        return copy.deepcopy(parts)

    def restore(self, image: Any) -> None:
        (
            self.by_queue,
            self.by_msg_no,
            self.by_file,
            self.terms,
            self._checkpoint,
            self.by_producer,
        ) = image
        self._sorted.clear()

    def rows(self, queue_no: int, low: int, high: int, limit: int) -> list[IndexRow]:
        self._reached()
        rows = self.by_queue.get(queue_no, {})
        seqs = self._sorted.get(queue_no)
        if seqs is None:
            seqs = self._sorted[queue_no] = sorted(rows)
        first = bisect_left(seqs, low)
        return [rows[seq] for seq in seqs[first : first + limit] if seq < high]

    def locations(self, msg_nos: Iterable[int]) -> dict[int, Location]:
        self._reached()
        known = self.by_msg_no
        return {msg_no: known[msg_no] for msg_no in msg_nos if msg_no in known}

    def scan_locations(self, low: int, limit: int) -> list[tuple[int, Location]]:
        return sorted(each for each in self.by_msg_no.items() if each[0] >= low)[:limit]

    def queue_nos(self) -> list[int]:
        return sorted(queue_no for queue_no, rows in self.by_queue.items() if rows)

    def queues(self) -> dict[int, QueueTerms]:
        return dict(self.terms)

    def files(self) -> dict[int, FileRow]:
        return dict(self.by_file)

    def producers(self) -> Producers:
        found: Producers = {}
        for (queue_no, producer), row in self.by_producer.items():
            found.setdefault(queue_no, {})[producer] = row
        return found

    def checkpoint(self) -> Checkpoint | None:
        return self._checkpoint

    def write(self, batch: Batch) -> None:
        if self._errors:
            raise self._errors.pop(0)
        self.writes += 1
        self._sorted.clear()
        for queue_no, seqs in batch.acked.items():
            for seq in seqs:
                self.by_queue.get(queue_no, {}).pop(seq, None)
        for queue_no, rows in batch.rows.items():
            self.by_queue.setdefault(queue_no, {}).update(rows)
        _update(self.by_msg_no, dict(batch.locations))
        _update(self.by_file, batch.files)
        _update(self.terms, queues := dict(batch.queues))
        _update(self.by_producer, batch.producers)
        gone = {no for no, terms in queues.items() if terms is None}
        self.by_producer = {key: row for key, row in self.by_producer.items() if key[0] not in gone}
        if batch.checkpoint is not None:
            self._checkpoint = batch.checkpoint

    def copy_to(self, folder: Any) -> None:
        self.copies[folder] = self.image()

    @property
    def size_bytes(self) -> int:
        return 0

    def close(self) -> None:
        """Do nothing: the next process finds the same contents."""


def _update(table: dict[Any, Any], changes: Any) -> None:
    for key, value in changes.items():
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value


class MemoryIndexFiles:
    """``rows.IndexFiles``: returns the same index until it is lost."""

    def __init__(self) -> None:
        self.index = MemoryIndex()
        self.is_damaged = self.was_lost = False
        self._errors_of_next: list[Exception] = []

    def open(self) -> MemoryIndex:
        if self._errors_of_next:
            self.index.fail(self._errors_of_next.pop())
        if self.is_damaged:
            raise IndexDamaged("the index in memory was damaged")
        return self.index

    def set_aside(self, quarantine: Any, name: str) -> None:
        self.index, self.is_damaged, self.was_lost = MemoryIndex(), False, True

    def condemn(self) -> None:
        self.is_damaged = True

    def fail_next(self, error: Exception) -> None:
        self._errors_of_next.append(error)

    def lose(self) -> None:
        self.index = MemoryIndex()
