"""Stored messages in Spark, and without it: ``format("leveret")`` and record batches of Arrow.

``register(spark)`` adds the data source to a session, ``session(**settings)`` makes one with it, and
``read_snapshot(spark, *paths, **options)`` reads a snapshot; ``replay`` and the other jobs work with and without a
session. Each is loaded when it is first used. ``scan`` reads without Spark. Needs the extra ``spark``:
``pip install 'leveret[spark]'``; the broker never imports it.
May import msg_store, metadata, client, amqp and core.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leveret.spark.jobs.audit import audit
    from leveret.spark.jobs.dead_letters.dlq import Dlq, dlq
    from leveret.spark.jobs.parquet.export import export
    from leveret.spark.jobs.parquet.export_plan import Export
    from leveret.spark.jobs.parquet.import_plan import Import
    from leveret.spark.jobs.parquet.ingest import ingest
    from leveret.spark.jobs.rebuild import rebuild
    from leveret.spark.jobs.replay.plan import Replay
    from leveret.spark.jobs.replay.replay import replay
    from leveret.spark.jobs.replay.rewrite import Rewrite
    from leveret.spark.jobs.selection import Selection
    from leveret.spark.jobs.stats.stats import Stats, stats
    from leveret.spark.spark_session import read_snapshot, register, session

__all__ = [
    "Dlq",
    "Export",
    "Import",
    "Replay",
    "Rewrite",
    "Selection",
    "Stats",
    "audit",
    "dlq",
    "export",
    "ingest",
    "read_snapshot",
    "rebuild",
    "register",
    "replay",
    "session",
    "stats",
]

_MODULES = {
    "Dlq": "jobs.dead_letters.dlq",
    "Export": "jobs.parquet.export_plan",
    "Import": "jobs.parquet.import_plan",
    "Replay": "jobs.replay.plan",
    "Rewrite": "jobs.replay.rewrite",
    "Selection": "jobs.selection",
    "Stats": "jobs.stats.stats",
    "audit": "jobs.audit",
    "dlq": "jobs.dead_letters.dlq",
    "export": "jobs.parquet.export",
    "ingest": "jobs.parquet.ingest",
    "read_snapshot": "spark_session",
    "rebuild": "jobs.rebuild",
    "register": "spark_session",
    "replay": "jobs.replay.replay",
    "session": "spark_session",
    "stats": "jobs.stats.stats",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"leveret.spark.{_MODULES[name]}")
    found = globals()[name] = getattr(module, name)
    return found
