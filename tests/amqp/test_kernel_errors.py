"""Streams that are wrong, and RabbitMQ's words for it.

Codes and texts were recorded from RabbitMQ 3.10.8 (Erlang/OTP 25), except where a comment says that
it fails without an answer of its own.

Tests: amqp/content.py
"""

from __future__ import annotations

import struct
from typing import Any

import pytest

from leveret.amqp.kernel import ACK, ERROR, PUBLISH
from rigs.wire.amqp_streams import (
    FRAME_MAX,
    MESSAGE_MAX,
    ack,
    frame,
    head,
    in_reads,
    publish,
    publish_method,
)

METHOD = frame(1, 1, publish_method())
QUEUE_DECLARE = frame(1, 1, b"\x00\x32\x00\x0a" + b"\x00" * 8)
PUBLISH_IDS = 60 << 16 | 40
FRAME, SYNTAX, UNEXPECTED = "FRAME_ERROR - ", "SYNTAX_ERROR - ", "UNEXPECTED_FRAME - "
NO_METHOD = UNEXPECTED + "expected method frame, got non method frame instead"
NO_HEADER = (
    UNEXPECTED + "expected content header for class 60, got non content header frame instead"
)
OTHER_CLASS = UNEXPECTED + "expected content header for class 60, got one for class 50 instead"
NO_BODY = UNEXPECTED + "expected content body, got non content body frame instead"
MALFORMED = SYNTAX + "malformed content header"  # RabbitMQ: 541

