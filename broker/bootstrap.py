"""From the stored rows to running vhosts; and the first user and vhost of an empty store."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from leveret.broker.node import VHOSTS
from leveret.core.errors import StoreError
from leveret.metadata import passwords
from leveret.metadata.tables import PermissionRow, UserRow, VhostRow
from leveret.supervisors.requests import StartChild

if TYPE_CHECKING:
    from leveret.broker.node import Node
    from leveret.metadata.tables import Row


async def load(node: Node) -> None:
    """Fill the node from its store; an empty store gets the default user and vhost first.

    Raises:
        StoreError: the store cannot be read or written.
    """
    contents = node.store.load()
    if not contents:
        rows = first_rows(node)
        await write(node, rows)
        for row in rows:
            contents.add(row)
    node.load(contents)


def first_rows(node: Node) -> list[Row]:
    """Return the rows of RabbitMQ's first start: vhost ``/``, user ``guest``, all permissions."""
    settings = node.settings
    password_hash = passwords.hash_password(settings.default_password.encode(), os.urandom(4))
    return [
        VhostRow(settings.default_vhost, "Default virtual host"),
        UserRow(settings.default_user, password_hash, tags=list(settings.default_user_tags)),
        PermissionRow(settings.default_user, settings.default_vhost, *settings.default_permissions),
    ]


async def write(node: Node, puts: list[Row], deletes: list[Row] | None = None) -> None:
    """Write rows from outside the actors, and wait until they are on disk.

    Raises:
        StoreError: they could not be written.
    """
    done: asyncio.Future[StoreError | None] = asyncio.get_running_loop().create_future()
    node.store.write(puts, deletes or [], done.set_result)
    error = await done
    if error is not None:
        raise error


async def start_vhosts(node: Node) -> None:
    """Start all vhosts; one that cannot recover stays down and does not hold the others up."""
    for name in list(node.vhosts):
        await start_vhost(node, name)


async def start_vhost(node: Node, name: str) -> None:
    """Start one vhost's actors."""
    supervisor = node.runtime.whereis(VHOSTS)
    assert supervisor is not None
    await node.runtime.call(supervisor, StartChild((node.vhosts[name],)), None)
