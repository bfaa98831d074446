"""Stored messages in Spark, and without it: ``format("leveret")`` and record batches of Arrow.

``register(spark)`` adds the data source to a session, ``session(**settings)`` makes one with it, and
``read_snapshot(spark, *paths, **options)`` reads a snapshot; each is loaded when it is first used. ``scan`` reads
without Spark. Needs the extra ``spark``: ``pip install 'leveret[spark]'``; the broker never imports it.
May import msg_store, metadata, amqp and core.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leveret.spark.spark_session import read_snapshot, register, session

__all__ = ["read_snapshot", "register", "session"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module("leveret.spark.spark_session"), name)
    return found
