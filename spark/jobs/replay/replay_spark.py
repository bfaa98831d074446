"""A replay in Spark: read, rewrite in tasks, partition by queue, sort, and write to the sink.

Queues go to publishers by a hash, so with few queues some publishers may have nothing to do. The counts come from the
frame that is written (each row once, also where tasks were repeated) and, with a ledger, from the sink's report.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql.functions import col, count, length, lit
from pyspark.sql.functions import sum as sum_of

from leveret.spark.jobs.destinations import mention_left_out
from leveret.spark.jobs.engine import frame_of, in_arrow, queries
from leveret.spark.jobs.engine_choice import SPARK
from leveret.spark.jobs.progress import Progress
from leveret.spark.jobs.publishing import REPORT
from leveret.spark.jobs.replay.plan import QUEUE, Replay
from leveret.spark.jobs.replay.rewrite import SENT, Rewrite
from leveret.spark.jobs.replay.routes import destinations
from leveret.spark.jobs.report import JobReport
from leveret.spark.publish.options import parse
from leveret.spark.source import NAME

_KEY: Final = ("vhost", "queue", "queue_no", "seq_id")
_SENT: Final = "seq_id bigint, exchange string, routing_key string, properties_raw binary"


def run(job: Replay, report: JobReport, spark: SparkSession, progress: Progress) -> None:
    """Carry out a replay; raises as ``replay``, and SparkFailed."""
    if job.rewrite.to_original:
        found = destinations(job, spark, progress)
        report.counts["left_out"] = found.left_out
        mention_left_out(report, found.left_out, found.named)
    with queries(spark, progress):
        options = job.write_options(SPARK)
        ledger = parse(options).ledger
        seen = Observation("replay")
        frame = _rewritten(job, spark).observe(
            seen, count(lit(1)).alias("rows"), sum_of(length("body")).alias("bytes")
        )
        _partitioned(job, frame).write.format(NAME).options(**options).mode("append").save()
    report.counts["selected"] = seen.get["rows"]
    report.counts["body_bytes"] = seen.get["bytes"] or 0
    if not job.selection.fail_on_data_loss:
        report.warn(
            "messages that cannot be read were left out, if there are any: leveret snapshot verify"
        )
    if ledger:
        counts = json.loads((Path(ledger) / REPORT).read_text())
        report.counts |= {name: value for name, value in counts.items() if name != "of"}


def _rewritten(job: Replay, spark: SparkSession) -> DataFrame:
    changes: Rewrite = job.changes
    names = changes.columns

    def rewrite(batches: Iterator[Any]) -> Iterator[Any]:
        for arrays in batches:
            keys, found = changes.rows(pa.record_batch(list(arrays), names=list(names)))
            sent = zip(keys, found, strict=True)
            rows = [None if each is None else (key.seq_id, *each) for key, each in sent]
            yield pa.array(rows, SENT)

    frame = frame_of(spark, job.selection, (*names, "body"))
    sent = in_arrow(rewrite, _SENT)(*names).alias("sent")
    found = frame.select("vhost", "queue", "queue_no", "body", sent)
    return found.where("sent is not null").select("vhost", "queue", "queue_no", "sent.*", "body")


def _partitioned(job: Replay, frame: DataFrame) -> DataFrame:
    by = _KEY[:2] if job.order == QUEUE else _KEY
    return frame.repartition(job.publishers, *map(col, by)).sortWithinPartitions(*_KEY)
