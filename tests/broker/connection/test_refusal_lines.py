"""Every refusal that a client can get has exactly one line in the log, and the line says why.

``REFUSALS`` provokes each of them. A test compares the places of the code that make an error with those that the
table reached, so a new refusal without a row fails; ``NOT_OF_A_CLIENT`` names the others.
"""

from __future__ import annotations

import ast
import logging
import re
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from leveret.actors.runtime.signals import KILL
from leveret.amqp import errors
from leveret.amqp import methods as m
from leveret.amqp.tables import encode_table
from leveret.broker.cluster.cluster_rows import LOST_CLUSTER
from leveret.broker.connection.connections import CloseConnection
from leveret.broker.connection.handshake import RefusedError
from leveret.broker.vhost.states import Event
from leveret.core.errors import StoreError
from leveret.core.sizes import SizeLimit
from leveret.metadata.tables import PermissionRow, TopicPermissionRow, UserRow
from leveret.routing.exchange import Exchange
from rigs.broker_rig import HEADER, Client, FullDisk, Rig, durable

ROOT = Path(__file__).parents[3]
LOGIN = b"\0guest\0guest"
TELLS = {
    "capabilities": ("F", {"authentication_failure_close": ("t", True)}),
    "connection_name": ("S", b"billing"),
}
WORD = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|\S*)')
EVENTS = ("connection refused", "connection error", "channel error")
ADDRESSES = "127.0.0.1:40000 -> 127.0.0.1:5672"


def frame(kind: int, channel: int, payload: bytes, end: int = 0xCE) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + bytes([end])


def call(channel: int, ids: tuple[int, int], arguments: bytes = b"") -> bytes:
    return frame(1, channel, struct.pack(">HH", *ids) + arguments)


def publish(key: str = "q", exchange: str = "", body: bytes = b"m", **properties: Any) -> Any:
    return lambda client: client.publish(1, key, body, exchange=exchange, **properties)


def content(*pieces: bytes) -> bytes:
    """A basic.publish on channel 1, and what comes behind it."""
    return m.method_frame(1, m.encode(m.BasicPublish("", "q"))) + b"".join(pieces)


@dataclass
class Refusal:
    """One refusal.

    Attributes:
        method: named in the line.
        reason: part of the line's text or reason.
        deeds: in order: a method (on channel 1), bytes, or a call with the client.
        settings: of the broker.
        code: in the line.
        level: ``channel`` or ``connection``.
    """

    method: str
    reason: str
    deeds: list[Any]
    code: int
    settings: dict[str, Any] = field(default_factory=dict)
    level: str = ""
    channel: int = 1

    def __str__(self) -> str:
        return f"{self.method} {self.reason}"[:60]


def soft(code: int, method: str, reason: str, *deeds: Any, **settings: Any) -> Refusal:
    return Refusal(method, reason, list(deeds), code, settings, "channel")


def hard(
    code: int, method: str, reason: str, *deeds: Any, channel: int = 0, **settings: Any
) -> Refusal:
    return Refusal(method, reason, list(deeds), code, settings, "connection", channel)


# What a row needs beside methods.


def another_user(
    client: Client, configure: str = ".*", write: str = ".*", read: str = ".*"
) -> None:
    access = client.rig.node.access
    access.put(UserRow("guest", access.users["guest"].row.password_hash))
    access.put(PermissionRow("guest", "/", configure, write, read))


def may(**patterns: str) -> Callable[[Client], None]:
    return lambda client: another_user(client, **patterns)


def topic_permission(client: Client) -> None:
    client.rig.node.access.put(TopicPermissionRow("guest", "/", "amq.topic", "^a", "^a"))


def plugin_gone(client: Client) -> None:
    client.rig.node.vhosts["/"].add_exchange(Exchange("x", "x-gone"))


def vhost_limit(name: str) -> Callable[[Client], None]:
    def limit(client: Client) -> None:
        client.rig.node.vhosts["/"].limits = {name: 0}

    return limit


def user_limit(name: str, most: int) -> Callable[[Client], None]:
    def limit(client: Client) -> None:
        client.rig.node.access.users["guest"].limits = {name: most}

    return limit


def kill_channel(client: Client) -> None:
    (reader,) = client.rig.node.connections.readers.values()
    (channel,) = reader.channels._numbers
    client.rig.runtime.exit(channel, KILL)
    client.rig.settle()


