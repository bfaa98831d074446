"""Channels of other nodes, as a queue serves them: their gates and limiters here (``broker/remote/remote_gate.py``)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from leveret.broker.remote.mail_between_nodes import PrefetchGranted, PrefetchWanted
from leveret.broker.remote.remote_gate import RemoteGate, RemoteLimiter

if TYPE_CHECKING:
    from collections.abc import Callable

    from leveret.actors.runtime.ref import Ref
    from leveret.broker.queue.consumers.consumer import Consumer
    from leveret.broker.queue.consumers.consumers import Consumers
    from leveret.broker.queue_requests import Consume
    from leveret.broker.registry.registry import QueueEntry
    from leveret.broker.remote.mail_between_nodes import DeliveryRoom


def attach(
    consume: Consume, entry: QueueEntry, queue: Ref, post: Callable[[Ref, object], object]
) -> None:
    """Let the limiter of a consumer on another node ask its channel for places, and note that there is a consumer."""
    entry.watch(consume.channel)
    limiter = consume.limiter
    if isinstance(limiter, RemoteLimiter) and limiter.ask is None:
        limiter.ask = partial(post, consume.channel, PrefetchWanted(queue))


def give(consumers: Consumers | None, given: DeliveryRoom | PrefetchGranted) -> None:
    """Take what a channel gives: room in the window, or places of its prefetch."""
    consumer = _consumer_of(consumers, given.channel)
    if consumer is None:
        return
    limiter = consumer.limiter
    if not isinstance(given, PrefetchGranted):
        if isinstance(consumer.gate, RemoteGate):
            consumer.gate.give_back(given.size_bytes)
    elif isinstance(limiter, RemoteLimiter):
        limiter.limit = given.limit
        limiter.give(given.count)


def unused_prefetch(consumers: Consumers | None, given: DeliveryRoom | PrefetchGranted) -> int:
    """Take out the places that a channel has given and that were not used; return how many."""
    if not isinstance(given, PrefetchGranted):
        return 0
    consumer = _consumer_of(consumers, given.channel)
    limiter = consumer.limiter if consumer is not None else None
    return limiter.take_unused() if isinstance(limiter, RemoteLimiter) else given.count


def _consumer_of(consumers: Consumers | None, channel: Ref) -> Consumer | None:
    """Return one of the consumers of a channel, which share gate and limiter."""
    record = consumers.channels.get(channel) if consumers is not None else None
    return next(iter(record.consumers.values()), None) if record is not None else None
