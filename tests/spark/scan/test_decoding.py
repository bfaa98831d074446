"""Decoding of many content headers at once, against ``leveret.amqp``'s decoder of one.

Tests: spark/scan/gather.py, spark/scan/headers.py, spark/scan/properties.py,
    spark/scan/record_meta.py
"""

from __future__ import annotations

import json
import struct
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.amqp.errors import SyntaxError_
from leveret.amqp.properties import Properties, decode_properties, head_of
from leveret.amqp.tables import Table, plain
from leveret.core.message import origin_of
from leveret.msg_store.format.record import unpack_meta
from leveret.msg_store.format.record_encoding import pack_meta
from leveret.spark.scan.gather import gather, text
from leveret.spark.scan.headers import DEATHS, HEADERS, ROUNDS_MAX, read_headers
from leveret.spark.scan.properties import PROPERTIES, Heads
from leveret.spark.scan.record_meta import ByteRanges, Rows, read_metas
from rigs.wire.field_tables import TABLES

LAST_SECOND = 253_402_300_799


def rows_of(values: list[bytes]) -> tuple[Rows, ByteRanges]:
    lengths = np.array([len(value) for value in values], np.int64)
    starts = np.cumsum(lengths) - lengths
    rows = Rows.of(pa.py_buffer(b"".join(values) + b"\0"), starts, lengths)
    return rows, ByteRanges(rows.at, lengths)


def decoded(heads: list[bytes]) -> list[tuple[Any, Any, Any]]:
    """Return properties, headers and x-death of each head."""
    rows, ranges = rows_of(heads)
    found = Heads(rows, ranges)
    headers = read_headers(rows, len(heads), *found.headers())
    headers.maps.validate(full=True)
    maps = [None if each is None else dict(each) for each in headers.maps.to_pylist()]
    return list(zip(found.properties().to_pylist(), maps, headers.x_death.to_pylist(), strict=True))


def expected(head: bytes) -> tuple[Any, Any]:
    """Return what the decoder of one says."""
    try:
        properties = decode_properties(head)
    except SyntaxError_:
        return properties_only(head), None
    values = {field.name: shown(getattr(properties, field.name)) for field in PROPERTIES}
    values["timestamp"] = time_of(properties.timestamp)
    headers = properties.headers
    return values, None if headers is None else {name_of(n): text_of(f) for n, f in headers.items()}


def properties_only(head: bytes) -> Any:
    """Return the properties of a head in which only the table may be malformed, else None."""
    place = 14
    try:
        flags = head[12] << 8 | head[13]
        for bit in (15, 14):
            if flags & 1 << bit:
                place += 1 + head[place]
        if not flags & 1 << 13:
            return None
        size = struct.unpack_from(">I", head, place)[0]
        if place + 4 + size > len(head):
            return None
        empty = head[:place] + bytes(4) + head[place + 4 + size :]
        properties = decode_properties(empty)
    except (IndexError, struct.error, SyntaxError_):
        return None
    values = {field.name: shown(getattr(properties, field.name)) for field in PROPERTIES}
    return values | {"timestamp": time_of(properties.timestamp)}


def shown(value: Any) -> Any:
    return name_of(value) if isinstance(value, str) else value


def name_of(name: str) -> str:
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def time_of(seconds: int | None) -> Any:
    if seconds is None or seconds > LAST_SECOND:
        return None
    return datetime.fromtimestamp(seconds, UTC)


def text_of(field: tuple[str, Any]) -> str:
    value = plain(field)
    return value if field[0] in "Sx" else json.dumps(value)


shortstr = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=20),
    st.binary(max_size=20).map(lambda octets: octets.decode("utf-8", "surrogateescape")),
)
octet = st.one_of(st.none(), st.integers(0, 255))
optional = st.one_of(st.none(), shortstr)
properties_ = st.builds(
    Properties,
    content_type=optional,
    content_encoding=optional,
    headers=st.one_of(st.none(), TABLES),
    delivery_mode=octet,
    priority=octet,
    correlation_id=optional,
    reply_to=optional,
    expiration=optional,
    message_id=optional,
    timestamp=st.one_of(st.none(), st.integers(0, 2**64 - 1), st.integers(0, LAST_SECOND + 1)),
    type=optional,
    user_id=optional,
    app_id=optional,
    cluster_id=optional,
)
good_heads = properties_.map(lambda each: head_of(each, 5))


