"""Messages in the order of their queues, without sorting bodies.

Segments have messages in the order in which they were written or copied, and all queues in turn. Here the rows of all
locators are read first and sorted by their *key*: vhost, queue, number of the queue, and seq (of acked messages, which
have no seq: the message's number). They are cut into windows of a batch's rows and bytes, and only the messages of one
window are read at once. So bodies take the RAM of a window, and rows about 60 bytes each.

The rows can be dealt to several readers. A queue then goes to one of them as a whole, the largest queues first, each to
the reader that has the fewest rows; or each window goes to the next reader. Either way keys rise in each reader, and
the same snapshot and options give the same result each time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from leveret.spark.scan.batches import BatchSettings, Columns, located_batches, selected
from leveret.spark.scan.gather import Numbers
from leveret.spark.scan.locators import SCHEMA
from leveret.spark.scan.plan import Slice, StoreRef
from leveret.spark.scan.reader import Scan

WINDOW: Final = {"batchBytes": "16m"}  # of the options of a scan that is read in order
_STORE: Final = "store"
_SEGMENT: Final = "segment"
_PLACE: Final = "place"


@dataclass(frozen=True, slots=True)
class OrderedPart:
    """What one reader reads: rows in the order of their keys."""

    _rows: OrderedRows
    _order: Numbers

    @property
    def count(self) -> int:
        return len(self._order)

    def batches(self) -> Iterator[Any]:
        """Yield the messages as record batches; raises as ``read_partition``.

        A message that cannot be read is left out, if the options say so.
        """
        for low, high in self._rows.windows(self._order):
            batch = self._rows.batch(self._order[low:high])
            if batch.num_rows:
                yield batch


class OrderedRows:
    """The rows of a scan, sorted by their keys.

    Args:
        scan: of the view ``messages`` or ``archive``.

    Raises:
        StoreError: a locator is damaged.
    """

    def __init__(self, scan: Scan) -> None:
        self._settings: BatchSettings = scan.settings
        self._stores: list[StoreRef] = []
        self._sizes: dict[tuple[int, int], int] = {}  # of segments in the snapshot
        self._columns = self._located(scan)
        self._has_seqs = scan.options.view == "messages"
        self._queue, keys = self._queues()
        self._order = np.lexsort((keys, self._columns["queue_no"], self._queue))

    def __len__(self) -> int:
        return len(self._order)

    def parts(self, readers: int, *, by_queue: bool) -> list[OrderedPart]:
        """Deal the rows to readers; ``by_queue``: each queue to one of them as a whole."""
        deal = self._by_queue if by_queue else self._by_window
        reader = deal(readers)
        return [OrderedPart(self, self._order[reader == number]) for number in range(readers)]

    def _by_queue(self, readers: int) -> Numbers:
        """Return for each sorted row its reader."""
        counts = np.bincount(self._queue) if len(self._queue) else np.zeros(0, np.int64)
        loads = [0] * readers
        owners = np.zeros(len(counts), np.int64)
        for queue in np.argsort(-counts, kind="stable"):
            owner = loads.index(min(loads))
            owners[queue] = owner
            loads[owner] += int(counts[queue])
        return owners[self._queue[self._order]]

    def _by_window(self, readers: int) -> Numbers:
        reader = np.zeros(len(self._order), np.int64)
        for number, (low, high) in enumerate(self.windows(self._order)):
            reader[low:high] = number % readers
        return reader

    def windows(self, order: Numbers) -> Iterator[tuple[int, int]]:
        """Yield ranges of rows that are read at once."""
        ends = np.cumsum(self._columns["length"][order], dtype=np.int64)
        low = 0
        while low < len(order):
            before = int(ends[low - 1]) if low else 0
            fit = int(np.searchsorted(ends, before + self._settings.batch_bytes, "right"))
            high = max(low + 1, min(low + self._settings.batch_rows, fit))
            yield low, high
            low = high

    def batch(self, rows: Numbers) -> Any:
        """Read the messages of some rows, in their order."""
        part = {name: column[rows] for name, column in self._columns.items()}
        part[_PLACE] = np.arange(len(rows))
        by_place = np.lexsort((part["offset"], part[_SEGMENT], part[_STORE]))
        part = {name: column[by_place] for name, column in part.items()}
        groups = part[_STORE].astype(np.int64) << 32 | part[_SEGMENT]
        starts = np.flatnonzero(np.r_[True, groups[1:] != groups[:-1]])
        batches, places = [], [np.empty(0, np.int64)]
        for low, high in zip(starts, [*starts[1:], len(groups)], strict=True):
            store, number = int(part[_STORE][low]), int(part[_SEGMENT][low])
            piece = Slice(number, self._sizes[store, number])
            here = {name: column[low:high] for name, column in part.items()}
            for batch, found in located_batches(self._stores[store], piece, here, self._settings):
                batches.append(batch)
                places.append(found[_PLACE])
        if not batches:
            return pa.RecordBatch.from_pylist([], schema=_schema(self._settings))
        order = pa.array(np.argsort(np.concatenate(places)))
        return pa.Table.from_batches(batches).take(order).combine_chunks().to_batches()[0]

    def _located(self, scan: Scan) -> Columns:
        """Return the columns of all locators, with store and segment."""
        parts: list[Columns] = []
        numbers: dict[tuple[str, str], int] = {}  # of stores, by snapshot and folder
        for partition in scan.partitions():
            for store, piece in partition.slices:
                number = numbers.setdefault((store.path, store.folder), len(self._stores))
                if number == len(self._stores):
                    self._stores.append(store)
                self._sizes[number, piece.number] = piece.size_bytes
                found = selected(store, piece)
                count = len(found["offset"])
                found[_STORE] = np.full(count, number, np.uint16)
                found[_SEGMENT] = np.full(count, piece.number, np.uint32)
                parts.append(found)
        if not parts:
            empty = {each.name: np.empty(0, each.type.to_pandas_dtype()) for each in SCHEMA}
            return empty | {_STORE: np.empty(0, np.uint16), _SEGMENT: np.empty(0, np.uint32)}
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def _queues(self) -> tuple[Numbers, Numbers]:
        """Return for each row the rank of its queue among all names, and the last part of its key."""
        columns = self._columns
        pairs = columns[_STORE].astype(np.int64) << 32 | columns["queue_no"]
        known, of_row = np.unique(pairs, return_inverse=True)
        names = [
            (store.vhost, store.queues[int(pair & 0xFFFFFFFF)])
            for pair, store in ((pair, self._stores[int(pair >> 32)]) for pair in known)
        ]
        ranks = {name: rank for rank, name in enumerate(sorted(set(names)))}
        rank_of = np.array([ranks[name] for name in names], np.int64)
        queue = rank_of[of_row] if len(known) else np.empty(0, np.int64)
        return queue, columns["seq"] if self._has_seqs else columns["msg_no"]


def _schema(settings: BatchSettings) -> Any:
    return pa.schema([(column.name, column.arrow) for column in settings.columns])
