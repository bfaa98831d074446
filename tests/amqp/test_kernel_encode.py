"""What the encoders write, checked by pamqp and by the scanner.

Tests: amqp/confirm_frames.py
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import body, commands
from pamqp import frame as pamqp_frame
from pamqp import header as pamqp_header

from leveret.amqp import _kernel_py as pure
from leveret.amqp.kernel import METHOD
from leveret.core.message import Message, origin_of
from rigs.wire.amqp_streams import FRAME_MAX, MESSAGE_MAX, PLAIN_PROPERTIES, head, publish_method

ORIGIN = origin_of(b"", b"key")


def message(octets: bytes, origin: bytes = ORIGIN, properties: bytes = PLAIN_PROPERTIES) -> Message:
    return origin, head(len(octets), properties), octets


def frames_of(wire: bytes) -> list[tuple[int, Any]]:
    found = []
    while wire:
        size, channel, frame = pamqp_frame.unmarshal(wire)
        found.append((channel, frame))
        wire = wire[size:]
    return found


def deliveries_in(wire: bytes) -> list[tuple[Any, ...]]:
    """Return channel, tag, delivery tag, redelivered, key, sizes of body frames and body of each."""
    found: list[list[Any]] = []
    for channel, frame in frames_of(wire):
        if isinstance(frame, commands.Basic.Deliver):
            method = [frame.consumer_tag, frame.delivery_tag, frame.redelivered]
            method += [frame.exchange, frame.routing_key]
            found.append([channel, *method, None, [], b""])
        elif isinstance(frame, pamqp_header.ContentHeader):
            found[-1][6] = frame.body_size
        else:
            assert isinstance(frame, body.ContentBody)
            found[-1][7].append(len(frame.value))
            found[-1][8] += frame.value
    return [tuple(entry) for entry in found]


def test_each_answer_to_a_publish_is_a_frame(kernel: Any) -> None:
    answers = [(True, 1, False), (True, 1 << 40, True), (False, 7, True), (False, 9, False)]

    frames = frames_of(kernel.confirm_frames(513, answers))

    assert [channel for channel, _ in frames] == [513] * 4
    assert [(type(each), each.delivery_tag, each.multiple) for _, each in frames] == [
        (commands.Basic.Ack, 1, False),
        (commands.Basic.Ack, 1 << 40, True),
        (commands.Basic.Nack, 7, True),
        (commands.Basic.Nack, 9, False),
    ]
    assert all(each.requeue for _, each in frames[2:]), "as RabbitMQ's"


def test_deliveries_are_numbered_and_carry_origin_head_and_body(kernel: Any) -> None:
    messages = [
        message(b"one"),
        message(b"two"),
        message(b"", origin_of(b"amq.topic", b"a.b")),
        message(b"four", properties=b"\x10\x00\x02"),
        message(b"five", origin_of(b"amq.topic", b"a.b", b"blind")),
    ]

    wire = kernel.deliveries(7, b"ctag", 1 << 33, 0, FRAME_MAX, messages)

    first = 1 << 33
    assert deliveries_in(wire) == [
        (7, "ctag", first, False, "", "key", 3, [3], b"one"),
        (7, "ctag", first + 1, False, "", "key", 3, [3], b"two"),
        (7, "ctag", first + 2, False, "amq.topic", "a.b", 0, [], b""),
        (7, "ctag", first + 3, False, "", "key", 4, [4], b"four"),
        (7, "ctag", first + 4, False, "amq.topic", "a.b", 4, [4], b"five"),
    ]


@pytest.mark.parametrize("redelivered", [0, 1, 3, 5, 9])
def test_the_first_are_marked_redelivered(kernel: Any, redelivered: int) -> None:
    wire = kernel.deliveries(1, b"", 1, redelivered, FRAME_MAX, [message(b"x")] * 5)

    assert [(entry[2], entry[3]) for entry in deliveries_in(wire)] == [
        (tag, tag <= redelivered) for tag in range(1, 6)
    ]


@pytest.mark.parametrize(
    ("size", "frame_max", "parts"),
    [
        (10_000, 4096, [4088, 4088, 1824]),
        (4088, 4096, [4088]),
        (4089, 4096, [4088, 1]),
        (8176, 4096, [4088, 4088]),
        (0, 4096, []),
        (1_000_000, 0, [1_000_000]),
    ],
)
def test_bodies_are_split_at_frame_max_less_overhead(
    kernel: Any, size: int, frame_max: int, parts: list[int]
) -> None:
    same = message(b"b" * size)

    wire = kernel.deliveries(1, b"t", 1, 1, frame_max, [same, same, message(b"tail")])

    found = deliveries_in(wire)
    assert [entry[7] for entry in found] == [parts, parts, [4]]
    assert [len(entry[8]) for entry in found] == [size, size, 4]


def test_nothing_is_written_for_no_messages(kernel: Any) -> None:
    assert kernel.deliveries(1, b"t", 1, 0, FRAME_MAX, []) == b""


def test_equal_heads_of_bodies_with_other_sizes_do_not_mislead(kernel: Any) -> None:
    shared = head(4)
    messages = [(ORIGIN, shared, b"four"), (ORIGIN, shared, b"three"), (ORIGIN, shared, b"")]

    wire = kernel.deliveries(1, b"t", 1, 0, FRAME_MAX, messages)

    assert [entry[8] for entry in deliveries_in(wire)] == [b"four", b"three", b""]


def test_content_writes_any_method_with_its_content(kernel: Any) -> None:
    returned = commands.Basic.Return(312, "NO_ROUTE", "x", "key")
    payload = pamqp_frame.marshal(returned, 1)[7:-1]

    wire = kernel.content(3, payload, 4096, head(5000), b"b" * 5000)

    found = frames_of(wire)
    assert {channel for channel, _ in found} == {3}
    assert found[0][1].reply_text == "NO_ROUTE"
    assert found[1][1].body_size == 5000
    assert [len(frame.value) for _, frame in found[2:]] == [4088, 912]


def test_content_without_body_has_no_body_frame(kernel: Any) -> None:
    assert len(frames_of(kernel.content(1, publish_method(), 4096, head(0), b""))) == 2


@pytest.mark.parametrize("frame_max", [1, 7, 8])
def test_a_frame_max_without_room_for_a_body_is_refused(kernel: Any, frame_max: int) -> None:
    with pytest.raises(ValueError, match="no room for a body"):
        kernel.deliveries(1, b"t", 1, 0, frame_max, [message(b"x")])
    with pytest.raises(ValueError, match="no room for a body"):
        kernel.content(1, publish_method(), frame_max, head(1), b"x")


@given(
    st.lists(st.tuples(st.integers(0, 2), st.binary(max_size=40)), max_size=12)
    | st.lists(st.tuples(st.integers(0, 2), st.binary(min_size=2, max_size=2)), max_size=12),
    st.integers(0, 12),
    st.sampled_from([9, 24, 4096, 0]),
)
def test_deliveries_are_what_content_writes_one_by_one(
    script: list[tuple[int, bytes]], redelivered: int, frame_max: int
) -> None:
    origins = [origin_of(b"", b"a"), origin_of(b"x", b""), origin_of(b"x", b"\xff")]
    properties = [PLAIN_PROPERTIES, b"\x10\x00\x02", b"\x10\x00\x01"]
    messages = [
        message(octets, origins[which], properties[len(octets) and octets[0] % 3])
        for which, octets in script
    ]
    written = pure.deliveries(5, b"tag", 100, redelivered, frame_max, messages)

    expected = b"".join(
        pure.content(
            5,
            b"\x00\x3c\x00\x3c\x03tag%b%c%b"
            % ((100 + place).to_bytes(8, "big"), place < redelivered, one[0]),
            frame_max,
            one[1],
            one[2],
        )
        for place, one in enumerate(messages)
    )
    assert written == expected


def test_what_a_kernel_writes_its_scanner_reads(kernel: Any) -> None:
    wire = kernel.content(2, publish_method(), 4096, head(9000), b"z" * 9000)
    scanner = kernel.Scanner(4096, MESSAGE_MAX)

    [run] = scanner.scan(wire)

    assert run[1] == 2
    assert run[4] == [message(b"z" * 9000)]
    assert kernel.Scanner(FRAME_MAX, 1).scan(
        kernel.deliveries(2, b"t", 1, 0, 4096, [message(b"")])
    )[0][:3] == (METHOD, 2, 60 << 16 | 60)
