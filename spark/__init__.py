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
    from leveret.spark.jobs.rebuild import rebuild
    from leveret.spark.jobs.replay import Replay, replay
    from leveret.spark.jobs.rewrite import Rewrite
    from leveret.spark.jobs.selection import Selection
    from leveret.spark.spark_session import read_snapshot, register, session

__all__ = [
    "Replay",
    "Rewrite",
    "Selection",
    "audit",
    "read_snapshot",
    "rebuild",
    "register",
    "replay",
    "session",
]

_MODULES = {
    "Replay": "jobs.replay",
    "Rewrite": "jobs.rewrite",
    "Selection": "jobs.selection",
    "audit": "jobs.audit",
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
