"""``leveret audit``: every defect of a snapshot, a data directory or a single store, by class."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from leveret.msg_store.offline.store_at import StoreAt
from leveret.server.store_tools.command import quiet
from leveret.server.store_tools.dirs import data_dir_of, find_stores, held
from leveret.spark.jobs.audit import SHOWN_MAX, audit, is_in_snapshot, stores_at
from leveret.spark.jobs.engine_choice import LOCAL, EngineChoice, add_engine, engine_of
from leveret.spark.jobs.progress import Progress
from leveret.spark.jobs.report import JobReport


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``leveret audit``."""
    parser.add_argument(
        "path",
        type=Path,
        metavar="PATH",
        help="a snapshot, a data directory that no broker uses, or the folder of one store",
    )
    parser.add_argument(
        "--repair-plan",
        type=Path,
        metavar="FILE",
        help="a new file, for leveret store repair --plan FILE",
    )
    parser.add_argument(
        "--show",
        type=_count,
        default=SHOWN_MAX,
        metavar="N",
        help=f"name at most so many defects; all are counted ({SHOWN_MAX})",
    )
    add_engine(parser)


def _count(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{value} is below 0")
    return value


def run(options: argparse.Namespace, progress: Progress) -> JobReport:
    """Carry out ``leveret audit``."""
    choice = engine_of(options)
    with quiet(), _stores(options.path.absolute()) as stores, _session(choice) as spark:
        return audit(
            stores,
            spark=spark,
            repair_plan=options.repair_plan,
            shown_max=options.show,
            progress=progress,
        )


@contextmanager
def _stores(path: Path) -> Iterator[list[StoreAt]]:
    """Yield the stores of a path; brokers are kept out of a data directory meanwhile."""
    if is_in_snapshot(path):
        yield stores_at(path)
        return
    with held(data_dir_of(path), is_read_only=True):
        yield find_stores(path).stores


@contextmanager
def _session(choice: EngineChoice) -> Iterator[Any]:
    """Yield a session of Spark; None for the local engine."""
    if choice.engine == LOCAL:
        yield None
        return
    from leveret.spark.jobs.engine import spark_of  # noqa: PLC0415 - loads Spark

    with spark_of(choice) as spark:
        yield spark
