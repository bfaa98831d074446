"""Rows that the broker keeps but does not work with yet: vhosts' texts, policies, parameters.

They are read from the store when they are first asked for, and from then on followed here: nobody else
changes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.metadata.tables import (
    Contents,
    GlobalParameterRow,
    ParameterRow,
    PolicyRow,
    Row,
    VhostRow,
)

if TYPE_CHECKING:
    from leveret.metadata.interface import Metadata
    from leveret.metadata.tables import Key

_TABLES = (VhostRow, PolicyRow, ParameterRow, GlobalParameterRow)


class Kept:
    """The rows of these tables, by class and key."""

    def __init__(self, store: Metadata) -> None:
        self._store = store
        self._rows: dict[tuple[type[Row], Key], Row] | None = None

    def contents(self) -> Contents:
        """Return all of them."""
        contents = Contents()
        for row in self._loaded().values():
            contents.add(row)
        return contents

    def vhost(self, name: str) -> VhostRow:
        """Return a vhost's row."""
        row = self._loaded().get((VhostRow, (name,)))
        return row if isinstance(row, VhostRow) else VhostRow(name)

    def put(self, row: Row) -> None:
        """Take note of a row that is being written."""
        self._loaded()[type(row), row.key] = row

    def delete_vhost(self, name: str) -> list[Row]:
        """Forget a vhost and what belongs to it; return the rows to delete."""
        rows = self._loaded()
        gone = [row for row in rows.values() if _vhost_of(row) == name]
        for row in gone:
            del rows[type(row), row.key]
        return gone

    def _loaded(self) -> dict[tuple[type[Row], Key], Row]:
        if self._rows is None:
            stored = self._store.load()
            self._rows = {(kind, row.key): row for kind in _TABLES for row in stored.table(kind)}
        return self._rows


def _vhost_of(row: Row) -> str | None:
    if isinstance(row, VhostRow):
        return row.name
    return row.vhost if isinstance(row, PolicyRow | ParameterRow) else None
