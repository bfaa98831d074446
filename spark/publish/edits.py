"""A message's properties: raw bytes or a row of values, and the edits of its headers.

Here properties are bytes as in a content header, ``flags:u16 values``. Raw properties stay as they are, byte for byte;
an edit changes the headers only, whose other fields keep their types and order.

The headers ``x-producer-id``, ``x-producer-epoch`` and ``x-producer-seq`` say who sends a message. Those of an earlier
sender are always removed: a broker with a producer filter would take a replayed message for one that it has,
confirm it, and not enqueue it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from leveret.amqp import producer_headers
from leveret.amqp.content import mode_of
from leveret.amqp.errors import ProtocolError
from leveret.amqp.properties import Properties, encode_properties, examine, with_table
from leveret.amqp.properties import without_expiration as without
from leveret.amqp.tables import Field, Table, encode_table
from leveret.core.limits import SHORTSTR_BYTES_MAX
from leveret.spark.publish.errors import RowError
from leveret.spark.publish.identity import Number

PERSISTENT: Final = b"\x10\x00\x02"  # delivery-mode 2 alone

_SENDER: Final = frozenset({producer_headers.ID, producer_headers.EPOCH, producer_headers.SEQ})
_SENDER_MARK: Final = b"x-producer-"
_HEADERS: Final = 0x20  # in the first byte of the flags
_EXPIRATION: Final = 0x01
_MESSAGE_ID: Final = 0x80  # in the second
_START: Final = b"\x00\x3c\x00\x00"  # class 60, weight 0
_pack_size = struct.Struct(">Q").pack
_unpack_flags = struct.Struct(">H").unpack_from


def head(properties: bytes, body_bytes: int) -> bytes:
    """Return the payload of a content header."""
    return b"%b%b%b" % (_START, _pack_size(body_bytes), properties)


def checked(raw: bytes) -> bytes:
    """Return raw properties; RowError: flags and values do not fit, so a broker would close the connection."""
    if len(raw) < 2:
        raise RowError(f"properties_raw of {len(raw)} bytes: flags:u16 and values are needed")
    whole = head(raw, 0)
    try:
        mode_of(whole, _unpack_flags(raw)[0])
    except ProtocolError:
        raise RowError("properties_raw is malformed: its values do not fit its flags") from None
    return raw


def encoded(values: Mapping[str, Any]) -> bytes:
    """Return the properties of a row's ``properties``; delivery_mode is 2 unless it is given.

    Raises:
        RowError: a value does not fit its property.
    """
    given = {name: _plain(value) for name, value in values.items() if value is not None}
    try:
        return encode_properties(Properties(**({"delivery_mode": 2} | given)))
    except (struct.error, ProtocolError, TypeError) as error:
        raise RowError(f"properties cannot be encoded: {error}") from None


def edited(
    properties: bytes,
    headers_set: Sequence[tuple[str, str | None]] = (),
    headers_remove: Sequence[str] = (),
    number: Number | None = None,
    epoch: int = 0,
) -> bytes:
    """Return properties with other headers; the same bytes if nothing changes.

    Args:
        properties: ``flags:u16 values``.
        headers_set: names and values, written as long strings; None is void.
        headers_remove: names; removed before others are set.
        number: the sender's headers to add.
        epoch: the sender's, which goes with ``number``.

    Raises:
        RowError: the headers cannot be read, or a name is too long.
    """
    if not (headers_set or headers_remove or number) and _SENDER_MARK not in properties:
        return properties
    removed = _SENDER.union(headers_remove)

    def change(before: Table) -> Table:
        table: Table = {name: each for name, each in before.items() if name not in removed}
        for name, value in headers_set:
            if name in _SENDER:
                raise RowError(f"headers_set sets {name}, which is the sink's: use dedup=producer")
            table[name] = _field(value)
        if number is not None:
            table[producer_headers.ID] = ("S", number.producer.encode())
            table[producer_headers.EPOCH] = ("l", epoch)
            table[producer_headers.SEQ] = ("l", number.sequence)
        return table

    return with_headers(properties, change)


def with_headers(properties: bytes, change: Callable[[Table], Table]) -> bytes:
    """Return properties with the headers that ``change`` makes of theirs; the same bytes if they are equal.

    Raises:
        RowError: the headers cannot be read, or not be written.
    """
    whole = head(properties, 0)
    try:
        before = headers_of(properties)
        table = change(before)
        if table == before and list(table) == list(before):
            return properties
        return with_table(whole, encode_table(table))[12:]
    except ProtocolError as error:
        raise RowError(f"the headers cannot be edited: {error}") from None


def headers_of(properties: bytes) -> Table:
    """Return the headers, empty if there are none; ProtocolError: they are malformed."""
    if not properties[0] & _HEADERS:
        return {}
    return examine(head(properties, 0)).headers or {}


def without_expiration(properties: bytes) -> bytes:
    """Return properties without expiration; RowError: they are malformed."""
    if not properties[0] & _EXPIRATION:
        return properties
    try:
        return without(head(properties, 0))[12:]
    except ProtocolError:
        raise RowError("properties_raw is malformed: its values do not fit its flags") from None


def with_message_id(properties: bytes, message_id: str) -> bytes:
    """Return properties with this message-id if they have none; RowError: they are malformed."""
    if properties[1] & _MESSAGE_ID:
        return properties
    octets = message_id.encode()
    if len(octets) > SHORTSTR_BYTES_MAX:
        raise RowError(f"message-id of {len(octets)} bytes; AMQP allows {SHORTSTR_BYTES_MAX}")
    at = _end_before_message_id(properties)
    flags = bytes((properties[0], properties[1] | _MESSAGE_ID))
    return b"%b%b%c%b%b" % (flags, properties[2:at], len(octets), octets, properties[at:])


def _end_before_message_id(properties: bytes) -> int:
    """Return where the properties behind message-id begin; those before it are walked by their widths."""
    flags = _unpack_flags(properties)[0]
    at = 2
    for place in range(15, 7, -1):  # content-type to expiration
        if not flags & 1 << place:
            continue
        if place == 13:
            at += 4 + int.from_bytes(properties[at : at + 4])
        elif place in {12, 11}:
            at += 1
        else:
            at += 1 + properties[at]
    return at


def _plain(value: Any) -> Any:
    return int(value.timestamp()) if isinstance(value, datetime) else value


def _field(value: str | None) -> Field:
    return ("V", None) if value is None else ("S", value.encode())
