"""Equivalence of a declare with the queue or exchange that exists, and RabbitMQ's errors if they differ.

Two values are the same when Erlang's ``==`` says so, except that an integer is never a float. Integer
types are one class, float and double another; a longstr equals a binary of the same bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.amqp.errors import PreconditionFailed
from leveret.amqp.tables import type_name
from leveret.routing.erlang_terms import term
from leveret.routing.headers import comparable

if TYPE_CHECKING:
    from leveret.amqp.tables import Field, Table

NONE = "none"


def assert_property(what: str, name: str, current: bool | str, given: bool | str) -> None:
    """Raise PreconditionFailed where a flag, or the type of an exchange, differs."""
    if current != given:
        raise _inequivalent(what, name, _quoted(given), _quoted(current))


def assert_argument(what: str, name: str, current: Table, given: Table) -> None:
    """Raise PreconditionFailed where an argument is in one table only, or its values differ."""
    old, new = current.get(name), given.get(name)
    if old is None or new is None:
        if old is not new:
            raise _inequivalent(what, name, _typed(new), _typed(old))
    elif not _same(old, new):
        raise _inequivalent(what, name, _value(new), _value(old))


def exchange_named(arguments: Table, key: str, what: str) -> str | None:
    """Return the exchange that an argument names, if any; PreconditionFailed: not a longstr."""
    field = arguments.get(key)
    if field is None:
        return None
    if field[0] != "S":
        raise PreconditionFailed(f"invalid type '{type_name(field)}' for arg '{key}' in {what}")
    return _text(field)


def _same(old: Field, new: Field) -> bool:
    is_mixed = isinstance(old[1], float) is not isinstance(new[1], float)
    return not is_mixed and bool(comparable(old) == comparable(new))


def _quoted(value: bool | str) -> str:
    return f"'{str(value).lower() if isinstance(value, bool) else value}'"


def _typed(field: Field | None) -> str:
    return NONE if field is None else f"the value '{_text(field)}' of type '{type_name(field)}'"


def _value(field: Field) -> str:
    # RabbitMQ's formatter takes a void's value for an absent argument.
    return NONE if field[0] == "V" else f"'{_text(field)}'"


def _text(field: Field) -> str:
    if field[0] in "Sx":
        text: str = field[1].decode("utf-8", "surrogateescape")
        return text
    return term(field)


def _inequivalent(what: str, name: str, given: str, current: str) -> PreconditionFailed:
    return PreconditionFailed(
        f"inequivalent arg '{name}' for {what}: received {given} but current is {current}"
    )