@given(st.lists(good_heads, min_size=1, max_size=8))
def test_properties_and_headers_of_all_types_are_those_of_the_plain_decoder(
    heads: list[bytes],
) -> None:
    assert [each[:2] for each in decoded(heads)] == [expected(head) for head in heads]


@st.composite
def spoiled(draw: st.DrawFn) -> bytes:
    head = bytearray(draw(good_heads))
    for _ in range(draw(st.integers(0, 3))):
        head[draw(st.integers(12, len(head) - 1))] = draw(st.integers(0, 255))
    return bytes(head[: draw(st.integers(0, len(head)))] if draw(st.booleans()) else head)


@settings(max_examples=400)
@given(st.lists(st.one_of(spoiled(), st.binary(max_size=40)), min_size=1, max_size=8))
def test_damaged_heads_are_null_and_do_not_disturb_their_neighbours(heads: list[bytes]) -> None:
    for head, (properties, headers, _) in zip(heads, decoded(heads), strict=True):
        wanted_properties, wanted_headers = expected(head)
        assert properties == wanted_properties
        assert headers == wanted_headers


@given(st.lists(st.one_of(st.none(), st.binary(max_size=12)), max_size=12))
def test_spans_become_arrays_with_nulls(values: list[bytes | None]) -> None:
    buffer = b"..".join(value or b"" for value in values)
    there = [value for value in values if value is not None]
    starts, at = [], 0
    for value in values:
        if value is not None:
            starts.append(at)
        at += len(value or b"") + 2
    rows = np.cumsum([value is not None for value in values]) - 1
    rows[[value is None for value in values]] = -1
    lengths = np.array([len(value) for value in there], np.int64)

    found = gather(pa.py_buffer(buffer), np.array(starts, np.int64), lengths, rows.astype(np.int64))

    assert found.to_pylist() == values


def test_bytes_that_are_no_utf_8_are_written_as_escapes() -> None:
    values = pa.array([b"a\xff", None, "ü".encode()], pa.binary())

    assert text(values).to_pylist() == ["a\\xff", None, "ü"]


def duplicates(*fields_: tuple[bytes, bytes]) -> bytes:
    body = b"".join(b"%c%b%b" % (len(name), name, value) for name, value in fields_)
    return head_of(Properties(), 5)[:12] + b"\x20\x00" + struct.pack(">I", len(body)) + body


def test_of_a_name_that_comes_twice_the_first_value_counts() -> None:
    heads = [
        duplicates((b"a", b"t\x01"), (b"b", b"V"), (b"a", b"t\x00")),
        duplicates((b"a", b"t\x00"), (b"b", b"t\x01")),
    ]

    assert [each[1] for each in decoded(heads)] == [
        {"a": "true", "b": "null"},
        {"a": "false", "b": "true"},
    ]


def test_a_table_with_very_many_fields_is_decoded_too() -> None:
    many: Table = {f"h{n}": ("I", n) for n in range(ROUNDS_MAX + 5)}
    few: Table = {"x": ("S", b"y")}
    heads = [head_of(Properties(headers=table), 1) for table in (few, many, few)]

    assert [each[1] for each in decoded(heads)] == [
        {"x": "y"},
        {f"h{n}": str(n) for n in range(ROUNDS_MAX + 5)},
        {"x": "y"},
    ]


def death(number: int) -> tuple[str, Any]:
    return "F", {
        "count": ("l", number),
        "reason": ("S", b"expired"),
        "queue": ("S", b"orders"),
        "exchange": ("S", b""),
        "routing-keys": ("A", [("S", b"a"), ("S", b"b")]),
        "time": ("T", 1_700_000_000),
        "original-expiration": ("S", b"60000"),
    }


