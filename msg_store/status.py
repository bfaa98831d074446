"""The figures of a store, for the status of a node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from leveret.msg_store.gc.collector import Collected
from leveret.msg_store.reading.contents import ContentReader
from leveret.msg_store.threads.writers import SyncTimes
from leveret.msg_store.transient.store import Figures, TransientStore
from leveret.msg_store.wal.group_commit import GroupCommit


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """The figures of one store.

    Attributes:
        sync_mean_s, sync_longest_s: their duration.
    """

    messages: int  # rows of all queues that are durable
    segments: int  # how many files of messages there are
    segment_bytes: int  # their length
    live_bytes: int  # those of live messages
    garbage_bytes: int  # the rest
    journal_bytes: int  # the journal since the last rotation
    unindexed_rows: int  # changes that are not in the index yet
    waiting_generations: int  # frozen memtables
    checkpoint_age_s: float | None  # since when; None if there was none in this start
    ranges_leaving: int  # purges and deleted queues whose rows are being removed
    syncs: int  # of segments and journal
    sync_mean_s: float
    sync_longest_s: float
    contents_read: int  # messages read back
    contents_read_bytes: int  # their bodies
    contents_lost: int  # messages that could not be read, and were missed by a queue
    arrived_bytes: int  # the size of the read cache
    transients: Figures  # figures of paged-out messages
    merges: int  # of segments, since the start, as all that follow
    merged_bytes: int  # bytes written by them
    removed: int  # segments unlinked
    removed_bytes: int  # the disk space of these


class CheckpointAge:
    """When the index was written last; listens to the points of the thread that writes it."""

    __slots__ = ("_at_s", "_monotonic_s")

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s
        self._at_s: float | None = None

    def reached(self, point: str) -> None:
        if point == "committed":
            self._at_s = self._monotonic_s()

    def age_s(self) -> float | None:
        """Return how long ago it was; None if never."""
        return None if self._at_s is None else self._monotonic_s() - self._at_s


def status_of(
    core: GroupCommit,
    contents: ContentReader,
    transients: TransientStore,
    syncs: SyncTimes,
    age: CheckpointAge,
    arrived_bytes: int,
    collected: Collected,
) -> StoreStatus:
    """Return the figures; goes over segments and queues, so not for every message."""
    memtables = core.memtables
    files = list(memtables.files.values())
    size_bytes = sum(state.size_bytes for state in files)
    live_bytes = sum(state.valid_bytes for state in files)
    return StoreStatus(
        messages=sum(terms.messages for terms in memtables.terms.values()),
        segments=len(files),
        segment_bytes=size_bytes,
        live_bytes=live_bytes,
        garbage_bytes=size_bytes - live_bytes,
        journal_bytes=core.journal_bytes,
        unindexed_rows=sum(each.weight for each in (memtables.active, *memtables.frozen)),
        waiting_generations=len(memtables.frozen),
        checkpoint_age_s=age.age_s(),
        ranges_leaving=len(core.range_acks),
        syncs=syncs.count,
        sync_mean_s=syncs.total_s / syncs.count if syncs.count else 0.0,
        sync_longest_s=syncs.longest_s,
        contents_read=contents.reads,
        contents_read_bytes=contents.read_bytes,
        contents_lost=contents.losses,
        arrived_bytes=arrived_bytes,
        transients=transients.figures(),
        merges=collected.merges,
        merged_bytes=collected.copied_bytes,
        removed=collected.removed,
        removed_bytes=collected.removed_bytes,
    )
