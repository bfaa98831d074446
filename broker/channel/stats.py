"""Statistics of a channel and of its consumers, by RabbitMQ's names, for list_channels and list_consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from leveret.amqp.tables import unpack

if TYPE_CHECKING:
    from leveret.actors.runtime.ref import Ref
    from leveret.broker.channel.methods import Channel
    from leveret.broker.channel.records import Subscription


WALKED_MAX: Final = 50_000  # unacked deliveries; above, acks of a transaction are not counted


def stats_of(channel: Channel) -> dict[str, Any]:
    """Return the statistics of a channel; None: it would take too long to count."""
    transaction, deliveries = channel.transaction, channel.deliveries
    confirms = channel.publisher.confirms if transaction is None else None
    acks: int | None = 0
    if transaction is not None:
        acks = transaction.ack_count if len(deliveries.unacked) <= WALKED_MAX else None
    return {
        "number": channel.number,
        "transactional": transaction is not None,
        "confirm": confirms is not None,
        "consumer_count": len(deliveries.subscriptions),
        "messages_unacknowledged": len(deliveries.unacked),
        "messages_uncommitted": transaction.message_count if transaction is not None else 0,
        "acks_uncommitted": acks,
        "messages_unconfirmed": confirms.unconfirmed() if confirms is not None else 0,
        "prefetch_count": deliveries.prefetch,
        "global_prefetch_count": deliveries.limiter.limit,
    }


def consumer_stats(
    channel: Ref, subscription: Subscription, is_active: bool | None
) -> dict[str, Any]:
    """Return the statistics of a consumer; ``arguments`` is its table.

    ``is_active`` tells whether it is the active one; None: its queue has any number of active consumers.
    """
    status = "up" if is_active is None else ("single_active" if is_active else "waiting")
    return {
        "queue_name": subscription.entry.name,
        "channel_pid": str(channel),
        "consumer_tag": subscription.tag.decode("utf-8", "surrogateescape"),
        "ack_required": not subscription.no_ack,
        "prefetch_count": subscription.prefetch,
        "active": is_active is not False,
        "activity_status": status,
        "arguments": unpack(subscription.arguments),
    }
