"""``rebuild``: the index of a store, made from its segments alone.

This function makes new stores and never changes one; ``leveret rebuild`` also works in place, while no broker runs. The
segments are read by this process: writing the new index takes most of the time, and one process can write it.
"""

from __future__ import annotations

import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from leveret.msg_store.offline.audit import audited
from leveret.msg_store.offline.rebuilding import NOT_ASKED, Rebuilt, preview
from leveret.msg_store.offline.salvage import salvage
from leveret.msg_store.offline.store_at import StoreAt
from leveret.spark.errors import OptionError
from leveret.spark.jobs.audit import stores_at
from leveret.spark.jobs.progress import Progress, silent
from leveret.spark.jobs.report import JobReport

JOB: Final = "rebuild"
COUNTS: Final = ("messages", "entries", "came_back", "gone")


def rebuild(
    path: Path | str,
    to: Path | str | None = None,
    *,
    is_dry_run: bool = False,
    progress: Progress = silent,
) -> JobReport:
    """Make new stores of the segments of a snapshot, or of one store that no process has open.

    Args:
        path: of the snapshot, or the folder of the store. It is not changed.
        to: a new folder for the store; of a snapshot, for its stores by their names. A dry run has none.
        is_dry_run: only count.
        progress: gets the work done so far.

    Returns:
        How many ``messages`` and ``entries`` of queues there are; how many entries ``came_back``, whose messages were
        acked and not yet collected; and how many are ``gone``, because no segment has their messages.

    Raises:
        NotASnapshot: the path is neither.
        OptionError: there is no new folder, or it is there already.
        StoreError: a process has the store open, or it cannot be read at all.
    """
    stores = stores_at(Path(path).absolute())
    report = new_report(is_dry_run)
    target = None if to is None else Path(to).absolute()
    if (target is None) != is_dry_run:
        raise OptionError("a rebuild goes to a new folder, a dry run to none")
    if target is not None and target.exists():
        raise OptionError(f"{target} is there already; name a new folder")
    for store in stores:
        add_store(report, store, preview(store.path, progress))
        if target is not None:
            is_one = not store.is_snapshot
            _write(store.path, target if is_one else target / store.path.name, progress)
    return report.end()


def _write(path: Path, target: Path, progress: Progress) -> None:
    target.mkdir(mode=0o700, parents=True)
    with audited(path, progress, NOT_ASKED) as found:
        salvage(found, target, os.urandom(16), time.time_ns() // 1_000_000, progress)


def new_report(is_dry_run: bool) -> JobReport:
    """Return an empty report."""
    report = JobReport(JOB, is_dry_run=is_dry_run)
    report.counts = dict.fromkeys(COUNTS, 0)
    report.details = {"stores": []}
    return report


def add_store(report: JobReport, store: StoreAt, found: Rebuilt) -> dict[str, Any]:
    """Add what a rebuild makes of a store; return its row in the report."""
    queues: list[dict[str, Any]] = [
        {"queue": store.queue(number), "queue_no": number} | asdict(queue)
        for number, queue in found.queues.items()
        if queue.entries or queue.gone
    ]
    entries = sum(each["entries"] for each in queues)
    row = store.row | {"messages": found.messages, "entries": entries}
    report.count("messages", row["messages"])
    report.count("entries", row["entries"])
    if found.index_damage:
        row |= {"came_back": None, "gone": None}
        report.warn(
            f"{store.path}: the index cannot be used ({found.index_damage}), so it is unknown how many of the entries "
            "are of messages that were acked and not yet collected: those come back too"
        )
    else:
        for name in ("came_back", "gone"):
            row[name] = sum(each[name] for each in queues)
            report.count(name, row[name])
        if row["came_back"]:
            report.warn(
                f"{store.path}: {row['came_back']} entries come back of messages that were acked and not yet collected"
            )
        if row["gone"]:
            report.is_complete = False
            report.warn(
                f"{store.path}: {row['gone']} entries of the index are missing, because no segment has their messages"
            )
    report.warn("the order of a rebuilt queue is that of routing, and expiries are forgotten")
    row["queues"] = queues
    report.details["stores"].append(row)
    return row