def suspend_queue(client: Client) -> None:
    client.rig.runtime.suspend(client.rig.queues["q"].ref)


def kill_queue(client: Client) -> None:
    client.rig.runtime.exit(client.rig.queues["q"].ref, KILL)
    client.rig.settle()


def memory_is_short(client: Client) -> None:
    client.feed(content(frame(2, 1, struct.pack(">HHQH", 60, 0, 2, 0)), frame(3, 1, b"m")))
    client.rig.node.connections.give_up_contents(0)
    client.rig.settle()


def kill_channels_supervisor(client: Client) -> None:
    (reader,) = client.rig.node.connections.readers.values()
    client.rig.runtime.exit(reader.channels_sup, KILL)
    client.rig.settle()


def full_disk(client: Client) -> None:
    rig = client.rig
    store = rig.node.metadata.store = FullDisk(lambda run: rig.clock.call_later(0, run))
    store.is_full = True


def no_queue_numbers(client: Client) -> None:
    def fail() -> int:
        raise StoreError("no space left on device")

    client.rig.node.metadata.store.next_queue_no = fail  # type: ignore[method-assign]


def queue_state(state: str) -> Callable[[Client], None]:
    def end(client: Client) -> None:
        entry = client.rig.queues["q"]
        if state == "crashed":
            client.rig.runtime.exit(entry.supervisor, KILL)
        else:
            entry.ended = state
        client.rig.settle()

    return end


def stop_vhost(client: Client) -> None:
    client.rig.node.vhosts["/"].state.enter(Event.PART_ENDED)


def close_vhost(client: Client) -> None:
    client.rig.node.vhosts["/"].is_closing = True


def another_connection(*methods: m.Method) -> Callable[[Client], None]:
    def connect(client: Client) -> None:
        other = client.rig.session()
        other.send(1, *methods)

    return connect


def wait(seconds: float) -> Callable[[Client], None]:
    return lambda client: client.rig.jump(seconds)


def operator_closes(client: Client) -> None:
    (reader,) = client.rig.node.connections.readers
    client.rig.runtime.send(reader, CloseConnection("maintenance"))
    client.rig.settle()


Q = m.QueueDeclare("q")
QUORUM = durable("q", arguments={"x-queue-type": ("S", b"quorum")})
X = m.ExchangeDeclare("x")
LONG: tuple[str, Any] = ("l", 5)
TEXT: tuple[str, Any] = ("S", b"y")


def arguments(**given: Any) -> dict[str, Any]:
    return {key.replace("_", "-"): value for key, value in given.items()}


def hashing(**given: Any) -> m.ExchangeDeclare:
    return m.ExchangeDeclare("x", "x-consistent-hash", arguments=arguments(**given))


def delaying(kind: bytes | None) -> m.ExchangeDeclare:
    own: dict[str, Any] = {} if kind is None else {"x-delayed-type": ("S", kind)}
    return m.ExchangeDeclare("x", "x-delayed-message", arguments=own)


def numbered(id: Any = TEXT, epoch: int = 0, seq: Any = LONG) -> Any:
    given = {"x-producer-id": id, "x-producer-epoch": ("l", epoch), "x-producer-seq": seq}
    return publish(headers={key: value for key, value in given.items() if value is not None})


