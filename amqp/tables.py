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
the first. Reading ends at ``TABLE_DEPTH_MAX`` and ``TABLE_FIELDS_MAX``. The kernel reads and writes the fields.

Differs from RabbitMQ: it fails with 541 on tables that cannot be read, Leveret answers 502; and it
cannot read infinities and NaN, Leveret can.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from struct import Struct, error
from typing import Any, Final, TypeAlias

from leveret.amqp.errors import SyntaxError_
from leveret.amqp.frame_errors import malformed_table
from leveret.amqp.kernel import read_fields, write_fields

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

S64_MAX: Final = (1 << 63) - 1
U64_MAX: Final = (1 << 64) - 1

_U32: Final = Struct(">I")


def decode_table(data: bytes, offset: int) -> tuple[Table, int]:
    """Read the table whose length stands at ``offset``; return it and the offset behind it.

    Raises:
        SyntaxError_: it is not a table, or deeper or longer than the ceilings.
    """
    try:
        end = offset + 4 + _U32.unpack_from(data, offset)[0]
    except error:
        raise malformed_table() from None
    return read_fields(data, offset + 4, end), end


def decode_table_body(data: bytes) -> Table:
    """Read a table that comes without its length, as in AMQPLAIN's response."""
    return read_fields(data, 0, len(data))


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
    try:
        return write_fields(table, "l" if rewritten else "L")
    except (error, OverflowError, AttributeError, TypeError) as reason:
        raise SyntaxError_(f"table cannot be written: {reason}") from reason


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
