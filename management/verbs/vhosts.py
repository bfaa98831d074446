"""The operator's commands on vhosts, and the listings of their queues, exchanges and bindings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from leveret.actors.runtime.signals import CallExit
from leveret.broker.node import bootstrap
from leveret.broker.node.bootstrap import StartFailedError
from leveret.broker.node.node import VHOSTS
from leveret.broker.node.store_server import remove_store
from leveret.broker.registry.queue_types import DEFAULT_TYPES
from leveret.broker.vhost.metadata.metadata_writer import METADATA_SERVER, Write
from leveret.broker.vhost.states import ENDED, State
from leveret.broker.vhost.vhost import VHost
from leveret.core.slices import sliced
from leveret.management import rows
from leveret.management.audit_log import audit
from leveret.management.errors import RefusedError
from leveret.management.json_text import Row
from leveret.management.lookups import vhost_named
from leveret.management.queue_stats import queue_rows
from leveret.metadata.tables import BindingRow, ExchangeRow, QueueRow, VhostRow
from leveret.supervisors.requests import TerminateChild

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from leveret.broker.node.node import Node
    from leveret.metadata.tables import Row as StoredRow


class VhostAdmin:
    """Adds, deletes and lists the vhosts of one node; lists their topology."""

    def __init__(self, node: Node) -> None:
        self._node = node

    async def add_vhost(
        self,
        name: str,
        description: str = "",
        tags: Sequence[str] = (),
        default_queue_type: str = "",
    ) -> None:
        """Add a vhost, unless it exists; a vhost that cannot be started is removed again."""
        if not name:
            raise RefusedError("vhost name is empty")
        if default_queue_type not in DEFAULT_TYPES:
            raise RefusedError(f"unsupported default queue type '{default_queue_type}'")
        node = self._node
        async with node.admin_turn:
            if name in node.vhosts:
                return
            row = VhostRow(name, description, list(tags), default_queue_type)
            await node.metadata.write([row])
            node.settings_rows.put(row)
            if name not in node.vhosts:  # in a cluster it is made when its row is there
                node.vhosts[name] = node.new_vhost(name, default_queue_type)
            vhost = node.vhosts[name]
            await _begin_to_start(node, name)
        try:
            await bootstrap.vhost_started(vhost)
        except StartFailedError as error:
            async with node.admin_turn:
                if node.vhosts.get(name) is vhost:
                    await self._delete(vhost)
            raise RefusedError(str(error)) from error
        audit("vhost added vhost=%s by=%s", name)

    async def set_vhost_tags(self, name: str, tags: list[str]) -> None:
        node = self._node
        async with node.admin_turn:
            if name not in node.vhosts:
                raise RefusedError(f'Virtual host "{name}" does not exist')
            row = replace(node.settings_rows.vhost(name), tags=tags)
            await node.metadata.write([row])
            node.settings_rows.put(row)
        audit("vhost tags set vhost=%s tags=%s by=%s", name, ",".join(tags))

    async def check_virtual_hosts(self) -> list[Row]:
        """Return the vhosts that are down."""
        return rows.outages(self._node)

    async def restart_vhost(self, vhost: str) -> bool:
        """Start a vhost that is down; return False if it serves or is being started."""
        node = self._node
        async with node.admin_turn:
            found = vhost_named(node, vhost)
            if found.state.now not in ENDED:
                return False
            await _begin_to_start(node, vhost)
        try:
            await bootstrap.vhost_started(found)
        except StartFailedError as error:
            raise RefusedError(str(error)) from error
        return True

    async def delete_vhost(self, name: str) -> None:
        """Delete a vhost: first its rows, then its connections and its actors, last its messages.

        No disk is waited for but that of the metadata.
        """
        async with self._node.admin_turn:
            await self._delete(vhost_named(self._node, name))
        audit("vhost deleted vhost=%s by=%s", name)

    async def _delete(self, vhost: VHost) -> None:
        node, name = self._node, vhost.name
        settings = node.settings_rows.rows_of_vhost(name) + node.access.rows_of_vhost(name)
        vhost.is_closing = True
        try:
            await self._hand_over_writes()
            doomed = [VhostRow(name), *settings, *await _topology_rows(vhost)]
            await node.metadata.write([], doomed)
        except BaseException:
            vhost.is_closing = False
            raise
        if node.vhosts.get(name) is not vhost:
            return  # an operator of another node has deleted it meanwhile, and the settings keeper ends it
        node.forget_vhost(vhost)
        await self._stop(vhost)
        vhost.forget_queues()
        await remove_store(node, vhost)

    async def _hand_over_writes(self) -> None:
        """Wait until the rows that clients have declared so far are submitted: the deletions must follow them."""
        server = self._node.runtime.whereis(METADATA_SERVER)
        try:
            if server is not None:
                await self._node.runtime.call(server, Write([], []), None)
        except CallExit as error:
            raise RefusedError(f"the metadata store has just failed: {error.reason}") from error

    async def list_vhosts(self) -> list[Row]:
        return [
            {
                "name": vhost.name,
                "description": (row := self._node.settings_rows.vhost(vhost.name)).description,
                "tags": row.tags,
                "tracing": vhost.firehose is not None,
                "default_queue_type": row.default_queue_type,
                "cluster_state": "running" if vhost.state.now is State.RUNNING else "stopped",
            }
            for vhost in self._node.vhosts.values()
        ]

    async def list_queues(self, vhost: str) -> list[Row]:
        """Return all columns of every queue; no rows where the vhost does not exist."""
        return [row async for row in await self.queue_rows(vhost)]

    async def list_exchanges(self, vhost: str) -> list[Row]:
        return [row async for row in await self.exchange_rows(vhost)]

    async def list_bindings(self, vhost: str) -> list[Row]:
        """Return all columns of every binding, the default exchange's first."""
        return [row async for row in await self.binding_rows(vhost)]

    # The same row by row, for the control socket: rows of a large broker take more memory than their objects.

    async def queue_rows(self, vhost: str, local: bool = False) -> AsyncIterator[Row]:
        """Return the rows of this node's queues; without ``local`` a cluster adds those of other nodes."""
        found = self._node.vhosts.get(vhost)
        return queue_rows(self._node.runtime, [found] if found is not None else [])

    async def exchange_rows(self, vhost: str) -> AsyncIterator[Row]:
        found = vhost_named(self._node, vhost)
        return (
            rows.exchange(each, found.policies.of_exchange(each.name))
            async for each in sliced(list(found.topology.exchanges.values()))
        )

    async def binding_rows(self, vhost: str) -> AsyncIterator[Row]:
        return _binding_rows(vhost_named(self._node, vhost))

    async def _stop(self, vhost: VHost) -> None:
        """Stop a vhost's actors, if they run; a start that is under way meanwhile is ignored by ``VhostSup``."""
        runtime, child = self._node.runtime, vhost.supervisor
        supervisor = runtime.whereis(VHOSTS)
        if supervisor is None or child is None or not child.is_alive:
            return
        try:
            await runtime.call(supervisor, TerminateChild(child), None)
        except CallExit as error:
            raise RefusedError(f"vhost '{vhost.name}' did not stop: {error.reason}") from error


async def _begin_to_start(node: Node, name: str) -> None:
    try:
        await bootstrap.start_vhost(node, name)
    except CallExit as error:
        raise RefusedError(f"vhost '{name}' did not start: {error.reason}") from error


async def _binding_rows(vhost: VHost) -> AsyncIterator[Row]:
    queues, bindings = list(vhost.topology.queues), vhost.topology.bindings()
    async for queue in sliced(queues):
        yield rows.implicit_binding(queue)
    async for each in sliced(bindings):
        yield rows.binding(each)


async def _topology_rows(vhost: VHost) -> list[StoredRow]:
    topology, name = vhost.topology, vhost.name
    bindings, queues = topology.bindings(), list(topology.queues)
    found: list[StoredRow] = [ExchangeRow(name, each, "") for each in topology.exchanges]
    found += [QueueRow(name, each) async for each in sliced(queues)]
    return found + [
        BindingRow(name, each.source, each.kind, each.destination, each.key, each.arguments)
        async for each in sliced(bindings)
    ]
