"""An export by Spark: one task for the rows of each folder, in the order of the queue."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Observation, SparkSession
from pyspark.sql.functions import col, count, expr, lit
from pyspark.sql.functions import sum as sum_of

from leveret.spark.jobs.engine import frame_of, queries
from leveret.spark.jobs.matching import check_found
from leveret.spark.jobs.parquet.export_plan import DATE, KEY, TIME, Export
from leveret.spark.jobs.progress import Progress
from leveret.spark.jobs.report import JobReport

_DAY: Final = f"date_format(to_utc_timestamp({TIME}, current_timezone()), 'yyyy-MM-dd')"


def run(job: Export, report: JobReport, spark: SparkSession, progress: Progress) -> None:
    """Carry out an export; raises as ``export``, and SparkFailed."""
    read = tuple(dict.fromkeys([*job.wanted, *KEY, TIME, "body_size"]))
    seen = Observation("export")
    with queries(spark, progress):
        frame = frame_of(spark, job.selection, read).observe(
            seen, count(lit(1)).alias("rows"), sum_of("body_size").alias("bytes")
        )
        frame = frame.withColumn(DATE, expr(_DAY))
        if job.partition_by:
            frame = frame.repartition(*map(col, job.partition_by))
        order = [*job.partition_by, *(name for name in KEY if name not in job.partition_by)]
        names = [*job.wanted, *([DATE] if DATE in job.partition_by else [])]
        sorted_frame = frame.sortWithinPartitions(*order).select(*names)
        sorted_frame.write.partitionBy(*job.partition_by).parquet(job.target)
    report.counts |= {"rows": seen.get["rows"], "body_bytes": seen.get["bytes"] or 0}
    check_found(job.selection, report.counts["rows"])
