"""Exchanges that lead each routing key to one of their bindings: ``x-consistent-hash`` and ``x-modulus-hash``.

Both choose by *rendezvous hashing*: the key gives each destination a number, and the destination with the best number
wins. So equal keys meet in one queue, also after a restart and whatever the order of the bindings was; a new
destination takes its share from all others, a removed one leaves its share to all others, and no other key moves.
The number is ``log(u) / weight`` with ``u`` evenly spread over (0, 1], which makes the shares exactly proportional to
the weights (Efraimidis and Spirakis, *Weighted random sampling*). It costs about 0.2 us per destination and new key,
whatever the weights; RabbitMQ's plug-ins keep a bucket per unit of weight and move most keys when a destination goes.

``x-consistent-hash`` is RabbitMQ's plug-in ``rabbitmq_consistent_hash_exchange``: the binding key is the weight, and
what is hashed is the routing key, or the header or property that the exchange's arguments name. A destination counts
once, with the weight of its oldest binding. ``x-modulus-hash`` is that of ``rabbitmq_sharding``: each binding counts
once, and all routing keys of the message are hashed.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from hashlib import blake2b
from math import inf, log
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from leveret.amqp.erlang_text import binary
from leveret.amqp.errors import PreconditionFailed, SyntaxError_
from leveret.amqp.tables import pack, type_name
from leveret.routing.exchange_type import Head, Matcher
from leveret.routing.work import NEEDS_WALK

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from leveret.amqp.tables import Table
    from leveret.routing.bindings import Binding

HASH_HEADER: Final = "hash-header"
HASH_PROPERTY: Final = "hash-property"
PROPERTIES: Final = ("correlation_id", "message_id", "timestamp")

_INTEGER: Final = re.compile(rb"[+-]?[0-9]+")
_SLICE: Final = 500  # destinations that a match, or a slice of a walk, visits
_ENTRY_WORK: Final = 2
_MASK: Final = 2**64 - 1
_SCALE: Final = 2.0**-64

_Entry: TypeAlias = tuple[int, float, Any]
"""Seed (64 bits, odd), weight and target."""


class _HashMatcher(Matcher):
    """Entries, of which each hash value chooses one."""

    __slots__ = ("_entries",)

    def __init__(self, arguments: Table | None = None) -> None:
        super().__init__(arguments)
        self._entries: dict[Any, _Entry] = {}

    @abstractmethod
    def hashed(self, keys: Sequence[bytes], head: Head | None) -> bytes:
        """Return the octets of a message whose hash chooses the entry."""

    def match(self, keys: Sequence[bytes], head: Head | None, found: dict[Any, Any]) -> int:
        entries = self._entries
        if len(entries) > _SLICE:
            return NEEDS_WALK
        if not entries:
            return 0
        octets = self.hashed(keys, head)
        _, target = self._best(_number(octets), entries.values(), -inf, None)
        if target is not None:
            found[target] = None
        return 10 + (len(octets) >> 6) + _ENTRY_WORK * len(entries)

    def walk(
        self, keys: Sequence[bytes], head: Head | None, found: dict[Any, Any]
    ) -> Iterator[int]:
        octets = self.hashed(keys, head)
        yield 10 + (len(octets) >> 6)
        number = _number(octets)
        best, target = -inf, None
        names = list(self._entries)
        for start in range(0, len(names), _SLICE):
            some = map(self._entries.get, names[start : start + _SLICE])
            present = [entry for entry in some if entry is not None]
            best, target = self._best(number, present, best, target)
            yield _ENTRY_WORK * _SLICE
        if target is not None:
            found[target] = None

    def _best(
        self, number: int, entries: Iterable[_Entry], best: float, chosen: Any
    ) -> tuple[float, Any]:
        """Return the best score and its target, of these entries and of the best so far."""
        leaving = self.leaving
        for seed, weight, target in entries:
            score = log((((number * seed) & _MASK) + 1) * _SCALE) / weight
            if score > best and target not in leaving:
                best, chosen = score, target
        return best, chosen


class ConsistentHashMatcher(_HashMatcher):
    """``x-consistent-hash``: destinations with weights."""

    __slots__ = ("_bindings", "_header", "_property", "uses_headers")

    def __init__(self, arguments: Table | None = None) -> None:
        super().__init__(arguments)
        self._header, self._property = _header_and_property(arguments or {})
        self.uses_headers = self._header is not None or self._property is not None
        self._bindings: dict[Any, dict[Binding, None]] = {}  # by target; the first one counts

    def check(self, key: bytes, arguments: Table) -> None:
        """Raise PreconditionFailed unless the key is an integer from 1 on, the weight."""
        if _INTEGER.fullmatch(key) is None:
            raise PreconditionFailed(f"The binding key must be an integer: {binary(key)}")
        if int(key) < 1:
            raise PreconditionFailed("The binding key must be greater than 0")

    def add(self, binding: Binding) -> None:
        bindings = self._bindings.setdefault(binding.target, {})
        bindings[binding] = None
        if len(bindings) == 1:
            self._weigh(binding)

    def remove(self, binding: Binding) -> None:
        target = binding.target
        bindings = self._bindings[target]
        is_first = next(iter(bindings)) is binding
        del bindings[binding]
        if not bindings:
            del self._bindings[target], self._entries[target]
        elif is_first:
            self._weigh(next(iter(bindings)))

    def _weigh(self, binding: Binding) -> None:
        seed = _seed(binding.kind, binding.destination)
        self._entries[binding.target] = (seed, float(int(binding.key)), binding.target)

    def hashed(self, keys: Sequence[bytes], head: Head | None) -> bytes:
        if self._header is not None:
            headers = head.headers if head is not None else None
            field = (headers or {}).get(self._header)
            return pack({"": field}) if field is not None else b""
        if self._property is not None:
            return _property_in(head, self._property)
        return keys[0]


class ModulusHashMatcher(_HashMatcher):
    """``x-modulus-hash``: bindings, each with the same share."""

    __slots__ = ()

    def add(self, binding: Binding) -> None:
        seed = _seed(binding.kind, binding.destination, binding.key, binding.identity[3])
        self._entries[binding] = (seed, 1.0, binding.target)

    def remove(self, binding: Binding) -> None:
        del self._entries[binding]

    def hashed(self, keys: Sequence[bytes], head: Head | None) -> bytes:
        return keys[0] if len(keys) == 1 else b"".join([b"%d:%b" % (len(key), key) for key in keys])


def _header_and_property(arguments: Table) -> tuple[str | None, str | None]:
    """Return what is hashed in place of the routing key; PreconditionFailed: the arguments are invalid."""
    header, property_ = _text_in(arguments, HASH_HEADER), _text_in(arguments, HASH_PROPERTY)
    if header is not None and property_ is not None:
        raise PreconditionFailed("hash-header and hash-property are mutually exclusive")
    if property_ is not None and property_ not in PROPERTIES:
        raise PreconditionFailed(f"Unsupported property: {property_}")
    return header, property_


def _text_in(arguments: Table, name: str) -> str | None:
    """Return an argument that must be a longstr.

    Differs from RabbitMQ: its plug-in crashes on another type, and the connection is closed with 541.
    """
    field = arguments.get(name)
    if field is None:
        return None
    if field[0] != "S":
        raise PreconditionFailed(f"invalid type '{type_name(field)}' for arg '{name}'")
    text: str = field[1].decode("utf-8", "surrogateescape")
    return text


def _property_in(head: Head | None, name: str) -> bytes:
    """Return a property as text, empty when it is absent or the properties are malformed."""
    try:
        value = getattr(head.properties, name) if head is not None else None
    except SyntaxError_:
        return b""
    return b"" if value is None else str(value).encode("utf-8", "surrogateescape")


def _number(octets: bytes) -> int:
    return int.from_bytes(blake2b(octets, digest_size=8).digest(), "big")


def _seed(kind: str, destination: str, key: bytes = b"", arguments: bytes = b"") -> int:
    name = f"{kind}\0{destination}".encode("utf-8", "surrogateescape")
    return _number(b"%b\0%d:%b%b" % (name, len(key), key, arguments)) | 1
