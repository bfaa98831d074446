"""The store's kernel: both implementations do what the contract says, and nothing on damaged bytes.

Tests: msg_store/format/_kernel_py.py, msg_store/format/record_encoding.py
"""

from __future__ import annotations

import hashlib
import importlib
import os
import struct
from array import array
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.core.message import Message, origin_of
from leveret.msg_store.format import record, record_encoding
from leveret.msg_store.format.errors import Corrupt
from leveret.msg_store.format.file_header import CRC32, CRC32C, extender
from leveret.msg_store.format.kernel import KERNEL_NAME, decode_run
from rigs.store.store_kernels import NAMES, kernel_of
from rigs.traced_memory import bytes_kept

SEED = 0xC0FFEE
START = 4096
MESSAGE = (origin_of(b"x", b"key"), b"head", b"body")
kinds = st.sampled_from([CRC32, CRC32C])
u32, u64 = st.integers(0, (1 << 32) - 1), st.integers(0, (1 << 64) - 1)
short = st.binary(max_size=40)
messages = st.tuples(st.builds(origin_of, short, short), short, st.binary(max_size=300))
items = st.lists(
    st.tuples(u64, st.tuples(messages | st.just(MESSAGE), st.just((1, 2)))), min_size=1, max_size=6,
    unique_by=lambda item: item[0],
)  # fmt: skip
each_kernel = pytest.mark.parametrize("name", NAMES)


@pytest.fixture(params=NAMES)
def kernel(request: pytest.FixtureRequest) -> Any:
    return kernel_of(request.param)


def parts_of(meta: bytes) -> tuple[bytes, bytes]:
    found = record.unpack_meta(meta)
    return origin_of(found.exchange, *found.routing_keys), found.head


class Stretch:
    """Records one behind the other in a segment, from START on, with three bytes between them."""

    def __init__(self, items: list[Any], kind: int = CRC32C) -> None:
        self.kind = kind
        self.msg_nos = [msg_no for msg_no, _ in items]
        self.places: list[Any] = []
        self.data = b""
        for item in items:
            parts: list[bytes] = []
            [length] = record_encoding.encode_run([item], 5, extender(kind), SEED, parts)
            self.places.append((7, START + len(self.data), length, len(item[1][0][2]), 1))
            self.data += b"".join(parts) + b"gap"

    def decode(
        self, kernel: Any, parts_of: Callable[[bytes], tuple[bytes, bytes]] = parts_of
    ) -> tuple[dict[int, Message], list[Any], int]:
        found: dict[int, Message] = {}
        others, body_bytes = kernel.decode_run(
            self.data, START, self.msg_nos, self.places, self.kind, SEED, parts_of, found
        )
        return found, others, body_bytes


def stretch_of(count: int, **options: Any) -> Stretch:
    return Stretch([(no, (MESSAGE, (1,))) for no in range(10, 10 + count)], **options)


# Records.


@each_kernel
@given(items=items, kind=kinds)
def test_what_was_written_is_read(name: str, items: list[Any], kind: int) -> None:
    found, others, body_bytes = Stretch(items, kind).decode(kernel_of(name))

    assert found == {msg_no: message for msg_no, (message, _) in items}
    assert list(found) == [msg_no for msg_no, _ in items]
    assert others == []
    assert body_bytes == sum(len(message[2]) for message in found.values())


