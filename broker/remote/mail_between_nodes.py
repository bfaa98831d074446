"""Mails between channels and queues of different nodes: how they travel, and those that exist only there.

Channels and queues of two nodes send each other the mails of ``mail.py``, over the link (``actors/links``). What the
two share as Python objects on one node has another form here:

=================  =====================  ========================================================================
mail               from -> to             when
=================  =====================  ========================================================================
NodePublish        channel -> delegate    a run was routed to queues of the delegate's node: one mail, however many
Forward            channel -> delegate    a call of one of its queues, behind all that the channel has published there
NodeReplies        channel -> delegate    replies for a reply consumer (direct reply-to) of that node
RepliesHeld        node -> channel        its client reads them too slowly: publish no more before its ``Resume``
RepliesStalled     channel -> delegate    that was too long ago: drop what the client has no room for
FindReplyConsumer  channel -> delegate    a call: is there such a consumer?
QueueGone          channel -> delegate    a call: wait until no node has the row of a deleted queue
DeliverFromNode    amqqueue -> channel    what a ``Deliver`` becomes when it arrives
DeliveryRoom       channel -> amqqueue    deliveries have been written: the window of ``RemoteGate`` is open again
PrefetchWanted     amqqueue -> channel    a queue has messages, and no place of the channel's shared prefetch
PrefetchGranted    channel -> amqqueue    it gets some, or the limit is another
PrefetchUnused     amqqueue -> channel    it could not use them all
=================  =====================  ========================================================================

A run of messages is never taken apart: it travels as its origins and one block of heads and bodies, which the codec's
kernel makes (``pack_run``); large bodies are not copied into the block, the link writes them as they lie. Origins and
heads that all messages share are sent once, and are one object again on the other side. Numbers that follow each other
are sent as the first and their count.

Every node of a cluster imports this module before it links; a class that is not registered here cannot be sent.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from leveret.actors.links.sendable import Pieces, register
from leveret.actors.runtime.calls import Forward
from leveret.actors.runtime.remote import RemoteRef
from leveret.amqp.errors import (
    AccessRefused,
    NotFound,
    PreconditionFailed,
    ResourceLocked,
    SoftError,
)
from leveret.amqp.kernel import body_bytes, pack_run, unpack_run
from leveret.broker import mail, queue_requests
from leveret.broker.remote.remote_gate import RemoteGate, RemoteLimiter
from leveret.core.message import BlindOrigin, Message, blind_keys_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leveret.actors.runtime.ref import Ref
    from leveret.broker.mail import ProducerSeq

_COPIED_BYTES_MAX: Final = 8 * 1024  # mean size of bodies that are copied, not sent as they lie
_COUNTS: Final = struct.Struct(">II")


class NodePublish(Struct, eq=False):
    """A run of messages for queues of one node.

    Attributes:
        channel: the publisher; a channel, or a queue that dead-letters.
        queues: the numbers of the amqqueues on their node.
        messages: in publish order.
        persistent: delivery-mode 2, the same for the whole run.
        size_bytes: of heads and bodies as credit counts them (``Publish.publishers``).
        first_seqno: the confirm number of the first message; 0 = no confirm.
        expiration_ms: of every message; None = none.
        head_bytes: as in ``Publish``.
        is_awaited: a confirm, or the end of a transaction, is waited for.
        by_queue: as in ``Publish``.
        producer_seqs: as in ``Publish``; then there is one queue.
    """

    channel: Ref
    queues: list[int]
    messages: list[Message]
    persistent: bool
    size_bytes: int
    first_seqno: int
    expiration_ms: int | None = None
    head_bytes: int = 0
    is_awaited: bool = False
    by_queue: bool = False
    producer_seqs: Sequence[ProducerSeq | None] | None = None


class NodeReplies(Struct, eq=False):
    """Messages for the reply consumer of that key on the delegate's node; dropped if it is gone, or too slow.

    Attributes:
        publisher: the channel; None: a queue that dead-letters, which does not wait.
    """

    key: bytes
    messages: list[Message]
    publisher: Ref | None = None


class RepliesHeld(Struct, eq=False):
    """The client of the reply consumer of a key reads too slowly; ``channel`` is its channel."""

    key: bytes
    channel: Ref


class RepliesStalled(Struct, eq=False):
    """The client of the reply consumer of a key has taken nothing for long; ``publisher`` is a connection's name."""

    key: bytes
    publisher: str


