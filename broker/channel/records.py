"""Records of the parts of a channel: subscriptions, routes, and what publishes wait for.

They are msgspec's, and so in a file of their own: mypyc compiles the parts, but does not take such classes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leveret.actors.runtime.ref import Ref
    from leveret.amqp.producer_headers import Sent
    from leveret.broker.queue.registry import QueueEntry
    from leveret.routing.exchange import Exchange
    from leveret.routing.router import Routed
    from leveret.routing.topology import Topology

    Decider: TypeAlias = Exchange | Topology[QueueEntry]


class Source(Struct, eq=False):
    """Where the settlement of a delivery goes.

    Attributes:
        queue: the incarnation of the amqqueue that sent it.
        consumer: the consumer's tag; None for basic.get.
        queue_name: for the firehose; empty: the client has not got these deliveries.
        has_copies: some of them are copies that the firehose has made.
    """

    queue: Ref
    consumer: bytes | None
    queue_name: str = ""
    has_copies: bool = False


class Subscription(Struct, eq=False):
    """One basic.consume of this channel.

    Attributes:
        entry: the queue's registry entry, the same across restarts of the queue.
        cancel_on_restart: it asked to be cancelled when the queue restarts (``x-cancel-on-ha-failover``).
        arguments: as ``tables.pack`` encodes them.
        source: where its deliveries are settled; None for no-ack. A new one after each restart.
    """

    tag: bytes
    entry: QueueEntry
    no_ack: bool
    exclusive: bool
    prefetch: int
    priority: int
    cancel_on_restart: bool = False
    arguments: bytes = b""
    source: Source | None = None


class Walk(Struct, eq=False):
    """A route that is not complete, and the epoch in which it was begun."""

    routed: Routed[QueueEntry]
    access_epoch: int


class Route(Struct, eq=False):
    """Where one publish goes.

    Attributes:
        origin: exchange and routing key as sent.
        mandatory: unroutable messages are returned.
        needs_headers: ``queues`` is void; every message must be routed with its properties.
        decider: what has decided the route; it holds as long as the decider has ``epoch``.
        work: to find it, in units of about 0.1 us; 0 once the publisher has counted it.
        walk: what is left to do; None when the route is complete.
        size_bytes: in the cache of a connection, about, without a list of queues that others share.
    """

    origin: bytes
    exchange: Exchange
    routing_key: bytes
    mandatory: bool
    queues: Sequence[QueueEntry]
    needs_headers: bool
    decider: Decider
    epoch: int
    work: int
    walk: Walk | None = None
    size_bytes: int = 0


class Examination(Struct, eq=False):
    """A message whose own route is not complete yet: its header as it is stored, and its properties.

    Attributes:
        origin: with the keys of BCC; None: the message's own.
    """

    head: bytes
    origin: bytes | None
    persistent: bool
    expiration_ms: int | None
    routed: Routed[QueueEntry]
    reply_keys: Sequence[bytes]
    sent: Sent | None


class OwedRun(Struct, eq=False):
    """A stretch of publish numbers with the number of queues that still owe an answer."""

    count: int
    owing: int
    refused: bool = False
