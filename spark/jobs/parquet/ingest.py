"""Import: rows of Parquet files become messages, through the sink and its ledger.

The key of a row is its file and its number in it, so a ledger works for any files, as long as they do not change. With
several publishers each file goes to one of them, and its rows are published in their order.

Columns are those of the sink; ``columns`` gives others their names. Values in the names of folders (``queue=orders``)
are columns too, as texts. A text in ``body`` becomes its UTF-8 bytes. ``properties_raw`` wins over ``properties``.
Other columns are left out, and the report names them.
"""

from __future__ import annotations

import argparse
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from leveret.spark.errors import OptionError
from leveret.spark.jobs import arguments
from leveret.spark.jobs.destinations import Destinations
from leveret.spark.jobs.engine_choice import LOCAL, SPARK, add_engine, pair
from leveret.spark.jobs.parquet.import_plan import JOB, Import
from leveret.spark.jobs.parquet.rows import ParquetRows, check_names, files_of
from leveret.spark.jobs.progress import Progress, silent
from leveret.spark.jobs.publishing import body_bytes, publish
from leveret.spark.jobs.report import JobReport
from leveret.spark.jobs.running import in_engine
from leveret.spark.publish.options import WriteOptions, parse
from leveret.spark.publish.rows import check_columns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NO_URI: Final = {"uri": "amqp://127.0.0.1"}  # of a dry run, which looks at columns only


def ingest(
    job: Import,
    *,
    is_dry_run: bool = False,
    spark: SparkSession | None = None,
    progress: Progress = silent,
) -> JobReport:
    """Publish the rows of Parquet files.

    Args:
        job: what and how.
        is_dry_run: read all, count by exchange and routing key, and publish nothing.
        spark: a session to run in; None: this process.
        progress: gets the number of rows read, or of tasks that ended.

    Returns:
        The counts of the sink, ``selected`` rows and ``body_bytes``; ``details`` has the columns that were left out.

    Raises:
        OptionError: an option or a column is wrong; nothing was sent.
        PublishError: a message was not delivered; with a ledger, another run goes on behind the settled ones.
        OSError: a file cannot be read.
    """
    report = JobReport(JOB, LOCAL if spark is None else SPARK, is_dry_run)
    if spark is not None:
        from leveret.spark.jobs.parquet import ingest_spark  # noqa: PLC0415 - loads Spark

        ingest_spark.run(job, report, spark, progress)
        return report.end()
    files = [file for path in job.paths for file in files_of(path)]
    check_names(files)
    left_out = sorted({name for file in files for name in job.left_out(file.names)})
    report.details["left_out_columns"] = left_out
    if is_dry_run:
        _count(job, files, report, progress)
    else:
        _publish(job, files, report, progress)
    return report.end()


class _Counts:
    """What was read so far, by the threads of all publishers."""

    def __init__(self, rows: int, progress: Progress) -> None:
        self.rows = 0
        self.body_bytes = 0
        self._all = rows
        self._progress = progress
        self._lock = threading.Lock()

    def add(self, batch: Any) -> None:
        with self._lock:
            self.rows += batch.num_rows
            self.body_bytes += body_bytes(batch)
            self._progress("rows", self.rows, self._all)


@dataclass(frozen=True, slots=True)
class _Part:
    """The files of one publisher, by name."""

    job: Import
    files: list[ParquetRows]
    counts: _Counts

    def batches(self) -> Iterator[Any]:
        for file in sorted(self.files, key=lambda file: file.name):
            for batch in file.batches(self.job.chosen(file.names)):
                self.counts.add(batch)
                yield batch


def _parts(
    job: Import, files: list[ParquetRows], progress: Progress
) -> tuple[list[_Part], _Counts]:
    """Deal files to publishers, the largest first, each to the one that has the fewest rows."""
    counts = _Counts(sum(file.metadata.num_rows for file in files), progress)
    parts = [_Part(job, [], counts) for _ in range(job.publishers)]
    loads = [0] * job.publishers
    for file in sorted(files, key=lambda file: (-file.metadata.num_rows, file.name)):
        least = loads.index(min(loads))
        parts[least].files.append(file)
        loads[least] += file.metadata.num_rows
    return parts, counts


def _publish(job: Import, files: list[ParquetRows], report: JobReport, progress: Progress) -> None:
    facts = sorted((file.name, file.path.stat().st_size, file.metadata.num_rows) for file in files)
    options = parse(job.write_options(facts))
    _check(job, files, options)
    parts, counts = _parts(job, files, progress)
    sent = publish(parts, options, options.uri.read(lambda _: None))
    report.counts |= {"selected": counts.rows, "body_bytes": counts.body_bytes} | sent.as_dict()


def _check(job: Import, files: list[ParquetRows], options: WriteOptions) -> None:
    """Check the columns of all files before a message is sent."""
    for file in files:
        try:
            check_columns(file.schema(job.chosen(file.names)), options, is_stream=False)
        except OptionError as error:
            raise OptionError(f"{file.path}: {error}") from None


def _count(job: Import, files: list[ParquetRows], report: JobReport, progress: Progress) -> None:
    options = parse(
        _NO_URI | {n: v for n, v in job.write.items() if not n.lower().startswith("uri")}
    )
    _check(job, files, options)
    (part, *_), _ = _parts(Import(job.paths, job.write, job.columns), files, progress)
    found = Destinations()
    for batch in part.batches():
        found.add(destined(batch, options))
    found.write_to(report, job.publishers, job.per_s)


def destined(batch: Any, options: WriteOptions) -> Any:
    """Return exchange, routing key and size of the body of each row."""
    count, names = batch.num_rows, batch.schema.names

    def named(name: str, default: str | None) -> Any:
        column = batch.column(name) if name in names else pa.nulls(count, pa.string())
        return pc.fill_null(column, default) if default is not None else column

    arrays = {
        "exchange": named("exchange", options.exchange),
        "routing_key": named("routing_key", options.routing_key),
        "body_size": pc.binary_length(batch.column("body")).cast(pa.int64()),
    }
    return pa.record_batch(list(arrays.values()), names=list(arrays))


# The command.


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``leveret import``."""
    parser.add_argument("paths", nargs="+", metavar="PATH", help="Parquet file, or folder of them")
    group = parser.add_argument_group("what becomes of rows")
    group.add_argument("--exchange", metavar="NAME", help="of rows that have none")
    group.add_argument("--routing-key-to", metavar="KEY", help="of rows that have none")
    group.add_argument(
        "--column",
        action="append",
        default=[],
        metavar="SINK=FILE",
        help="body=payload: make a column of the sink of another one; may be repeated",
    )
    arguments.add_target(parser)
    parser.add_argument("--dry-run", action="store_true", help="count, and publish nothing")
    add_engine(parser)


def run(options: argparse.Namespace, progress: Progress) -> JobReport:
    """Carry out ``leveret import``."""
    write = arguments.write_options(options)
    arguments.check_target(options, write)
    for name, value in (("exchange", options.exchange), ("routingKey", options.routing_key_to)):
        if value is not None:
            write[name] = value
    columns = tuple(pair("--column", word) for word in options.column)
    job = Import(tuple(options.paths), write, columns, options.publishers)
    return in_engine(
        options,
        lambda spark: ingest(job, is_dry_run=options.dry_run, spark=spark, progress=progress),
    )