REFUSALS = [
    # Missing, reserved and existing names.
    soft(404, "queue.declare", "no queue 'q' in vhost '/'", m.QueueDeclare("q", passive=True)),
    soft(404, "basic.get", "no previously declared queue", m.BasicGet("")),
    soft(404, "queue.bind", "no queue 'q'", m.QueueBind("q", "amq.direct", "k")),
    soft(404, "queue.bind", "no exchange 'x'", Q, m.QueueBind("q", "x", "k")),
    soft(404, "exchange.bind", "no exchange 'y'", X, m.ExchangeBind("y", "x", "k")),
    soft(404, "exchange.declare", "no exchange 'x'", m.ExchangeDeclare("x", passive=True)),
    soft(404, "basic.publish", "no exchange 'x' in vhost '/'", publish(exchange="x")),
    soft(404, "basic.get", "crashed and failed to restart", Q, queue_state("crashed"), m.BasicGet("q")),
    soft(404, "basic.get", "is stopped by supervisor", Q, queue_state("stopped"), m.BasicGet("q")),
    soft(404, "basic.get", "no queue 'q' in vhost '/'", Q, queue_state("deleted"), m.BasicGet("q")),
    soft(403, "queue.declare", "reserved prefix 'amq.*'", m.QueueDeclare("amq.q")),
    soft(403, "exchange.declare", "reserved prefix 'amq.*'", m.ExchangeDeclare("amq.x")),
    soft(403, "exchange.delete", "deletion of system exchange", m.ExchangeDelete("amq.direct")),
    soft(403, "queue.bind", "not permitted on the default exchange", Q, m.QueueBind("q", "", "k")),
    hard(503, "exchange.declare", "unknown exchange type 'odd'", m.ExchangeDeclare("x", "odd"), channel=1),
    soft(406, "exchange.declare", "inequivalent arg 'type'", X, m.ExchangeDeclare("x", "fanout")),
    soft(406, "exchange.declare", "invalid type 'signedint' for arg 'alternate-exchange'",
         m.ExchangeDeclare("x", arguments={"alternate-exchange": ("I", 5)})),
    soft(406, "exchange.delete", "exchange 'x' in vhost '/' in use", X, Q, m.QueueBind("q", "x", "k"),
         m.ExchangeDelete("x", if_unused=True)),
    soft(406, "queue.declare", "inequivalent arg 'durable'", Q, durable("q")),
    soft(406, "queue.delete", "not empty", Q, publish(), m.QueueDelete("q", if_empty=True)),
    soft(406, "queue.delete", "in use", Q, m.BasicConsume("q", "t"), m.QueueDelete("q", if_unused=True)),
    soft(405, "queue.declare", "locked queue 'q'", another_connection(m.QueueDeclare("q", exclusive=True)),
         m.QueueDeclare("q", exclusive=True)),
    # Permissions.
    soft(403, "queue.declare", "access to queue 'q'", may(configure="^x"), Q),
    soft(403, "exchange.declare", "access to exchange 'x'", may(configure="^q"), X),
    soft(403, "basic.publish", "access to exchange 'amq.default'", may(write="^q"), publish()),
    soft(403, "basic.publish", "access to topic 'b'", topic_permission, publish("b", "amq.topic")),
    soft(403, "basic.publish", "internal exchange 'x'", m.ExchangeDeclare("x", internal=True),
         publish(exchange="x")),
    # Arguments.
    soft(406, "queue.declare", "queue limit in vhost '/' (0) is reached", vhost_limit("max-queues"), Q),
    soft(406, "queue.declare", "invalid arg 'x-max-length'",
         m.QueueDeclare("q", arguments=arguments(x_max_length=TEXT))),
    soft(406, "queue.declare", "invalid arg 'x-delivery-limit'",
         m.QueueDeclare("q", arguments=arguments(x_delivery_limit=LONG))),
    soft(406, "queue.declare", "server-named queue for type",
         m.QueueDeclare("", arguments=arguments(x_queue_type=("S", b"quorum")))),
    soft(406, "queue.declare", "invalid property 'non-durable'",
         m.QueueDeclare("q", arguments=arguments(x_queue_type=("S", b"quorum")))),
    soft(406, "queue.declare", "unsupported queue type 'stream'",
         durable("q", arguments=arguments(x_queue_type=("S", b"stream")))),
    soft(406, "queue.bind", "Invalid x-match field type", Q,
         m.QueueBind("q", "amq.headers", "", arguments=arguments(x_match=LONG))),
    soft(406, "queue.bind", "Invalid x-match field value", Q,
         m.QueueBind("q", "amq.headers", "", arguments=arguments(x_match=TEXT))),
    soft(406, "queue.bind", "The binding key must be an integer", Q, hashing(), m.QueueBind("q", "x", "much")),
    soft(406, "queue.bind", "The binding key must be greater than 0", Q, hashing(), m.QueueBind("q", "x", "0")),
    soft(406, "exchange.declare", "mutually exclusive", hashing(hash_header=TEXT, hash_property=TEXT)),
    soft(406, "exchange.declare", "Unsupported property: y", hashing(hash_property=TEXT)),
    soft(406, "exchange.declare", "'x-delayed-type' must be an existing exchange type", delaying(None)),
    soft(406, "exchange.declare", "can't be used for 'x-delayed-type'", delaying(b"x-delayed-message")),
    hard(503, "exchange.declare", "unknown exchange type 'odd'", delaying(b"odd"), channel=1),
    soft(406, "exchange.declare", "invalid type 'long' for arg 'hash-header'", hashing(hash_header=LONG)),
    soft(406, "basic.publish", "exchange type 'x-gone' not found", plugin_gone, publish(exchange="x")),
    soft(406, "basic.consume", "invalid arg 'x-priority'", Q,
         m.BasicConsume("q", arguments=arguments(x_priority=TEXT))),
    soft(406, "basic.consume", "invalid arg 'x-stream-offset'", Q,
         m.BasicConsume("q", arguments=arguments(x_stream_offset=LONG))),
    soft(403, "basic.consume", "in exclusive use", Q, m.BasicConsume("q", "t", exclusive=True),
         m.BasicConsume("q", "u")),
    hard(530, "basic.consume", "attempt to reuse consumer tag 't'", Q, m.BasicConsume("q", "t"),
         m.BasicConsume("q", "t"), channel=1),
    # Quorum queues.
    hard(540, "queue.delete", "queue.delete operations with if-unused flag set are not supported",
         QUORUM, m.QueueDelete("q", if_unused=True), channel=1),
    hard(540, "basic.consume", "does not support global qos", QUORUM, m.BasicQos(0, 5, True),
         m.BasicConsume("q"), channel=1),
    soft(405, "basic.get", "not supported by quorum queues with single active consumer",
         durable("q", arguments=arguments(x_queue_type=("S", b"quorum"), x_single_active_consumer=("t", True))),
         m.BasicGet("q")),
    # Messages and settlement.
    soft(406, "basic.publish", "user_id property set to 'hare'", Q, publish(user_id="hare")),
    # Producers that number their messages.
    soft(406, "basic.publish", "header 'x-producer-seq' is missing", Q, numbered(seq=None)),
    soft(406, "basic.publish", "'x-producer-id' must be a longstr, not long", Q, numbered(LONG)),
    soft(406, "basic.publish", "1 to 255 bytes, not 0", Q, numbered(("S", b""))),
    soft(406, "basic.publish", "'x-producer-seq' must be an integer", Q, numbered(seq=TEXT)),
    soft(406, "basic.publish", "'x-producer-seq' must be 0 to 2^63-1", Q, numbered(seq=("l", -1))),
    soft(406, "basic.publish", "'y' is fenced in queue 'q'", Q, numbered(epoch=2), numbered(epoch=1)),
    soft(406, "basic.publish", "delivery_mode_unknown,7", Q, publish(delivery_mode=7)),
    soft(406, "basic.publish", "invalid expiration 'soon'", Q, publish(expiration="soon")),
    soft(406, "basic.publish", "unacceptable_type_in_header", Q,
         publish(headers={"CC": ("S", b"k")})),
    soft(406, "basic.publish", "message size 65 is larger", Q, publish(body=b"x" * 65),
         message_bytes_max=64),
    soft(406, "basic.ack", "unknown delivery tag 9", m.BasicAck(9)),
    soft(406, "basic.nack", "unknown delivery tag 9", m.BasicNack(9)),
    soft(404, "queue.declare", "no queue 'amq.rabbitmq.reply-to.x'",
         m.QueueDeclare("amq.rabbitmq.reply-to.x")),
    soft(406, "tx.commit", "partial tx completion", Q, m.TxSelect(), publish(), suspend_queue,
         m.TxCommit(), kill_queue),
    soft(406, "basic.publish", "transaction too large: open transactions keep", Q, m.TxSelect(),
         publish(), memory_high_watermark=SizeLimit(1_000)),
    hard(504, "basic.qos", "unexpected command while processing 'tx.commit'", Q, m.TxSelect(),
         publish(), suspend_queue, m.TxCommit(), m.BasicQos(), channel=1),
    soft(406, "tx.commit", "channel is not transactional", m.TxCommit()),
    soft(406, "tx.rollback", "channel is not transactional", m.TxRollback()),
    soft(406, "tx.select", "cannot switch from confirm to tx mode", m.ConfirmSelect(), m.TxSelect()),
    soft(406, "confirm.select", "cannot switch from tx to confirm mode", m.TxSelect(),
         m.ConfirmSelect()),
    soft(406, "basic.publish", "fast reply consumer does not exist",
         publish(reply_to="amq.rabbitmq.reply-to")),
    soft(406, "basic.consume", "reply consumer cannot acknowledge",
         m.BasicConsume("amq.rabbitmq.reply-to")),
    soft(406, "basic.consume", "reply consumer already set",
         m.BasicConsume("amq.rabbitmq.reply-to", no_ack=True),
         m.BasicConsume("amq.rabbitmq.reply-to", no_ack=True)),
    soft(406, "none", "delivery acknowledgement on channel 1 timed out", Q, publish(), m.BasicGet("q"),
         wait(300), consumer_timeout_ms=60_000),
    hard(540, "basic.publish", "immediate=true",
         lambda client: client.feed(m.method_frame(1, m.encode(m.BasicPublish("", "q", False, True)))
         + frame(2, 1, struct.pack(">HHQH", 60, 0, 0, 0))), channel=1),
    hard(540, "channel.flow", "active=false", m.ChannelFlow(False), channel=1),
    hard(540, "basic.qos", "prefetch_size!=0 (7)", m.BasicQos(7), channel=1),
    hard(540, "basic.recover", "requeue=false", m.BasicRecover(False), channel=1),
    # Methods out of place.
    hard(503, "queue.declare-ok", "unimplemented method", m.QueueDeclareOk("q"), channel=1),
    hard(503, "basic.deliver", "unimplemented method", m.BasicDeliver("t", 1)),
    hard(504, "channel.open", "second 'channel.open' seen", m.ChannelOpen()),
    hard(504, "queue.declare", "expected 'channel.open'", lambda client: client.send(2, Q)),
    hard(504, "basic.publish", "expected 'channel.open'",
         frame(1, 7, m.encode(m.BasicPublish("", "q"))) + frame(2, 7, struct.pack(">HHQH", 60, 0, 9, 0))),
    hard(504, "channel.open", "unexpected method in connection state running",
         lambda client: client.send(0, m.ChannelOpen())),
    hard(503, "60.999", "unknown method {60,999}", call(1, (60, 999)), channel=1),
    # Frames.
    hard(501, "none", "unknown_frame", frame(9, 0, b"")),
    hard(501, "none", "frame_too_large", frame(3, 1, bytes(131_100))),
    hard(501, "none", "invalid_frame_end_marker", frame(1, 1, m.encode(Q), end=0)),
    hard(505, "none", "type 8, all octets", frame(8, 1, b"")),
    hard(505, "none", "expected method frame, got non method frame", frame(3, 1, b"x")),
    hard(505, "basic.publish", "got non content header frame", content(m.method_frame(1, m.encode(Q)))),
    hard(505, "basic.publish", "got one for class 10", content(frame(2, 1, struct.pack(">HHQH", 10, 0, 9, 0)))),
    hard(505, "basic.publish", "got non content body frame",
         content(frame(2, 1, struct.pack(">HHQH", 60, 0, 9, 0)), m.method_frame(1, m.encode(Q)))),
    hard(502, "basic.publish", "malformed content header", Q,
         content(frame(2, 1, struct.pack(">HHQH", 60, 0, 0, 0x2000) + b"\0\0\0\x05x"))),
    hard(501, "queue.declare", "cannot decode", call(1, (50, 10), b"\0"), channel=1),
    hard(501, "none", "Malformed UTF-8 in shortstr", call(1, (50, 10), b"\0\0\x02\xff\xfe\0\0\0\0\0"),
         channel=1),
    hard(502, "queue.declare", "malformed table", call(1, (50, 10), b"\0\0\x01q\0\0\0\0\x03\x05ab"),
         channel=1),
    # Limits of connections and channels; the broker's own troubles.
    hard(530, "none", "negotiated channel_max (2047)",
         lambda client: [client.send(n, m.ChannelOpen()) for n in range(2, 2049)]),
    hard(530, "none", "maximum allowed limit of (1)", lambda client: client.send(2, m.ChannelOpen()),
         connection_channels_max=1),
    hard(530, "none", "allowed user limit of (1)", user_limit("max-channels", 1),
         lambda client: client.send(2, m.ChannelOpen())),
    hard(541, "queue.declare", "INTERNAL_ERROR", stop_vhost, Q, channel=1),
    hard(541, "exchange.declare", "INTERNAL_ERROR", stop_vhost, delaying(b"direct"), channel=1),
    hard(541, "queue.declare", "INTERNAL_ERROR", close_vhost, durable("q"), channel=1),
    hard(541, "queue.declare", "INTERNAL_ERROR", full_disk, durable("q"), channel=1),
    hard(541, "queue.declare", "INTERNAL_ERROR", no_queue_numbers, durable("q"), channel=1),
    hard(541, "none", "INTERNAL_ERROR", kill_channel),
    hard(541, "none", "INTERNAL_ERROR", kill_channels_supervisor),
    hard(320, "none", "CONNECTION_FORCED - maintenance", operator_closes),
    hard(506, "none", "RESOURCE_ERROR - message dropped", memory_is_short),
]  # fmt: skip


