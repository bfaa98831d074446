"""Retained records: messages that were acked, and that a policy of their queue keeps.

The index has no row of them any more; their records still lie in the segments, and name the queues of their route. So
every segment is walked, and a record is *acked* in each queue of its route that retains messages and has no row for
it. A record that the collector has copied may lie in two segments; the later one counts. Checksums are compared, since
no index vouches for these records.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np

from leveret.msg_store.format.errors import Corrupt
from leveret.msg_store.format.record import HEADER_BYTES, PERSISTENT
from leveret.spark.scan.gather import Numbers
from leveret.spark.scan.locators import ACKED, NO_SEQ
from leveret.spark.scan.manifest import StoreEntry
from leveret.spark.scan.properties import Heads
from leveret.spark.scan.record_meta import read_metas
from leveret.spark.scan.segment import Segment

Columns: TypeAlias = dict[str, Numbers]
Keys: TypeAlias = Numbers  # of (msg_no, queue_no), sorted

_KEY: Final = np.dtype([("msg_no", "<u8"), ("queue_no", "<u4")])
_QUEUE_NO: Final = (1 << 32) - 1
_HIGHEST_SHIFT: Final = 32
_AT_ONCE: Final = 16_384


def keys_of(msg_nos: Numbers, queue_nos: Numbers) -> Keys:
    """Return pairs of numbers, sorted."""
    keys = np.empty(len(msg_nos), _KEY)
    keys["msg_no"], keys["queue_no"] = msg_nos, queue_nos
    keys.sort()
    return keys


def acked_records(
    path: Path, entry: StoreEntry, retained: frozenset[int], ready: Keys
) -> dict[int, Columns]:
    """Return, by segment, the columns of locators of retained records that were acked.

    Args:
        path: the store's folder in the snapshot.
        entry: the store.
        retained: numbers of the queues that retain messages; without any, nothing is read.
        ready: the rows that queues have.
    """
    found: dict[int, Columns] = {}
    if not retained:
        return found
    seen = np.empty(0, _KEY)
    for number in sorted(entry.segments, reverse=True):
        file = path / "rdq" / f"{number:08x}.rdq"
        try:
            segment = Segment(file, entry.uuid)
        except (FileNotFoundError, Corrupt):
            continue  # a live message in it is reported as lost
        with segment:
            parts = [
                part
                for places in _places(segment, entry.segments[number])
                if len((part := _acked(segment, places, retained))["msg_no"])
            ]
        if not parts:
            continue
        columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        keys = np.empty(len(columns["msg_no"]), _KEY)
        keys["msg_no"], keys["queue_no"] = columns["msg_no"], columns["queue_no"]
        is_new = ~np.isin(keys, ready) & ~np.isin(keys, seen)
        found[number] = {name: column[is_new] for name, column in columns.items()}
        seen = np.concatenate([seen, keys])
    return found


def _places(segment: Segment, size_bytes: int) -> Iterator[tuple[Numbers, Numbers]]:
    places = list(segment.walk(size_bytes))
    for first in range(0, len(places), _AT_ONCE):
        some = np.array(places[first : first + _AT_ONCE], np.int64)
        yield some[:, 0], some[:, 1]


def _acked(segment: Segment, places: tuple[Numbers, Numbers], retained: frozenset[int]) -> Columns:
    offsets, lengths = places
    headers = segment.headers(offsets)
    metas = read_metas(
        segment.buffer, offsets + HEADER_BYTES, headers["meta_len"].astype(np.int64), True
    )
    counts = np.diff(metas.number_offsets)
    record = np.repeat(np.arange(len(offsets)), counts)
    priorities = Heads(metas.rows, metas.head).priorities()
    highest = metas.numbers >> _HIGHEST_SHIFT
    queue_nos = (metas.numbers & _QUEUE_NO) + np.minimum(priorities[record], highest)
    wanted = np.isin(queue_nos, np.array(sorted(retained))) & ~metas.rows.bad[record]
    record, queue_nos = record[wanted], queue_nos[wanted]
    good = np.ones(len(offsets), np.bool_)
    some = np.unique(record)
    good[some] = segment.checked(headers[some], offsets[some])
    is_good = good[record]
    record, queue_nos = record[is_good], queue_nos[is_good]
    count = len(record)
    return {
        "offset": offsets[record].astype(np.uint32),
        "length": lengths[record].astype(np.uint32),
        "queue_no": queue_nos.astype(np.uint32),
        "seq": np.full(count, NO_SEQ, np.int64),
        "time_ms": headers["ts_ms"][record].astype(np.int64),
        "expiry_ms": np.zeros(count, np.int64),
        "msg_no": headers["msg_no"][record],
        "body_size": headers["body_len"][record],
        "refcount": np.zeros(count, np.uint32),
        "flags": (headers["flags"][record] & PERSISTENT).astype(np.uint8),
        "state": np.full(count, ACKED, np.uint8),
    }