@each_kernel
@given(items=items, kind=kinds, draw=st.data())
def test_a_flipped_bit_is_seen_and_spoils_one_message_only(
    name: str, items: list[Any], kind: int, draw: st.DataObject
) -> None:
    stretch = Stretch(items, kind)
    bad = draw.draw(st.integers(0, len(items) - 1))
    at = stretch.places[bad][1] - START
    bit = draw.draw(st.integers(at * 8, (at + stretch.places[bad][2]) * 8 - 1))
    changed = bytearray(stretch.data)
    changed[bit // 8] ^= 1 << bit % 8
    stretch.data = bytes(changed)

    found, others, _ = stretch.decode(kernel_of(name))

    assert others == [(stretch.msg_nos[bad], stretch.places[bad])]
    assert found == {no: message for no, (message, _) in items if no != stretch.msg_nos[bad]}


@each_kernel
@given(
    data=st.binary(max_size=200),
    places=st.lists(st.tuples(u32, st.integers(0, START * 2), u32), max_size=5),
)
def test_any_bytes_are_no_message(name: str, data: bytes, places: list[Any]) -> None:
    stretch = stretch_of(0)
    stretch.data, stretch.places, stretch.msg_nos = data, places, list(range(len(places)))

    assert stretch.decode(kernel_of(name)) == ({}, list(enumerate(places)), 0)


@pytest.mark.parametrize(
    "place",
    [
        (7, START, 35),
        (7, START, 0),
        (7, START + 1, 70),
        (7, START - 36, 36),
        (7, START - 1, 1 << 31),
        (7, START, (1 << 32) - 1),
        (7, (1 << 32) - 1, (1 << 32) - 1),
    ],
)
def test_a_place_where_no_record_is_gives_none(kernel: Any, place: tuple[int, int, int]) -> None:
    stretch = stretch_of(2)
    stretch.places[0] = place

    found, others, body_bytes = stretch.decode(kernel)

    assert (list(found), others, body_bytes) == ([11], [(10, place)], 4)


def test_a_record_cut_off_by_one_byte_is_none(kernel: Any) -> None:
    stretch = stretch_of(2)
    stretch.data = stretch.data[:-4]

    assert stretch.decode(kernel)[1] == [(11, stretch.places[1])]


def test_another_message_at_the_place_is_not_taken(kernel: Any) -> None:
    stretch = stretch_of(2)
    stretch.msg_nos = [10, 12]

    assert stretch.decode(kernel)[1] == [(12, stretch.places[1])]


@pytest.mark.parametrize(
    ("at", "value"),
    [(32, struct.pack("<H", 8)), (34, b"LV"), (24, struct.pack("<II", 0, 1)), (4, b"\xff\0\0\0")],
    ids=["flags", "magic", "lengths", "total"],
)
def test_a_header_that_cannot_be_is_refused_whatever_its_checksum(
    kernel: Any, at: int, value: bytes
) -> None:
    stretch = stretch_of(1)
    length = stretch.places[0][2]
    changed = bytearray(stretch.data[:length])
    changed[at : at + len(value)] = value
    changed[:4] = extender(CRC32C)(SEED, bytes(changed[4:])).to_bytes(4, "little")
    stretch.data = bytes(changed)

    assert stretch.decode(kernel)[1] == [(10, stretch.places[0])]


def test_messages_of_one_publisher_share_origin_and_head(kernel: Any) -> None:
    calls: list[bytes] = []

    def counted(meta: bytes) -> tuple[bytes, bytes]:
        calls.append(meta)
        return parts_of(meta)

    other = (origin_of(b"x", b"kez"), b"head", b"")
    items = [(no, (other if no in {4, 5} else MESSAGE, (1,))) for no in range(8)]

    found, _, _ = Stretch(items).decode(kernel, counted)

    assert len(calls) == 3
    for one, two in ((0, 3), (4, 5), (6, 7)):
        assert found[one][0] is found[two][0]
        assert found[one][1] is found[two][1]
    assert all(type(message) is tuple for message in found.values())


def test_a_meta_that_cannot_be_read_spoils_its_messages_only(kernel: Any) -> None:
    def strict(meta: bytes) -> tuple[bytes, bytes]:
        if b"kez" in meta:
            raise Corrupt("no")
        return parts_of(meta)

    other = (origin_of(b"x", b"kez"), b"head", b"")
    stretch = Stretch([(no, (other if no in {1, 2} else MESSAGE, (1,))) for no in range(4)])

    found, others, body_bytes = stretch.decode(kernel, strict)

    assert list(found) == [0, 3]
    assert others == [(1, stretch.places[1]), (2, stretch.places[2])]
    assert body_bytes == 8


def test_another_error_of_who_reads_the_meta_is_passed_on(kernel: Any) -> None:
    def failing(meta: bytes) -> tuple[bytes, bytes]:
        raise KeyError(meta)

    with pytest.raises(KeyError):
        stretch_of(1).decode(kernel, failing)


def test_a_kind_of_checksum_that_is_unknown_is_an_error(kernel: Any) -> None:
    with pytest.raises(Corrupt, match="checksum kind 3 is unknown"):
        kernel.decode_run(b"", 0, [], [], 3, SEED, parts_of, {})


def test_a_number_without_a_place_is_an_error(kernel: Any) -> None:
    stretch = stretch_of(2)
    del stretch.places[1]

    with pytest.raises(ValueError, match=r"equally many|shorter"):
        stretch.decode(kernel)


# The compiled one.


def test_the_extension_was_made_from_the_sources_beside_it() -> None:
    compiled = kernel_of("_kernel_c")
    folder = Path(compiled.__file__).parent
    sources = [folder / "_kernel_c.pyx", *sorted(folder.glob("_kernel_c_*.pxi"))]
    source_hash = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()

    assert source_hash == compiled.SOURCE_HASH, (
        "leveret/msg_store/format/_kernel_c is stale: run pip install -e . again"
    )


def test_the_kernel_that_was_asked_for_runs() -> None:
    wanted = (
        os.environ.get("LEVERET_KERNEL")
        or importlib.import_module("leveret.amqp.kernel").KERNEL_NAME
    )

    assert wanted == KERNEL_NAME
    assert decode_run is kernel_of(f"_kernel_{wanted}").decode_run


def test_reading_a_thousand_times_keeps_nothing() -> None:
    compiled, stretch = kernel_of("_kernel_c"), stretch_of(20)
    stretch.places[7] = (7, START, 50)
    values = [struct.pack("<IIIII", *place[:3], 1, 1) for place in stretch.places]

    def rounds(count: int) -> None:
        for _ in range(count):
            found, _, _ = stretch.decode(compiled)
            compiled.take(found, [10, 11, 9])
            places = compiled.locations(values)
            compiled.runs(places, 5, 100)
            compiled.total(places)
            compiled.location_items([(1, None), *enumerate(places)])
            rows = compiled.rows([bytes(range(21))] * 3, 1 << 40)
            compiled.row_items(7, rows)
            compiled.bytes_of(compiled.entries(rows, True))

    assert bytes_kept(rounds, 1000) < 4000


@pytest.mark.parametrize(
    "place", [None, [7, START, 36], (7, START), (7, "x", 36), (7, START, 1 << 70)]
)
def test_what_is_no_place_is_refused(place: Any) -> None:
    compiled, stretch = kernel_of("_kernel_c"), stretch_of(1)
    stretch.places = [place]

    with pytest.raises((TypeError, ValueError, OverflowError)):
        stretch.decode(compiled)
    with pytest.raises((TypeError, ValueError, OverflowError)):
        compiled.runs([place], 5, 100)


@pytest.mark.parametrize("message", [None, (b"", b""), (b"", b"", "body"), [b"", b"", b""]])
def test_what_is_no_message_is_refused(message: Any) -> None:
    compiled = kernel_of("_kernel_c")

    with pytest.raises((TypeError, ValueError)):
        compiled.size_of([message])
    with pytest.raises((TypeError, ValueError)):
        compiled.take({1: message}, [1])


@pytest.mark.parametrize("by_table", [False, True])
@given(data=st.binary(max_size=100), crc=u32, kind=kinds)
def test_checksums_are_what_the_libraries_say(
    by_table: bool, data: bytes, crc: int, kind: int
) -> None:
    compiled = kernel_of("_kernel_c")

    assert compiled.checksum(kind, crc, data, by_table) == extender(kind)(crc, data)


@each_kernel
@given(data=st.binary(max_size=100), seed=u32, kind=kinds, cuts=st.lists(st.integers(0, 100)))
def test_checksums_of_many_parts_are_those_of_each(
    name: str, data: bytes, seed: int, kind: int, cuts: list[int]
) -> None:
    cuts = sorted(min(cut, len(data)) for cut in cuts)
    parts = list(pairwise(cuts))
    begins, ends = (array("q", [part[side] for part in parts]) for side in (0, 1))

    found = array("I", kernel_of(name).checksums(data, kind, seed, begins, ends))

    assert list(found) == [extender(kind)(seed, data[low:high]) for low, high in parts]


@each_kernel
@pytest.mark.parametrize(("begins", "ends"), [([-1], [2]), ([2], [1]), ([0], [4]), ([0, 1], [1])])
def test_checksums_of_parts_that_are_not_there_are_refused(
    name: str, begins: list[int], ends: list[int]
) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  the texts differ
        kernel_of(name).checksums(b"abc", CRC32C, SEED, array("q", begins), array("q", ends))


# Places.


@each_kernel
@given(places=st.lists(st.tuples(u32, u32, u32, u32, u32), max_size=5))
def test_places_are_read_as_the_index_has_them(name: str, places: list[Any]) -> None:
    values = [struct.pack("<IIIII", *place) for place in places]

    assert kernel_of(name).locations(values) == places


@pytest.mark.parametrize("value", [b"", b"1234567890123456789", b"123456789012345678901"])
def test_a_value_of_another_length_is_no_place(kernel: Any, value: bytes) -> None:
    with pytest.raises(struct.error, match="20 bytes"):
        kernel.locations([bytes(20), value])


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        ([], []),
        ([(1, 0, 10)], [(0, 1)]),
        ([(1, 0, 10), (1, 10, 10), (1, 20, 10)], [(0, 3)]),
        ([(1, 0, 10), (1, 15, 10), (1, 31, 10)], [(0, 2), (2, 3)]),
        ([(1, 0, 50), (1, 50, 50), (1, 100, 1)], [(0, 2), (2, 3)]),
        ([(1, 0, 500), (1, 500, 500)], [(0, 1), (1, 2)]),
        ([(1, 90, 10), (2, 0, 10), (2, 10, 10), (4, 20, 10)], [(0, 1), (1, 3), (3, 4)]),
        ([(0, 0, 1), (0, 0, 1)], [(0, 2)]),
        ([(1, 10, 10), (1, 0, 10)], None),
        ([(1, 500, 10), (1, 0, 10)], None),
        ([(2, 0, 10), (1, 10, 10)], None),
    ],
)
def test_places_are_joined_as_far_as_they_are_near(
    kernel: Any, places: list[Any], expected: list[tuple[int, int]] | None
) -> None:
    assert kernel.runs(places, 5, 100) == expected


