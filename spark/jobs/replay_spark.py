"""A replay in Spark: read, rewrite in tasks, partition by queue, sort, and write to the sink.

Queues go to publishers by a hash, so with few queues some publishers may have nothing to do. The counts come from the
frame that is written (each row once, also where tasks were repeated) and, with a ledger, from the sink's report.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql.functions import col, count, length, lit
from pyspark.sql.functions import sum as sum_of

from leveret.spark.jobs.arguments import SPARK
from leveret.spark.jobs.destinations import Destinations, mention_left_out
from leveret.spark.jobs.engine import folded, frame_of, queries
from leveret.spark.jobs.progress import Progress
from leveret.spark.jobs.replay import QUEUE, REPORT, Replay
from leveret.spark.jobs.report import JobReport
from leveret.spark.jobs.rewrite import Rewrite
from leveret.spark.publish.options import parse
from leveret.spark.source import NAME

_KEY: Final = ("vhost", "queue", "queue_no", "seq_id")
_ROWS: Final = (
    "vhost string, queue string, queue_no bigint, seq_id bigint, exchange string, routing_key string,"
    " properties_raw binary, body binary"
)


def run(job: Replay, report: JobReport, spark: SparkSession, progress: Progress) -> None:
    """Carry out a replay, or its dry run; raises as ``replay``, and SparkFailed."""
    with queries(spark, progress):
        if report.is_dry_run:
            _destinations(job, spark).write_to(report, job.publishers, job.per_s)
            return
        options = job.write_options(SPARK)
        ledger = parse(options).ledger
        if job.rewrite.to_original:
            found = _destinations(job, spark)
            report.counts["left_out"] = found.left_out
            mention_left_out(report, found.left_out, found.named)
        seen = Observation("replay")
        frame = _rewritten(job, spark).observe(
            seen, count(lit(1)).alias("rows"), sum_of(length("body")).alias("bytes")
        )
        _partitioned(job, frame).write.format(NAME).options(**options).mode("append").save()
    report.counts["selected"] = seen.get["rows"]
    report.counts["body_bytes"] = seen.get["bytes"] or 0
    if ledger:
        counts = json.loads((Path(ledger) / REPORT).read_text())
        report.counts |= {name: value for name, value in counts.items() if name != "of"}


def _destinations(job: Replay, spark: SparkSession) -> Destinations:
    changes = job.changes.route_only()
    frame = frame_of(spark, job.selection, (*changes.columns, "body_size"))

    def fold(batches: Iterator[Any]) -> bytes:
        part = Destinations()
        for batch in batches:
            part.add(changes.batch(batch))
        return part.pack()

    found = Destinations()
    for part in folded(frame, fold):
        found.merge(part)
    return found


def _rewritten(job: Replay, spark: SparkSession) -> DataFrame:
    changes: Rewrite = job.changes
    frame = frame_of(spark, job.selection, (*changes.columns, "body"))

    def rewrite(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            yield changes.batch(batch).batch

    return frame.mapInArrow(rewrite, _ROWS)


def _partitioned(job: Replay, frame: DataFrame) -> DataFrame:
    by = _KEY[:2] if job.order == QUEUE else _KEY
    return frame.repartition(job.publishers, *map(col, by)).sortWithinPartitions(*_KEY)
