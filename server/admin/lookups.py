"""What the parts of ``NodeAdmin`` share: the node, and look-ups that refuse.

A change is checked, written, and made in memory once it is on disk, and holds ``Node.admin_turn`` all
the while. So it is made wholly or not at all, whatever the disk says, and two operators cannot both
succeed in making one user.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from leveret.core.slices import sliced
from leveret.server.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from leveret.broker.connection.reader import Reader
    from leveret.broker.node.node import Node
    from leveret.broker.vhost.vhost import VHost
    from leveret.metadata.tables import UserRow

T = TypeVar("T")


class AdminPart:
    """Operators' methods of one node."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def _vhost(self, name: str) -> VHost:
        vhost = self._node.vhosts.get(name)
        if vhost is None:
            raise RefusedError(f"Virtual host '{name}' does not exist")
        return vhost

    def _user(self, name: str) -> UserRow:
        user = self._node.access.users.get(name)
        if user is None:
            raise RefusedError(f'User "{name}" does not exist')
        return user.row

    def _close_where(self, is_doomed: Callable[[Reader], bool], reason: str) -> int:
        """Have connections closed with 320; return how many."""
        return self._node.connections.close_where(is_doomed, reason)


def vhost_of(reader: Reader) -> str | None:
    """Return the vhost a connection is open on."""
    return reader.opened.vhost.name if reader.opened is not None else None


def user_of(reader: Reader) -> str | None:
    """Return who a connection has logged in as."""
    return reader.opened.user.name if reader.opened is not None else None


async def rows_of(items: Iterable[T], row: Callable[[T], dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the row of each item, in slices."""
    return [row(item) async for item in sliced(items)]
