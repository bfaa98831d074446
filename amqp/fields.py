"""Method arguments: from ``spec.FIELDS``'s notation to functions that read and write them.

Each method gets its reader and its writer once, at import. Runs of numbers that stand together are
one ``struct`` call; bits share an octet.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from struct import Struct
from typing import Any, ClassVar, Final, TypeAlias

import msgspec

from leveret.amqp.frame_errors import malformed_utf8
from leveret.amqp.spec import METHOD_NAMES
from leveret.amqp.tables import decode_table, encode_table

Step: TypeAlias = Callable[[bytes, int, list[Any]], int]
Writer: TypeAlias = Callable[[Any], bytes]

_NUMBERS: Final = {"octet": "B", "short": "H", "long": "I", "longlong": "Q", "timestamp": "Q"}
_NEUTRAL: Final[dict[str, Any]] = {"shortstr": "", "longstr": b"", "bit": False}
_U32: Final = Struct(">I")
# What Erlang's xmerl_ucs takes: surrogates too, and code points up to 1FFFFF.
_UTF8: Final = re.compile(
    rb"(?:[\x00-\x7f]|[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|[\xe1-\xef][\x80-\xbf]{2}"
    rb"|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf7][\x80-\xbf]{3})*"
)
_BY_CLASS_NAME: Final = {
    "".join(word.capitalize() for word in name.replace(".", "-").split("-")): ids
    for ids, name in METHOD_NAMES.items()
}


class Method(msgspec.Struct):
    """What all methods have; subclasses are named after the method and found by that name."""

    IDS: ClassVar[int]
    NAME: ClassVar[str]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.IDS = _BY_CLASS_NAME[cls.__name__]
        cls.NAME = METHOD_NAMES[cls.IDS]


def reader(notation: str, is_strict: bool) -> Callable[[bytes], list[Any]]:
    """Return a function from a method's argument bytes to its values, reserved ones left out.

    It raises IndexError or struct.error where the bytes are not exactly these arguments, and
    FrameError where ``is_strict`` and a short string is not UTF-8.
    """
    steps = [_read_step(kind, names, is_strict) for kind, names in _groups(notation)]

    def read(arguments: bytes) -> list[Any]:
        values: list[Any] = []
        offset = 0
        for step in steps:
            offset = step(arguments, offset, values)
        if offset != len(arguments):
            raise IndexError(offset)
        return values

    return read


def writer(notation: str, ids: int) -> Writer:
    """Return a function from a method to its payload, ids first."""
    start = _U32.pack(ids)
    steps = [_write_step(kind, names) for kind, names in _groups(notation)]

    def write(method: Any) -> bytes:
        return start + b"".join([step(method) for step in steps])

    return write


def _groups(notation: str) -> Iterator[tuple[str, list[str]]]:
    """Yield type and names; neighbouring bits come together."""
    bits: list[str] = []
    for word in notation.split():
        name, _, kind = word.partition(":")
        if kind == "bit":
            bits.append(name)
            continue
        if bits:
            yield "bit", bits
            bits = []
        yield kind, [name]
    if bits:
        yield "bit", bits


def _read_step(kind: str, names: list[str], is_strict: bool) -> Step:
    is_kept = not names[0].startswith("-")
    if kind == "bit":
        return _read_bits([1 << place for place, name in enumerate(names) if name[0] != "-"])
    if kind == "table":
        return _read_table
    if kind == "shortstr":
        return _read_shortstr_step(is_kept, is_strict)
    if kind == "longstr":
        return _read_longstr if is_kept else _skip_longstr
    return _read_number(Struct(f">{_NUMBERS[kind]}"), is_kept)


def _read_number(form: Struct, is_kept: bool) -> Step:
    unpack, size = form.unpack_from, form.size

    def read(data: bytes, offset: int, values: list[Any]) -> int:
        number = unpack(data, offset)
        if is_kept:
            values += number
        return offset + size

    return read


def _read_bits(masks: list[int]) -> Step:
    def read(data: bytes, offset: int, values: list[Any]) -> int:
        octet = data[offset]
        values += [octet & mask != 0 for mask in masks]
        return offset + 1

    return read


def _read_shortstr_step(is_kept: bool, is_strict: bool) -> Step:
    def read(data: bytes, offset: int, values: list[Any]) -> int:
        end = offset + 1 + data[offset]
        octets = data[offset + 1 : end]
        try:
            text = octets.decode()
        except UnicodeDecodeError:
            if is_strict and _UTF8.fullmatch(octets) is None:
                raise malformed_utf8() from None
            text = octets.decode("utf-8", "surrogateescape")
        if is_kept:
            values.append(text)
        return end

    return read


def _read_longstr(data: bytes, offset: int, values: list[Any]) -> int:
    end = offset + 4 + _U32.unpack_from(data, offset)[0]
    values.append(data[offset + 4 : end])
    return int(end)


def _skip_longstr(data: bytes, offset: int, values: list[Any]) -> int:
    return offset + 4 + int(_U32.unpack_from(data, offset)[0])


def _read_table(data: bytes, offset: int, values: list[Any]) -> int:
    # A table that runs over the end is a malformed method (501), a wrong field in it a malformed table (502).
    end = offset + 4 + _U32.unpack_from(data, offset)[0]
    if end > len(data):
        raise IndexError(end)
    table, end = decode_table(data, offset)
    values.append(table)
    return end


def _write_step(kind: str, names: list[str]) -> Writer:
    name = names[0]
    if name.startswith("-"):
        return _write_neutral(kind)
    if kind == "bit":
        return lambda method: _pack_bits([getattr(method, name) for name in names])
    write = _WRITE[kind]
    return lambda method: write(getattr(method, name))


def _write_neutral(kind: str) -> Writer:
    written = b"\x00" if kind == "bit" else _WRITE[kind](_NEUTRAL.get(kind, 0))
    return lambda method: written


def _pack_bits(bits: list[bool]) -> bytes:
    return bytes((sum(1 << place for place, bit in enumerate(bits) if bit),))


def _write_shortstr(text: str) -> bytes:
    octets = text.encode("utf-8", "surrogateescape")
    if len(octets) > 255:
        raise struct.error(f"short string of {len(octets)} bytes")
    return b"%c%b" % (len(octets), octets)


def _write_longstr(octets: bytes) -> bytes:
    return b"%b%b" % (_U32.pack(len(octets)), octets)


_WRITE: Final[dict[str, Callable[[Any], bytes]]] = {
    "shortstr": _write_shortstr,
    "longstr": _write_longstr,
    "table": encode_table,
    **{kind: Struct(f">{form}").pack for kind, form in _NUMBERS.items()},
}