@given(
    places=st.lists(
        st.tuples(st.integers(1, 2), st.integers(0, 60), st.integers(1, 30)), max_size=8
    ),
    ascend=st.booleans(),
)
def test_both_join_alike(places: list[Any], ascend: bool) -> None:
    places = sorted(places) if ascend else places
    pure, compiled = (kernel_of(name).runs(places, 5, 60) for name in NAMES)

    assert pure == compiled
    if ascend:
        assert [at for first, end in pure for at in range(first, end)] == [*range(len(places))]


# Rows, and what the index has.


@each_kernel
@given(places=st.lists(st.tuples(st.integers(1, 3), u32, u32, u32, u32), max_size=8))
def test_places_are_added_up(name: str, places: list[Any]) -> None:
    row_count, size_bytes, record_bytes = kernel_of(name).total(places)

    assert (row_count, size_bytes) == (sum(at[4] for at in places), sum(at[3] for at in places))
    assert record_bytes == {
        file_no: sum(at[2] for at in places if at[0] == file_no)
        for file_no in {at[0] for at in places}
    }


index_rows = st.lists(st.tuples(u64, u64, u32, u64, st.integers(0, 255)), max_size=5)
index_places = st.lists(st.tuples(u64, st.none() | st.tuples(u32, u32, u32, u32, u32)), max_size=5)


