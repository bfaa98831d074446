"""The operator's listings of queues, exchanges and bindings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.core.slices import sliced
from leveret.server.admin import rows
from leveret.server.admin.lookups import vhost_named
from leveret.server.admin.queue_figures import queue_rows

if TYPE_CHECKING:
    from leveret.broker.node.node import Node
    from leveret.server.output.json_text import Row


class TopologyAdmin:
    """Lists the topology of the vhosts of one node."""

    def __init__(self, node: Node) -> None:
        self._node = node

    async def list_queues(self, vhost: str) -> list[Row]:
        """Return all columns of every queue; no rows where the vhost does not exist."""
        found = self._node.vhosts.get(vhost)
        vhosts = [found] if found is not None else []
        return [row async for row in queue_rows(self._node.runtime, vhosts)]

    async def list_exchanges(self, vhost: str) -> list[Row]:
        found = vhost_named(self._node, vhost)
        return [
            rows.exchange(each, found.policies.of_exchange(each.name))
            async for each in sliced(list(found.topology.exchanges.values()))
        ]

    async def list_bindings(self, vhost: str) -> list[Row]:
        """Return all columns of every binding, those of the default exchange first."""
        topology = vhost_named(self._node, vhost).topology
        queues, bindings = list(topology.queues), topology.bindings()
        implicit = [rows.implicit_binding(queue) async for queue in sliced(queues)]
        return implicit + [rows.binding(each) async for each in sliced(bindings)]
