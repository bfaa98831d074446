"""Errors of a message store."""

from __future__ import annotations

from leveret.core.errors import DependencyError, StoreError


class Corrupt(StoreError):
    """A file has other bytes than the store wrote: a torn write, a flipped bit, a foreign file."""


class ForeignFile(Corrupt):
    """A segment or journal file belongs to another store."""


class StoreFailed(StoreError, DependencyError):
    """The store met an error after which its files cannot be trusted; it must be recovered."""


class StoreLocked(StoreError):
    """Another process has the store open."""


class EpochUsed(StoreError):
    """The boot epoch for an opening is one that the store has files of, or an older one."""


class FormatLost(StoreError):
    """FORMAT is missing or unreadable, so the store's uuid is unknown."""


class FormatTooNew(StoreError):
    """A store was written by a newer version."""


class StoreChanged(StoreError):
    """A repair plan is for a store as it was before; the store must be audited again."""


class RowsLost(StoreError):
    """Rows of a queue are lost, so its counts are wrong: it must begin again with the remaining rows."""

    def __init__(self, queue_no: int) -> None:
        super().__init__(f"paged-out rows of queue {queue_no} are lost")
