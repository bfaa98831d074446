"""The topology of one vhost: its exchanges, queues and bindings.

``Topology`` holds exchanges, bindings and the broker's queue entries, and keeps three indexes in
step: the exchange's own bindings, the exchange type's matcher, and the bindings by destination (so
that deleting a queue costs its own bindings and nothing else). Every change adds one to ``epoch``,
which owners of cached routes compare.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from leveret.amqp.errors import NotFound
from leveret.routing.bindings import EXCHANGE, QUEUE, Binding, identity_of
from leveret.routing.exchange import Exchange
from leveret.routing.topic import StatesRoom, TopicMatcher

if TYPE_CHECKING:
    from leveret.amqp.tables import Table

Destination: TypeAlias = tuple[str, str]  # kind and name of a destination


class Queue(Protocol):
    """A queue as topologies know it, hashed by identity; it outlives restarts of the queue's actors."""

    durable: bool


QueueT = TypeVar("QueueT", bound=Queue)


class Removed(Struct, eq=False):
    """The bindings and auto-delete exchanges that were removed along with a queue, exchange or binding.

    ``exchanges`` begins with the exchange that was to be removed, if it was one.
    """

    bindings: list[Binding] = []
    exchanges: list[Exchange] = []


class Topology(Generic[QueueT]):
    """Exchanges, queues and bindings of one vhost.

    Attributes:
        vhost: its name, for the texts of errors.
        exchanges: by name; change it with the methods only.
        queues: the broker's queue entries by name.
        epoch: grows with every change.
    """

    __slots__ = ("_incoming", "_states_room", "epoch", "exchanges", "queues", "vhost")

    def __init__(self, vhost: str = "/") -> None:
        self.vhost = vhost
        self.exchanges: dict[str, Exchange] = {}
        self.queues: dict[str, QueueT] = {}
        self.epoch = 0
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
        return [
            binding
            for exchange in self.exchanges.values()
            for binding in exchange.bindings.values()
        ]

    def bindings_to(self, kind: str, name: str) -> list[Binding]:
        return list(self._incoming.get((kind, name), ()))

    # Changes.

    def touch(self) -> None:
        """Make all kept routes stale (a policy changed an alternate exchange, for one)."""
        self.epoch += 1

    def add_exchange(self, exchange: Exchange) -> None:
        """Take a new exchange in; its name must be free."""
        assert exchange.name not in self.exchanges, exchange
        self.exchanges[exchange.name] = exchange
        if isinstance(exchange.matcher, TopicMatcher):
            exchange.matcher.room = self._states_room
        self.epoch += 1

    def remove_exchange(self, name: str) -> Removed:
        """Delete an exchange with all bindings from it and to it."""
        removed = Removed()
        self._remove_exchanges(deque([self.exchanges[name]]), removed)
        return removed

    def add_queue(self, name: str, entry: QueueT) -> None:
        """Take a new queue's entry in; its name must be free."""
        assert name not in self.queues, name
        self.queues[name] = entry
        self.epoch += 1

    def remove_queue(self, name: str) -> Removed:
        """Delete a queue's entry with all bindings to it."""
        removed = Removed()
        del self.queues[name]
        self.epoch += 1
        self._remove_exchanges(self._unbind_all_to((QUEUE, name), removed), removed)
        return removed

    def bind(
        self, source: str, kind: str, destination: str, key: bytes, arguments: Table
    ) -> Binding | None:
        """Bind a queue or an exchange to an exchange; return None when it was bound so already.

        Neither end is the default exchange. The arguments are part of a binding's identity.

        Raises:
            NotFound: an end is missing, the source before the destination.
            PreconditionFailed: the exchange type refuses the arguments.
        """
        exchange = self.exchange(source)
        target = self.queue(destination) if kind == QUEUE else self.exchange(destination)
        exchange.matcher.check(key, arguments)
        identity = identity_of(kind, destination, key, arguments)
        if identity in exchange.bindings:
            return None
        is_durable = exchange.durable and target.durable
        binding = Binding(source, identity, target, is_durable)
        exchange.bindings[identity] = binding
        exchange.matcher.add(binding)
        exchange.exchange_bindings += kind == EXCHANGE
        self._incoming.setdefault((kind, destination), {})[binding] = None
        self.epoch += 1
        return binding

    def take_back(self, binding: Binding) -> bool:
        """Undo ``bind``, sparing an exchange left bare; return whether the binding was there."""
        exchange = self.exchanges.get(binding.source)
        if exchange is None or exchange.bindings.get(binding.identity) is not binding:
            return False
        self._drop(binding, Removed())
        return True

    def binding(
        self, source: str, kind: str, destination: str, key: bytes, arguments: Table
    ) -> Binding | None:
        """Return a binding, None when it is missing."""
        exchange = self.exchanges.get(source)
        if exchange is None:
            return None
        return exchange.bindings.get(identity_of(kind, destination, key, arguments))

    def unbind(
        self, source: str, kind: str, destination: str, key: bytes, arguments: Table
    ) -> Removed:
        """Remove a binding; nothing happens when the binding, or an end of it, is missing."""
        removed = Removed()
        binding = self.binding(source, kind, destination, key, arguments)
        if binding is None:
            return removed
        exchange = self.exchanges[source]
        self._drop(binding, removed)
        if exchange.auto_delete and not exchange.bindings:
            self._remove_exchanges(deque([exchange]), removed)
        return removed

    def _remove_exchanges(self, doomed: deque[Exchange], removed: Removed) -> None:
        """Delete exchanges, and those auto-delete ones that lose their last binding by it."""
        while doomed:
            exchange = doomed.popleft()
            if self.exchanges.pop(exchange.name, None) is None:
                continue
            self.epoch += 1
            removed.exchanges.append(exchange)
            for binding in list(exchange.bindings.values()):
                self._drop(binding, removed)
            doomed += self._unbind_all_to((EXCHANGE, exchange.name), removed)

    def _unbind_all_to(self, place: Destination, removed: Removed) -> deque[Exchange]:
        """Drop the bindings to a place; return the auto-delete exchanges left without any."""
        bare: deque[Exchange] = deque()
        for binding in list(self._incoming.get(place, ())):
            self._drop(binding, removed)
            source = self.exchanges.get(binding.source)
            if source is not None and source.auto_delete and not source.bindings:
                bare.append(source)
        return bare

    def _drop(self, binding: Binding, removed: Removed) -> None:
        place = (binding.kind, binding.destination)
        incoming = self._incoming[place]
        del incoming[binding]
        if not incoming:
            del self._incoming[place]
        # An exchange being removed is no longer in `exchanges`; it needs no upkeep.
        source = self.exchanges.get(binding.source)
        if source is not None:
            del source.bindings[binding.identity]
            source.matcher.remove(binding)
            source.exchange_bindings -= binding.kind == EXCHANGE
        removed.bindings.append(binding)
        self.epoch += 1
