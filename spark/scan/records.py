"""Record batches of the view ``records``: every record in the segments, whether a queue has it or not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from leveret.msg_store.format.errors import Corrupt
from leveret.msg_store.format.record import HEADER_BYTES
from leveret.spark.errors import DataLoss
from leveret.spark.scan.batches import BatchSettings, message_ids, times
from leveret.spark.scan.gather import Numbers, gather, text
from leveret.spark.scan.locators import read_locator
from leveret.spark.scan.plan import Slice, StoreRef
from leveret.spark.scan.pruning import inside
from leveret.spark.scan.record_meta import ByteRanges, read_metas
from leveret.spark.scan.schema import arrow_schema
from leveret.spark.scan.segment import Segment

_OF_META: Final = frozenset({"exchange", "routing_key"})


def record_batches(store: StoreRef, piece: Slice, settings: BatchSettings) -> Iterator[Any]:
    """Yield the records of a slice; bytes that are no record are passed over.

    Raises:
        DataLoss: the segment is missing or is another store's, and that is to be an error.
    """
    path = store.segment_path(piece.number)
    try:
        segment = Segment(path, store.uuid)
    except (FileNotFoundError, Corrupt) as error:
        if not settings.fail_on_data_loss:
            return
        why = str(error) if isinstance(error, Corrupt) else "it is missing"
        raise DataLoss(
            f"segment {piece.number:08x} of vhost '{store.vhost}' cannot be read: {why} ({path}); "
            "with failOnDataLoss=false it is left out"
        ) from error
    counts = _refcounts(store, piece)
    assert store.rows is not None, "times are wanted"
    with segment:
        for offsets, lengths in _places(segment, piece, settings):
            yield _batch(store, segment, piece, (offsets, lengths), counts, settings)


def _refcounts(store: StoreRef, piece: Slice) -> tuple[Numbers, Numbers]:
    """Return offsets of the records that the index has, and their reference counts."""
    locator = read_locator(store.locator_path(piece.number))
    offsets, first = np.unique(locator["offset"], return_index=True)
    return offsets, locator["refcount"][first]


def _places(
    segment: Segment, piece: Slice, settings: BatchSettings
) -> Iterator[tuple[Numbers, Numbers]]:
    """Yield offsets and lengths of the records of a slice, so many as make a batch."""
    offsets: list[int] = []
    lengths: list[int] = []
    size = 0
    for offset, length in segment.walk(piece.size_bytes):
        if offset < piece.low:
            continue
        if offset >= piece.high:
            break
        if offsets and (
            len(offsets) >= settings.batch_rows or size + length > settings.batch_bytes
        ):
            yield np.array(offsets, np.int64), np.array(lengths, np.int64)
            offsets, lengths, size = [], [], 0
        offsets.append(offset)
        lengths.append(length)
        size += length
    if offsets:
        yield np.array(offsets, np.int64), np.array(lengths, np.int64)


def _batch(
    store: StoreRef,
    segment: Segment,
    piece: Slice,
    places: tuple[Numbers, Numbers],
    counts: tuple[Numbers, Numbers],
    settings: BatchSettings,
) -> Any:
    offsets, lengths = places
    headers = segment.headers(offsets)
    assert store.rows is not None, "times are wanted"
    wanted = inside(headers["ts_ms"].astype(np.int64), store.rows.times_ms)
    offsets, lengths, headers = offsets[wanted], lengths[wanted], headers[wanted]
    count, names = len(offsets), settings.names
    found: dict[str, Any] = {
        "store_id": pa.repeat(pa.scalar(store.store_id), count),
        "node": pa.repeat(pa.scalar(store.node), count),
        "vhost": pa.repeat(pa.scalar(store.vhost), count),
        "msg_id": message_ids(store.uuid, headers["msg_no"]),
        "segment": pa.array(np.full(count, piece.number, np.int64)),
        "offset": pa.array(offsets),
        "length": pa.array(lengths),
        "stored_at": times(headers["ts_ms"].astype(np.int64)),
        "body_size": pa.array(headers["body_len"].astype(np.int64)),
        "refcount": _refcount(offsets, counts),
    }
    if "crc_ok" in names:
        found["crc_ok"] = pa.array(segment.checked(headers, offsets))
    if names & _OF_META:
        metas = read_metas(
            segment.buffer, offsets + HEADER_BYTES, headers["meta_len"].astype(np.int64)
        )
        bad, buffer = metas.rows.bad, metas.rows.buffer
        found["exchange"] = _texts(buffer, metas.exchange, np.arange(count), bad)
        found["routing_key"] = _texts(buffer, metas.keys, metas.key_offsets[:-1], bad)
    arrays = [found[column.name] for column in settings.columns]
    return pa.record_batch(arrays, schema=arrow_schema(settings.columns))


def _texts(buffer: Any, ranges: ByteRanges, places: Numbers, bad: Numbers) -> Any:
    """Return the texts of byte ranges at some places; null in records whose meta is damaged."""
    return text(gather(buffer, ranges.starts, ranges.lengths, np.where(bad, -1, places)))


def _refcount(offsets: Numbers, counts: tuple[Numbers, Numbers]) -> Any:
    known, values = counts
    at = np.minimum(np.searchsorted(known, offsets), max(len(known) - 1, 0))
    is_known = known[at] == offsets if len(known) else np.zeros(len(offsets), np.bool_)
    found = np.zeros(len(offsets), np.int64)
    found[is_known] = values[at[is_known]]
    return pa.array(found, mask=found == 0)
