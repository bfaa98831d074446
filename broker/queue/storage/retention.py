"""The replay retention of a queue: policy keys ``replay-retention`` and ``replay-retention-bytes``.

Settled messages of the queue stay in the vhost's message store for that long, or for so many bytes
(``msg_store/archive/archive.py``). Only a durable queue of a node with a data directory has messages there; where the
keys have no effect the log says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from leveret.broker.queue.storage.factory import queue_nos_of
from leveret.core.log.loggers import logger
from leveret.msg_store.archive.archive import Retention

if TYPE_CHECKING:
    from leveret.broker.registry.queue_settings import QueueSettings
    from leveret.broker.registry.registry import QueueEntry
    from leveret.msg_store.store import MsgStore

log = logger(__name__)

RETENTION_KEYS: Final = frozenset({"replay-retention", "replay-retention-bytes"})
FIGURES: Final = ("archive_segments", "archive_bytes")


def retention_of(settings: QueueSettings) -> Retention | None:
    """Return the retention that policies set; None if none does."""
    if settings.replay_retention_ms is None and settings.replay_retention_bytes is None:
        return None
    return Retention(settings.replay_retention_ms, settings.replay_retention_bytes)


def why_without_effect(entry: QueueEntry, has_store: bool) -> str:
    """Return why a queue cannot be archived; nothing if it can."""
    if not entry.durable:
        return "the queue is not durable"
    return "" if has_store else "the node has no data directory"


def apply_retention(entry: QueueEntry) -> None:
    """Tell the store the retention of a queue that runs, or the log that it has no effect."""
    store, retention = _store_of(entry), retention_of(entry.settings)
    entry.is_archived = False
    if why := why_without_effect(entry, store is not None):
        if retention is not None:
            log.warning(
                "policy has no effect queue=%s vhost=%s keys=replay-retention,replay-retention-bytes reason=%s",
                entry.name,
                entry.vhost_name,
                why,
            )
    elif store is not None:
        store.retain(queue_nos_of(entry), entry.name, retention)
        entry.is_archived = retention is not None


def archive_stats(entry: QueueEntry) -> dict[str, Any]:
    """Return what the store keeps of a queue: segments, and the bytes of the queue's records in them."""
    store = _store_of(entry)
    if store is None or not entry.queue_no:
        return dict.fromkeys(FIGURES, 0)
    return dict(zip(FIGURES, store.archived(entry.queue_no), strict=True))


def _store_of(entry: QueueEntry) -> MsgStore | None:
    return entry.vhost.store.msg_store if entry.vhost is not None else None
