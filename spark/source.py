"""``format("leveret")``: the data source of Spark.

``schema`` is called by ``load``, so what is wrong with path and options is reported there. ``partitions`` runs in a
process of the driver's machine that plans the query, and makes locators where a snapshot has none. ``read`` runs in
executors; what it needs is in the partition, and it imports no index. Spark does not tell ``schema`` whether a batch
or a stream is wanted: a snapshot is read by batches and a live directory by streams, so the path says it, and
``reader`` and ``streamReader`` refuse the other.

**Pushdown.** Spark refuses every query of a reader that overrides ``pushFilters`` while
``spark.sql.python.filterPushdown.enabled`` is false, its default, and a reader cannot see that setting. So the method
is not overridden: an instance attribute takes its place, which says that its ``__func__`` is the base class's method.
Spark calls it when pushdown is on, and passes over it when it is off.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.types import StructType

from leveret.spark.errors import OptionError
from leveret.spark.pushdown import pruned
from leveret.spark.scan.batches import BatchSettings
from leveret.spark.scan.manifest import local_path, read_manifest
from leveret.spark.scan.options import ReadOptions, StreamOptions, paths_of
from leveret.spark.scan.plan import Partition
from leveret.spark.scan.schema import Column, columns_of, ddl
from leveret.spark.scan.tasks import read_partition
from leveret.spark.sink import batch_writer, stream_writer
from leveret.spark.stream.archived_store import find_archives, is_live
from leveret.spark.stream_source import ArchiveStreamReader

NAME = "leveret"


class LeveretDataSource(DataSource):
    """The messages of snapshots and archives; docs/spark.md has options, views and columns."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self.options = options  # with names in any case: a plain dict would lose those in capitals

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        """Return the columns of the view.

        Raises:
            OptionError: an option cannot be accepted.
            NotASnapshot: a path is not a snapshot, but a data directory for example.
            StoreError: a manifest is damaged.
        """
        if any(is_live(local_path(path)) for path in paths_of(self.options)):
            return ddl(columns_of("archive", StreamOptions.of(self.options).columns))
        options = ReadOptions.of(self.options)
        for path in options.paths:
            read_manifest(local_path(path))
        return ddl(columns_of(options.view, options.columns))

    def reader(self, schema: StructType) -> LeveretReader:
        """Return the reader of a batch.

        Raises:
            OptionError: ``schema`` was given, and is another than the view's.
            NotASnapshot: a path is a data directory.
        """
        for path in paths_of(self.options):
            read_manifest(local_path(path))
        options = ReadOptions.of(self.options)
        _check_schema(schema, options.view, columns_of(options.view, options.columns))
        return LeveretReader(options)

    def streamReader(self, schema: StructType) -> ArchiveStreamReader:
        """Return the reader of a stream.

        Raises:
            OptionError: ``schema`` was given, and is another than that of view archive.
            NotAnArchive: a path is a snapshot.
        """
        options = StreamOptions.of(self.options)
        find_archives([local_path(path) for path in options.paths])
        _check_schema(schema, "archive", columns_of("archive", options.columns))
        return ArchiveStreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return the sink of a batch; docs/spark-sink.md has options and errors."""
        return batch_writer(schema, self.options, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """Return the sink of a stream."""
        return stream_writer(schema, self.options, overwrite)


def _check_schema(schema: StructType, view: str, columns: tuple[Column, ...]) -> None:
    given = [(field.name, field.dataType.simpleString()) for field in schema.fields]
    if given != [(column.name, column.ddl) for column in columns]:
        raise OptionError(
            f"the schema that was given is not that of view {view}: leave schema() out, "
            "and choose columns with the option columns"
        )


class ScanPartition(InputPartition):
    """The work of a task; ``batch`` is the whole content of a view that is read by the planner."""

    def __init__(
        self,
        view: str,
        settings: BatchSettings,
        partition: Partition | None = None,
        batch: bytes | None = None,
    ) -> None:
        self.view = view
        self.settings = settings
        self.partition = partition
        self.batch = batch


class LeveretReader(DataSourceReader):
    """Reads one view; pickled from the planner to executors."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self.pruning = options.pruning
        self.pushFilters = _PushFilters(self)  # type: ignore[method-assign]

    def partitions(self) -> list[InputPartition]:
        from leveret.spark.scan.reader import open_scan  # noqa: PLC0415 - executors read no index

        view, scan = self._options.view, open_scan(self._options)
        if not scan.is_planned:
            return [ScanPartition(view, scan.settings, batch=_packed(scan.facts()))]
        return [ScanPartition(view, scan.settings, each) for each in scan.partitions(self.pruning)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a partition; Spark makes one of its own where there is none."""
        if not isinstance(partition, ScanPartition):
            return
        if partition.batch is not None:
            yield from pa.ipc.open_stream(partition.batch)
        elif partition.partition is not None:
            yield from read_partition(partition.partition, partition.view, partition.settings)


class _PushFilters:
    """Takes the place of the method ``pushFilters`` of a reader."""

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, reader: LeveretReader) -> None:
        self._reader = reader

    def __call__(self, filters: list[Filter]) -> list[Filter]:
        """Prune by the filters; return all of them, for Spark to apply."""
        self._reader.pruning = pruned(self._reader.pruning, filters)
        return filters


def _packed(batch: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed
