"""Routes: the queues a basic.publish of one connection leads to, worked out once per distinct publish.

A route of the default exchange is kept by the queue's entry, for all connections, and ends with it. So it costs the
same for one queue as for a million.

Other routes are looked up by the raw bytes of the publish method, so a repeated publish costs one dict look-up for
permission, exchange, binding tables, mandatory and all. The cache is bounded in routes and in bytes, because its keys
are chosen by the peer: a full cache is emptied. A route has a *decider*, and is worked out again when
the decider's epoch has moved. The decider is the exchange if its own bindings led to queues, else the whole topology.
A change of permissions or users empties the cache. A route holds registry entries, never addresses: a restarted queue
keeps its entry. Where the outcome depends on a message's headers or properties, or on chance, the route says so and
every message is routed by itself.

A route that is much work (``routing/work.py``) comes with a ``walk`` that the publisher goes on with, turn by
turn. It is completed whatever changes meanwhile, so nobody can hold a publisher up by changing the topology; but
it is cached only if nothing has changed.

Turned down: a full cache forgets its oldest routes only. Where each message has a key of its own, no route is used
twice and the cache is always full; a message then took 7.6 us instead of 6.9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.amqp.errors import AccessRefused, NotFound, NotImplemented_, PreconditionFailed
from leveret.broker.channel.records import Route, Walk
from leveret.core.limits import ROUTE_BYTES_PER_CONNECTION, ROUTES_PER_CONNECTION
from leveret.core.message import exchange_and_key
from leveret.routing.router import Routed, route

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leveret.amqp.properties import Examined
    from leveret.broker.channel.records import Decider
    from leveret.broker.queue.registry import QueueEntry
    from leveret.broker.vhost.access import User
    from leveret.broker.vhost.vhost import VHost
    from leveret.routing.exchange import Exchange

MANDATORY = 1
IMMEDIATE = 2
_ALL_BITS: Final = MANDATORY | IMMEDIATE

FIRST_ROUTE_WORK: Final = 10_000  # that a publish of a new route is given at once
WORK_S: Final = 1e-7  # a unit of work
_EXCHANGE_BYTES: Final = 300
_ROUTE_BYTES: Final = 500  # and three times the bytes of the method
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
        "_topology",
        "_user",
        "_vhost",
        "size_bytes",
    )

    def __init__(self, vhost: VHost, user: User) -> None:
        self._vhost = vhost
        self._user = user
        self._topology = vhost.topology
        self._access = vhost.access
        self._access_epoch = -1
        self._cache: dict[bytes, Route] = {}
        self._granted: dict[bytes, Exchange] = {}  # by name; that this user may publish to
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
        if self._access_epoch != self._access.epoch:
            self._clear()
            self._access_epoch = self._access.epoch
        if not method[_EXCHANGE_OCTETS] and _DEFAULT_EXCHANGE in self._granted:
            name = method[_DEFAULT_KEY:-1].decode("utf-8", "surrogateescape")
            entry = self._topology.queues.get(name)
            if entry is not None and entry.routes is not None:
                kept: Route | None = entry.routes[method[-1] & _ALL_BITS]
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
        if walk.access_epoch == self._access_epoch and route_.epoch == route_.decider.epoch:
            if method in self._cache:  # another channel has walked it meanwhile
                self._forget(method)
            self._keep(method, route_)

    def again(
        self, route_: Route, keys: list[bytes], seen: Examined, budget: int
    ) -> Routed[QueueEntry]:
        """Route one message, for CC/BCC, headers or other properties."""
        if len(keys) > 1:
            keys = list(dict.fromkeys(keys))
        return route(self._vhost.topology, route_.exchange, keys, seen, budget)

    def _keep(self, method: bytes, found: Route) -> None:
        """Keep a complete route."""
        queues, width = found.queues, len(found.queues)
        if width < _SHARED_QUEUES and (found.exchange.name or not width):
            found.size_bytes = size_bytes = _ROUTE_BYTES + 3 * len(method) + 8 * width
            if not self._has_room(size_bytes):
                self._clear()
            self._cache[method] = found
            self.size_bytes += size_bytes
        elif found.exchange.name:
            self._keep_wide(method, found)
        else:
            entry = queues[0]
            if entry.routes is None:
                entry.routes = [None] * (_ALL_BITS + 1)
            entry.routes[method[-1] & _ALL_BITS] = found

    def _keep_wide(self, method: bytes, found: Route) -> None:
        """Keep a route whose list of queues is shared with all that lead there."""
        found.size_bytes = size_bytes = _ROUTE_BYTES + 3 * len(method)
        list_bytes = 8 * len(found.queues)
        queues = tuple(found.queues)
        if not self._has_room(size_bytes + (0 if queues in self._queue_lists else list_bytes)):
            self._clear()
        if queues not in self._queue_lists:
            if size_bytes + list_bytes > ROUTE_BYTES_PER_CONNECTION:
                return
            self._queue_lists[queues] = queues
            self.size_bytes += list_bytes
        found.queues = self._queue_lists[queues]
        self._cache[method] = found
        self.size_bytes += size_bytes

    def _has_room(self, size_bytes: int) -> bool:
        return (
            len(self._cache) < ROUTES_PER_CONNECTION
            and self.size_bytes + size_bytes <= ROUTE_BYTES_PER_CONNECTION
        )

    def _forget(self, method: bytes) -> None:
        """Forget a route; a list of queues that it shares is kept until all is forgotten."""
        self.size_bytes -= self._cache.pop(method).size_bytes

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
        if name_bytes not in self._granted:
            self.size_bytes += _EXCHANGE_BYTES
        self._granted[name_bytes] = exchange
        return exchange
