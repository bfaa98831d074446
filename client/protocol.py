"""The client's side of a connection, without I/O: bytes of the broker in, events and bytes for the broker out.

A driver writes ``take_output()`` and gives what it reads to ``receive``. The first output starts the login; it is over
with the answer connection.open-ok on channel 0. Requests of the broker (tune, close, channel.flow) are answered here.
A broken rule and connection.close end the connection: ``receive`` returns the events before it, and ``error`` says why.
So does channel.close, unless a request on that channel waits for its answer.

The kernel scans what clients send; this is the other direction. A message that has come whole, in three frames, is
taken in one step; it is what nearly all messages are.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Final

from leveret.amqp import methods, spec
from leveret.amqp.errors import ProtocolError
from leveret.amqp.fields import Method
from leveret.amqp.tables import Table, typed_table
from leveret.client.errors import BrokerError, ChannelClosed
from leveret.client.events import Answer, Cancelled, Confirmed, Delivered, Event, Returned
from leveret.client.target import Target
from leveret.core.limits import FRAME_MAX_BYTES, SHORTSTR_BYTES_MAX

FRAME: Final = struct.Struct(">BHI")
_pack_frame, _unpack_frame = FRAME.pack, FRAME.unpack_from
_unpack_header = struct.Struct(">BHI4xQ").unpack_from  # frame head, class and weight, body size
_pack_ack = struct.Struct(">BHIIQ").pack
_unpack_confirm = struct.Struct(">IQB").unpack_from  # ids, tag, bits
_unpack_tag = struct.Struct(">QB").unpack_from  # and whether the message is redelivered
_unpack_u64 = struct.Struct(">Q").unpack_from
_unpack_u32 = struct.Struct(">I").unpack_from
_unpack_u16 = struct.Struct(">H").unpack_from
_DELIVER: Final = struct.pack(">I", spec.BASIC_DELIVER)
_CONFIRMS: Final = {spec.BASIC_ACK: True, spec.BASIC_NACK: False}
_new = tuple.__new__  # what the class of a NamedTuple calls, and a third of its time
_FRAME_HEAD_BYTES: Final = 7
_HEAD_BYTES_MIN: Final = 14  # of a content header
_CONFIRM_BYTES: Final = 13
_TAG_BYTES: Final = 8
_FRAME_BYTES_MAX: Final = 16 * 1024 * 1024  # of a peer that ignores what was agreed
_CAPABILITIES: Final = (
    "authentication_failure_close",
    "basic.nack",
    "connection.blocked",
    "consumer_cancel_notify",
    "publisher_confirms",
)


@dataclass(slots=True)
class _Content:
    """An incomplete message: the method's payload, and what has come since."""

    payload: bytes
    head: bytes = b""
    missing: int = 0
    parts: list[bytes] = field(default_factory=list)

    def event(self, channel: int) -> Event:
        payload, body = self.payload, b"".join(self.parts)
        if payload.startswith(_DELIVER):
            at = 5 + payload[4]
            tag, is_redelivered = _unpack_tag(payload, at)
            return Delivered(channel, payload[5:at], tag, is_redelivered != 0, self.head, body)
        at = 7 + payload[6]
        reply = f"{_unpack_u16(payload, 4)[0]} {payload[7:at].decode(errors='replace')}"
        return Returned(channel, reply, payload[at:], self.head, body)