ERRORS = {
    "unknown type": (
        frame(9, 1, b"\x00"),
        501,
        FRAME + "type 9, all octets = <<0>>: unknown_frame",
        0,
    ),
    "unknown type on channel 0": (
        frame(7, 0, b"abc"),
        501,
        FRAME + 'type 7, all octets = <<"abc">>: unknown_frame',
        0,
    ),
    "method without ids": (
        frame(1, 1, b"\x00"),
        501,
        FRAME + "type 1, all octets = <<0>>: unknown_frame",
        0,
    ),
    "header cut short": (
        METHOD + frame(2, 1, head(5)[:11]),
        501,
        FRAME + "type 2, all octets = <<0,60,0,0,0,0,0,0,0,0,0>>: unknown_frame",
        0,
    ),
    "heartbeat with payload": (
        frame(8, 0, b"\x01"),
        501,
        FRAME + "type 8, all octets = <<1>>: unknown_frame",
        0,
    ),
    "heartbeat with payload on a channel": (
        frame(8, 1, b"\x01"),
        501,
        FRAME + "type 8, all octets = <<1>>: unknown_frame",
        0,
    ),
    "heartbeat on a channel": (frame(8, 1, b""), 505, UNEXPECTED + "type 8, all octets = <<>>", 0),
    "body on channel 0": (
        frame(3, 0, b"body"),
        505,
        UNEXPECTED + 'type 3, all octets = <<"body">>',
        0,
    ),
    "header on channel 0": (
        frame(2, 0, head(1, b"\x00\x00")),
        505,
        UNEXPECTED + "type 2, all octets = <<0,60,0,0,0,0,0,0,0,0,0,1,0,0>>",
        0,
    ),
    "long body on channel 0": (
        frame(3, 0, b"0123456789abcdefg"),
        505,
        UNEXPECTED + 'type 3, first 16 octets = <<"0123456789abcdef">>',
        0,
    ),
    "payload over frame_max": (
        struct.pack(">BHI", 3, 1, FRAME_MAX + 1),
        501,
        FRAME + "type 3, all octets = <<>>: {frame_too_large,131073,131064}",
        0,
    ),
    "end octet": (
        bytes.fromhex("01 0001 00000005 0014000a00 00"),
        501,
        FRAME + "type 1, all octets = <<0,20,0,10,0>>: {invalid_frame_end_marker,0}",
        0,
    ),
    "end octet of a body": (
        METHOD + frame(2, 1, head(11)) + frame(3, 1, b"first") + frame(3, 1, b"second", end=1),
        501,
        FRAME + 'type 3, all octets = <<"second">>: {invalid_frame_end_marker,1}',
        0,
    ),
    "header over frame_max": (
        METHOD + frame(2, 1, head(1, b"\x00" * FRAME_MAX)),
        501,
        FRAME + "type 2, all octets = <<>>: {frame_too_large,131084,131064}",
        0,
    ),
    "method over frame_max": (
        frame(1, 1, publish_method() + b"\x00" * FRAME_MAX),
        501,
        FRAME + "type 1, all octets = <<>>: {frame_too_large,131084,131064}",
        0,
    ),
    "end octet of a long frame": (
        frame(1, 1, b"\xc8" + bytes(16), end=205),
        501,
        FRAME
        + "type 1, first 16 octets = <<200,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0>>: "
        + "{invalid_frame_end_marker,\n"
        + " " * 66
        + "205}",
        0,
    ),
    "header without a method": (frame(2, 1, head(5)), 505, NO_METHOD, 0),
    "body without a method": (frame(3, 1, b"body"), 505, NO_METHOD, 0),
    "method where a header is due": (METHOD + QUEUE_DECLARE, 505, NO_HEADER, PUBLISH_IDS),
    "ack where a header is due": (METHOD + ack(1), 505, NO_HEADER, PUBLISH_IDS),
    "publish where a header is due": (METHOD + publish(), 505, NO_HEADER, PUBLISH_IDS),
    "body where a header is due": (METHOD + frame(3, 1, b"hello"), 505, NO_HEADER, PUBLISH_IDS),
    "weight": (METHOD + frame(2, 1, head(5, weight=1)), 505, NO_HEADER, PUBLISH_IDS),
    "weight and class": (
        METHOD + frame(2, 1, head(5, class_id=50, weight=1)),
        505,
        NO_HEADER,
        PUBLISH_IDS,
    ),
    "class": (METHOD + frame(2, 1, head(1, class_id=50)), 505, OTHER_CLASS, PUBLISH_IDS),
    "method where a body is due": (
        METHOD + frame(2, 1, head(5)) + QUEUE_DECLARE,
        505,
        NO_BODY,
        PUBLISH_IDS,
    ),
    "header where a body is due": (
        METHOD + frame(2, 1, head(5)) + frame(2, 1, head(5)),
        505,
        NO_BODY,
        PUBLISH_IDS,
    ),
    "frame behind too long a body": (
        METHOD + frame(2, 1, head(3)) + frame(3, 1, b"four") + frame(3, 1, b"more") + ack(1),
        505,
        NO_BODY,
        PUBLISH_IDS,
    ),
    "publish without arguments": (
        frame(1, 1, publish_method()[:4]),
        501,
        FRAME + "cannot decode <<>>",
        PUBLISH_IDS,
    ),
    "publish without bits": (
        frame(1, 1, publish_method(b"")[:-1]),
        501,
        FRAME + "cannot decode <<0,0,0,0>>",
        PUBLISH_IDS,
    ),
    "publish with more behind it": (
        frame(1, 1, publish_method(b"") + b"a"),
        501,
        FRAME + "cannot decode <<0,0,0,0,0,97>>",
        PUBLISH_IDS,
    ),
    "publish whose exchange runs over its end": (
        frame(1, 1, b"\x00\x3c\x00\x28\x00\x00\x09a\x00\x00"),
        501,
        FRAME + "cannot decode <<0,0,9,97,0,0>>",
        PUBLISH_IDS,
    ),
    "update-secret with another end": (
        frame(1, 0, b"\0\x0a\0\x46\0\0\0\x06secret\0")[:-1] + b"\xcd",
        501,
        FRAME + "type 1, first 4 octets = <<0,10,0,70>>: {invalid_frame_end_marker,205}",
        0,
    ),
    "arguments too long to be shown": (
        frame(1, 1, publish_method(b"k" * 100) + b"a"),
        501,
        FRAME + "cannot decode <<0,0,0,100" + ",107" * 100 + ",0,97>>",
        PUBLISH_IDS,
    ),
}
PROPERTIES = {
    "no flags": b"",
    "half of the flags": b"\x00",
    "string cut": b"\x80\x00\x05text",
    "string missing": b"\x80\x00",
    "octet missing": b"\x10\x00",
    "timestamp cut": b"\x00\x40\x00\x00\x00\x00\x00\x00\x01",
    "table cut": b"\x20\x00\x00\x00\x00\x05\x01at\x01",
    "table of 4 GiB": b"\x20\x00\xff\xff\xff\xff\x01at\x01",
    "table length cut": b"\x20\x00\x00\x00",
    "more behind them": b"\x80\x00\x01a\x00",
    "more flags": b"\x80\x01\x01a",
}


def refusal(scanner: Any, reads: list[bytes]) -> tuple[int, str, int]:
    runs = [run for read in reads for run in scanner.scan(read)]
    assert runs[-1][0] == ERROR
    error = runs[-1][1]
    return error.code, error.text.decode("latin-1"), error.method


