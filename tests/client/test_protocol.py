"""The protocol alone: the broker's bytes in, events and answers out.

Tests: client/errors.py
"""

from __future__ import annotations

from typing import Any

import pytest

from leveret.amqp import kernel, methods, spec
from leveret.amqp.fields import Method
from leveret.amqp.properties import Properties, head_of
from leveret.amqp.tables import plain
from leveret.client.errors import BrokerError, ChannelClosed
from leveret.client.events import Answer, Cancelled, Confirmed, Delivered, Returned
from leveret.client.protocol import ClientProtocol, acks, check_answer
from leveret.client.target import Target
from leveret.core.message import origin_of

TARGET = Target("h", 5672, "us/er", "p@ss", "/v")


def frame(method: Method, channel: int = 1) -> bytes:
    return methods.method_frame(channel, methods.encode(method))


def head(size: int) -> bytes:
    return head_of(Properties(delivery_mode=2), size)


def returned(body: bytes, frame_max: int = 20) -> bytes:
    method = methods.encode(methods.BasicReturn(312, "NO_ROUTE", "ex", "key"))
    return kernel.content(1, method, frame_max, head(len(body)), body)


def delivered(channel: int, body: bytes, frame_max: int = 131_072) -> bytes:
    message = (origin_of(b"x", b"k"), head(len(body)), body)
    return kernel.deliveries(channel, b"tag", 5, 1, frame_max, [message])


def protocol(**options: Any) -> ClientProtocol:
    made = ClientProtocol(TARGET, **options)
    made.take_output()
    return made


def sent(made: ClientProtocol) -> list[tuple[int, Method]]:
    runs = kernel.Scanner(131_072, 1 << 30).scan(made.take_output())
    return [(run[1], methods.decode(run[2], run[3])) for run in runs]


BODY = b"a body in several frames"
WIRE = (
    frame(methods.BasicAck(7, True))
    + spec.HEARTBEAT_FRAME
    + returned(BODY)
    + frame(methods.BasicNack(9, False, True), 2)
    + returned(b"")
    + delivered(2, BODY, 20)
    + delivered(3, BODY)
    + delivered(3, b"")
    + frame(methods.BasicCancel("tag"), 3)
    + frame(methods.QueueDeclareOk("q", 3, 1), 2)
)
EVENTS = [
    Confirmed(1, 7, True, True),
    Returned(1, "312 NO_ROUTE", origin_of(b"ex", b"key"), head(24), BODY),
    Confirmed(2, 9, False, False),
    Returned(1, "312 NO_ROUTE", origin_of(b"ex", b"key"), head(0), b""),
    Delivered(2, b"tag", 5, True, head(24), BODY),
    Delivered(3, b"tag", 5, True, head(24), BODY),
    Delivered(3, b"tag", 5, True, head(0), b""),
    Cancelled(3, "tag"),
    Answer(2, methods.QueueDeclareOk("q", 3, 1)),
]


@pytest.mark.parametrize("step", [1, 2, 3, 7, 8, 64, 1000])
def test_events_do_not_depend_on_how_the_socket_cuts_the_bytes(step: int) -> None:
    made = protocol()

    found = [event for at in range(0, len(WIRE), step) for event in made.receive(WIRE[at : at + step])]  # fmt: skip

    assert (found, made.error) == (EVENTS, None)


def test_messages_of_channels_may_be_interleaved() -> None:
    first, second = delivered(1, BODY, 20), delivered(2, BODY, 20)
    cut = first.index(b"\x03\x00\x01")

    found = protocol().receive(first[:cut] + second + first[cut:])

    assert [(event.channel, event.body) for event in found] == [(2, BODY), (1, BODY)]  # type: ignore[union-attr]


HEADER = b"\x02\x00\x01\x00\x00\x00\x0e"


@pytest.mark.parametrize(
    ("wire", "text"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak AMQP"),
        (b"AMQP\x00\x00\x09\x01", "does not speak AMQP"),
        (frame(methods.BasicAck(1))[:-1] + b"\x00", "0xCE"),
        (b"\x03\x00\x01\x00\x00\x00\x01x\xce", "out of place"),
        (HEADER + bytes(14) + b"\xce", "out of place"),
        (returned(BODY)[:30] + b"\x03\x00\x01\x00\x00\x00\x00\xce", "body out of place"),
        (returned(BODY)[:30] + HEADER[:6] + b"\x0d" + bytes(13) + b"\xce", "header out of place"),
        (returned(BODY, 100).replace(b"\x00\x18", b"\x00\x17", 1), "body out of place"),
        (b"\x07\x00\x01\x00\x00\x00\x00\xce", "type 7"),
        (b"\x01\x00\x01\x00\x00\x00\x04\x00\x63\x00\x63\xce", "malformed frame"),
        (b"\x01\x00\x01\x00\x00\x00\x02\x00\x63\xce", "malformed frame"),
        (frame(methods.QueueDeclareOk("q"))[:6] + b"\x06" + bytes((0, 50, 0, 11, 9, 9)) + b"\xce", "malformed frame"),
        (b"\x01\x00\x01\x00\x00\x00\x06\x00\x3c\x00\x3c\x01t\xce" + delivered(1, BODY)[29:], "malformed frame"),
        (returned(BODY)[:53] + frame(methods.BasicAck(1)), "interrupted"),
    ],
)  # fmt: skip
def test_bytes_that_are_not_a_brokers_end_the_connection(wire: bytes, text: str) -> None:
    made = protocol()

    found = made.receive(frame(methods.BasicAck(4)) + wire + bytes(64))

    assert found == [Confirmed(1, 4, False, True)]
    assert text in str(made.error)
    assert made.receive(WIRE) == []