class ClientProtocol:
    """One connection.

    Attributes:
        blocked: why the broker takes no publishes (connection.blocked, channel.flow); empty: it does.
        error: why the connection has ended; None: it has not.
        frame_max: the largest frame in bytes, when the login is over; before, the one to ask for, or 0.

        heartbeat_s: the interval of heartbeats, which the driver sends; 0: none.
    """

    def __init__(
        self, target: Target, product: str = "leveret", heartbeat_s: int = 0, frame_max: int = 0
    ) -> None:
        if len(target.vhost.encode("utf-8", "surrogateescape")) > SHORTSTR_BYTES_MAX:
            raise BrokerError(f"the vhost's name is longer than {SHORTSTR_BYTES_MAX} bytes")
        self.blocked = ""
        self.error: BrokerError | None = None
        self.frame_max = frame_max
        self.heartbeat_s = heartbeat_s
        self.server_properties: Table = {}
        self._target = target
        self._product = product
        self._output = spec.PROTOCOL_HEADER
        self._rest = b""
        self._contents: dict[int, _Content] = {}
        self._requests: set[int] = set()

    # The driver's side.

    def send(self, channel: int, method: Method) -> None:
        self._output += methods.method_frame(channel, methods.encode(method))

    def request(self, channel: int, method: Method) -> None:
        """Send a method whose answer is awaited; channel.close is an answer, too."""
        self._requests.add(channel)
        self.send(channel, method)

    def take_output(self) -> bytes:
        """Return what is to be written, since the last call."""
        output, self._output = self._output, b""
        return output

    def end(self, error: BrokerError) -> None:
        """Take note that the connection has ended, unless it had before."""
        if self.error is None:
            self.error = error

    def receive(self, data: bytes) -> list[Event]:
        """Return the events of a read; of one that ends the connection, those before the end."""
        events: list[Event] = []
        if self.error is not None:
            return events
        try:
            self._parse(events, self._rest + data if self._rest else data)
        except BrokerError as error:
            self.end(error)
        except (ProtocolError, struct.error, IndexError) as error:
            self.end(BrokerError(f"the broker sent a malformed frame: {error}"))
        return events

    # Frames.

    def _parse(self, events: list[Event], data: bytes) -> None:
        at, size = 0, len(data)
        while size - at > _FRAME_HEAD_BYTES:
            kind, channel, length = _unpack_frame(data, at)
            start = at + _FRAME_HEAD_BYTES
            end = start + length
            if end >= size:
                if length > _FRAME_BYTES_MAX:
                    raise BrokerError("the peer does not speak AMQP 0-9-1: check host and port")
                break
            if data[end] != spec.FRAME_END:
                raise BrokerError("a frame of the broker does not end in 0xCE")
            at = end + 1
            if kind == spec.FRAME_METHOD:
                at = self._method(events, channel, data, start, end)
            elif kind == spec.FRAME_HEADER:
                self._header(events, channel, data[start:end])
            elif kind == spec.FRAME_BODY:
                self._body(events, channel, data[start:end])
            elif kind != spec.FRAME_HEARTBEAT:
                raise BrokerError(f"the broker sent a frame of type {kind}")
        self._rest = data[at:]

    def _method(self, events: list[Event], channel: int, data: bytes, at: int, end: int) -> int:
        """Take the method, and the message that follows if it has come whole; return where the next frame begins."""
        if self._contents and channel in self._contents:
            raise BrokerError(f"the broker interrupted a message on channel {channel}")
        if end - at == _CONFIRM_BYTES:
            ids, tag, bits = _unpack_confirm(data, at)
            if ids in _CONFIRMS:
                events.append(_new(Confirmed, (channel, tag, bits & 1 == 1, _CONFIRMS[ids])))
                return end + 1
        elif data.startswith(_DELIVER, at):
            return self._deliver(events, channel, data, at, end)
        ids = _unpack_u32(data, at)[0]
        if ids == spec.BASIC_RETURN:
            self._contents[channel] = _Content(data[at:end])
        else:
            self._other(events, channel, methods.decode(ids, data[at + 4 : end]))
        return end + 1

    def _deliver(self, events: list[Event], channel: int, data: bytes, at: int, end: int) -> int:
        size, head_at, tag_at = len(data), end + 1 + _FRAME_HEAD_BYTES, at + 5 + data[at + 4]
        if head_at + _HEAD_BYTES_MIN < size and tag_at + _TAG_BYTES < end:
            kind, other, head_bytes, body_bytes = _unpack_header(data, end + 1)
            head_end = head_at + head_bytes
            body_at = head_end + 1 + _FRAME_HEAD_BYTES
            body_end: int = body_at + body_bytes
            if (
                kind == spec.FRAME_HEADER
                and other == channel
                and head_bytes >= _HEAD_BYTES_MIN
                and body_end < size
                and data.startswith(_pack_frame(spec.FRAME_BODY, channel, body_bytes), head_end + 1)
                and data[head_end] == data[body_end] == spec.FRAME_END
            ):
                tag, redelivered = _unpack_tag(data, tag_at)
                consumer_tag, head = data[at + 5 : tag_at], data[head_at:head_end]
                body = data[body_at:body_end]
                event = channel, consumer_tag, tag, redelivered != 0, head, body
                events.append(_new(Delivered, event))
                return body_end + 1
        self._contents[channel] = _Content(data[at:end])
        return end + 1

    def _header(self, events: list[Event], channel: int, head: bytes) -> None:
        content = self._contents.get(channel)
        if content is None or content.head or len(head) < _HEAD_BYTES_MIN:
            raise BrokerError(f"the broker sent a content header out of place on channel {channel}")
        content.head = head
        content.missing = _unpack_u64(head, 4)[0]
        if not content.missing:
            events.append(self._contents.pop(channel).event(channel))

    def _body(self, events: list[Event], channel: int, part: bytes) -> None:
        content = self._contents.get(channel)
        if content is None or not content.head or len(part) > content.missing:
            raise BrokerError(f"the broker sent a body out of place on channel {channel}")
        content.parts.append(part)
        content.missing -= len(part)
        if not content.missing:
            events.append(self._contents.pop(channel).event(channel))

    # Methods.

    def _other(self, events: list[Event], channel: int, method: Method) -> None:
        """Do what a method asks for, or hand it on as an event."""
        if isinstance(method, methods.ConnectionStart):
            self._start(method)
        elif isinstance(method, methods.ConnectionTune):
            self._tune(method)
        elif isinstance(method, methods.ConnectionBlocked):
            self.blocked = method.reason or method.NAME
        elif isinstance(method, methods.ConnectionUnblocked):
            self.blocked = ""
        elif isinstance(method, methods.ChannelFlow):
            self.blocked = "" if method.active else method.NAME
            self.send(channel, methods.ChannelFlowOk(method.active))
        elif isinstance(method, methods.ConnectionClose):
            self.send(0, methods.ConnectionCloseOk())
            reply = f"{method.reply_code} {method.reply_text}"
            raise BrokerError(f"the broker closed the connection: {reply}")
        elif isinstance(method, methods.BasicCancel):
            events.append(Cancelled(channel, method.consumer_tag))
        else:
            if isinstance(method, methods.ChannelClose):
                self.send(channel, methods.ChannelCloseOk())
                if channel not in self._requests:
                    raise ChannelClosed(method.reply_code, method.reply_text)
            self._requests.discard(channel)
            events.append(Answer(channel, method))

    def _start(self, method: methods.ConnectionStart) -> None:
        if b"PLAIN" not in method.mechanisms.split():
            raise BrokerError("the broker does not offer the mechanism PLAIN")
        self.server_properties = method.server_properties
        capabilities = dict.fromkeys(_CAPABILITIES, True)
        properties = typed_table({"product": self._product, "capabilities": capabilities})
        response = f"\0{self._target.user}\0{self._target.password}".encode()
        self.send(0, methods.ConnectionStartOk(properties, "PLAIN", response))

    def _tune(self, method: methods.ConnectionTune) -> None:
        limits = [limit for limit in (self.frame_max, method.frame_max) if limit]
        self.frame_max = min(limits, default=FRAME_MAX_BYTES)
        tune_ok = methods.ConnectionTuneOk(method.channel_max, self.frame_max, self.heartbeat_s)
        self.send(0, tune_ok)
        self.send(0, methods.ConnectionOpen(self._target.vhost))


def check_answer(request: Method, answer: Method) -> Method:
    """Return the answer to a request.

    Raises:
        ChannelClosed: it is channel.close.
        BrokerError: it does not belong to the request.
    """
    if isinstance(answer, methods.ChannelClose):
        raise ChannelClosed(answer.reply_code, answer.reply_text)
    if answer.IDS != request.IDS + 1:  # of all requests but exchange.unbind
        raise BrokerError(f"the broker answered {request.NAME} with {answer.NAME}")
    return answer


def acks(channel: int, tags: list[int], multiple: bool) -> bytes:
    """Return basic.ack frames for delivery tags; ``multiple`` acknowledges up to the last one."""
    end = b"\x01\xce" if multiple else b"\x00\xce"
    chosen = tags[-1:] if multiple else tags
    return b"".join([_pack_ack(1, channel, 13, spec.BASIC_ACK, tag) + end for tag in chosen])
