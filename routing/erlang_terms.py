"""Field values as Erlang's ``~p`` prints them, for error texts that quote a client's values."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from leveret.amqp.erlang_text import binary
from leveret.amqp.tables import type_name

if TYPE_CHECKING:
    from leveret.amqp.tables import Field


_EXACT: Final = 2.0**53  # from here on floats are always written with an exponent


def term(field: Field) -> str:
    """Return the value of a field, without its type, as an Erlang term."""
    letter, value = field
    match letter:
        case "V":
            text = "undefined"
        case "t":
            text = "true" if value else "false"
        case "S" | "x":
            text = binary(value)
        case "D":
            text = f"{{{value[0]},{value[1]}}}"
        case "A":
            text = "[" + ",".join(f"{{{type_name(e)},{term(e)}}}" for e in value) + "]"
        case "F":
            text = "[" + ",".join(_named(*item) for item in value.items()) + "]"
        case "f" | "d":
            text = floating(value)
        case _:
            text = repr(value)
    return text


def floating(value: float) -> str:
    """Return a float as Erlang prints it: the shorter of ``123.0`` and ``1.23e2``, the plain one if equal."""
    if not math.isfinite(value):
        return repr(value)  # Erlang has none
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).rstrip("0")
    if not text:
        return "-0.0" if sign else "0.0"
    power = len(digits) + exponent - 1  # of the first digit
    scientific = f"{text[0]}.{text[1:] or '0'}e{power}"
    plain = f"{abs(value):.{max(1, len(text) - 1 - power)}f}"
    is_plain = len(plain) <= len(scientific) and abs(value) < _EXACT
    return ("-" if sign else "") + (plain if is_plain else scientific)


def _named(name: str, field: Field) -> str:
    quoted = binary(name.encode("utf-8", "surrogateescape"))
    return f"{{{quoted},{type_name(field)},{term(field)}}}"
