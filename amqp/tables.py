"""Field tables and arrays with all type letters that RabbitMQ knows.

A table on the wire is ``length:u32 (name:shortstr letter:u8 value)*``, an array the same without
names. Here a value is a ``Field``, the pair of letter and content, so that writing a table
back gives the bytes it came from; a table is a dict from name to field.

======  ==============  =======================  ======  ==============  =======================
letter  RabbitMQ's name  value                   letter  RabbitMQ's name  value
======  ==============  =======================  ======  ==============  =======================
``t``   bool            bool                     ``f``   float           float
``b``   byte            int, s8                  ``d``   double          float
``B``   unsignedbyte    int, u8                  ``D``   decimal         (scale u8, value u32)
``s``   short           int, s16                 ``S``   longstr         bytes
``u``   unsignedshort   int, u16                 ``x``   binary          bytes
``I``   signedint       int, s32                 ``A``   array           list of fields
``i``   unsignedint     int, u32                 ``T``   timestamp       int, u64
``l``   long            int, s64                 ``F``   table           dict of fields
``L``   long            int, s64                 ``V``   void            None
======  ==============  =======================  ======  ==============  =======================

A name that comes twice counts once, by its first value: RabbitMQ keeps both and its lookups find
the first. Reading is a loop, not a recursion, and ends at ``TABLE_DEPTH_MAX`` and
``TABLE_FIELDS_MAX``.

Differs from RabbitMQ: it fails with 541 on tables that cannot be read, Leveret answers 502; and it
cannot read infinities and NaN, Leveret can.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from struct import Struct, error
from typing import Any, Final, TypeAlias

from leveret.amqp.errors import SyntaxError_
from leveret.core.limits import SHORTSTR_BYTES_MAX, TABLE_DEPTH_MAX, TABLE_FIELDS_MAX

Field: TypeAlias = tuple[str, Any]
Table: TypeAlias = dict[str, Field]

TYPE_NAMES: Final[dict[str, str]] = {
    "t": "bool",
    "b": "byte",
    "B": "unsignedbyte",
    "s": "short",
    "u": "unsignedshort",
    "I": "signedint",
    "i": "unsignedint",
    "l": "long",
    "L": "long",
    "f": "float",
    "d": "double",
    "D": "decimal",
    "S": "longstr",
    "x": "binary",
    "A": "array",
    "T": "timestamp",
    "F": "table",
    "V": "void",
}

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
S64_MAX: Final = (1 << 63) - 1
U64_MAX: Final = (1 << 64) - 1

_U32: Final = Struct(">I")
_DECIMAL: Final = Struct(">BI")
_STRINGS: Final = {ord("S"): "S", ord("x"): "x"}
_TABLE: Final = ord("F")
_NESTED: Final = frozenset({_TABLE, ord("A")})
_STRING_LETTERS: Final = frozenset("Sx")
_NESTED_LETTERS: Final = frozenset("FA")
_VOID: Final = ord("V")
_DECIMAL_LETTER: Final = ord("D")


def decode_table(data: bytes, offset: int) -> tuple[Table, int]:
    """Read the table whose length stands at ``offset``; return it and the offset behind it.

    Raises:
        SyntaxError_: it is not a table, or deeper or longer than the ceilings.
    """
    try:
        end = offset + 4 + _U32.unpack_from(data, offset)[0]
        if end > len(data):
            raise _malformed()
        return (_decode(data, offset + 4, end) if end > offset + 4 else {}), end
    except (IndexError, error):
        raise _malformed() from None


def decode_table_body(data: bytes) -> Table:
    """Read a table that comes without its length, as in AMQPLAIN's response."""
    try:
        return _decode(data, 0, len(data)) if data else {}
    except (IndexError, error):
        raise _malformed() from None


def encode_table(table: Table, *, rewritten: bool = False) -> bytes:
    """Return the table's bytes, length included; fields keep their letters and their order.

    ``rewritten`` writes it as RabbitMQ writes headers that it had to change: names sorted, letter
    ``L`` as ``l``.

    Raises:
        SyntaxError_: deeper than the ceiling, a name too long, or a value that its letter cannot hold.
    """
    if rewritten:
        table = dict(
            sorted(table.items(), key=lambda item: item[0].encode("utf-8", "surrogateescape"))
        )
    parts: list[bytes] = []
    try:
        _write_table(parts, table, "l" if rewritten else "L", TABLE_DEPTH_MAX)
    except (error, OverflowError, AttributeError, TypeError) as reason:
        raise SyntaxError_(f"table cannot be written: {reason}") from reason
    return b"".join(parts)


