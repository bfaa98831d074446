"""The choice of a queue's backing queue, by its arguments and its vhost.

========================  ==========================================================================
queue                     backing
========================  ==========================================================================
durable                   ``VariableQueue`` over the vhost's message store
not durable               ``VariableQueue`` in RAM, until it is lazy or has to page: then over the
                          store, which keeps nothing of it
with ``x-max-priority``   ``PriorityQueue`` of one variable queue for each priority
========================  ==========================================================================

A node without a data directory has no stores; all its queues are in RAM. The priorities of a queue have
numbers in the store that follow the queue's own.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from leveret.amqp.properties import examine
from leveret.broker.registry.queue_settings import settings_of
from leveret.core.errors import StoreError
from leveret.core.log.loggers import logger
from leveret.core.message import HEAD
from leveret.queue_backing.index.stored import StoredIndex
from leveret.queue_backing.priority_queue import PriorityQueue
from leveret.queue_backing.variable.queue import VariableQueue

if TYPE_CHECKING:
    from leveret.broker.registry.queue_settings import QueueSettings
    from leveret.broker.registry.registry import QueueEntry
    from leveret.core.clock import Clock
    from leveret.core.message import Message
    from leveret.metadata.interface import Metadata
    from leveret.metadata.tables import QueueRow
    from leveret.msg_store.store import MsgStore
    from leveret.queue_backing.actor import BackingOwner, MakeQueue
    from leveret.queue_backing.api import BackingQueue
    from leveret.queue_backing.index.api import QueueIndex
    from leveret.queue_backing.memory_monitor import MemoryMonitor

log = logger(__name__)

_FLAGS_AT: Final = 12  # in a content header: class, weight, body size, property flags
_HAS_PRIORITY: Final = 0x08  # in the first octet of the flags


def in_memory(owner: BackingOwner) -> BackingQueue:
    """Make the backing of a queue that never pages."""
    return VariableQueue()


def backing_of(
    entry: QueueEntry,
    store: MsgStore | None,
    clock: Clock,
    memory: MemoryMonitor,
    metadata: Metadata,
) -> MakeQueue:
    """Return what makes the backing of a queue; called again after each crash of the pair.

    The store is the vhost's, None when it has none; the metadata gives numbers.
    """
    if store is None and not entry.settings.highest_priority:
        return in_memory
    return partial(_make, entry, store, clock, memory, metadata)  # a closure takes twice the RAM


def _make(
    entry: QueueEntry,
    store: MsgStore | None,
    clock: Clock,
    memory: MemoryMonitor,
    metadata: Metadata,
    owner: BackingOwner,
) -> BackingQueue:
    levels = _levels(entry.settings)
    if store is None:
        return PriorityQueue([VariableQueue() for _ in range(levels)], priority_of)
    owner.use_memory_monitor(memory)
    if entry.queue_no or entry.transient_no:
        # Mail on its way to an earlier pair is lost.
        store.queue_down(entry.route_no or queue_nos_of(entry)[0])
    queues = [_queue(entry, at, store, clock, metadata, owner) for at in range(levels)]
    return queues[0] if levels == 1 else PriorityQueue(queues, priority_of)


def _queue(
    entry: QueueEntry,
    level: int,
    store: MsgStore,
    clock: Clock,
    metadata: Metadata,
    owner: BackingOwner,
) -> VariableQueue:
    """Return a queue, or one priority of it, over a store."""
    if entry.queue_no:
        client = store.client(entry.queue_no + level, routed_as=entry.route_no)
        return VariableQueue(StoredIndex(client, owner), clock)
    open_index = partial(_open_index, entry, level, store, metadata, owner)
    queue = VariableQueue(None, clock, open_index=open_index)
    if entry.transient_no:  # it is lazy, or has paged before it began anew
        queue.begin_paging()
    return queue


def _open_index(
    entry: QueueEntry, level: int, store: MsgStore, metadata: Metadata, owner: BackingOwner
) -> QueueIndex | None:
    if not _numbered(metadata, entry):
        return None
    return StoredIndex(store.client(entry.transient_no + level, is_new=True), owner)


def queue_nos_of(entry: QueueEntry) -> range:
    """Return the numbers of a queue in the store, one for each priority."""
    first = entry.queue_no or entry.transient_no
    return range(first, first + _levels(entry.settings))


def queue_nos_of_row(row: QueueRow) -> range:
    """Return the same of a stored definition; none if it has no number yet."""
    levels = _levels(settings_of(row.arguments)) if row.queue_no else 0
    return range(row.queue_no, row.queue_no + levels)


def forget_messages(entry: QueueEntry, store: MsgStore | None) -> None:
    """Remove the stored messages of a queue whose actors have ended."""
    if store is not None and (entry.queue_no or entry.transient_no):
        store.queue_down(entry.route_no)
        for queue_no in queue_nos_of(entry):
            store.delete_queue(queue_no)


def _levels(settings: QueueSettings) -> int:
    return settings.highest_priority + 1


def new_queue_no(metadata: Metadata, settings: QueueSettings) -> int:
    """Return a number for a new durable queue, behind which there are those of its priorities."""
    first, *_ = [metadata.next_queue_no() for _ in range(_levels(settings))]
    return first


def number_transient(metadata: Metadata, entry: QueueEntry) -> None:
    """Give a lazy queue that is not durable its numbers in the store, so that it can page there."""
    if not entry.queue_no and entry.settings.queue_mode == "lazy":
        _numbered(metadata, entry)


def _numbered(metadata: Metadata, entry: QueueEntry) -> bool:
    """Whether a queue that is not durable has its numbers in the store, given now if need be."""
    if not entry.transient_no:
        try:
            entry.transient_no = new_queue_no(metadata, entry.settings)
        except StoreError as error:
            log.warning("queue stays in memory queue=%s error=%s", entry.name, error)
    return entry.transient_no != 0


def priority_of(message: Message) -> int:
    """Return a message's priority, 0 when it has none.

    Heads that have one were looked at when they were published, so they can be read.
    """
    head = message[HEAD]
    return examine(head).priority or 0 if head[_FLAGS_AT] & _HAS_PRIORITY else 0
