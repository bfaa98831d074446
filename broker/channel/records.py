"""Records of the parts of a channel: subscriptions, routes, and what publishes wait for.

They are plain classes because mypyc compiles the parts (docs/decisions/0041).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leveret.actors.runtime.ref import Ref
    from leveret.broker.registry.registry import QueueEntry
    from leveret.routing.exchange import Exchange
    from leveret.routing.router import Routed
    from leveret.routing.topology import Topology

    Decider: TypeAlias = Exchange | Topology[QueueEntry]


class Source:
    """Where the settlement of a delivery goes.

    Attributes:
        queue: the incarnation of the amqqueue that sent it.
        consumer: the consumer's tag; None for basic.get.
        queue_name: for the firehose; empty: the client has not got these deliveries.
        has_copies: some of them are copies that the firehose has made.
    """

    __slots__ = ("consumer", "has_copies", "queue", "queue_name")

    def __init__(
        self, queue: Ref, consumer: bytes | None, queue_name: str = "", has_copies: bool = False
    ) -> None:
        self.queue = queue
        self.consumer = consumer
        self.queue_name = queue_name
        self.has_copies = has_copies


class Subscription:
    """One basic.consume of this channel.

    Attributes:
        entry: the queue's registry entry, the same across restarts of the queue.
        cancel_on_restart: it asked to be cancelled when the queue restarts (``x-cancel-on-ha-failover``).
        arguments: as ``tables.pack`` encodes them.
        source: where its deliveries are settled; None for no-ack. A new one after each restart.
    """

    __slots__ = (
        "arguments",
        "cancel_on_restart",
        "entry",
        "exclusive",
        "no_ack",
        "prefetch",
        "priority",
        "source",
        "tag",
    )

    def __init__(
        self,
        tag: bytes,
        entry: QueueEntry,
        no_ack: bool,
        exclusive: bool,
        prefetch: int,
        priority: int,
        cancel_on_restart: bool = False,
        arguments: bytes = b"",
        source: Source | None = None,
    ) -> None:
        self.tag = tag
        self.entry = entry
        self.no_ack = no_ack
        self.exclusive = exclusive
        self.prefetch = prefetch
        self.priority = priority
        self.cancel_on_restart = cancel_on_restart
        self.arguments = arguments
        self.source = source


class QueueList:
    """A list of queues, and how many routes of the cache of a connection share it."""

    __slots__ = ("queues", "routes")

    def __init__(self, queues: Sequence[QueueEntry]) -> None:
        self.queues = queues
        self.routes = 0


class Walk:
    """A route that is not complete, and the epoch in which it was begun."""

    __slots__ = ("access_epoch", "routed")

    def __init__(self, routed: Routed[QueueEntry], access_epoch: int) -> None:
        self.routed = routed
        self.access_epoch = access_epoch


class Route:
    """Where one publish goes.

    Attributes:
        origin: exchange and routing key as sent.
        mandatory: unroutable messages are returned.
        needs_headers: ``queues`` is void; every message must be routed with its properties.
        decider: the exchange or topology that has decided the route; a decider of another ``epoch`` makes it void.
        work: to find it, in units of about 0.1 us; 0 once the publisher has counted it.
        walk: the work that is left; None when the route is complete.
        size_bytes: in the cache of a connection, about, without a list of queues that others share.
    """

    __slots__ = (
        "decider",
        "epoch",
        "exchange",
        "mandatory",
        "needs_headers",
        "origin",
        "queues",
        "routing_key",
        "size_bytes",
        "walk",
        "work",
    )

    def __init__(
        self,
        origin: bytes,
        exchange: Exchange,
        routing_key: bytes,
        mandatory: bool,
        queues: Sequence[QueueEntry],
        needs_headers: bool,
        decider: Decider,
        epoch: int,
        work: int,
        walk: Walk | None = None,
        size_bytes: int = 0,
    ) -> None:
        # First what each message needs: compiled, fields lie in memory in this order.
        self.queues = queues
        self.needs_headers = needs_headers
        self.work = work
        self.epoch = epoch
        self.decider = decider
        self.walk = walk
        self.origin = origin
        self.exchange = exchange
        self.routing_key = routing_key
        self.mandatory = mandatory
        self.size_bytes = size_bytes


class OwedRun:
    """A stretch of publish numbers with the number of queues that still owe an answer."""

    __slots__ = ("count", "owing", "refused")

    def __init__(self, count: int, owing: int, refused: bool = False) -> None:
        self.count = count
        self.owing = owing
        self.refused = refused
