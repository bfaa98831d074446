"""The broker's bytes as events: confirms, deliveries, returned messages, other methods.

The codec kernel scans what clients send; this is the other direction. All contents are on one channel.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from leveret.amqp import methods, spec
from leveret.amqp.errors import ProtocolError
from leveret.amqp.fields import Method
from leveret.core.message import origin_of
from leveret.spark.publish.errors import ConnectionFailed

_unpack_frame = Struct(">BHI").unpack_from
_unpack_confirm = Struct(">QB").unpack_from
_ids_of = Struct(">I").unpack_from
_unpack_size = Struct(">Q").unpack_from
CHANNEL: Final = 1
_FRAME_HEAD_BYTES: Final = 7
_HEAD_BYTES_MIN: Final = 14
_CONFIRM_BYTES: Final = 13
_FRAME_BYTES_MAX: Final = 16 * 1024 * 1024  # of a peer that ignores what was agreed


class Confirmed(NamedTuple):
    """basic.ack, or basic.nack when it is not ``accepted``."""

    tag: int
    multiple: bool
    accepted: bool


class Returned(NamedTuple):
    """basic.return with its message; ``origin`` is exchange and routing key, as in a message."""

    reply: str
    origin: bytes
    head: bytes
    body: bytes


class Delivered(NamedTuple):
    """basic.deliver with its message."""

    consumer_tag: str
    tag: int
    redelivered: bool
    head: bytes
    body: bytes


class Answer(NamedTuple):
    """Any other method."""

    channel: int
    method: Method


Event: TypeAlias = Confirmed | Returned | Delivered | Answer


class Incoming:
    """Cuts the bytes of a connection into events."""

    def __init__(self) -> None:
        self._rest = b""
        self._begun: methods.BasicReturn | methods.BasicDeliver | None = None
        self._head = b""
        self._missing = 0
        self._parts: list[bytes] = []

    def feed(self, data: bytes) -> list[Event]:
        """Take the bytes of a read; ConnectionFailed: they are not AMQP."""
        data = self._rest + data if self._rest else data
        events: list[Event] = []
        at, size = 0, len(data)
        while size - at > _FRAME_HEAD_BYTES:
            kind, channel, length = _unpack_frame(data, at)
            end = at + _FRAME_HEAD_BYTES + length
            if length > _FRAME_BYTES_MAX or data.startswith(b"AMQP", at):
                raise ConnectionFailed("the peer does not speak AMQP 0-9-1: check host and port")
            if end >= size:
                break
            if data[end] != spec.FRAME_END:
                raise ConnectionFailed("a frame of the broker does not end in 0xCE")
            try:
                self._frame(events, kind, channel, data[at + _FRAME_HEAD_BYTES : end])
            except ProtocolError as error:
                raise ConnectionFailed(f"the broker sent a malformed frame: {error}") from None
            at = end + 1
        self._rest = data[at:]
        return events

    def _frame(self, events: list[Event], kind: int, channel: int, payload: bytes) -> None:
        if kind == spec.FRAME_METHOD and len(payload) >= 4:
            self._method(events, channel, payload)
        elif kind == spec.FRAME_HEADER and len(payload) >= _HEAD_BYTES_MIN:
            self._header(events, payload)
        elif kind == spec.FRAME_BODY:
            self._body(events, payload)
        elif kind != spec.FRAME_HEARTBEAT:
            raise ConnectionFailed(f"the broker sent a frame of type {kind}")

    def _method(self, events: list[Event], channel: int, payload: bytes) -> None:
        if self._begun is not None:
            raise ConnectionFailed("the broker interrupted a message")
        ids = _ids_of(payload)[0]
        if ids in {spec.BASIC_ACK, spec.BASIC_NACK} and len(payload) == _CONFIRM_BYTES:
            tag, bits = _unpack_confirm(payload, 4)
            events.append(Confirmed(tag, bits & 1 == 1, ids == spec.BASIC_ACK))
            return
        method = methods.decode(ids, payload[4:])
        if isinstance(method, methods.BasicReturn | methods.BasicDeliver):
            self._begun = method
            self._head = b""
        else:
            events.append(Answer(channel, method))

    def _header(self, events: list[Event], payload: bytes) -> None:
        if self._begun is None or self._head:
            raise ConnectionFailed("the broker sent a content header out of place")
        self._head = payload
        self._missing = _unpack_size(payload, 4)[0]
        self._complete(events)

    def _body(self, events: list[Event], payload: bytes) -> None:
        if self._begun is None or not self._head or len(payload) > self._missing:
            raise ConnectionFailed("the broker sent a body out of place")
        self._missing -= len(payload)
        self._parts.append(payload)
        self._complete(events)

    def _complete(self, events: list[Event]) -> None:
        if self._missing:
            return
        found, body = self._begun, b"".join(self._parts)
        assert found is not None
        self._begun = None
        self._parts = []
        if isinstance(found, methods.BasicDeliver):
            place = found.consumer_tag, found.delivery_tag, found.redelivered
            events.append(Delivered(*place, self._head, body))
            return
        exchange = found.exchange.encode("utf-8", "surrogateescape")
        routing_key = found.routing_key.encode("utf-8", "surrogateescape")
        reply = f"{found.reply_code} {found.reply_text}"
        events.append(Returned(reply, origin_of(exchange, routing_key), self._head, body))


def closed(
    method: methods.ConnectionClose | methods.ChannelClose, unsettled: int
) -> ConnectionFailed:
    """Return the error for a close by the broker."""
    what = "connection" if method.IDS == spec.CONNECTION_CLOSE else "channel"
    return ConnectionFailed(
        f"the broker closed the {what} with {unsettled} messages unconfirmed:"
        f" {method.reply_code} {method.reply_text}"
    )
