"""``leveret rebuild``: the indexes of stores, made from their segments alone, while no broker runs."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from leveret.msg_store.offline.rebuilding import preview, rebuild_in_place
from leveret.server.process import refuse_network
from leveret.server.store_tools.command import quiet
from leveret.server.store_tools.dirs import data_dir_of, find_stores, held, next_epoch
from leveret.server.store_tools.work import salvage_to
from leveret.spark.jobs.progress import Progress
from leveret.spark.jobs.rebuild import add_store, new_report
from leveret.spark.jobs.report import JobReport


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``leveret rebuild``."""
    parser.add_argument(
        "dir",
        type=Path,
        metavar="DIR",
        help="a data directory that no broker uses, or the folder of one store",
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--to", type=Path, metavar="DIR2", help="make new stores there, and leave DIR as it is"
    )
    where.add_argument("--dry-run", action="store_true", help="only count what would come back")


def run(options: argparse.Namespace, progress: Progress) -> JobReport:
    """Carry out ``leveret rebuild``: in place, into a new directory, or not at all."""
    with quiet():
        return _run(options, progress)


def _run(options: argparse.Namespace, progress: Progress) -> JobReport:
    is_in_place = options.to is None and not options.dry_run
    report = new_report(options.dry_run)
    data_dir = data_dir_of(options.dir)
    with held(data_dir, is_read_only=not is_in_place):
        if is_in_place:
            refuse_network(options.dir)
        for at in find_stores(options.dir).stores:
            found = preview(at.path, progress)
            row = add_store(report, at, found)
            if is_in_place:
                epoch = next_epoch(data_dir, found.epoch_seen)
                row["set_aside"] = rebuild_in_place(at.path, epoch, _now_ms)
    if options.to is not None:
        answer = salvage_to(options.dir, options.to, from_segments=True, progress=progress)
        report.details["target"] = answer["target"]
    return report.end()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
