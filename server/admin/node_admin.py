"""The operator's view of a running ``Broker``: the ``Admin`` behind the control socket."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import leveret
from leveret.amqp.kernel import KERNEL_NAME
from leveret.broker.connection.connections import CloseConnection
from leveret.broker.node.node import VHOSTS
from leveret.core.sizes import SizeLimit
from leveret.core.slices import sliced
from leveret.server.admin import rows as admin_rows
from leveret.server.admin.lookups import rows_of, vhost_of
from leveret.server.admin.policies import PolicyAdmin
from leveret.server.admin.queue_figures import queue_rows, totals
from leveret.server.admin.snapshots import SnapshotAdmin
from leveret.server.admin.stores import store_rows
from leveret.server.admin.users import UserAdmin
from leveret.server.admin.vhosts import VhostAdmin
from leveret.server.definitions.node_definitions import Definitions
from leveret.server.errors import RefusedError
from leveret.server.event_loop import name_of
from leveret.server.output.json_text import Row
from leveret.supervisors.tree import walk

if TYPE_CHECKING:
    from leveret.server.broker import Broker


class NodeAdmin(UserAdmin, VhostAdmin, PolicyAdmin, SnapshotAdmin):
    """``Admin`` of one broker."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker.node)
        self._broker = broker
        self._definitions = Definitions(broker.node)

    async def status(self) -> Row:
        """Return version, kernel, counts, and the queues with most messages."""
        broker, folder = self._broker, self._broker.config.data_dir
        sums, largest = await totals(self._node.runtime, list(self._node.vhosts.values()))
        return self._node.stat() | {
            "version": leveret.__version__,
            "kernel": KERNEL_NAME,
            "event_loop": name_of(asyncio.get_running_loop()),
            "pid": os.getpid(),
            "node_id": str(broker.node_id),
            "data_dir": str(folder.absolute()) if folder is not None else None,
            "listeners": [str(address) for address in broker.addresses],
            "consumers": sums.pop("consumers"),
            "queues": {**sums, "largest": largest},
            **self._node.resources.figures(),
            "stores": store_rows(self._node.vhosts.values()),
        }

    async def tree(self) -> list[Row]:
        """Return the supervision tree."""
        root = self._node.runtime.whereis(VHOSTS)
        while root is not None and root.cell.parent is not None:
            root = root.cell.parent
        if root is None:
            return []
        now_s = self._node.runtime.clock.monotonic_s()
        nodes = walk(self._node.runtime, root)
        return await rows_of(nodes, lambda node: admin_rows.actor(node, now_s))

    async def list_queues(self, vhost: str) -> list[Row]:
        """Return the queues of a vhost."""
        found = self._node.vhosts.get(vhost)
        vhosts = [found] if found is not None else []
        return [row async for row in queue_rows(self._node.runtime, vhosts)]

    async def list_exchanges(self, vhost: str) -> list[Row]:
        """Return the exchanges of a vhost."""
        place = self._vhost(vhost)
        found = list(place.topology.exchanges.values())
        return await rows_of(
            found, lambda each: admin_rows.exchange(each, place.policies.of_exchange(each.name))
        )

    async def list_bindings(self, vhost: str) -> list[Row]:
        """Return the bindings of a vhost, the default exchange's first."""
        topology = self._vhost(vhost).topology
        queues, bindings = list(topology.queues), topology.bindings()
        rows = await rows_of(queues, admin_rows.implicit_binding)
        return rows + await rows_of(bindings, admin_rows.binding)

    async def list_connections(self) -> list[Row]:
        """Return the open connections."""
        readers = list(self._node.connections.readers.values())
        return [admin_rows.connection(reader) async for reader in sliced(readers, 50)]

    async def close_connection(self, pid: str, reason: str) -> None:
        """Close one connection."""
        for reader in self._node.connections.readers.values():
            if str(reader.ref) == pid:
                self._node.runtime.send(reader.ref, CloseConnection(reason))
                return
        raise RefusedError(f"there is no connection {pid}")

    async def close_all_connections(self, vhost: str | None, reason: str) -> int:
        """Close the connections of a vhost, or all."""
        return self._close_where(lambda reader: vhost in {None, vhost_of(reader)}, reason)

    async def set_vm_memory_high_watermark(self, size_bytes: int, share: float | None) -> None:
        """Set the high watermark of memory in use."""
        self._node.resources.set_limits(memory=SizeLimit(size_bytes, share))

    async def set_disk_free_limit(self, size_bytes: int, share: float | None) -> None:
        """Set the limit of free disk space."""
        self._node.resources.set_limits(disk=SizeLimit(size_bytes, share))

    async def export_definitions(self) -> Row:
        """Return the definitions."""
        return await self._definitions.export()

    async def import_definitions(self, document: Row) -> list[str]:
        """Take definitions in."""
        return await self._definitions.take(document)
