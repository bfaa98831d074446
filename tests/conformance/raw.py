"""A client of raw frames that hides nothing: every answer is an ``Event``, in the order it came.

``Connection`` is one socket; ``Channel`` sends and reads on one channel number. Nothing here
waits for silence: ``settle`` makes a round trip through a queue and the channel, after which all that
the broker had to say about earlier methods has arrived.
"""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import Any

from conformance import wire
from rigs.waiting import wait_until

ANSWER_TIMEOUT_S = 10.0
CAPABILITIES = {
    "authentication_failure_close": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "publisher_confirms": True,
    "basic.nack": True,
}


@dataclass(slots=True)
class Event:
    """A method with its content, ``heartbeat`` or ``closed`` (the end of the stream)."""

    name: str
    channel: int = 0
    fields: dict[str, Any] = field(default_factory=dict)
    head: bytes = b""
    body: bytes = b""
    frame_sizes: list[int] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        try:
            return self.fields[name]
        except KeyError:
            raise AttributeError(f"{self} has no {name}") from None

    @property
    def properties(self) -> dict[str, Any]:
        return wire.properties_of(self.head)


def soft(code: int, text: str, method: str = "") -> tuple[str, int, str, str]:
    """What ``error_of`` says of a channel.close."""
    return ("channel", code, text, method)


def hard(code: int, text: str, method: str = "") -> tuple[str, int, str, str]:
    """What ``error_of`` says of a connection.close."""
    return ("connection", code, text, method)


def error_of(event: Event) -> tuple[str, int, str, str]:
    """Return scope, code, text and offending method ("" for 0/0) of a close."""
    assert event.name in {"channel.close", "connection.close"}, event
    ids = event.class_id, event.method_id
    method = "" if ids == (0, 0) else wire.NAMES.get(ids, str(ids))
    return event.name.partition(".")[0], event.reply_code, event.reply_text, method


def is_there(witness: Connection, queue: str) -> bool:
    """Ask for a queue, also an exclusive queue of another connection; uses up a channel."""
    reply = witness.channel().call("queue.declare", queue=queue, passive=True)
    return reply.fields.get("reply_code") != 404