def do(client: Client, deeds: list[Any]) -> None:
    for deed in deeds:
        if isinstance(deed, m.Method):
            client.send(1, deed)
        elif isinstance(deed, bytes):
            client.feed(deed)
        else:
            deed(client)


def provoke(refusal: Refusal) -> None:
    rig = Rig(**refusal.settings)
    do(rig.session(), refusal.deeds)


# Before connection.open.


def start_ok(response: bytes = LOGIN, mechanism: str = "PLAIN", properties: Any = None) -> bytes:
    method = m.ConnectionStartOk(properties or {}, mechanism, response)
    return HEADER + m.method_frame(0, m.encode(method))


def tune_ok(*values: int) -> bytes:
    return start_ok() + m.method_frame(0, m.encode(m.ConnectionTuneOk(*values)))


OPEN = m.method_frame(0, m.encode(m.ConnectionOpen("/")))
TUNED = tune_ok(10, 131_072, 0)


def remove_permission(rig: Rig) -> None:
    rig.node.access.remove(rig.node.access.rows_of_vhost("/"))


def limit_connections(rig: Rig) -> None:
    rig.node.vhosts["/"].limits = {"max-connections": 0}


def limit_connections_of_user(rig: Rig) -> None:
    rig.node.access.users["guest"].limits = {"max-connections": 0}


