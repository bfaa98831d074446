"""From the stored rows to running vhosts; and the first user and vhost of an empty store."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Final

from leveret.actors.actor import LATER
from leveret.actors.gen_server import GenServer
from leveret.broker.node.node import VHOSTS
from leveret.broker.queue.effective import view_of
from leveret.broker.queue.factory import new_queue_no
from leveret.broker.script import Ask, Script, Steps
from leveret.core.errors import StoreError
from leveret.metadata import passwords
from leveret.metadata.tables import PermissionRow, UserRow, VhostRow
from leveret.supervisors.requests import StartChild

if TYPE_CHECKING:
    from leveret.broker.node.node import Node
    from leveret.metadata.tables import Contents, Row

SLICE: Final = 250  # rows that are noted in one turn


async def load(node: Node, with_defaults: bool = True) -> None:
    """Count the start; fill the node from its store.

    Args:
        node: a new one.
        with_defaults: whether an empty store gets RabbitMQ's first rows.

    Raises:
        StoreError: the store cannot be read or written.
    """
    node.boot_epoch = node.store.next_boot_epoch()
    contents = node.store.load()
    if not contents and with_defaults:
        rows = first_rows(node)
        await write(node, rows)
        for row in rows:
            contents.add(row)
    await _number_queues(node, contents)
    node.load(contents)


async def _number_queues(node: Node, contents: Contents) -> None:
    """Give those durable queues a number in the message store that were declared without."""
    rows: list[Row] = []
    for row in contents.queues:
        if row.durable and not row.queue_no:
            row.queue_no = new_queue_no(node.store, view_of(row.arguments))
            rows.append(row)
    if rows:
        await write(node, rows)


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
    slices = [puts[start : start + SLICE] for start in range(0, len(puts), SLICE)]
    noted: list[list[Row]] = []
    is_refused = False

    def written(error: StoreError | None) -> None:
        if not done.done():  # else who asked was cancelled
            done.set_result(error)

    try:
        for some in slices:
            if noted:
                await asyncio.sleep(0)
            node.unwritten.put(some)
            noted.append(some)
        node.store.write(puts, deletes or [], written)
        error = await done
        if error is not None:
            raise error
    except StoreError:
        is_refused = True
        raise
    finally:
        for some in noted:
            node.put_ended(some, is_refused)
            if len(noted) > 1:
                await asyncio.sleep(0)


class VhostStarter(GenServer):
    """Starts all vhosts, then acknowledges its start and ends.

    It stands before the listeners in the tree, so that who can connect finds the queues recovered. A
    vhost that cannot recover stays down and does not hold the others up.
    """

    def init(self, node: Node) -> object:
        """Begin in a turn of its own."""
        self.node = node
        self.post(self.ref, None)
        return LATER

    def handle_cast(self, message: object) -> None:
        """Start one vhost after the other."""
        Script(self, self._steps(), self._done, _raise).resume()

    def _steps(self) -> Steps:
        for vhost in list(self.node.vhosts.values()):
            supervisor = self.runtime.whereis(VHOSTS)
            assert supervisor is not None
            yield Ask(supervisor, StartChild((vhost,)))

    def _done(self, _: object) -> None:
        self.started()
        self.stop()


def _raise(problem: Exception) -> None:
    raise problem


async def start_vhost(node: Node, name: str) -> None:
    """Start one vhost's actors, from outside the actors."""
    supervisor = node.runtime.whereis(VHOSTS)
    assert supervisor is not None
    await node.runtime.call(supervisor, StartChild((node.vhosts[name],)), None)
