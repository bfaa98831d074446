"""Partitions: which parts of which segments one task reads.

The bytes of segments that pruning cannot rule out are divided, in order, into equal partitions of at most
``partition_bytes``; a segment may be cut into ranges of bytes. A partition has everything a task needs and is pickled
to it; the task opens locators and segments only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from leveret.spark.scan.locators import (
    ACKED,
    NO_SEGMENT,
    READY,
    UNREFERENCED,
    SegmentFacts,
    StoreFacts,
    locator_path,
)
from leveret.spark.scan.manifest import Snapshot
from leveret.spark.scan.options import ReadOptions
from leveret.spark.scan.pruning import Names, Pruning, RowFilter

END: Final = 1 << 62  # behind all offsets
_STATES_OF: Final = {
    "messages": frozenset({READY}),
    "index": frozenset({READY}),
    "archive": frozenset({READY, ACKED}),
}


@dataclass(frozen=True, slots=True)
class StoreRef:
    """A store of a snapshot, as a task needs it.

    Attributes:
        path: the snapshot.
        folder: the store's in it.
        queues: names by number.
        rows: the rows that are wanted; None: all records.
    """

    path: str
    folder: str
    uuid: bytes
    vhost: str
    node: str
    queues: dict[int, str]
    rows: RowFilter | None

    @property
    def store_id(self) -> str:
        return self.uuid.hex()

    def segment_path(self, number: int) -> Path:
        return Path(self.path, self.folder, "rdq", f"{number:08x}.rdq")

    def locator_path(self, number: int) -> Path:
        return locator_path(Path(self.path), self.folder, number)


@dataclass(frozen=True, slots=True)
class Slice:
    """A range of offsets of a segment; a record belongs to the slice in which it begins.

    Attributes:
        size_bytes: of the segment in the snapshot; the file may be longer.
    """

    number: int
    size_bytes: int
    low: int = 0
    high: int = END


@dataclass(frozen=True, slots=True)
class Partition:
    """The work of one task: slices of stores, in order."""

    slices: tuple[tuple[StoreRef, Slice], ...]


@dataclass(frozen=True, slots=True)
class Located:
    """A snapshot with its locators."""

    snapshot: Snapshot
    stores: tuple[StoreFacts, ...]


def partitions(found: Sequence[Located], options: ReadOptions, pruning: Pruning) -> list[Partition]:
    """Return the partitions of a view that is read from segments or locators."""
    wanted = list(_wanted(found, options.view, pruning))
    total = sum(size_bytes for _, _, size_bytes in wanted)
    count = max(options.reading.min_partitions, -(-total // options.reading.partition_bytes))
    share = max(1, -(-total // count))  # equal shares: no task is left with a small rest
    made: list[Partition] = []
    slices: list[tuple[StoreRef, Slice]] = []
    room = share
    for store, facts, size_bytes in wanted:
        at = 0
        while at < size_bytes:
            end = min(size_bytes, at + room)
            slices.append((store, _slice(facts, at, end, size_bytes)))
            room -= end - at
            at = end
            if not room:
                made.append(Partition(tuple(slices)))
                slices, room = [], share
    if slices:
        made.append(Partition(tuple(slices)))
    return made


def _slice(facts: SegmentFacts, at: int, end: int, wanted_bytes: int) -> Slice:
    """Return the part of a segment that has its wanted bytes from ``at`` to ``end``, as if they lay evenly."""
    low = facts.size_bytes * at // wanted_bytes
    high = END if end == wanted_bytes else facts.size_bytes * end // wanted_bytes
    return Slice(facts.number, facts.size_bytes, low, high)


def _wanted(
    found: Sequence[Located], view: str, pruning: Pruning
) -> Iterator[tuple[StoreRef, SegmentFacts, int]]:
    """Yield the segments that must be read, and about how many of their bytes are wanted."""
    for located in found:
        for store in located.stores:
            rows = _rows_of(store, view, pruning)
            if rows is None:
                continue
            queues = {no: queue.name for queue in store.queues for no in queue.queue_nos}
            snapshot = located.snapshot
            ref = StoreRef(
                str(snapshot.path),
                store.folder,
                store.uuid,
                store.vhost,
                snapshot.node,
                queues,
                rows,
            )
            for facts in store.segments:
                if view == "records":
                    if facts.number != NO_SEGMENT:
                        yield ref, facts, facts.size_bytes
                elif count := rows.rows_in(facts):
                    share = count / max(1, sum(facts.rows.values()))
                    yield ref, facts, max(1, int(facts.size_bytes * share))


def _rows_of(store: StoreFacts, view: str, pruning: Pruning) -> RowFilter | None:
    if view == "records":
        if not pruning.wants_vhost(store.vhost):
            return None
        return RowFilter((), pruning.times_ms, (READY, ACKED, UNREFERENCED))
    if view == "archive":
        retained = frozenset(queue.name for queue in store.queues if queue.is_retained)
        pruning = pruning.and_names(queues=Names(retained))
    return pruning.of_store(store, _STATES_OF[view])
