"""Record batches of messages: the rows of a locator, and what is asked of their records.

Columns come from three places, and nothing is read that no column needs:

* the locator: names, seqs, times, sizes, places;
* the record's header and meta: exchange, routing keys, properties, headers;
* the body.

A batch is bounded by rows and by bytes. A record of two queues has two rows; it is decoded once, and both rows take the
result.
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
from leveret.spark.scan.plan import Slice, StoreRef
from leveret.spark.scan.properties import Heads
from leveret.spark.scan.record_meta import Metas, read_metas
from leveret.spark.scan.segment import Segment
from leveret.spark.schema import TIME, Column, arrow_schema

Columns = dict[str, Numbers]

WINDOW_BYTES: Final = 1 << 30  # of a segment that a batch spans
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
    """How rows become batches; the fields are those of ``ReadOptions``."""

    columns: tuple[Column, ...]
    batch_rows: int
    batch_bytes: int
    verify_crc: bool
    fail_on_data_loss: bool

    @property
    def names(self) -> frozenset[str]:
        return frozenset(column.name for column in self.columns)

    @property
    def needs_records(self) -> bool:
        """A column comes from the records, not only from where they are."""
        return bool(self.names & (_OF_META | {"body"}))


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
    for low, high in _cuts(locator, settings, by_bytes=True):
        part = _part(locator, low, high)
        records = _Records(segment, part, settings)
        if not records.sound.all():
            bad = ~records.sound[records.of_row]
            _lost(store, piece, _where(part, bad), "its record is damaged", settings)
            part = _where(part, ~bad)
            if not len(part["offset"]):
                continue
            records = _Records(segment, part, settings)
        yield _batch(store, piece, part, records, settings), part


def _without_records(
    store: StoreRef, piece: Slice, locator: Columns, settings: BatchSettings
) -> Iterator[tuple[Any, Columns]]:
    for low, high in _cuts(locator, settings, by_bytes=False):
        part = _part(locator, low, high)
        yield _batch(store, piece, part, None, settings), part


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


def _cuts(locator: Columns, settings: BatchSettings, by_bytes: bool) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows that make a batch."""
    count = len(locator["offset"])
    low = 0
    if not by_bytes:
        while low < count:
            high = min(count, low + settings.batch_rows)
            yield low, high
            low = high
        return
    ends = np.cumsum(locator["length"], dtype=np.int64)
    offsets = locator["offset"].astype(np.int64)
    while low < count:
        before = int(ends[low - 1]) if low else 0
        high = min(
            low + settings.batch_rows,
            int(np.searchsorted(ends, before + settings.batch_bytes, "right")),
            int(np.searchsorted(offsets, offsets[low] + WINDOW_BYTES)),
        )
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

    def body(self) -> Any:
        starts = self._offsets + HEADER_BYTES + self._headers["meta_len"]
        rows = None if self.is_single else self.of_row
        return gather(self._buffer, starts, self._headers["body_len"].astype(np.int64), rows)

    def columns(self, names: frozenset[str]) -> dict[str, Any]:
        """Return the wanted columns that come from records."""
        found: dict[str, Any] = {}
        if "body" in names:
            found["body"] = self.body()
        if self._metas is None:
            return found
        metas = self._metas
        buffer = metas.rows.buffer
        if "exchange" in names:
            spans = metas.exchange
            found["exchange"] = self._spread(text(gather(buffer, spans.starts, spans.lengths)))
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


def _batch(
    store: StoreRef,
    piece: Slice,
    part: Columns,
    records: _Records | None,
    settings: BatchSettings,
) -> Any:
    names = settings.names
    found = {} if records is None else records.columns(names)
    count = len(part["offset"])
    arrays = []
    for column in settings.columns:
        array = found.get(column.name)
        if array is None:
            array = _OF_LOCATOR[column.name](store, piece, part, count)
        arrays.append(array)
    return pa.record_batch(arrays, schema=arrow_schema(settings.columns))


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
