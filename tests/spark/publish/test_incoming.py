from __future__ import annotations

import pytest

from leveret.amqp import kernel, methods
from leveret.core.message import origin_of
from leveret.spark.publish import edits
from leveret.spark.publish.errors import ConnectionFailed
from leveret.spark.publish.incoming import Answer, Confirmed, Delivered, Incoming, Returned


def frame(method: methods.Method, channel: int = 1) -> bytes:
    return methods.method_frame(channel, methods.encode(method))


def returned(body: bytes) -> bytes:
    method = methods.encode(methods.BasicReturn(312, "NO_ROUTE", "ex", "key"))
    return kernel.content(1, method, 20, edits.head(edits.PERSISTENT, len(body)), body)


BODY = b"a body in several frames"
WIRE = (
    frame(methods.BasicAck(7, True))
    + b"\x08\x00\x00\x00\x00\x00\x00\xce"
    + returned(BODY)
    + frame(methods.BasicNack(9, False, True))
    + returned(b"")
    + kernel.deliveries(
        1, b"tag", 5, 1, 20, [(origin_of(b"x", b"k"), edits.head(edits.PERSISTENT, 24), BODY)]
    )
    + frame(methods.ConnectionBlocked("low on memory"), 0)
)
EVENTS = [
    Confirmed(7, True, True),
    Returned("312 NO_ROUTE", origin_of(b"ex", b"key"), edits.head(edits.PERSISTENT, 24), BODY),
    Confirmed(9, False, False),
    Returned("312 NO_ROUTE", origin_of(b"ex", b"key"), edits.head(edits.PERSISTENT, 0), b""),
    Delivered("tag", 5, True, edits.head(edits.PERSISTENT, 24), BODY),
    Answer(0, methods.ConnectionBlocked("low on memory")),
]


@pytest.mark.parametrize("step", [1, 2, 3, 7, 8, 64, 1000])
def test_events_do_not_depend_on_how_the_socket_cuts_the_bytes(step: int) -> None:
    incoming = Incoming()

    found = [
        event for at in range(0, len(WIRE), step) for event in incoming.feed(WIRE[at : at + step])
    ]

    assert found == EVENTS


@pytest.mark.parametrize(
    ("wire", "text"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak AMQP"),
        (b"AMQP\x00\x00\x09\x01", "does not speak AMQP"),
        (frame(methods.BasicAck(1))[:-1] + b"\x00", "0xCE"),
        (b"\x03\x00\x01\x00\x00\x00\x01x\xce", "out of place"),
        (b"\x02\x00\x01\x00\x00\x00\x0e" + bytes(14) + b"\xce", "out of place"),
        (b"\x07\x00\x01\x00\x00\x00\x00\xce", "type 7"),
        (b"\x01\x00\x01\x00\x00\x00\x04\x00\x63\x00\x63\xce", "malformed frame"),
        (returned(BODY)[:53] + frame(methods.BasicAck(1)), "interrupted"),
    ],
)
def test_bytes_that_are_not_a_brokers_end_the_connection(wire: bytes, text: str) -> None:
    with pytest.raises(ConnectionFailed, match=text):
        Incoming().feed(wire + bytes(64))
