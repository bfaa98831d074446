"""Running a job in the chosen engine: this process, or a session of Spark that is made for it.

What a job counts is an *aggregate*. The local engine has one that takes every batch; in Spark each batch has one of its
own, which is packed, sent to the driver and merged. So both count by the same code.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from leveret.spark.jobs.engine_choice import LOCAL, engine_of
from leveret.spark.jobs.progress import Progress
from leveret.spark.jobs.report import JobReport
from leveret.spark.jobs.selection import Selection
from leveret.spark.scan.options import ReadOptions
from leveret.spark.scan.reader import open_scan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Aggregate(Protocol):
    """Counts messages; parts are counted apart and merged."""

    def add(self, batch: Any) -> None:
        """Count a record batch."""

    def pack(self) -> bytes:
        """Return all counts as bytes."""

    def merge(self, packed: bytes) -> None:
        """Add the counts of another part."""


A = TypeVar("A", bound=Aggregate)


def aggregated(
    make: Callable[[], A],
    selection: Selection,
    columns: Sequence[str],
    spark: SparkSession | None,
    progress: Progress,
) -> A:
    """Return the aggregate of the selected messages; ``make`` returns an empty one, also in tasks of Spark.

    Raises:
        OptionError: the selection cannot be accepted, or needs Spark.
        StoreError: a snapshot is damaged, or a message cannot be read.
    """
    whole = make()
    if spark is None:
        selection.refuse_where()
        wanted = tuple(dict.fromkeys([*columns, *selection.columns]))
        batches = open_scan(ReadOptions.of(selection.options(wanted))).batches()
        read = 0
        for batch in selection.filtered(batches):
            whole.add(batch.select(columns))
            read += batch.num_rows
            progress("messages", read, 0)
        return whole
    from leveret.spark.jobs.engine import fold_selection  # noqa: PLC0415 - loads Spark

    def fold(batch: Any) -> bytes:
        part = make()
        part.add(batch)
        return part.pack()

    for packed in fold_selection(spark, selection, columns, fold, progress):
        whole.merge(packed)
    return whole


def in_engine(
    options: argparse.Namespace, job: Callable[[SparkSession | None], JobReport]
) -> JobReport:
    """Run a command's job in the engine that its arguments choose; raises as ``engine_of`` and the job."""
    choice = engine_of(options)
    if choice.engine == LOCAL:
        return job(None)
    from leveret.spark.jobs.engine import spark_of  # noqa: PLC0415 - loads Spark

    with spark_of(choice) as spark:
        return job(spark)
