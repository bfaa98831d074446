"""Basic properties: all fourteen, both ways; the quick look; malformed properties are refused.

Tests: amqp/frame_errors.py
"""

from __future__ import annotations

import dataclasses
import datetime
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import header as pamqp_header

from leveret.amqp._kernel_py import Scanner
from leveret.amqp.errors import SyntaxError_
from leveret.amqp.kernel import EXAMINE, PERSISTENT, PUBLISH
from leveret.amqp.properties import (
    Properties,
    decode_properties,
    encode_properties,
    examine,
    head_of,
    with_headers,
)
from rigs.wire.amqp_streams import MESSAGE_MAX, head, publish

HEADERS = {"z": ("L", 5), "a": ("S", b"text")}
EVERYTHING = Properties(
    content_type="text/plain",
    content_encoding="utf-8",
    headers=HEADERS,
    delivery_mode=2,
    priority=9,
    correlation_id="correlation",
    reply_to="reply",
    expiration="1000",
    message_id="message",
    timestamp=2**64 - 1,
    type="type",
    user_id="guest",
    app_id="app",
    cluster_id="cluster",
)
TEXT = st.none() | st.text(st.characters(codec="ascii"), max_size=30)
ANY_PROPERTIES = st.builds(
    Properties,
    content_type=TEXT,
    content_encoding=TEXT,
    headers=st.none() | st.sampled_from([{}, HEADERS]),
    delivery_mode=st.none() | st.integers(0, 255),
    priority=st.none() | st.integers(0, 255),
    correlation_id=TEXT,
    reply_to=TEXT,
    expiration=TEXT,
    message_id=TEXT,
    timestamp=st.none() | st.integers(0, 2**32 - 1),  # pamqp takes larger ones for milliseconds
    type=TEXT,
    user_id=TEXT,
    app_id=TEXT,
    cluster_id=TEXT,
)


def test_bytes_of_some_properties() -> None:
    properties = Properties(content_type="a", delivery_mode=2, timestamp=1, cluster_id="c")

    wire = bytes.fromhex("9044 0161 02 0000000000000001 0163")
    assert encode_properties(properties) == wire
    assert decode_properties(head(0, wire)) == properties


def test_a_head_is_class_weight_size_and_properties() -> None:
    assert head_of(Properties(), 258) == bytes.fromhex("003c 0000 0000000000000102 0000")


def test_all_fourteen_come_back() -> None:
    assert decode_properties(head_of(EVERYTHING, 5)) == EVERYTHING
    assert head_of(EVERYTHING, 5)[12:14] == b"\xff\xfc"


def test_strings_that_are_not_utf8_come_back() -> None:
    wire = head(0, b"\x04\x00\x02\xff\xe9")

    properties = decode_properties(wire)

    assert properties.correlation_id == "\udcff\udce9"
    assert head_of(properties, 0) == wire


@given(ANY_PROPERTIES)
def test_properties_come_back_as_they_were_written(properties: Properties) -> None:
    assert decode_properties(head_of(properties, 7)) == properties


@given(ANY_PROPERTIES)
def test_pamqp_reads_what_is_written(properties: Properties) -> None:
    theirs = pamqp_header.ContentHeader()
    theirs.unmarshal(head_of(properties, 7))

    for field in dataclasses.fields(Properties):
        ours: Any = getattr(properties, field.name)
        if field.name == "cluster_id" and ours is None:
            ours = ""  # as pamqp shows an absent one
        if field.name == "headers" and ours:
            ours = {"z": 5, "a": "text"}
        if field.name == "timestamp" and ours is not None:
            ours = datetime.datetime.fromtimestamp(ours, tz=datetime.UTC)
        name = "message_type" if field.name == "type" else field.name
        assert getattr(theirs.properties, name) == ours, name
    assert theirs.body_size == 7


@given(ANY_PROPERTIES)
def test_the_quick_look_sees_what_the_whole_reading_sees(properties: Properties) -> None:
    seen = examine(head_of(properties, 7))

    assert seen.headers == properties.headers
    assert (seen.delivery_mode, seen.priority) == (properties.delivery_mode, properties.priority)
    assert (seen.reply_to, seen.expiration) == (properties.reply_to, properties.expiration)
    assert seen.user_id == properties.user_id
    assert seen.persistent == (properties.delivery_mode == 2)


