"""Replay: stored messages are published again, in the order of their queues.

The local engine reads the snapshot in the order of the queues (``scan.ordered``) and publishes from this process, each
publisher in a thread. Spark reads in tasks, partitions by queue and sorts. Both use one selection, one rewrite and the
sink with its ledger, so a replay that failed is run again and sends the rest (at least once: docs/spark-sink.md).

A ledger belongs to one plan: the snapshots, selection, rewrite, order, engine and number of publishers are in it.
"""

from __future__ import annotations

import argparse
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from leveret.spark.jobs import arguments
from leveret.spark.jobs.destinations import mention_left_out
from leveret.spark.jobs.engine_choice import LOCAL, SPARK, add_engine
from leveret.spark.jobs.matching import check_found, check_names
from leveret.spark.jobs.progress import Progress, silent
from leveret.spark.jobs.publishing import body_bytes, publish
from leveret.spark.jobs.replay.plan import NONE, QUEUE, Replay
from leveret.spark.jobs.replay.rewrite import Rewrite, Rewritten, headers_of_words
from leveret.spark.jobs.replay.routes import destinations
from leveret.spark.jobs.report import JobReport
from leveret.spark.jobs.running import in_engine
from leveret.spark.publish.identity import Key
from leveret.spark.publish.options import parse
from leveret.spark.scan.options import ReadOptions
from leveret.spark.scan.ordered import WINDOW, OrderedPart, OrderedRows
from leveret.spark.scan.reader import open_scan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOB: Final = "replay"


def replay(
    job: Replay,
    *,
    is_dry_run: bool = False,
    spark: SparkSession | None = None,
    progress: Progress = silent,
) -> JobReport:
    """Publish messages of snapshots again.

    Args:
        job: what and how.
        is_dry_run: count by exchange and routing key, and publish nothing.
        spark: a session to run in; None: this process.
        progress: gets the number of messages read, or of tasks that ended.

    Returns:
        The counts of the sink (``sent``, ``skipped``, ``dropped``, ...), ``selected`` messages and ``body_bytes``, and
        ``left_out``: dead letters whose origin is unknown.

    Raises:
        OptionError: an option is wrong, or has no effect; nothing was sent.
        NothingSelected: a filter selects nothing.
        PublishError: a message was not delivered; with a ledger, another run goes on behind the settled ones.
        StoreError: a snapshot is damaged, or a message cannot be read.
    """
    check_names(job.selection)
    report = JobReport(JOB, LOCAL if spark is None else SPARK, is_dry_run)
    report.details["selection"] = job.selection.as_dict()
    if is_dry_run:
        destinations(job, spark, progress).write_to(report, job.publishers, job.per_s)
    elif spark is None:
        job.selection.refuse_where()
        _publish(job, report, progress)
    else:
        from leveret.spark.jobs.replay import replay_spark  # noqa: PLC0415 - loads Spark

        replay_spark.run(job, report, spark, progress)
    counts = (report.counts.get(name, 0) for name in ("selected", "left_out", "unreadable"))
    check_found(job.selection, sum(counts))
    return report.end()


# In this process.


def _publish(job: Replay, report: JobReport, progress: Progress) -> None:
    options = parse(job.write_options(LOCAL))
    target = options.uri.read(lambda _: None)
    columns = tuple(dict.fromkeys([*job.changes.columns, "body", *job.selection.columns]))
    rows = OrderedRows(open_scan(ReadOptions.of(job.selection.options(columns) | WINDOW)))
    counts = _Counts(len(rows), progress)
    parts = [
        _RewrittenPart(part, job, counts)
        for part in rows.parts(job.publishers, by_queue=job.order == QUEUE)
    ]
    sent = publish(parts, options, target)
    unreadable = len(rows) - counts.read
    report.counts |= {"selected": counts.selected, "body_bytes": counts.body_bytes}
    report.counts |= {"left_out": len(counts.left_out), "unreadable": unreadable}
    report.counts |= sent.as_dict()
    mention_left_out(report, len(counts.left_out), counts.left_out)
    if unreadable:
        report.is_complete = False
        report.warn(f"{unreadable} messages cannot be read and were left out")


class _Counts:
    """What all parts have read so far; each part has a thread."""

    def __init__(self, rows: int, progress: Progress) -> None:
        self.read = 0
        self.selected = 0
        self.body_bytes = 0
        self.left_out: list[Key] = []
        self._rows = rows
        self._progress = progress
        self._lock = threading.Lock()

    def add(self, rows: int, made: list[Rewritten]) -> None:
        with self._lock:
            self.read += rows
            for each in made:
                self.selected += each.batch.num_rows
                self.body_bytes += body_bytes(each.batch)
                self.left_out += each.left_out
            self._progress("messages", self.read, self._rows)


class _RewrittenPart:
    """A part of the rows, selected and rewritten."""

    def __init__(self, part: OrderedPart, job: Replay, counts: _Counts) -> None:
        self._part = part
        self._selection = job.selection
        self._changes = job.changes
        self._counts = counts

    def batches(self) -> Iterator[Any]:
        for batch in self._part.batches():
            kept = self._selection.filtered(iter([batch]))
            made = [self._changes.batch(each) for each in kept]
            self._counts.add(batch.num_rows, made)
            yield from (each.batch for each in made)


# The command.


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``leveret replay``."""
    arguments.add_selection(parser)
    group = parser.add_argument_group("what becomes of them")
    group.add_argument("--exchange", metavar="NAME", help="instead of the stored one; '': default")
    group.add_argument("--routing-key-to", metavar="KEY", help="instead of the stored one")
    group.add_argument(
        "--to-original", action="store_true", help="dead letters: to where they died first"
    )
    group.add_argument(
        "--set-header", action="append", default=[], metavar="NAME=VALUE", help="may be repeated"
    )
    group.add_argument(
        "--remove-header", action="append", default=[], metavar="NAME", help="may be repeated"
    )
    group.add_argument("--strip-expiration", action="store_true", help="without their TTL")
    group.add_argument("--reset-death", action="store_true", help="without x-death")
    group.add_argument("--no-marks", action="store_true", help="without the headers x-replay*")
    arguments.add_target(parser)
    parser.add_argument(
        "--order",
        choices=(QUEUE, NONE),
        default=QUEUE,
        help="queue: one publisher per queue, in its order; none: all publishers for each (queue)",
    )
    parser.add_argument("--dry-run", action="store_true", help="count, and publish nothing")
    add_engine(parser)


def run(options: argparse.Namespace, progress: Progress) -> JobReport:
    """Carry out ``leveret replay``."""
    write = arguments.write_options(options)
    arguments.check_target(options, write)
    rewrite = Rewrite(
        options.exchange,
        options.routing_key_to,
        options.to_original,
        headers_of_words(options.set_header),
        tuple(options.remove_header),
        options.strip_expiration,
        options.reset_death,
        not options.no_marks,
    )
    selection = arguments.selection_of(options)
    job = Replay(selection, rewrite, write, options.publishers, options.order)
    return in_engine(
        options,
        lambda spark: replay(job, is_dry_run=options.dry_run, spark=spark, progress=progress),
    )
