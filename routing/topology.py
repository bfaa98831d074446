"""The topology of one vhost: its exchanges, queues and bindings.

``Topology`` holds exchanges, bindings and the broker's queue entries, and keeps three indexes in
step: the exchange's own bindings, the exchange type's matcher, and the bindings by destination (so
that deleting a queue costs its own bindings and nothing else).

Owners of cached routes compare epochs. Every change of routes adds one to the topology's ``epoch``, and to that of the
exchange whose bindings it concerns. So a route that the bindings of one exchange decide (``Routed.is_direct``) outlives
changes elsewhere.

A deletion takes effect at once: the name is unknown, and no message is routed by its bindings any more.
Dropping them costs a microsecond or more each, and there may be any number, so that is done in steps
(``Removal``). Until the last step the exchange or queue is *leaving*: routes pass it over (``drop_leaving``),
and its name is not free yet (``is_leaving``), so that no old binding meets a new object. An auto-delete
exchange goes in the step that drops its last binding, with that binding.
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

from msgspec import Struct, field

from leveret.amqp.errors import NotFound
from leveret.routing.bindings import EXCHANGE, QUEUE, Binding, identity_of
from leveret.routing.exchange import Exchange
from leveret.routing.topic import TopicMatcher
from leveret.routing.topic_trie import StatesRoom

if TYPE_CHECKING:
    from leveret.amqp.tables import Table

Destination: TypeAlias = tuple[str, str]  # kind and name of a destination


class Queue(Protocol):
    """A queue as topologies know it, hashed by identity; it outlives restarts of the queue's actors."""

    durable: bool


QueueT = TypeVar("QueueT", bound=Queue)


class Removed(Struct, eq=False):
    """The bindings and exchanges that one step of a removal has removed."""

    bindings: list[Binding] = []
    exchanges: list[Exchange] = []


class Removal(Struct, eq=False):
    """The removal of a queue, an exchange or a binding, to be carried on by ``Topology.step``.

    Attributes:
        leaving: the queue entry and exchanges that have bindings left, with their places.
        removed: objects that are removed and that no step has returned yet.
    """

    leaving: deque[tuple[Destination, Any]] = field(default_factory=deque)
    removed: Removed = field(default_factory=Removed)

    @property
    def is_done(self) -> bool:
        return not self.leaving


