"""Rows of settings: vhosts' texts, policies, parameters, and the members of a cluster.

Policies and limits are also held by their vhost, where they take effect.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from leveret.metadata.tables import (
    Contents,
    GlobalParameterRow,
    Key,
    MemberRow,
    ParameterRow,
    PolicyRow,
    Row,
    VhostRow,
)

CLUSTER_NAME: Final = "cluster_name"
_TABLES: Final = (VhostRow, PolicyRow, ParameterRow, GlobalParameterRow, MemberRow)


class SettingsRows:
    """The rows of these tables, by class and key."""

    def __init__(self) -> None:
        self._rows: dict[tuple[type[Row], Key], Row] = {}

    def load(self, contents: Contents) -> None:
        for kind in _TABLES:
            for row in contents.table(kind):
                self.put(row)

    def contents(self) -> Contents:
        contents = Contents()
        for row in self._rows.values():
            contents.add(row)
        return contents

    def policies(self, vhost: str, is_operator: bool) -> list[PolicyRow]:
        rows = self._rows.values()
        policies = (row for row in rows if isinstance(row, PolicyRow) and row.vhost == vhost)
        return [row for row in policies if row.is_operator == is_operator]

    def parameters(self, vhost: str) -> list[ParameterRow]:
        rows = self._rows.values()
        return [row for row in rows if isinstance(row, ParameterRow) and row.vhost == vhost]

    def parameter(self, vhost: str, component: str, name: str) -> ParameterRow | None:
        row = self._rows.get((ParameterRow, (vhost, component, name)))
        return row if isinstance(row, ParameterRow) else None

    def global_parameters(self) -> list[GlobalParameterRow]:
        return [row for row in self._rows.values() if isinstance(row, GlobalParameterRow)]

    def members(self) -> list[MemberRow]:
        """Return the nodes of the cluster, down ones included, without those that were forgotten."""
        rows = self._rows.values()
        return [row for row in rows if isinstance(row, MemberRow) and not row.is_forgotten]

    @property
    def cluster_name(self) -> str | None:
        """The global parameter of this name; None: it is not set."""
        row = self._rows.get((GlobalParameterRow, (CLUSTER_NAME,)))
        value = row.value if isinstance(row, GlobalParameterRow) else None
        return value if isinstance(value, str) else None

    def vhost(self, name: str) -> VhostRow:
        row = self._rows.get((VhostRow, (name,)))
        return row if isinstance(row, VhostRow) else VhostRow(name)

    def rows_of_vhost(self, name: str) -> list[Row]:
        return [row for row in self._rows.values() if _vhost_of(row) == name]

    def put(self, row: Row) -> None:
        self._rows[type(row), row.key] = row

    def remove(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self._rows.pop((type(row), row.key), None)


def _vhost_of(row: Row) -> str | None:
    if isinstance(row, VhostRow):
        return row.name
    return row.vhost if isinstance(row, PolicyRow | ParameterRow) else None
