"""The mails between channels and queues, and of readers.

One mail carries a batch. Mails are plain objects with slots; the receiver owns them, except the
lists in a ``Publish``, which a fan-out shares between its targets until one of them must change its
own (``Publish.absorb``).

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
==================  =====================  =======================================================

A queue that dead-letters is to its target queues what a channel is: it sends ``Publish``, and gets ``Confirm`` and
``QueueDeleted``.

``QueueUp`` and ``QueueFailed`` are in ``queue/registry.py``, because they carry the queue's entry,
``Reply`` is in ``channel/reply_consumers.py``.

Calls (answered): Consume, Cancel, Get, Leave, Stat, Purge, Delete, Info, ListProducers, ForgetProducer.

A reader sends a channel a ``list``: the runs of one read (``amqp.kernel.Run``). It gets ``PeerEnded`` itself when its
client ends while the socket is not read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct

from leveret.amqp.kernel import body_bytes, head_bytes
from leveret.core.message import Message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leveret.actors.runtime.ref import Ref
    from leveret.amqp.kernel import Run
    from leveret.broker.delivery_gate import ChannelLimiter, DeliveryGate


MERGED_MESSAGES: Final = 2_000  # of a mail that others are merged into


NO_PREDECESSOR: Final = -1

Numbered: TypeAlias = tuple[bytes, int, int, int]
"""Producer id, epoch, sequence, and the predecessor: what the channel last sent the queue for this producer."""


class Publish(Struct, eq=False):
    """A run of messages for one queue, from one or (after a merge) several channels.

    Attributes:
        messages: in publish order.
        persistent: delivery-mode 2, the same for the whole run.
        publishers: ``(channel, count, size_bytes, first_seqno)`` per publishing channel, in order of
            the messages; ``size_bytes`` are those of headers and bodies, ``first_seqno`` is its
            confirm number of the first one, 0 = no confirm.
        expirations: per-message TTL in ms or None for each message; None when no message has one.
        first_msg_no: the number of the first one's content in the message store, where the others
            follow it; 0 = they are not in the store.
        head_bytes: the headers' part of the publishers' ``size_bytes``; 0 where no header has a table
            of its own, and all are small.
        own: a merge has copied ``messages``.
        by_queue: the publishers are queues that dead-letter. They have no credit, and wait for the disk
            whatever happens: that it takes nothing for now is no answer for them.
        numbered: per message its producer and sequence, None where it has none; None when no message has.
    """

    messages: list[Message]
    persistent: bool
    publishers: list[tuple[Ref, int, int, int]]
    expirations: list[int | None] | None = None
    first_msg_no: int = 0
    head_bytes: int = 0
    own: bool = False
    by_queue: bool = False
    numbered: Sequence[Numbered | None] | None = None

    def absorb(self, later: object) -> bool:
        """Take a later run in; the mailbox calls it for its last mail (tail merge).

        Returns:
            Whether ``later`` is now part of this mail. Neither may have expirations or producers, both must be from
            the same kind of publisher, and ``append`` must be possible.
        """
        return (
            type(later) is Publish
            and later.expirations is None
            and later.numbered is None
            and later.by_queue is self.by_queue
            and self.append(
                later.messages,
                later.persistent,
                later.publishers,
                later.first_msg_no,
                later.head_bytes,
            )
        )

    def append(
        self,
        messages: list[Message],
        persistent: bool,
        publishers: list[tuple[Ref, int, int, int]],
        first_msg_no: int,
        head_bytes: int,
    ) -> bool:
        """Append a run without expirations and producers, unless it must be a mail of its own.

        Returns:
            Whether it was appended. It must agree in persistence, and its numbers in the store must follow, or there
            are none. A mail of ``MERGED_MESSAGES`` grows no more.
        """
        if (
            persistent is not self.persistent
            or self.expirations is not None
            or self.numbered is not None
            or len(self.messages) >= MERGED_MESSAGES
            or first_msg_no != (self.first_msg_no and self.first_msg_no + len(self.messages))
        ):
            return False
        if not self.own:
            self.messages = self.messages.copy()
            self.own = True
        self.messages += messages
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
            publish.expirations[start : self.at] if publish.expirations is not None else None,
            publish.first_msg_no and publish.first_msg_no + start,
            sum([each[2] for each in publishers]) - _bodies_bytes(messages),
            True,
            publish.by_queue,
            publish.numbered[start : self.at] if publish.numbered is not None else None,
        )


def _bodies_bytes(messages: list[Message]) -> int:
    return sum([len(body) for _, _, body in messages])


class _Settlement(Struct, eq=False):
    """Deliveries to one consumer that are settled (``consumer`` is its tag, None for basic.get)."""

    channel: Ref
    consumer: bytes | None
    seqs: list[int]

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


class Requeue(_Settlement):
    """Put them back to their places, marked redelivered."""


class Reject(_Settlement):
    """They are refused for good: dead-letter or drop them."""


class Resume(Struct, eq=False):
    """The channel's gate or limiter has room again: go on delivering to its consumers."""

    channel: Ref


