"""The threads of a store, or steps in tests, and its constants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from leveret.core.batching import BALANCED, FlushWindow
from leveret.core.gil_yielding import GilYielding
from leveret.msg_store.checkpoint.checkpoint import CheckpointLimits
from leveret.msg_store.gc.choose import ChoiceLimits
from leveret.msg_store.gc.driver import Pace
from leveret.msg_store.reading import read_cache
from leveret.msg_store.threads.worker import Loop, MakeWorker, ThreadWorker
from leveret.msg_store.threads.writers import SyncTimes, Writers, WriterThreads
from leveret.msg_store.transient.paging_core import Limits as TransientLimits
from leveret.msg_store.wal.backpressure import BackpressureLimits


@dataclass(frozen=True, slots=True)
class Drivers:
    """Makers of the parts that block; ``make_worker`` serves reads, the index, the collector, transients, the end."""

    make_writers: Callable[[Loop, SyncTimes], Writers] = WriterThreads  # of segments and journal
    make_worker: MakeWorker = ThreadWorker


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """The constants of a store."""

    room_bytes: int = read_cache.ROOM_BYTES  # for contents that have been read and not taken
    checkpoint: CheckpointLimits = field(default_factory=CheckpointLimits)
    choice: ChoiceLimits = field(default_factory=ChoiceLimits)  # when segments are merged
    pace: Pace = field(default_factory=Pace)  # of the collector
    transient: TransientLimits = field(default_factory=TransientLimits)
    backpressure: BackpressureLimits = field(default_factory=BackpressureLimits)
    flushes: FlushWindow | None = BALANCED.flushes  # how long they wait for acks


THREADS: Final = Drivers()
DEFAULT_LIMITS: Final = StoreLimits()


def threads(gil_yielding: GilYielding) -> Drivers:
    """Return threads that come to run beside the loop of ``gil_yielding``, which may never rest."""
    return Drivers(
        partial(WriterThreads, gil_yielding=gil_yielding),
        partial(ThreadWorker, gil_yielding=gil_yielding),
    )
