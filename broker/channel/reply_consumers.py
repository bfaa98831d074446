"""The reply consumers of a node: who gets what is published to an ``amq.rabbitmq.reply-to`` key.

Direct reply-to sends replies from channel to channel, without a queue. A client that consumes from
``amq.rabbitmq.reply-to`` gets a *reply consumer*, one per channel and without acknowledgements. Its key is
``amq.rabbitmq.reply-to.`` and a random token of 128 bits; requests that its channel publishes carry the key in their
reply-to. Any client that knows the key may publish to it on the default exchange, from any vhost, as in RabbitMQ. A
dead letter reaches the consumer if this key is its routing key. Nothing is stored: replies for a consumer that is gone
are dropped.

In a cluster the key ends with a checksum of its node's name. Replies that are published on another node go to a
delegate there. A consumer that has no room for more has their publisher told, and its gate resumes it, as one of its
own node.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final, Protocol
from weakref import WeakValueDictionary
from zlib import crc32

from msgspec import Struct

from leveret.broker.remote.mail_between_nodes import NodeReplies, RepliesHeld, RepliesStalled
from leveret.core.limits import UNSENT_BYTES_MAX
from leveret.core.log.floods import SOURCE
from leveret.core.log.loggers import logger

if TYPE_CHECKING:
    from leveret.actors.runtime.ref import Ref
    from leveret.actors.runtime.runtime import Runtime
    from leveret.broker.limiter import DeliveryGate
    from leveret.broker.registry.cluster_nodes import ClusterNodes
    from leveret.broker.vhost.vhost import Client
    from leveret.core.message import Message

log = logger(__name__)

REPLY_TO: Final = "amq.rabbitmq.reply-to"
_KEY_START: Final = b"amq.rabbitmq.reply-to."
_TOKEN_BYTES: Final = 16


class Unsent(Protocol):
    """The writer of a connection, as far as it counts."""

    @property
    def unsent_bytes(self) -> int: ...


class ReplyConsumer(Struct, eq=False, weakref=True):
    """The consumer of ``amq.rabbitmq.reply-to`` of one channel.

    Attributes:
        key: what replies are published to.
        client: its connection, and ``writer`` that connection's.
        is_stalled: the client has read nothing for long; replies that it has no room for are dropped.
    """

    tag: bytes
    key: bytes
    channel: Ref
    gate: DeliveryGate
    client: Client
    writer: Unsent
    is_stalled: bool = False

    @property
    def is_full(self) -> bool:
        """Whether so much waits for its client to read it that publishers of replies must wait."""
        gate = self.gate
        return not gate.is_open and gate.waiting_bytes + self.writer.unsent_bytes > UNSENT_BYTES_MAX


class ReplyConsumers:
    """The reply consumers of a node by their keys, for as long as their channels keep them.

    Attributes:
        cluster_nodes: the other nodes of the cluster; None outside of one.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.cluster_nodes: ClusterNodes | None = None
        self._by_key: WeakValueDictionary[bytes, ReplyConsumer] = WeakValueDictionary()

    def new(
        self, tag: bytes, channel: Ref, gate: DeliveryGate, client: Client, writer: Unsent
    ) -> ReplyConsumer:
        """Return a consumer with a key that nobody can guess."""
        key = _KEY_START + secrets.token_urlsafe(_TOKEN_BYTES).encode()
        if self.cluster_nodes is not None:
            key += _node_mark(self.cluster_nodes.own)
        self._by_key[key] = consumer = ReplyConsumer(tag, key, channel, gate, client, writer)
        return consumer

    def find(self, key: bytes) -> ReplyConsumer | None:
        """Return the consumer with this key, unless its channel has ended or is about to."""
        consumer = self._by_key.get(key)
        if consumer is None or consumer.gate.is_closed or not consumer.channel.is_alive:
            return None
        return consumer

    def remove(self, consumer: ReplyConsumer) -> None:
        self._by_key.pop(consumer.key, None)

    def delegate_of(self, key: bytes) -> Ref | None:
        """Return a delegate of the other node that a key belongs to; None: it is of this node, or that one is down."""
        for home in self.cluster_nodes.by_name.values() if self.cluster_nodes is not None else ():
            if home.is_up and key.endswith(_node_mark(home.name)):
                return next(iter(home.delegates.values()), None)
        return None

    def send_to_node(
        self, key: bytes, messages: list[Message], publisher: Ref | None = None
    ) -> None:
        """Send messages to a consumer that is not on this node; drop them if its node is not there."""
        delegate = self.delegate_of(key)
        if delegate is not None:
            self._runtime.send(delegate, NodeReplies(key, messages, publisher))

    def stalls(self, consumer: ReplyConsumer, publisher: str) -> None:
        """Drop from now on what a consumer has no room for; ``publisher`` is the name of the connection that waited."""
        consumer.is_stalled = True
        client = consumer.client
        log.warning(
            "replies are dropped, their consumer does not read name=%s user=%s publisher=%s",
            client.name,
            client.user.name,
            publisher,
            extra={SOURCE: client.source},
        )

    def stalls_elsewhere(self, key: bytes, publisher: str) -> None:
        """Do the same on another node, if that is there."""
        delegate = self.delegate_of(key)
        if delegate is not None:
            self._runtime.send(delegate, RepliesStalled(key, publisher))

    # For the delegates of this node.

    def take(self, replies: NodeReplies) -> None:
        """Send replies of another node to their consumer; tell their publisher to wait if the consumer is full."""
        consumer, publisher = self.find(replies.key), replies.publisher
        if consumer is None:
            return
        is_full = consumer.is_full
        if is_full and (consumer.is_stalled or publisher is None):
            return
        consumer.is_stalled = False
        self.send(consumer, replies.messages)
        if is_full and publisher is not None:
            self._runtime.send(publisher, RepliesHeld(replies.key, consumer.channel))
            consumer.gate.wait(publisher)

    def told_stalled(self, mail: RepliesStalled) -> None:
        """A publisher on another node has waited long enough."""
        consumer = self.find(mail.key)
        if consumer is not None and consumer.is_full:
            self.stalls(consumer, mail.publisher)

    # For queues whose dead letters are replies (``queue.registry.ReplyAddresses``).

    def has(self, key: bytes) -> bool:
        return self.find(key) is not None

    def is_address(self, key: bytes) -> bool:
        return is_reply_key(key)

    def deliver(self, key: bytes, messages: list[Message]) -> None:
        consumer = self.find(key)
        if consumer is None:
            self.send_to_node(key, messages)
        elif not consumer.is_full:
            self.send(consumer, messages)

    def send(self, consumer: ReplyConsumer, messages: list[Message]) -> None:
        reply = Reply(consumer, messages)
        if not self._runtime.send_now(consumer.channel, reply):
            reply.waits()


class Reply(Struct, eq=False):
    """Mail of one channel to another: messages for its reply consumer.

    Attributes:
        waiting_bytes: of its messages, while it waits in the channel's mailbox.
    """

    consumer: ReplyConsumer
    messages: list[Message]
    waiting_bytes: int = 0

    def waits(self) -> None:
        """The channel is busy, so the replies wait in its mailbox."""
        self.waiting_bytes = sum([len(head) + len(body) for _, head, body in self.messages])
        self.consumer.gate.delivery_waits(self.waiting_bytes)


def _node_mark(name: str) -> bytes:
    """Return the end of the keys of a node."""
    return b".%08x" % crc32(name.encode())


def is_reply_key(routing_key: bytes) -> bool:
    """Whether a publish with this key to the default exchange is a reply."""
    return routing_key.startswith(_KEY_START)


def reply_key_of(origin: bytes) -> bytes | None:
    """Return the routing key of a message (``core/message.py``) if it is a reply."""
    return origin[2:] if not origin[0] and origin.startswith(_KEY_START, 2) else None
