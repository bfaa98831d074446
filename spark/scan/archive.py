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
from leveret.spark.scan.gather import Numbers
from leveret.spark.scan.locators import ACKED
from leveret.spark.scan.manifest import StoreEntry
from leveret.spark.scan.routed_rows import Columns, routed_rows
from leveret.spark.scan.segment import Segment

Keys: TypeAlias = Numbers  # of (msg_no, queue_no), sorted

_KEY: Final = np.dtype([("msg_no", "<u8"), ("queue_no", "<u4")])
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
    rows = routed_rows(segment, offsets, headers)
    rows = rows.where(np.isin(rows.row_nos(), np.array(sorted(retained))))
    good = np.ones(len(offsets), np.bool_)
    some = np.unique(rows.record)
    good[some] = segment.checked(headers[some], offsets[some])
    return rows.where(good[rows.record]).columns(offsets, lengths, headers, ACKED)
