"""Lookups by name that refuse an unknown name.

Every part of the admin changes a node in the same order, under ``Node.admin_turn``: check, write to the
metadata store, change memory once the write is on disk. So a change is made wholly or not at all,
whatever the disk says, and two operators cannot both succeed in adding the same user.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.server.errors import RefusedError

if TYPE_CHECKING:
    from leveret.broker.node.node import Node
    from leveret.broker.vhost.vhost import VHost
    from leveret.metadata.tables import UserRow


def vhost_named(node: Node, name: str) -> VHost:
    """Return a vhost, or refuse."""
    vhost = node.vhosts.get(name)
    if vhost is None:
        raise RefusedError(f"Virtual host '{name}' does not exist")
    return vhost


def user_named(node: Node, name: str) -> UserRow:
    """Return a user, or refuse."""
    user = node.access.users.get(name)
    if user is None:
        raise RefusedError(f'User "{name}" does not exist')
    return user.row
