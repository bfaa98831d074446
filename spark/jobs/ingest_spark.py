"""An import by Spark: each file's rows go to one publisher, in their order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql.functions import coalesce, col, count, length, lit
from pyspark.sql.functions import sum as sum_of

from leveret.spark.jobs.destinations import Destinations
from leveret.spark.jobs.engine import queries
from leveret.spark.jobs.ingest import KEY, MESSAGE, Import
from leveret.spark.jobs.progress import Progress
from leveret.spark.jobs.publishing import REPORT
from leveret.spark.jobs.report import JobReport
from leveret.spark.publish.options import parse
from leveret.spark.source import NAME

_INFERENCE: Final = "spark.sql.sources.partitionColumnTypeInference.enabled"
_TEXTS: Final = ("exchange", "routing_key")
_FILE: Final = "_metadata.file_path"
_ROW: Final = "_metadata.row_index"


def run(job: Import, report: JobReport, spark: SparkSession, progress: Progress) -> None:
    """Carry out an import, or its dry run; raises as ``ingest``, and SparkFailed."""
    with queries(spark, progress):
        frame = _read(job, report, spark)
        if report.is_dry_run:
            _count(job, frame, report)
            return
        options = job.write_options(sorted(job.paths))
        ledger = parse(options).ledger
        seen = Observation("import")
        observed = frame.observe(
            seen, count(lit(1)).alias("rows"), sum_of(length("body")).alias("bytes")
        )
        parts = observed.repartition(job.publishers, "queue").sortWithinPartitions(*KEY)
        parts.write.format(NAME).options(**options).mode("append").save()
    report.counts |= {"selected": seen.get["rows"], "body_bytes": seen.get["bytes"] or 0}
    if ledger:
        counts = json.loads((Path(ledger) / REPORT).read_text())
        report.counts |= {name: value for name, value in counts.items() if name != "of"}


def _read(job: Import, report: JobReport, spark: SparkSession) -> DataFrame:
    """Return the rows with the columns of the sink, and file and number as their keys."""
    before = spark.conf.get(_INFERENCE)
    spark.conf.set(_INFERENCE, "false")  # the routing key 007 in a folder's name is no number
    try:
        frame = spark.read.parquet(*job.paths)
    finally:
        spark.conf.set(_INFERENCE, str(before))
    chosen = job.chosen(frame.columns)
    report.details["left_out_columns"] = job.left_out(frame.columns)
    columns = []
    for name in MESSAGE:
        if name in chosen:
            column = frame[chosen[name]]
            column = column.cast("binary") if name == "body" else column
            columns.append(column.cast("string") if name in _TEXTS else column)
            columns[-1] = columns[-1].alias(name)
    keys = (lit("").alias("vhost"), col(_FILE).alias("queue"), col(_ROW).alias("seq_id"))
    return frame.select(*columns, *keys)


def _count(job: Import, frame: DataFrame, report: JobReport) -> None:
    names = {name.lower(): value for name, value in job.write.items()}
    defaults = {"exchange": names.get("exchange"), "routing_key": names.get("routingkey")}
    places = [
        coalesce(*([col(name)] if name in frame.columns else []), lit(default)).alias(name)
        for name, default in defaults.items()
    ]
    sums = (count(lit(1)).alias("rows"), sum_of(length("body")).alias("bytes"))
    found = Destinations()
    for row in frame.select("body", *places).groupBy(*_TEXTS).agg(*sums).toLocalIterator():
        found.count(row.exchange, row.routing_key, row.rows, row.bytes or 0)
    found.write_to(report, job.publishers, job.per_s)
