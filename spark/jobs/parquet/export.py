"""Messages of snapshots as Parquet, in folders by vhost, queue and day (Hive's form, which Arrow and Spark read).

The local engine writes in the order of the queues; Spark sorts each folder. An export to a local folder is complete or
absent: it is written to a draft beside it and renamed. To copy segments as they are use ``leveret snapshot create
--copy``.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from leveret.spark.errors import OptionError
from leveret.spark.jobs import arguments
from leveret.spark.jobs.engine_choice import LOCAL, SPARK, add_engine
from leveret.spark.jobs.matching import check_found, check_names
from leveret.spark.jobs.parquet.export_plan import DATE, KEY, PARTITIONS, TIME, Export
from leveret.spark.jobs.progress import Progress, silent
from leveret.spark.jobs.report import JobReport
from leveret.spark.jobs.running import aggregated, in_engine
from leveret.spark.scan.options import ReadOptions
from leveret.spark.scan.ordered import WINDOW, OrderedRows
from leveret.spark.scan.reader import open_scan
from leveret.spark.scan.schema import arrow_schema, columns_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOB: Final = "export"
_COUNTED: Final = ("vhost", "queue", TIME, "body_size")
_GROUP_ROWS: Final = 65_536
_FOLDERS_MAX: Final = 1 << 20
_SHOWN: Final = 50


def export(
    job: Export,
    *,
    is_dry_run: bool = False,
    spark: SparkSession | None = None,
    progress: Progress = silent,
) -> JobReport:
    """Write messages of snapshots to Parquet files.

    Args:
        job: what and where.
        is_dry_run: count messages by folder, and write nothing.
        spark: a session to run in; None: this process.
        progress: gets the number of messages written, or of tasks that ended.

    Returns:
        Counts of rows, bodies, and of files and their bytes where the target is a local folder.

    Raises:
        OptionError: an option is wrong, or the target has something.
        NothingSelected: a filter selects nothing.
        StoreError: a snapshot is damaged, or a message cannot be read.
        OSError: a file cannot be written.
    """
    check_names(job.selection)
    report = JobReport(JOB, LOCAL if spark is None else SPARK, is_dry_run)
    report.details["selection"] = job.selection.as_dict()
    is_local = "://" not in job.target
    if is_local:
        check_new(Path(job.target))
    if is_dry_run:
        aggregated(_Folders, job.selection, _COUNTED, spark, progress).write_to(report, job)
        check_found(job.selection, report.counts["rows"])
        return report.end()
    if spark is None:
        if not is_local:
            raise OptionError(
                f"{job.target} is not a folder: the local engine writes to folders only"
            )
        job.selection.refuse_where()
        _write(job, report, progress)
    else:
        from leveret.spark.jobs.parquet import export_spark  # noqa: PLC0415 - loads Spark

        if is_local and Path(job.target).exists():
            Path(job.target).rmdir()  # Spark makes it
        export_spark.run(job, report, spark, progress)
    if is_local:
        files = [*Path(job.target).rglob("*.parquet")]
        report.counts["files"] = len(files)
        report.counts["file_bytes"] = sum(file.stat().st_size for file in files)
    return report.end()


def check_new(target: Path) -> None:
    """Raise OptionError unless the folder is not there or empty."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise OptionError(f"{target} is there already: export to a new folder")


