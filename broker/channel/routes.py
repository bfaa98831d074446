"""Routes: the queues a basic.publish of one connection leads to, worked out once per distinct publish.

A route is looked up by the raw bytes of the publish method, so a repeated publish costs one dict
look-up for permission, exchange, binding tables, mandatory and all. The cache is bounded, because its
keys are chosen by the peer, and it is emptied when the vhost's epoch has moved: topology, permissions,
policies or users changed. A route holds registry entries, never addresses: a restarted queue keeps its
entry. Where the outcome depends on a message's headers (a headers exchange somewhere behind), the
route says so and every message is routed by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from leveret.amqp.errors import AccessRefused, NotFound, NotImplemented_
from leveret.core.limits import ROUTES_PER_CONNECTION
from leveret.core.message import exchange_and_key
from leveret.routing.router import route

if TYPE_CHECKING:
    from leveret.amqp.tables import Table
    from leveret.broker.queue.registry import QueueEntry
    from leveret.broker.vhost.access import User
    from leveret.broker.vhost.vhost import VHost
    from leveret.routing.exchange import Exchange

MANDATORY = 1
IMMEDIATE = 2


class Route(Struct, eq=False):
    """Where one publish goes.

    Attributes:
        origin: exchange and routing key as sent.
        mandatory: unroutable messages are returned.
        needs_headers: ``queues`` is void; every message must be routed with its headers.
        steps: exchanges and targets that were looked at to find it; 0 once the publisher has counted them.
    """

    origin: bytes
    exchange: Exchange
    routing_key: bytes
    mandatory: bool
    queues: list[QueueEntry]
    needs_headers: bool
    steps: int


class Routes:
    """The routes of one connection."""

    __slots__ = (
        "_access",
        "_access_epoch",
        "_cache",
        "_exchanges",
        "_topology",
        "_topology_epoch",
        "_user",
        "_vhost",
    )

    def __init__(self, vhost: VHost, user: User) -> None:
        self._vhost = vhost
        self._user = user
        self._topology = vhost.topology
        self._topology_epoch = -1
        self._access = vhost.access
        self._access_epoch = -1
        self._cache: dict[bytes, Route] = {}
        self._exchanges: dict[bytes, Exchange] = {}  # that this user may publish to

    def find(self, method: bytes) -> Route:
        """Return the route of a raw basic.publish method payload.

        Raises:
            AccessRefused: no write permission, or the exchange is internal.
            NotFound: there is no such exchange.
            NotImplemented_: immediate is set.
        """
        if self._topology_epoch != self._topology.epoch or self._access_epoch != self._access.epoch:
            self._cache.clear()
            self._exchanges.clear()
            self._topology_epoch = self._topology.epoch
            self._access_epoch = self._access.epoch
        found = self._cache.get(method)
        if found is None:
            found = self._make(method)
            if len(self._cache) >= ROUTES_PER_CONNECTION:
                self._cache.clear()
            self._cache[method] = found
        return found

    def again(
        self, route_: Route, keys: list[bytes], headers: Table | None
    ) -> tuple[list[QueueEntry], int]:
        """Route one message, for CC/BCC or headers; return its queues, and the steps it took."""
        routed = route(self._vhost.topology, route_.exchange, keys, headers or {})
        return routed.queues, routed.steps

    def _make(self, method: bytes) -> Route:
        bits = method[-1]
        if bits & IMMEDIATE:
            raise NotImplemented_("immediate=true")
        origin = method[6:-1]
        exchange_bytes, routing_key = exchange_and_key(origin)
        exchange = self._exchanges.get(exchange_bytes)
        if exchange is None:
            exchange = self._exchanges[exchange_bytes] = self._exchange(exchange_bytes)
        vhost = self._vhost
        if exchange.type == "topic":
            self._access.check_topic(self._user, vhost.name, exchange.name, routing_key, "write")
        routed = route(vhost.topology, exchange, [routing_key], None)
        return Route(
            origin,
            exchange,
            routing_key,
            bool(bits & MANDATORY),
            routed.queues,
            routed.needs_headers,
            routed.steps,
        )

    def _exchange(self, name_bytes: bytes) -> Exchange:
        """Return an exchange that may be published to, whatever the routing key."""
        name, vhost = name_bytes.decode("utf-8", "surrogateescape"), self._vhost
        self._access.check_exchange(self._user, vhost.name, name, "write")
        exchange = vhost.topology.exchanges.get(name)
        if exchange is None:
            raise NotFound(f"no exchange '{name}' in vhost '{vhost.name}'")
        if exchange.internal:
            raise AccessRefused(
                f"cannot publish to internal exchange '{name}' in vhost '{vhost.name}'"
            )
        return exchange
