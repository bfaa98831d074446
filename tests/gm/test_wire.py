"""Frames as bytes: round trips, untouched messages, and bytes that are no frame."""

from __future__ import annotations

import struct
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.gm import wire
from leveret.gm.records.group import MemberId, Stamp
from leveret.gm.ring.frames import (
    Activity,
    Ask,
    CatchUp,
    Check,
    Entry,
    Frame,
    JoinRequest,
    NotReady,
    Welcome,
)
from leveret.gm.wire import GmWireError, decode, encode

NUMBERS = st.integers(0, 2**63 - 1)
STAMPS = st.builds(Stamp, NUMBERS, NUMBERS)
MEMBERS = st.builds(MemberId, st.text(max_size=20), NUMBERS)
ENTRIES = st.lists(
    st.builds(
        Entry,
        MEMBERS,
        NUMBERS,
        st.lists(st.none() | st.binary(max_size=40), max_size=5),
        st.integers(-1, 2**63 - 1),
    ),
    max_size=4,
)
FRAMES: st.SearchStrategy[Frame] = st.one_of(
    st.builds(Activity, STAMPS, ENTRIES),
    st.builds(CatchUp, STAMPS, ENTRIES, st.booleans(), st.booleans()),
    st.builds(Ask, STAMPS, st.none() | MEMBERS),
    st.builds(Check, STAMPS),
    st.builds(JoinRequest, STAMPS),
    st.builds(Welcome, STAMPS),
    st.builds(NotReady, STAMPS),
)


@given(FRAMES)
def test_a_frame_is_read_as_it_was_written(frame: Frame) -> None:
    read = decode(b"".join(encode(frame)))

    assert read == frame
    assert type(read) is type(frame)


def test_messages_are_among_the_pieces_as_they_are() -> None:
    message = b"x" * 1_000_000
    entry = Entry(MemberId("n", 1), 0, [b"a", None, message], -1)

    pieces = encode(Activity(Stamp(1, 1), [entry]))

    assert pieces[-1] is message
    assert sum(map(len, pieces)) < len(message) + 60


def test_short_messages_are_one_piece() -> None:
    frame = Activity(Stamp(1, 1), [Entry(MemberId("n", 1), 0, [b"a", None, b"bc"], -1)])

    (piece,) = encode(frame)

    assert piece.endswith(b"abc")
    assert decode(piece) == frame


def raw(header: Any, bodies: bytes = b"") -> bytes:
    packed = header if isinstance(header, bytes) else msgpack.packb(header)
    return struct.pack(">I", len(packed)) + packed + bodies


MEMBER = ["n", 1]
MALFORMED: dict[str, bytes] = {
    "nothing": b"",
    "a short size": b"\0\0\0",
    "a header beyond the end": b"\0\0\0\x09\x93",
    "no msgpack": raw(b"\xc1"),
    "half a header": raw(msgpack.packb([4, 1, 1])[:-1]),
    "bytes behind the header": raw(msgpack.packb([4, 1, 1]) + b"\0"),
    "no list": raw(7),
    "no version": raw([4, 1]),
    "an unknown kind": raw([99, 1, 1]),
    "a kind that is a list": raw([[4], 1, 1]),
    "a negative epoch": raw([4, -1, 1]),
    "a version that is true": raw([4, 1, True]),
    "a version beyond 63 bits": raw([4, 1, 2**63]),
    "a value too many": raw([4, 1, 1, 1]),
    "bytes behind a frame": raw([4, 1, 1], b"x"),
    "an activity without entries": raw([1, 1, 1]),
    "entries that are a text": raw([1, 1, 1, "abc"]),
    "entries that are a number": raw([1, 1, 1, 5]),
    "a short entry": raw([1, 1, 1, [[MEMBER, 0, 0]]]),
    "a member without a number": raw([1, 1, 1, [[["n"], 0, 0, []]]]),
    "a member that is a text": raw([1, 1, 1, [["ab", 0, 0, []]]]),
    "a node that is a number": raw([1, 1, 1, [[[1, 1], 0, 0, []]]]),
    "a node with a long name": raw([1, 1, 1, [[["n" * 2000, 1], 0, 0, []]]]),
    "a negative first number": raw([1, 1, 1, [[MEMBER, -1, 0, []]]]),
    "an acknowledgement below -1": raw([1, 1, 1, [[MEMBER, 0, -2, []]]]),
    "sizes that are a number": raw([1, 1, 1, [[MEMBER, 0, 0, 3]]]),
    "a negative size": raw([1, 1, 1, [[MEMBER, 0, 0, [-3]]]]),
    "a size that is a text": raw([1, 1, 1, [[MEMBER, 0, 0, ["3"]]]], b"abc"),
    "a message beyond the end": raw([1, 1, 1, [[MEMBER, 0, 0, [3]]]], b"ab"),
    "bytes behind the last message": raw([1, 1, 1, [[MEMBER, 0, 0, [3]]]], b"abcd"),
    "a catch-up without flags": raw([2, 1, 1, []]),
    "a catch-up with a number for a flag": raw([2, 1, 1, 1, True, []]),
    "a question of a text": raw([3, 1, 1, "n"]),
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED)
def test_bytes_that_are_no_frame_are_an_error(data: bytes) -> None:
    with pytest.raises(GmWireError, match="frame of "):
        decode(data)


@given(FRAMES, st.data())
def test_a_damaged_frame_is_an_error_or_a_frame(frame: Frame, data: st.DataObject) -> None:
    packed = bytearray(b"".join(encode(frame)))
    at = data.draw(st.integers(0, len(packed) - 1))
    packed[at] = data.draw(st.integers(0, 255))
    try:
        decode(packed)
    except GmWireError:
        return


@given(st.binary(max_size=60))
def test_any_bytes_are_an_error_or_a_frame(data: bytes) -> None:
    try:
        decode(data)
    except GmWireError:
        return


@pytest.mark.parametrize(("bound", "value"), [("HEADER_BYTES_MAX", 10), ("FRAME_BYTES_MAX", 1000)])
def test_a_frame_beyond_the_bounds_is_neither_written_nor_read(
    monkeypatch: pytest.MonkeyPatch, bound: str, value: int
) -> None:
    frame = Activity(Stamp(1, 1), [Entry(MemberId("n", 1), 0, [b"x" * 1000], -1)])
    packed = b"".join(encode(frame))
    monkeypatch.setattr(wire, bound, value)

    with pytest.raises(GmWireError, match="frame_bytes"):
        encode(frame)
    with pytest.raises(GmWireError, match="frame of "):
        decode(packed)
