"""Consumers of a queue without actors."""

from __future__ import annotations

from leveret.actors.runtime.ref import Ref
from leveret.broker.limiter import ChannelLimiter, DeliveryGate
from leveret.broker.queue_requests import Consume
from rigs.refs import named

QUEUE = named("queue")


def consume(
    channel: Ref,
    tag: bytes,
    no_ack: bool = False,
    priority: int = 0,
    prefetch: int = 0,
    limiter: ChannelLimiter | None = None,
    gate: DeliveryGate | None = None,
    exclusive: bool = False,
) -> Consume:
    return Consume(
        channel=channel,
        owner=named("reader"),
        tag=tag,
        no_ack=no_ack,
        exclusive=exclusive,
        priority=priority,
        prefetch=prefetch,
        limiter=limiter or ChannelLimiter(),
        gate=gate or DeliveryGate(),
    )
