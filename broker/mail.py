"""The mails between channels and queues, and of readers.

One mail carries a batch. Mails are plain objects with slots; the receiver owns them, except the
lists in a ``Publish``, which a fan-out shares between its targets until one of them must change its
own (``Publish.extend``).

==================  =====================  =======================================================
mail                from -> to             when
==================  =====================  =======================================================
Publish             channel -> amqqueue    a run of messages was routed
Ack                 channel -> amqqueue    deliveries were acknowledged
Requeue             channel -> amqqueue    nack, reject, recover, end of channel: put them back
Reject              channel -> amqqueue    nack, reject without requeue
Resume              channel -> amqqueue    the gate or the channel's limiter has room again
                    gate -> channel        so has the gate of a reply consumer that it publishes to
Reply               channel -> channel     messages for its reply consumer
PolicyChanged       operator -> amqqueue   other policies apply
ExchangeDeleted     vhost -> delay queue   its exchange is deleted
Deliver             amqqueue -> channel    messages for one consumer
Confirm             amqqueue -> channel    publishes are safe (or refused)
ProducerFenced      amqqueue -> channel    a publish of an older epoch of its producer: the channel fails
CreditGrant         amqqueue -> channel    more may be published
ConsumersGone       amqqueue -> channel    the queue is deleted: basic.cancel for these consumers
QueueDeleted        amqqueue -> channel    the queue is deleted: its open confirms count as confirmed
QueueUp             amqqueue -> channel    the queue runs again after a crash: subscribe once more
QueueFailed         queue -> channel       it crashed too often: basic.cancel for its consumers
PeerEnded           reader -> channel      the client has ended: nobody takes deliveries
ConnectionFailed    channel -> reader      a hard error: the connection closes with it
ChannelStays        channel -> reader      it has answered a channel.close that crossed its own
AllHandled          channel -> reader      what came before connection.close is done
==================  =====================  =======================================================

A queue that dead-letters is to its target queues what a channel is: it sends ``Publish``, and gets ``Confirm`` and
``QueueDeleted``.

``QueueUp`` and ``QueueFailed`` are in ``registry/registry.py``, because they carry the queue's entry,
``Reply`` is in ``channel/reply_consumers.py``.

Calls, which are answered, are in ``queue_requests.py``. Mails are plain classes, so that the message's path is compiled
(docs/decisions/0041).

A reader sends a channel a ``list``: the runs of one read (``amqp.kernel.Run``). It gets ``PeerEnded`` itself when its
client ends while the socket is not read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from leveret.amqp.kernel import body_bytes, head_bytes
from leveret.core.message import Message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leveret.actors.runtime.ref import Ref
    from leveret.amqp.errors import HardError
    from leveret.amqp.kernel import Run
    from leveret.broker.limiter import DeliveryGate


MERGED_MESSAGES: Final = 2_000  # of a mail that others are merged into


NO_PREDECESSOR: Final = -1

ProducerSeq: TypeAlias = tuple[bytes, int, int, int]
"""Producer id, epoch, sequence, and the predecessor: what the channel last sent the queue for this producer."""


class Publish:
    """A run of messages for one queue, from one or (after a merge) several channels.

    Attributes:
        messages: in publish order.
        persistent: delivery-mode 2, the same for the whole run.
        publishers: ``(channel, count, size_bytes, first_seqno)`` per publishing channel, in order of
            the messages; ``size_bytes`` are those of headers and bodies, ``first_seqno`` is its
            confirm number of the first one, 0 = no confirm.
        expiration_ms: the TTL of every message; None = none.
        first_msg_no: the number of the first one's content in the message store, where the others
            follow it; 0 = they are not in the store.
        head_bytes: the headers' part of the publishers' ``size_bytes``; 0 where no header has a table
            of its own, and all are small.
        own: a merge has copied ``messages``.
        by_queue: the publishers are queues that dead-letter. They have no credit, and wait for the disk
            whatever happens: that it takes nothing for now is no answer for them.
        producer_seqs: per message its producer and sequence, None where it has none; None when no message has.
    """

    __slots__ = (
        "by_queue",
        "expiration_ms",
        "first_msg_no",
        "head_bytes",
        "messages",
        "own",
        "persistent",
        "producer_seqs",
        "publishers",
    )

    def __init__(
        self,
        messages: list[Message],
        persistent: bool,
        publishers: list[tuple[Ref, int, int, int]],
        expiration_ms: int | None = None,
        first_msg_no: int = 0,
        head_bytes: int = 0,
        producer_seqs: Sequence[ProducerSeq | None] | None = None,
        own: bool = False,
        by_queue: bool = False,
    ) -> None:
        self.messages = messages
        self.persistent = persistent
        self.publishers = publishers
        self.expiration_ms = expiration_ms
        self.first_msg_no = first_msg_no
        self.head_bytes = head_bytes
        self.own = own
        self.by_queue = by_queue
        self.producer_seqs = producer_seqs

    def absorb(self, later: object) -> bool:
        """Take a later run in; the mailbox calls it for its last mail (tail merge).

        Returns:
            Whether ``later`` is now part of this mail. It may have no expiration and no producers; for the rest see
            ``extend``.
        """
        return (
            type(later) is Publish
            and later.expiration_ms is None
            and later.producer_seqs is None
            and self.extend(
                later.messages,
                later.persistent,
                later.publishers,
                later.first_msg_no,
                later.head_bytes,
                later.by_queue,
            )
        )

    def extend(
        self,
        messages: list[Message],
        persistent: bool,
        publishers: list[tuple[Ref, int, int, int]],
        first_msg_no: int,
        head_bytes: int,
        by_queue: bool = False,
    ) -> bool:
        """Take in messages without expiration and producers, for which no mail need be made.

        This mail must be the last that waits in its mailbox.

        Returns:
            Whether the messages are now part of this mail. It may have no expiration and no producers itself; both
            must be from the same kind of publisher, and agree in persistence; the numbers in the store must follow,
            or there are none. A mail of ``MERGED_MESSAGES`` grows no more.
        """
        known = self.messages
        if (
            persistent is not self.persistent
            or by_queue is not self.by_queue
            or self.expiration_ms is not None
            or self.producer_seqs is not None
            or len(known) >= MERGED_MESSAGES
            or first_msg_no != (self.first_msg_no and self.first_msg_no + len(known))
        ):
            return False
        if not self.own:
            self.messages = known = known.copy()
            self.own = True
        known += messages
        self.publishers += publishers
        self.head_bytes += head_bytes
        return True


class PublishParts:
    """A run from whose head parts are taken as mails of their own.

    A part costs what its own messages and publishers cost, however long the run is.
    """

    __slots__ = ("_owners", "_publish", "at")

    def __init__(self, publish: Publish) -> None:
        self._publish = publish
        self._owners = publish.publishers[::-1]  # of the messages that are left
        self.at = 0

    def take(self, count: int) -> Publish:
        """Return the next so many messages."""
        publish, start = self._publish, self.at
        self.at = start + count
        if count == len(publish.messages):
            return publish
        messages = publish.messages[start : self.at]
        publishers: list[tuple[Ref, int, int, int]] = []
        taken = 0
        while taken < count:
            channel, own, size_bytes, seqno = self._owners.pop()
            here = min(own, count - taken)
            if here < own:  # the headers are counted with its rest
                here_bytes = _bodies_bytes(messages[taken:])
                rest = (channel, own - here, size_bytes - here_bytes, seqno and seqno + here)
                self._owners.append(rest)
                size_bytes = here_bytes
            publishers.append((channel, here, size_bytes, seqno))
            taken += here
        return Publish(
            messages,
            publish.persistent,
            publishers,
            publish.expiration_ms,
            publish.first_msg_no and publish.first_msg_no + start,
            sum([each[2] for each in publishers]) - _bodies_bytes(messages),
            publish.producer_seqs[start : self.at] if publish.producer_seqs is not None else None,
            True,
            publish.by_queue,
        )


def _bodies_bytes(messages: list[Message]) -> int:
    return sum([len(body) for _, _, body in messages])


class _Settlement:
    """Deliveries to one consumer that are settled (``consumer`` is its tag, None for basic.get)."""

    __slots__ = ("channel", "consumer", "seqs")

    def __init__(self, channel: Ref, consumer: bytes | None, seqs: list[int]) -> None:
        self.channel = channel
        self.consumer = consumer
        self.seqs = seqs

    def absorb(self, later: object) -> bool:
        if (
            type(later) is not type(self)
            or later.channel is not self.channel
            or later.consumer != self.consumer
        ):
            return False
        self.seqs += later.seqs
        return True


class Ack(_Settlement):
    """They were acknowledged."""

    __slots__ = ()


class Requeue(_Settlement):
    """Put them back to their places, marked redelivered."""

    __slots__ = ()


class Reject(_Settlement):
    """They are refused for good: dead-letter or drop them."""

    __slots__ = ()


class Resume:
    """The channel's gate or limiter has room again: go on delivering to its consumers."""

    __slots__ = ("channel",)

    def __init__(self, channel: Ref) -> None:
        self.channel = channel


