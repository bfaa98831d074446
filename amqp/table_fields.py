"""The fields of tables in pure Python, over ``struct``; ``leveret/amqp/tables.py`` describes them.

Reading is a loop, not a recursion.
"""

from __future__ import annotations

from struct import Struct, error
from typing import Any, Final

from leveret.amqp.errors import SyntaxError_
from leveret.amqp.frame_errors import malformed_table
from leveret.core.limits import SHORTSTR_BYTES_MAX, TABLE_DEPTH_MAX, TABLE_FIELDS_MAX

_FORMATS: Final = {
    "t": "?",
    "b": "b",
    "B": "B",
    "s": "h",
    "u": "H",
    "I": "i",
    "i": "I",
    "l": "q",
    "L": "q",
    "f": "f",
    "d": "d",
    "T": "Q",
}
_FIXED: Final = {
    ord(letter): (letter, Struct(f">{form}"), Struct(f">B{form}").pack)
    for letter, form in _FORMATS.items()
}
_U32: Final = Struct(">I")
_DECIMAL: Final = Struct(">BI")
_STRINGS: Final = {ord("S"): "S", ord("x"): "x"}
_TABLE: Final = ord("F")
_NESTED: Final = frozenset({_TABLE, ord("A")})
_STRING_LETTERS: Final = frozenset("Sx")
_NESTED_LETTERS: Final = frozenset("FA")
_VOID: Final = ord("V")
_DECIMAL_LETTER: Final = ord("D")


def read_fields(data: bytes, start: int, end: int) -> dict[str, Any]:
    """Return the table whose fields fill ``data[start:end]``; SyntaxError_: they are malformed."""
    if end > len(data):
        raise malformed_table()
    try:
        return _read(data, start, end)
    except (IndexError, error):
        raise malformed_table() from None


def write_fields(table: dict[str, Any], long_letter: str) -> bytes:
    """Return a table's bytes, its length first; letter ``L`` is written as ``long_letter``."""
    parts: list[bytes] = []
    _write_table(parts, table, long_letter, TABLE_DEPTH_MAX)
    return b"".join(parts)


def _read(data: bytes, offset: int, end: int) -> dict[str, Any]:
    """Read fields up to ``end``; raises IndexError or struct.error besides SyntaxError_."""
    root: dict[str, Any] = {}
    inner: Any = root
    outer: list[tuple[Any, int]] = []
    for _ in range(TABLE_FIELDS_MAX + 1):
        while offset == end:
            if not outer:
                return root
            inner, end = outer.pop()
        name = ""
        if type(inner) is dict:
            name_end = offset + 1 + data[offset]
            name = data[offset + 1 : name_end].decode("utf-8", "surrogateescape")
            offset = name_end
        letter = data[offset]
        if letter in _NESTED:
            field, offset, inner_end = _nested(data, offset, letter)
            _check(inner_end <= end and len(outer) < TABLE_DEPTH_MAX)
            _put(inner, name, field)
            outer.append((inner, end))
            inner, end = field[1], inner_end
        else:
            field, offset = _scalar(data, offset, letter)
            _check(offset <= end)
            _put(inner, name, field)
    raise malformed_table()


def _check(is_well_formed: bool) -> None:
    if not is_well_formed:
        raise malformed_table()


def _put(inner: Any, name: str, field: tuple[str, Any]) -> None:
    if type(inner) is dict:
        inner.setdefault(name, field)
    else:
        inner.append(field)


def _nested(data: bytes, offset: int, letter: int) -> tuple[tuple[str, Any], int, int]:
    """Open the table or array whose letter stands at ``offset``."""
    length = _U32.unpack_from(data, offset + 1)[0]
    field: tuple[str, Any] = ("F", {}) if letter == _TABLE else ("A", [])
    return field, offset + 5, offset + 5 + length


def _scalar(data: bytes, offset: int, letter: int) -> tuple[tuple[str, Any], int]:
    """Read the field whose letter stands at ``offset``; the end may lie beyond the data."""
    if letter in _STRINGS:
        start = offset + 5
        end = start + _U32.unpack_from(data, offset + 1)[0]
        return (_STRINGS[letter], data[start:end]), end
    if letter in _FIXED:
        name, form, _ = _FIXED[letter]
        return (name, form.unpack_from(data, offset + 1)[0]), offset + 1 + form.size
    if letter == _DECIMAL_LETTER:
        return ("D", _DECIMAL.unpack_from(data, offset + 1)), offset + 6
    _check(letter == _VOID)
    return ("V", None), offset + 1


def _write_table(parts: list[bytes], table: dict[str, Any], long: str, depth: int) -> int:
    """Append the table's bytes, its length first; return how many they are."""
    place = len(parts)
    parts.append(b"")
    size = 0
    for name, field in table.items():
        key = name.encode("utf-8", "surrogateescape")
        if len(key) > SHORTSTR_BYTES_MAX:
            raise SyntaxError_(f"table key of {len(key)} bytes")
        parts.append(b"%c%b" % (len(key), key))
        size += 1 + len(key) + _write_field(parts, field, long, depth)
    parts[place] = _U32.pack(size)
    return _U32.size + size


def _write_field(parts: list[bytes], field: tuple[str, Any], long: str, depth: int) -> int:
    letter, value = field
    if letter in _NESTED_LETTERS:
        _check(depth > 0)
        parts.append(letter.encode())
        write = _write_table if letter == "F" else _write_array
        return 1 + write(parts, value, long, depth - 1)
    if letter in _STRING_LETTERS:
        written = b"%c%b%b" % (ord(letter), _U32.pack(len(value)), value)
    elif letter == "V":
        written = b"V"
    elif letter == "D":
        written = b"D" + _DECIMAL.pack(*value)
    else:
        code = ord(long if letter == "L" else letter)
        written = _FIXED[ord(letter)][2](code, value)
    parts.append(written)
    return len(written)


def _write_array(parts: list[bytes], fields: list[tuple[str, Any]], long: str, depth: int) -> int:
    """Append the array's bytes, its length first; return how many they are."""
    place = len(parts)
    parts.append(b"")
    size = 0
    for field in fields:
        size += _write_field(parts, field, long, depth)
    parts[place] = _U32.pack(size)
    return _U32.size + size
