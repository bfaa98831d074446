"""Frames in the wrong place, of the wrong shape, and content cut into frames."""

from __future__ import annotations

import struct

import pytest

from conformance import wire
from conformance.conftest import Connect
from conformance.raw import Channel, error_of, hard
from rigs.nodes import BrokerUnderTest

PUBLISH = wire.frame(1, 1, wire.method("basic.publish", routing_key="nowhere"))
QOS = wire.frame(1, 1, wire.method("basic.qos"))
CONTENT = "UNEXPECTED_FRAME - expected content "
HEADER_DUE = CONTENT + "header for class 60, got non content header frame instead"


def _header(size: int, class_id: int = 60, weight: int = 0) -> bytes:
    return wire.frame(2, 1, struct.pack(">HHQH", class_id, weight, size, 0))


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        (
            wire.frame(7, 1, b"abc"),
            hard(501, 'FRAME_ERROR - type 7, all octets = <<"abc">>: unknown_frame'),
        ),
        (
            wire.frame(7, 0, b"abc"),
            hard(501, 'FRAME_ERROR - type 7, all octets = <<"abc">>: unknown_frame'),
        ),
        (
            wire.frame(7, 1, bytes(range(20))),
            hard(
                501,
                "FRAME_ERROR - type 7, first 16 octets = <<0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15>>:"
                " unknown_frame",
            ),
        ),
        (
            wire.frame(1, 1, b"\0"),
            hard(501, "FRAME_ERROR - type 1, all octets = <<0>>: unknown_frame"),
        ),
        (
            wire.frame(1, 1, struct.pack(">HH", 60, 10)),
            hard(501, "FRAME_ERROR - cannot decode <<>>", "basic.qos"),
        ),
        (
            wire.frame(1, 1, wire.method("basic.cancel", consumer_tag=b"\xff")),
            hard(501, "FRAME_ERROR - Malformed UTF-8 in shortstr"),
        ),
        (
            wire.frame(1, 1, wire.method("access.request", realm=b"a\xc3")),
            hard(501, "FRAME_ERROR - Malformed UTF-8 in shortstr"),
        ),
        (
            wire.frame(1, 0, wire.method("connection.close", reply_text=b"\xc0\x80")),
            hard(501, "FRAME_ERROR - Malformed UTF-8 in shortstr", "connection.close"),
        ),
        (
            wire.frame(3, 1, b"body"),
            hard(505, "UNEXPECTED_FRAME - expected method frame, got non method frame instead"),
        ),
        (
            _header(0),
            hard(505, "UNEXPECTED_FRAME - expected method frame, got non method frame instead"),
        ),
        (
            wire.frame(3, 0, b"body"),
            hard(505, 'UNEXPECTED_FRAME - type 3, all octets = <<"body">>'),
        ),
        (PUBLISH + QOS, hard(505, HEADER_DUE, "basic.publish")),
        (PUBLISH + wire.frame(3, 1, b"x"), hard(505, HEADER_DUE, "basic.publish")),
        (
            PUBLISH + _header(1, class_id=50),
            hard(
                505,
                CONTENT + "header for class 60, got one for class 50 instead",
                "basic.publish",
            ),
        ),
        (PUBLISH + _header(1, weight=1), hard(505, HEADER_DUE, "basic.publish")),
        (
            PUBLISH + _header(4) + QOS,
            hard(505, CONTENT + "body, got non content body frame instead", "basic.publish"),
        ),
        (
            PUBLISH + _header(2) + wire.frame(3, 1, b"four") + QOS,
            hard(505, CONTENT + "body, got non content body frame instead", "basic.publish"),
        ),
        (
            wire.frame(1, 1, wire.method("basic.deliver")) + _header(0),
            hard(503, "COMMAND_INVALID - unimplemented method", "basic.deliver"),
        ),
        (
            wire.frame(1, 1, wire.method("channel.close-ok")),
            hard(503, "COMMAND_INVALID - unimplemented method", "channel.close-ok"),
        ),
        (
            wire.frame(1, 1, wire.method("queue.declare-ok")),
            hard(503, "COMMAND_INVALID - unimplemented method", "queue.declare-ok"),
        ),
    ],
)
def test_frames_out_of_order(
    connect: Connect, sent: bytes, error: tuple[str, int, str, str]
) -> None:
    connection = connect()
    connection.channel(1)

    connection.send_bytes(sent)

    assert error_of(connection.read(1)) == error


def test_a_payload_above_frame_max(connect: Connect) -> None:
    connection = connect(frame_max=4096)
    connection.channel(1)

    connection.send_bytes(wire.frame(3, 1, b"x" * 4097))

    scope, code, text, method = error_of(connection.read(1))
    assert (scope, code, method) == ("connection", 501, "")
    assert text.startswith("FRAME_ERROR - type 3, ")
    assert text.endswith("{frame_too_large,4097,4088}")


