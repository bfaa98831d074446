r"""JSON for names that need not be UTF-8.

AMQP names are bytes; bytes that are not UTF-8 are lone surrogates in a ``str`` (``surrogateescape``).
msgspec refuses these, the standard library writes and reads them as ``\udcff``.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, TypeAlias

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


_VALUE_BYTES: Final = 100  # of a value, and the place in its list or object
_WIDE: Final = 4  # bytes of a character, where one of a string needs as many


def decoded_bytes(text: bytes) -> int:
    """Return how much memory the value of a JSON text takes, about, and rather too much than too little.

    Each value but one has one of the marks that are counted before it, so the text need not be decoded.
    """
    width = _WIDE if b"\\u" in text or not text.isascii() else 1
    return width * len(text) + _VALUE_BYTES * sum(
        [text.count(mark) for mark in (b",", b":", b"[", b"{")]
    )


def decode(data: bytes | str) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: not JSON.
    """
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        return json.loads(data)
