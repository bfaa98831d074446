"""The operator's commands on firehoses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.broker.connection.alarms import MEMORY
from leveret.broker.vhost.trace import Firehose
from leveret.management.audit_log import audit
from leveret.management.errors import RefusedError
from leveret.management.lookups import vhost_named

if TYPE_CHECKING:
    from leveret.broker.node.node import Node


class TracingAdmin:
    """Turns the firehoses of one node on and off."""

    def __init__(self, node: Node) -> None:
        self._node = node

    async def trace_on(self, vhost: str, rate: float = 1.0) -> None:
        """Copy a share of the messages of a vhost; where it is done already, the rate changes."""
        if not 0.0 < rate <= 1.0:
            raise RefusedError(f"rate is {rate:g}; allowed: above 0, at most 1")
        node, found = self._node, vhost_named(self._node, vhost)
        node.stop_firehose(found)
        name = (
            node.cluster_nodes.own
            if node.cluster_nodes is not None
            else str(node.settings.cluster_name)
        )
        alarms = node.resources.alarms
        firehose = Firehose(
            vhost, name, node.own_messages.wake, rate, is_short=lambda: MEMORY in alarms.own
        )
        found.features.firehose = firehose
        node.own_messages.add(firehose)
        audit("tracing started vhost=%s rate=%s by=%s", vhost, rate)

    async def trace_off(self, vhost: str) -> None:
        """Copy no more messages of a vhost; what waits to be copied is forgotten."""
        self._node.stop_firehose(vhost_named(self._node, vhost))
        audit("tracing stopped vhost=%s by=%s", vhost)
