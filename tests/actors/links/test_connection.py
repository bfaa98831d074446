"""The protocol without I/O: frames, runs, chunks, credit, signals, and bytes that are none.

Tests: actors/links/frames.py, actors/links/limits.py, actors/links/streams.py
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.actors.links.codec import BODY_BYTES_MIN, Codec
from leveret.actors.links.connection import Connection
from leveret.actors.links.frames import HEADER, LARGE, RUN_BYTES_MAX, Kind, frame
from leveret.actors.links.limits import CHUNK_BYTES_MAX, SIGNAL_BYTES_MAX, LinkLimits
from leveret.actors.links.sendable import Pieces, WireError
from leveret.actors.links.streams import InStream, OutStream
from leveret.actors.runtime.calls import From
from leveret.actors.runtime.ref import Ref
from leveret.core.errors import ConfigError


class NoActors:
    """A codec's peer for messages without addresses."""

    def name_of(self, ref: Ref) -> tuple[Any, int]:
        raise WireError(f"{ref} is not expected")

    def ref_of(self, node: Any, number: int) -> Ref:
        raise WireError(f"{node} {number} is not expected")

    def pack_from(self, frm: From) -> Any:
        raise WireError("calls are not expected")

    def unpack_from(self, frm: Any) -> From:
        raise WireError("calls are not expected")


class End:
    """One end, and what it has heard."""

    def __init__(self, mine: int, theirs: int, limits: LinkLimits | None = None) -> None:
        codec = Codec(NoActors(), has_bodies=True, run_bytes_max=RUN_BYTES_MAX)
        self.connection = Connection(mine, theirs, limits or LinkLimits(), codec, self)
        self.seen: list[Any] = []
        self.closed_count = 0
        self.may_grant = True

    def opened(self, payload: memoryview) -> tuple[Any, Any]:
        return bytes(payload), None

    def deliver(self, stream: InStream, messages: list[Any]) -> None:
        self.seen += [(stream.sender, message) for message in messages]

    def signal(self, payload: memoryview) -> None:
        self.seen.append(("signal", bytes(payload)))

    def closed(self, stream: OutStream) -> None:
        self.closed_count += 1

    def wake(self) -> None:
        """Nothing: the test takes by itself."""

    def may(self, _: InStream) -> bool:
        return self.may_grant

    def take_all(self) -> bytes:
        data = b""
        while parts := self.connection.take(100_000):
            data += b"".join(parts)
        return data

    def of(self, sender: bytes) -> list[Any]:
        return [message for name, message in self.seen if name == sender]


def pair(limits: LinkLimits | None = None) -> tuple[End, End]:
    return End(1, 2, limits), End(2, 1, limits)


def settle(one: End, other: End) -> None:
    """Carry bytes and grants until nothing moves."""
    for _ in range(10_000):
        moved = False
        for end, to in ((one, other), (other, one)):
            data = end.take_all()
            if data:
                to.connection.receive(data)
                to.connection.grant(to.may)
                moved = True
        if not moved:
            return
    raise AssertionError("it never comes to rest")


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=20)
    | st.binary(max_size=50)
    | st.builds(bytes, st.integers(BODY_BYTES_MIN - 1, BODY_BYTES_MIN + 1)),
    lambda values: (
        st.lists(values, max_size=4)
        | st.tuples(values, values)
        | st.dictionaries(st.text(max_size=3) | st.integers(0, 9), values, max_size=3)
    ),
    max_leaves=8,
)


@given(st.lists(st.tuples(st.sampled_from([b"s", b"t"]), VALUES), max_size=30), st.integers(1))
def test_messages_arrive_as_they_were_however_the_bytes_are_cut(
    mails: list[tuple[bytes, Any]], cutting: int
) -> None:
    one, other = pair()
    streams = {name: one.connection.open(name, None) for name in (b"s", b"t")}
    for name, value in mails:
        one.connection.send(streams[name], value)
    data = one.take_all()
    cuts = random.Random(cutting)
    at = 0
    while at < len(data):
        step = cuts.choice((1, 3, 13, 100, 70_000))
        other.connection.receive(data[at : at + step])
        at += step

    for name in (b"s", b"t"):
        assert other.of(name) == [value for sent, value in mails if sent == name]
    assert one.connection.unsent_bytes == 0


