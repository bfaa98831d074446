"""Routes: the queues a basic.publish of one connection leads to, worked out once per distinct publish.

A route is looked up by the raw bytes of the publish method, so a repeated publish costs one dict look-up for
permission, exchange, binding tables, mandatory and all. The cache is bounded in routes and in bytes, because its keys
are chosen by the peer, and it is emptied when the vhost's epoch has moved: topology, permissions, policies or users
changed. A route holds registry entries, never addresses: a restarted queue keeps its entry. Where the outcome depends
on a message's headers or properties, or on chance, the route says so and every message is routed by itself.

A route that is much work (``routing/work.py``) comes with a ``walk`` that the publisher goes on with, turn by
turn. It is completed whatever changes meanwhile, so nobody can hold a publisher up by changing the topology; but
it is cached only if nothing has changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from leveret.amqp.errors import AccessRefused, NotFound, NotImplemented_, PreconditionFailed
from leveret.core.limits import ROUTE_BYTES_PER_CONNECTION, ROUTES_PER_CONNECTION
from leveret.core.message import exchange_and_key
from leveret.routing.router import Routed, route

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leveret.amqp.properties import Examined
    from leveret.broker.queue.registry import QueueEntry
    from leveret.broker.vhost.access import User
    from leveret.broker.vhost.vhost import VHost
    from leveret.routing.exchange import Exchange

MANDATORY = 1
IMMEDIATE = 2

FIRST_ROUTE_WORK: Final = 10_000  # that a publish of a new route is given at once
WORK_S: Final = 1e-7  # a unit of work
_EXCHANGE_BYTES: Final = 300
_ROUTE_BYTES: Final = 400  # and three times the bytes of the method
_SHARED_QUEUES: Final = 32  # lists as long as this are kept once, for all routes that lead there


class Walk(Struct, eq=False):
    """A route that is not complete, and the epochs in which it was begun."""

    routed: Routed[QueueEntry]
    topology_epoch: int
    access_epoch: int


class Route(Struct, eq=False):
    """Where one publish goes.

    Attributes:
        origin: exchange and routing key as sent.
        mandatory: unroutable messages are returned.
        needs_headers: ``queues`` is void; every message must be routed with its properties.
        work: to find it, in units of about 0.1 us; 0 once the publisher has counted it.
        walk: what is left to do; None when the route is complete.
    """

    origin: bytes
    exchange: Exchange
    routing_key: bytes
    mandatory: bool
    queues: Sequence[QueueEntry]
    needs_headers: bool
    work: int
    walk: Walk | None = None


class Routes:
    """The routes of one connection.

    Attributes:
        size_bytes: of the cache, about.
    """

    __slots__ = (
        "_access",
        "_access_epoch",
        "_cache",
        "_exchanges",
        "_queue_lists",
        "_topology",
        "_topology_epoch",
        "_user",
        "_vhost",
        "size_bytes",
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
        self._queue_lists: dict[Sequence[QueueEntry], Sequence[QueueEntry]] = {}
        self.size_bytes = 0

    def find(self, method: bytes) -> Route:
        """Return the route of a raw basic.publish method payload.

        Raises:
            AccessRefused: no write permission, or the exchange is internal.
            NotFound: there is no such exchange.
            PreconditionFailed: the type of the exchange is not installed.
            NotImplemented_: immediate is set.
        """
        if self._topology_epoch != self._topology.epoch or self._access_epoch != self._access.epoch:
            self._clear()
            self._topology_epoch = self._topology.epoch
            self._access_epoch = self._access.epoch
        found = self._cache.get(method)
        if found is None:
            found = self._make(method)
            if found.walk is None:
                self._keep(method, found)
        return found

    def go_on(self, method: bytes, route_: Route, budget: int) -> None:
        """Go on with a route that has a walk."""
        walk = route_.walk
        assert walk is not None
        routed = walk.routed
        before = routed.work
        is_complete = routed.go_on(budget)
        route_.work += routed.work - before
        if not is_complete:
            return
        route_.walk = None
        route_.queues, route_.needs_headers = routed.queues, routed.needs_headers
        if (walk.topology_epoch, walk.access_epoch) == (self._topology.epoch, self._access.epoch):
            self._keep(method, route_)

    def again(
        self, route_: Route, keys: list[bytes], seen: Examined, budget: int
    ) -> Routed[QueueEntry]:
        """Route one message, for CC/BCC, headers or other properties."""
        if len(keys) > 1:
            keys = list(dict.fromkeys(keys))
        return route(self._vhost.topology, route_.exchange, keys, seen, budget)

    def _keep(self, method: bytes, found: Route) -> None:
        """Cache a complete route; a list of queues that is cached already is shared with it."""
        size_bytes = _ROUTE_BYTES + 3 * len(method) + 8 * len(found.queues)
        is_shared = len(found.queues) >= _SHARED_QUEUES
        spared_bytes = self._share(found) if is_shared else 0
        if (
            len(self._cache) >= ROUTES_PER_CONNECTION
            or self.size_bytes + size_bytes - spared_bytes > ROUTE_BYTES_PER_CONNECTION
        ):
            self._clear()
            spared_bytes = 0
            if size_bytes > ROUTE_BYTES_PER_CONNECTION:
                return
        if is_shared:
            self._queue_lists[found.queues] = found.queues
        self._cache[method] = found
        self.size_bytes += size_bytes - spared_bytes

    def _share(self, found: Route) -> int:
        """Share the list of a route's queues; return the bytes that this spares."""
        queues = tuple(found.queues)
        known = self._queue_lists.get(queues)
        found.queues = queues if known is None else known
        return 0 if known is None else 8 * len(queues)

    def _clear(self) -> None:
        self._cache.clear()
        self._exchanges.clear()
        self._queue_lists.clear()
        self.size_bytes = 0

    def _make(self, method: bytes) -> Route:
        bits = method[-1]
        if bits & IMMEDIATE:
            raise NotImplemented_("immediate=true")
        origin = method[6:-1]
        exchange_bytes, routing_key = exchange_and_key(origin)
        exchange = self._exchanges.get(exchange_bytes)
        if exchange is None:
            exchange = self._exchange(exchange_bytes)
            self._exchanges[exchange_bytes] = exchange
            self.size_bytes += _EXCHANGE_BYTES
        vhost = self._vhost
        work = 0
        if exchange.type == "topic":
            searched_s = self._access.check_topic(
                self._user, vhost.name, exchange.name, routing_key, "write"
            )
            if searched_s:
                work = int(searched_s / WORK_S)
        routed = route(vhost.topology, exchange, [routing_key], None, FIRST_ROUTE_WORK)
        return Route(
            origin,
            exchange,
            routing_key,
            bool(bits & MANDATORY),
            routed.queues,
            routed.needs_headers,
            routed.work + work,
            Walk(routed, self._topology_epoch, self._access_epoch)
            if routed.rest is not None
            else None,
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
        if not exchange.is_usable:
            raise PreconditionFailed(
                f"Cannot route message through exchange '{name}' in vhost '{vhost.name}': "
                f"exchange type '{exchange.type}' not found"
            )
        return exchange
