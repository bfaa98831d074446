"""Publishing from this process: each part of the rows on a connection and a thread of its own, with one report.

The first publisher that fails stops the others at their next batch; each saves its ledger before it ends.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, Protocol

import pyarrow.compute as pc

from leveret.client.target import Target
from leveret.spark.publish import ledger
from leveret.spark.publish.errors import PublishError
from leveret.spark.publish.identity import Partition
from leveret.spark.publish.job import publish_partition
from leveret.spark.publish.options import WriteOptions
from leveret.spark.publish.report import Report, total

REPORT: Final = "report.json"  # in the ledger


class Part(Protocol):
    """Rows for one publisher."""

    def batches(self) -> Iterator[Any]:
        """Yield record batches with the columns of a sink."""


class _Stopped(Exception):  # noqa: N818 - not an error
    """Another publisher has failed."""


def publish(parts: Sequence[Part], options: WriteOptions, target: Target) -> Report:
    """Publish each part on a connection of its own; write the counts beside the ledger, if there is one.

    Raises:
        PublishError: of the publisher that failed first; its text ends with the counts of all.
        LeveretError: of reading a part.
    """
    reports = [Report() for _ in parts]
    try:
        _run(parts, options, target, reports)
    except PublishError as error:
        raise type(error)(f"{error} ({total(reports)})") from error
    finally:
        if options.ledger:
            ledger.replace(Path(options.ledger) / REPORT, {"of": "job"} | total(reports).as_dict())
    return total(reports)


def body_bytes(batch: Any) -> int:
    """Return the bytes of all bodies of a record batch."""
    return pc.sum(pc.binary_length(batch.column("body"))).as_py() or 0


def _run(
    parts: Sequence[Part], options: WriteOptions, target: Target, reports: list[Report]
) -> None:
    is_stopped = threading.Event()

    def batches(part: Part) -> Iterator[Any]:
        for batch in part.batches():
            if is_stopped.is_set():
                raise _Stopped
            yield batch

    def publish_one(number: int) -> None:
        rows, report = batches(parts[number]), reports[number]
        try:
            publish_partition(rows, options, target, Partition(number), report=report)
        except BaseException:
            is_stopped.set()
            raise

    if len(parts) == 1:
        publish_one(0)
        return
    with ThreadPoolExecutor(len(parts), "publisher") as pool:
        runs = [pool.submit(publish_one, number) for number in range(len(parts))]
        try:
            failed = [each.exception() for each in runs]
        except BaseException:  # such as Ctrl-C
            is_stopped.set()
            raise
    for error in failed:
        if error is not None and not isinstance(error, _Stopped):
            raise error