def pack(table: Table) -> bytes:
    """Return the bytes of a table that is kept for long; decoded, a table takes 20 to 40 times as much."""
    return encode_table(table) if table else b""


def unpack(packed: bytes) -> Table:
    """Return a table of which ``pack`` has made bytes."""
    return decode_table(packed, 0)[0] if packed else {}


def type_name(field: Field) -> str:
    """Return RabbitMQ's name of the field's type, as its error texts show it."""
    return TYPE_NAMES[field[0]]


def plain(value: Field | Table) -> Any:
    """Return a field's value or a table without letters, fit for JSON."""
    if isinstance(value, dict):
        return {name: plain(field) for name, field in value.items()}
    letter, content = value
    convert = _PLAIN.get(letter)
    return content if convert is None else convert(content)


def typed(value: Any) -> Field:
    """Return a Python value as a field, typed as RabbitMQ types JSON; TypeError: no type fits.

    Differs from RabbitMQ: a whole number that ``l`` cannot hold is a ``T``, the only one of 64 bits without
    a sign, where RabbitMQ has a long that it cannot write.
    """
    if type(value) is int and S64_MAX < value <= U64_MAX:
        return "T", value
    for kind, letter, convert in _TYPED:
        if isinstance(value, kind):
            return letter, convert(value)
    raise TypeError(f"no field type holds a {type(value).__name__}")


def typed_table(values: dict[str, Any]) -> Table:
    """Return the table for a dict of Python values."""
    return {name: typed(value) for name, value in values.items()}


def _plain_decimal(content: tuple[int, int]) -> float:
    scale, number = content
    return number / 10**scale if scale else number


def _plain_float(content: float) -> float | str:
    return content if math.isfinite(content) else str(content)  # JSON has no NaN


def _plain_text(content: bytes) -> str:
    return content.decode("utf-8", "backslashreplace")


def _plain_array(content: list[Field]) -> list[Any]:
    return [plain(field) for field in content]


def _typed_array(values: Any) -> list[Field]:
    return [typed(value) for value in values]


def _text_octets(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


_PLAIN: Final[dict[str, Callable[[Any], Any]]] = {
    "S": _plain_text,
    "x": _plain_text,
    "A": _plain_array,
    "F": plain,
    "D": _plain_decimal,
    "f": _plain_float,
    "d": _plain_float,
}
_TYPED: Final[tuple[tuple[Any, str, Callable[[Any], Any]], ...]] = (
    (bool, "t", bool),
    (str, "S", _text_octets),
    (bytes, "S", bytes),
    (int, "l", int),
    (float, "d", float),
    (type(None), "V", lambda _: None),
    (dict, "F", typed_table),
    ((list, tuple), "A", _typed_array),
)


def _malformed() -> SyntaxError_:
    return SyntaxError_("malformed table")


def _decode(data: bytes, offset: int, end: int) -> Table:
    """Read fields up to ``end``; raises IndexError or struct.error besides SyntaxError_."""
    root: Table = {}
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
    raise _malformed()


def _check(is_well_formed: bool) -> None:
    if not is_well_formed:
        raise _malformed()


def _put(inner: Any, name: str, field: Field) -> None:
    if type(inner) is dict:
        inner.setdefault(name, field)
    else:
        inner.append(field)


def _nested(data: bytes, offset: int, letter: int) -> tuple[Field, int, int]:
    """Open the table or array whose letter stands at ``offset``."""
    length = _U32.unpack_from(data, offset + 1)[0]
    field: Field = ("F", {}) if letter == _TABLE else ("A", [])
    return field, offset + 5, offset + 5 + length


def _scalar(data: bytes, offset: int, letter: int) -> tuple[Field, int]:
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


def _write_table(parts: list[bytes], table: Table, long: str, depth: int) -> int:
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


def _write_field(parts: list[bytes], field: Field, long: str, depth: int) -> int:
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


def _write_array(parts: list[bytes], fields: list[Field], long: str, depth: int) -> int:
    """Append the array's bytes, its length first; return how many they are."""
    place = len(parts)
    parts.append(b"")
    size = 0
    for field in fields:
        size += _write_field(parts, field, long, depth)
    parts[place] = _U32.pack(size)
    return _U32.size + size
