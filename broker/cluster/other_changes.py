"""Changes of rows that other nodes of the cluster have made, applied to this node.

The metadata store sends every node the rows that were written, in order, or after a gap the difference. This node has
made its own changes in memory before it wrote them. Only a vhost is made when its row arrives, since other nodes may
use it before the operator's command here is resumed. The node that makes a change writes all its rows, so this module
writes nothing, with one exception: the row of an auto-delete exchange whose last queue has ended with the lease of a
lost node.

Two nodes may make an exchange or a queue of one name at the same moment. The store refuses the row of one of them; its
node replaces its object by the other's, before its client's script begins anew.

While this node puts or deletes a row, its memory is ahead of the store, and changes of other nodes arrive in between.
So ``agree`` compares memory and store when the last put or deletion of a row has ended, and for each row of the node's
own changes. Thus memory has every row that this node is not changing just as the store has it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.amqp.errors import SoftError
from leveret.amqp.tables import unpack
from leveret.broker.cluster.other_settings import delete_setting, put_setting, put_vhost
from leveret.broker.node.bootstrap import stored_exchange
from leveret.broker.registry.cluster_nodes import RemoteEntry
from leveret.broker.registry.registry import QueueFailed
from leveret.broker.vhost.rows import exchange_row
from leveret.core.log.loggers import logger
from leveret.metadata.tables import (
    BindingKey,
    BindingRow,
    ExchangeRow,
    ParameterRow,
    QueueRow,
    Row,
    UserRow,
    VhostRow,
)
from leveret.routing.bindings import EXCHANGE, QUEUE
from leveret.routing.exchange import Exchange

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from leveret.amqp.tables import Table
    from leveret.broker.node.node import Node
    from leveret.broker.registry.registry import QueueEntry
    from leveret.broker.vhost.vhost import VHost
    from leveret.metadata.interface import SharedMetadata
    from leveret.routing.topology import Removal

log = logger(__name__)


def apply_changes(
    node: Node, puts: Sequence[Row], deletes: Sequence[Row], is_own: bool = False
) -> None:
    """Apply one write: its deletes, then its puts; ``is_own``: this node has made it."""
    node.metadata.pending.gone(deletes, is_own)
    _count_anew(node, (*puts, *deletes))
    if is_own:
        for row in puts:
            if isinstance(row, VhostRow):
                put_vhost(node, row)
        return
    for row in deletes:
        if isinstance(row, ExchangeRow | QueueRow | BindingRow | BindingKey):
            vhost = node.vhosts.get(row.vhost)
            if vhost is not None:
                _delete(node, vhost, row)
        else:
            delete_setting(node, row)
    for row in puts:
        if isinstance(row, ExchangeRow | QueueRow | BindingRow):
            vhost = node.vhosts.get(row.vhost)
            if vhost is not None:
                _put(node, vhost, row)
        else:
            put_setting(node, row)


def _count_anew(node: Node, rows: Sequence[Row]) -> None:
    """Send the other nodes this node's counts of connections and channels, if one of these rows may set a limit.

    A node counts the connections and channels of only those users and vhosts that have a limit.
    """
    if any(isinstance(row, UserRow | ParameterRow) for row in rows):
        node.connections.remote_counts.changed()


def _put(node: Node, vhost: VHost, row: ExchangeRow | QueueRow | BindingRow) -> None:
    topology = vhost.topology
    if isinstance(row, ExchangeRow):
        exchange = topology.exchanges.get(row.name)
        if exchange is not None and node.metadata.pending.is_being_put(row):
            _drop(node, vhost, exchange, topology.remove_exchange(row.name))
            exchange = None
        if exchange is None:
            vhost.deletions.finish(EXCHANGE, row.name)
            vhost.add_exchange(stored_exchange(row))
    elif isinstance(row, QueueRow):
        if node.is_own(row):
            return  # it runs, or its deletion is on its way
        entry = topology.queues.get(row.name)
        if isinstance(entry, RemoteEntry) and entry.home.name != row.node:
            entry.deleted()
            entry = None
        elif entry is not None and not entry.is_remote:
            _lose(node, vhost, entry)
            entry = None
        if entry is None:
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


def _drop(node: Node, vhost: VHost, target: object, removal: Removal) -> None:
    """Begin the removal of an exchange or binding that other nodes do not have any more.

    An equal exchange may have been declared in the revision in which it was deleted.
    """
    rows = vhost.deletions.begin(target, removal, is_own=False)
    if isinstance(target, Exchange):
        rows = [row for row in rows if not isinstance(row, ExchangeRow) or row.name != target.name]
    node.metadata.delete_left(rows)


def _lose(node: Node, vhost: VHost, entry: QueueEntry) -> None:
    """End a queue of this node whose row is gone, or another node's."""
    if entry.is_running:
        log.warning("queue lost to another node queue=%s vhost=%s", entry.name, vhost.name)
    for channel in vhost.lose_queue(entry):
        node.runtime.send(channel, QueueFailed(entry))


