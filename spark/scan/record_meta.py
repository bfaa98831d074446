"""The metas of many records at once: msgpack ``[exchange, [key...], guid or nil, head, [queue_no...]]``.

The layout is ``leveret.msg_store.format.record``'s. Each step reads one field of all rows: a *cursor* has the position
of every row in one array of bytes. A row that is not as expected, or whose fields go past its end, is *bad*; its cursor
stays inside the row, so that the others can go on. All other code that decodes columns works in this way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from leveret.spark.scan.gather import Numbers, contents, gather

PADDING: Final = 16  # zero bytes behind the last row, so that no read goes past the array

_FIXARRAY: Final = 0x90
_NIL: Final = 0xC0
_BIN8, _BIN16, _BIN32 = 0xC4, 0xC5, 0xC6
_U8, _U16, _U32, _U64 = 0xCC, 0xCD, 0xCE, 0xCF
_ARRAY16, _ARRAY32 = 0xDC, 0xDD


@dataclass(slots=True)
class ByteRanges:
    """The byte range of a field in each row."""

    starts: Numbers
    lengths: Numbers


@dataclass(slots=True)
class Rows:
    """Many rows in one array of bytes.

    Attributes:
        data: the bytes, padded; ``buffer`` is the same for Arrow.
        at: the cursor: a position per row.
        ends: of the rows.
        bad: rows that cannot be decoded.
    """

    data: Numbers
    buffer: Any
    at: Numbers
    ends: Numbers
    bad: Numbers

    @classmethod
    def of(cls, buffer: Any, starts: Numbers, lengths: Numbers) -> Rows:
        """Gather rows out of a buffer; ``starts`` ascend."""
        total = int(lengths.sum())
        data = np.zeros(total + PADDING, np.uint8)
        data[:total] = contents(gather(buffer, starts, lengths)) if len(starts) else 0
        ends = np.cumsum(lengths, dtype=np.int64)
        return cls(data, pa.py_buffer(data), ends - lengths, ends, np.zeros(len(starts), np.bool_))

    def big_endian(self, at: Numbers, count: int) -> Numbers:
        """Return unsigned numbers of ``count`` bytes, at most 7, at the positions."""
        number = self.data[at].astype(np.int64)
        for place in range(1, count):
            number = number << 8 | self.data[at + place]
        return number

    def settle(self) -> None:
        """Mark the rows whose cursor has left them as bad, and bring it back to their ends."""
        self.bad |= self.at > self.ends
        np.minimum(self.at, self.ends, out=self.at)


@dataclass(slots=True)
class Metas:
    """The fields of metas.

    Attributes:
        keys: of all routing keys, row by row; ``key_offsets`` has where those of each row begin, and the end.
        numbers: of all route numbers, in the same way.
    """

    rows: Rows
    exchange: ByteRanges
    keys: ByteRanges
    key_offsets: Numbers
    head: ByteRanges
    numbers: Numbers
    number_offsets: Numbers


def read_metas(buffer: Any, starts: Numbers, lengths: Numbers, with_numbers: bool = False) -> Metas:
    """Read the metas that lie in a buffer at ascending places; ``rows.bad`` says which are damaged."""
    rows = Rows.of(buffer, starts, lengths)
    rows.bad |= rows.data[rows.at] != _FIXARRAY | 5
    rows.at += 1
    rows.settle()
    exchange = _bin(rows)
    counts = _array(rows)
    keys, key_offsets = _keys(rows, counts)
    _guid(rows)
    head = _bin(rows)
    numbers, number_offsets = _NOTHING, _NOTHING
    if with_numbers:
        numbers, number_offsets = _numbers(rows)
    return Metas(rows, exchange, keys, key_offsets, head, numbers, number_offsets)


_NOTHING: Final = np.empty(0, np.int64)


def _bin(rows: Rows) -> ByteRanges:
    """Read a ``bin`` of each row; one of a bad row is empty."""
    markers = rows.data[rows.at]
    if (markers == _BIN8).all():
        lengths, width = rows.data[rows.at + 1].astype(np.int64), np.int64(2)
        starts = rows.at + width
    else:
        lengths, starts = np.zeros(len(markers), np.int64), rows.at + 1
        for marker, size in ((_BIN8, 1), (_BIN16, 2), (_BIN32, 4)):
            here = markers == marker
            lengths[here] = rows.big_endian(rows.at[here] + 1, size)
            starts[here] += size
        rows.bad |= (markers < _BIN8) | (markers > _BIN32)
    rows.at = starts + lengths
    rows.settle()
    starts = np.minimum(starts, rows.ends)
    return ByteRanges(starts, rows.at - starts)


def _array(rows: Rows) -> Numbers:
    """Read the header of an array of each row; return the counts, 0 in bad rows."""
    markers = rows.data[rows.at]
    counts = (markers & 0x0F).astype(np.int64)
    is_short = markers & 0xF0 == _FIXARRAY
    steps = np.ones(len(markers), np.int64)
    if not is_short.all():
        for marker, size in ((_ARRAY16, 2), (_ARRAY32, 4)):
            here = markers == marker
            counts[here] = rows.big_endian(rows.at[here] + 1, size)
            steps[here] += size
        rows.bad |= ~(is_short | (markers == _ARRAY16) | (markers == _ARRAY32))
    rows.at = rows.at + steps
    rows.bad |= counts > rows.ends - rows.at  # each element has a byte at least
    rows.settle()
    counts[rows.bad] = 0
    return counts


def _keys(rows: Rows, counts: Numbers) -> tuple[ByteRanges, Numbers]:
    offsets = np.concatenate(([0], np.cumsum(counts)))
    if (counts == 1).all():
        return _bin(rows), offsets
    starts, lengths = np.zeros(offsets[-1], np.int64), np.zeros(offsets[-1], np.int64)
    for place in range(int(counts.max(initial=0))):
        some = np.flatnonzero(counts > place)
        part = Rows(rows.data, rows.buffer, rows.at[some], rows.ends[some], rows.bad[some])
        ranges = _bin(part)
        starts[offsets[some] + place], lengths[offsets[some] + place] = (
            ranges.starts,
            ranges.lengths,
        )
        rows.at[some], rows.bad[some] = part.at, part.bad
    return ByteRanges(starts, lengths), offsets


def _guid(rows: Rows) -> None:
    has_none = rows.data[rows.at] == _NIL
    rows.at = rows.at + has_none
    if not has_none.all():
        some = np.flatnonzero(~has_none)
        part = Rows(rows.data, rows.buffer, rows.at[some], rows.ends[some], rows.bad[some])
        _bin(part)
        rows.at[some], rows.bad[some] = part.at, part.bad


def _numbers(rows: Rows) -> tuple[Numbers, Numbers]:
    """Read the route numbers: unsigned integers of up to 40 bits, in msgpack's shortest form."""
    counts = _array(rows)
    offsets = np.concatenate(([0], np.cumsum(counts)))
    values = np.zeros(offsets[-1], np.int64)
    for place in range(int(counts.max(initial=0))):
        some = np.flatnonzero(counts > place)
        at = rows.at[some]
        markers = rows.data[at]
        numbers, steps = markers.astype(np.int64), np.ones(len(some), np.int64)
        rows.bad[some] |= (markers >= 0x80) & ((markers < _U8) | (markers > _U64))
        for marker, size in ((_U8, 1), (_U16, 2), (_U32, 4)):
            here = markers == marker
            numbers[here] = rows.big_endian(at[here] + 1, size)
            steps[here] += size
        here = markers == _U64
        numbers[here] = rows.big_endian(at[here] + 2, 7)  # the highest byte is 0
        steps[here] += 8
        rows.at[some] = np.minimum(at + steps, rows.ends[some])
        values[offsets[some] + place] = numbers
    return values, offsets
