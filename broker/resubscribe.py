"""After a queue was restarted: its consumers subscribe again, without a word to the client.

RabbitMQ does the same for a classic queue that crashed (``queue_down_consumer_action`` recover): no
basic.cancel, the same consumer tag, unacked messages come back redelivered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leveret.amqp.errors import SoftError
from leveret.amqp.methods import BasicCancel
from leveret.broker.channel_methods import consume_request

if TYPE_CHECKING:
    from leveret.broker.channel import Channel
    from leveret.broker.delivery import Consumer
    from leveret.broker.queue_registry import QueueEntry


def resubscribe(channel: Channel, entry: QueueEntry) -> None:
    """Subscribe the channel's consumers of this queue at its new incarnation."""
    for consumer in list(channel.deliveries.consumers.values()):
        if consumer.entry is entry:
            _subscribe(channel, consumer)


def _subscribe(channel: Channel, consumer: Consumer) -> None:
    entry = consumer.entry
    assert entry.ref is not None

    def answered(answer: Any) -> None:
        # A queue that died again is up again later, and then this is done once more.
        if isinstance(answer, SoftError):
            channel.deliveries.consumers.pop(consumer.tag, None)
            channel.unwatch_queue(entry)
            if channel.session.cancel_notify:
                tag = consumer.tag.decode("utf-8", "surrogateescape")
                channel.send_method(BasicCancel(tag, True))

    channel.call(entry.ref, consume_request(channel, consumer, quiet=True), answered, None)
