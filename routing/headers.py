"""Headers exchanges: the binding's arguments against the message's headers.

``x-match`` is ``all`` (the default) or ``any`` of the arguments, leaving out those whose
name starts with ``x-``; ``all-with-x`` and ``any-with-x`` leave out ``x-match`` only. Values are
compared as Erlang's ``==`` compares them: numbers by value whatever their types (``1 == 1.0``),
strings as bytes, a string never equals a number, a boolean equals nothing but itself. A void
argument matches any value of the header. ``all`` of nothing matches, ``any`` of nothing does not.

The rules are indexed by header and value. A rule that one header decides (``any``, or ``all`` of one
argument) has its target under each of its arguments. A rule of several that must all be met stands under
the one of them that the fewest other rules stand under, and is tried when a message has this header with
this value. So a message costs its headers and the rules that share a value with it, not all rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from leveret.amqp.errors import PreconditionFailed
from leveret.amqp.tables import type_name
from leveret.routing.direct import forget
from leveret.routing.erlang_terms import term
from leveret.routing.work import SLICE, TOO_LONG

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from leveret.amqp.tables import Field, Table
    from leveret.routing.bindings import Binding

MATCH: Final = "x-match"
KINDS: Final = (b"all", b"any", b"all-with-x", b"any-with-x")

_PRESENT: Final = object()


class _Rule:
    """A binding prepared for comparison.

    Attributes:
        pairs: name and comparable value of each argument that counts; ``_PRESENT`` for any value.
        all_of: whether all of them must be met, or any.
        place: the pair under which the index has a rule of several that must all be met.
        work: to try it.
    """

    __slots__ = ("all_of", "pairs", "place", "target", "work")

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
        self.place: tuple[str, Any] | None = None
        self.work = 2 + sum([1 + (_size(value) >> 3) for _, value in self.pairs])

    @property
    def needs_one(self) -> bool:
        """Whether one argument that is met decides."""
        return not self.all_of or len(self.pairs) == 1

    def is_met(self, headers: Table, values: dict[str, Any]) -> bool:
        """Return whether all arguments are met; ``values`` keeps comparable headers for the next rule."""
        for key, wanted in self.pairs:
            field = headers.get(key)
            if field is None:
                return False
            if wanted is _PRESENT:
                continue
            value = values.get(key, _PRESENT)
            if value is _PRESENT:
                value = values[key] = comparable(field)
            if value != wanted:
                return False
        return True


class _Header:
    """The rules that stand under one header, by value; ``_PRESENT`` is any value."""

    __slots__ = ("targets", "tried")

    def __init__(self) -> None:
        self.targets: dict[Any, dict[Any, int]] = {}
        self.tried: dict[Any, dict[_Rule, None]] = {}

    def meet(self, value: Any, found: dict[Any, Any], tried: list[dict[_Rule, None]]) -> int:
        """Add the targets of this value to ``found``, the rules to try to ``tried``; return the work."""
        looked = 5
        for met in (_PRESENT, value):
            targets = self.targets.get(met)
            if targets:
                found.update(targets)
                looked += len(targets)
            rules = self.tried.get(met)
            if rules:
                tried.append(rules)
        return looked


class HeadersMatcher:
    """The rules of one exchange, indexed."""

    __slots__ = ("_always", "_headers", "_rules")

    uses_headers: ClassVar[bool] = True

    def __init__(self) -> None:
        self._rules: dict[Binding, _Rule] = {}
        self._headers: dict[str, _Header] = {}
        self._always: dict[Any, int] = {}  # the targets of ``all`` of nothing

    @staticmethod
    def check(key: bytes, arguments: Table) -> None:
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
        if not rule.pairs:
            if rule.all_of:
                self._always[rule.target] = self._always.get(rule.target, 0) + 1
        elif rule.needs_one:
            for key, value in rule.pairs:
                targets = self._header(key).targets.setdefault(value, {})
                targets[rule.target] = targets.get(rule.target, 0) + 1
        else:
            key, value = rule.place = min(rule.pairs, key=self._crowd)
            self._header(key).tried.setdefault(value, {})[rule] = None

    def remove(self, binding: Binding) -> None:
        rule = self._rules.pop(binding)
        if not rule.pairs:
            if rule.all_of:
                forget(self._always, rule.target)
        elif rule.place is None:
            for key, value in rule.pairs:
                header = self._headers[key]
                targets = header.targets[value]
                forget(targets, rule.target)
                if not targets:
                    del header.targets[value]
                    self._tidy(key, header)
        else:
            key, value = rule.place
            header = self._headers[key]
            del header.tried[value][rule]
            if not header.tried[value]:
                del header.tried[value]
                self._tidy(key, header)

    def match(self, keys: Sequence[bytes], headers: Table | None, found: dict[Any, Any]) -> int:
        """Match a message without headers; one with headers takes a walk."""
        if headers:
            return TOO_LONG
        found.update(self._always)
        return 1

    def walk(
        self, keys: Sequence[bytes], headers: Table | None, found: dict[Any, Any]
    ) -> Iterator[int]:
        """Put the targets whose rule the headers pass into ``found``; None is no headers."""
        found.update(self._always)
        headers = headers or {}
        values: dict[str, Any] = {}
        tried: list[dict[_Rule, None]] = []
        looked = 1
        for key, field in headers.items():
            looked += 1
            header = self._headers.get(key)
            if header is not None:
                value = values[key] = comparable(field)
                looked += _size(value) + header.meet(value, found, tried)
            if looked >= SLICE:
                yield looked
                looked = 0
        for rules in tried:
            for rule in list(rules):
                looked += 1
                if rule.target not in found:
                    looked += rule.work
                    if rule.is_met(headers, values):
                        found[rule.target] = None
                if looked >= SLICE:
                    yield looked
                    looked = 0
        yield looked

    def _header(self, key: str) -> _Header:
        header = self._headers.get(key)
        if header is None:
            header = self._headers[key] = _Header()
        return header

    def _tidy(self, key: str, header: _Header) -> None:
        if not header.targets and not header.tried:
            del self._headers[key]

    def _crowd(self, pair: tuple[str, Any]) -> int:
        """Return how many rules stand under a pair."""
        header = self._headers.get(pair[0])
        return 0 if header is None else len(header.tried.get(pair[1], ()))


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
