"""The basic properties of many content headers at once; ``leveret.amqp.properties`` decodes one, and describes them.

Properties stand in the order of their flags, so each step reads one property of the rows that have it. Rows that are
not well formed have no properties at all, as there; the raw bytes are still in ``properties_raw``.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from leveret.spark.scan.gather import Numbers, gather, text
from leveret.spark.scan.record_meta import ByteRanges, Rows

FLAGS_AT: Final = 12
FIRST_AT: Final = 14
NAMES: Final = (
    "content_type",
    "content_encoding",
    "headers",
    "delivery_mode",
    "priority",
    "correlation_id",
    "reply_to",
    "expiration",
    "message_id",
    "timestamp",
    "type",
    "user_id",
    "app_id",
    "cluster_id",
)
_OCTETS: Final = frozenset({"delivery_mode", "priority"})
_CONTINUATION: Final = 1
_US: Final = 1_000_000
_SECONDS_MAX: Final = (
    253_402_300_799  # the end of the year 9999; Python and Spark show no later time
)

PROPERTIES: Final = pa.struct(
    [
        ("content_type", pa.string()),
        ("content_encoding", pa.string()),
        ("delivery_mode", pa.int16()),
        ("priority", pa.int16()),
        ("correlation_id", pa.string()),
        ("reply_to", pa.string()),
        ("expiration", pa.string()),
        ("message_id", pa.string()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("type", pa.string()),
        ("user_id", pa.string()),
        ("app_id", pa.string()),
        ("cluster_id", pa.string()),
    ]
)


class Heads:
    """The properties of many content headers.

    Args:
        rows: whose bytes the heads are in.
        head: where they are.

    Attributes:
        bad: rows with a head that is not well formed.
    """

    def __init__(self, rows: Rows, head: ByteRanges) -> None:
        self._buffer, self._data = rows.buffer, rows.data
        self._present: dict[str, Numbers] = {}  # rows that have a property, ascending
        self._ranges: dict[str, ByteRanges] = {}  # of these rows
        self._count = len(head.starts)
        ends = head.starts + head.lengths
        cursor = Rows(rows.data, rows.buffer, head.starts + FIRST_AT, ends, rows.bad.copy())
        flags = cursor.big_endian(np.minimum(head.starts + FLAGS_AT, ends), 2)
        cursor.bad |= flags & _CONTINUATION != 0
        cursor.settle()
        flags[cursor.bad] = 0
        for place, name in enumerate(NAMES):
            present = np.flatnonzero(flags & 1 << 15 - place)
            if len(present):
                self._read(cursor, name, present)
        cursor.bad |= cursor.at != ends
        self.bad = cursor.bad
        self._raw = ByteRanges(
            np.minimum(head.starts + FLAGS_AT, ends), np.maximum(head.lengths - FLAGS_AT, 0)
        )

    def _read(self, cursor: Rows, name: str, present: Numbers) -> None:
        is_all = len(present) == self._count
        at = cursor.at if is_all else cursor.at[present]
        ends = cursor.ends if is_all else cursor.ends[present]
        if name in _OCTETS:
            starts, lengths = at, np.ones(len(at), np.int64)
        elif name == "timestamp":
            starts, lengths = at, np.full(len(at), 8)
        elif name == "headers":
            starts = at + 4
            lengths = cursor.big_endian(at, 4)
        else:
            starts, lengths = at + 1, cursor.data[at].astype(np.int64)
        after = starts + lengths
        self._present[name] = present
        self._ranges[name] = ByteRanges(
            np.minimum(starts, ends), np.minimum(after, ends) - np.minimum(starts, ends)
        )
        if is_all:
            cursor.at = after
        else:
            cursor.at[present] = after
        cursor.settle()

    @property
    def raw(self) -> Any:
        """The bytes of flags and properties, exactly as the publisher sent them."""
        return gather(self._buffer, self._raw.starts, self._raw.lengths)

    def headers(self) -> tuple[Numbers, ByteRanges]:
        """Return the rows that have headers, and where their fields are, without the table's length."""
        empty = np.empty(0, np.int64)
        present = self._present.get("headers", empty)
        ranges = self._ranges.get("headers", ByteRanges(empty, empty))
        good = ~self.bad[present]
        return present[good], ByteRanges(ranges.starts[good], ranges.lengths[good])

    def priorities(self) -> Numbers:
        """Return the priority of each row, 0 without."""
        values = np.zeros(self._count, np.int64)
        if (present := self._present.get("priority")) is not None:
            values[present] = self._data[self._ranges["priority"].starts]
        return values

    def properties(self, wanted: Any = None) -> Any:
        """Return all but the headers, as a struct array; the struct of a bad row is null.

        Args:
            wanted: the row of each result row; None: each once, in order.
        """
        columns = [self._column(field.name, field.type) for field in PROPERTIES]
        mask = pa.array(self.bad) if self.bad.any() else None
        found = pa.StructArray.from_arrays(columns, fields=list(PROPERTIES), mask=mask)
        return found if wanted is None else found.take(pa.array(wanted))

    def _column(self, name: str, kind: Any) -> Any:
        present = self._present.get(name)
        if present is None:
            return pa.nulls(self._count, kind)
        ranges = self._ranges[name]
        if name in _OCTETS:
            return self._numbers(self._data[ranges.starts].astype(np.int16), present, kind)
        if name == "timestamp":
            return self._times(ranges, present, kind)
        rows = None
        if len(present) != self._count:
            rows = np.full(self._count, -1, np.int64)
            rows[present] = np.arange(len(present))
        return text(gather(self._buffer, ranges.starts, ranges.lengths, rows, self._count))

    def _numbers(self, values: Numbers, present: Numbers, kind: Any) -> Any:
        if len(present) == self._count:
            return pa.array(values, kind)
        spread = np.zeros(self._count, values.dtype)
        missing = np.ones(self._count, np.bool_)
        spread[present], missing[present] = values, False
        return pa.array(spread, kind, mask=missing)

    def _times(self, ranges: ByteRanges, present: Numbers, kind: Any) -> Any:
        """Return timestamps, in seconds on the wire; those behind the year 9999 are null."""
        octets = self._data[ranges.starts[:, None] + np.arange(8)]
        seconds = octets.astype(np.uint8).reshape(-1, 8).copy().view(">u8").reshape(-1)
        good = seconds <= _SECONDS_MAX
        values = np.where(good, seconds, 0).astype(np.int64) * _US
        return self._numbers(values[good], present[good], kind)