class Deliver:
    """Messages for one consumer.

    Attributes:
        queue: the amqqueue that sent it (acks go back to exactly this incarnation).
        messages: in queue order; the list may be that of a Publish, so it must not be changed.
        seqs: the queue's ack tag per message; None for a no-ack consumer.
        redelivered: how many of the first messages have been delivered before.
        waiting_bytes: of its messages, while it waits in the channel's mailbox.
    """

    __slots__ = ("consumer", "messages", "queue", "redelivered", "seqs", "waiting_bytes")

    def __init__(
        self,
        queue: Ref,
        consumer: bytes,
        messages: list[Message],
        seqs: list[int] | None,
        redelivered: int,
        waiting_bytes: int = 0,
    ) -> None:
        self.queue = queue
        self.consumer = consumer
        self.messages = messages
        self.seqs = seqs
        self.redelivered = redelivered
        self.waiting_bytes = waiting_bytes

    def wait_at(self, gate: DeliveryGate) -> None:
        """The channel is busy, so the delivery waits in its mailbox."""
        self.waiting_bytes = head_bytes(self.messages) + body_bytes(self.messages)
        gate.delivery_waits(self.waiting_bytes)


class DeliverFromNode(Deliver):
    """A delivery from a queue of another node; ``waiting_bytes`` go back to the queue when it has been written."""

    __slots__ = ()