@given(ANY_PROPERTIES)
def test_the_kernel_asks_for_a_look_where_there_is_something_to_see(properties: Properties) -> None:
    wire = publish(b"1234567", encode_properties(properties))

    [run] = Scanner(0, MESSAGE_MAX).scan(wire)

    looked_at = (properties.headers, properties.priority, properties.reply_to)
    looked_at += (properties.expiration, properties.user_id)
    must_look = any(value is not None for value in looked_at) or (
        properties.delivery_mode not in (None, 1, 2)
    )
    persistent = PERSISTENT if properties.delivery_mode == 2 else 0
    assert (run[0], run[3]) == (PUBLISH, persistent | (EXAMINE if must_look else 0))


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (None, False),
        ({}, False),
        ({"a": ("S", b"b")}, False),
        ({"CC": ("A", [])}, True),
        ({"a": ("V", None), "BCC": ("A", [])}, True),
    ],
)
def test_a_look_tells_whether_there_may_be_copies(headers: Any, expected: bool) -> None:
    properties = Properties(headers=headers, correlation_id="CC", user_id="BCC")

    assert examine(head_of(properties, 0)).may_have_cc is expected


def test_headers_are_not_looked_into_unless_asked_for() -> None:
    seen = examine(head(0, b"\x38\x00\x00\x00\x00\x03\x01aZ\x02\x07"))

    assert (seen.persistent, seen.priority) == (True, 7)
    with pytest.raises(SyntaxError_, match="malformed table"):
        _ = seen.headers


WRONG = [
    b"",
    b"\x80",
    b"\x80\x00",
    b"\x80\x00\x05text",
    b"\x10\x00",
    b"\x08\x00",
    b"\x20\x00\x00\x00\x00",
    b"\x20\x00\x00\x00\x00\x05\x01aV",
    b"\x20\x00\xff\xff\xff\xff\x01aV",
    b"\x80\x01\x01a",
    b"\x80\x01\x00\x00\x01a",
]


@pytest.mark.parametrize(
    "properties", [*WRONG, b"\x00\x00\x00", b"\x80\x00\x01ab", b"\x00\x40\x00\x00\x00\x00"]
)
def test_what_does_not_fill_the_head_is_refused(properties: bytes) -> None:
    with pytest.raises(SyntaxError_):
        decode_properties(head(0, properties))


@pytest.mark.parametrize("properties", [wrong for wrong in WRONG if wrong[:1] != b"\x80"])
def test_the_quick_look_refuses_what_it_cannot_read(properties: bytes) -> None:
    with pytest.raises(SyntaxError_):
        examine(head(0, properties))


def test_bit_1_of_the_flags_means_nothing() -> None:
    wire = head(0, b"\x10\x02\x02")

    assert examine(wire).persistent
    assert decode_properties(wire) == Properties(delivery_mode=2)


@given(ANY_PROPERTIES)
def test_other_headers_leave_the_rest_as_it_was(properties: Properties) -> None:
    wire = with_headers(head_of(properties, 7), HEADERS)

    rewritten = {"a": ("S", b"text"), "z": ("l", 5)}
    assert decode_properties(wire) == dataclasses.replace(properties, headers=rewritten)
    assert wire[:12] == head_of(properties, 7)[:12]
    assert b"\x01aS\x00\x00\x00\x04text\x01zl" in wire


def test_rewritten_headers_are_sorted() -> None:
    wire = head_of(Properties(headers=HEADERS), 0, rewritten=True)

    assert wire[14:] == bytes.fromhex("00000016 0161 53 00000004 74657874 017a 6c 0000000000000005")


@pytest.mark.parametrize(
    "properties", [Properties(reply_to="x" * 256), Properties(headers={"a": ("b", 999)})]
)
def test_what_does_not_fit_is_not_written(properties: Properties) -> None:
    with pytest.raises(SyntaxError_):
        head_of(properties, 0)


def test_numbers_that_do_not_fit_are_not_written() -> None:
    with pytest.raises(struct.error):
        head_of(Properties(priority=256), 0)
