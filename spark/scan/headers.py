"""The headers tables of many messages at once, as maps from name to text.

A field is ``name:shortstr letter:u8 value``; ``leveret.amqp.tables`` lists the letters. Each round reads the next field
of every row that has one more. A string is the text of its map entry, every other value is JSON text, as
``json.dumps(plain(field))`` writes it. Numbers of a fixed width, booleans and void are turned into text by Arrow;
floats, decimals, arrays and tables by that decoder, field by field, equal ones once in a batch. A name that comes twice
counts once, by its first value. The rows are good or bad as that decoder says; the headers of bad ones are null.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from leveret.amqp.errors import SyntaxError_
from leveret.amqp.tables import Table, decode_table_body, plain
from leveret.spark.scan.gather import Numbers, gather, text
from leveret.spark.scan.record_meta import ByteRanges, Rows

HEADERS: Final = pa.map_(pa.string(), pa.string())
DEATHS: Final = pa.list_(
    pa.struct(
        [
            ("count", pa.int64()),
            ("reason", pa.string()),
            ("queue", pa.string()),
            ("exchange", pa.string()),
            ("routing_keys", pa.list_(pa.string())),
            ("time", pa.timestamp("us", tz="UTC")),
            ("original_expiration", pa.string()),
        ]
    )
)
ROUNDS_MAX: Final = 64  # rows with more fields go to the decoder of one
_X_DEATH: Final = "x-death"
_SECONDS_MAX: Final = 253_402_300_799
_S64_MAX: Final = (1 << 63) - 1

_FIXED: Final = {
    "t": (1, "?"),
    "b": (1, "i1"),
    "B": (1, "u1"),
    "s": (2, ">i2"),
    "u": (2, ">u2"),
    "I": (4, ">i4"),
    "i": (4, ">u4"),
    "l": (8, ">i8"),
    "L": (8, ">i8"),
    "T": (8, ">u8"),
}
_WIDTHS: Final = np.full(
    256, -1, np.int64
)  # of a value by its letter; -2: a length of 4 bytes comes first
for _letter, (_width, _) in _FIXED.items():
    _WIDTHS[ord(_letter)] = _width
for _letter, _width in {"f": 4, "d": 8, "D": 5, "V": 0, "S": -2, "x": -2, "A": -2, "F": -2}.items():
    _WIDTHS[ord(_letter)] = _width
_STRINGS: Final = (ord("S"), ord("x"))
_DECODED: Final = tuple(map(ord, "fdDAF"))


@dataclass(slots=True)
class _Round:
    """One field of some rows."""

    rows: Numbers
    name: ByteRanges
    letters: Numbers
    value: ByteRanges


@dataclass(slots=True)
class Headers:
    """The headers of a batch.

    Attributes:
        maps: for each row its map; null without headers, or where they are not well formed.
        x_death: for each row the deaths that its header ``x-death`` lists, the latest first; null without.
    """

    maps: Any
    x_death: Any


@dataclass(slots=True)
class _Decoded:
    """What the decoder of single fields has found in a batch."""

    texts: dict[bytes, str | None] = field(
        default_factory=dict
    )  # by the bytes of a field; None: malformed

    def text(self, raw: bytes) -> str | None:
        if raw not in self.texts:
            self.texts[raw] = _json(raw)
        return self.texts[raw]


def read_headers(rows: Rows, count: int, present: Numbers, ranges: ByteRanges) -> Headers:
    """Read the headers of ``count`` rows.

    Args:
        rows: whose bytes the headers are in.
        count: how many rows there are.
        present: the rows that have headers, ascending.
        ranges: where the fields of these are.
    """
    cursor = Rows(rows.data, rows.buffer, ranges.starts.copy(), ranges.starts + ranges.lengths,
                  np.zeros(len(present), np.bool_))  # fmt: skip
    rounds, long = _rounds(cursor)
    bad = cursor.bad
    entries = _Entries(rows, rounds, bad)
    entries.put_strings()
    entries.put_numbers()
    entries.put_decoded(_Decoded())
    return _assembled(rows, count, present, ranges, entries, long)


def _rounds(cursor: Rows) -> tuple[list[_Round], Numbers]:
    """Read field after field; return them, and the rows that have too many."""
    rounds: list[_Round] = []
    active = np.flatnonzero(cursor.at < cursor.ends)
    while len(active) and len(rounds) < ROUNDS_MAX:
        at, ends, data = cursor.at[active], cursor.ends[active], cursor.data
        name = ByteRanges(at + 1, data[at].astype(np.int64))
        letter_at = np.minimum(name.starts + name.lengths, ends)
        letters = data[letter_at]
        widths = _WIDTHS[letters]
        value_at = np.minimum(letter_at + 1, ends)
        lengths = widths
        has_length = widths == -2
        if has_length.all():
            lengths = cursor.big_endian(value_at, 4)
            value_at = value_at + 4
        elif has_length.any():
            some = np.flatnonzero(has_length)
            lengths = widths.copy()
            lengths[some] = cursor.big_endian(value_at[some], 4)
            value_at = value_at + 4 * has_length
        after = value_at + lengths
        good = (lengths >= 0) & (after <= ends) & (letter_at < ends)
        if not good.all():
            cursor.bad[active[~good]] = True
            active, after = active[good], after[good]
            name = ByteRanges(name.starts[good], name.lengths[good])
            letters, value_at, lengths = letters[good], value_at[good], lengths[good]
        rounds.append(_Round(active, name, letters, ByteRanges(value_at, lengths)))
        cursor.at[active] = after
        active = active[after < cursor.ends[active]]
    return rounds, active


class _Entries:
    """All fields of a batch, by row and in their order; a text for each."""

    def __init__(self, rows: Rows, rounds: list[_Round], bad: Numbers) -> None:
        self.bad = bad
        self._data, self._buffer = rows.data, rows.buffer
        none = np.empty(0, np.int64)
        row = np.concatenate([none, *(each.rows for each in rounds)])
        order = np.argsort(row, kind="stable") if len(rounds) > 1 else np.arange(len(row))
        self.row = row[order]
        self.name = self._joined([each.name for each in rounds], order)
        self.value = self._joined([each.value for each in rounds], order)
        letters = [np.empty(0, np.uint8), *(each.letters for each in rounds)]
        self.letters = np.concatenate(letters)[order]
        self.parts: list[Any] = []  # arrays of texts
        self.part_rows = [none]  # the entry of each of these texts

    @staticmethod
    def _joined(ranges: list[ByteRanges], order: Numbers) -> ByteRanges:
        none = np.empty(0, np.int64)
        starts = np.concatenate([none, *(each.starts for each in ranges)])
        return ByteRanges(
            starts[order], np.concatenate([none, *(each.lengths for each in ranges)])[order]
        )

    def _put(self, entries: Numbers, texts: Any) -> None:
        self.parts.append(texts)
        self.part_rows.append(entries)

    def put_strings(self) -> None:
        some = np.flatnonzero((self.letters == _STRINGS[0]) | (self.letters == _STRINGS[1]))
        if len(some):
            ranges = gather(self._buffer, self.value.starts[some], self.value.lengths[some])
            self._put(some, text(ranges))

    def put_numbers(self) -> None:
        for letter, (width, kind) in _FIXED.items():
            some = np.flatnonzero(self.letters == ord(letter))
            if len(some):
                octets = self._data[self.value.starts[some][:, None] + np.arange(width)]
                if kind == "?":
                    numbers = octets.reshape(-1) != 0
                else:
                    numbers = octets.reshape(-1).view(kind).astype(np.dtype(kind).newbyteorder("="))
                self._put(some, pa.array(numbers).cast(pa.string()))
        some = np.flatnonzero(self.letters == ord("V"))
        if len(some):
            self._put(some, pa.array(["null"] * len(some), pa.string()))

    def put_decoded(self, decoded: _Decoded) -> None:
        some = np.flatnonzero(np.isin(self.letters, _DECODED))
        if not len(some):
            return
        texts = []
        for entry in some.tolist():
            found = decoded.text(self.field(entry))
            if found is None:
                self.bad[self.row[entry]] = True
            texts.append(found)
        self._put(some, pa.array(texts, pa.string()))

    def field(self, entry: int) -> bytes:
        """Return the bytes of a field, its name included."""
        start = int(self.name.starts[entry]) - 1
        end = int(self.value.starts[entry] + self.value.lengths[entry])
        return self._data[start:end].tobytes()

    def texts(self) -> Any:
        """Return the texts of all entries, in order."""
        if not self.parts:
            return pa.array([], pa.string())
        entries = np.concatenate(self.part_rows)
        texts = pa.concat_arrays(self.parts)
        if len(self.parts) == 1 and len(entries) == len(self.row):
            return texts
        places = np.empty(len(entries), np.int64)
        places[entries] = np.arange(len(entries))
        return texts.take(pa.array(places))

    def names(self) -> Any:
        return text(gather(self._buffer, self.name.starts, self.name.lengths))


def _assembled(
    rows: Rows, count: int, present: Numbers, ranges: ByteRanges, entries: _Entries, long: Numbers
) -> Headers:
    names, texts, row = entries.names(), entries.texts(), entries.row
    tables = _long_tables(rows, ranges, long, entries.bad)
    is_kept = ~entries.bad[row]
    is_kept[np.isin(row, long)] = False
    is_kept &= _first_of_name(row, names)
    deaths = _deaths(entries, names, is_kept)
    if not is_kept.all():
        kept = np.flatnonzero(is_kept)
        row, names, texts = row[kept], names.take(pa.array(kept)), texts.take(pa.array(kept))
    if tables:
        row, names, texts = _with_tables(row, names, texts, tables)
        deaths |= {
            each: found
            for each, table in tables.items()
            if (found := _deaths_of(table)) is not None
        }
    sizes = np.zeros(count, np.int64)
    sizes[present] = np.bincount(row, minlength=len(present))
    offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int32)
    missing = np.ones(count, np.bool_)
    missing[present[~entries.bad]] = False
    return Headers(_map(offsets, names, texts, missing), _death_array(count, present, deaths))


def _map(offsets: Numbers, names: Any, texts: Any, missing: Numbers) -> Any:
    validity = None
    if missing.any():
        validity = pa.py_buffer(np.packbits(~missing, bitorder="little"))
    items = pa.StructArray.from_arrays(
        [names, texts], fields=[HEADERS.key_field, HEADERS.item_field]
    )
    return pa.MapArray.from_buffers(
        HEADERS, len(missing), [validity, pa.py_buffer(offsets)], int(missing.sum()), 0, [items]
    )


def _first_of_name(row: Numbers, names: Any) -> Numbers:
    """Return for each entry whether it is the first with its name in its row."""
    is_first = np.ones(len(row), np.bool_)
    if len(row) < 2 or not (row[1:] == row[:-1]).any():
        return is_first
    codes = names.dictionary_encode()
    keys = row * len(codes.dictionary) + codes.indices.to_numpy(zero_copy_only=False)
    found, first = np.unique(keys, return_index=True)
    if len(found) != len(keys):
        is_first[:] = False
        is_first[first] = True
    return is_first


# Fields that are decoded one by one.


def _table(raw: bytes) -> Table | None:
    try:
        return decode_table_body(raw)
    except SyntaxError_:
        return None


def _json(raw: bytes) -> str | None:
    table = _table(raw)
    if table is None:
        return None
    (found,) = table.values()
    return _text_of(found)


def _text_of(found: tuple[str, Any]) -> str:
    value = plain(found)
    return value if found[0] in "Sx" else json.dumps(value)


def _long_tables(rows: Rows, ranges: ByteRanges, long: Numbers, bad: Numbers) -> dict[int, Table]:
    tables = {}
    for row in long.tolist():
        start = int(ranges.starts[row])
        table = _table(rows.data[start : start + int(ranges.lengths[row])].tobytes())
        if table is None:
            bad[row] = True
        else:
            tables[row] = table
    return tables


def _with_tables(row: Numbers, names: Any, texts: Any, tables: dict[int, Table]) -> Any:
    """Return the entries with those of tables that were decoded one by one."""
    more = [(each, name, found) for each, table in tables.items() for name, found in table.items()]
    row = np.concatenate([row, [each for each, _, _ in more]]).astype(np.int64)
    order = np.argsort(row, kind="stable")
    more_names = pa.array([_utf8(name) for _, name, _ in more], pa.string())
    more_texts = pa.array([_text_of(found) for _, _, found in more], pa.string())
    names = pa.concat_arrays([names, more_names]).take(pa.array(order))
    return row[order], names, pa.concat_arrays([texts, more_texts]).take(pa.array(order))


def _utf8(name: str) -> str:
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _deaths(entries: _Entries, names: Any, is_kept: Numbers) -> dict[int, list[dict[str, Any]]]:
    some = np.flatnonzero((entries.letters == ord("A")) & is_kept)
    deaths = {}
    for entry in some.tolist():
        if names[entry].as_py() == _X_DEATH:
            found = _deaths_of(_table(entries.field(entry)) or {})
            if found is not None:
                deaths[int(entries.row[entry])] = found
    return deaths


def _deaths_of(table: Table) -> list[dict[str, Any]] | None:
    letter, content = table.get(_X_DEATH, ("V", None))
    if letter != "A":
        return None
    return [_death(value) for kind, value in content if kind == "F"]


def _death(table: Table) -> dict[str, Any]:
    keys = table.get("routing-keys", ("V", None))
    return {
        "count": _number(table.get("count"), _S64_MAX),
        "reason": _string(table.get("reason")),
        "queue": _string(table.get("queue")),
        "exchange": _string(table.get("exchange")),
        "routing_keys": [_string(key) for key in keys[1]] if keys[0] == "A" else None,
        "time": _micros(table.get("time")),
        "original_expiration": _string(table.get("original-expiration")),
    }


def _string(found: tuple[str, Any] | None) -> str | None:
    return str(plain(found)) if found is not None and found[0] in "Sx" else None


def _number(found: tuple[str, Any] | None, highest: int) -> int | None:
    value = found[1] if found is not None else None
    return value if type(value) is int and value <= highest else None


def _micros(found: tuple[str, Any] | None) -> int | None:
    seconds = _number(found, _SECONDS_MAX) if found is not None and found[0] == "T" else None
    return None if seconds is None else seconds * 1_000_000


def _death_array(count: int, present: Numbers, deaths: dict[int, list[dict[str, Any]]]) -> Any:
    if not deaths:
        return pa.nulls(count, DEATHS)
    values: list[Any] = [None] * count
    for row, found in deaths.items():
        values[int(present[row])] = found
    return pa.array(values, DEATHS)
