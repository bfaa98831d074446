"""Reading snapshots: the API without Spark, and what Spark's data source calls.

    from leveret.spark.scan.reader import open_scan, read

    for batch in read({"path": "data/snapshots/nightly", "queue": "orders.*", "columns": "queue,body"}):
        ...  # a pyarrow.RecordBatch

``open_scan`` reads manifests and the index of locators, and makes locators where there are none; ``Scan.partitions``
plans; ``tasks.read_partition`` does the work of one partition, in any process that sees the files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from leveret.core.log.loggers import logger
from leveret.spark.errors import NotASnapshot
from leveret.spark.scan.batches import BatchSettings
from leveret.spark.scan.locating import locate
from leveret.spark.scan.locators import NO_SEGMENT
from leveret.spark.scan.manifest import Snapshot, local_path, read_manifest
from leveret.spark.scan.options import ReadOptions
from leveret.spark.scan.plan import Located, Partition, partitions
from leveret.spark.scan.pruning import Pruning
from leveret.spark.scan.schema import arrow_schema, columns_of
from leveret.spark.scan.tasks import BATCHES, read_partition

log = logger(__name__)


@dataclass(frozen=True, slots=True)
class Scan:
    """A view of snapshots that is going to be read."""

    options: ReadOptions
    found: tuple[Located, ...]
    settings: BatchSettings

    @property
    def schema(self) -> Any:
        """The schema of the batches, as ``pyarrow.Schema``."""
        return arrow_schema(self.settings.columns)

    @property
    def snapshots(self) -> tuple[Snapshot, ...]:
        return tuple(located.snapshot for located in self.found)

    def partitions(self, pruning: Pruning | None = None) -> list[Partition]:
        """Return the partitions of a view that ``is_planned``; ``pruning`` replaces that of the options."""
        return partitions(self.found, self.options, pruning or self.options.pruning)

    @property
    def is_planned(self) -> bool:
        """Whether the view is read in partitions; the others are small, and are in ``facts``."""
        return self.options.view in BATCHES

    def facts(self) -> Any:
        """Return the only batch of the views ``segments`` and ``queues``."""
        rows = (_segments if self.options.view == "segments" else _queues)(self)
        names = [column.name for column in self.settings.columns]
        return pa.RecordBatch.from_pylist(
            [{name: row[name] for name in names} for row in rows], schema=self.schema
        )

    def batches(self) -> Iterator[Any]:
        """Yield all record batches; raises as ``read_partition``."""
        if not self.is_planned:
            yield self.facts()
            return
        for partition in self.partitions():
            yield from read_partition(partition, self.options.view, self.settings)


def open_scan(options: ReadOptions) -> Scan:
    """Open the snapshots that the options name; their locators are made if they have none.

    Raises:
        NotASnapshot: a path is not a snapshot, or two of them hold the same store.
        OptionError: a column is unknown.
        StoreError: a snapshot is damaged, or its locators cannot be made.
    """
    settings = BatchSettings.of(columns_of(options.view, options.columns), options.reading)
    snapshots = [read_manifest(local_path(path)) for path in options.paths]
    _check_distinct(snapshots)
    _warn_of_copies(snapshots)
    for snapshot in snapshots:
        if not snapshot.is_clean:
            text = "snapshot of a broker that had crashed path=%s torn_bytes=%d"
            log.warning(text, snapshot.path, snapshot.torn_bytes)
    return Scan(options, tuple(Located(each, locate(each)) for each in snapshots), settings)


def read(options: Mapping[str, str]) -> Iterator[Any]:
    """Yield the record batches of snapshots, read in this process.

    Args:
        options: as for Spark, ``path`` included; names in any case.

    Raises:
        OptionError: an option cannot be accepted.
        NotASnapshot, StoreError, DataLoss: as ``open_scan`` and ``read_partition``.
    """
    return open_scan(ReadOptions.of(options)).batches()


def _check_distinct(snapshots: list[Snapshot]) -> None:
    seen: dict[tuple[str, bytes], Snapshot] = {}
    for snapshot in snapshots:
        for store in snapshot.stores:
            other = seen.setdefault((snapshot.node, store.uuid), snapshot)
            if other is not snapshot:
                raise NotASnapshot(
                    f"{other.path} and {snapshot.path} both hold vhost '{store.vhost}' of node "
                    f"{snapshot.node}: its messages would be read twice; load one of them"
                )


def _warn_of_copies(snapshots: list[Snapshot]) -> None:
    """Warn of a store that several nodes have: one was restored from a snapshot of the other."""
    seen: dict[bytes, Snapshot] = {}
    for snapshot in snapshots:
        for store in snapshot.stores:
            other = seen.setdefault(store.uuid, snapshot)
            if other is not snapshot:
                text = "store of two nodes, messages from before the copy are read twice vhost=%s paths=%s,%s"
                log.warning(text, store.vhost, other.path, snapshot.path)


def _segments(scan: Scan) -> Iterator[dict[str, Any]]:
    for located in scan.found:
        for store in located.stores:
            if not scan.options.pruning.wants_vhost(store.vhost):
                continue
            for facts in store.segments:
                if facts.number == NO_SEGMENT:
                    continue
                has_rows = bool(facts.rows)
                yield {
                    "store_id": store.store_id,
                    "node": located.snapshot.node,
                    "vhost": store.vhost,
                    "segment": facts.number,
                    "size": facts.size_bytes,
                    "live_bytes": facts.live_bytes,
                    "garbage_bytes": facts.size_bytes - facts.live_bytes,
                    "rows": sum(count for number, count in facts.rows.items() if number),
                    "min_time": _time(facts.min_ms) if has_rows else None,
                    "max_time": _time(facts.max_ms) if has_rows else None,
                    "sealed": facts.is_sealed,
                }


def _queues(scan: Scan) -> Iterator[dict[str, Any]]:
    pruning = scan.options.pruning
    for located in scan.found:
        for store in located.stores:
            for queue in store.queues:
                if pruning.wants_vhost(store.vhost) and pruning.wants_queue(queue.name):
                    yield {
                        "store_id": store.store_id,
                        "node": located.snapshot.node,
                        "vhost": store.vhost,
                        "queue": queue.name,
                        "durable": True,
                        "arguments": queue.arguments,
                        "depth": queue.depth,
                        "first_seq": queue.first_seq,
                        "last_seq": queue.last_seq,
                    }


def _time(value_ms: int) -> int:
    return value_ms * 1_000
