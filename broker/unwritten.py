"""Changes of metadata that are made in memory and not known to be on disk yet.

A deletion stays *owed* until it is written: a disk that refuses it, or the death of whoever was to write
it, must not bring a durable queue or binding back at the next start. A row that is put again cancels
the deletion that is owed for it, since puts are written behind it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from leveret.metadata.tables import Key, Row

_Id: TypeAlias = "tuple[int, Key]"


def _id(row: Row) -> _Id:
    return row.TABLE, row.key


class Unwritten:
    """The rows on their way to the disk.

    Attributes:
        deletes: those that must go, oldest first.
    """

    __slots__ = ("_puts", "deletes")

    def __init__(self) -> None:
        self.deletes: dict[_Id, Row] = {}
        self._puts: dict[_Id, int] = {}

    def delete(self, rows: Iterable[Row]) -> None:
        """Note rows that must go."""
        for row in rows:
            self.deletes[_id(row)] = row

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
            self.deletes.pop(name, None)
            self._puts[name] = self._puts.get(name, 0) + 1

    def waited_for(self, rows: Iterable[Row]) -> None:
        """Undo ``put``: the waiting is over, whatever came of it."""
        for row in rows:
            name = _id(row)
            self._puts[name] -= 1
            if not self._puts[name]:
                del self._puts[name]

    def is_being_put(self, row: Row) -> bool:
        """Whether somebody waits for this row."""
        return _id(row) in self._puts
