"""What a scanner makes of well-formed streams; every test holds for each implementation.

Tests: amqp/_kernel_py.py, amqp/frame_scanner.py
"""

from __future__ import annotations

import struct
import tracemalloc
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.amqp._kernel_py import Scanner as PureScanner
from leveret.amqp.frame_scanner import FrameScanner
from leveret.amqp.kernel import (
    ACK,
    ERROR,
    EXAMINE,
    HEARTBEAT,
    METHOD,
    OVERSIZE,
    PERSISTENT,
    PUBLISH,
)
from leveret.core.limits import LARGE_BODY_BYTES
from rigs.wire.amqp_streams import (
    FRAME_MAX,
    HEADERS_PROPERTIES,
    HEARTBEAT_FRAME,
    MESSAGE_MAX,
    PERSISTENT_PROPERTIES,
    PLAIN_PROPERTIES,
    ack,
    busy_connection,
    events,
    frame,
    frames_of,
    head,
    in_reads,
    publish,
    publish_method,
)

METHOD_BYTES = publish_method()
ORIGIN = METHOD_BYTES[6:-1]


def message(body: bytes, properties: bytes = PLAIN_PROPERTIES, key: bytes = b"key") -> Any:
    return publish_method(key)[6:-1], head(len(body), properties), body


def scan_all(scanning: Any, reads: list[bytes], stepwise: bool = False) -> list[Any]:
    scanner = scanning(FRAME_MAX, MESSAGE_MAX)
    scanner.stepwise = stepwise
    runs = [run for read in reads for run in scanner.scan(read)]
    while stepwise and (more := scanner.scan(b"")):
        runs += more
    assert scanner.pending == ()
    assert scanner.buffered == 0
    return events(runs)


def test_consecutive_messages_of_one_publisher_are_one_run(scanning: Any) -> None:
    scanner = scanning(FRAME_MAX, MESSAGE_MAX)

    runs = scanner.scan(publish(b"one1") + publish(b"two2") + publish(b"three"))

    assert runs == [
        (PUBLISH, 1, METHOD_BYTES, 0, [message(b"one1"), message(b"two2"), message(b"three")])
    ]


def test_messages_are_exact_tuples_of_bytes(scanning: Any) -> None:
    scanner = scanning(FRAME_MAX, MESSAGE_MAX)

    [run] = scanner.scan(publish() * 40 + publish(b"x" * 300, part=100))

    assert {type(part) for one in run[4] for part in (one, *one)} == {tuple, bytes}


@pytest.mark.parametrize("count", [2, 3, 5, 13, 40, 400])
def test_equal_origins_and_heads_are_one_object(scanning: Any, count: int) -> None:
    scanner = scanning(FRAME_MAX, MESSAGE_MAX)

    [run] = scanner.scan(publish() * count)
    [later] = scanner.scan(publish())

    messages = run[4] + later[4]
    assert len(messages) == count + 1
    assert {id(one[0]) for one in messages} == {id(messages[0][0])}
    assert {id(one[1]) for one in messages} == {id(messages[0][1])}


@pytest.mark.parametrize(
    ("properties", "mode"),
    [
        (b"\x00\x00", 0),
        (PLAIN_PROPERTIES, 0),
        (b"\x10\x00\x01", 0),
        (b"\x10\x00\x02", PERSISTENT),
        (PERSISTENT_PROPERTIES, PERSISTENT),
        (b"\x10\x00\x00", EXAMINE),
        (b"\x10\x00\x03", EXAMINE),
        (HEADERS_PROPERTIES, EXAMINE),
        (b"\x30\x00\x00\x00\x00\x00\x02", PERSISTENT | EXAMINE),
        (b"\x18\x00\x02\x05", PERSISTENT | EXAMINE),
        (b"\x08\x00\x05", EXAMINE),
        (b"\x04\x00\x02id", 0),
        (b"\x02\x00\x01r", EXAMINE),
        (b"\x01\x00\x011", EXAMINE),
        (b"\x00\x80\x02id", 0),
        (b"\x00\x40\x00\x00\x00\x00\x00\x00\x00\x01", 0),
        (b"\x00\x20\x01t", 0),
        (b"\x00\x10\x05guest", EXAMINE),
        (b"\x00\x08\x01a\x00"[:4], 0),
        (b"\x00\x04\x00", 0),
        (
            b"\xff\xfc\x01c\x01e\x00\x00\x00\x00\x02\x00\x01i\x01r\x011\x01m"
            b"\x00\x00\x00\x00\x00\x00\x00\x01\x01t\x01u\x01a\x01c",
            PERSISTENT | EXAMINE,
        ),
    ],
)
def test_the_mode_follows_the_properties(scanning: Any, properties: bytes, mode: int) -> None:
    scanner = scanning(FRAME_MAX, MESSAGE_MAX)

    assert scanner.scan(publish(b"x", properties)) == [
        (PUBLISH, 1, METHOD_BYTES, mode, [message(b"x", properties)])
    ]


