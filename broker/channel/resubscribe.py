"""After a queue was restarted: its consumers subscribe again, without a word to the client.

RabbitMQ does the same for a classic queue that crashed (``queue_down_consumer_action`` recover): no
basic.cancel, the same consumer tag, unacked messages come back redelivered. Only where that is not
possible, because the queue will not be started again or refuses, is the consumer cancelled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leveret.amqp.errors import SoftError
from leveret.amqp.methods import BasicCancel
from leveret.broker.channel.methods import consume_request
from leveret.broker.mail import Cancel

if TYPE_CHECKING:
    from leveret.broker.channel.deliveries import Consumer
    from leveret.broker.channel.methods import Channel
    from leveret.broker.queue.registry import QueueEntry


def resubscribe(channel: Channel, entry: QueueEntry) -> None:
    """Subscribe the channel's consumers of this queue at its new incarnation."""
    for consumer in channel.deliveries.of_queue(entry):
        _subscribe(channel, consumer)


def _subscribe(channel: Channel, consumer: Consumer) -> None:
    entry = consumer.entry
    assert entry.ref is not None

    def answered(answer: Any) -> None:
        # A queue that died again is up again later, and then this is done once more.
        if isinstance(answer, SoftError):
            _cancel(channel, consumer)
        elif channel.deliveries.consumers.get(consumer.tag) is not consumer and entry.is_running:
            # The client cancelled it meanwhile, and the queue heard of that first.
            assert entry.ref is not None
            channel.call(entry.ref, Cancel(channel.ref, consumer.tag), _ignore, None)

    channel.call(entry.ref, consume_request(channel, consumer, quiet=True), answered, None)


def _ignore(_: object) -> None:
    pass


def cancel_consumers(channel: Channel, entry: QueueEntry) -> None:
    """Cancel the channel's consumers of a queue that is gone for good."""
    for consumer in channel.deliveries.of_queue(entry):
        _cancel(channel, consumer)


def _cancel(channel: Channel, consumer: Consumer) -> None:
    if channel.deliveries.remove(consumer.tag) and channel.session.cancel_notify:
        channel.send_method(BasicCancel(consumer.tag.decode("utf-8", "surrogateescape"), True))
