"""Jobs in Spark: the session, the data frame of a selection, work per partition, and progress.

The session is that of ``--master``. Under spark-submit, which has made the JVM already, its master is kept.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import arrow_udf, col, get, lit  # type: ignore[attr-defined]

from leveret.core.errors import ConfigError, LeveretError
from leveret.spark.jobs.engine_choice import EngineChoice
from leveret.spark.jobs.progress import Progress
from leveret.spark.jobs.selection import Selection, glob_pattern
from leveret.spark.spark_session import SUBMITTED, read_snapshot, reason_of, session

_POLL_S: Final = 0.5


class SparkFailed(LeveretError):  # noqa: N818 - what happened
    """A query of Spark failed."""


@contextmanager
def spark_of(choice: EngineChoice) -> Iterator[SparkSession]:
    """Yield a session, and stop it if it was made here."""
    was_active = SparkSession.getActiveSession() is not None
    master = choice.master or (None if os.environ.get(SUBMITTED) else "local[*]")
    spark = session(master, **dict(choice.settings))
    try:
        yield spark
    finally:
        if not was_active:
            spark.stop()


@contextmanager
def queries(spark: SparkSession, progress: Progress) -> Iterator[None]:
    """Tell the progress of queries, task by task, while the block runs.

    Raises:
        ConfigError: a query could not be understood, or an option was refused.
        SparkFailed: a query failed.
    """
    tracker, ended = spark.sparkContext.statusTracker(), threading.Event()

    def poll() -> None:
        while not ended.wait(_POLL_S):
            for number in tracker.getActiveStageIds():
                stage = tracker.getStageInfo(number)
                if stage is not None:
                    progress("tasks", stage.numCompletedTasks, stage.numTasks)

    poller = threading.Thread(target=poll, name="progress", daemon=True)
    poller.start()
    try:
        yield
    except PySparkException as error:
        text, is_analysis = reason_of(str(error)), type(error).__name__ == "AnalysisException"
        raise (ConfigError(text) if is_analysis else SparkFailed(text)) from None
    finally:
        ended.set()
        poller.join()


def frame_of(spark: SparkSession, selection: Selection, columns: Sequence[str]) -> DataFrame:
    """Return the selected messages; of all columns if there is a condition, which may use any."""
    wanted = [] if selection.where else list(dict.fromkeys([*columns, *selection.columns]))
    options = selection.options(wanted)
    del options["paths"]
    frame = read_snapshot(spark, *selection.snapshots, **options)
    if selection.where:
        frame = frame.where(selection.where)
    if selection.routing_keys:
        frame = frame.where(col("routing_key").rlike(glob_pattern(selection.routing_keys)))
    for name, value in selection.death.items():
        frame = frame.where(get("x_death", lit(0))[name] == value)
    return frame.select(*columns)


def fold_selection(
    spark: SparkSession,
    selection: Selection,
    columns: Sequence[str],
    fold: Callable[[Any], bytes],
    progress: Progress,
) -> list[bytes]:
    """Return what ``fold`` makes of each record batch of the selected messages; raises as ``queries``."""
    with queries(spark, progress):
        return folded(frame_of(spark, selection, columns), fold)


def folded(frame: DataFrame, fold: Callable[[Any], bytes]) -> list[bytes]:
    """Return what ``fold`` makes of each record batch of a frame."""
    names = frame.columns

    def parts(batches: Iterator[Any]) -> Iterator[Any]:
        for arrays in batches:
            count = len(arrays[0])
            part = fold(pa.record_batch(list(arrays), names=names)) if count else None
            yield pa.array([part, *[None] * (count - 1)][:count], pa.binary())

    rows = frame.select(in_arrow(parts, "binary")(*names).alias("part")).where("part is not null")
    return [bytes(row.part) for row in rows.collect()]


def in_arrow(function: Callable[[Iterator[Any]], Iterator[Any]], returns: str) -> Any:
    """Return a function of columns that runs once per partition, and takes and gives Arrow's arrays.

    It takes the tuples of arrays of each batch (two columns or more), and gives one array as long as these.
    ``mapInArrow`` would be simpler, and needs pandas. Spark is told that the function is not deterministic, so that it
    calls it once per row.
    """

    def typed(batches: Any) -> Any:
        return function(batches)

    arrays = Iterator[tuple[pa.Array, ...]]
    typed.__annotations__ = {"batches": arrays, "return": Iterator[pa.Array]}  # Spark reads them
    return arrow_udf(typed, returns).asNondeterministic()
