"""AMQP 0-9-1 written down once more, for the tests only: a peer must not share the broker's codec.

Methods are tables of ``name:type``; types are o octet, s short, l long, L long long, S short string,
X long string, T table, b bit. Table values are plain Python; ``Typed`` names a field type.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
FRAME_END = b"\xce"

_SPEC = """
connection 10
10 start major:o minor:o server_properties:T mechanisms:X locales:X
11 start-ok client_properties:T mechanism:S response:X locale:S
20 secure challenge:X
21 secure-ok response:X
30 tune channel_max:s frame_max:l heartbeat:s
31 tune-ok channel_max:s frame_max:l heartbeat:s
40 open virtual_host:S r1:S r2:b
41 open-ok r1:S
50 close reply_code:s reply_text:S class_id:s method_id:s
51 close-ok
60 blocked reason:S
61 unblocked
70 update-secret new_secret:X reason:S
71 update-secret-ok
channel 20
10 open r1:S
11 open-ok r1:X
20 flow active:b
21 flow-ok active:b
40 close reply_code:s reply_text:S class_id:s method_id:s
41 close-ok
access 30
10 request realm:S exclusive:b passive:b active:b write:b read:b
11 request-ok ticket:s
exchange 40
10 declare r1:s exchange:S type:S passive:b durable:b auto_delete:b internal:b nowait:b arguments:T
11 declare-ok
20 delete r1:s exchange:S if_unused:b nowait:b
21 delete-ok
30 bind r1:s destination:S source:S routing_key:S nowait:b arguments:T
31 bind-ok
40 unbind r1:s destination:S source:S routing_key:S nowait:b arguments:T
51 unbind-ok
queue 50
10 declare r1:s queue:S passive:b durable:b exclusive:b auto_delete:b nowait:b arguments:T
11 declare-ok queue:S message_count:l consumer_count:l
20 bind r1:s queue:S exchange:S routing_key:S nowait:b arguments:T
21 bind-ok
30 purge r1:s queue:S nowait:b
31 purge-ok message_count:l
40 delete r1:s queue:S if_unused:b if_empty:b nowait:b
41 delete-ok message_count:l
50 unbind r1:s queue:S exchange:S routing_key:S arguments:T
51 unbind-ok
basic 60
10 qos prefetch_size:l prefetch_count:s global_:b
11 qos-ok
20 consume r1:s queue:S consumer_tag:S no_local:b no_ack:b exclusive:b nowait:b arguments:T
21 consume-ok consumer_tag:S
30 cancel consumer_tag:S nowait:b
31 cancel-ok consumer_tag:S
40 publish r1:s exchange:S routing_key:S mandatory:b immediate:b
50 return reply_code:s reply_text:S exchange:S routing_key:S
60 deliver consumer_tag:S delivery_tag:L redelivered:b exchange:S routing_key:S
70 get r1:s queue:S no_ack:b
71 get-ok delivery_tag:L redelivered:b exchange:S routing_key:S message_count:l
72 get-empty r1:S
80 ack delivery_tag:L multiple:b
90 reject delivery_tag:L requeue:b
100 recover-async requeue:b
110 recover requeue:b
111 recover-ok
120 nack delivery_tag:L multiple:b requeue:b
confirm 85
10 select nowait:b
11 select-ok
tx 90
10 select
11 select-ok
20 commit
21 commit-ok
30 rollback
31 rollback-ok
"""

Fields = tuple[tuple[str, str], ...]
IDS: dict[str, tuple[int, int]] = {}
FIELDS: dict[str, Fields] = {}
NAMES: dict[tuple[int, int], str] = {}


def _read_spec() -> None:
    class_name, class_id = "", 0
    for line in _SPEC.strip().splitlines():
        first, second, *rest = line.split()
        if second.isdigit():
            class_name, class_id = first, int(second)
            continue
        name = f"{class_name}.{second}"
        IDS[name] = (class_id, int(first))
        NAMES[class_id, int(first)] = name
        FIELDS[name] = tuple((part.partition(":")[0], part[-1]) for part in rest)


_read_spec()
CONTENT = {"basic.return", "basic.deliver", "basic.get-ok"}
_PROPERTIES = """
content_type:S content_encoding:S headers:T delivery_mode:o priority:o correlation_id:S reply_to:S
expiration:S message_id:S timestamp:L type:S user_id:S app_id:S cluster_id:S
"""
PROPERTIES: Fields = tuple((part[:-2], part[-1]) for part in _PROPERTIES.split())
_NUMBERS = {"o": ">B", "s": ">H", "l": ">I", "L": ">Q"}
_TABLE_NUMBERS = {
    "b": ">b", "B": ">B", "s": ">h", "u": ">H", "I": ">i", "i": ">I",
    "l": ">q", "L": ">q", "f": ">f", "d": ">d", "T": ">Q",
}  # fmt: skip


@dataclass(frozen=True)
class Typed:
    """A table value of exactly this field type; ``value`` is bytes for a letter that has no form."""

    letter: str
    value: Any

    def encode(self) -> bytes:
        letter = self.letter.encode()
        if self.letter in _TABLE_NUMBERS:
            return letter + struct.pack(_TABLE_NUMBERS[self.letter], self.value)
        if self.letter == "D":
            return letter + struct.pack(">Bi", *self.value)
        return letter + struct.pack(">I", len(self.value)) + self.value


def as_bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape")


def as_text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")


def short(value: str | bytes) -> bytes:
    raw = as_bytes(value)
    return bytes([len(raw)]) + raw


def _sized(letter: bytes, raw: bytes) -> bytes:
    return letter + struct.pack(">I", len(raw)) + raw


def _integer(value: int) -> bytes:
    small = -(2**31) <= value < 2**31
    return b"I" + struct.pack(">i", value) if small else b"l" + struct.pack(">q", value)


_FIELD_FORMS: dict[type, Callable[[Any], bytes]] = {
    Typed: Typed.encode,
    type(None): lambda _: b"V",
    bool: lambda value: b"t" + bytes([value]),
    int: _integer,
    float: lambda value: b"d" + struct.pack(">d", value),
    dict: lambda value: b"F" + table(value),
    list: lambda value: _sized(b"A", b"".join(map(field, value))),
    str: lambda value: _sized(b"S", as_bytes(value)),
    bytes: lambda value: _sized(b"S", value),
}


def field(value: Any) -> bytes:
    """Encode one table value with its type letter."""
    return _FIELD_FORMS[type(value)](value)


def table(values: dict[str, Any]) -> bytes:
    raw = b"".join(short(key) + field(value) for key, value in values.items())
    return struct.pack(">I", len(raw)) + raw


def _encode(kind: str, value: Any) -> bytes:
    if kind in _NUMBERS:
        return struct.pack(_NUMBERS[kind], value or 0)
    if kind == "S":
        return short(value or "")
    if kind == "X":
        raw = as_bytes(value or b"")
        return struct.pack(">I", len(raw)) + raw
    return table(value or {})


def encode_fields(fields: Fields, values: dict[str, Any]) -> bytes:
    unknown = values.keys() - {name for name, _ in fields}
    assert not unknown, f"no such fields: {unknown}"
    out, bits, count = b"", 0, 0
    for name, kind in fields:
        if kind == "b":
            bits |= bool(values.get(name)) << count
            count += 1
            continue
        if count:
            out, bits, count = out + bytes([bits]), 0, 0
        out += _encode(kind, values.get(name))
    return out + bytes([bits]) if count else out


def method(name: str, **values: Any) -> bytes:
    """Return the payload of a method frame."""
    return struct.pack(">HH", *IDS[name]) + encode_fields(FIELDS[name], values)


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + FRAME_END


def head(size: int, properties: dict[str, Any] | bytes = b"\0\0", class_id: int = 60) -> bytes:
    """Return the payload of a header frame; raw properties start with their flags."""
    if isinstance(properties, dict):
        flags = sum(1 << 15 - i for i, (name, _) in enumerate(PROPERTIES) if name in properties)
        present = tuple(pair for pair in PROPERTIES if pair[0] in properties)
        properties = struct.pack(">H", flags) + encode_fields(present, properties)
    return struct.pack(">HHQ", class_id, 0, size) + properties


class Reader:
    """Takes values off a payload one after the other."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at

    def number(self, form: str) -> Any:
        value = struct.unpack_from(form, self.data, self.at)[0]
        self.at += struct.calcsize(form)
        return value

    def take(self, size: int) -> bytes:
        self.at += size
        return self.data[self.at - size : self.at]

    def table(self) -> dict[str, Any]:
        end = self.number(">I") + self.at
        values = {}
        while self.at < end:
            key = as_text(self.take(self.number(">B")))
            values[key] = self.field()
        return values

    def field(self) -> Any:
        letter = self.take(1).decode()
        if letter in _TABLE_NUMBERS:
            return self.number(_TABLE_NUMBERS[letter])
        if letter in "tVD":
            return {
                "t": lambda: bool(self.take(1)[0]),
                "V": lambda: None,
                "D": lambda: self.take(5),
            }[letter]()
        if letter == "F":
            return self.table()
        size = self.number(">I")
        if letter == "A":
            end, items = self.at + size, []
            while self.at < end:
                items.append(self.field())
            return items
        return as_text(self.take(size)) if letter == "S" else self.take(size)

    def fields(self, fields: Fields) -> dict[str, Any]:
        values: dict[str, Any] = {}
        bits = 0
        for name, kind in fields:
            if kind == "b":
                values[name] = bool(self.data[self.at] >> bits & 1)
                bits += 1
                continue
            if bits:
                self.at, bits = self.at + 1, 0
            if kind in _NUMBERS:
                values[name] = self.number(_NUMBERS[kind])
            elif kind == "T":
                values[name] = self.table()
            else:
                values[name] = as_text(self.take(self.number(">B" if kind == "S" else ">I")))
        return values


def properties_of(header: bytes) -> dict[str, Any]:
    """Decode the properties of a header payload."""
    flags = struct.unpack_from(">H", header, 12)[0]
    present = tuple(pair for i, pair in enumerate(PROPERTIES) if flags >> 15 - i & 1)
    return Reader(header, 14).fields(present)
