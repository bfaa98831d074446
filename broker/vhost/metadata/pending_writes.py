"""Changes of metadata that are made in memory and not known to be on disk yet.

A deletion stays *owed* until it is written: a disk that refuses it, or the death of the actor that was to
write it, must not bring a durable queue or binding back at the next start. A row that is put again cancels
the deletion that is owed for it, since puts are written behind it; a put that the disk refuses does not.

A put may have to be repeated, and other clients are served meanwhile. So the second time the ``latest``
version of the row is written: another client's later put, or nothing when the row was deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct, field

if TYPE_CHECKING:
    from leveret.metadata.tables import Key, Row

_Id: TypeAlias = "tuple[int, Key]"


def _id(row: Row) -> _Id:
    return row.TABLE, row.key


class _Put(Struct, eq=False):
    """A row that is being put.

    Attributes:
        count: how many wait for it.
        row: as put last; None when it was deleted since.
        cancelled: the deletion that was owed before.
        waiting: called when nobody puts the row any more.
    """

    count: int = 0
    row: Row | None = None
    cancelled: Row | None = None
    waiting: list[Callable[[Any], None]] = field(default_factory=list)


class PendingWrites:
    """The rows on their way to the disk.

    Args:
        later: calls back when the scripts whose rows were written or refused have been resumed.

    Attributes:
        deletes: rows whose deletion is owed, oldest first.
    """

    def __init__(self, later: Callable[[Callable[[], None]], object]) -> None:
        self._later = later
        self.deletes: dict[_Id, Row] = {}
        self._puts: dict[_Id, _Put] = {}

    def delete(self, rows: Iterable[Row]) -> None:
        for row in rows:
            name = _id(row)
            self.deletes[name] = row
            put = self._puts.get(name)
            if put is not None:
                put.row = put.cancelled = None
                self._ended(put)

    def deleted(self, rows: Iterable[Row]) -> None:
        """Take off rows whose deletion is on disk."""
        for row in self.owed(rows):
            del self.deletes[_id(row)]

    def gone(self, rows: Iterable[Row], is_own: bool) -> None:
        """Drop the pending deletions of these rows: the store deleted them, and another node may have put them since.

        Args:
            rows: deleted rows, as the store reports them.
            is_own: this node has deleted them; a row that it has put since may have been deleted once more.
        """
        for row in rows:
            name = _id(row)
            put = self._puts.get(name)
            if put is not None:
                put.cancelled = None
            if put is None or not is_own:
                self.deletes.pop(name, None)

    def owed(self, rows: Iterable[Row]) -> list[Row]:
        """Return the rows among these very objects whose deletion is still owed."""
        return [row for row in rows if self.deletes.get(_id(row)) is row]

    def deletes_of(self, row: Row) -> list[Row]:
        """Return the row of this key whose deletion is owed, if there is one."""
        owed = self.deletes.get(_id(row))
        return [] if owed is None else [owed]

    def put(self, rows: Iterable[Row]) -> list[Row]:
        """Note rows that a client has put, and waits for; return the deletions that are owed no more by that."""
        replaced: list[Row] = []
        for row in rows:
            name = _id(row)
            put = self._puts.get(name)
            if put is None:
                put = self._puts[name] = _Put()
            put.count += 1
            put.row = row
            owed = self.deletes.pop(name, None)
            if owed is not None:
                put.cancelled = owed
                replaced.append(owed)
        return replaced

    def latest(self, rows: Iterable[Row]) -> list[Row]:
        """Return the version to write of each row that was put; none of rows deleted since."""
        found = [self._puts[_id(row)].row for row in rows]
        return [row for row in found if row is not None]

    def waited_for(self, rows: Iterable[Row], is_refused: bool) -> list[Row]:
        """Undo ``put``: the rows are written or refused; return deletions that are owed again."""
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
            self._ended(put)
            if put.cancelled is not None:
                self.deletes[name] = put.cancelled
                again.append(put.cancelled)
        return again

    def is_pending(self, row: Row) -> bool:
        """Whether a client puts a row of this key, or its deletion is owed."""
        name = _id(row)
        return name in self._puts or name in self.deletes

    def is_being_put(self, row: Row) -> bool:
        """Whether a client waits for this row."""
        put = self._puts.get(_id(row))
        return put is not None and put.row is not None

    def when_put(self, row: Row, resume: Callable[[Any], None]) -> None:
        """Call back when this row, which is being put, is written, refused or deleted again."""
        self._puts[_id(row)].waiting.append(resume)

    def _ended(self, put: _Put) -> None:
        waiting, put.waiting = put.waiting, []
        for resume in waiting:
            self._later(partial(resume, None))
