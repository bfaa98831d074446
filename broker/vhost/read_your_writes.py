"""Read your writes: a client that is told of the end of a queue finds it gone on every node.

A queue is deleted in the memory of its node at once, and its row follows. In a cluster others may look in between, so
what tells a client waits until all nodes have applied that: ``delete-ok`` (``VHost.remove_queue``), and here
``cancel-ok`` and ``close-ok``, where an auto-delete or exclusive queue ends with them. The node of the queue has the
row to delete; for a queue elsewhere the delegate there is asked. RabbitMQ's nodes commit such deletions together.

On one node nobody can look in between, and nothing waits.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from leveret.amqp.errors import InternalError
from leveret.broker.queue.calls import await_remote_deletion
from leveret.broker.queue_requests import Stat
from leveret.broker.script import Ask, Steps
from leveret.metadata.tables import QueueRow

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leveret.broker.registry.registry import QueueEntry
    from leveret.broker.vhost.vhost import VHost


def await_gone(vhost: VHost, entries: Iterable[QueueEntry]) -> Steps:
    """Wait until no node has those of these queues any more that are deleted; queues of a lost node are not waited for.

    Raises:
        InternalError: a deletion could not be written.
    """
    if vhost.cluster_nodes is None:
        return
    for entry in entries:
        if not entry.is_remote:
            yield from vhost.until_deleted(QueueRow(vhost.name, entry.name))
        else:
            yield from await_remote_deletion(entry, is_sure=False)


def connection_ended(vhost: VHost, entries: Iterable[QueueEntry]) -> Steps:
    """Wait until queues are gone that end with a connection: exclusive ones, and those it was the last to consume.

    It ends all the same when the metadata store fails.
    """
    if vhost.cluster_nodes is None:
        return
    for entry in entries:
        if entry.ref is not None:  # it answers behind the end of the consumers
            yield Ask(entry.ref, Stat(touch=False), via=entry.delegate)
    with suppress(InternalError):
        yield from await_gone(vhost, entries)
