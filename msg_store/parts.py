"""The parts of a running store: how they are put together, and in which order they end.

Readers and the collector are closed first, then the threads of the index, which close it, then the folder
with its lock. The store can be opened again only after that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from leveret.msg_store.checkpoint.checkpoint import Checkpointer
from leveret.msg_store.checkpoint.driver import CheckpointDriver
from leveret.msg_store.checkpoint.snapshot import Snapshot, SnapshotJob
from leveret.msg_store.drivers import Drivers, StoreLimits
from leveret.msg_store.format.pins import Pins
from leveret.msg_store.format.rows import IndexRow
from leveret.msg_store.gc.collector import Collector
from leveret.msg_store.gc.driver import CollectorDriver
from leveret.msg_store.reading.contents import ContentReader
from leveret.msg_store.reading.read_cache import ReadCache
from leveret.msg_store.reading.rows import ReadThread, RowReader
from leveret.msg_store.reading.segments import SegmentReader
from leveret.msg_store.recovery.recovery import Opened
from leveret.msg_store.status import StoreStatus
from leveret.msg_store.threads.worker import Loop, as_steps
from leveret.msg_store.threads.writers import SyncTimes
from leveret.msg_store.transient.store import FOLDER as TRANSIENT_FOLDER
from leveret.msg_store.transient.store import OnCredit, OnLost, TransientStore
from leveret.msg_store.wal.driver import Deliver, FlushDriver


class Listeners(NamedTuple):
    """Callbacks of the parts."""

    deliver: Deliver  # reports of group commit
    failed: Callable[[Exception], None]  # an error after which the store cannot go on
    on_credit: OnCredit  # of the transient store
    on_lost: OnLost  # of the transient store
    progressed: Callable[[], None]  # a flush or a checkpoint has ended, or met a full disk


class StoreParts:
    """All parts, made and running. Ended with ``flush`` and ``write_index``, or with ``kill``."""

    def __init__(
        self,
        opened: Opened,
        loop: Loop,
        monotonic_s: Callable[[], float],
        listeners: Listeners,
        drivers: Drivers,
        limits: StoreLimits,
    ) -> None:
        self.core = core = opened.core
        self.resident = core.resident  # for readers, as the three that follow
        self.places = core.memtables.places
        self.learn = core.memtables.learn
        self.read_view = core.memtables.read_view
        self.read_cache = ReadCache(limits.room_bytes)
        self.pins = Pins()
        self._opened = opened
        self._loop = loop
        self._make_worker = drivers.make_worker
        self._syncs = SyncTimes(monotonic_s)
        self._monotonic_s = monotonic_s
        self._committed_at_s: float | None = None  # when the index was written last
        self.transients = _transient_store(opened, loop, listeners, drivers, limits)  # may refuse
        self._make_readers(loop, listeners, drivers)
        self._flusher = FlushDriver(
            core,
            opened.rdq_log,
            opened.journal_log,
            loop,
            listeners.deliver,
            self._syncs,
            drivers.make_writers,
            listeners.progressed,
        )
        self._checkpointer = Checkpointer(core, opened.index_location, limits.checkpoint)
        self._index_threads = CheckpointDriver(
            core,
            self._checkpointer,
            opened.recovered.index,
            opened.folder,
            opened.reserve,
            loop,
            listeners.deliver,
            self._checkpoint_reached,
            drivers.make_worker,
            listeners.progressed,
        )
        self._make_collector(loop, listeners, drivers, limits)

    @property
    def has_residents(self) -> bool:
        """Some messages are in RAM because they are not on disk yet; for readers, as ``resident``."""
        return self.core.has_residents

    def _make_readers(self, loop: Loop, listeners: Listeners, drivers: Drivers) -> None:
        index, files = self._opened.recovered.index, SegmentReader(self._opened.folder)
        worker = drivers.make_worker(loop, "leveret-read", files.close)
        self.reader = ReadThread(worker, listeners.failed)
        self.contents = ContentReader(self, files, index, self.reader, loop, self.read_cache)
        self.rows = RowReader(self, index, self.reader)

    def _make_collector(
        self, loop: Loop, listeners: Listeners, drivers: Drivers, limits: StoreLimits
    ) -> None:
        opened = self._opened
        self._collector = Collector(
            opened.folder,
            self.core,
            self.core.memtables,
            opened.recovered.index,
            self.pins,
            opened.now_ms,
            self._segments_removed,
            self._checkpointer.request,
            limits.choice,
        )
        self._collecting = CollectorDriver(
            self._collector,
            self.core,
            loop,
            listeners.failed,
            make_worker=drivers.make_worker,
            pace=limits.pace,
        )
        self.pins.freed = self._collecting.wake

    def _checkpoint_reached(self, point: str) -> None:
        """Note a point of a checkpoint, on its thread."""
        if point == "committed":
            self._committed_at_s = self._monotonic_s()

    def _segments_removed(self, file_nos: Iterable[int]) -> None:
        for file_no in file_nos:
            self.contents.segment_removed(file_no)

    def unwritten(self, queue_no: int, low: int) -> tuple[list[IndexRow], Collection[int]]:
        """Return rows and acks of a queue that are not durable yet; for ``RowReader``."""
        return self.core.unwritten_rows(queue_no), self.core.acked_meanwhile(queue_no, low)

    @property
    def is_full(self) -> bool:
        """The disk had no room for the last flush, or for the last checkpoint."""
        return not (self.core.has_room and self._checkpointer.has_room)

    def snapshot(self, target: Path, done: Callable[[Exception | None], None]) -> None:
        """Make a draft of a snapshot; see ``MsgStore.snapshot``."""
        self._checkpointer.begin_snapshot(Snapshot(SnapshotJob(target), self.pins, done))

    def status(self) -> StoreStatus:
        """Return the figures of all parts; goes over segments and queues, so not for every message."""
        core, memtables, contents = self.core, self.core.memtables, self.contents
        syncs, collected, committed_at_s = (
            self._syncs,
            self._collector.collected,
            self._committed_at_s,
        )
        files = list(memtables.files.values())
        size_bytes = sum(state.size_bytes for state in files)
        live_bytes = sum(state.valid_bytes for state in files)
        age_s = None if committed_at_s is None else self._monotonic_s() - committed_at_s
        return StoreStatus(
            messages=sum(terms.messages for terms in memtables.terms.values()),
            segments=len(files),
            segment_bytes=size_bytes,
            live_bytes=live_bytes,
            garbage_bytes=size_bytes - live_bytes,
            journal_bytes=core.journal_bytes,
            unindexed_rows=sum(each.weight for each in (memtables.active, *memtables.frozen)),
            waiting_generations=len(memtables.frozen),
            checkpoint_age_s=age_s,
            ranges_leaving=len(core.range_acks),
            syncs=syncs.count,
            sync_mean_s=syncs.total_s / syncs.count if syncs.count else 0.0,
            sync_longest_s=syncs.longest_s,
            contents_read=contents.reads,
            contents_read_bytes=contents.read_bytes,
            contents_lost=contents.losses,
            arrived_bytes=self.read_cache.size_bytes,
            transients=self.transients.figures(),
            merges=collected.merges,
            merged_bytes=collected.copied_bytes,
            removed=collected.removed,
            removed_bytes=collected.removed_bytes,
        )

    # End.

    def flush(self, then: Callable[[], None]) -> None:
        """Write all that is pending, end all but the index's threads, and call ``then``."""
        self._collecting.close()  # or it may move something behind the last flush

        def flushed() -> None:
            self._close_readers()
            then()

        self._flusher.stop(flushed)

    def write_index(self, then: Callable[[], None]) -> None:
        """After ``flush``: make a checkpoint, end, and call ``then``."""

        def written() -> None:
            self._empty()
            self._opened.folder.close()
            then()

        self._index_threads.stop(written)

    def kill(self, then: Callable[[], None]) -> None:
        """End now, and call ``then`` when all system calls under way have returned.

        A disk that hangs delays ``then``, and nothing else.
        """
        for part in (self._flusher, self._collecting, self.reader, self.transients):
            part.end()
        self._index_threads.end()
        self._empty()
        worker = self._make_worker(self._loop, "leveret-end")

        def closed(_: None, error: Exception | None) -> None:
            if error is not None:
                raise error
            self._index_threads.closed()
            then()

        worker.submit(partial(as_steps, self._close_all), closed)
        worker.end()

    def _close_all(self) -> None:
        self._flusher.close()
        self._close_readers()
        self._index_threads.close()
        self._opened.folder.close()

    def _close_readers(self) -> None:
        self._collecting.close()
        self.reader.close()
        self.transients.close()

    def _empty(self) -> None:
        self.read_cache.drop(list(self.read_cache.contents))


def _transient_store(
    opened: Opened, loop: Loop, listeners: Listeners, drivers: Drivers, limits: StoreLimits
) -> TransientStore:
    return TransientStore(
        opened.folder.files,
        opened.folder.path / TRANSIENT_FOLDER,
        opened.identity,
        opened.reserve,
        loop,
        opened.now_ms,
        listeners.on_credit,
        listeners.on_lost,
        listeners.failed,
        limits.transient,
        drivers.make_worker,
        drivers.transient_index,
    )