def _is_row_of(node: Node, row: QueueRow, entry: QueueEntry) -> bool:
    """Return whether a row is that of a queue of this node, and not of an earlier one; transient ones have no number.

    While this node is writing the queue's row, the change is an older one; ``agree`` compares the two when the row is
    written.
    """
    is_new = node.metadata.pending.is_being_put(row)
    return node.is_own(row) and not is_new and row.queue_no in (0, entry.queue_no)


def _delete(
    node: Node, vhost: VHost, row: ExchangeRow | QueueRow | BindingRow | BindingKey
) -> None:
    topology = vhost.topology
    if isinstance(row, ExchangeRow):
        exchange = topology.exchanges.get(row.name)
        if exchange is not None:
            _drop(node, vhost, exchange, topology.remove_exchange(row.name))
    elif isinstance(row, QueueRow):
        entry = topology.queues.get(row.name)
        if isinstance(entry, RemoteEntry) and entry.home.name == row.node:
            entry.deleted()
        elif entry is not None and not entry.is_remote and _is_row_of(node, row, entry):
            _lose(node, vhost, entry)  # with the lease, when others took this node for dead
    else:
        ends = _ends(row)
        bound = topology.binding(*ends)
        if bound is not None:
            _drop(node, vhost, bound, topology.unbind(*ends))


def _ends(row: BindingRow | BindingKey) -> tuple[str, str, str, bytes, Table]:
    packed = row.arguments
    arguments = unpack(packed) if isinstance(packed, bytes) else packed
    return row.source, row.kind, row.destination, row.routing_key, arguments


# Agreement.


def agree(node: Node, shared: SharedMetadata, rows: Iterable[Row]) -> None:
    """Make exchanges, queues and bindings in memory what their rows are, but for rows that this node is changing.

    Args:
        node: the node.
        shared: where its rows are.
        rows: to compare; of exchanges and queues their bindings as well.
    """
    hanging: list[Row] = []
    for row in sorted(rows, key=_table):
        if isinstance(row, ExchangeRow | QueueRow):
            hanging += shared.hanging_on(row)
        _agree(node, shared, row)
    for row in hanging:
        _agree(node, shared, row)


def _agree(node: Node, shared: SharedMetadata, row: Row) -> None:
    if not isinstance(row, ExchangeRow | QueueRow | BindingRow | BindingKey):
        return
    vhost, pending = node.vhosts.get(row.vhost), node.metadata.pending
    if vhost is None:
        return
    if isinstance(row, BindingRow | BindingKey):
        if not pending.deletes_of(row):  # a binding that is being written is not in memory yet
            _agree_on_binding(node, vhost, shared, row)
    elif pending.is_pending(row):
        return
    elif isinstance(row, ExchangeRow):
        _agree_on_exchange(node, vhost, shared, row)
    else:
        _agree_on_queue(node, vhost, shared, row)


def _agree_on_exchange(node: Node, vhost: VHost, shared: SharedMetadata, row: ExchangeRow) -> None:
    topology, stored = vhost.topology, shared.find(row)
    exchange = topology.exchanges.get(row.name)
    if exchange is not None:
        if (
            stored is not None
            and exchange_row(vhost.name, exchange).to_fields() == stored.to_fields()
        ):
            return
        _drop(node, vhost, exchange, topology.remove_exchange(row.name))
    if isinstance(stored, ExchangeRow):
        vhost.deletions.finish(EXCHANGE, row.name)
        vhost.add_exchange(stored_exchange(stored))


def _agree_on_queue(node: Node, vhost: VHost, shared: SharedMetadata, row: QueueRow) -> None:
    stored, entry = shared.find(row), vhost.topology.queues.get(row.name)
    if isinstance(stored, QueueRow):
        _put(node, vhost, stored)
    elif isinstance(entry, RemoteEntry):
        entry.deleted()
    elif entry is not None:
        _lose(node, vhost, entry)


def _agree_on_binding(
    node: Node, vhost: VHost, shared: SharedMetadata, row: BindingRow | BindingKey
) -> None:
    topology, ends = vhost.topology, _ends(row)
    bound = topology.binding(*ends)
    stored = shared.find(row)
    if stored is None and bound is not None:
        topology.take_back(bound)
    elif isinstance(stored, BindingRow) and bound is None:
        _put(node, vhost, stored)


def _table(row: Row) -> int:
    return row.TABLE
