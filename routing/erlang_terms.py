"""Field values as Erlang's ``~p`` prints them, for error texts that quote what was sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.amqp.erlang_text import binary
from leveret.amqp.tables import type_name

if TYPE_CHECKING:
    from leveret.amqp.tables import Field


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
        case _:
            text = repr(value)
    return text


def _named(name: str, field: Field) -> str:
    quoted = binary(name.encode("utf-8", "surrogateescape"))
    return f"{{{quoted},{type_name(field)},{term(field)}}}"