@given(st.integers(0, 2**32), st.binary(min_size=1, max_size=200))
def test_garbage_breaks_the_link_and_nothing_else(seed: int, garbage: bytes) -> None:
    one, other = pair()
    stream = one.connection.open(b"s", None)
    for number in range(5):
        one.connection.send(stream, b"x" * number * 30_000)
    data = bytearray(one.take_all())
    at = random.Random(seed).randrange(len(data))
    data[at : at + len(garbage)] = garbage
    try:
        other.connection.receive(bytes(data))
    except WireError:
        return
    assert len(other.of(b"s")) <= 5


def head(size: int, kind: int, stream: int = 1, incarnation: int = 1) -> bytes:
    return HEADER.pack(size, incarnation, kind, stream)


OPEN = frame(1, Kind.OPEN, 1, b"s")
MALFORMED = [
    (head(0, Kind.HEARTBEAT, incarnation=9), "incarnation 9, expected 1"),
    (head(1, Kind.HEARTBEAT), "not allowed"),
    (head(0, 99), "not allowed"),
    (head(RUN_BYTES_MAX + 1, Kind.RUN), "not allowed"),
    (head(CHUNK_BYTES_MAX + 9, Kind.FIRST), "not allowed"),
    (head(SIGNAL_BYTES_MAX + 1, Kind.SIGNAL), "not allowed"),
    (OPEN + OPEN, "cannot be opened"),
    (frame(1, Kind.OPEN, 0, b"s"), "cannot be opened"),
    (frame(1, Kind.RUN, 7, b"\xc0"), "not open"),
    (OPEN + frame(1, Kind.RUN, 1, b"\xc1"), "cannot be read"),
    (OPEN + frame(1, Kind.RUN, 1, b"\xa5abc"), "cut off"),
    (OPEN + frame(1, Kind.MORE, 1, b"x"), "has not begun"),
    (OPEN + head(3, Kind.FIRST) + b"abc", "at least 8"),
    (OPEN + frame(1, Kind.FIRST, 1, LARGE.pack(2**31, 5)), "limit"),
    (OPEN + frame(1, Kind.FIRST, 1, LARGE.pack(10, 11)), "limit"),
    (OPEN + frame(1, Kind.FIRST, 1, LARGE.pack(10, 0)), "limit"),
    (OPEN + frame(1, Kind.FIRST, 1, LARGE.pack(2, 2) + b"\xc0\xc0\xc0"), "longer than the 2"),
    (OPEN + frame(1, Kind.FIRST, 1, LARGE.pack(2, 1) + b"\xc0\xc0"), "behind the last body"),
    (OPEN + 2 * frame(1, Kind.FIRST, 1, LARGE.pack(9, 2) + b"\xc0"), "under way"),
    (OPEN + frame(1, Kind.FIRST, 1, LARGE.pack(9, 2)) + frame(1, Kind.RUN, 1, b"\xc0"), "within"),
    (OPEN + frame(1, Kind.FIRST, 1, LARGE.pack(9, 2)) + frame(1, Kind.SIGNAL, 1, b""), "within"),
    (OPEN + frame(1, Kind.FIRST, 1, LARGE.pack(9, 2)) + frame(1, Kind.CLOSE, 1), "within"),
    (frame(1, Kind.CLOSE, 1), "not open"),
    (frame(1, Kind.GRANT, 1, b"12345678"), "not open"),
]


@pytest.mark.parametrize(("data", "text"), MALFORMED)
def test_malformed_frames_are_refused_with_what_is_wrong(data: bytes, text: str) -> None:
    _, other = pair()
    with pytest.raises(WireError, match=text):
        other.connection.receive(data)