# The login and the broker's requests.


def test_the_login_is_plain_and_agrees_on_the_smaller_frame() -> None:
    made = ClientProtocol(TARGET, "a product", heartbeat_s=7, frame_max=8192)
    assert made.take_output() == spec.PROTOCOL_HEADER

    assert made.receive(frame(methods.ConnectionStart(server_properties={"a": ("I", 1)}), 0)) == []
    ((channel, start_ok),) = sent(made)
    assert made.receive(frame(methods.ConnectionTune(2047, 131_072, 60), 0)) == []
    others = sent(made)
    assert made.receive(frame(methods.ConnectionOpenOk(), 0)) == [Answer(0, methods.ConnectionOpenOk())]  # fmt: skip

    assert channel == 0
    assert isinstance(start_ok, methods.ConnectionStartOk)
    assert (start_ok.mechanism, start_ok.response) == ("PLAIN", b"\0us/er\0p@ss")
    properties = plain(start_ok.client_properties)
    assert properties["product"] == "a product"
    assert set(properties["capabilities"].values()) == {True}
    assert others == [(0, methods.ConnectionTuneOk(2047, 8192, 7)), (0, methods.ConnectionOpen("/v"))]  # fmt: skip
    assert (made.frame_max, made.server_properties) == (8192, {"a": ("I", 1)})


@pytest.mark.parametrize(
    ("wanted", "offered", "agreed"),
    [(0, 131_072, 131_072), (0, 0, 131_072), (8192, 0, 8192), (9000, 4096, 4096)],
)
def test_a_frame_max_of_0_is_no_wish(wanted: int, offered: int, agreed: int) -> None:
    made = protocol(frame_max=wanted)

    made.receive(frame(methods.ConnectionTune(2047, offered, 0), 0))

    assert made.frame_max == agreed


def test_a_broker_without_plain_is_refused() -> None:
    made = protocol()

    made.receive(frame(methods.ConnectionStart(mechanisms=b"EXTERNAL AMQPLAIN"), 0))

    assert (str(made.error), sent(made)) == ("the broker does not offer the mechanism PLAIN", [])


def test_a_vhost_that_amqp_cannot_name_is_refused() -> None:
    with pytest.raises(BrokerError, match="longer than 255 bytes"):
        ClientProtocol(Target("h", 1, "u", "p", "é" * 128))


def test_blocked_and_flow_pause_and_resume() -> None:
    made, states = protocol(), []
    for method in (
        methods.ConnectionBlocked("low"), methods.ConnectionUnblocked(), methods.ConnectionBlocked(),
        methods.ConnectionUnblocked(), methods.ChannelFlow(False), methods.ChannelFlow(True),
    ):  # fmt: skip
        assert made.receive(frame(method)) == []
        states.append(made.blocked)

    assert states == ["low", "", "connection.blocked", "", "channel.flow", ""]
    assert sent(made) == [(1, methods.ChannelFlowOk(False)), (1, methods.ChannelFlowOk(True))]


CLOSE = methods.ChannelClose(404, "NOT_FOUND - no queue 'q'", 50, 10)


def test_a_close_of_the_connection_ends_it_behind_the_events_before() -> None:
    made = protocol()

    found = made.receive(
        WIRE + frame(methods.ConnectionClose(320, "CONNECTION_FORCED - bye"), 0) + WIRE
    )

    assert found == EVENTS
    assert str(made.error) == "the broker closed the connection: 320 CONNECTION_FORCED - bye"
    assert sent(made) == [(0, methods.ConnectionCloseOk())]


def test_a_close_of_a_channel_answers_a_request_or_ends_the_connection() -> None:
    made = protocol()
    made.request(1, methods.QueueDeclare("q", True))
    made.take_output()

    assert made.receive(frame(CLOSE)) == [Answer(1, CLOSE)]
    assert (made.error, sent(made)) == (None, [(1, methods.ChannelCloseOk())])
    made.receive(frame(CLOSE))

    assert isinstance(made.error, ChannelClosed)
    assert (made.error.reply_code, str(made.error)) == (404, f"the broker closed the channel: 404 {CLOSE.reply_text}")  # fmt: skip
    assert sent(made) == [(1, methods.ChannelCloseOk())]


def test_the_first_end_is_the_one_that_counts() -> None:
    made = protocol()

    made.end(BrokerError("first"))
    made.end(BrokerError("second"))

    assert (str(made.error), made.receive(WIRE)) == ("first", [])


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (methods.QueueDeclare("q"), methods.QueueDeclareOk("q")),
        (methods.ConnectionClose(), methods.ConnectionCloseOk()),
    ],
)
def test_answers_belong_to_their_requests(request_: Method, answer: Method) -> None:
    assert check_answer(request_, answer) is answer
    with pytest.raises(BrokerError, match=rf"answered {request_.NAME} with basic.qos-ok"):
        check_answer(request_, methods.BasicQosOk())
    with pytest.raises(ChannelClosed, match="404 NOT_FOUND"):
        check_answer(request_, CLOSE)


def test_acks_are_one_for_each_tag_or_one_for_all() -> None:
    assert kernel.Scanner(131_072, 1).scan(acks(3, [5, 6], False)) == [(spec.ACK, 3, [5, 6])]
    assert acks(3, [5, 6], True) == frame(methods.BasicAck(6, True), 3)
