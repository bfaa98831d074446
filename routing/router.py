"""Routes from an exchange to queues, over exchange-to-exchange bindings and alternate exchanges.

The work list starts with the exchange published to. Each exchange is visited once: what its type
matches over *all* keys of the message (the routing key, later CC and BCC too) are its destinations;
when there are none, its alternate exchange is the only one. Queues are collected in the order found,
each once, so cycles and double paths end in one copy per queue. Missing exchanges lead nowhere.

How much work a route is, is the clients' choice: ``work.py`` says how it is counted and cut.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeAlias

from msgspec import Struct

from leveret.routing.delayed import QUEUE_PREFIX
from leveret.routing.exchange import DEFAULT_EXCHANGE, Exchange
from leveret.routing.topology import QueueT, Topology
from leveret.routing.work import EXCHANGE_WORK, UNLIMITED, WALK_STEP_WORK

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from leveret.routing.exchange_type import Head


# The queues, whether properties are needed, whether each message has its own route, and the work since the last yield.
_Found: TypeAlias = tuple[list[Any], bool, bool, int]


class Routed(Struct, Generic[QueueT], eq=False):
    """The route of a message.

    Attributes:
        queues: the broker's queue entries, each once.
        needs_headers: an exchange is on the route whose type looks at headers or properties, so the route holds for
            these only. It is set whether or not they were given, and whether or not the exchange matched.
        work: done so far, in units of ``work.py``.
        rest: the walk that is left to do; None when the route is complete.
        per_message: the route holds for this one message only, also among equal ones.
        is_direct: the exchange's own bindings have decided it, and it holds as long as the exchange's ``epoch``.
    """

    queues: list[QueueT]
    needs_headers: bool
    work: int
    rest: Generator[int, None, _Found] | None = None
    per_message: bool = False
    is_direct: bool = False

    def advance(self, budget: int = UNLIMITED) -> bool:
        """Go on with the walk until it ends or has done as much work; return whether it has ended."""
        rest = self.rest
        if rest is None:
            return True
        try:
            while budget > 0:
                match_work = next(rest)
                budget -= match_work
                self.work += match_work
        except StopIteration as end:
            self.queues, self.needs_headers, self.per_message, match_work = end.value
            self.work += match_work
            self.rest = None
        return self.rest is None


def route(
    topology: Topology[QueueT],
    exchange: Exchange,
    keys: Sequence[bytes],
    head: Head | None,
    budget: int = UNLIMITED,
) -> Routed[QueueT]:
    """Return the queues for a message with these routing keys (bytes as on the wire) and properties.

    ``head`` is None if they are not decoded; then check ``needs_headers``. With a ``budget`` the
    route may be incomplete (it has a ``rest``) and is to be gone on with.
    """
    if exchange.name == DEFAULT_EXCHANGE:
        return Routed(_queues_named(topology, keys), False, EXCHANGE_WORK * len(keys))
    found: dict[Any, Any] = {}
    matcher = exchange.matcher
    match_work = matcher.match(keys, head, found)
    if topology.leaving:
        topology.drop_leaving(found)
    if found and match_work >= 0 and not exchange.exchange_bindings:
        work = EXCHANGE_WORK + match_work + len(found)
        return Routed(list(found), matcher.uses_headers, work, None, matcher.per_message, True)
    routed: Routed[QueueT] = Routed([], False, 0)
    routed.rest = _walk(topology, exchange, keys, head, found, match_work)
    routed.advance(budget)
    return routed


def _queues_named(topology: Topology[QueueT], keys: Sequence[bytes]) -> list[QueueT]:
    """Return the queues whose names these keys are: the default exchange's routing. Delay queues are not among them.

    Only for publishes. As an alternate exchange the default exchange has no routes, as in RabbitMQ.
    """
    queues = topology.queues
    names = [key.decode("utf-8", "surrogateescape") for key in keys]
    if len(names) > 1:
        names = list(dict.fromkeys(names))
    return [queues[name] for name in names if name in queues and not name.startswith(QUEUE_PREFIX)]


def _walk(
    topology: Topology[QueueT],
    exchange: Exchange,
    keys: Sequence[bytes],
    head: Head | None,
    found: dict[Any, Any],
    match_work: int,
) -> Generator[int, None, _Found]:
    """Visit the exchanges; the first has been matched to ``found`` already, by this much work."""
    queues: dict[Any, None] = {}
    visit = [exchange]
    seen = {exchange.name}
    needs_headers = per_message = False
    work = 0
    for each in visit:
        matcher = each.matcher
        needs_headers = needs_headers or matcher.uses_headers
        per_message = per_message or matcher.per_message
        if each is not exchange:
            found = {}
            match_work = matcher.match(keys, head, found)
        if match_work >= 0:
            work += match_work
        else:  # too long
            for match_work in matcher.walk(keys, head, found):
                work += match_work
                if work >= WALK_STEP_WORK:
                    yield work
                    work = 0
        work += EXCHANGE_WORK
        topology.drop_leaving(found)
        for target in found or _alternate(topology, each):
            work += 1
            if type(target) is not Exchange:
                queues[target] = None
            elif target.name not in seen:
                seen.add(target.name)
                visit.append(target)
            if work >= WALK_STEP_WORK:
                yield work
                work = 0
    return list(queues), needs_headers, per_message, work


def _alternate(topology: Topology[QueueT], exchange: Exchange) -> tuple[Exchange, ...]:
    name = exchange.alternate
    target = topology.exchanges.get(name) if name is not None else None
    return (target,) if target is not None else ()
