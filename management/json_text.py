r"""JSON for names that need not be UTF-8.

AMQP names are bytes; bytes that are not UTF-8 are lone surrogates in a ``str`` (``surrogateescape``).
msgspec refuses lone surrogates, the standard library writes and reads them as ``\udcff``. The standard library also
reads NaN, infinities, 1e400 and any surrogate. This module refuses them, as RabbitMQ refuses these numbers.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final, NoReturn, TypeAlias

import msgspec

_NOT_PRINTABLE: Final = re.compile("[^ -~]")

Row: TypeAlias = dict[str, Any]
"""A JSON object; in listings one row, by column name."""


def encode(value: Any) -> bytes:
    """Return a value as JSON on one line."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode("ascii")


def shown(value: Any) -> str:
    r"""Return a value as JSON on one line for a terminal: what is not printable is ``\u009b``."""
    text = encode(value).decode()
    return text if text.isprintable() else _NOT_PRINTABLE.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    # Only strings of JSON hold such characters, so the text stays JSON with the same value.
    character = found.group()
    return character if character.isprintable() else json.dumps(character)[1:-1]


_VALUE_BYTES: Final = 100  # a value and its place in a list or object
_WIDE: Final = 4  # bytes of each character of a string that has a wide one


def decoded_bytes(text: bytes) -> int:
    """Estimate the memory that the value of a JSON text takes, without decoding it; the estimate is rather too high.

    Before each value except the first stands one of the characters that are counted.
    """
    width = _WIDE if b"\\u" in text or not text.isascii() else 1
    return width * len(text) + _VALUE_BYTES * sum(
        [text.count(mark) for mark in (b",", b":", b"[", b"{")]
    )


def decode(data: bytes | str) -> Any:
    """Return the value of a JSON text in UTF-8.

    Raises:
        ValueError: not JSON.
        RecursionError: too deep.
    """
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeEncodeError):
        value = _READER.decode(data if isinstance(data, str) else data.decode())
        return json.loads(_with_octets(json.dumps(value, ensure_ascii=False)))


def _with_octets(text: str) -> str:
    """Return a text with lone surrogates as octets; octets that form a character in UTF-8 become that character."""
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise ValueError(f"{text[error.start]!r} is half a character") from None


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text} is too large a number")
    return value


def _no_json(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


_READER: Final = json.JSONDecoder(parse_float=_finite, parse_constant=_no_json)
