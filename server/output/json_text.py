r"""JSON that may hold names which are no UTF-8.

AMQP names are bytes; those that are no text are ``str`` with lone surrogates here (``surrogateescape``).
msgspec refuses them, the standard library writes and reads them as ``\udcff``.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec


def encode(value: Any) -> bytes:
    """Return a value as JSON on one line."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode("ascii")


def decode(data: bytes | str) -> Any:
    """Return what JSON says.

    Raises:
        ValueError: it is none.
    """
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        return json.loads(data)
