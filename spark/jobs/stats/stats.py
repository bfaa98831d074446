"""Statistics of stored messages: a report, and a page of HTML with plots."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from leveret.spark.jobs import arguments
from leveret.spark.jobs.engine_choice import LOCAL, SPARK, add_engine
from leveret.spark.jobs.matching import check_found, check_names
from leveret.spark.jobs.progress import Progress, silent
from leveret.spark.jobs.report import JobReport
from leveret.spark.jobs.running import aggregated, in_engine
from leveret.spark.jobs.selection import Selection
from leveret.spark.jobs.stats.message_counts import (
    COLUMNS,
    MINUTE_MS,
    MessageCounts,
    QueueCounts,
    highest_of,
)
from leveret.spark.jobs.stats.page import page
from leveret.spark.scan.manifest import local_path, read_manifest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOB: Final = "stats"
BARS_MAX: Final = 240
_QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
_GAPS: Final = _QUANTILES | {"max": 1.0}  # of the times between messages
_QUEUES_SHOWN: Final = 1_000
_KEYS_SHOWN: Final = 100
_AGES_MIN: Final = {
    "under 1 min": 1, "under 10 min": 10, "under 1 h": 60, "under 6 h": 360, "under 1 day": 1_440,
    "under 7 days": 10_080,
}  # fmt: skip
_OLDER: Final = "7 days and more"


@dataclass(frozen=True, slots=True)
class Stats:
    """Statistics of the messages that ``selection`` has."""

    selection: Selection


def stats(
    job: Stats, *, spark: SparkSession | None = None, progress: Progress = silent
) -> JobReport:
    """Count stored messages by queue, routing key, size, time and reason of death.

    Ages are relative to the time of the snapshot (of several, the latest).

    Args:
        job: which messages.
        spark: a session to run in; None: this process.
        progress: gets the number of messages read, or of tasks that ended.

    Returns:
        A report whose ``details`` are ``queues`` and ``keys`` (the largest first), ``rates``, ``sizes``, ``ages`` and
        ``reasons``; ``stats_page.page`` makes HTML of it.

    Raises:
        OptionError: the selection cannot be accepted.
        NothingSelected: a filter selects nothing.
        StoreError: a snapshot is damaged.
    """
    check_names(job.selection)
    report = JobReport(JOB, LOCAL if spark is None else SPARK)
    snapshots = [read_manifest(local_path(path)) for path in job.selection.snapshots]
    at_ms = max(each.created_ms for each in snapshots)
    counts = aggregated(MessageCounts, job.selection, COLUMNS, spark, progress)
    whole = counts.whole
    check_found(job.selection, whole.messages)
    report.counts |= {
        "messages": whole.messages,
        "body_bytes": whole.body_bytes,
        "queues": len(counts.queues),
        "persistent": whole.persistent,
        "with_ttl": whole.with_ttl,
        "dead_letters": counts.reasons.total(),
        "oldest_age_s": _age_s(whole, at_ms),
    }
    report.details["snapshots"] = [
        {"name": each.name, "created": _iso(each.created_ms), "node": each.node}
        for each in snapshots
    ]
    report.details["queues"] = _queues(counts, at_ms)
    report.details["keys"] = _keys(counts)
    report.details["rates"] = _rates(counts.minutes)
    report.details["sizes"] = _sizes(whole)
    report.details["ages"] = _ages(counts.minutes, at_ms)
    report.details["reasons"] = dict(counts.reasons.most_common())
    return report.end()


def _queues(counts: MessageCounts, at_ms: int) -> list[dict[str, Any]]:
    by_size = sorted(counts.queues.items(), key=lambda item: (-item[1].messages, item[0]))
    return [
        {"vhost": vhost, "queue": queue, "messages": found.messages, "body_bytes": found.body_bytes}
        | {f"size_{name}": found.size_at(share) for name, share in _QUANTILES.items()}
        | {
            "size_max": found.size_max,
            "per_minute": round(_per_minute(found), 2),
        }
        | {f"gap_ms_{name}": found.arrivals.gap_at(share) for name, share in _GAPS.items()}
        | {
            "oldest_age_s": _age_s(found, at_ms),
            "persistent_share": round(found.persistent / found.messages, 4),
            "ttl_share": round(found.with_ttl / found.messages, 4),
        }
        for (vhost, queue), found in by_size[:_QUEUES_SHOWN]
    ]


def _per_minute(found: QueueCounts) -> float:
    """Return the mean rate between the oldest and the newest message."""
    return found.messages / max(1.0, (found.last_ms - found.first_ms) / MINUTE_MS)


def _keys(counts: MessageCounts) -> list[dict[str, Any]]:
    by_size = sorted(counts.keys.items(), key=lambda item: (-item[1][0], item[0]))
    names = ("vhost", "queue", "routing_key", "messages", "body_bytes")
    return [
        dict(zip(names, (*place, *found), strict=True)) for place, found in by_size[:_KEYS_SHOWN]
    ]


def _rates(minutes: Counter[int]) -> dict[str, Any]:
    """Return messages per minute for at most ``BARS_MAX`` equal spans of time."""
    if not minutes:
        return {"span_min": 1, "start": None, "per_minute": []}
    first, last = min(minutes), max(minutes)
    span = -(-(last - first + 1) // BARS_MAX)
    bars = [0] * -(-(last - first + 1) // span)
    for minute, count in minutes.items():
        bars[(minute - first) // span] += count
    return {
        "span_min": span,
        "start": _iso(first * MINUTE_MS),
        "per_minute": [round(count / span, 2) for count in bars],
    }


def _sizes(whole: QueueCounts) -> dict[str, int]:
    """Return messages by powers of two: ``"1024"`` counts messages of 512 to 1,023 bytes; the list has no gaps."""
    found: Counter[int] = Counter()
    for bucket, count in whole.sizes.items():
        found[highest_of(bucket).bit_length()] += count
    bounds: Iterable[int] = range(min(found), max(found) + 1) if found else ()
    return {str(1 << bits): found[bits] for bits in bounds}


def _ages(minutes: Counter[int], at_ms: int) -> dict[str, int]:
    found = dict.fromkeys([*_AGES_MIN, _OLDER], 0)
    for minute, count in minutes.items():
        age_min = at_ms // MINUTE_MS - minute
        name = next((name for name, limit in _AGES_MIN.items() if age_min < limit), _OLDER)
        found[name] += count
    return found


def _age_s(found: QueueCounts, at_ms: int) -> int:
    return max(0, at_ms - found.first_ms) // 1000 if found.first_ms else 0


def _iso(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# The command.


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``leveret stats``."""
    arguments.add_selection(parser)
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page with plots there")
    add_engine(parser)


def run(options: argparse.Namespace, progress: Progress) -> JobReport:
    """Carry out ``leveret stats``."""
    job = Stats(arguments.selection_of(options))
    if options.html is not None:
        options.html.touch()  # a page that cannot be written is noticed before the work
    report = in_engine(options, lambda spark: stats(job, spark=spark, progress=progress))
    if options.html is not None:
        options.html.write_text(page(report), "utf-8")
    return report
