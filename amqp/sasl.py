"""SASL responses of the mechanisms PLAIN and AMQPLAIN: bytes to user and password.

RabbitMQ ends a connection whose response is malformed without a word; the errors here say why, for
the log.
"""

from __future__ import annotations

from leveret.amqp.errors import SyntaxError_
from leveret.amqp.tables import Table, decode_table_body


def plain(response: bytes) -> tuple[str, bytes]:
    """Return user and password of ``NUL user NUL password``; SyntaxError_: it is something else."""
    parts = response.split(b"\x00")
    if len(parts) != 3 or parts[0]:
        raise SyntaxError_("PLAIN response is not NUL user NUL password")
    return parts[1].decode("utf-8", "surrogateescape"), parts[2]


def amqplain(response: bytes) -> tuple[str, bytes]:
    """Return LOGIN and PASSWORD of a table without its length; SyntaxError_: it has not both."""
    table = decode_table_body(response)
    user = _text(table, "LOGIN")
    return user.decode("utf-8", "surrogateescape"), _text(table, "PASSWORD")


def _text(table: Table, name: str) -> bytes:
    letter, value = table.get(name, ("V", None))
    if letter != "S":
        raise SyntaxError_(f"AMQPLAIN response has no string {name}")
    text: bytes = value
    return text