def test_another_mode_key_or_channel_begins_a_run(scanning: Any) -> None:
    scanner = scanning(FRAME_MAX, MESSAGE_MAX)

    runs = scanner.scan(
        publish() * 2
        + publish(properties=PERSISTENT_PROPERTIES) * 2
        + publish(key=b"other")
        + publish(channel=2)
        + publish()
    )

    assert [(run[1], run[2], run[3], len(run[4])) for run in runs] == [
        (1, METHOD_BYTES, 0, 2),
        (1, METHOD_BYTES, PERSISTENT, 2),
        (1, publish_method(b"other"), 0, 1),
        (2, METHOD_BYTES, 0, 1),
        (1, METHOD_BYTES, 0, 1),
    ]


def test_heads_that_differ_without_changing_the_mode_stay_in_the_run(scanning: Any) -> None:
    scanner = scanning(FRAME_MAX, MESSAGE_MAX)
    heads = [b"\x90\x80\x0atext/plain\x02\x03%03d" % number for number in range(100)]

    [run] = scanner.scan(b"".join(publish(properties=properties) for properties in heads))

    assert run[3] == PERSISTENT
    assert run[4] == [message(b"body", properties) for properties in heads]


class TestPrediction:
    """Streams that look for a while as if they went on the same."""

    def test_another_body_size_behind_the_same_prefix(self, scanning: Any) -> None:
        bodies = [b"1234"] * 20 + [b"12345", b"1234", b"123", b"1234", b"1234", b""]

        found = scan_all(scanning, [b"".join(map(publish, bodies))])

        assert [event[4] for event in found] == [message(body) for body in bodies]

    def test_a_header_that_announces_more_than_the_frame_has(self, scanning: Any) -> None:
        split = publish(b"12345678", part=4)
        wire = publish(b"1234") * 8 + split + publish(b"1234") * 8 + split * 2

        found = scan_all(scanning, [wire])

        bodies = [b"1234"] * 8 + [b"12345678"] + [b"1234"] * 8 + [b"12345678"] * 2
        assert [event[4] for event in found] == [message(body) for body in bodies]

    def test_another_method_in_the_middle(self, scanning: Any) -> None:
        keys = [b"key"] * 9 + [b"kez"] + [b"key"] * 3 + [b"ke"] * 30 + [b"key"]

        found = scan_all(scanning, [b"".join(publish(key=key) for key in keys)])

        assert [event[2] for event in found] == [publish_method(key) for key in keys]
        assert [event[4] for event in found] == [message(b"body", key=key) for key in keys]

    def test_two_channels_in_turn(self, scanning: Any) -> None:
        wire = (publish(channel=1) * 3 + publish(channel=258) * 3) * 5

        found = scan_all(scanning, [wire])

        assert [event[1] for event in found] == ([1] * 3 + [258] * 3) * 5

    def test_bodies_that_contain_what_is_predicted(self, scanning: Any) -> None:
        bodies = [publish(b"x" * 4)] * 20 + [publish(b"x" * 4)[:-1] + b"y"] * 3

        found = scan_all(scanning, [b"".join(map(publish, bodies))])

        assert [event[4] for event in found] == [message(body) for body in bodies]

    def test_bodies_of_end_octets_in_several_frames(self, scanning: Any) -> None:
        body = b"\xce" * 40
        wire = (publish(body) * 3 + publish(body, part=20) * 3) * 3

        found = scan_all(scanning, [wire])

        assert [event[4] for event in found] == [message(body)] * 18

    def test_another_method_in_between_that_is_not_predicted(self, scanning: Any) -> None:
        other = publish(b"123456", part=3, key=b"other")

        found = scan_all(scanning, [(publish(b"abcdef") * 3 + other) * 3 + publish(b"abcdef") * 3])

        keys = ([b"key"] * 3 + [b"other"]) * 3 + [b"key"] * 3
        assert [event[2] for event in found] == [publish_method(key) for key in keys]

    @pytest.mark.parametrize("count", range(1, 50))
    def test_an_end_octet_that_is_wrong(self, scanning: Any, count: int) -> None:
        scanner = scanning(FRAME_MAX, MESSAGE_MAX)

        runs = scanner.scan(publish() * count + publish()[:-1] + b"\xcd" + publish() * 50)

        assert [len(run[4]) for run in runs[:-1]] == [count]
        assert str(runs[-1][1]).startswith("FRAME_ERROR - type 3, all octets = <<")
        assert scanner.scan(publish()) == []

    def test_a_smaller_frame_max_counts_for_what_was_predicted_before(self, scanning: Any) -> None:
        scanner = scanning(FRAME_MAX, MESSAGE_MAX)
        scanner.scan(publish(b"x" * 100) * 4)
        scanner.frame_max = 99

        [run] = scanner.scan(publish(b"x" * 100) * 4)

        assert str(run[1]) == "FRAME_ERROR - type 3, all octets = <<>>: {frame_too_large,100,91}"

    @given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 12)), max_size=30), st.data())
    def test_fast_paths_say_what_the_slow_one_says(self, script: Any, data: st.DataObject) -> None:
        pieces = (
            publish(),
            publish(b"", PERSISTENT_PROPERTIES),
            ack(7),
            publish(b"xyz", channel=2),
            publish(b"1234", part=3, key=b"other"),
            publish(b"body", PERSISTENT_PROPERTIES, key=b"other"),
        )
        wire = b"".join(pieces[which] * count for which, count in script)
        cut = data.draw(st.integers(0, len(wire)))

        fast = scan_all(PureScanner, [wire[:cut], wire[cut:]])

        assert fast == scan_all(FrameScanner, [wire])


