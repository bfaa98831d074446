"""The statistics of a store, for the status of a node."""

from __future__ import annotations

from dataclasses import dataclass

from leveret.msg_store.transient.store import TransientStats


@dataclass(frozen=True, slots=True)
class StoreStats:
    """The statistics of one store."""

    shortage: str  # what writing waits for, as ``ENOSPC``; nothing if it does not wait
    damage: list[str]  # found by the last start, a line each
    messages: int  # rows of all queues that are durable
    segments: int  # how many there are
    segment_bytes: int  # the length of all segments
    live_bytes: int  # bytes of live messages in segments
    garbage_bytes: int  # the rest of the segments
    journal_bytes: int  # the journal since the last rotation
    unindexed_rows: int  # changes that are not in the index yet
    frozen_memtables: int  # not in the index yet
    checkpoint_age_s: float | None  # since when; None if there was none in this start
    ranges_leaving: int  # purges and deleted queues whose rows are being removed
    syncs: int  # of segments and journal
    sync_mean_s: float  # how long a sync of segments or journal took
    sync_longest_s: float
    contents_read: int  # messages read back
    contents_read_bytes: int  # their bodies
    contents_lost: int  # messages that could not be read, and were missed by a queue
    read_cache_bytes: int
    transients: TransientStats
    merges: int  # of segments, since the start, as all that follow
    merged_bytes: int  # bytes written by them
    removed: int  # segments unlinked
    removed_bytes: int  # the disk space of these
    archived_queues: int  # how many queues have a retention
    archive_segments: int  # segments that the archive keeps now
    archive_bytes: int  # the disk space of these that no queue needs
    archive_given_up_bytes: int  # of segments that were given up because the disk was short
