"""Basic properties: decoding, examination of the few that a broker obeys, encoding.

A content header is ``class:u16 weight:u16 body_size:u64 flags:u16 properties``; a message has it in
its original form (``head``), which is forwarded unchanged. Properties that are set stand in the order of their
flags, from bit 15 down. Bit 1 means nothing, bit 0 would announce a second word of flags and is
refused.

``examine`` runs for every message that carries headers, a priority, an expiration and the like, so it
walks the head once, stops behind the last property of interest and leaves headers undecoded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct, error
from typing import Any, Final

from leveret.amqp.frame_errors import malformed_properties
from leveret.amqp.tables import Table, decode_table, encode_table

_PROPERTIES_AT: Final = 14
_HEAD: Final = Struct(">HHQH")
_unpack_u32 = Struct(">I").unpack_from
_U64: Final = Struct(">Q")

_SHORTSTR: Final = 0
_OCTET: Final = 1
_TIMESTAMP: Final = 8
_TABLE: Final = -1

_KINDS: Final[dict[str, int]] = {
    "content_type": _SHORTSTR,
    "content_encoding": _SHORTSTR,
    "headers": _TABLE,
    "delivery_mode": _OCTET,
    "priority": _OCTET,
    "correlation_id": _SHORTSTR,
    "reply_to": _SHORTSTR,
    "expiration": _SHORTSTR,
    "message_id": _SHORTSTR,
    "timestamp": _TIMESTAMP,
    "type": _SHORTSTR,
    "user_id": _SHORTSTR,
    "app_id": _SHORTSTR,
    "cluster_id": _SHORTSTR,
}
_BITS: Final = {name: 1 << 15 - place for place, name in enumerate(_KINDS)}
_CONTINUATION: Final = 1
_EXAMINED: Final = ("delivery_mode", "priority", "reply_to", "expiration", "user_id")


@dataclass(slots=True)
class Properties:
    """All fourteen; None is absent."""

    content_type: str | None = None
    content_encoding: str | None = None
    headers: Table | None = None
    delivery_mode: int | None = None
    priority: int | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    expiration: str | None = None
    message_id: str | None = None
    timestamp: int | None = None
    type: str | None = None
    user_id: str | None = None
    app_id: str | None = None
    cluster_id: str | None = None


class Examined:
    """The properties that a broker obeys; None is absent."""

    __slots__ = (
        "_head",
        "_headers_at",
        "_headers_end",
        "_table",
        "delivery_mode",
        "expiration",
        "priority",
        "reply_to",
        "user_id",
    )

    def __init__(self, head: bytes, values: list[Any], headers_at: int, headers_end: int) -> None:
        self._head = head
        self._headers_at = headers_at
        self._headers_end = headers_end
        self._table: Table | None = None
        self.delivery_mode: int | None
        self.priority: int | None
        self.reply_to: str | None
        self.expiration: str | None
        self.user_id: str | None
        self.delivery_mode, self.priority, self.reply_to, self.expiration, self.user_id = values

    @property
    def persistent(self) -> bool:
        """Whether delivery-mode is 2."""
        return self.delivery_mode == 2

    @property
    def headers(self) -> Table | None:
        """The headers, decoded when first asked for; SyntaxError_: they are not a table."""
        if self._headers_at and self._table is None:
            self._table = decode_table(self._head, self._headers_at)[0]
        return self._table

    @property
    def properties(self) -> Properties:
        """All properties, decoded each time; SyntaxError_: they are malformed."""
        return decode_properties(self._head)

    @property
    def may_have_cc(self) -> bool:
        """Whether the headers could contain CC or BCC; False is certain and costs no decoding."""
        return (
            self._headers_at != 0
            and self._head.find(b"CC", self._headers_at, self._headers_end) != -1
        )


def examine(head: bytes) -> Examined:
    """Decode the properties that a broker obeys; SyntaxError_: they do not fit into the head."""
    values: list[Any] = [None, None, None, None, None]
    at, headers_at, headers_end = _PROPERTIES_AT, 0, 0
    try:
        flags = head[12] << 8 | head[13]
        for kind, place in _plans.get(flags) or _plan(flags):
            if kind == _SHORTSTR:
                end = at + 1 + head[at]
                if place is not None:
                    values[place] = head[at + 1 : end].decode("utf-8", "surrogateescape")
                at = end
            elif kind == _OCTET:
                values[place] = head[at]
                at += 1
            elif kind == _TABLE:
                headers_at = at
                at += 4 + _unpack_u32(head, at)[0]
                headers_end = at
            else:
                at += kind
    except (IndexError, error):
        raise malformed_properties() from None
    if at > len(head):
        raise malformed_properties()
    return Examined(head, values, headers_at, headers_end)


_plans: Final[dict[int, tuple[tuple[int, Any], ...]]] = {}  # 2 ** 14 at most


def _plan(flags: int) -> tuple[tuple[int, Any], ...]:
    """Return kinds and places in the result (None: of no interest) as far as anything is of interest."""
    if flags & _CONTINUATION:
        raise malformed_properties()
    steps = [
        (kind, _EXAMINED.index(name) if name in _EXAMINED else None)
        for name, kind in _KINDS.items()
        if flags & _BITS[name]
    ]
    while steps and steps[-1][1] is None and steps[-1][0] != _TABLE:
        steps.pop()
    _plans[flags] = tuple(steps)
    return _plans[flags]


def decode_properties(head: bytes) -> Properties:
    """Read all properties of a content header's payload; SyntaxError_: they are malformed."""
    properties = Properties()
    at = _PROPERTIES_AT
    try:
        flags = head[12] << 8 | head[13]
        for name, kind in _KINDS.items():
            if flags & _BITS[name]:
                value, at = _READ[kind](head, at)
                setattr(properties, name, value)
    except (IndexError, error):
        raise malformed_properties() from None
    if at != len(head) or flags & _CONTINUATION:
        raise malformed_properties()
    return properties


