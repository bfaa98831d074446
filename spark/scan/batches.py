"""Record batches of messages: the rows of a locator, and what is asked of their records.

Columns come from three places, and nothing is read that no column needs:

* the locator: names, seqs, times, sizes, places;
* the record's header and meta: exchange, routing keys, properties, headers;
* the body.

A batch is bounded by rows and by bytes. A record of two queues has two rows; it is decoded once, and both rows take the
result.

Records are decoded in *groups* of some thousand, since each step of decoding has a cost of its own, and batches are cut
out of a group, without a copy. Only bodies are copied batch by batch: what a batch of one MiB copies is still in the
processor's cache when its reader, or the socket to Spark, takes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from leveret.msg_store.format.errors import Corrupt
from leveret.msg_store.format.record import HEADER_BYTES
from leveret.spark.errors import DataLoss
from leveret.spark.scan.gather import Numbers, gather, text
from leveret.spark.scan.headers import read_headers
from leveret.spark.scan.locators import (
    NO_SEGMENT,
    NO_SEQ,
    PERSISTENT,
    REDELIVERED,
    REDELIVERED_KNOWN,
    STATES,
    UNKNOWN,
    read_locator,
)
from leveret.spark.scan.options import Reading
from leveret.spark.scan.plan import Slice, StoreRef
from leveret.spark.scan.properties import Heads
from leveret.spark.scan.record_meta import Metas, read_metas
from leveret.spark.scan.schema import TIME, Column, arrow_schema
from leveret.spark.scan.segment import Segment

Columns = dict[str, Numbers]

WINDOW_BYTES: Final = 1 << 30  # of a segment that a group spans
_GROUP_ROWS: Final = 8_192
_GROUP_BYTES: Final = 16 << 20
_BODY: Final = "body"
_OF_META: Final = frozenset(
    {
        "exchange",
        "routing_key",
        "routing_keys",
        "properties",
        "headers",
        "x_death",
        "properties_raw",
    }
)
_OF_HEAD: Final = frozenset({"properties", "headers", "x_death", "properties_raw"})
_OF_HEADERS: Final = frozenset({"headers", "x_death"})
_MS_US: Final = 1_000
_SHOWN: Final = 3
_STATE_NAMES: Final = {number: name for name, number in STATES.items()}


@dataclass(frozen=True, slots=True)
class BatchSettings:
    """How rows become batches: the columns, and what tasks need of ``Reading``."""

    columns: tuple[Column, ...]
    batch_rows: int
    batch_bytes: int
    verify_crc: bool
    fail_on_data_loss: bool

    @classmethod
    def of(cls, columns: tuple[Column, ...], reading: Reading) -> BatchSettings:
        return cls(
            columns,
            reading.batch_rows,
            reading.batch_bytes,
            reading.verify_crc,
            reading.fail_on_data_loss,
        )

    @property
    def names(self) -> frozenset[str]:
        return frozenset(column.name for column in self.columns)

    @property
    def schema(self) -> Any:
        """The schema of the batches, as ``pyarrow.Schema``."""
        return arrow_schema(self.columns)

    @property
    def group(self) -> tuple[int, int]:
        """How many rows, and bytes of records, are decoded at once."""
        return max(_GROUP_ROWS, self.batch_rows), max(_GROUP_BYTES, self.batch_bytes)

    @property
    def needs_records(self) -> bool:
        """A column comes from the records, not only from where they are."""
        return bool(self.names & (_OF_META | {_BODY}))


def message_batches(store: StoreRef, piece: Slice, settings: BatchSettings) -> Iterator[Any]:
    """Yield the rows of a slice, in the order of their records.

    Raises:
        DataLoss: a message that is wanted cannot be read, and that is to be an error.
        StoreError: a locator is damaged.
    """
    for batch, _ in located_batches(store, piece, selected(store, piece), settings):
        yield batch


def located_batches(
    store: StoreRef, piece: Slice, locator: Columns, settings: BatchSettings
) -> Iterator[tuple[Any, Columns]]:
    """Yield batches of the given rows of a segment, each with its part of the locator.

    Args:
        store: the store.
        piece: the segment.
        locator: rows of its locator in the order of their offsets; further columns pass through.
        settings: of the batches.

    Raises:
        DataLoss: a message cannot be read, and that is to be an error; else its row is left out.
    """
    if not len(locator["offset"]):
        return
    if piece.number == NO_SEGMENT:
        _lost(store, piece, locator, "its record is missing or damaged", settings)
        return
    if not settings.needs_records:
        yield from _without_records(store, piece, locator, settings)
        return
    try:
        segment = Segment(store.segment_path(piece.number), store.uuid)
    except (FileNotFoundError, Corrupt) as error:
        why = str(error) if isinstance(error, Corrupt) else "the segment is missing"
        _lost(store, piece, locator, why, settings)
        return
    with segment:
        yield from open_batches(store, piece, segment, locator, settings)


def open_batches(
    store: StoreRef, piece: Slice, segment: Segment, locator: Columns, settings: BatchSettings
) -> Iterator[tuple[Any, Columns]]:
    """Yield the same as ``located_batches`` from a segment that is open."""
    if not settings.needs_records:
        yield from _without_records(store, piece, locator, settings)
        return
    rows_max, bytes_max = settings.group
    for low, high in _cuts(locator["length"], rows_max, bytes_max, locator["offset"]):
        part = _part(locator, low, high)
        records = _Records(segment, part, settings)
        if not records.sound.all():
            bad = ~records.sound[records.of_row]
            _lost(store, piece, _where(part, bad), "its record is damaged", settings)
            part = _where(part, ~bad)
            if not len(part["offset"]):
                continue
            records = _Records(segment, part, settings)
        columns = _columns(store, piece, part, records.columns(settings.names), settings)
        sizes = part["length"] if _BODY in settings.names else part["length"] - part["body_size"]
        for start, end in _cuts(sizes, settings.batch_rows, settings.batch_bytes):
            yield _batch(columns, start, end, settings, records), _part(part, start, end)


def _without_records(
    store: StoreRef, piece: Slice, locator: Columns, settings: BatchSettings
) -> Iterator[tuple[Any, Columns]]:
    for low in range(0, len(locator["offset"]), settings.batch_rows):
        part = _part(locator, low, low + settings.batch_rows)
        columns = _columns(store, piece, part, {}, settings)
        yield _batch(columns, 0, len(part["offset"]), settings), part


def index_batches(store: StoreRef, piece: Slice, settings: BatchSettings) -> Iterator[Any]:
    """Yield the rows of a slice as the index has them; the segment is not opened."""
    for batch, _ in _without_records(store, piece, selected(store, piece), settings):
        yield batch


def selected(store: StoreRef, piece: Slice) -> Columns:
    """Return the wanted rows of a slice; StoreError: its locator is damaged."""
    locator = read_locator(store.locator_path(piece.number))
    low, high = np.searchsorted(locator["offset"], [piece.low, min(piece.high, 1 << 33)])
    locator = _part(locator, int(low), int(high))
    assert store.rows is not None, "rows of queues are wanted"
    return _where(locator, store.rows.mask(locator))


def _part(columns: Columns, low: int, high: int) -> Columns:
    return {name: column[low:high] for name, column in columns.items()}


def _where(columns: Columns, mask: Numbers) -> Columns:
    return columns if mask.all() else {name: column[mask] for name, column in columns.items()}


def _cuts(
    sizes: Numbers, rows_max: int, bytes_max: int, offsets: Numbers | None = None
) -> Iterator[tuple[int, int]]:
    """Cut rows into ranges of at most so many rows and bytes, and with offsets of ``WINDOW_BYTES`` of the segment."""
    ends = np.cumsum(sizes, dtype=np.int64)
    starts = offsets.astype(np.int64) if offsets is not None else None
    low = 0
    while low < len(ends):
        before = int(ends[low - 1]) if low else 0
        high = min(low + rows_max, int(np.searchsorted(ends, before + bytes_max, "right")))
        if starts is not None:
            high = min(high, int(np.searchsorted(starts, starts[low] + WINDOW_BYTES)))
        high = max(high, low + 1)
        yield low, high
        low = high


def _lost(store: StoreRef, piece: Slice, rows: Columns, why: str, settings: BatchSettings) -> None:
    """Raise for rows that cannot be read, unless they are to be left out."""
    count = len(rows["offset"])
    if not settings.fail_on_data_loss or not count:
        return
    named = [
        f"queue '{store.queues.get(int(no), f'number {no}')}' seq {seq}"
        for no, seq in zip(rows["queue_no"][:_SHOWN], rows["seq"][:_SHOWN], strict=True)
    ]
    where = f"segment {piece.number:08x}" if piece.number != NO_SEGMENT else "no segment"
    at = f", offset {rows['offset'][0]}" if piece.number != NO_SEGMENT else ""
    more = ", ..." if count > _SHOWN else ""
    raise DataLoss(
        f"{count} messages of vhost '{store.vhost}' cannot be read ({where}{at}: {why}): "
        f"{', '.join(named)}{more}; leveret snapshot verify {store.path} lists all; "
        "with failOnDataLoss=false they are left out"
    )


class _Records:
    """The records of a part of a locator, each once.

    Attributes:
        of_row: for each row of the part its record.
        sound: for each record whether it can be read.
    """

    def __init__(self, segment: Segment, part: Columns, settings: BatchSettings) -> None:
        offsets = part["offset"].astype(np.int64)
        is_first = np.ones(len(offsets), np.bool_)
        is_first[1:] = offsets[1:] != offsets[:-1]
        self.is_single = bool(is_first.all())
        self.of_row = np.cumsum(is_first) - 1
        first = np.flatnonzero(is_first)
        self._offsets = offsets[first]
        self._buffer = segment.buffer
        self._headers = headers = segment.headers(self._offsets)
        self.sound = segment.sound(
            headers, self._offsets, part["length"][first], part["msg_no"][first]
        )
        if settings.verify_crc and self.sound.all():
            self.sound &= segment.checked(headers, self._offsets)
        self._metas: Metas | None = None
        if settings.names & _OF_META and self.sound.all():
            self._metas = self._read_metas()
            self.sound &= ~self._metas.rows.bad

    def _read_metas(self) -> Metas:
        lengths = self._headers["meta_len"].astype(np.int64)
        return read_metas(self._buffer, self._offsets + HEADER_BYTES, lengths)

    def _spread(self, values: Any) -> Any:
        """Return values of records as values of rows."""
        return values if self.is_single else values.take(pa.array(self.of_row))

    def bodies(self, low: int, high: int) -> Any:
        """Return the bodies of a range of rows."""
        first, last = int(self.of_row[low]), int(self.of_row[high - 1]) + 1
        headers = self._headers[first:last]
        starts = self._offsets[first:last] + HEADER_BYTES + headers["meta_len"]
        rows = None if self.is_single else self.of_row[low:high] - first
        return gather(self._buffer, starts, headers["body_len"].astype(np.int64), rows)

    def columns(self, names: frozenset[str]) -> dict[str, Any]:
        """Return the wanted columns that come from records, but for the bodies."""
        found: dict[str, Any] = {}
        if self._metas is None:
            return found
        metas = self._metas
        buffer = metas.rows.buffer
        if "exchange" in names:
            ranges = metas.exchange
            found["exchange"] = self._spread(text(gather(buffer, ranges.starts, ranges.lengths)))
        if names & {"routing_key", "routing_keys"}:
            found |= self._keys(metas)
        if names & _OF_HEAD:
            heads = Heads(metas.rows, metas.head)
            if "properties_raw" in names:
                found["properties_raw"] = self._spread(heads.raw)
            if "properties" in names:
                found["properties"] = self._spread(heads.properties())
            if names & _OF_HEADERS:
                headers = read_headers(metas.rows, len(self._offsets), *heads.headers())
                found["headers"] = self._spread(headers.maps)
                found["x_death"] = self._spread(headers.x_death)
        return found

    def _keys(self, metas: Metas) -> dict[str, Any]:
        keys = text(gather(metas.rows.buffer, metas.keys.starts, metas.keys.lengths))
        offsets = pa.array(metas.key_offsets.astype(np.int32))
        lists = pa.ListArray.from_arrays(offsets, keys)
        counts = np.diff(metas.key_offsets)
        if (counts == 1).all():
            first = keys
        else:
            first = keys.take(pa.array(metas.key_offsets[:-1], mask=counts == 0))
        return {"routing_key": self._spread(first), "routing_keys": self._spread(lists)}


def _columns(
    store: StoreRef, piece: Slice, part: Columns, found: dict[str, Any], settings: BatchSettings
) -> dict[str, Any]:
    """Return the columns of rows, but for bodies: columns from records, and columns of the locator."""
    count = len(part["offset"])
    for name in settings.names - found.keys() - {_BODY}:
        found[name] = _OF_LOCATOR[name](store, piece, part, count)
    return found


def _batch(
    columns: dict[str, Any],
    low: int,
    high: int,
    settings: BatchSettings,
    records: _Records | None = None,
) -> Any:
    """Return a range of rows as a batch, with the bodies that lie in the records."""
    arrays = {name: column.slice(low, high - low) for name, column in columns.items()}
    if records is not None and _BODY in settings.names:
        arrays[_BODY] = records.bodies(low, high)
    schema = settings.schema
    return pa.record_batch([arrays[name] for name in schema.names], schema=schema)


# Columns that come from the locator.


def _constant(value: str, count: int) -> Any:
    return pa.repeat(pa.scalar(value, pa.string()), count)


def times(values_ms: Numbers) -> Any:
    """Return ms since 1970 as timestamps; 0 is null."""
    return pa.array(values_ms * _MS_US, TIME, mask=values_ms == 0)


def message_ids(uuid: bytes, msg_nos: Numbers) -> Any:
    """Return ids of messages: the first half of the store's uuid, then the number, big endian."""
    octets = np.empty((len(msg_nos), 16), np.uint8)
    octets[:, :8] = np.frombuffer(uuid[:8], np.uint8)
    octets[:, 8:] = msg_nos.astype(">u8").view(np.uint8).reshape(-1, 8)
    offsets = np.arange(0, 16 * len(msg_nos) + 1, 16, dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(octets)]
    return pa.BinaryArray.from_buffers(pa.binary(), len(msg_nos), buffers)