def take_vhost_down(rig: Rig) -> None:
    rig.node.vhosts["/"].state.enter(Event.PART_ENDED)


def lose_the_cluster(rig: Rig) -> None:
    rig.node.connections.refusal = LOST_CLUSTER


def common_names(rig: Rig) -> None:
    object.__setattr__(rig.node.settings, "tls_login_from", "common_name")


@dataclass
class Unwanted:
    """A refusal before the connection is open."""

    reason: str
    sent: bytes
    method: str = "connection.start-ok"
    code: int = 0
    user: str = '""'
    before: Callable[[Rig], None] | None = None
    peer: str = "127.0.0.1"
    wait_s: float = 0.0
    client_name: str = '""'
    certificate: dict[str, Any] | None = None  # of a client with TLS; empty: it has none

    def __str__(self) -> str:
        return self.reason[:60]


@dataclass
class Tls:
    """The TLS of a client."""

    certificate: dict[str, Any]

    def getpeercert(self) -> dict[str, Any]:
        return self.certificate


UNWANTED = [
    Unwanted("no AMQP 0-9-1 header but b'GET / HT'", b"GET / HTTP/1.1\r\n", "none"),
    Unwanted("a TLS client; this listener has no TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01", "none"),
    Unwanted("no connection.open within 10 s", b"", "none", wait_s=11),
    Unwanted("no connection.open within 10 s", b"AMQP", "none", wait_s=11),
    Unwanted("no connection.open within 10 s", start_ok(), "none", user="guest", wait_s=11),
    Unwanted("user 'guest' - invalid credentials", start_ok(b"\0guest\0wrong")),
    Unwanted("user 'nobody' - invalid credentials", start_ok(b"\0nobody\0x", properties=TELLS), code=403,
             client_name="billing"),
    Unwanted("user 'guest' can only connect via localhost", start_ok(), peer="192.0.2.7"),
    Unwanted("unknown mechanism 'EXTERNAL'", start_ok(mechanism="EXTERNAL")),
    Unwanted("connection peer presented no TLS (x.509) certificate", start_ok(mechanism="EXTERNAL"),
             certificate={}),
    Unwanted("no name found: the certificate has no common_name", start_ok(mechanism="EXTERNAL"),
             certificate={"subject": ()}, before=common_names),
    Unwanted("user 'alice' - invalid credentials", start_ok(mechanism="EXTERNAL"),
             certificate={"subject": ((("commonName", "alice"),),)}, before=common_names),
    Unwanted("PLAIN response is not NUL user NUL password", start_ok(b"guest")),
    Unwanted("AMQPLAIN response has no string LOGIN",
             start_ok(encode_table({"PASSWORD": ("S", b"x")})[4:], "AMQPLAIN")),
    Unwanted("connection.open where connection.start-ok is due", HEADER + OPEN, "connection.open"),
    Unwanted("a frame of channel 5 during the handshake", HEADER + call(5, (10, 11)), "connection.start-ok"),
    Unwanted("a content during the handshake", HEADER + content(frame(2, 1, struct.pack(">HHQH", 60, 0, 9, 0))),
             "basic.publish"),
    Unwanted("unknown_frame", HEADER + frame(9, 0, b""), "none"),
    Unwanted("cannot decode", HEADER + call(0, (10, 11), b"\0"), "connection.start-ok"),
    Unwanted("negotiated frame_max = 17, allowed are 4096 to 131072", tune_ok(10, 17, 0), "connection.tune-ok",
             user="guest"),
    Unwanted("negotiated channel_max = 0, allowed are 1 to 2047", tune_ok(0, 131_072, 0), "connection.tune-ok",
             user="guest"),
    Unwanted("vhost v not found", TUNED + m.method_frame(0, m.encode(m.ConnectionOpen("v"))),
             "connection.open", 530, "guest"),
    Unwanted("access to vhost '/' refused for user 'guest'", TUNED + OPEN, "connection.open", 530, "guest",
             remove_permission),
    Unwanted("connection limit (0) is reached", TUNED + OPEN, "connection.open", 530, "guest", limit_connections),
    Unwanted("user connection limit (0) is reached", TUNED + OPEN, "connection.open", 530, "guest",
             limit_connections_of_user),
    Unwanted("vhost '/' is down", TUNED + OPEN, "connection.open", 541, "guest", take_vhost_down),
    Unwanted("lost its cluster's store", TUNED + OPEN, "connection.open", 320, "guest", lose_the_cluster),
]  # fmt: skip


