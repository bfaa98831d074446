"""basic.publish: refused and returned messages; content passes untouched."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from conformance import wire
from conformance.conftest import Connect
from conformance.raw import Channel, hard, soft
from rigs.nodes import BrokerUnderTest

PRECONDITION = "PRECONDITION_FAILED - "
TOO_LONG = "315360000001"


def test_the_immediate_flag_closes_the_connection(channel: Channel, queue: str) -> None:
    channel.publish(queue, "m", immediate=True)

    assert channel.read_error() == hard(540, "NOT_IMPLEMENTED - immediate=true", "basic.publish")


def test_a_missing_exchange(channel: Channel) -> None:
    channel.publish("k", "m", exchange="no-x", mandatory=True)

    text = "NOT_FOUND - no exchange 'no-x' in vhost '/'"
    assert channel.read_error() == soft(404, text, "basic.publish")


@pytest.mark.parametrize("body", [b"", b"body", b"x" * 300_000])
def test_mandatory_and_unroutable(channel: Channel, name: str, body: bytes) -> None:
    channel.publish(name, body, mandatory=True, message_id="1", headers={"h": 5})

    returned = channel.read()
    assert returned.fields == {
        "reply_code": 312,
        "reply_text": "NO_ROUTE",
        "exchange": "",
        "routing_key": name,
    }
    assert (returned.body, returned.properties) == (body, {"message_id": "1", "headers": {"h": 5}})


def test_mandatory_and_routable(channel: Channel, queue: str) -> None:
    channel.publish(queue, "m", mandatory=True)

    assert channel.settle(queue) == []


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({"user_id": "bob"}, "user_id property set to 'bob' but authenticated user was 'guest'"),
        ({"delivery_mode": 3}, "invalid message: {delivery_mode_unknown,3}"),
        ({"delivery_mode": 0}, "invalid message: {delivery_mode_unknown,0}"),
        ({"expiration": "abc"}, "invalid expiration 'abc': no_integer"),
        ({"expiration": "-1"}, "invalid expiration '-1': {value_negative,-1}"),
        ({"expiration": "10x"}, "invalid expiration '10x': {leftover_string,\"x\"}"),
        ({"expiration": "1.5"}, "invalid expiration '1.5': {leftover_string,\".5\"}"),
        ({"expiration": " 5"}, "invalid expiration ' 5': no_integer"),
        ({"expiration": '1"'}, 'invalid expiration \'1"\': {leftover_string,"\\""}'),
        ({"expiration": "1\x7f"}, "invalid expiration '1\x7f': {leftover_string,[127]}"),
        (
            {"expiration": "9" * 19},
            f"invalid expiration '{'9' * 19}': {{value_too_large,\n{' ' * 43}{'9' * 19}}}",
        ),
        ({"expiration": ""}, "invalid expiration '': no_integer"),
        (
            {"expiration": TOO_LONG},
            f"invalid expiration '{TOO_LONG}': {{value_too_large,{TOO_LONG}}}",
        ),
    ],
)
def test_properties_that_are_refused(
    channel: Channel, queue: str, properties: dict[str, Any], text: str
) -> None:
    channel.publish(queue, "m", **properties)

    assert channel.read_error() == soft(406, PRECONDITION + text, "basic.publish")


@pytest.mark.parametrize(
    "properties",
    [{"user_id": "guest"}, {"delivery_mode": 2}, {"expiration": "+5000"}, {"priority": 255}],
)
def test_properties_that_pass(channel: Channel, queue: str, properties: dict[str, Any]) -> None:
    channel.publish(queue, "m", **properties)

    channel.settle(queue)
    assert channel.get(queue).properties == properties


def test_an_impersonator_may_say_who_it_is_not(
    connect: Connect, broker: BrokerUnderTest, queue: str, name: str
) -> None:
    broker.control("add_user", name, "secret")
    broker.control("set_user_tags", name, "impersonator")
    broker.control("set_permissions", name, ".*", ".*", ".*")
    channel = connect(user=name, password="secret").channel()

    channel.publish(queue, "m", user_id="bob")

    channel.settle(queue)
    assert channel.get(queue).properties == {"user_id": "bob"}
    broker.control("delete_user", name)


def test_a_routing_key_of_255_bytes(
    channel: Channel, queue: str, exchange: Callable[..., str]
) -> None:
    x = exchange()
    channel.ok("queue.bind", queue=queue, exchange=x, routing_key="k" * 255)

    channel.publish("k" * 255, "m", exchange=x)

    channel.settle(queue)
    assert channel.get(queue).routing_key == "k" * 255


EVERY_FIELD = {
    "t": True,
    "b": wire.Typed("b", -5),
    "B": wire.Typed("B", 250),
    "s": wire.Typed("s", -300),
    "u": wire.Typed("u", 60000),
    "I": wire.Typed("I", -70000),
    "i": wire.Typed("i", 4000000000),
    "l": wire.Typed("l", -(1 << 40)),
    "L": wire.Typed("L", 1 << 40),
    "f": wire.Typed("f", 1.5),
    "d": 2.25,
    "D": wire.Typed("D", (2, 314)),
    "S": "text \N{SNOWMAN}",
    "x": wire.Typed("x", b"\0\xff"),
    "A": [1, "two", [None]],
    "T": wire.Typed("T", 1700000000),
    "F": {"deep": {"deeper": {}}},
    "V": None,
}
ALL_PROPERTIES = {
    "content_type": "text/plain",
    "content_encoding": "utf-8",
    "headers": EVERY_FIELD,
    "delivery_mode": 1,
    "priority": 9,
    "correlation_id": "c",
    "reply_to": "r",
    "expiration": "60000",
    "message_id": "m",
    "timestamp": 1700000000,
    "type": "t",
    "user_id": "guest",
    "app_id": "a",
    "cluster_id": "cl",
}


@pytest.mark.parametrize(
    "head",
    [
        wire.head(4),
        wire.head(4, ALL_PROPERTIES),
        wire.head(4, {"headers": {}}),
        wire.head(4, {"headers": EVERY_FIELD}),
        wire.head(4, {"message_id": "\udcff\udcfe"}),
    ],
    ids=["none", "all", "empty headers", "all field types", "bytes that are not UTF-8"],
)
def test_properties_come_back_byte_for_byte(channel: Channel, queue: str, head: bytes) -> None:
    channel.ok("basic.consume", queue=queue, no_ack=True)

    channel.publish(queue, "body", head=head)

    (delivery,) = channel.deliveries(1)
    assert (delivery.head, delivery.body) == (head, b"body")


@pytest.mark.parametrize(
    "properties",
    [
        struct.pack(">HI", 1 << 13, 100) + b"\3abcS",
        struct.pack(">HI", 1 << 13, 7) + b"\1aS\0\0\0\x09",
        struct.pack(">HI", 1 << 13, 3) + b"\1a?",
    ],
    ids=["longer than the frame", "a string too long", "an unknown letter"],
)
def test_a_corrupt_header_table(
    connect: Connect, broker: BrokerUnderTest, queue: str, properties: bytes
) -> None:
    """Differs from RabbitMQ, which crashes with 541, at once or when it looks at the headers."""
    channel = connect().channel()

    channel.publish(queue, "body", head=wire.head(4, properties))
    channel.send("channel.flow", active=True)

    came = channel.read()
    assert came.name == "connection.close"
    assert came.reply_code == broker.expected(rabbitmq=541, leveret=502)


def test_a_body_of_many_frames(channel: Channel, queue: str) -> None:
    body = bytes(range(256)) * 8192

    channel.publish(queue, body)

    channel.settle(queue)
    got = channel.get(queue)
    assert got.body == body
    assert got.frame_sizes[0] == 131064


def test_the_last_of_many_small_messages_is_there(channel: Channel, queue: str) -> None:
    for number in range(2000):
        channel.publish(queue, b"%d" % number)

    assert channel.ready(queue) == 2000
    channel.ok("basic.consume", queue=queue, no_ack=True)
    assert channel.bodies(2000) == [b"%d" % number for number in range(2000)]


LARGE = bytes(range(256)) * 40_000 + b"end"


@pytest.mark.parametrize("durable", [False, True])
def test_large_bodies_beside_another_channel(channel: Channel, name: str, durable: bool) -> None:
    """Returned, fetched, delivered and redelivered while the other channel is answered."""
    other = channel.connection.channel()
    channel.ok("queue.declare", queue=name, durable=durable)
    mode = 2 if durable else 1
    channel.publish("no-" + name, LARGE, mandatory=True)
    for _ in range(2):
        channel.publish(name, LARGE, delivery_mode=mode)
    channel.publish(name, b"small", delivery_mode=mode)
    assert channel.read().body == LARGE

    other.send("basic.get", queue=name)
    channel.ok("basic.consume", queue=name)
    other.send("queue.declare", queue=name, passive=True)
    assert channel.bodies(2) == [LARGE, b"small"]
    assert other.read().body == LARGE
    assert other.read().name == "queue.declare-ok"
    channel.send("basic.nack", delivery_tag=0, multiple=True, requeue=True)
    again = channel.deliveries(2)
    assert [each.body for each in again] == [LARGE, b"small"]
    assert all(each.redelivered for each in again)
    channel.ok("queue.delete", queue=name)


def test_a_connection_is_closed_behind_a_large_body(channel: Channel, queue: str) -> None:
    channel.publish(queue, LARGE)
    channel.send("basic.get", queue=queue, no_ack=True)

    assert channel.connection.close().name == "connection.close-ok"


def test_a_message_that_is_too_large(channel: Channel, queue: str) -> None:
    """It is refused when its last byte has come; the connection goes on."""
    size = 134217729
    connection = channel.connection
    connection.send_bytes(
        wire.frame(1, 1, wire.method("basic.publish", routing_key=queue))
        + wire.frame(2, 1, wire.head(size))
    )
    piece = wire.frame(3, 1, b"x" * 131064)
    for _ in range(size // 131064):
        connection.send_bytes(piece)
    connection.send_bytes(wire.frame(3, 1, b"x" * (size % 131064)))

    text = "message size 134217729 is larger than configured max size 134217728"
    assert channel.read_error() == soft(406, PRECONDITION + text, "basic.publish")
    assert connection.channel().ready(queue) == 0