def _names_of(store: StoreRef, part: Columns) -> Any:
    numbers = np.array(sorted(store.queues), np.uint32)
    names = pa.array([store.queues[int(no)] for no in numbers], pa.string())
    return names.take(pa.array(np.searchsorted(numbers, part["queue_no"])))


def _seqs(part: Columns) -> Any:
    return pa.array(part["seq"], mask=part["seq"] == NO_SEQ)


def _states(part: Columns) -> Any:
    names = pa.array([_STATE_NAMES[number] for number in sorted(_STATE_NAMES)], pa.string())
    return names.take(pa.array(part["state"], mask=part["state"] == UNKNOWN))


def _redelivered(part: Columns) -> Any:
    flags = part["flags"]
    return pa.array(flags & REDELIVERED != 0, mask=flags & REDELIVERED_KNOWN == 0)


_OF_LOCATOR: Final[dict[str, Any]] = {
    "store_id": lambda store, _, part, count: _constant(store.store_id, count),
    "node": lambda store, _, part, count: _constant(store.node, count),
    "vhost": lambda store, _, part, count: _constant(store.vhost, count),
    "queue": lambda store, _, part, count: _names_of(store, part),
    "queue_no": lambda store, _, part, count: pa.array(part["queue_no"].astype(np.int64)),
    "seq_id": lambda store, _, part, count: _seqs(part),
    "state": lambda store, _, part, count: _states(part),
    "msg_id": lambda store, _, part, count: message_ids(store.uuid, part["msg_no"]),
    "enqueued_at": lambda store, _, part, count: times(part["time_ms"]),
    "expires_at": lambda store, _, part, count: times(part["expiry_ms"]),
    "persistent": lambda store, _, part, count: pa.array(part["flags"] & PERSISTENT != 0),
    "redelivered": lambda store, _, part, count: _redelivered(part),
    "delivery_count": lambda store, _, part, count: pa.nulls(count, pa.int32()),
    "body_size": lambda store, _, part, count: pa.array(part["body_size"].astype(np.int64)),
    "in_store": lambda store, piece, part, count: pa.array(
        np.full(count, piece.number != NO_SEGMENT)
    ),
    "segment": lambda store, piece, part, count: pa.array(np.full(count, piece.number, np.int64)),
    "offset": lambda store, _, part, count: pa.array(part["offset"].astype(np.int64)),
    "length": lambda store, _, part, count: pa.array(part["length"].astype(np.int64)),
}