def encode_properties(properties: Properties, *, rewritten: bool = False) -> bytes:
    """Return flags and properties; ``rewritten`` is for changed headers (``encode_table``).

    Raises:
        struct.error: a number does not fit its property.
        SyntaxError_: a string is too long, or the headers cannot be written.
    """
    flags = 0
    parts = [b""]
    for name, kind in _KINDS.items():
        value = getattr(properties, name)
        if value is not None:
            flags |= _BITS[name]
            parts.append(
                encode_table(value, rewritten=rewritten) if kind == _TABLE else _WRITE[kind](value)
            )
    parts[0] = b"%c%c" % (flags >> 8, flags & 0xFF)
    return b"".join(parts)


def head_of(properties: Properties, body_size: int, *, rewritten: bool = False) -> bytes:
    """Return the payload of a content header."""
    encoded = encode_properties(properties, rewritten=rewritten)
    return _HEAD.pack(60, 0, body_size, 0)[:12] + encoded


def with_headers(head: bytes, headers: Table) -> bytes:
    """Return the head with other headers, written as RabbitMQ rewrites them; the rest is untouched."""
    return with_table(head, encode_table(headers, rewritten=True))


def with_table(head: bytes, table: bytes) -> bytes:
    """Return the head with other headers, given as they are written; SyntaxError_: it is malformed."""
    return _with(head, "headers", table)


def with_reply_to(head: bytes, reply_to: bytes) -> bytes:
    """Return the head with another reply-to, of at most 255 bytes; the rest is untouched.

    Differs from RabbitMQ: it writes the headers anew as well, sorted by their names.
    """
    return _with(head, "reply_to", b"%c%b" % (len(reply_to), reply_to))


def without_expiration(head: bytes) -> bytes:
    """Return the head without its expiration, which is set."""
    return _with(head, "expiration", None)


def _with(head: bytes, name: str, encoded: bytes | None) -> bytes:
    """Return a head with another value of one property, or without it; SyntaxError_: it is malformed."""
    flags = head[12] << 8 | head[13]
    at, end = _PROPERTIES_AT, 0
    try:
        for each, kind in _KINDS.items():
            end = at
            if flags & _BITS[each]:
                if kind == _SHORTSTR:
                    end += 1 + head[at]
                elif kind == _TABLE:
                    end += 4 + _unpack_u32(head, at)[0]
                else:
                    end += kind
            if each == name:
                break
            at = end
    except (IndexError, error):
        raise malformed_properties() from None
    flags = flags & ~_BITS[name] if encoded is None else flags | _BITS[name]
    return b"%b%c%c%b%b%b" % (
        head[:12],
        flags >> 8,
        flags & 0xFF,
        head[_PROPERTIES_AT:at],
        encoded or b"",
        head[end:],
    )


def _read_shortstr(head: bytes, at: int) -> tuple[str, int]:
    end = at + 1 + head[at]
    return head[at + 1 : end].decode("utf-8", "surrogateescape"), end


def _read_octet(head: bytes, at: int) -> tuple[int, int]:
    return head[at], at + 1


def _read_timestamp(head: bytes, at: int) -> tuple[int, int]:
    return _U64.unpack_from(head, at)[0], at + 8


def _write_shortstr(text: str) -> bytes:
    octets = text.encode("utf-8", "surrogateescape")
    if len(octets) > 255:
        raise malformed_properties()
    return b"%c%b" % (len(octets), octets)


_READ: Final[dict[int, Callable[[bytes, int], tuple[Any, int]]]] = {
    _SHORTSTR: _read_shortstr,
    _OCTET: _read_octet,
    _TIMESTAMP: _read_timestamp,
    _TABLE: decode_table,
}
_WRITE: Final[dict[int, Callable[[Any], bytes]]] = {
    _SHORTSTR: _write_shortstr,
    _OCTET: Struct(">B").pack,
    _TIMESTAMP: _U64.pack,
}