def test_the_17th_large_mail_at_once_is_refused() -> None:
    _, other = pair()
    begin = [
        frame(1, Kind.OPEN, number, b"s") + frame(1, Kind.FIRST, number, LARGE.pack(9, 2))
        for number in range(1, 18)
    ]
    other.connection.receive(b"".join(begin[:16]))
    with pytest.raises(WireError, match="under way"):
        other.connection.receive(begin[16])


def test_large_mails_of_many_streams_take_turns_sixteen_at_a_time() -> None:
    one, other = pair(LinkLimits(chunk_bytes=10_000))
    streams = [one.connection.open(b"%d" % number, None) for number in range(40)]
    for stream in streams:
        for _ in range(2):
            one.connection.send(stream, bytes(100_000))
        one.connection.send(stream, "behind")
    small = one.connection.open(b"small", None)
    one.connection.send(small, "first")
    other.connection.receive(b"".join(one.connection.take(1)))
    assert other.seen == [(b"small", "first")]
    settle(one, other)

    for number in range(40):
        assert [len(each) for each in other.of(b"%d" % number)] == [100_000, 100_000, 6]


def test_mail_of_the_same_stream_stays_behind_the_rest_of_a_large_one() -> None:
    one, other = pair()
    stream = one.connection.open(b"s", None)
    one.connection.send(stream, bytes(600_000))
    other.connection.receive(b"".join(one.connection.take(1)))
    one.connection.send(stream, "behind")
    settle(one, other)

    assert [len(each) for each in other.of(b"s")] == [600_000, 6]


def test_a_large_mail_has_its_turn_beside_a_flood_of_small_ones() -> None:
    one, other = pair()
    large, small = (one.connection.open(name, None) for name in (b"l", b"s"))
    one.connection.send(large, bytes(1_000_000))
    for _ in range(10):
        for _ in range(100):
            one.connection.send(small, bytes(1_000))
        other.connection.receive(b"".join(one.connection.take(1)))

    assert [len(each) for each in other.of(b"l")] == [1_000_000]


def test_what_waits_is_counted_until_it_is_taken() -> None:
    one, other = pair(LinkLimits(credit_messages=10))
    other.may_grant = False
    stream = one.connection.open(b"s", None)
    for number in range(100):
        one.connection.send(stream, b"x" * 30_000 * (number % 3))
    settle(one, other)
    left = 100 - len(other.seen)
    assert one.connection.unsent_bytes > left * 20_000
    other.may_grant = True
    for _ in range(20):
        other.connection.tick(other.may)
        settle(one, other)

    assert len(other.seen) == 100
    assert one.connection.unsent_bytes == 0


def test_chunks_are_no_longer_than_said() -> None:
    one, _ = pair(LinkLimits(chunk_bytes=50_000))
    one.connection.send(one.connection.open(b"s", None), [b"%d" % 1 * 60_000, bytes(300_000)])
    data, sizes = one.take_all(), []
    while data:
        size, _, kind, _ = HEADER.unpack_from(data)
        sizes.append((kind, size))
        data = data[HEADER.size + size :]

    assert max(size for _, size in sizes) == 50_000 + LARGE.size
    assert [kind for kind, _ in sizes] == [Kind.OPEN, Kind.FIRST] + [Kind.MORE] * (len(sizes) - 2)


def test_what_is_beyond_the_credit_waits_for_a_grant() -> None:
    one, other = pair(LinkLimits(credit_messages=100))
    other.may_grant = False
    stream = one.connection.open(b"s", None)
    for number in range(1_000):
        one.connection.send(stream, b"%d" % number * 1_000)
    settle(one, other)
    held = len(other.seen)
    assert 100 <= held < 200
    settle(one, other)
    assert len(other.seen) == held
    other.may_grant = True
    other.connection.tick(other.may)
    settle(one, other)

    assert other.of(b"s") == [b"%d" % number * 1_000 for number in range(1_000)]