class FindReplyConsumer(Struct):
    """Answered whether there is a reply consumer with this key on the delegate's node."""

    key: bytes


class QueueGone(Struct):
    """Answered when no node has the row of a deleted queue of the delegate's node; False: it could not be deleted."""

    name: str


class DeliveryRoom(Struct, eq=False):
    """Deliveries to the channel, of so many bytes, have been written."""

    channel: Ref
    size_bytes: int


class PrefetchWanted(Struct, eq=False):
    """The queue has messages for the channel, and no place of the shared prefetch."""

    queue: Ref


class PrefetchGranted(Struct, eq=False):
    """So many messages may be delivered under the shared prefetch, which is ``limit`` now, 0 = none."""

    channel: Ref
    count: int
    limit: int


class PrefetchUnused(Struct, eq=False):
    """So many of the messages granted were not delivered."""

    queue: Ref
    count: int


def is_remote(ref: Ref) -> bool:
    """Whether an actor runs on another node."""
    return isinstance(ref, RemoteRef)


# Runs of messages.


def run_parts(messages: list[Message]) -> list[Any]:
    """Return a run as values that travel."""
    if body_bytes(messages) <= _COPIED_BYTES_MAX * len(messages):
        origins, packed = pack_run(messages)
        return [origins, Pieces([packed])]
    origins, packed = pack_run(messages, bodies=False)
    return [origins, Pieces([packed, *(message[2] for message in messages)])]


def run_bytes(messages: list[Message], packed: memoryview) -> int:
    """Return the bytes of heads and bodies of a run that has come as ``packed``."""
    count, heads = _COUNTS.unpack_from(packed)
    size_bytes = len(packed) - _COUNTS.size - 4 * (count + heads)
    return size_bytes + (count - heads) * len(messages[0][1]) if count else 0


# Numbers.


def numbers_parts(numbers: list[int]) -> list[int]:
    """Return numbers as one list; of ascending ones without a gap, as ``[first, -count]``."""
    count = len(numbers)
    if count > 1 and numbers == list(range(numbers[0], numbers[0] + count)):
        return [numbers[0], -count]
    return numbers


def numbers_of(parts: list[int]) -> list[int]:
    """Return the numbers of such a list."""
    if len(parts) == 2 and parts[1] < 0:
        return list(range(parts[0], parts[0] - parts[1]))
    return parts


# Forms.


def _node_publish_parts(publish: NodePublish) -> list[Any]:
    producer_seqs = publish.producer_seqs
    return [
        publish.channel,
        publish.queues,
        publish.persistent,
        publish.size_bytes,
        publish.first_seqno,
        publish.expiration_ms,
        publish.head_bytes,
        publish.is_awaited,
        publish.by_queue,
        None if producer_seqs is None else [each and list(each) for each in producer_seqs],
        *run_parts(publish.messages),
    ]


def _node_publish(parts: list[Any]) -> NodePublish:
    channel, queues, *fields = parts[:9]
    publish = NodePublish(channel, queues, unpack_run(*parts[10:]), *fields)
    if parts[9] is not None:
        publish.producer_seqs = [each and tuple(each) for each in parts[9]]
    return publish


def _deliver_parts(delivery: mail.Deliver) -> list[Any]:
    seqs = delivery.seqs
    return [
        delivery.queue,
        delivery.consumer,
        None if seqs is None else numbers_parts(seqs),
        delivery.redelivered,
        *run_parts(delivery.messages),
    ]


def _deliver(parts: list[Any]) -> mail.DeliverFromNode:
    queue, consumer, seqs, redelivered, origins, packed = parts
    messages = unpack_run(origins, packed)
    seqs = None if seqs is None else numbers_of(seqs)
    size_bytes = run_bytes(messages, packed)
    return mail.DeliverFromNode(queue, consumer, messages, seqs, redelivered, size_bytes)


def _consume_parts(consume: queue_requests.Consume) -> list[Any]:
    return [
        consume.channel,
        consume.owner,
        consume.tag,
        consume.no_ack,
        consume.exclusive,
        consume.priority,
        consume.prefetch,
        consume.limiter.limit,
    ]