@pytest.mark.parametrize("others", [0, ROUNDS_MAX + 1])
def test_x_death_is_parsed(others: int) -> None:
    more: Table = {f"h{n}": ("V", None) for n in range(others)}
    heads = [
        head_of(Properties(headers={"x-death": ("A", [death(2), death(1)]), **more}), 1),
        head_of(Properties(headers={"x-death": ("S", b"no list")}), 1),
        head_of(Properties(headers={"x-death": ("A", [("S", b"no table")])}), 1),
        head_of(Properties(headers={"x-death": ("A", [("F", {"count": ("S", b"?")})])}), 1),
        head_of(Properties(), 1),
    ]

    first, *rest = [each[2] for each in decoded(heads)]

    assert first == [
        {
            "count": number,
            "reason": "expired",
            "queue": "orders",
            "exchange": "",
            "routing_keys": ["a", "b"],
            "time": datetime.fromtimestamp(1_700_000_000, UTC),
            "original_expiration": "60000",
        }
        for number in (2, 1)
    ]
    assert rest[:2] == [None, []]
    assert rest[2] == [dict.fromkeys(first[0])]
    assert rest[3] is None


def test_the_types_are_the_declared_ones() -> None:
    rows, ranges = rows_of([head_of(Properties(headers={"a": ("V", None)}), 1)])
    heads = Heads(rows, ranges)
    headers = read_headers(rows, 1, *heads.headers())

    assert heads.properties().type == PROPERTIES
    assert (headers.maps.type, headers.x_death.type) == (HEADERS, DEATHS)


key = st.binary(max_size=255)
route_nos = st.lists(st.integers(0, (1 << 40) - 1), max_size=20).map(tuple)


@given(
    st.lists(
        st.tuples(
            key, st.lists(key, min_size=1, max_size=20), st.binary(max_size=70_000), route_nos,
            st.one_of(st.none(), st.binary(max_size=300)),
        ),
        min_size=1,
        max_size=4,
    )
)  # fmt: skip
def test_metas_are_those_of_the_plain_decoder(wanted: list[Any]) -> None:
    metas = [
        pack_meta(origin_of(exchange, *keys), head, numbers, guid)
        for exchange, keys, head, numbers, guid in wanted
    ]
    lengths = np.array([len(meta) for meta in metas], np.int64)

    found = read_metas(pa.py_buffer(b"".join(metas)), np.cumsum(lengths) - lengths, lengths, True)

    assert not found.rows.bad.any()
    for place, meta in enumerate(metas):
        plainly = unpack_meta(meta)
        assert span(found, found.exchange, place) == plainly.exchange
        first, last = found.key_offsets[place : place + 2]
        assert (
            tuple(span(found, found.keys, at) for at in range(first, last)) == plainly.routing_keys
        )
        assert span(found, found.head, place) == plainly.head
        first, last = found.number_offsets[place : place + 2]
        assert tuple(found.numbers[first:last].tolist()) == plainly.queue_nos


def span(found: Any, ranges: ByteRanges, place: int) -> bytes:
    start = int(ranges.starts[place])
    return found.rows.data[start : start + int(ranges.lengths[place])].tobytes()


@given(st.lists(st.binary(min_size=1, max_size=60), min_size=1, max_size=6))
def test_bytes_that_are_no_meta_are_bad_and_do_no_harm(metas: list[bytes]) -> None:
    good = pack_meta(origin_of(b"x", b"k"), b"head", (1,))
    lengths = np.array([len(meta) for meta in [*metas, good]], np.int64)

    found = read_metas(
        pa.py_buffer(b"".join([*metas, good])), np.cumsum(lengths) - lengths, lengths, True
    )

    assert not found.rows.bad[-1]
    assert span(found, found.exchange, len(metas)) == b"x"
    assert span(found, found.head, len(metas)) == b"head"
