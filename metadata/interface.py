"""What the broker asks of whatever keeps its metadata.

``MetadataStore`` (LMDB, one node) and ``MemoryStore`` fulfil it; a store shared by a cluster will.
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


class Metadata(Protocol):
    """Rows, and the two numbers that must never come twice (boot, queue).

    Who the node is stands in its data directory (``leveret.server.process``) and nowhere else.
    """

    def load(self) -> Contents:
        """Return all rows; for the start, before the first write."""

    def write(self, puts: Sequence[Row], deletes: Sequence[Row], then: Then) -> None:
        """Put rows and delete rows (only their keys count), all or nothing.

        Args:
            puts: rows to write over what has the same key; neither they nor the sequences may be
                changed before ``then`` is called.
            deletes: rows to take away; missing ones are fine. Done before the puts.
            then: gets None when it is on disk, or the error.
        """

    def next_boot_epoch(self) -> int:
        """Return a number higher than ever before; it is on disk when this returns."""

    def next_queue_no(self) -> int:
        """Return a number that no queue whose row was ever written has had."""

    def copy_to(self, directory: Path) -> None:
        """Write a copy of all that is on disk into a new directory, not synced. From any thread.

        Raises:
            StoreError: nothing is on disk, or the disk refuses.
        """

    def close(self) -> None:
        """Finish what was asked for and let go of everything; harmless when repeated."""