def knock(unwanted: Unwanted) -> None:
    has_tls = unwanted.certificate is not None
    rig = Rig(auth_mechanisms=("PLAIN", "AMQPLAIN", "EXTERNAL"))
    client = rig.client(unwanted.peer)
    client.wire.tls = Tls(unwanted.certificate) if has_tls else None
    if unwanted.before is not None:
        unwanted.before(rig)
    if unwanted.sent:
        client.feed(unwanted.sent)
    rig.jump(unwanted.wait_s)


# The tests.


@dataclass
class Line:
    level: int
    event: str
    fields: dict[str, str]


def lines_of(caplog: pytest.LogCaptureFixture) -> list[Line]:
    """Return the lines about connections and channels."""
    lines = []
    for record in caplog.records:
        text = record.getMessage()
        event = WORD.split(text, maxsplit=1)[0].strip()
        if event.startswith(("connection ", "channel ")):
            lines.append(Line(record.levelno, event, dict(WORD.findall(text))))
    return lines


def refused(caplog: pytest.LogCaptureFixture) -> Line:
    """Return the only line about a refusal."""
    lines = [line for line in lines_of(caplog) if line.event in EVENTS]
    assert len(lines) == 1, lines
    return lines[0]


@pytest.fixture(autouse=True)
def _all_levels(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "leveret.broker")


