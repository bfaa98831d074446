"""Rows of a vhost's objects, and the registry entry of a stored queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.broker.registry.cluster_nodes import RemoteEntry
from leveret.broker.registry.registry import QueueEntry
from leveret.metadata.tables import BindingRow, ExchangeRow, QueueRow

if TYPE_CHECKING:
    from collections.abc import Callable

    from leveret.broker.registry.cluster_nodes import ClusterNodes
    from leveret.routing.bindings import Binding
    from leveret.routing.exchange import Exchange


def exchange_row(vhost_name: str, exchange: Exchange) -> ExchangeRow:
    """Return the row of an exchange."""
    return ExchangeRow(
        vhost_name,
        exchange.name,
        exchange.type,
        exchange.durable,
        exchange.auto_delete,
        exchange.internal,
        exchange.arguments,
    )


def binding_row(vhost_name: str, binding: Binding) -> BindingRow:
    """Return the row of a binding."""
    return BindingRow(
        vhost_name,
        binding.source,
        binding.kind,
        binding.destination,
        binding.key,
        binding.arguments,
    )


def queue_row(entry: QueueEntry, user_name: str, cluster_nodes: ClusterNodes | None) -> QueueRow:
    """Return the row of a queue of this node; in a cluster it names the node."""
    no, arguments = entry.queue_no, entry.arguments
    row = QueueRow(entry.vhost_name, entry.name, True, entry.auto_delete, arguments, no, user_name)
    if cluster_nodes is not None:
        row.durable, row.exclusive = entry.durable, entry.exclusive is not None
        row.node = cluster_nodes.own
    return row


def entry_of(
    row: QueueRow, cluster_nodes: ClusterNodes | None, on_deleted: Callable[[QueueEntry], None]
) -> QueueEntry:
    """Return a new registry entry for the queue of a row, on whatever node it lives."""
    if cluster_nodes is None or row.node in ("", cluster_nodes.own):
        return QueueEntry(
            row.vhost,
            row.name,
            durable=True,
            auto_delete=row.auto_delete,
            arguments=row.arguments,
            on_deleted=on_deleted,
            queue_no=row.queue_no,
        )
    return RemoteEntry(
        row.vhost,
        row.name,
        cluster_nodes.home(row.node),
        row.durable,
        row.auto_delete,
        row.exclusive,
        row.arguments,
        on_deleted,
    )