def _write(job: Export, report: JobReport, progress: Progress) -> None:
    read = tuple(dict.fromkeys([*job.wanted, *KEY, TIME, "body_size", *job.selection.columns]))
    rows = OrderedRows(open_scan(ReadOptions.of(job.selection.options(read) | WINDOW)))
    (part,) = rows.parts(1, by_queue=True)
    fields = [*arrow_schema(columns_of("messages", job.wanted))]
    has_date = DATE in job.partition_by
    schema = pa.schema([*fields, *([(DATE, pa.string())] if has_date else [])])
    report.counts |= {"rows": 0, "body_bytes": 0}
    seen = 0

    def batches() -> Iterator[Any]:
        nonlocal seen
        for batch in part.batches():
            seen += batch.num_rows
            for kept in job.selection.filtered(iter([batch])):
                report.count("rows", kept.num_rows)
                report.count("body_bytes", pc.sum(kept.column("body_size")).as_py())
                arrays = [kept.column(field.name) for field in fields]
                arrays += [days(kept.column(TIME))] if has_date else []
                yield pa.record_batch(arrays, schema=schema)
            progress("messages", seen, len(rows))

    target = Path(job.target)
    draft = target.with_name(f"{target.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    by = pa.schema([schema.field(name) for name in job.partition_by])
    try:
        ds.write_dataset(
            batches(),
            draft,
            schema=schema,
            format="parquet",
            partitioning=ds.partitioning(by, flavor="hive") if job.partition_by else None,
            basename_template="part-{i}.parquet",
            use_threads=False,  # the files have the order of the queues
            max_partitions=_FOLDERS_MAX,
            max_rows_per_group=_GROUP_ROWS,
        )
        check_found(job.selection, report.counts["rows"] + len(rows) - seen)
        draft.mkdir(exist_ok=True)  # where there was nothing to write
        if target.exists():
            target.rmdir()
        draft.rename(target)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    if lost := len(rows) - seen:
        report.is_complete = False
        report.counts["unreadable"] = lost
        report.warn(f"{lost} messages cannot be read and were left out")


def days(times: Any) -> Any:
    """Return the days of timestamps in UTC, as texts."""
    return pc.strftime(times, "%Y-%m-%d")


class _Folders:
    """Counts messages by vhost, queue and day."""

    def __init__(self) -> None:
        self._rows: Counter[tuple[str, ...]] = Counter()
        self._bytes: Counter[tuple[str, ...]] = Counter()

    def add(self, batch: Any) -> None:
        table = pa.Table.from_batches([batch]).append_column(DATE, days(batch.column(TIME)))
        sizes = [("body_size", "count"), ("body_size", "sum")]
        for row in table.group_by([*PARTITIONS]).aggregate(sizes).to_pylist():
            place = tuple(row[name] or "" for name in PARTITIONS)
            self._rows[place] += row["body_size_count"]
            self._bytes[place] += row["body_size_sum"]

    def pack(self) -> bytes:
        rows = [[place, rows, self._bytes[place]] for place, rows in self._rows.items()]
        return json.dumps(rows).encode()

    def merge(self, packed: bytes) -> None:
        for place, rows, size_bytes in json.loads(packed):
            self._rows[tuple(place)] += rows
            self._bytes[tuple(place)] += size_bytes

    def write_to(self, report: JobReport, job: Export) -> None:
        by = [PARTITIONS.index(name) for name in job.partition_by]
        folders: Counter[tuple[str, ...]] = Counter()
        for place, rows in self._rows.items():
            folders[tuple(place[at] for at in by)] += rows
        report.counts |= {"rows": self._rows.total(), "body_bytes": self._bytes.total()}
        report.counts["folders"] = len(folders)
        largest = sorted(folders.items(), key=lambda item: (-item[1], item[0]))[:_SHOWN]
        report.details["folders"] = [
            dict(zip(job.partition_by, place, strict=True)) | {"rows": rows}
            for place, rows in largest
        ]


# The command.


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``leveret export``."""
    arguments.add_selection(parser)
    parser.add_argument(
        "-o", "--output", required=True, metavar="DIR", help="new folder; with Spark also a URI"
    )
    parser.add_argument("--columns", default="", metavar="NAMES", help="with commas between (all)")
    parser.add_argument(
        "--partition-by",
        default=",".join(PARTITIONS),
        metavar="NAMES",
        help="folders: some of vhost,queue,date, or '' (all three)",
    )
    parser.add_argument("--dry-run", action="store_true", help="count, and write nothing")
    add_engine(parser)


def run(options: argparse.Namespace, progress: Progress) -> JobReport:
    """Carry out ``leveret export``."""
    job = Export(
        arguments.selection_of(options),
        options.output,
        tuple(filter(None, options.columns.split(","))),
        tuple(filter(None, options.partition_by.split(","))),
    )
    return in_engine(
        options,
        lambda spark: export(job, is_dry_run=options.dry_run, spark=spark, progress=progress),
    )
