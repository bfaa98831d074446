"""The calls to an amqqueue, all of which it answers; the mails without an answer are in ``mail.py``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from leveret.actors.runtime.ref import Ref
    from leveret.broker.limiter import ChannelLimiter, DeliveryGate


class Consume(Struct):
    """basic.consume; answered ``None`` or a ``SoftError`` to raise.

    Attributes:
        tag: unique on its channel.
        prefetch: this consumer's own limit in messages, 0 = none; ignored with ``no_ack``.
        limiter: the channel-wide limit, shared by its consumers; consulted unless ``no_ack``.
        gate: whether the channel's connection takes more at the moment.
        owner: the connection's reader, to tell an exclusive queue's owner.
    """

    channel: Ref
    owner: Ref
    tag: bytes
    no_ack: bool
    exclusive: bool
    priority: int
    prefetch: int
    limiter: ChannelLimiter
    gate: DeliveryGate


class Cancel(Struct):
    """basic.cancel; answered None when no delivery for ``tag`` can follow any more."""

    channel: Ref
    tag: bytes


class Get(Struct):
    """basic.get; answered None when empty, else ``(queue, message, seq | None, redelivered, ready)``.

    ``ready`` messages are left; acks go to exactly this incarnation.
    """

    channel: Ref
    no_ack: bool


class Leave(Struct):
    """The channel ends (RabbitMQ's notify_down): as its DOWN, but answered.

    The answer None comes when its consumers are gone, its unacked messages requeued and, where that
    ends an auto-delete queue, the queue deleted.
    """

    channel: Ref


class Stat(Struct):
    """Answered ``(ready, consumers)``; ``touch`` restarts x-expires (declare does, info does not)."""

    touch: bool = True


class Purge(Struct):
    """queue.purge; answered the number of ready messages dropped."""


class Delete(Struct):
    """queue.delete; answered the ready count, or a ``SoftError`` when a condition does not hold."""

    if_unused: bool = False
    if_empty: bool = False


class Info(Struct):
    """Answered a dict of statistics for status and list_queues (``broker/queue/stats.py``)."""

    items: tuple[str, ...] = ()


class ListProducers(Struct):
    """Answered the producers, ``(id, (epoch, last sequence, used at in ms since 1970))``."""


class ForgetProducer(Struct):
    """Forget a producer; answered whether it was known."""

    producer: bytes