@pytest.mark.parametrize("name", ERRORS)
def test_refused_in_rabbitmqs_words(scanning: Any, name: str) -> None:
    wire, code, text, method = ERRORS[name]
    shown = text if len(text) <= 255 else text[:252] + "..."

    assert refusal(scanning(FRAME_MAX, MESSAGE_MAX), [wire]) == (code, shown, method)
    assert refusal(scanning(FRAME_MAX, MESSAGE_MAX), in_reads(wire[:400], 1)) == (
        code,
        shown,
        method,
    )


@pytest.mark.parametrize("name", PROPERTIES)
@pytest.mark.parametrize("before", [0, 1, 9])
def test_malformed_properties_are_refused(scanning: Any, name: str, before: int) -> None:
    scanner = scanning(FRAME_MAX, MESSAGE_MAX)

    runs = scanner.scan(publish() * before + publish(b"x", PROPERTIES[name]))

    error = runs[-1][1]
    assert (error.code, str(error), error.method) == (502, MALFORMED, PUBLISH_IDS)
    assert sum(len(run[4]) for run in runs[:-1]) == before


def test_bit_1_of_the_flags_means_nothing(scanning: Any) -> None:
    scanner = scanning(FRAME_MAX, MESSAGE_MAX)

    [run] = scanner.scan(publish(b"x", b"\x80\x02\x01a"))

    assert run[0] == PUBLISH


def test_a_header_over_frame_max_is_refused_behind_a_method_that_is_known(scanning: Any) -> None:
    scanner = scanning(60, MESSAGE_MAX)
    large = b"\x80\x00\x3f" + b"c" * 63

    runs = scanner.scan(publish() * 3 + publish(b"body", large))

    assert [len(run[4]) for run in runs[:-1]] == [3]
    assert str(runs[-1][1]) == "FRAME_ERROR - type 2, all octets = <<>>: {frame_too_large,78,52}"


def test_what_came_before_an_error_comes_before_it_in_the_list(scanning: Any) -> None:
    scanner = scanning(FRAME_MAX, MESSAGE_MAX)

    runs = scanner.scan(publish() * 2 + ack(1) + frame(7, 1, b"") + publish())

    assert [run[0] for run in runs] == [PUBLISH, ACK, ERROR]


@pytest.mark.parametrize("before", [b"", publish() * 2, publish() * 2 + publish(b""), ack(1)])
@pytest.mark.parametrize(
    "wrong", [b"\xff\xce", b"\xff\xce\x00", b"\xff\x00\xce", b"\xff" + b"\x00" * 19 + b"\xce"]
)
@pytest.mark.parametrize("together", [False, True])
def test_octet_255_begins_no_frame_that_is_known(
    scanning: Any, before: bytes, wrong: bytes, together: bool
) -> None:
    scanner = scanning(FRAME_MAX, MESSAGE_MAX)
    reads = [before + wrong] if together else [before, wrong]

    runs = [run for read in [*reads, bytes(200)] for run in scanner.scan(read)]

    assert [run[0] for run in runs][-1] == ERROR
    assert runs[-1][1].text.startswith(b"FRAME_ERROR - type 255")


def test_nothing_comes_after_an_error(scanning: Any) -> None:
    scanner = scanning(FRAME_MAX, MESSAGE_MAX)
    scanner.scan(METHOD + frame(7, 1, b"") + publish()[:-5])

    assert scanner.scan(publish()) == []
    assert scanner.pending == ()
    assert scanner.buffered == 0


@pytest.mark.parametrize("size", [4096, 4089])
def test_a_payload_of_frame_max_is_tolerated(scanning: Any, size: int) -> None:
    scanner = scanning(4096, MESSAGE_MAX)

    [run] = scanner.scan(publish(b"x" * size, part=size))

    assert run[4][0][2] == b"x" * size


def test_too_long_a_body_is_no_error_until_another_frame_comes(scanning: Any) -> None:
    scanner = scanning(FRAME_MAX, MESSAGE_MAX)

    runs = scanner.scan(METHOD + frame(2, 1, head(3)) + frame(3, 1, b"four") * 50)

    assert runs == []
    assert scanner.pending == (1,)
    assert scanner.buffered == 0


def test_an_error_drags_no_frames_of_the_scanner_along(scanning: Any) -> None:
    scanner = scanning(FRAME_MAX, MESSAGE_MAX)

    [(_, error)] = scanner.scan(frame(7, 1, b""))

    assert error.__traceback__ is None