def test_a_signal_goes_behind_what_waits_in_its_streams_and_needs_no_credit() -> None:
    one, other = pair(LinkLimits(credit_messages=10))
    other.may_grant = False
    streams = [one.connection.open(name, None) for name in (b"s", b"t", b"u")]
    for stream in streams:
        for number in range(30):
            one.connection.send(stream, bytes(30_000 + number))
    one.connection.signal_behind(streams[:2], b"end of s and t")
    one.connection.signal(streams[0], b"of s")
    one.connection.signal(None, b"at once")
    settle(one, other)

    assert [len(message) for message in other.of(b"s")] == [30_000 + at for at in range(30)]
    assert [len(message) for message in other.of(b"t")] == [30_000 + at for at in range(30)]
    assert 10 <= len(other.of(b"u")) < 30
    assert other.seen[0] == ("signal", b"at once")
    assert [each[0] for each in other.seen].count("signal") == 3
    places = {each[1]: at for at, each in enumerate(other.seen) if each[0] == "signal"}
    last = {
        name: max(at for at, each in enumerate(other.seen) if each[0] == name)
        for name in (b"s", b"t")
    }
    assert places[b"of s"] > last[b"s"]
    assert places[b"end of s and t"] > max(last.values())


def test_heartbeats_go_when_nothing_else_does_and_silence_is_counted_in_ticks() -> None:
    one, other = pair(LinkLimits(heartbeat_s=0.25, suspect_s=1.0))
    for _ in range(20):
        assert one.connection.tick(one.may)
        assert other.connection.tick(other.may)
        settle(one, other)
    alive = [one.connection.tick(one.may) for _ in range(5)]

    assert alive in ([True, True, True, True, False], [True, True, True, False, False])


def test_idle_streams_are_closed_and_their_numbers_given_again() -> None:
    one, other = pair()
    for _ in range(3):
        streams = [one.connection.open(b"%d" % number, None) for number in range(10)]
        for stream in streams:
            one.connection.send(stream, "x")
        settle(one, other)
        for _ in range(2):
            for end in (other, one):
                end.connection.tick(end.may)
            settle(one, other)
        assert not one.connection._out
        assert not other.connection._in
        assert {stream.number for stream in streams} == set(range(1, 11))
    assert one.closed_count == 30


@pytest.mark.parametrize("size", [10, 100_000])
def test_pieces_arrive_as_one_view_of_the_same_bytes(size: int) -> None:
    one, other = pair()
    pieces = [b"ab", b"", b"c" * size]
    one.connection.send(one.connection.open(b"s", None), ("head", Pieces(pieces)))
    settle(one, other)

    ((head_, view),) = other.of(b"s")
    assert head_ == "head"
    assert isinstance(view, memoryview)
    assert view.readonly
    assert bytes(view) == b"".join(pieces)


@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_other_kinds_of_bytes_arrive_as_bytes(kind: Any) -> None:
    one, other = pair()
    stream = one.connection.open(b"s", None)
    for size in (3, 100_000):
        one.connection.send(stream, kind(b"x" * size))
    settle(one, other)

    assert other.of(b"s") == [b"xxx", b"x" * 100_000]


def test_deeply_nested_messages_are_refused_by_both_sides() -> None:
    one, other = pair()
    stream = one.connection.open(b"s", None)
    deep: Any = ()
    for _ in range(10_000):
        deep = (deep,)
    with pytest.raises(WireError):
        one.connection.send(stream, deep)
    one.connection.send(stream, "fine")
    settle(one, other)
    assert other.of(b"s") == ["fine"]
    with pytest.raises(WireError):
        other.connection.receive(frame(1, Kind.RUN, 1, b"\x91" * 10_000 + b"\xc0"))


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"heartbeat_s": 0}, "heartbeat_s is 0"),
        ({"suspect_s": 0.3}, "at least twice heartbeat_s"),
        ({"chunk_bytes": 2**21}, "at most 1048576"),
        ({"unsent_bytes_max": 1}, "at least mail_bytes_max"),
        ({"credit_bytes": 2**32}, "below 4 GiB"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        LinkLimits(**settings)
