"""Changes of metadata that are made in memory and not known to be on disk yet.

A deletion stays *owed* until it is written: a disk that refuses it, or the death of whoever was to write
it, must not bring a durable queue or binding back at the next start. A row that is put again cancels
the deletion that is owed for it, since puts are written behind it; one that the disk refuses does not.

What is put may have to be asked twice, and others go on meanwhile. So it is the ``latest`` word on a row
that is written then: what they put in its place, or nothing when they deleted it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from leveret.metadata.tables import Key, Row

_Id: TypeAlias = "tuple[int, Key]"


def _id(row: Row) -> _Id:
    return row.TABLE, row.key


class _Put:
    """A row that is being put.

    Attributes:
        count: how many wait for it.
        row: what was put last; None when it was deleted since.
        cancelled: the deletion that was owed before.
    """

    __slots__ = ("cancelled", "count", "row")

    def __init__(self) -> None:
        self.count = 0
        self.row: Row | None = None
        self.cancelled: Row | None = None


class PendingWrites:
    """The rows on their way to the disk.

    Attributes:
        deletes: those that must go, oldest first.
    """

    __slots__ = ("_puts", "deletes")

    def __init__(self) -> None:
        self.deletes: dict[_Id, Row] = {}
        self._puts: dict[_Id, _Put] = {}

    def delete(self, rows: Iterable[Row]) -> None:
        """Note rows that must go."""
        for row in rows:
            name = _id(row)
            self.deletes[name] = row
            put = self._puts.get(name)
            if put is not None:
                put.row = put.cancelled = None

    def deleted(self, rows: Iterable[Row]) -> None:
        """Take off rows whose deletion is on disk."""
        for row in self.owed(rows):
            del self.deletes[_id(row)]

    def owed(self, rows: Iterable[Row]) -> list[Row]:
        """Return those of these very rows that must still go."""
        return [row for row in rows if self.deletes.get(_id(row)) is row]

    def is_owed(self, row: Row) -> bool:
        """Whether a row of this key must still go."""
        return _id(row) in self.deletes

    def put(self, rows: Iterable[Row]) -> None:
        """Note rows that somebody has put, and waits for."""
        for row in rows:
            name = _id(row)
            put = self._puts.get(name)
            if put is None:
                put = self._puts[name] = _Put()
            put.count += 1
            put.row = row
            put.cancelled = self.deletes.pop(name, put.cancelled)

    def latest(self, rows: Iterable[Row]) -> list[Row]:
        """Return what is to be written of rows that somebody waits for."""
        found = [self._puts[_id(row)].row for row in rows]
        return [row for row in found if row is not None]

    def waited_for(self, rows: Iterable[Row], is_refused: bool) -> list[Row]:
        """Undo ``put``: the waiting is over.

        Args:
            rows: what was put.
            is_refused: it is known not to be on disk.

        Returns:
            Deletions that are owed again.
        """
        again: list[Row] = []
        for row in rows:
            name = _id(row)
            put = self._puts[name]
            put.count -= 1
            if not is_refused:
                put.cancelled = None
            if put.count:
                continue
            del self._puts[name]
            if put.cancelled is not None:
                self.deletes[name] = put.cancelled
                again.append(put.cancelled)
        return again

    def is_being_put(self, row: Row) -> bool:
        """Whether somebody waits for this row."""
        put = self._puts.get(_id(row))
        return put is not None and put.row is not None