@pytest.mark.parametrize("refusal", REFUSALS, ids=str)
def test_a_refusal_has_its_line(refusal: Refusal, caplog: pytest.LogCaptureFixture) -> None:
    provoke(refusal)

    line = refused(caplog)
    assert (line.event, line.level) == (f"{refusal.level} error", logging.ERROR)
    assert refusal.reason in line.fields.pop("text")
    assert line.fields == {
        "name": f'"{ADDRESSES}"',
        "connection_name": '""',
        "user": "guest",
        "vhost": "/",
        "channel": str(refusal.channel),
        "method": refusal.method,
        "code": str(refusal.code),
    }


@pytest.mark.parametrize("unwanted", UNWANTED, ids=str)
def test_a_refused_connection_has_its_line(
    unwanted: Unwanted, caplog: pytest.LogCaptureFixture
) -> None:
    knock(unwanted)

    line = refused(caplog)
    assert (line.event, line.level) == ("connection refused", logging.ERROR)
    assert unwanted.reason in line.fields.pop("reason")
    assert line.fields == {
        "name": f'"{ADDRESSES.replace("127.0.0.1:4", unwanted.peer + ":4")}"',
        "connection_name": unwanted.client_name,
        "user": unwanted.user,
        "method": unwanted.method,
        "code": str(unwanted.code),
    }


