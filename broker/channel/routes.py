"""Routes: the queues a basic.publish of one connection leads to, worked out once per distinct publish.

A route of the default exchange is kept by the queue's entry, for all connections, and ends with it. So it costs the
same for one queue as for a million.

Other routes are looked up by the raw bytes of the publish method, so a repeated publish costs one dict look-up for
permission, exchange, binding tables, mandatory and all. The cache is bounded in routes and in bytes, because its keys
are chosen by the peer: in a full cache the oldest routes make room for a new one. A route has a *decider*, and is
worked out again when the decider's epoch has moved. The decider is the exchange if its own bindings led to queues,
else the whole topology. A change of permissions or users empties the cache. A route holds registry entries, never
addresses: a restarted queue keeps its entry. Where the outcome depends on a message's headers or properties, or on
chance, the route says so and every message is routed by itself.

A route that is much work (``routing/work.py``) comes with a ``walk`` that the publisher goes on with, turn by
turn. It is completed whatever changes meanwhile, so nobody can hold a publisher up by changing the topology; but
it is cached only if nothing has changed.

Turned down: a full cache is emptied. With 5,000 keys at random a route took 1.8 us to find, and takes 1.0; with a key
of its own for each message 2.9, and takes 2.7.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from leveret.amqp.errors import AccessRefused, NotFound, NotImplemented_, PreconditionFailed
from leveret.broker.channel.records import QueueList, Route, Walk
from leveret.core.limits import ROUTE_BYTES_PER_CONNECTION, ROUTES_PER_CONNECTION
from leveret.core.message import exchange_and_key
from leveret.routing.router import Routed, route

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leveret.amqp.properties import Examined
    from leveret.broker.channel.records import Decider
    from leveret.broker.registry.registry import QueueEntry
    from leveret.broker.vhost.auth.access import User
    from leveret.broker.vhost.vhost import VHost
    from leveret.routing.exchange import Exchange

MANDATORY: Final = 1
IMMEDIATE: Final = 2

FIRST_ROUTE_WORK: Final = 10_000  # that a publish of a new route is given at once
WORK_S: Final = 1e-7  # a unit of work
_GRANTED_MAX: Final = 1_000  # exchanges; then they are forgotten
_ROUTE_BYTES: Final = 500  # and three times the bytes of the method
_ITEM_BYTES: Final = 8  # of a list
_EXCHANGE_OCTETS: Final = 6  # position in the method of the length of the exchange's name
_DEFAULT_KEY: Final = 8  # and of the routing key, for the default exchange
_DEFAULT_EXCHANGE: Final = b""
_SHARED_QUEUES: Final = 32  # lists as long as this are kept once, for all routes that lead there


class Routes:
    """The routes of one connection.

    Attributes:
        size_bytes: of the cache, about.
    """

    __slots__ = (
        "_access",
        "_access_epoch",
        "_cache",
        "_granted",
        "_queue_lists",
        "_queues",
        "_user",
        "_vhost",
        "size_bytes",
    )

    def __init__(self, vhost: VHost, user: User) -> None:
        self._vhost = vhost
        self._user = user
        self._queues = vhost.topology.queues
        self._access = vhost.access
        self._access_epoch = -1
        self._cache: OrderedDict[bytes, Route] = OrderedDict()
        self._granted: dict[bytes, Exchange] = {}  # by name; that this user may publish to
        self._queue_lists: dict[Sequence[QueueEntry], QueueList] = {}
        self.size_bytes = 0

    def find(self, method: bytes) -> Route:
        """Return the route of a raw basic.publish method payload.

        Raises:
            AccessRefused: no write permission, or the exchange is internal.
            NotFound: there is no such exchange.
            PreconditionFailed: the type of the exchange is not installed.
            NotImplemented_: immediate is set.
        """
        access_epoch = self._access.epoch
        if self._access_epoch != access_epoch:
            self._clear()
            self._access_epoch = access_epoch
        if not method[_EXCHANGE_OCTETS] and _DEFAULT_EXCHANGE in self._granted:
            name = method[_DEFAULT_KEY:-1].decode("utf-8", "surrogateescape")
            entry = self._queues.get(name)
            bits = method[-1]
            if entry is not None and not bits & IMMEDIATE:
                kept: Route | None = entry.mandatory_route if bits & MANDATORY else entry.route
                if kept is not None:
                    return kept
        found = self._cache.get(method)
        if found is not None:
            if found.epoch == found.decider.epoch:
                return found
            self._forget(method)
        found = self._make(method)
        if found.walk is None:
            self._keep(method, found)
        return found

    def advance(self, method: bytes, route_: Route, budget: int) -> None:
        """Go on with a route that has a walk."""
        walk = route_.walk
        assert walk is not None
        routed = walk.routed
        before = routed.work
        is_complete = routed.advance(budget)
        route_.work += routed.work - before
        if not is_complete:
            return
        route_.walk = None
        route_.queues, route_.needs_headers = routed.queues, routed.needs_headers
        if walk.access_epoch == self._access_epoch and route_.epoch == route_.decider.epoch:
            if method in self._cache:  # another channel has walked it meanwhile
                self._forget(method)
            self._keep(method, route_)

    def by_properties(
        self, route_: Route, keys: list[bytes], seen: Examined, budget: int
    ) -> Routed[QueueEntry]:
        """Route one message, for CC/BCC, headers or other properties."""
        if len(keys) > 1:
            keys = list(dict.fromkeys(keys))
        return route(self._vhost.topology, route_.exchange, keys, seen, budget)

    def _keep(self, method: bytes, found: Route) -> None:
        """Keep a complete route."""
        width = len(found.queues)
        if width and not found.exchange.name:
            entry = found.queues[0]
            found.queues = (entry,)  # a list has a second block of memory
            if found.mandatory:
                entry.mandatory_route = found
            else:
                entry.route = found
            return
        found.size_bytes = size_bytes = _ROUTE_BYTES + 3 * len(method)
        if width >= _SHARED_QUEUES:
            if size_bytes + _ITEM_BYTES * width > ROUTE_BYTES_PER_CONNECTION:
                return
            found.queues = self._share(found.queues)
        else:
            found.size_bytes = size_bytes = size_bytes + _ITEM_BYTES * width
        self._cache[method] = found
        self.size_bytes += size_bytes
        while (
            self.size_bytes > ROUTE_BYTES_PER_CONNECTION or len(self._cache) > ROUTES_PER_CONNECTION
        ):
            self._forget(next(iter(self._cache)))

    def _share(self, queues: Sequence[QueueEntry]) -> Sequence[QueueEntry]:
        """Return the list of the same queues that other routes have, if there is one, for one route more."""
        queues = tuple(queues)
        shared = self._queue_lists.get(queues)
        if shared is None:
            shared = self._queue_lists[queues] = QueueList(queues)
            self.size_bytes += _ITEM_BYTES * len(queues)
        shared.routes += 1
        return shared.queues

    def _forget(self, method: bytes) -> None:
        """Forget a route, and its list of queues if no other shares it."""
        forgotten = self._cache.pop(method)
        self.size_bytes -= forgotten.size_bytes
        queues = forgotten.queues
        if len(queues) < _SHARED_QUEUES:
            return
        shared = self._queue_lists[queues]
        shared.routes -= 1
        if not shared.routes:
            del self._queue_lists[queues]
            self.size_bytes -= _ITEM_BYTES * len(queues)

    def _clear(self) -> None:
        self._cache.clear()
        self._granted.clear()
        self._queue_lists.clear()
        self.size_bytes = 0

    def _make(self, method: bytes) -> Route:
        bits = method[-1]
        if bits & IMMEDIATE:
            raise NotImplemented_("immediate=true")
        origin = method[6:-1]
        exchange_bytes, routing_key = exchange_and_key(origin)
        vhost = self._vhost
        exchange = self._granted.get(exchange_bytes)
        if exchange is None or vhost.topology.exchanges.get(exchange.name) is not exchange:
            exchange = self._exchange(exchange_bytes)
        work = 0
        if exchange.type == "topic":
            searched_s = self._access.check_topic(
                self._user, vhost.name, exchange.name, routing_key, "write"
            )
            if searched_s:
                work = int(searched_s / WORK_S)
        routed = route(vhost.topology, exchange, [routing_key], None, FIRST_ROUTE_WORK)
        decider: Decider = exchange if routed.is_direct else vhost.topology
        return Route(
            origin,
            exchange,
            routing_key,
            bool(bits & MANDATORY),
            routed.queues,
            routed.needs_headers,
            decider,
            decider.epoch,
            routed.work + work,
            Walk(routed, self._access_epoch) if routed.rest is not None else None,
        )

    def _exchange(self, name_bytes: bytes) -> Exchange:
        """Return an exchange that may be published to, whatever the routing key."""
        vhost = self._vhost
        name = name_bytes.decode("utf-8", "surrogateescape")
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
        if len(self._granted) >= _GRANTED_MAX:
            self._granted.clear()
        self._granted[name_bytes] = exchange
        return exchange
