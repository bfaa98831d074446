"""The dead letters of snapshots by group, each with the command that replays it."""

from __future__ import annotations

import argparse
import glob
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from leveret.spark.jobs import arguments
from leveret.spark.jobs.dead_letters.groups import (
    COLUMNS,
    DeadLetterGroups,
    GroupName,
    is_others,
)
from leveret.spark.jobs.engine_choice import LOCAL, SPARK, add_engine
from leveret.spark.jobs.matching import check_found, check_names
from leveret.spark.jobs.progress import Progress, silent
from leveret.spark.jobs.report import JobReport
from leveret.spark.jobs.running import aggregated, in_engine
from leveret.spark.jobs.selection import Selection

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOB: Final = "dlq"
TARGET: Final = "amqp://127.0.0.1"


@dataclass(frozen=True, slots=True)
class Dlq:
    """An analysis of dead letters.

    Attributes:
        selection: the messages; messages without ``x-death`` are only counted.
        target: the broker's URI in the commands, without a vhost.
    """

    selection: Selection
    target: str = TARGET


def dlq(job: Dlq, *, spark: SparkSession | None = None, progress: Progress = silent) -> JobReport:
    """Group dead letters by queue, reason, and the queue and exchange of their latest death.

    Args:
        job: which letters.
        spark: a session to run in; None: this process.
        progress: gets the number of messages read, or of tasks that ended.

    Returns:
        Counts of letters and groups, and of letters that the queue they died in may still have as well, if it is
        selected too (``maybe_in_both``); each of ``details["groups"]`` has hours, numbers of deaths, the most frequent
        routing keys, samples of bodies, and a shell ``command``.

    Raises:
        OptionError: the selection cannot be accepted.
        NothingSelected: a filter selects nothing.
        StoreError: a snapshot is damaged, or a message cannot be read.
    """
    check_names(job.selection)
    report = JobReport(JOB, LOCAL if spark is None else SPARK)
    groups = aggregated(DeadLetterGroups, job.selection, COLUMNS, spark, progress)
    rows = groups.rows()
    report.counts |= {
        "dead_letters": sum(group["messages"] for _, group in rows),
        "not_dead": groups.not_dead,
        "groups": len(rows),
        "maybe_in_both": groups.in_both.count(),
    }
    check_found(job.selection, report.counts["dead_letters"] + groups.not_dead)
    if report.counts["maybe_in_both"]:
        report.warn(
            f"{report.counts['maybe_in_both']:.0f} letters may be in the queue they died in as well, which keeps a message "
            "until its letter has arrived; a snapshot made later has each once"
        )
    report.details["groups"] = [
        row | ({} if is_others(name) else {"command": command(job, name)}) for name, row in rows
    ]
    return report.end()


def command(job: Dlq, group: GroupName) -> str:
    """Return the command that sends the letters of a group to where they died first, quoted for a shell."""
    words = ["leveret", "replay", *job.selection.snapshots]
    words += ["--vhost", glob.escape(group.vhost), "--queue", glob.escape(group.queue)]
    words += ["--death-reason", group.reason, "--death-queue", group.died_in]
    words += ["--death-exchange", group.exchange, "--to-original", "--reset-death"]
    words += ["--target", f"{job.target}/{quote(group.vhost, '')}"]
    return shlex.join(words)


# The command.


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``leveret dlq``."""
    arguments.add_selection(parser)
    parser.add_argument(
        "--target",
        metavar="URI",
        default=TARGET,
        help=f"broker in the replay commands, without vhost and password ({TARGET})",
    )
    add_engine(parser)


def run(options: argparse.Namespace, progress: Progress) -> JobReport:
    """Carry out ``leveret dlq``."""
    job = Dlq(arguments.selection_of(options), options.target.rstrip("/"))
    return in_engine(options, lambda spark: dlq(job, spark=spark, progress=progress))