class TestCuts:
    """The same bytes, whatever way the socket cuts them."""

    def test_at_every_offset(self, scanning: Any) -> None:
        wire = busy_connection()
        whole = scan_all(scanning, [wire])

        for cut in range(1, len(wire)):
            assert scan_all(scanning, [wire[:cut], wire[cut:]]) == whole, cut

    @pytest.mark.parametrize("size", [1, 2, 7, 8, 9, 21, 64, 1000])
    def test_the_result_does_not_depend_on_how_reads_cut_the_stream(
        self, scanning: Any, size: int
    ) -> None:
        wire = busy_connection()

        assert scan_all(scanning, in_reads(wire, size)) == scan_all(scanning, [wire])

    @pytest.mark.parametrize("size", [1, 7, 64, 1 << 20])
    def test_stepwise_scanning_gives_the_same_runs(self, scanning: Any, size: int) -> None:
        wire = busy_connection()

        stepwise = scan_all(scanning, in_reads(wire, size), stepwise=True)

        assert stepwise == scan_all(scanning, [wire])

    def test_steps_are_of_one_run_of_one_frame_or_message(self, scanning: Any) -> None:
        scanner = scanning(FRAME_MAX, MESSAGE_MAX)
        scanner.stepwise = True

        steps = [scanner.scan(ack(1) + ack(2) + publish() * 2 + HEARTBEAT_FRAME)]
        while steps[-1]:
            steps.append(scanner.scan(b""))

        one = (PUBLISH, 1, METHOD_BYTES, 0, [message(b"body")])
        assert steps == [[(ACK, 1, [1])], [(ACK, 1, [2])], [one], [one], [(HEARTBEAT,)], []]

    def test_frame_max_may_change_between_steps(self, scanning: Any) -> None:
        scanner = scanning(20, MESSAGE_MAX)
        scanner.stepwise = True
        scanner.scan(frame(1, 0, b"\x00\x0a\x00\x1f") + frame(1, 0, b"\x00\x0a\x00\x28" * 10))
        scanner.frame_max = 40
        scanner.stepwise = False

        assert scanner.scan(b"") == [(METHOD, 0, 10 << 16 | 40, (b"\x00\x0a\x00\x28" * 10)[4:])]

    @pytest.mark.parametrize("size", [10, 1000, 5000, 65536, 262144])
    def test_large_bodies(self, scanning: Any, size: int) -> None:
        bodies = [bytes([number]) * 300_000 for number in range(3)]
        scanner = scanning(FRAME_MAX, MESSAGE_MAX)

        found = events(
            run
            for read in in_reads(b"".join(map(publish, bodies)), size)
            for run in scanner.scan(read)
        )

        assert [event[4][2] for event in found] == bodies

    @pytest.mark.parametrize("size", [100_001, 262_144, 1 << 20, 8 << 20])
    def test_bodies_of_megabytes_of_two_channels_in_turn(self, scanning: Any, size: int) -> None:
        body = bytes(range(256)) * (2 * LARGE_BODY_BYTES // 256) + b"."
        frames = [list(frames_of(publish(body, channel=number))) for number in (1, 2)]
        wire = b"".join(each for pair in zip(*frames, strict=True) for each in pair)
        scanner = scanning(FRAME_MAX, len(body))

        runs = [run for read in in_reads(wire, size) for run in scanner.scan(read)]

        assert [(run[1], run[4][0][2] == body) for run in runs] == [(1, True), (2, True)]
        assert (scanner.pending, scanner.buffered) == ((), 0)

    def test_a_large_body_is_dropped_in_the_middle(self, scanning: Any) -> None:
        body = bytes(3 * LARGE_BODY_BYTES)
        first, *reads = in_reads(publish(body), 2 * LARGE_BODY_BYTES)
        scanner = scanning(FRAME_MAX, len(body))
        assert scanner.scan(first) == []
        assert scanner.buffered > LARGE_BODY_BYTES

        scanner.swallow()

        assert scanner.buffered < 100
        (run,) = [run for read in reads for run in scanner.scan(read)]
        assert (run[0], run[3]) == (OVERSIZE, len(body))

    @pytest.mark.parametrize("rest", [frame(2, 1, head(1)), b"not a frame, and long enough"])
    def test_what_has_come_before_an_error_stays_until_it_is_dropped(
        self, scanning: Any, rest: bytes
    ) -> None:
        """To free it at once would take tens of milliseconds."""
        scanner = scanning(FRAME_MAX, 1 << 30)
        for channel in (1, 2):
            *first, _ = frames_of(publish(bytes(LARGE_BODY_BYTES), channel=channel))
            scanner.scan(b"".join(first))
        held = scanner.buffered
        (error,) = scanner.scan(rest)

        assert error[0] == ERROR
        assert scanner.pending == ()
        assert scanner.buffered == held > LARGE_BODY_BYTES
        scanner.swallow()
        assert scanner.buffered == 0

    def test_contents_are_dropped_in_slices(self, scanning: Any) -> None:
        scanner = scanning(FRAME_MAX, 1 << 30)
        for channel in range(1, 9):
            scanner.scan(publish(bytes(1000), channel=channel, part=100)[:-108])
        held = [scanner.buffered]
        while held[-1]:
            scanner.swallow(1500)
            held.append(scanner.buffered)

        freed = [before - after for before, after in pairwise(held)]
        assert sum(freed) == 7200
        assert all(1500 <= each < 1500 + 900 for each in freed[:-1])
        assert len(scanner.pending) == 8

    def test_a_large_body_is_never_copied_as_a_whole(self, scanning: Any) -> None:
        """Its last bytes bring it up, no copy of it."""
        body = bytes(range(256)) * (8 * LARGE_BODY_BYTES // 256)
        *reads, last = in_reads(publish(body), 64 * 1024)
        scanner = scanning(FRAME_MAX, len(body))
        tracemalloc.start()
        try:
            for read in reads:
                scanner.scan(read)
            before_bytes, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            (run,) = scanner.scan(last)
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

        assert run[4][0][2] == body
        assert type(run[4][0][2]) is bytes
        assert peak_bytes - before_bytes < LARGE_BODY_BYTES


class TestAcks:
    @pytest.mark.parametrize("count", [1, 4, 5, 16, 17, 33, 500, 3000])
    def test_a_row_is_one_run(self, scanning: Any, count: int) -> None:
        tags = [tag * 0x0101010101 for tag in range(count)]
        scanner = scanning(FRAME_MAX, MESSAGE_MAX)

        assert scanner.scan(b"".join(map(ack, tags))) == [(ACK, 1, tags)]

    @pytest.mark.parametrize("place", [0, 1, 5, 20, 21, 60, 99])
    def test_multiple_is_a_method(self, scanning: Any, place: int) -> None:
        acks = [ack(tag, bits=int(tag == place)) for tag in range(100)]
        scanner = scanning(FRAME_MAX, MESSAGE_MAX)

        runs = scanner.scan(b"".join(acks))

        method = (METHOD, 1, 60 << 16 | 80, struct.pack(">QB", place, 1))
        before = [(ACK, 1, list(range(place)))] if place else []
        after = [(ACK, 1, list(range(place + 1, 100)))] if place < 99 else []
        assert runs == [*before, method, *after]

    @pytest.mark.parametrize("place", range(21))
    def test_any_octet_may_differ_in_a_row(self, scanning: Any, place: int) -> None:
        odd = bytearray(ack(50))
        odd[place] ^= 2
        wire = b"".join(map(ack, range(50))) + bytes(odd) + b"".join(map(ack, range(51, 100)))
        scanner = scanning(FRAME_MAX, MESSAGE_MAX)

        found = events(scanner.scan(wire))

        assert found[:50] == [(ACK, 1, tag) for tag in range(50)]
        assert found == events(FrameScanner(FRAME_MAX, MESSAGE_MAX).scan(wire))

    def test_bits_beside_multiple_mean_nothing(self, scanning: Any) -> None:
        scanner = scanning(FRAME_MAX, MESSAGE_MAX)

        assert scanner.scan(ack(1) + ack(2, bits=2) + ack(3)) == [(ACK, 1, [1, 2, 3])]

    def test_another_channel_begins_a_run(self, scanning: Any) -> None:
        scanner = scanning(FRAME_MAX, MESSAGE_MAX)

        runs = scanner.scan(ack(1, 1) + ack(2, 2) + ack(3, 2) + ack(4, 1))

        assert runs == [(ACK, 1, [1]), (ACK, 2, [2, 3]), (ACK, 1, [4])]

    def test_on_channel_0_it_is_a_method(self, scanning: Any) -> None:
        scanner = scanning(FRAME_MAX, MESSAGE_MAX)

        assert (
            scanner.scan(ack(9, channel=0) * 2)
            == [(METHOD, 0, 60 << 16 | 80, struct.pack(">QB", 9, 0))] * 2
        )

    def test_arguments_of_another_length_are_left_to_who_decodes_methods(
        self, scanning: Any
    ) -> None:
        scanner = scanning(FRAME_MAX, MESSAGE_MAX)

        runs = scanner.scan(frame(1, 1, b"\x00\x3c\x00\x50\x00"))

        assert runs == [(METHOD, 1, 60 << 16 | 80, b"\x00")]


def test_methods_come_raw_whether_they_exist_or_not(scanning: Any) -> None:
    scanner = scanning(FRAME_MAX, MESSAGE_MAX)

    runs = scanner.scan(frame(1, 0, b"\x00\x0a\x00\x0b") + frame(1, 7, b"\x12\x34\x56\x78args"))

    assert runs == [(METHOD, 0, 10 << 16 | 11, b""), (METHOD, 7, 0x12345678, b"args")]


def test_publish_on_channel_0_awaits_no_content(scanning: Any) -> None:
    scanner = scanning(FRAME_MAX, MESSAGE_MAX)

    runs = scanner.scan(frame(1, 0, METHOD_BYTES) * 2)

    assert runs == [(METHOD, 0, 60 << 16 | 40, METHOD_BYTES[4:])] * 2
    assert scanner.pending == ()


def test_empty_body_frames_are_read_over(scanning: Any) -> None:
    empty = frame(3, 1, b"")
    wire = frame(1, 1, METHOD_BYTES) + frame(2, 1, head(2)) + empty + frame(3, 1, b"a")

    found = scan_all(scanning, [wire + empty * 2 + frame(3, 1, b"b")])

    assert found == [(PUBLISH, 1, METHOD_BYTES, 0, message(b"ab"))]


def test_pending_names_the_channels_that_wait_for_content(scanning: Any) -> None:
    scanner = scanning(FRAME_MAX, MESSAGE_MAX)
    seen = []

    for part in (
        frame(1, 5, METHOD_BYTES),
        frame(1, 9, METHOD_BYTES) + frame(2, 9, head(4)),
        frame(3, 9, b"12")[:-2],
        b"2\xce" + frame(2, 5, head(0)),
        frame(3, 9, b"34"),
    ):
        scanner.scan(part)
        seen.append(scanner.pending)

    assert seen == [(5,), (5, 9), (5, 9), (9,), ()]


class TestOversize:
    def test_is_told_when_the_last_byte_of_its_body_has_been_swallowed(self, scanning: Any) -> None:
        scanner = scanning(FRAME_MAX, 10)

        start = scanner.scan(frame(1, 1, METHOD_BYTES) + frame(2, 1, head(11)))
        middle = scanner.scan(frame(3, 1, b"12345") + frame(3, 1, b"678901")[:-1])
        rest = scanner.scan(b"\xce" + publish(b"1234567890"))

        assert (start, middle) == ([], [])
        assert rest == [
            (OVERSIZE, 1, METHOD_BYTES, 11),
            (PUBLISH, 1, METHOD_BYTES, 0, [message(b"1234567890")]),
        ]

    def test_with_more_body_than_announced_is_an_unexpected_frame(self, scanning: Any) -> None:
        scanner = scanning(FRAME_MAX, 10)
        scanner.scan(frame(1, 1, METHOD_BYTES) + frame(2, 1, head(11)))

        runs = scanner.scan(frame(3, 1, b"x" * 12) + publish())

        assert [run[0] for run in runs] == [ERROR]
        assert runs[0][1].text.startswith(b"UNEXPECTED_FRAME - expected content body")

    def test_keeps_its_place_among_runs_of_other_channels(self, scanning: Any) -> None:
        scanner = scanning(FRAME_MAX, 10)
        wire = (
            frame(1, 1, METHOD_BYTES)
            + frame(2, 1, head(11))
            + publish(b"1", channel=2)
            + frame(3, 1, b"12345678901")
            + publish(b"2", channel=2)
        )

        runs = scanner.scan(wire)

        assert runs == [
            (PUBLISH, 2, METHOD_BYTES, 0, [message(b"1")]),
            (OVERSIZE, 1, METHOD_BYTES, 11),
            (PUBLISH, 2, METHOD_BYTES, 0, [message(b"2")]),
        ]

    def test_keeps_nothing_of_the_body(self, scanning: Any) -> None:
        scanner = scanning(0, 10)
        scanner.scan(frame(1, 1, METHOD_BYTES) + frame(2, 1, head(1_000_000)))
        body = frame(3, 1, b"x" * 1_000_000)

        kept = []
        seen = []
        for read in in_reads(body, 10_000):
            seen += scanner.scan(read)
            kept.append(scanner.buffered)

        assert max(kept) <= 8
        assert seen == [(OVERSIZE, 1, METHOD_BYTES, 1_000_000)]
        assert scanner.pending == ()

    @pytest.mark.parametrize("cut", [0, 1, 7, 8, 200, 1_000, 1_007, 1_008])
    def test_a_content_that_is_swallowed_half_way_keeps_nothing(
        self, scanning: Any, cut: int
    ) -> None:
        scanner = scanning(FRAME_MAX, MESSAGE_MAX)
        scanner.scan(frame(1, 1, METHOD_BYTES) + frame(2, 1, head(3_000)))
        scanner.scan(frame(3, 1, b"x" * 1_000))
        scanner.scan(frame(1, 2, METHOD_BYTES))  # its header has not come
        body = frame(3, 1, b"x" * 2_000)
        scanner.scan(body[:cut])

        scanner.swallow()

        assert scanner.buffered <= 8
        assert scanner.scan(body[cut:] + frame(2, 2, head(1)) + frame(3, 2, b"y")) == [
            (OVERSIZE, 1, METHOD_BYTES, 3_000),
            (OVERSIZE, 2, METHOD_BYTES, 1),
        ]
        assert scanner.scan(publish(b"next"))[0][:2] == (PUBLISH, 1)

    def test_of_the_largest_size_there_is(self, scanning: Any) -> None:
        scanner = scanning(FRAME_MAX, MESSAGE_MAX)

        runs = scanner.scan(
            publish() * 3 + frame(1, 1, METHOD_BYTES) + frame(2, 1, head(2**64 - 1))
        )

        assert [run[0] for run in runs] == [PUBLISH]
        assert scanner.scan(frame(3, 1, b"x" * 1000)) == []
        assert scanner.pending == (1,)


class TestMemory:
    def test_what_is_kept_is_at_most_a_frame_and_the_bodies_that_came(self, scanning: Any) -> None:
        scanner = scanning(4096, 100_000)
        wire = (
            publish(b"x" * 90_000, part=4000)
            + publish(b"y" * 90_000, channel=2, part=4000)
            + publish(b"z" * 200_000, part=4000)
            + publish() * 100
        )
        came = 0

        for read in in_reads(wire, 333):
            runs = scanner.scan(read)
            came += len(read)
            came = 0 if runs else came
            assert scanner.buffered <= 4096 + 8 + min(came + 333, 100_000)

        assert scanner.buffered == 0

    def test_a_frame_is_refused_by_its_size_before_it_comes(self, scanning: Any) -> None:
        scanner = scanning(4096, MESSAGE_MAX)

        [run] = scanner.scan(struct.pack(">BHI", 1, 0, 4097))

        assert run[1].code == 501
        assert scanner.buffered == 0

    def test_a_body_in_tiny_reads_takes_little_more_than_its_bytes(self) -> None:
        scanner = PureScanner(FRAME_MAX, MESSAGE_MAX)
        scanner.scan(frame(1, 1, METHOD_BYTES) + frame(2, 1, head(100_000)))
        scanner.scan(struct.pack(">BHI", 3, 1, 100_000))

        for _ in range(20_000):
            scanner.scan(b"x")

        [content] = scanner._contents.values()
        assert len(content.parts) == 1
        assert scanner.buffered == 20_007

    @pytest.mark.parametrize(("size", "kind"), [(5000, bytearray), (90_000, memoryview)])
    def test_a_small_part_does_not_keep_a_whole_read_alive(self, size: int, kind: type) -> None:
        scanner = PureScanner(FRAME_MAX, MESSAGE_MAX)
        start = frame(1, 1, METHOD_BYTES) + frame(2, 1, head(100_000))

        scanner.scan(publish(b"x" * 100_000) + start + frame(3, 1, b"y" * size))

        [content] = scanner._contents.values()
        assert [type(part) for part in content.parts] == [kind]

    def test_no_more_is_kept_of_a_body_that_is_too_long(self, scanning: Any) -> None:
        scanner = scanning(FRAME_MAX, MESSAGE_MAX)
        start = frame(1, 1, METHOD_BYTES) + frame(2, 1, head(100))

        for _ in range(3):
            scanner.scan(start + frame(3, 1, b"x" * 99) + frame(3, 1, b"xx"))
            start = b""
            assert scanner.buffered == 99

        scanner.swallow()
        assert scanner.buffered == 0
