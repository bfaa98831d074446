"""Headers exchanges: the binding's arguments against the message's headers.

``x-match`` is ``all`` (the default) or ``any`` of the arguments, leaving out those whose
name starts with ``x-``; ``all-with-x`` and ``any-with-x`` leave out ``x-match`` only. Values are
compared as Erlang's ``==`` compares them: numbers by value whatever their types (``1 == 1.0``),
strings as bytes, a string never equals a number, a boolean equals nothing but itself. A void
argument matches any value of the header. ``all`` of nothing matches, ``any`` of nothing does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from leveret.amqp.errors import PreconditionFailed
from leveret.amqp.tables import type_name
from leveret.routing.erlang_terms import term

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leveret.amqp.tables import Field, Table
    from leveret.routing.bindings import Binding

MATCH: Final = "x-match"
KINDS: Final = (b"all", b"any", b"all-with-x", b"any-with-x")

_PRESENT: Final = object()


class _Rule:
    """A binding prepared for comparison."""

    __slots__ = ("all_of", "target", "wanted")

    def __init__(self, binding: Binding) -> None:
        arguments = binding.arguments
        field = arguments.get(MATCH)
        kind = field[1] if field is not None else KINDS[0]
        with_x = kind.endswith(b"-with-x")
        self.all_of = kind.startswith(b"all")
        self.target = binding.target
        self.wanted = [
            (key, _PRESENT if field[0] == "V" else comparable(field))
            for key, field in arguments.items()
            if key != MATCH and (with_x or not key.startswith("x-"))
        ]

    def matches(self, values: dict[str, Any]) -> bool:
        """Return whether a message with these comparable headers passes."""
        all_of = self.all_of
        for key, wanted in self.wanted:
            is_met = key in values and (wanted is _PRESENT or values[key] == wanted)
            if is_met is not all_of:
                return is_met
        return all_of


class HeadersMatcher:
    """The rules of one exchange, tried one after another."""

    __slots__ = ("_rules",)

    uses_headers: ClassVar[bool] = True

    def __init__(self) -> None:
        self._rules: dict[Binding, _Rule] = {}

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
        self._rules[binding] = _Rule(binding)

    def remove(self, binding: Binding) -> None:
        del self._rules[binding]

    def match(self, keys: Iterable[bytes], headers: Table | None, found: dict[Any, Any]) -> None:
        """Put the targets whose rule the headers pass into ``found``; None is no headers."""
        values = {key: comparable(field) for key, field in (headers or {}).items()}
        for rule in self._rules.values():
            if rule.target not in found and rule.matches(values):
                found[rule.target] = None


def comparable(field: Field) -> Any:
    """Return a value that equals another's exactly when Erlang's ``==`` says so."""
    letter, value = field
    match letter:
        case "t":
            return ("bool", value)  # Python's True equals 1
        case "V":
            return ("void",)
        case "D":
            return ("decimal", *value)
        case "A":
            return [(type_name(each), comparable(each)) for each in value]
        case "F":
            return [(key, type_name(value[key]), comparable(value[key])) for key in sorted(value)]
        case _:
            return value
