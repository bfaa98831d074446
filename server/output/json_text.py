r"""JSON for names that need not be UTF-8.

AMQP names are bytes; bytes that are not UTF-8 are lone surrogates in a ``str`` (``surrogateescape``).
msgspec refuses these, the standard library writes and reads them as ``\udcff``.
"""

from __future__ import annotations

import json
from typing import Any, TypeAlias

import msgspec

Row: TypeAlias = dict[str, Any]
"""A JSON object; in listings one row, by column name."""


def encode(value: Any) -> bytes:
    """Return a value as JSON on one line."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode("ascii")


def decode(data: bytes | str) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: not JSON.
    """
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        return json.loads(data)
