"""Routes from an exchange to queues, over exchange bindings and alternate exchanges.

The work list starts with the exchange published to. Each exchange is visited once: what its type
matches over *all* keys of the message (the routing key, later CC and BCC too) are its destinations;
when there are none, its alternate exchange is the only one. Queues are collected in the order found,
each once, so cycles and double paths end in one copy per queue. Missing exchanges lead nowhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic

from msgspec import Struct

from leveret.routing.exchange import DEFAULT_EXCHANGE, Exchange
from leveret.routing.topology import QueueT, Topology

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leveret.amqp.tables import Table


class Routed(Struct, Generic[QueueT], eq=False):
    """The route of a message.

    Attributes:
        queues: the broker's queue entries, each once.
        needs_headers: a headers exchange is on the route, so the route holds for these headers
            only. It is set whether or not headers were given, and whether or not it matched.
        steps: exchanges and targets visited: a measure of the work.
    """

    queues: list[QueueT]
    needs_headers: bool
    steps: int


def route(
    topology: Topology[QueueT], exchange: Exchange, keys: Sequence[bytes], headers: Table | None
) -> Routed[QueueT]:
    """Return the queues for a message with these routing keys (bytes as on the wire) and headers.

    ``headers`` is None if they are not decoded; then check ``needs_headers``.
    """
    if exchange.name == DEFAULT_EXCHANGE:
        return Routed(_queues_named(topology, keys), False, len(keys))
    found: dict[Any, Any] = {}
    exchange.matcher.match(keys, headers, found)
    if found and not exchange.exchange_bindings:
        return Routed(list(found), exchange.matcher.uses_headers, 1 + len(found))
    return _walk(topology, exchange, keys, headers, found)


def _queues_named(topology: Topology[QueueT], keys: Sequence[bytes]) -> list[QueueT]:
    """Return the queues whose names these keys are: the default exchange's routing.

    Only for publishes. As an alternate exchange the default exchange has no routes, as in RabbitMQ.
    """
    queues = topology.queues
    names = [key.decode("utf-8", "surrogateescape") for key in keys]
    if len(names) > 1:
        names = list(dict.fromkeys(names))
    return [queues[name] for name in names if name in queues]


def _walk(
    topology: Topology[QueueT],
    exchange: Exchange,
    keys: Sequence[bytes],
    headers: Table | None,
    found: dict[Any, Any],
) -> Routed[QueueT]:
    queues: dict[Any, None] = {}
    work = [exchange]
    seen = {exchange.name}
    needs_headers = exchange.matcher.uses_headers
    steps = 0
    for each in work:
        if each is not exchange:
            found = {}
            each.matcher.match(keys, headers, found)
            needs_headers = needs_headers or each.matcher.uses_headers
        steps += 1 + len(found)
        for target in found or _alternate(topology, each):
            if type(target) is not Exchange:
                queues[target] = None
            elif target.name not in seen:
                seen.add(target.name)
                work.append(target)
    return Routed(list(queues), needs_headers, steps)


def _alternate(topology: Topology[QueueT], exchange: Exchange) -> tuple[Exchange, ...]:
    name = exchange.alternate
    target = topology.exchanges.get(name) if name is not None else None
    return (target,) if target is not None else ()