def test_a_payload_of_frame_max_is_tolerated(connect: Connect, name: str) -> None:
    connection = connect(frame_max=4096)
    channel = connection.channel(1)
    channel.ok("queue.declare", queue=name, exclusive=True)

    publish = wire.frame(1, 1, wire.method("basic.publish", routing_key=name))
    connection.send_bytes(publish + _header(4096) + wire.frame(3, 1, b"x" * 4096))

    assert channel.get(name).body == b"x" * 4096


def test_a_bad_end_octet(connect: Connect) -> None:
    connection = connect()
    connection.channel(1)

    connection.send_bytes(QOS[:-1] + b"\xcd")

    scope, code, text, method = error_of(connection.read(1))
    assert (scope, code, method) == ("connection", 501, "")
    assert text.startswith("FRAME_ERROR - type 1, ")
    assert "invalid_frame_end_marker" in text


_DECLARE = wire.method("queue.declare")[:-4]


@pytest.mark.parametrize(
    ("payload", "answer"),
    [
        (struct.pack(">HH", 60, 999), (503, "COMMAND_INVALID - unknown method {60,999}")),
        (struct.pack(">HH", 99, 1), (503, "COMMAND_INVALID - unknown method {99,1}")),
        (_DECLARE + b"\0\0\0\4\1xZ\0", (502, "SYNTAX_ERROR - malformed table")),
        (_DECLARE + b"\0\0\0\x09\1xS\0\0\0\x09ab", (502, "SYNTAX_ERROR - malformed table")),
    ],
    ids=["method", "class", "kind of field", "field beyond its table"],
)
def test_what_cannot_be_decoded_is_answered(
    connect: Connect, broker: BrokerUnderTest, payload: bytes, answer: tuple[int, str]
) -> None:
    """Differs from RabbitMQ: its reader crashes and the socket is closed without a word."""
    connection = connect()
    connection.channel(1)

    connection.send_bytes(wire.frame(1, 1, payload))

    if broker.kind == "rabbitmq":
        assert connection.read(1).name == "closed"
    else:
        assert error_of(connection.read(1))[:3] == ("connection", *answer)


def test_empty_body_frames_count_for_nothing(channel: Channel, queue: str) -> None:
    publish = wire.frame(1, 1, wire.method("basic.publish", routing_key=queue))
    bodies = (b"", b"ab", b"", b"", b"cd")

    channel.connection.send_bytes(
        publish + _header(4) + b"".join(wire.frame(3, 1, body) for body in bodies)
    )

    assert channel.get(queue).body == b"abcd"


@pytest.mark.parametrize(
    ("size", "frames"),
    [(0, []), (1, [1]), (4088, [4088]), (4089, [4088, 1]), (10000, [4088, 4088, 1824])],
)
def test_a_delivery_is_cut_at_the_frame_size(
    connect: Connect, queue: str, channel: Channel, size: int, frames: list[int]
) -> None:
    body = bytes(range(256)) * (size // 256 + 1)
    consumer = connect(frame_max=4096).channel()
    consumer.ok("basic.consume", queue=queue, no_ack=True)

    channel.publish(queue, body[:size])

    (delivery,) = consumer.deliveries(1)
    assert (delivery.frame_sizes, delivery.body) == (frames, body[:size])


def test_frames_of_two_channels_interleave(connect: Connect, queue: str) -> None:
    connection = connect()
    first, second = connection.channel(), connection.channel()
    parts = [
        [
            wire.frame(1, number, wire.method("basic.publish", routing_key=queue)),
            wire.frame(2, number, wire.head(4)),
            wire.frame(3, number, b"%d-" % number),
            wire.frame(3, number, b"ok"),
        ]
        for number in (1, 2)
    ]

    connection.send_bytes(b"".join(frame for pair in zip(*parts, strict=True) for frame in pair))

    first.settle(queue)
    second.settle(queue)
    assert {first.get(queue).body, first.get(queue).body} == {b"1-ok", b"2-ok"}


@pytest.mark.parametrize("step", [1, 7, 8, 9, 31])
def test_the_cut_of_the_stream_does_not_matter(channel: Channel, queue: str, step: int) -> None:
    stream = b"".join(
        wire.frame(1, 1, wire.method("basic.publish", routing_key=queue))
        + wire.frame(2, 1, wire.head(5, {"message_id": str(i)}))
        + wire.frame(3, 1, b"body%d" % i)
        for i in range(3)
    )

    for at in range(0, len(stream), step):
        channel.connection.send_bytes(stream[at : at + step])

    channel.settle(queue)
    assert [channel.get(queue).body for _ in range(3)] == [b"body0", b"body1", b"body2"]


def test_access_request(channel: Channel) -> None:
    assert channel.ok("access.request", realm="/data").ticket == 1


def test_many_bad_frames_get_one_answer(connect: Connect) -> None:
    connection = connect()
    connection.channel(1)

    connection.send_bytes(wire.frame(7, 1, b"abc") * 1_000)

    assert error_of(connection.read(1))[1] == 501
    connection.send("connection.close-ok")
    assert connection.read_until_closed() == []
