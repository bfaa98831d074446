"""Statistics of a queue, by RabbitMQ's names, for status and list_queues."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from leveret.broker.queue.publishers.node_producers import ENTRY_BYTES
from leveret.broker.queue.storage.retention import archive_stats

if TYPE_CHECKING:
    from leveret.broker.queue.consumers.consumer import Consumer
    from leveret.broker.queue.consumers.consumers import Consumers
    from leveret.broker.registry.registry import QueueEntry
    from leveret.queue_backing.proxy import BackingProxy


def _named(role: str, consumer: Consumer | None) -> dict[str, str]:
    """Return the tag and the channel of the consumer with a role, empty when there is none."""
    spec = consumer.spec if consumer is not None else None
    return {
        f"{role}_consumer_tag": spec.tag.decode("utf-8", "backslashreplace") if spec else "",
        f"{role}_consumer_pid": str(spec.channel) if spec else "",
    }


def stats_of(
    entry: QueueEntry,
    consumers: Consumers | None,
    backing: BackingProxy,
    producers: int,
    items: Sequence[str],
) -> dict[str, Any]:
    """Return the figures with these names, or all; ``consumers`` is None when there never were any."""
    count = consumers.count if consumers is not None else 0
    stats: dict[str, Any] = {
        "state": entry.state,
        "consumers": count,
        "active_consumers": consumers.active if consumers is not None else 0,
        "exclusive_consumer": consumers is not None and consumers.exclusive is not None,
        **_named("exclusive", consumers.exclusive if consumers is not None else None),
        **_named("single_active", consumers.single_active if consumers is not None else None),
        "producers": producers,
        **backing.info(),
        **archive_stats(entry),
    }
    stats["memory"] = stats.get("memory", 0) + producers * ENTRY_BYTES
    capacity = consumers.capacity.now() if consumers is not None and count else 0
    stats["consumer_capacity"] = stats["consumer_utilisation"] = capacity
    return {name: stats[name] for name in items or stats if name in stats}
