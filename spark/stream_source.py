"""The streaming source of ``format("leveret")``: what Spark's driver and tasks do with ``stream``.

All methods but ``read`` run in a process of the driver's machine that lives as long as the query. ``read`` runs in
tasks; what it needs is in the partition. Spark checkpoints the offsets, so nothing is to be done when it commits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from leveret.spark.errors import OptionError
from leveret.spark.scan.batches import BatchSettings
from leveret.spark.scan.options import StreamOptions
from leveret.spark.stream.admission import Limit
from leveret.spark.stream.batch import partitions_of, settings_of
from leveret.spark.stream.following import Follower
from leveret.spark.stream.tasks import Piece, read_piece


class ArchivePartition(InputPartition):
    """The work of a task."""

    def __init__(self, pieces: tuple[Piece, ...], settings: BatchSettings) -> None:
        self.pieces = pieces
        self.settings = settings


class ArchiveStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the archives of running brokers; docs/spark-streaming.md has options and guarantees."""

    def __init__(self, options: StreamOptions) -> None:
        self._options = options
        self._follower = Follower(options)

    def initialOffset(self) -> dict[str, Any]:
        return self._follower.initial()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return one limit, as Spark asks for one; ``latestOffset`` adds the other, if both are set."""
        if self._options.max_rows is not None:
            return ReadMaxRows(self._options.max_rows)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next batch.

        Raises:
            DataLoss, StoreError: as ``Follower.latest``.
            OptionError: Spark has a limit of another kind.
        """
        return self._follower.latest(start, self._limit(limit))

    def _limit(self, limit: ReadLimit) -> Limit:
        match limit:
            case ReadAllAvailable():
                return Limit()
            case ReadMaxRows(rows):
                return Limit(rows, self._options.max_bytes)
            case ReadMaxBytes(size_bytes):
                return Limit(self._options.max_rows, size_bytes)
        raise OptionError(f"the limit {limit!r} is unknown to this source")

    def prepareForTriggerAvailableNow(self) -> None:
        self._follower.prepare()

    def reportLatestOffset(self) -> dict[str, Any]:
        return self._follower.reported()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        settings = settings_of(self._options)
        planned = partitions_of(self._options, start, end)
        return [ArchivePartition(pieces, settings) for pieces in planned]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the batches of a partition, in the order of the store."""
        assert isinstance(partition, ArchivePartition), "Spark hands on what was planned"
        for piece in partition.pieces:
            yield from read_piece(piece, partition.settings)
