"""Field tables: every letter, both ways; pamqp agrees; malformed tables are refused.

Tests: amqp/table_fields.py
"""

from __future__ import annotations

import contextlib
import datetime
import math
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import decode as pamqp_decode

from leveret.amqp import table_fields, tables
from leveret.amqp.errors import SyntaxError_
from leveret.amqp.tables import (
    TYPE_NAMES,
    Field,
    Table,
    decode_table,
    decode_table_body,
    encode_table,
    plain,
    type_name,
    typed,
    typed_table,
)
from leveret.core.limits import TABLE_DEPTH_MAX, TABLE_FIELDS_MAX
from rigs.wire.field_tables import SCALARS, TABLES

LETTERS: list[tuple[Field, str]] = [
    (("t", True), "74 01"),
    (("t", False), "74 00"),
    (("b", -2), "62 fe"),
    (("B", 254), "42 fe"),
    (("s", -2), "73 fffe"),
    (("u", 65534), "75 fffe"),
    (("I", -2), "49 fffffffe"),
    (("i", 4294967294), "69 fffffffe"),
    (("l", -2), "6c fffffffffffffffe"),
    (("L", -2), "4c fffffffffffffffe"),
    (("f", 1.5), "66 3fc00000"),
    (("d", -1.5), "64 bff8000000000000"),
    (("d", math.inf), "64 7ff0000000000000"),
    (("D", (2, 314)), "44 02 0000013a"),
    (("S", b"\xff\x00"), "53 00000002 ff00"),
    (("x", b"\xff\x00"), "78 00000002 ff00"),
    (("A", [("t", True), ("V", None)]), "41 00000003 7401 56"),
    (("A", []), "41 00000000"),
    (("T", 2**64 - 1), "54 ffffffffffffffff"),
    (("F", {"k": ("V", None)}), "46 00000003 016b 56"),
    (("F", {}), "46 00000000"),
    (("V", None), "56"),
]


@pytest.fixture(scope="module", autouse=True, params=["_kernel_py", "_kernel_c"])
def _either_kernel(request: pytest.FixtureRequest) -> Iterator[None]:
    kernel = pytest.importorskip(f"leveret.amqp.{request.param}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "read_fields", kernel.read_fields)
        patch.setattr(tables, "write_fields", kernel.write_fields)
        yield


def table_of(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


@pytest.mark.parametrize(("field", "octets"), LETTERS)
def test_bytes_of_each_letter(field: Field, octets: str) -> None:
    wire = table_of(b"\x01n" + bytes.fromhex(octets))

    assert decode_table(wire, 0) == ({"n": field}, len(wire))
    assert encode_table({"n": field}) == wire


def test_all_eighteen_letters_are_covered() -> None:
    assert len(TYPE_NAMES) == 18
    assert {field[0] for field, _ in LETTERS} == set(TYPE_NAMES)


def test_nan_is_read_and_written() -> None:
    wire = table_of(b"\x01nd\x7f\xf8\x00\x00\x00\x00\x00\x01")

    table, _ = decode_table(wire, 0)

    assert math.isnan(table["n"][1])
    assert encode_table(table) == wire


def test_any_octet_but_0_is_true() -> None:
    assert decode_table(table_of(b"\x01nt\x02"), 0)[0] == {"n": ("t", True)}


def test_a_table_is_read_where_it_stands() -> None:
    wire = b"before" + table_of(b"\x01aV") + b"behind"

    assert decode_table(wire, 6) == ({"a": ("V", None)}, len(wire) - 6)


def test_a_name_that_comes_twice_counts_by_its_first_value() -> None:
    assert decode_table(table_of(b"\x01at\x01\x01at\x00"), 0)[0] == {"a": ("t", True)}


def test_names_that_are_not_utf8_come_back() -> None:
    wire = table_of(b"\x02\xff\xfeV")

    table, _ = decode_table(wire, 0)

    assert table == {"\udcff\udcfe": ("V", None)}
    assert encode_table(table) == wire


@given(TABLES)
def test_tables_come_back_as_they_were_written(table: Table) -> None:
    wire = encode_table(table)

    assert decode_table(wire, 0) == (table, len(wire))
    assert decode_table_body(wire[4:]) == table


@given(TABLES)
def test_what_is_read_is_written_back_to_the_same_bytes(table: Table) -> None:
    wire = encode_table(table)

    assert encode_table(decode_table(wire, 0)[0]) == wire


def as_pamqp_reads(field: Field) -> Any:
    """Return what pamqp makes of a field."""
    letter, value = field
    match letter:
        case "A":
            value = [as_pamqp_reads(item) for item in value]
        case "S":
            with contextlib.suppress(UnicodeDecodeError):
                value = value.decode()
        case "T":
            value = datetime.datetime.fromtimestamp(value, tz=datetime.UTC)
        case "x":
            value = bytearray(value)
    return value


PAMQP_SCALARS = SCALARS.filter(
    # pamqp takes larger timestamps for milliseconds, and holds 28 digits of a decimal.
    lambda field: field[0] not in "TD" or (field[0] == "T" and field[1] < 2**32)
)


@given(
    st.dictionaries(
        st.text(st.characters(codec="ascii"), max_size=9),
        PAMQP_SCALARS | st.lists(PAMQP_SCALARS, max_size=3).map(lambda items: ("A", items)),
        max_size=6,
    )
)
def test_pamqp_reads_what_is_written(table: Table) -> None:
    consumed, found = pamqp_decode.field_table(encode_table(table))

    assert consumed == len(encode_table(table))
    assert found == {name: as_pamqp_reads(field) for name, field in table.items()}


@pytest.mark.parametrize(
    "wire",
    [
        b"",
        b"\x00\x00\x00",
        b"\x00\x00\x00\x01",
        b"\xff\xff\xff\xff\x01aV",
        table_of(b"\x01"),
        table_of(b"\x01a"),
        table_of(b"\x05aV"),
        table_of(b"\x01aZ"),
        table_of(b"\x01at"),
        table_of(b"\x01at") + b"\x01",
        table_of(b"\x01aI\x00\x00\x00") + b"\x00",
        table_of(b"\x01aD\x00\x00\x00\x00") + b"\x00",
        table_of(b"\x01aS\x00\x00\x00\x02x") + b"x",
        table_of(b"\x01aS\xff\xff\xff\xffx"),
        table_of(b"\x01aS\x00\x00"),
        table_of(b"\x01aA\x00\x00\x00\x02V") + b"V",
        table_of(b"\x01aA\x00\x00\x00\x01t") + b"\x01",
        table_of(b"\x01aF\x00\x00\x00\x02\x01a") + b"V",
        table_of(b"\x01aF\x00\x00"),
    ],
)
def test_what_is_no_table_is_refused(wire: bytes) -> None:
    with pytest.raises(SyntaxError_, match="malformed table"):
        decode_table(wire, 0)


@given(TABLES, st.data())
def test_damaged_tables_are_read_or_refused_and_nothing_else(
    table: Table, data: st.DataObject
) -> None:
    wire = bytearray(encode_table(table))
    for _ in range(data.draw(st.integers(0, 3))):
        wire[data.draw(st.integers(0, len(wire) - 1))] = data.draw(st.integers(0, 255))
    try:
        _, end = decode_table(bytes(wire), 0)
    except SyntaxError_:
        return

    assert end <= len(wire)


def nested(depth: int, letter: bytes) -> bytes:
    name = b"" if letter == b"A" else b"\x01n"
    body = b""
    for _ in range(depth):
        body = name + letter + table_of(body)
    return table_of(body if letter == b"F" else b"\x01n" + body)


@pytest.mark.parametrize("letter", [b"A", b"F"])
def test_nesting_ends_at_the_ceiling(letter: bytes) -> None:
    deepest = nested(TABLE_DEPTH_MAX, letter)

    assert encode_table(decode_table(deepest, 0)[0]) == deepest
    with pytest.raises(SyntaxError_):
        decode_table(nested(TABLE_DEPTH_MAX + 1, letter), 0)
    with pytest.raises(SyntaxError_):
        decode_table(nested(20_000, letter), 0)


def test_the_number_of_fields_ends_at_the_ceiling() -> None:
    def array(count: int) -> bytes:
        return table_of(b"\x01aA" + table_of(b"V" * count))

    assert len(decode_table(array(TABLE_FIELDS_MAX - 1), 0)[0]["a"][1]) == TABLE_FIELDS_MAX - 1
    with pytest.raises(SyntaxError_):
        decode_table(array(TABLE_FIELDS_MAX), 0)


@pytest.mark.parametrize(
    "table",
    [
        {"a": ("b", 128)},
        {"a": ("I", 1 << 31)},
        {"a": ("T", -1)},
        {"a": ("I", 1.5)},
        {"a": ("f", 1e39)},
        {"a": ("d", "1.5")},
        {"a": ("S", "str")},
        {"a": ("S", None)},
        {"a": ("D", (256, 1))},
        {"a": ("I", None)},
        {"k" * 256: ("V", None)},
    ],
)
def test_what_a_letter_cannot_hold_is_not_written(table: Table) -> None:
    with pytest.raises(SyntaxError_):
        encode_table(table)


def test_too_deep_a_table_is_not_written() -> None:
    table: Table = {}
    for _ in range(TABLE_DEPTH_MAX + 1):
        table = {"n": ("F", table)}

    with pytest.raises(SyntaxError_):
        encode_table(table)


def test_a_deep_table_is_written_with_one_look_at_each_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = [0]

    def counted(part: bytes | str) -> int:
        looks[0] += 1
        return len(part)

    table: Table = {f"k{number}": ("V", None) for number in range(1_000)}
    for _ in range(TABLE_DEPTH_MAX - 1):
        table = {"deeper": ("F", table)}
    monkeypatch.setattr(table_fields, "len", counted, raising=False)
    written = table_fields.write_fields(table, "L")

    assert looks[0] < 10 * (1_000 + TABLE_DEPTH_MAX)
    assert decode_table(written, 0)[0] == table


def test_rewritten_tables_are_sorted_and_have_no_letter_l_of_the_other_kind() -> None:
    table: Table = {"b": ("L", 1), "é": ("V", None), "a": ("A", [("L", 2)]), "Z": ("t", True)}

    wire = encode_table(table, rewritten=True)

    assert decode_table(wire, 0)[0] == {
        "Z": ("t", True),
        "a": ("A", [("l", 2)]),
        "b": ("l", 1),
        "é": ("V", None),
    }
    assert list(decode_table(wire, 0)[0]) == ["Z", "a", "b", "é"]


def test_type_names_are_rabbitmqs() -> None:
    names = " ".join(type_name((letter, 0)) for letter in "tbBsuIilLfdDSxATFV")

    assert names == (
        "bool byte unsignedbyte short unsignedshort signedint unsignedint long long float double "
        "decimal longstr binary array timestamp table void"
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (("S", b"caf\xc3\xa9"), "café"),
        (("S", b"\xff"), "\\xff"),
        (("A", [("I", 1), ("S", b"x")]), [1, "x"]),
        (("F", {"k": ("V", None)}), {"k": None}),
        (("D", (2, 314)), 3.14),
        (("D", (0, 3)), 3),
        (("d", math.inf), "inf"),
        (("d", 0.5), 0.5),
        (("T", 5), 5),
        (("t", True), True),
    ],
)
def test_plain_values_are_fit_for_json(field: Field, value: Any) -> None:
    assert plain(field) == value
    assert plain({"name": field}) == {"name": value}


def test_typed_values_have_the_types_rabbitmq_gives_to_json() -> None:
    values = {"s": "é", "i": 5, "f": 1.5, "t": True, "n": None, "l": [1, "x"], "d": {"k": b"\xff"}}

    assert typed_table(values) == {
        "s": ("S", b"\xc3\xa9"),
        "i": ("l", 5),
        "f": ("d", 1.5),
        "t": ("t", True),
        "n": ("V", None),
        "l": ("A", [("l", 1), ("S", b"x")]),
        "d": ("F", {"k": ("S", b"\xff")}),
    }


def test_what_no_field_holds_has_no_type() -> None:
    with pytest.raises(TypeError, match="no field type holds a object"):
        typed(object())