# Errors that are not refusals of a client: "file function" and the reason.
NOT_OF_A_CLIENT = {
    "amqp/table_fields.py _write_table": "the broker writes only tables that it has read, or that an operator has set",
    "amqp/tables.py encode_table": "likewise",
    "broker/connection/channel_table.py _started": "a channel does not start; the reader fails with it",
    "broker/connection/connections.py registered": "the supervisor of connections restarts with all readers",
    "broker/connection/reader.py _connection_started": "a supervisor of channels does not start",
    "broker/connection/reader.py terminate": "the broker stops, as the line of the closed connection says",
    "broker/node/bootstrap.py _bind": "at the start of the broker",
    "broker/queue/calls.py await_remote_deletion": "another node cannot delete a row; its own line says why",
    "broker/registry/cluster_nodes.py missing": "a node of a cluster is down; tests/broker/cluster/test_node_down.py has its line",
    "broker/vhost/auth/auth_backends.py _asked": "a back end refuses; tests/broker/vhost/auth/test_auth_backends.py has its lines",
    "broker/vhost/auth/auth_backends.py _log_in": "likewise",
    "broker/vhost/auth/auth_backends.py check_vhost": "likewise",
    "broker/vhost/auth/auth_backends.py update_secret": "likewise",
    "broker/vhost/metadata/metadata_writer.py _again": "memory differs from the metadata store; its own line says how",
    "broker/vhost/queue_declare.py declare_remote": "another node cannot declare a queue; its own line says why",
    "broker/vhost/vhost.py start_queue": "a queue does not start; its own line says why",
}
ERRORS = {
    name
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, errors.ProtocolError)
} | {"RefusedError", "LoginRefused"}


def places() -> dict[tuple[str, int, int], str]:
    """Return the places in the code that make an error: file and lines, with the function's name."""
    found = {}
    for folder in ("amqp", "broker", "routing"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for function in ast.walk(ast.parse(path.read_text())):
                if not isinstance(function, ast.FunctionDef):
                    continue
                for node in ast.walk(function):
                    if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ERRORS:
                        name = str(path.relative_to(ROOT))
                        found[name, node.lineno, node.end_lineno or 0] = f"{name} {function.name}"
    return found


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> set[tuple[str, int]]:
    """The lines of code that have made an error."""
    seen: set[tuple[str, int]] = set()

    def noting(kind: type[Exception]) -> None:
        make = kind.__init__

        def noted(self: Any, *given: Any, **named: Any) -> None:
            caller: Any = sys._getframe(1)
            while caller.f_code.co_name == "__init__":
                caller = caller.f_back
            path = Path(caller.f_code.co_filename).resolve()
            if path.is_relative_to(ROOT):
                seen.add((str(path.relative_to(ROOT)), caller.f_lineno))
            make(self, *given, **named)

        monkeypatch.setattr(kind, "__init__", noted)

    noting(errors.ProtocolError)
    noting(RefusedError)
    return seen


@pytest.mark.sources
def test_every_place_that_refuses_a_client_has_a_row(made: set[tuple[str, int]]) -> None:
    for refusal in REFUSALS:
        provoke(refusal)
    for unwanted in UNWANTED:
        knock(unwanted)

    missed = {
        f"{function}:{first}"
        for (file, first, last), function in places().items()
        if not any((file, line) in made for line in range(first, last + 1))
        and function not in NOT_OF_A_CLIENT
    }
    assert not missed, "\n".join(sorted(missed))
