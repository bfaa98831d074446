"""Where the messages of a replay would go, for dry runs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from leveret.spark.jobs.destinations import Destinations
from leveret.spark.jobs.progress import Progress
from leveret.spark.jobs.replay.plan import Replay
from leveret.spark.jobs.replay.rewrite import Rewrite
from leveret.spark.jobs.running import aggregated

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