def _consume(parts: list[Any]) -> queue_requests.Consume:
    channel, owner, tag, no_ack, exclusive, priority, prefetch, limit = parts
    stand_ins = RemoteLimiter(limit), RemoteGate()
    return queue_requests.Consume(
        channel, owner, tag, no_ack, exclusive, priority, prefetch, *stand_ins
    )


def _register_all() -> None:
    """Register the forms; of most mails they are their fields."""
    register(BlindOrigin, lambda origin: [bytes(origin), list(blind_keys_of(origin))], _blind)
    register(NodePublish, _node_publish_parts, _node_publish, sent_as=_name_of(NodePublish))
    register(
        NodeReplies,
        lambda replies: [replies.key, replies.publisher, *run_parts(replies.messages)],
        lambda parts: NodeReplies(parts[0], unpack_run(*parts[2:]), parts[1]),
        sent_as=_name_of(NodeReplies),
    )
    register(mail.Deliver, _deliver_parts, _deliver)
    register(queue_requests.Consume, _consume_parts, _consume)
    register(Forward, lambda call: [call.to, call.request], lambda parts: Forward(*parts))
    register(
        mail.Confirm,
        lambda confirm: [confirm.queue, [n for each in confirm.ranges for n in each], confirm.ok],
        lambda parts: mail.Confirm(
            parts[0], list(zip(parts[1][::2], parts[1][1::2], strict=True)), parts[2]
        ),
    )
    for settlement in (mail.Ack, mail.Requeue, mail.Reject):
        _register_settlement(settlement)
    for kind in _AS_FIELDS:
        _register_fields(kind, kind.__struct_fields__)
    for plain, names in _PLAIN_MAILS.items():
        _register_fields(plain, names)
    for error in (AccessRefused, NotFound, ResourceLocked, PreconditionFailed):
        _register_error(error)


def _blind(parts: list[Any]) -> BlindOrigin:
    origin = BlindOrigin(parts[0])
    origin.blind_keys = tuple(parts[1])
    return origin


def _register_settlement(kind: type[mail.Ack | mail.Requeue | mail.Reject]) -> None:
    register(
        kind,
        lambda settled: [settled.channel, settled.consumer, numbers_parts(settled.seqs)],
        lambda parts: kind(parts[0], parts[1], numbers_of(parts[2])),
    )


def _register_fields(kind: type[Any], names: Sequence[str]) -> None:
    register(
        kind,
        lambda value: [getattr(value, name) for name in names],
        lambda parts: kind(*parts),
        sent_as=_name_of(kind),
    )


def _name_of(kind: type[Any]) -> str | None:
    """Return the name between nodes of a class of this module: the first that it had, in ``broker``."""
    if kind.__module__ != __name__:
        return None
    return f"leveret.broker.mail_between_nodes:{_FIRST_NAMES.get(kind, kind.__name__)}"


def _register_error(kind: type[SoftError]) -> None:
    register(
        kind,
        lambda error: [error.explanation, error.method],
        lambda parts: kind(*parts),
    )


_FIRST_NAMES: Final[dict[type[Any], str]] = {
    PrefetchGranted: "Places",
    PrefetchUnused: "PlacesUnused",
    PrefetchWanted: "PlacesWanted",
}
_PLAIN_MAILS: Final[dict[type[Any], Sequence[str]]] = {
    mail.ConsumersGone: ("queue", "consumers"),
    mail.CreditGrant: ("queue", "messages", "size_bytes", "is_last"),
    mail.ProducerFenced: ("queue", "text"),
    mail.QueueDeleted: ("queue",),
    mail.Resume: ("channel",),
}
_AS_FIELDS: Final[tuple[type[Struct], ...]] = (
    queue_requests.Cancel,
    queue_requests.Delete,
    queue_requests.ForgetProducer,
    queue_requests.Get,
    queue_requests.Info,
    queue_requests.Leave,
    queue_requests.ListProducers,
    queue_requests.Purge,
    queue_requests.Stat,
    DeliveryRoom,
    FindReplyConsumer,
    PrefetchGranted,
    PrefetchUnused,
    PrefetchWanted,
    QueueGone,
    RepliesHeld,
    RepliesStalled,
)
_register_all()
