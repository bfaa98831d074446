"""Headers exchanges: the binding's arguments against the message's headers.

``x-match`` is ``all`` (the default) or ``any`` of the arguments, leaving out those whose
name starts with ``x-``; ``all-with-x`` and ``any-with-x`` leave out ``x-match`` only. Values are
compared as Erlang's ``==`` compares them: numbers by value whatever their types (``1 == 1.0``),
strings as bytes, a string never equals a number, a boolean equals nothing but itself. A void
argument matches any value of the header. ``all`` of nothing matches, ``any`` of nothing does not.

The rules are indexed by header and value. A rule that one header decides (``any``, or ``all`` of one
argument) stands under each of its arguments. A rule of several that must all be met stands under one of
them, where the fewest other rules stand, and is tried when a message has this header with this value. So a
message costs its headers and the rules that share a value with it, not all rules. Most headers of a message stand in no
rule; they cost one look at the names under which rules stand. A client may send a rule of tens of thousands of
arguments, so the index adds little to them: a pair is its own key.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from leveret.amqp.errors import PreconditionFailed
from leveret.amqp.tables import type_name
from leveret.routing.direct import forget
from leveret.routing.erlang_terms import term
from leveret.routing.exchange_type import Head, Matcher
from leveret.routing.work import NEEDS_WALK

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from leveret.amqp.tables import Field, Table
    from leveret.routing.bindings import Binding

MATCH: Final = "x-match"
KINDS: Final = (b"all", b"any", b"all-with-x", b"any-with-x")

_SLICE_HEADERS: Final = 200  # that a walk looks up between two yields
_SLICE_RULES: Final = 30  # that it tries; they may have large values

Pair: TypeAlias = tuple[str, Any]
"""Name and comparable value of an argument; ``_PRESENT`` for any value."""
Place: TypeAlias = "Pair | str"

_PRESENT: Final = object()


class _Rule:
    """A binding prepared for comparison.

    Attributes:
        pairs: those of the arguments that count.
        all_of: whether all of them must be met, or any.
        needs_one: one argument that is met decides.
        place: where the index has a rule of several arguments that must all be met.
        work: to try it.
    """

    __slots__ = ("all_of", "needs_one", "pairs", "place", "target", "work")

    def __init__(self, binding: Binding) -> None:
        arguments = binding.arguments
        field = arguments.get(MATCH)
        kind = field[1] if field is not None else KINDS[0]
        with_x = kind.endswith(b"-with-x")
        self.all_of = kind.startswith(b"all")
        self.target = binding.target
        self.pairs = [
            (key, _PRESENT if field[0] == "V" else comparable(field))
            for key, field in arguments.items()
            if key != MATCH and (with_x or not key.startswith("x-"))
        ]
        self.needs_one = not self.all_of or len(self.pairs) == 1
        self.place: Place | None = None
        self.work = 2 + sum([1 + (_size(value) >> 3) for _, value in self.pairs])

    @property
    def places(self) -> list[Place]:
        """Where it stands in the index."""
        return [_place(pair) for pair in self.pairs] if self.place is None else [self.place]

    def is_met(self, headers: Table, values: dict[str, Any]) -> bool:
        """Return whether a message with these headers meets all arguments; ``values`` are comparable ones so far."""
        for key, wanted in self.pairs:
            if key not in headers:
                return False
            if wanted is _PRESENT:
                continue
            if key not in values:
                values[key] = comparable(headers[key])
            if values[key] != wanted:
                return False
        return True


class HeadersMatcher(Matcher):
    """The rules of one exchange, indexed."""

    __slots__ = ("_always", "_names", "_places", "_rules")

    uses_headers = True

    def __init__(self, arguments: Table | None = None) -> None:
        super().__init__(arguments)
        self._rules: dict[Binding, _Rule] = {}
        # The rule that stands there, or a dict of several.
        self._places: dict[Place, Any] = {}
        self._names: dict[str, int] = {}  # in how many places of rules each header stands
        self._always: dict[Any, int] = {}  # the targets of ``all`` of nothing

    def check(self, key: bytes, arguments: Table) -> None:
        """Raise PreconditionFailed unless ``x-match`` is absent, or a longstr of the four kinds."""
        field = arguments.get(MATCH)
        if field is None:
            return
        if field[0] != "S":
            raise PreconditionFailed(
                f"Invalid x-match field type {type_name(field)} (value {term(field)}); "
                "expected longstr"
            )
        if field[1] not in KINDS:
            raise PreconditionFailed(
                f"Invalid x-match field value {term(field)}; "
                "expected all, any, all-with-x, or any-with-x"
            )

    def add(self, binding: Binding) -> None:
        rule = self._rules[binding] = _Rule(binding)
        if not rule.pairs and rule.all_of:
            self._always[rule.target] = self._always.get(rule.target, 0) + 1
        elif not rule.needs_one:
            rule.place = self._rarest_place(rule.pairs)
        for place in rule.places:
            name = place if type(place) is str else place[0]
            self._names[name] = self._names.get(name, 0) + 1
            rules_at = self._places.get(place)
            if rules_at is None:
                self._places[place] = rule
            elif type(rules_at) is dict:
                rules_at[rule] = None
            else:
                self._places[place] = {rules_at: None, rule: None}

    def remove(self, binding: Binding) -> None:
        rule = self._rules.pop(binding)
        if not rule.pairs and rule.all_of:
            forget(self._always, rule.target)
        for place in rule.places:
            forget(self._names, place if type(place) is str else place[0])
            rules_at = self._places[place]
            if type(rules_at) is dict:
                del rules_at[rule]
            if rules_at is rule or not rules_at:
                del self._places[place]

    def match(self, keys: Sequence[bytes], head: Head | None, found: dict[Any, Any]) -> int:
        """Put the targets whose rule the headers pass into ``found``."""
        found.update(self._always)
        headers = head.headers if head is not None else None
        if not headers:
            return 1
        if len(headers) > _SLICE_HEADERS:
            return NEEDS_WALK
        values: dict[str, Any] = {}
        rules: list[_Rule] = []
        work = self._lookup(headers, list(headers), values, rules)
        if len(rules) > _SLICE_RULES:
            return NEEDS_WALK
        return work + _try(rules, headers, values, found)

    def walk(
        self, keys: Sequence[bytes], head: Head | None, found: dict[Any, Any]
    ) -> Iterator[int]:
        found.update(self._always)
        headers = (head.headers if head is not None else None) or {}
        names = list(headers)
        values: dict[str, Any] = {}
        rules: list[_Rule] = []
        for start in range(0, len(names), _SLICE_HEADERS):
            some = names[start : start + _SLICE_HEADERS]
            yield self._lookup(headers, some, values, rules)
        for start in range(0, len(rules), _SLICE_RULES):
            yield _try(rules[start : start + _SLICE_RULES], headers, values, found)

    def _lookup(
        self, headers: Table, names: list[str], values: dict[str, Any], rules: list[_Rule]
    ) -> int:
        """Add the rules that stand at these headers to ``rules``, comparable values to ``values``; return the work."""
        places, known = self._places, self._names
        work = len(names)
        for key in [name for name in names if name in known]:
            value = values[key] = comparable(headers[key])
            work += 2 + _size(value)
            for place in (key, (key, value)):
                rules_at = places.get(place)
                if rules_at is None:
                    continue
                if type(rules_at) is dict:
                    rules += rules_at
                    work += len(rules_at) >> 4
                else:
                    rules.append(rules_at)
        return work

    def _rarest_place(self, pairs: list[Pair]) -> Place:
        """Return the place at which the fewest rules stand."""
        fewest, best = sys.maxsize, _place(pairs[0])
        for place in map(_place, pairs):
            rules_at = self._places.get(place)
            if rules_at is None:
                return place
            count = len(rules_at) if type(rules_at) is dict else 1
            if count < fewest:
                fewest, best = count, place
        return best


def _try(rules: list[_Rule], headers: Table, values: dict[str, Any], found: dict[Any, Any]) -> int:
    """Put the targets of the rules that are met into ``found``; return the work."""
    work = len(rules)
    for rule in rules:
        if rule.target not in found:
            work += rule.work
            if rule.needs_one or rule.is_met(headers, values):
                found[rule.target] = None
    return work


def _place(pair: Pair) -> Place:
    """Return the key of a pair in the index: a pair, or its name if any value will do."""
    return pair if pair[1] is not _PRESENT else pair[0]


def _size(value: Any) -> int:
    """Return the work of making a value comparable, beyond that of a number; to compare it is an eighth."""
    if type(value) is bytes:
        return len(value) >> 6
    return sum(map(_size, value), len(value)) if type(value) is tuple else 0


def comparable(field: Field) -> Any:
    """Return a hashable value that equals another's exactly when Erlang's ``==`` says so."""
    letter, value = field
    match letter:
        case "t":
            return ("bool", value)  # Python's True equals 1
        case "V":
            return ("void",)
        case "D":
            return ("decimal", *value)
        case "A":
            return tuple([(type_name(each), comparable(each)) for each in value])
        case "F":
            return tuple(
                [(key, type_name(value[key]), comparable(value[key])) for key in sorted(value)]
            )
        case _:
            return value
