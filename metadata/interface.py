"""The interface of metadata stores.

``MetadataStore`` (LMDB, one node) and ``MemoryStore`` implement it; ``EtcdMetadata`` (the nodes of a cluster)
implements ``SharedMetadata``.
All calls but ``copy_to`` are made by one thread. ``write`` returns at once; its outcome comes through
the ``deliver`` callable that the store was opened with (``loop.call_soon_threadsafe``), in the order of
the writes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from leveret.core.errors import StoreError

if TYPE_CHECKING:
    from pathlib import Path

    from leveret.metadata.tables import Contents, Row

Deliver: TypeAlias = Callable[[Callable[[], None]], object]
Then: TypeAlias = Callable[[StoreError | None], None]


class ConflictError(StoreError):
    """Another node has changed a row since the writer saw it; nothing was written. The writer decides again.

    Only stores that several nodes share answer with it.
    """


class Metadata(Protocol):
    """Rows, and the two counters whose numbers are never used twice (boot, queue).

    The node's identity is only in its data directory (``leveret.server.process``).
    """

    def load(self) -> Contents:
        """Return all rows; called at the start, before the first write."""

    def write(self, puts: Sequence[Row], deletes: Sequence[Row], then: Then) -> None:
        """Put rows and delete rows (only their keys count), all or nothing.

        Args:
            puts: rows to write; each replaces the row with its key. Neither they nor the sequences may be
                changed before ``then`` is called.
            deletes: rows to delete before the puts; missing rows are ignored.
            then: called with None when the write is durable, or with the error.
        """

    def next_boot_epoch(self) -> int:
        """Return a number higher than ever before; it is durable when this returns."""

    def next_queue_no(self) -> int:
        """Return a number that no queue has ever had."""

    def copy_to(self, directory: Path) -> None:
        """Write a copy of all durable rows into a new directory, not synced. On any thread.

        Raises:
            StoreError: the store is in memory, or the write failed.
        """

    def close(self) -> None:
        """Finish pending writes and release all resources; a second call does nothing."""


class SharedMetadata(Metadata, Protocol):
    """Metadata that several nodes share: rows as this node has seen them last.

    A write is answered when all nodes have applied it, or with ``ConflictError`` when this node has applied the
    conflicting row.
    """

    def find(self, row: Row) -> Row | None:
        """Return the row that has the key of ``row``."""

    def hanging_on(self, row: Row) -> list[Row]:
        """Return the rows that are gone when ``row``, of an exchange or queue, is deleted."""

    def when_applied(self, then: Callable[[], None]) -> None:
        """Call ``then`` when all nodes have applied what this one has applied, perhaps at once."""
