"""Stored messages in Spark, and without it: ``format("leveret")`` and record batches of Arrow.

``register(spark)`` adds the data source to a session, ``session(**settings)`` makes one with it, and
``read_snapshot(spark, *paths, **options)`` reads a snapshot; ``replay`` and the other jobs work with and without a
session. Each is loaded when it is first used. ``scan`` reads without Spark. Needs the extra ``spark``:
``pip install 'leveret[spark]'``; the broker never imports it.
May import msg_store, metadata, amqp and core.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leveret.spark.jobs.audit import audit
    from leveret.spark.jobs.dlq import Dlq, dlq
    from leveret.spark.jobs.export import Export, export
    from leveret.spark.jobs.ingest import Import, ingest
    from leveret.spark.jobs.rebuild import rebuild
    from leveret.spark.jobs.replay import Replay, replay
    from leveret.spark.jobs.rewrite import Rewrite
    from leveret.spark.jobs.selection import Selection
    from leveret.spark.spark_session import read_snapshot, register, session

__all__ = [
    "Dlq",
    "Export",
    "Import",
    "Replay",
    "Rewrite",
    "Selection",
    "audit",
    "dlq",
    "export",
    "ingest",
    "read_snapshot",
    "rebuild",
    "register",
    "replay",
    "session",
]

_MODULES = {
    "Dlq": "jobs.dlq",
    "Export": "jobs.export",
    "Import": "jobs.ingest",
    "Replay": "jobs.replay",
    "Rewrite": "jobs.rewrite",
    "Selection": "jobs.selection",
    "audit": "jobs.audit",
    "dlq": "jobs.dlq",
    "export": "jobs.export",
    "ingest": "jobs.ingest",
    "read_snapshot": "spark_session",
    "rebuild": "jobs.rebuild",
    "register": "spark_session",
    "replay": "jobs.replay",
    "session": "spark_session",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"leveret.spark.{_MODULES[name]}")
    found = globals()[name] = getattr(module, name)
    return found
