"""Changes of exchanges, queues and bindings that other nodes of the cluster have made, applied to this node's vhosts.

The metadata store tells every node of the rows that were written, in the order in which they were. A change that is
there already is this node's own, and nothing is done. Nothing is written here: the node that has made a change has
written all its rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.amqp.errors import SoftError
from leveret.amqp.tables import unpack
from leveret.broker.node.bootstrap import stored_exchange
from leveret.broker.queue.homes import RemoteEntry
from leveret.broker.queue.registry import QueueFailed
from leveret.core.log.loggers import logger
from leveret.metadata.tables import BindingKey, BindingRow, ExchangeRow, QueueRow
from leveret.routing.bindings import EXCHANGE, QUEUE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leveret.broker.node.node import Node
    from leveret.broker.vhost.vhost import VHost
    from leveret.metadata.tables import Row

log = logger(__name__)


def apply_changes(node: Node, puts: Sequence[Row], deletes: Sequence[Row]) -> None:
    """Apply one write of another node: its deletes, then its puts. Rows of other kinds are ignored."""
    for row in deletes:
        if isinstance(row, ExchangeRow | QueueRow | BindingRow | BindingKey):
            vhost = node.vhosts.get(row.vhost)
            if vhost is not None:
                _delete(vhost, row)
    for row in puts:
        if isinstance(row, ExchangeRow | QueueRow | BindingRow):
            vhost = node.vhosts.get(row.vhost)
            if vhost is not None:
                _put(node, vhost, row)


def _put(node: Node, vhost: VHost, row: ExchangeRow | QueueRow | BindingRow) -> None:
    topology = vhost.topology
    if isinstance(row, ExchangeRow):
        if row.name not in topology.exchanges:
            vhost.deletions.finish(EXCHANGE, row.name)
            vhost.add_exchange(stored_exchange(row))
    elif isinstance(row, QueueRow):
        there = topology.queues.get(row.name)
        if isinstance(there, RemoteEntry) and there.home.name != row.node:
            there.deleted()
            there = None
        elif there is not None and not there.is_remote and not node.is_own(row):
            log.warning("queue lost to another node queue=%s vhost=%s", row.name, row.vhost)
            for channel in vhost.lose_queue(there):
                node.runtime.send(channel, QueueFailed(there))
            there = None
        if there is None:
            vhost.deletions.finish(QUEUE, row.name)
            vhost.register_row(row)
    else:
        try:
            topology.bind(row.source, row.kind, row.destination, row.routing_key, row.arguments)
        except SoftError as error:
            log.warning(
                "binding of another node skipped vhost=%s source=%s %s=%s reason=%s",
                row.vhost, row.source, row.kind, row.destination, error,
            )  # fmt: skip


def _delete(vhost: VHost, row: ExchangeRow | QueueRow | BindingRow | BindingKey) -> None:
    topology = vhost.topology
    if isinstance(row, ExchangeRow):
        exchange = topology.exchanges.get(row.name)
        if exchange is not None:
            vhost.deletions.begin(exchange, topology.remove_exchange(row.name), is_own=False)
    elif isinstance(row, QueueRow):
        entry = topology.queues.get(row.name)
        if isinstance(entry, RemoteEntry) and entry.home.name == row.node:
            entry.deleted()
    else:
        packed = row.arguments
        arguments = unpack(packed) if isinstance(packed, bytes) else packed
        ends = row.source, row.kind, row.destination, row.routing_key, arguments
        bound = topology.binding(*ends)
        if bound is not None:
            vhost.deletions.begin(bound, topology.unbind(*ends), is_own=False)
