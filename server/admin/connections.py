"""The operator's commands on connections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.broker.connection.connections import vhost_of
from leveret.core.slices import sliced
from leveret.server.admin import rows
from leveret.server.errors import RefusedError

if TYPE_CHECKING:
    from leveret.broker.connection.reader import Reader
    from leveret.broker.node.node import Node
    from leveret.server.output.json_text import Row

LISTED_AT_ONCE = 50


class ConnectionAdmin:
    """Lists and closes the connections of one node."""

    def __init__(self, node: Node) -> None:
        self._node = node

    async def list_connections(self) -> list[Row]:
        readers = list(self._node.connections.readers.values())
        return [rows.connection(reader) async for reader in sliced(readers, LISTED_AT_ONCE)]

    async def close_connection(self, pid: str, reason: str) -> None:
        close_where = self._node.connections.close_where
        if not close_where(lambda reader: str(reader.ref) == pid, reason):
            raise RefusedError(f"there is no connection {pid}")

    async def close_all_connections(self, vhost: str | None, reason: str) -> int:
        """Close the connections of a vhost, or all; return how many."""
        return self._node.connections.close_where(
            lambda reader: vhost is None or _vhost_name(reader) == vhost, reason
        )


def _vhost_name(reader: Reader) -> str | None:
    vhost = vhost_of(reader)
    return vhost.name if vhost is not None else None