class Deliver(Struct, eq=False):
    """Messages for one consumer.

    Attributes:
        queue: the amqqueue that sent it (acks go back to exactly this incarnation).
        messages: in queue order; the list may be that of a Publish, so it must not be changed.
        seqs: the queue's ack tag per message; None for a no-ack consumer.
        redelivered: how many of the first messages have been delivered before.
        waiting_bytes: of its messages, while it waits in the channel's mailbox.
    """

    queue: Ref
    consumer: bytes
    messages: list[Message]
    seqs: list[int] | None
    redelivered: int
    waiting_bytes: int = 0

    def wait_at(self, gate: DeliveryGate) -> None:
        """The channel is busy, so the delivery waits in its mailbox."""
        self.waiting_bytes = head_bytes(self.messages) + body_bytes(self.messages)
        gate.delivery_waits(self.waiting_bytes)


class Confirm(Struct, eq=False):
    """Publishes of one channel, by ``(first_seqno, count)``, are safe; or refused, unless ``ok``."""

    queue: Ref
    ranges: list[tuple[int, int]]
    ok: bool = True


class ProducerFenced(Struct, eq=False):
    """The channel has published for an epoch of a producer that a later one has replaced; ``text`` says which."""

    queue: Ref
    text: str


class CreditGrant(Struct, eq=False):
    """The queue has taken in so much; the channel may publish as much again.

    ``is_last``: the queue has closed the channel's account, which was not used for a while.
    """

    queue: Ref
    messages: int
    size_bytes: int
    is_last: bool = False


class ConsumersGone(Struct, eq=False):
    """The queue of these consumers is deleted; a queue with very many sends a channel several."""

    queue: Ref
    consumers: list[bytes]


class QueueDeleted(Struct, eq=False):
    """The queue ended because it was deleted; sent to every channel it owes confirms."""

    queue: Ref


class OwnMessage(Struct, eq=False):
    """A transient message of the node's own, for an internal exchange.

    Attributes:
        vhost: the exchange's.
        head: the payload of its content header.
    """

    vhost: str
    exchange: str
    routing_key: bytes
    head: bytes
    body: bytes


class RunsLeft(Struct, eq=False):
    """A reader to itself: go on with the runs of a read that were too many for a turn."""

    runs: list[Run]


class PeerEnded:
    """The client has ended."""

    __slots__ = ()


PEER_ENDED: Final = PeerEnded()


class ExchangeDeleted(Struct, eq=False):
    """The exchange of a delay queue is deleted."""


class PolicyChanged(Struct, eq=False):
    """Other policies apply to the queue than before; its entry has the settings in effect now."""


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
    """Answered a dict of figures for status and list_queues (``broker/queue/figures.py``)."""

    items: tuple[str, ...] = ()


class ListProducers(Struct):
    """Answered the producers, ``(id, (epoch, last sequence, used at in ms since 1970))``."""


class ForgetProducer(Struct):
    """Forget a producer; answered whether it was known."""

    producer: bytes
