"""The work of one partition. Executors of Spark run it: it reads segments and locators, and no index."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

from leveret.spark.scan.batches import BatchSettings, index_batches, message_batches
from leveret.spark.scan.plan import Partition, Slice, StoreRef
from leveret.spark.scan.records import record_batches

ReadSlice: TypeAlias = Callable[[StoreRef, Slice, BatchSettings], Iterator[Any]]

BATCHES: Final[dict[str, ReadSlice]] = {
    "messages": message_batches,
    "archive": message_batches,
    "index": index_batches,
    "records": record_batches,
}


def read_partition(partition: Partition, view: str, settings: BatchSettings) -> Iterator[Any]:
    """Yield the record batches of a partition, none of them empty.

    Raises:
        DataLoss: a message cannot be read, and ``failOnDataLoss`` is not false.
        StoreError: a locator is missing or damaged.
    """
    read_slice = BATCHES[view]
    for store, piece in partition.slices:
        for batch in read_slice(store, piece, settings):
            if batch.num_rows:
                yield batch