class Confirm:
    """Publishes of one channel, by ``(first_seqno, count)``, are safe; or refused, unless ``ok``."""

    __slots__ = ("ok", "queue", "ranges")

    def __init__(self, queue: Ref, ranges: list[tuple[int, int]], ok: bool = True) -> None:
        self.queue = queue
        self.ranges = ranges
        self.ok = ok


class ProducerFenced:
    """The channel has published for an epoch of a producer that a later one has replaced; ``text`` says which."""

    __slots__ = ("queue", "text")

    def __init__(self, queue: Ref, text: str) -> None:
        self.queue = queue
        self.text = text


class CreditGrant:
    """The queue has taken in so much; the channel may publish as much again.

    ``is_last``: the queue has closed the channel's account, which was not used for a while.
    """

    __slots__ = ("is_last", "messages", "queue", "size_bytes")

    def __init__(self, queue: Ref, messages: int, size_bytes: int, is_last: bool = False) -> None:
        self.queue = queue
        self.messages = messages
        self.size_bytes = size_bytes
        self.is_last = is_last


class ConsumersGone:
    """The queue of these consumers is deleted; a queue with very many sends a channel several."""

    __slots__ = ("consumers", "queue")

    def __init__(self, queue: Ref, consumers: list[bytes]) -> None:
        self.queue = queue
        self.consumers = consumers


class QueueDeleted:
    """The queue ended because it was deleted; sent to every channel it owes confirms."""

    __slots__ = ("queue",)

    def __init__(self, queue: Ref) -> None:
        self.queue = queue


class OwnMessage:
    """A transient message of the node's own, for an internal exchange.

    Attributes:
        vhost: the exchange's.
        head: the payload of its content header.
    """

    __slots__ = ("body", "exchange", "head", "routing_key", "vhost")

    def __init__(
        self, vhost: str, exchange: str, routing_key: bytes, head: bytes, body: bytes
    ) -> None:
        self.vhost = vhost
        self.exchange = exchange
        self.routing_key = routing_key
        self.head = head
        self.body = body


class RunsLeft:
    """A reader to itself: go on with the runs of a read that were too many for a turn."""

    __slots__ = ("runs",)

    def __init__(self, runs: list[Run]) -> None:
        self.runs = runs


class PeerEnded:
    """The client has ended."""

    __slots__ = ()


PEER_ENDED: Final = PeerEnded()


class ConnectionFailed:
    """A channel met a hard error; the reader closes the connection with it."""

    __slots__ = ("channel", "error")

    def __init__(self, error: HardError, channel: int) -> None:
        self.error = error
        self.channel = channel


class ChannelStays:
    """A closing channel answered a channel.close that crossed its own; it waits for close-ok still."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


class AllHandled:
    """A channel has handled what its client had sent before connection.close."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


class ExchangeDeleted:
    """The exchange of a delay queue is deleted."""

    __slots__ = ()


class PolicyChanged:
    """Other policies apply to the queue than before; its entry has the settings in effect now."""

    __slots__ = ()