@each_kernel
@given(rows=index_rows, queue_no=u32)
def test_rows_are_written_as_the_index_has_them(name: str, rows: list[Any], queue_no: int) -> None:
    assert kernel_of(name).row_items(queue_no, rows) == [
        (struct.pack(">IQ", queue_no, row[0]), struct.pack("<QIQB", *row[1:])) for row in rows
    ]


@each_kernel
@given(rows=index_rows, first_seq=st.integers(0, (1 << 64) - 5))
def test_rows_are_read_as_they_were_written(name: str, rows: list[Any], first_seq: int) -> None:
    kernel = kernel_of(name)
    values = [value for _, value in kernel.row_items(1, rows)]

    found = kernel.rows(values, first_seq)

    assert found == [(seq, *row[1:]) for seq, row in enumerate(rows, first_seq)]


@pytest.mark.parametrize("value", [b"", bytes(20), bytes(22)])
def test_a_value_of_another_length_is_no_row(kernel: Any, value: bytes) -> None:
    with pytest.raises(struct.error):
        kernel.rows([bytes(21), value], 0)


@each_kernel
@given(rows=index_rows, persistent=st.booleans())
def test_entries_are_those_of_messages_on_disk(
    name: str, rows: list[Any], persistent: bool
) -> None:
    found = kernel_of(name).entries(rows, persistent)

    assert found == [
        (seq, None, expiry_ms, persistent, msg_no, size, True, True)
        for seq, msg_no, size, expiry_ms, _ in rows
    ]
    assert all(entry[3] is persistent for entry in found)
    assert kernel_of(name).bytes_of(iter(found)) == sum(row[2] for row in rows)


