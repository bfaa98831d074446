"""JSON values as RabbitMQ decodes them and Erlang's ``~p`` prints them.

A string is a binary, an object a map with sorted keys, ``null`` an atom. What ``~p`` would break over
lines is left on one.
"""

from __future__ import annotations

import json
from typing import Any

from leveret.amqp.erlang_text import binary, string
from leveret.routing.erlang_terms import floating


def term(value: Any) -> str:
    """Return a value that ``json.loads`` gave as an Erlang term."""
    match value:
        case str():
            text = binary(_wire(value))
        case float():
            text = floating(value)
        case list():
            text = _list(value)
        case dict():
            inside = ",".join(f"{term(key)} => {term(each)}" for key, each in _sorted(value))
            text = f"#{{{inside}}}"
        case _:
            text = json.dumps(value)  # null, true, false and integers read the same
    return text


def pairs(values: dict[str, Any]) -> str:
    """Return an object as an Erlang list of pairs."""
    return "[" + ",".join(f"{{{term(key)},{term(of)}}}" for key, of in _sorted(values)) + "]"


def _list(values: list[Any]) -> str:
    if values and all(type(each) is int and 0 <= each <= 255 for each in values):
        return string(bytes(values))
    return "[" + ",".join(map(term, values)) + "]"


def _sorted(values: dict[str, Any]) -> list[tuple[str, Any]]:
    return sorted(values.items(), key=lambda item: _wire(item[0]))


def _wire(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
