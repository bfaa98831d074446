"""Read your writes: a client whose queue was deleted finds it gone on every node.

A queue is deleted in the memory of its node at once, and its row follows. In a cluster another node may use the queue
in between, so the client's answer waits until all nodes have applied the deletion: ``delete-ok``
(``VHost.remove_queue``), and here ``cancel-ok`` and ``close-ok``, which may end an auto-delete or exclusive queue. The
queue's own node deletes the row; for a remote queue its node's delegate is asked. RabbitMQ's nodes commit such
deletions together. A single node need not wait.
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
    """Wait until all nodes have applied the deletions of these queues, but for queues of a lost node.

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
    """Wait until the queues that end with a connection are gone: its exclusive queues, and auto-delete ones.

    It ends all the same when the metadata store fails.
    """
    if vhost.cluster_nodes is None:
        return
    for entry in entries:
        if entry.ref is not None:  # it answers behind the end of the consumers
            yield Ask(entry.ref, Stat(touch=False), via=entry.delegate)
    with suppress(InternalError):
        yield from await_gone(vhost, entries)