@each_kernel
@given(places=index_places)
def test_messages_with_a_place_are_written(name: str, places: list[Any]) -> None:
    assert kernel_of(name).location_items(places) == [
        (struct.pack(">Q", msg_no), struct.pack("<IIIII", *place))
        for msg_no, place in places
        if place is not None
    ]


@pytest.mark.parametrize(
    "row", [(1 << 64, 1, 1, 1, 1), (1, -1, 1, 1, 1), (1, 1, 1 << 32, 1, 1), (1, 1, 1, 1, 256)]
)
def test_a_number_that_does_not_fit_is_an_error(kernel: Any, row: Any) -> None:
    with pytest.raises((struct.error, OverflowError)):
        kernel.row_items(1, [row])
    with pytest.raises((struct.error, OverflowError)):
        kernel.location_items([(1, (1, 1, 1, 1, 1 << 32))])


@pytest.mark.parametrize("row", [None, (1, 1, 1, 1), [1, 1, 1, 1, 1], (1, 1, "x", 1, 1)])
def test_what_is_no_row_is_refused(row: Any) -> None:
    compiled = kernel_of("_kernel_c")

    with pytest.raises(TypeError):
        compiled.row_items(1, [row])
    with pytest.raises(TypeError):
        compiled.bytes_of([row])
    with pytest.raises(TypeError):
        compiled.total([row])
    with pytest.raises(TypeError):
        compiled.location_items([(1, row or ())])


# Messages in RAM.


@pytest.mark.parametrize(
    ("keys", "expected"), [([], []), ([3, 1], [3, 1]), ([1, 9, 2], [1]), ([9, 1], [])]
)
def test_messages_are_taken_up_to_the_first_that_is_not_there(
    kernel: Any, keys: list[int], expected: list[int]
) -> None:
    contents = {no: (b"", b"h" * no, b"b" * 10) for no in (1, 2, 3)}
    before = dict(contents)

    taken, size_bytes = kernel.take(contents, keys)

    assert taken == [before[no] for no in expected]
    assert size_bytes == sum(no + 10 for no in expected) == kernel.size_of(taken)
    assert contents == {no: each for no, each in before.items() if no not in expected}


def test_any_messages_are_measured(kernel: Any) -> None:
    assert kernel.size_of({}.values()) == 0
    assert kernel.size_of(each for each in [MESSAGE] * 3) == 24