class Connection:
    """One socket to the broker, shaken hands with unless told otherwise.

    Attributes:
        answer_timeout_s: until ``call`` gives up.
    """

    answer_timeout_s = ANSWER_TIMEOUT_S

    def __init__(self, address: tuple[str, int], tls: ssl.SSLContext | None = None) -> None:
        self.socket = socket.create_connection(address, ANSWER_TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname=address[0])
        self.buffer = bytearray()
        self.frame_max = 131072
        self.waiting: dict[int, deque[Event]] = defaultdict(deque)
        self.unfinished: dict[int, tuple[Event, int]] = {}
        self.heartbeats: list[float] = []
        self.channels: dict[int, Channel] = {}
        self.ended = False
        self.held: bytes | None = None

    def send_bytes(self, data: bytes) -> None:
        if self.held is None:
            self.socket.sendall(data)
        else:
            self.held += data

    def hold(self) -> None:
        """Keep what is sent from now on, so that it goes out in one write."""
        self.held = b""

    def release(self) -> None:
        data, self.held = self.held or b"", None
        self.socket.sendall(data)

    def send(self, name: str, channel: int = 0, **fields: Any) -> None:
        self.send_bytes(wire.frame(wire.METHOD, channel, wire.method(name, **fields)))

    def call(self, name: str, channel: int = 0, **fields: Any) -> Event:
        """Send, and return the reply or the close; what else came stays to be read."""
        self.send(name, channel, **fields)
        replies = {"basic.get": {"basic.get-ok", "basic.get-empty"}}.get(name, {f"{name}-ok"})
        while True:
            event = self._next(time.monotonic() + self.answer_timeout_s)
            if event.name in {"connection.close", "closed"} or (
                event.channel == channel and event.name in {*replies, "channel.close"}
            ):
                return event
            self.waiting[event.channel].append(event)

    def read(self, channel: int = 0, timeout_s: float = ANSWER_TIMEOUT_S) -> Event:
        """Return the next event of a channel, or the close of the connection."""
        deadline = time.monotonic() + timeout_s
        while True:
            for number in (channel, 0):
                if self.waiting[number]:
                    return self.waiting[number].popleft()
            event = self._next(deadline)
            self.waiting[event.channel].append(event)

    def open(
        self,
        *,
        user: str = "guest",
        password: str = "guest",
        vhost: str = "/",
        mechanism: str = "PLAIN",
        response: str | bytes | None = None,
        capabilities: dict[str, bool] | None = None,
        channel_max: int = 2047,
        frame_max: int = 131072,
        heartbeat: int = 0,
    ) -> Event:
        """Shake hands; return open-ok, or what came in its place."""
        self.send_bytes(b"AMQP\0\0\x09\x01")
        start = self.read()
        assert start.name == "connection.start"
        self.send(
            "connection.start-ok",
            client_properties={
                "capabilities": CAPABILITIES if capabilities is None else capabilities
            },
            mechanism=mechanism,
            response=f"\0{user}\0{password}" if response is None else response,
            locale="en_US",
        )
        tune = self.read()
        if tune.name != "connection.tune":
            return tune
        self.frame_max = frame_max
        self.send(
            "connection.tune-ok", channel_max=channel_max, frame_max=frame_max, heartbeat=heartbeat
        )
        return self.call("connection.open", virtual_host=vhost)

    def channel(self, number: int | None = None) -> Channel:
        """Open the channel of this number, or the first that is free."""
        number = number or max(self.channels, default=0) + 1
        self.channels[number] = Channel(self, number)
        reply = self.call("channel.open", number)
        assert reply.name == "channel.open-ok", reply
        return self.channels[number]

    def close(self) -> Event:
        reply = self.call("connection.close", reply_code=200, reply_text="bye")
        self.drop()
        return reply

    def drop(self) -> None:
        """Leave without a word."""
        self.socket.close()

    def read_until_closed(self, timeout_s: float = ANSWER_TIMEOUT_S) -> list[Event]:
        """Return all events up to the end of the stream."""
        events, deadline = [], time.monotonic() + timeout_s
        while not self.ended:
            events.append(self._next(deadline))
        return events[:-1]

    def is_silent(self) -> bool:
        """Whether nothing but heartbeats has come that was not read."""
        try:
            event = self._next(time.monotonic())
        except TimeoutError:
            return True
        self.waiting[event.channel].append(event)
        return False

    def _next(self, deadline: float) -> Event:
        while True:
            while (event := self._from_buffer()) is None:
                self._fill(deadline)
                if self.ended:
                    return Event("closed")
            if event.name != "heartbeat":
                return event
            self.heartbeats.append(time.monotonic())

    def _fill(self, deadline: float) -> None:
        self.socket.settimeout(max(0.001, deadline - time.monotonic()))
        try:
            data = self.socket.recv(1 << 16)
        except ConnectionResetError:
            data = b""
        self.ended = not data
        self.buffer += data

    def _from_buffer(self) -> Event | None:
        while len(self.buffer) >= 7:
            kind, channel, size = struct.unpack_from(">BHI", self.buffer)
            if len(self.buffer) < size + 8:
                return None
            payload = bytes(self.buffer[7 : 7 + size])
            assert self.buffer[7 + size] == 0xCE
            del self.buffer[: size + 8]
            if event := self._from_frame(kind, channel, payload):
                return event
        return None

    def _from_frame(self, kind: int, channel: int, payload: bytes) -> Event | None:
        if kind == wire.HEARTBEAT:
            return Event("heartbeat")
        if kind == wire.METHOD:
            assert channel not in self.unfinished
            name = wire.NAMES[struct.unpack_from(">HH", payload)]
            event = Event(name, channel, wire.Reader(payload, 4).fields(wire.FIELDS[name]))
            if name not in wire.CONTENT:
                return event
            self.unfinished[channel] = event, -1
            return None
        event, missing = self.unfinished.pop(channel)
        if kind == wire.HEADER:
            event.head, missing = payload, struct.unpack_from(">Q", payload, 4)[0]
        else:
            event.body += payload
            event.frame_sizes.append(len(payload))
            missing -= len(payload)
        if missing:
            self.unfinished[channel] = event, missing
            return None
        return event


