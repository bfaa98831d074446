"""The two kernels say the same: same runs for the same reads, same events however a stream is cut.

``fuzz_corpus`` holds one stream per file: a comment that describes it, then hexadecimal octets.
Streams named ``error_*`` end in a refusal. To add what a fuzzer found, add a file.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leveret.amqp import _kernel_py as pure
from leveret.amqp.errors import HardError, SyntaxError_
from leveret.amqp.kernel import ACK, ERROR, PUBLISH
from leveret.amqp.tables import Table
from rigs.wire.field_tables import TABLES

compiled = pytest.importorskip("leveret.amqp._kernel_c")

CORPUS = {
    path.stem: bytes.fromhex("".join(path.read_text().splitlines()[1:]))
    for path in sorted((Path(__file__).parent / "fuzz_corpus").glob("*.hex"))
}
LIMITS = [(131072, 1 << 27), (0, 1 << 27), (40, 1 << 27), (39, 1 << 27), (131072, 16), (131072, 0)]

Outcome = tuple[list[Any], tuple[int, ...], int]


def comparable(run: tuple[Any, ...]) -> tuple[Any, ...]:
    """Take an error apart; all other runs compare by themselves."""
    if run[0] != ERROR:
        return run
    error: HardError = run[1]
    return (ERROR, type(error), error.code, error.text, error.method)


def reads(wire: bytes, cuts: Iterable[int]) -> Iterator[bytes]:
    at = 0
    for cut in [*sorted(cut for cut in set(cuts) if 0 < cut < len(wire)), len(wire)]:
        yield wire[at:cut]
        at = cut


def outcomes(kernel: Any, parts: Iterable[bytes], limits: tuple[int, int]) -> list[Outcome]:
    """Return per read: the runs, the pending error, and the number of buffered octets."""
    scanner = kernel.Scanner(*limits)
    made = []
    for part in parts:
        runs = [comparable(run) for run in scanner.scan(part)]
        made.append((runs, scanner.pending, scanner.buffered))
    return made


def events(made: list[Outcome]) -> list[Any]:
    """Return what happened, one entry per message and tag, however reads cut the runs."""
    out: list[Any] = []
    for runs, _, _ in made:
        for run in runs:
            if run[0] == PUBLISH:
                out += [(*run[:4], message) for message in run[4]]
            elif run[0] == ACK:
                out += [(ACK, run[1], tag) for tag in run[2]]
            else:
                out.append(run)
    return out


def assert_same(wire: bytes, cuts: Iterable[int], limits: tuple[int, int]) -> list[Outcome]:
    parts = list(reads(wire, cuts))
    made = outcomes(compiled, parts, limits)
    assert made == outcomes(pure, parts, limits)
    return made


# -- the corpus -----------------------------------------------------------------------------------


@pytest.mark.parametrize("limits", LIMITS, ids=str)
@pytest.mark.parametrize("name", CORPUS)
def test_a_stream_cut_at_any_offset_gives_the_same_events(
    name: str, limits: tuple[int, int]
) -> None:
    wire = CORPUS[name]
    whole = assert_same(wire, (), limits)

    for cut in range(1, len(wire)):
        assert events(assert_same(wire, (cut,), limits)) == events(whole)


@pytest.mark.parametrize("step", [1, 2, 3, 7, 8, 9, 21, 64])
@pytest.mark.parametrize("name", CORPUS)
def test_a_stream_in_pieces_of_one_size_gives_the_same_events(name: str, step: int) -> None:
    wire = CORPUS[name]

    made = assert_same(wire, range(step, len(wire), step), LIMITS[0])

    assert events(made) == events(outcomes(pure, [wire], LIMITS[0]))


@pytest.mark.parametrize("name", [name for name in CORPUS if name.startswith("error_")])
def test_a_stream_that_is_wrong_ends_in_one_error_and_then_silence(name: str) -> None:
    made = outcomes(compiled, [CORPUS[name], CORPUS["publishes_alike"]], LIMITS[0])

    assert [run[0] for run in made[0][0]].count(ERROR) == 1
    assert made[0][0][-1][0] == ERROR
    assert made[0][1] == ()
    assert made[1] == ([], *made[0][1:])


@pytest.mark.parametrize("name", [name for name in CORPUS if not name.startswith("error_")])
def test_a_stream_that_is_right_leaves_nothing_behind(name: str) -> None:
    [(runs, pending, buffered)] = outcomes(compiled, [CORPUS[name]], LIMITS[0])

    assert ERROR not in [run[0] for run in runs]
    assert (pending, buffered) == ((), 0)


@pytest.mark.parametrize("limits", LIMITS[:3], ids=str)
@pytest.mark.parametrize("name", CORPUS)
def test_stepwise_both_return_after_each_run(name: str, limits: tuple[int, int]) -> None:
    wire = CORPUS[name]
    for cut in range(0, len(wire), 5):
        made = []
        for kernel in (compiled, pure):
            scanner = kernel.Scanner(*limits)
            scanner.stepwise = True
            steps = [scanner.scan(wire[:cut])]
            while steps[-1]:
                steps.append(scanner.scan(b""))
            steps.append(scanner.scan(wire[cut:]))
            steps += [scanner.scan(b""), scanner.scan(b"")]
            scanner.stepwise = False
            steps.append(scanner.scan(b""))
            made.append([[comparable(run) for run in runs] for runs in steps])

        assert made[0] == made[1]
        assert all(len(runs) <= 1 for runs in made[0][:-1])


# -- streams that a peer may send -----------------------------------------------------------------


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return b"%c%b%b%b\xce" % (kind, channel.to_bytes(2), len(payload).to_bytes(4), payload)


def shortstr(text: bytes) -> bytes:
    return b"%c%b" % (len(text), text)


PROPERTIES = st.sampled_from(
    [
        b"\0\0",
        b"\x90\0\x03a/b\x01",
        b"\x90\0\x03a/b\x02",
        b"\x10\x80\x02\x011",
        b"\x10\x80\x02\x012",
        b"\x20\0\0\0\0\0",
        b"\x18\0\x02\x05",
        b"\x01\0\x0260",
    ]
)
CHANNELS = st.sampled_from([1, 1, 1, 2, 3, 65535])
KEYS = st.sampled_from([b"key", b"other", b"", b"k" * 255])


@st.composite
def contents(draw: st.DrawFn) -> list[bytes]:
    """Draw the frames of one publish, the body in parts of any size."""
    channel, key, properties = draw(CHANNELS), draw(KEYS), draw(PROPERTIES)
    parts = draw(
        st.one_of(st.binary(max_size=45).map(lambda body: [body]), st.lists(st.binary(max_size=9)))
    )
    size = sum(map(len, parts))
    bits = draw(st.sampled_from([b"\0", b"\0", b"\1"]))
    method = b"\0\x3c\0\x28\0\0" + shortstr(draw(st.sampled_from([b"", b"x"]))) + shortstr(key)
    head = b"\0\x3c\0\0" + size.to_bytes(8) + properties
    bodies = [frame(3, channel, part) for part in parts] if size else []
    return [frame(1, channel, method + bits), frame(2, channel, head), *bodies]


@st.composite
def acks(draw: st.DrawFn) -> list[bytes]:
    channel, first = draw(CHANNELS), draw(st.integers(0, 1 << 63))
    bits = draw(st.sampled_from([0, 0, 0, 1]))
    count = draw(st.integers(1, 5))
    return [
        frame(1, channel, b"\0\x3c\0\x50%b%c" % (tag.to_bytes(8), bits))
        for tag in range(first, first + count)
    ]


OTHERS = st.sampled_from(
    [
        frame(8, 0, b""),
        frame(1, 1, b"\0\x3c\0\x78" + bytes(9)),
        frame(1, 2, b"\0\x5a\0\x0a"),
        frame(1, 0, b"\0\x0a\0\x32\0\xc8\0\0\0\0\0"),
    ]
).map(lambda wire: [wire])


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """Draw groups of frames, then let channels overtake each other, each in its own order."""
    groups = draw(st.lists(st.one_of(contents(), contents(), acks(), OTHERS), max_size=12))
    if not draw(st.booleans()):
        return b"".join(wire for group in groups for wire in group)
    lanes: dict[bytes, list[bytes]] = {}
    for group in groups:
        for wire in group:
            lanes.setdefault(wire[1:3], []).append(wire)
    rng = random.Random(draw(st.integers(0, 1 << 16)))
    out = []
    while lanes:
        lane = rng.choice(sorted(lanes))
        out.append(lanes[lane].pop(0))
        if not lanes[lane]:
            del lanes[lane]
    return b"".join(out)


CUTS = st.lists(st.integers(0, 1500), max_size=12)
MANY = settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)


@MANY
@given(streams(), CUTS, st.sampled_from(LIMITS))
def test_whatever_a_peer_may_send_gives_the_same_runs(
    wire: bytes, cuts: list[int], limits: tuple[int, int]
) -> None:
    made = assert_same(wire, cuts, limits)

    assert events(made) == events(outcomes(compiled, [wire], limits))


# -- streams that no peer should send -------------------------------------------------------------


def mutated(wire: bytes, rng: random.Random) -> bytes:
    """Damage a stream as noise, bad clients and attackers do."""
    out = bytearray(wire)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(out) + 1)
        span = rng.randrange(1, 24)
        match rng.randrange(6):
            case 0 if at < len(out):
                out[at] ^= 1 << rng.randrange(8)
            case 1 if at < len(out):
                out[at] = rng.choice((0, 1, 2, 3, 8, 40, 60, 80, 0xCE, 0xFF))
            case 2:
                out[at:at] = rng.randbytes(span)
            case 3:
                del out[at : at + span]
            case 4:
                out[at:at] = out[max(0, at - span) : at]
            case _:
                del out[at:]
    return bytes(out)


@pytest.mark.parametrize("name", CORPUS)
def test_damaged_streams_give_the_same_runs_and_errors(name: str) -> None:
    rng = random.Random(name)
    for _ in range(120):
        wire = mutated(CORPUS[name], rng)
        cuts = [rng.randrange(len(wire) + 1) for _ in range(rng.choice((0, 1, 2, 8)))]
        limits = rng.choice(LIMITS)

        made = assert_same(wire, cuts, limits)

        assert events(made) == events(outcomes(compiled, [wire], limits))


@MANY
@given(streams(), st.integers(0, 1 << 32), CUTS, st.sampled_from(LIMITS))
def test_damaged_inventions_give_the_same_runs_and_errors(
    wire: bytes, seed: int, cuts: list[int], limits: tuple[int, int]
) -> None:
    assert_same(mutated(wire, random.Random(seed)), cuts, limits)


@MANY
@given(st.binary(max_size=200), CUTS, st.sampled_from(LIMITS))
def test_random_octets_give_the_same_runs_and_errors(
    wire: bytes, cuts: list[int], limits: tuple[int, int]
) -> None:
    assert_same(wire, cuts, limits)


@MANY
@given(
    st.binary(max_size=24),
    st.sampled_from([b"\0\x3c\0\0\0\0\0\0\0\0\0\0", b"\0\x3c\0\0\0\0\0\0\0\0\0\x01"]),
    st.integers(0, 0xFFFF),
)
def test_random_properties_are_judged_the_same(tail: bytes, start: bytes, flags: int) -> None:
    method = frame(1, 1, b"\0\x3c\0\x28\0\0\0\0\0")
    head = start + (flags & 0xFFFE).to_bytes(2) + tail
    assert_same(method + frame(2, 1, head) + frame(3, 1, b"x"), (), LIMITS[0])


# -- encoders -------------------------------------------------------------------------------------

MESSAGES = st.lists(
    st.tuples(
        st.sampled_from([b"\0\0", b"\0\x03key", b"\x02ex\x03key"]),
        st.sampled_from([b"\0\x3c" + bytes(12), b"\0\x3c" + bytes(10) + b"\x90\0\x01a\x02"])
        | st.binary(min_size=14, max_size=40),
        st.binary(max_size=60),
    ),
    max_size=8,
)


@MANY
@given(
    st.integers(0, 65535),
    st.binary(max_size=255),
    st.integers(0, (1 << 64) - 9),
    st.integers(0, 9),
    st.sampled_from([0, 9, 10, 28, 38, 68, 4096, 131072]),
    MESSAGES,
)
def test_deliveries_are_the_same_octet_by_octet(
    channel: int,
    tag: bytes,
    first: int,
    redelivered: int,
    frame_max: int,
    messages: list[tuple[bytes, bytes, bytes]],
) -> None:
    arguments = (channel, tag, first, redelivered, frame_max, messages)

    assert compiled.deliveries(*arguments) == pure.deliveries(*arguments)


@MANY
@given(
    st.integers(0, 65535),
    st.lists(st.tuples(st.booleans(), st.integers(0, (1 << 64) - 1), st.booleans()), max_size=9),
)
def test_confirms_are_the_same_octet_by_octet(
    channel: int, answers: list[tuple[bool, int, bool]]
) -> None:
    assert compiled.confirm_frames(channel, answers) == pure.confirm_frames(channel, answers)


@MANY
@given(
    st.integers(0, 65535),
    st.binary(min_size=4, max_size=60),
    st.sampled_from([0, 9, 10, 28, 4096, 131072]),
    st.binary(min_size=14, max_size=40),
    st.binary(max_size=60),
)
def test_contents_are_the_same_octet_by_octet(
    channel: int, method: bytes, frame_max: int, head: bytes, body: bytes
) -> None:
    arguments = (channel, method, frame_max, head, body)

    assert compiled.content(*arguments) == pure.content(*arguments)


def test_what_is_delivered_can_be_scanned_as_what_was_published() -> None:
    bodies = [b"", b"x", b"y" * 88, b"z" * 89, b"w" * 1000]
    heads = [b"\0\x3c\0\0" + len(body).to_bytes(8) + b"\0\0" for body in bodies]
    method = b"\0\x3c\0\x28\0\0\0\x03key\0"
    wire = b"".join(
        compiled.content(1, method, 96, head, body)
        for head, body in zip(heads, bodies, strict=True)
    )

    [(_, channel, raw, mode, messages)] = pure.Scanner(96, 1000).scan(wire)

    assert (channel, raw, mode) == (1, method, 0)
    assert [message[2] for message in messages] == bodies


# -- field tables ---------------------------------------------------------------------------------


def said(call: Callable[[], Any]) -> Any:
    """Return what a call answers, or its error and text."""
    try:
        return call()
    except SyntaxError_ as error:
        return error.text


@given(TABLES, st.data())
def test_both_kernels_read_the_same_of_damaged_tables(table: Table, data: st.DataObject) -> None:
    wire = bytearray(pure.write_fields(table, "L"))
    for _ in range(data.draw(st.integers(0, 3))):
        wire[data.draw(st.integers(0, len(wire) - 1))] = data.draw(st.integers(0, 255))
    damaged, end = bytes(wire), data.draw(st.integers(4, len(wire) + 1))

    read = said(lambda: compiled.read_fields(damaged, 4, end))

    assert repr(read) == repr(said(lambda: pure.read_fields(damaged, 4, end)))  # NaN equals nothing


@given(TABLES, st.sampled_from("lL"))
def test_both_kernels_write_the_same(table: Table, long_letter: str) -> None:
    assert compiled.write_fields(table, long_letter) == pure.write_fields(table, long_letter)


@pytest.mark.parametrize(("letter", "width"), [(b"f", 4), (b"d", 8), (b"D", 5), (b"T", 8)])
@given(data=st.data())
def test_both_kernels_keep_the_bits_of_numbers(
    letter: bytes, width: int, data: st.DataObject
) -> None:
    fields = b"\x01n" + letter + data.draw(st.binary(min_size=width, max_size=width))
    tables = [kernel.read_fields(fields, 0, len(fields)) for kernel in (pure, compiled)]

    assert repr(tables[0]) == repr(tables[1])
    assert compiled.write_fields(tables[1], "L") == pure.write_fields(tables[0], "L")