class Topology(Generic[QueueT]):
    """Exchanges, queues and bindings of one vhost.

    Attributes:
        vhost: its name, for the texts of errors.
        exchanges: by name; change it with the methods only.
        queues: the broker's queue entries by name.
        epoch: grows with every change of routes.
        leaving: deleted exchanges and queue entries to which bindings lead that are not dropped yet.
    """

    __slots__ = (
        "_incoming",
        "_places",
        "_states_room",
        "epoch",
        "exchanges",
        "leaving",
        "queues",
        "vhost",
    )

    def __init__(self, vhost: str = "/") -> None:
        self.vhost = vhost
        self.exchanges: dict[str, Exchange] = {}
        self.queues: dict[str, QueueT] = {}
        self.epoch = 0
        self.leaving: dict[Any, None] = {}
        self._places: dict[Destination, Any] = {}  # the same, by kind and name
        self._incoming: dict[Destination, dict[Binding, None]] = {}
        self._states_room = StatesRoom()

    # Look-ups.

    def exchange(self, name: str) -> Exchange:
        """Return an exchange; NotFound, with RabbitMQ's text, when it is missing."""
        exchange = self.exchanges.get(name)
        if exchange is None:
            raise NotFound(f"no exchange '{name}' in vhost '{self.vhost}'")
        return exchange

    def queue(self, name: str) -> QueueT:
        """Return a queue entry; NotFound, with RabbitMQ's text, when it is missing."""
        entry = self.queues.get(name)
        if entry is None:
            raise NotFound(f"no queue '{name}' in vhost '{self.vhost}'")
        return entry

    def bindings(self) -> list[Binding]:
        """Return all bindings of the vhost, without the default exchange's implicit ones."""
        leaving = self.leaving
        return [
            binding
            for exchange in self.exchanges.values()
            for binding in exchange.bindings.values()
            if not leaving or binding.target not in leaving
        ]

    def is_leaving(self, kind: str, name: str) -> bool:
        """Return whether a deleted queue or exchange of this name has bindings that are not dropped yet."""
        return (kind, name) in self._places

    def drop_leaving(self, found: dict[Any, Any]) -> None:
        """Take the targets that are leaving out of a match."""
        for target in self.leaving.keys() & found.keys():
            del found[target]

    # Changes.

    def touch(self) -> None:
        """Make routes stale that more than one exchange decides: a policy has changed alternate exchanges."""
        self.epoch += 1

    def add_exchange(self, exchange: Exchange) -> None:
        """Take a new exchange in; its name must be free."""
        assert exchange.name not in self.exchanges, exchange
        assert not self.is_leaving(EXCHANGE, exchange.name), exchange
        self.exchanges[exchange.name] = exchange
        for matcher in exchange.matchers:
            matcher.leaving = self.leaving
            if isinstance(matcher, TopicMatcher):
                matcher.share(self._states_room)
        self.epoch += 1

    def remove_exchange(self, name: str) -> Removal:
        """Delete an exchange; steps of the removal drop all bindings from it and to it."""
        removal = Removal()
        self._leave_exchange(self.exchanges[name], removal, removal.removed)
        return removal

    def add_queue(self, name: str, entry: QueueT) -> None:
        """Take a new queue's entry in; its name must be free."""
        assert name not in self.queues, name
        assert not self.is_leaving(QUEUE, name), name
        self.queues[name] = entry
        self.epoch += 1

    def remove_queue(self, name: str) -> Removal:
        """Delete a queue's entry; steps of the removal drop all bindings to it."""
        removal = Removal()
        incoming = self._incoming.get((QUEUE, name), {})
        exchanges = self.exchanges
        if len(incoming) < len(exchanges):
            sources = [exchanges[each.source] for each in incoming if each.source in exchanges]
        else:
            sources = list(exchanges.values())
        for source in sources:
            source.epoch += 1
        self._leave(QUEUE, name, self.queues.pop(name), removal)
        return removal

    def bind(
        self, source: str, kind: str, destination: str, key: bytes, arguments: Table
    ) -> Binding | None:
        """Bind a queue or an exchange to an exchange; return None when it was bound so already.

        Neither end is the default exchange. The arguments are part of a binding's identity.

        Raises:
            NotFound: an end is missing, the source before the destination.
            PreconditionFailed: the exchange type refuses the arguments.
        """
        exchange, target = self.ends_of_new(source, kind, destination, key, arguments)
        arguments = dict(sorted(arguments.items()))
        identity = identity_of(kind, destination, key, arguments)
        if identity in exchange.bindings:
            return None
        is_durable = exchange.durable and target.durable
        binding = Binding(source, identity, target, is_durable)
        exchange.bindings[identity] = binding
        binding.decoded = arguments
        exchange.matcher.add(binding)
        binding.decoded = None
        exchange.exchange_bindings += kind == EXCHANGE
        self._incoming.setdefault((kind, destination), {})[binding] = None
        exchange.epoch += 1
        self.epoch += 1
        return binding

    def ends_of_new(
        self, source: str, kind: str, destination: str, key: bytes, arguments: Table
    ) -> tuple[Exchange, Any]:
        """Return the two ends of a new binding; raise what ``bind`` raises."""
        exchange = self.exchange(source)
        target = self.queue(destination) if kind == QUEUE else self.exchange(destination)
        exchange.matcher.check(key, arguments)
        return exchange, target

    def take_back(self, binding: Binding) -> bool:
        """Undo ``bind``, sparing an exchange left bare; return whether the binding was there."""
        exchange = self.exchanges.get(binding.source)
        if exchange is None or exchange.bindings.get(binding.identity) is not binding:
            return False
        self._drop(binding, exchange)
        return True

    def binding(
        self, source: str, kind: str, destination: str, key: bytes, arguments: Table
    ) -> Binding | None:
        """Return a binding, None when it is missing."""
        exchange = self.exchanges.get(source)
        if exchange is None or self.is_leaving(kind, destination):
            return None
        return exchange.bindings.get(identity_of(kind, destination, key, arguments))

    def unbind(
        self, source: str, kind: str, destination: str, key: bytes, arguments: Table
    ) -> Removal:
        """Remove a binding; nothing happens when the binding, or an end of it, is missing."""
        removal = Removal()
        binding = self.binding(source, kind, destination, key, arguments)
        if binding is None:
            return removal
        exchange = self.exchanges[source]
        self._drop(binding, exchange)
        removal.removed.bindings.append(binding)
        if exchange.auto_delete and not exchange.bindings:
            self._leave_exchange(exchange, removal, removal.removed)
        return removal

    # Removals.

    def step(self, removal: Removal, work: float = inf) -> Removed:
        """Drop bindings with a total ``weight`` of about ``work``; return all that was removed since the last step."""
        removed, removal.removed = removal.removed, Removed()
        leaving = removal.leaving
        while leaving and work > 0:
            place, target = leaving[0]
            binding = self._drop_one(place, target, removal, removed)
            if binding is None:
                leaving.popleft()
                del self.leaving[target], self._places[place]
                work -= 1
            else:
                removed.bindings.append(binding)
                work -= binding.weight
        return removed

    def _leave_exchange(self, exchange: Exchange, removal: Removal, removed: Removed) -> None:
        del self.exchanges[exchange.name]
        exchange.epoch += 1
        for matcher in exchange.matchers:
            if isinstance(matcher, TopicMatcher):
                matcher.retire()
        removed.exchanges.append(exchange)
        self._leave(EXCHANGE, exchange.name, exchange, removal)

    def _leave(self, kind: str, name: str, target: Any, removal: Removal) -> None:
        self.epoch += 1
        place = (kind, name)
        self.leaving[target] = None
        self._places[place] = target
        removal.leaving.append((place, target))

    def _drop_one(
        self, place: Destination, target: Any, removal: Removal, removed: Removed
    ) -> Binding | None:
        """Drop one binding from or to an object that is leaving; return None when there is none.

        ``popitem`` takes the last item: the first would be found by a walk over all that were taken before.
        """
        if place[0] == EXCHANGE and target.bindings:
            outgoing: Binding = target.bindings.popitem()[1]
            self._forget_at_target(outgoing)
            _forget_words(outgoing, target)
            return outgoing
        incoming = self._incoming.get(place)
        if incoming is None:
            return None
        binding = incoming.popitem()[0]
        if not incoming:
            del self._incoming[place]
        source = self.exchanges.get(binding.source)
        if source is None:
            source = self._places[EXCHANGE, binding.source]
            del source.bindings[binding.identity]
            _forget_words(binding, source)
            return binding
        self._forget_at_source(binding, source)
        if source.auto_delete and not source.bindings:
            self._leave_exchange(source, removal, removed)
        return binding

    def _drop(self, binding: Binding, source: Exchange) -> None:
        self._forget_at_target(binding)
        self._forget_at_source(binding, source)
        source.epoch += 1
        self.epoch += 1

    def _forget_at_target(self, binding: Binding) -> None:
        place = (binding.kind, binding.destination)
        incoming = self._incoming[place]
        del incoming[binding]
        if not incoming:
            del self._incoming[place]

    @staticmethod
    def _forget_at_source(binding: Binding, source: Exchange) -> None:
        del source.bindings[binding.identity]
        source.matcher.remove(binding)
        source.exchange_bindings -= binding.kind == EXCHANGE


def _forget_words(binding: Binding, leaving: Exchange) -> None:
    """Take a binding of a deleted exchange out of its trie, in steps: a binding has up to 120 nodes there."""
    for matcher in leaving.matchers:
        if isinstance(matcher, TopicMatcher):
            matcher.remove(binding)