class Channel:
    """One channel; methods are called by name: ``channel.call("queue.declare", queue="q")``."""

    def __init__(self, connection: Connection, number: int) -> None:
        self.connection = connection
        self.number = number

    def send(self, name: str, **fields: Any) -> None:
        self.connection.send(name, self.number, **fields)

    def call(self, name: str, **fields: Any) -> Event:
        return self.connection.call(name, self.number, **fields)

    def ok(self, name: str, **fields: Any) -> Event:
        """Call, and want the ``-ok``."""
        reply = self.call(name, **fields)
        assert reply.name not in {"channel.close", "connection.close", "closed"}, reply
        return reply

    def error(self, name: str, **fields: Any) -> tuple[str, int, str, str]:
        """Call, and want an error."""
        return error_of(self.call(name, **fields))

    def publish(
        self,
        routing_key: str = "",
        body: bytes | str = b"",
        exchange: str = "",
        *,
        mandatory: bool = False,
        immediate: bool = False,
        head: bytes | None = None,
        **properties: Any,
    ) -> None:
        """Send a whole content in one write; ``head`` overrules the properties."""
        body, number = wire.as_bytes(body), self.number
        payload = wire.method(
            "basic.publish",
            exchange=exchange,
            routing_key=routing_key,
            mandatory=mandatory,
            immediate=immediate,
        )
        out = wire.frame(wire.METHOD, number, payload)
        out += wire.frame(wire.HEADER, number, head or wire.head(len(body), properties))
        step = self.connection.frame_max - 8
        for at in range(0, len(body), step):
            out += wire.frame(wire.BODY, number, body[at : at + step])
        self.connection.send_bytes(out)

    def read(self, timeout_s: float = ANSWER_TIMEOUT_S) -> Event:
        return self.connection.read(self.number, timeout_s)

    def read_confirms(self, unconfirmed: set[int], left: int = 0) -> None:
        """Take tags out as they are confirmed, in whatever order, until no more than ``left`` are."""
        while len(unconfirmed) > left:
            event = self.read()
            assert event.name == "basic.ack", event
            if event.multiple:
                unconfirmed -= {tag for tag in unconfirmed if tag <= event.delivery_tag}
            else:
                unconfirmed.discard(event.delivery_tag)

    def read_error(self) -> tuple[str, int, str, str]:
        """Read the close that must come next."""
        return error_of(self.read())

    def deliveries(self, count: int) -> list[Event]:
        """Read exactly so many basic.deliver."""
        events = [self.read() for _ in range(count)]
        assert [event.name for event in events] == ["basic.deliver"] * count, events
        return events

    def bodies(self, count: int) -> list[bytes]:
        return [event.body for event in self.deliveries(count)]

    def fill(self, queue: str, bodies: str) -> None:
        """Publish one message for each character."""
        for body in bodies:
            self.publish(queue, body)
        self.settle(queue)

    def settle(self, *queues: str) -> list[Event]:
        """Return all that came until each queue and this channel have answered once more."""
        for queue in queues:
            self.ready(queue)
        self.ok("channel.flow", active=True)
        came = list(self.connection.waiting[self.number])
        self.connection.waiting[self.number].clear()
        return came

    def ready(self, queue: str) -> int:
        """Return how many messages the queue has ready, once it says the same twice.

        RabbitMQ's queue answers the first question before publishes that wait in its mailbox.
        """
        counts = [-2, -1]
        while counts[-1] != counts[-2]:
            reply = self.ok("queue.declare", queue=queue, passive=True)
            counts.append(reply.message_count)
        return counts[-1]

    def get(self, queue: str, *, no_ack: bool = True) -> Event:
        return self.ok("basic.get", queue=queue, no_ack=no_ack)


def arrived(channel: Channel, queue: str) -> Event:
    """Wait for the next message of a queue."""
    found: list[Event] = []

    def has_come() -> bool:
        found[:] = [channel.get(queue)]
        return found[0].name == "basic.get-ok"

    wait_until(has_come)
    return found[0]
