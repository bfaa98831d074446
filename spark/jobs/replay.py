"""Replay: stored messages are published again, in the order of their queues.

The local engine reads the snapshot in the order of the queues (``scan.ordered``) and publishes from this process, each
publisher in a thread. Spark reads in tasks, partitions by queue and sorts. Both use one selection, one rewrite and the
sink with its ledger, so a replay that failed is run again and sends the rest (at least once: docs/spark-sink.md).

A ledger belongs to one plan: the snapshots, selection, rewrite, order, engine and number of publishers are in it.
"""

from __future__ import annotations

import argparse
import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from leveret.spark.errors import OptionError
from leveret.spark.jobs import arguments
from leveret.spark.jobs.destinations import Destinations, mention_left_out
from leveret.spark.jobs.engine_choice import LOCAL, SPARK, add_engine
from leveret.spark.jobs.progress import Progress, silent
from leveret.spark.jobs.publishing import body_bytes, publish
from leveret.spark.jobs.report import JobReport
from leveret.spark.jobs.rewrite import Rewrite, Rewritten, headers_of_words
from leveret.spark.jobs.running import aggregated, in_engine
from leveret.spark.jobs.selection import Selection
from leveret.spark.options import ReadOptions
from leveret.spark.publish.identity import Key
from leveret.spark.publish.options import above_zero, parse
from leveret.spark.scan.manifest import local_path, read_manifest
from leveret.spark.scan.ordered import OrderedPart, OrderedRows
from leveret.spark.scan.reader import open_scan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOB: Final = "replay"
QUEUE: Final = "queue"
NONE: Final = "none"
_OF_REWRITE: Final = (
    "exchange",
    "routingkey",
    "plan",
)  # options of a write that a replay sets itself


@dataclass(frozen=True, slots=True)
class Replay:
    """A replay.

    Attributes:
        selection: which messages.
        rewrite: where they go, and what changes.
        write: options of the sink: ``uriFile``, ``ledger``, ``maxRate`` and so on (docs/spark-sink.md).
        publishers: connections; each has messages of its own.
        order: ``queue``: each queue is published by one connection, in its order; ``none``: by all of them.
    """

    selection: Selection
    rewrite: Rewrite = field(default_factory=Rewrite)
    write: Mapping[str, str] = field(default_factory=dict)
    publishers: int = 1
    order: str = QUEUE

    def __post_init__(self) -> None:
        if self.order not in {QUEUE, NONE}:
            raise OptionError(f"order {self.order!r} is unknown; there are {QUEUE}, {NONE}")
        for name in self.write:
            if name.lower() in _OF_REWRITE:
                raise OptionError(f"option {name} of the sink is the replay's own: use its rewrite")

    @property
    def changes(self) -> Rewrite:
        """The rewrite, knowing whether rows have seqs."""
        return replace(self.rewrite, has_seqs=self.selection.view == "messages")

    @property
    def per_s(self) -> float:
        """The rate of all publishers, 0 without one; OptionError: it is not a number."""
        rates = [value for name, value in self.write.items() if name.lower() == "maxrate"]
        return above_zero("maxRate", rates[0]) if rates else 0.0

    def write_options(self, engine: str) -> dict[str, str]:
        """Return the options of the write; with a ledger, its plan."""
        given = {"publishers": str(self.publishers), **self.write}
        if any(name.lower() == "ledger" for name in given):
            given["plan"] = self._plan(engine)
        return given

    def _plan(self, engine: str) -> str:
        """Return a text that says which rows come in which order; paths of snapshots may change."""
        found = [read_manifest(local_path(path)) for path in self.selection.snapshots]
        said = {
            "engine": engine,
            "snapshots": [[each.node, each.name, each.created_ms] for each in found],
            "selection": self.selection.as_dict() | {"snapshots": len(found)},
            "rewrite": asdict(self.changes),
            "publishers": self.publishers,
            "order": self.order,
        }
        return json.dumps(said, sort_keys=True)


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
        progress: told how many messages were read, or how many tasks ended.

    Returns:
        The counts of the sink (``sent``, ``skipped``, ``dropped``, ...), ``selected`` messages and ``body_bytes``, and
        ``left_out``: dead letters whose origin is unknown.

    Raises:
        OptionError: an option is wrong, or has no effect; nothing was sent.
        PublishError: a message was not delivered; with a ledger, another run goes on behind the settled ones.
        StoreError: a snapshot is damaged, or a message cannot be read.
    """
    report = JobReport(JOB, LOCAL if spark is None else SPARK, is_dry_run)
    report.details["selection"] = job.selection.as_dict()
    if is_dry_run:
        destinations(job, spark, progress).write_to(report, job.publishers, job.per_s)
    elif spark is None:
        job.selection.refuse_where()
        _publish(job, report, progress)
    else:
        from leveret.spark.jobs import replay_spark  # noqa: PLC0415 - loads Spark

        replay_spark.run(job, report, spark, progress)
    return report.end()


def destinations(job: Replay, spark: SparkSession | None, progress: Progress) -> Destinations:
    """Return where the messages would go, without reading their bodies."""
    changes = job.changes.route_only()
    columns = (*changes.columns, "body_size")
    make = partial(_Routes, changes)
    return aggregated(make, job.selection, columns, spark, progress).found


class _Routes:
    """Counts the destinations that a rewrite gives to messages."""

    def __init__(self, changes: Rewrite) -> None:
        self.found = Destinations()
        self._changes = changes

    def add(self, batch: Any) -> None:
        made = self._changes.batch(batch)
        self.found.leave_out(len(made.left_out), made.left_out)
        self.found.add(made.batch)

    def pack(self) -> bytes:
        return self.found.pack()

    def merge(self, packed: bytes) -> None:
        self.found.merge(packed)


# In this process.


def _publish(job: Replay, report: JobReport, progress: Progress) -> None:
    options = parse(job.write_options(LOCAL))
    target = options.uri.read(lambda _: None)
    columns = tuple(dict.fromkeys([*job.changes.columns, "body", *job.selection.columns]))
    rows = OrderedRows(open_scan(ReadOptions.of(job.selection.options(columns))))
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
