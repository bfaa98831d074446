"""MsgStore: the message store of one vhost, with one interface for all its parts.

::

    channels --write--> MsgStore <--clients-- queues (queue_backing.StoredIndex)
                           |
       GroupCommit + FlushDriver        writing: segments, journal, confirms
       Memtables + Checkpointer         durable rows and places: RAM above the index
       RowReader, ContentReader          reading back
       Collector, TransientStore         room on the disk; paged-out transients

``recovery.recovery.open_store`` locks and recovers the store; it blocks, in any thread. ``MsgStore`` takes
over on the loop. Reports of group commit are distributed to the queues' clients.

A store that has **failed** reports it once and takes no work any more: its owner ends it (``kill``) and
opens it again. An index that is found damaged is a failure as well; the next start rebuilds it.

At the end a thread of its own waits for the others and closes their files: readers and the collector first,
then the index, then the folder with its lock. The loop waits for none of them, for each may be in a system call
on a disk that hangs. A store that is stopped in order is ended like a killed one, after its last
write. It can be opened again only when its files are closed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

from leveret.core.errors import StoreError
from leveret.core.freeing import free_in_slices
from leveret.core.log.loggers import logger
from leveret.core.message import Message
from leveret.core.system.shortage import ShortageLog, reason_of
from leveret.msg_store.archive.archive import Archived, Position, Retention
from leveret.msg_store.archive_writer import ArchiveWriter
from leveret.msg_store.checkpoint.checkpoint import Checkpointer
from leveret.msg_store.checkpoint.driver import CheckpointDriver
from leveret.msg_store.checkpoint.snapshot import ArchiveAtCut, Snapshot
from leveret.msg_store.client import CleanTerms, QueueClient
from leveret.msg_store.delivery_counts import DeliveryCountLog
from leveret.msg_store.drivers import DEFAULT_LIMITS, THREADS, Drivers, StoreLimits
from leveret.msg_store.end_marks import EndMarks
from leveret.msg_store.format.errors import StoreFailed
from leveret.msg_store.format.journal_frames import DurablePosition
from leveret.msg_store.format.pins import Pins
from leveret.msg_store.format.record import QueueNos
from leveret.msg_store.format.rows import IndexDamaged
from leveret.msg_store.gc.collector import Collector
from leveret.msg_store.gc.driver import CollectorDriver
from leveret.msg_store.producers import QueueProducers
from leveret.msg_store.reading.contents import ContentReader
from leveret.msg_store.reading.read_cache import ReadCache
from leveret.msg_store.reading.rows import ReadThread, RowReader
from leveret.msg_store.reading.segments import SegmentReader
from leveret.msg_store.recovery.recovery import Opened
from leveret.msg_store.stats import StoreStats
from leveret.msg_store.threads.worker import Loop, MakeWorker, Reached, Worker, as_steps
from leveret.msg_store.threads.writers import SyncTimes, Writers
from leveret.msg_store.transient.store import FOLDER as TRANSIENT_FOLDER
from leveret.msg_store.transient.store import TransientStore
from leveret.msg_store.wal.backpressure import Backpressure
from leveret.msg_store.wal.driver import FlushDriver
from leveret.msg_store.wal.group_commit import Report
from leveret.msg_store.wal.pending import SeqRun

log = logger(__name__)

END_RETRY_S: Final = 1.0


class MsgStore:
    """One vhost's store. All methods are for the loop.

    Args:
        opened: the recovered store; taken over.
        monotonic_s: for statistics.
        failed: gets the error after which the store is of no use, once.
        shortage_changed: called when ``is_short`` has changed.

    Attributes:
        is_short: the disk has no room, or the machine no descriptors or memory (``core/system/shortage.py``); publishes
            are nacked and stay pending until it has.

    Raises:
        OSError: no descriptor, or no thread, is left; ``opened`` has been closed.
    """

    def __init__(
        self,
        opened: Opened,
        loop: Loop,
        monotonic_s: Callable[[], float],
        failed: Callable[[Exception], None],
        drivers: Drivers = THREADS,
        limits: StoreLimits = DEFAULT_LIMITS,
        shortage_changed: Callable[[], None] | None = None,
    ) -> None:
        with ExitStack() as made:  # an error ends the parts made so far, the last one first
            made.callback(opened.close)
            self.core = opened.core  # group commit
            self.memtables = opened.core.memtables
            self._opened = opened
            self._loop = loop
            self._failed = failed
            self.awaited_below = 0  # confirms are awaited of messages with lower numbers, if of any
            self._clients: dict[int, QueueClient] = {}
            self._producers = opened.recovered.producers  # as issued
            self._unopened = {  # ended cleanly, and not opened in this start
                no: CleanTerms(terms.next_seq, terms.next_deliver)
                for no, terms in opened.recovered.queues.items()
                if terms.is_clean
            }
            self._has_failed = self._is_closed = self.is_short = False
            self._shortage_changed = shortage_changed
            self._writing = ShortageLog("writing", opened.folder.path)
            self._waiting: list[Callable[[], None]] | None = []  # for the end; None after it
            self._reports = 0
            self._make_worker = drivers.make_worker
            self._syncs = SyncTimes(monotonic_s)
            self._monotonic_s = monotonic_s
            self._committed_at_s: float | None = None  # when the index was written last
            self.backpressure = Backpressure(opened.core, limits.backpressure)
            self.read_cache = ReadCache(limits.room_bytes)  # contents that were read and not taken
            self.pins = Pins()  # segments that must stay, for snapshots
            workers = _Workers(drivers.make_worker)
            made.callback(workers.close)
            self._make_transients(workers, drivers, limits)
            made.callback(self.transients.end)
            self._make_readers(workers)
            made.callback(self._reader.end)
            writers = drivers.make_writers(loop, self._syncs)
            made.callback(writers.close)
            made.callback(writers.end)
            self._make_flusher(writers, limits)
            made.callback(self._flusher.end)
            self._make_checkpointer(workers, drivers, limits)
            made.callback(self._index_threads.close)
            self._make_collector(limits)
            self._make_archive()
            made.pop_all()

    def _make_transients(self, workers: _Workers, drivers: Drivers, limits: StoreLimits) -> None:
        opened = self._opened
        self.transients = TransientStore(  # may refuse
            opened.folder.files,
            opened.folder.path / TRANSIENT_FOLDER,
            opened.identity,
            self._loop,
            opened.now_ms,
            self._on_credit,
            self._on_transients_lost,
            self._part_failed,
            limits.transient,
            workers.make,
        )

    def _make_readers(self, workers: _Workers) -> None:
        index, folder, loop = self._opened.recovered.index, self._opened.folder, self._loop
        files, count_file = SegmentReader(folder), self._opened.count_file

        def close() -> None:
            files.close()
            count_file.close()

        worker = workers.make(loop, "leveret-read", close)
        shortages = ShortageLog("reading rows", folder.path)
        self._reader = ReadThread(worker, self._part_failed, loop, shortages)
        self.contents = ContentReader(
            self.core,
            self.memtables,
            files,
            index,
            self._reader,
            loop,
            self.read_cache,
            ShortageLog("reading messages", folder.path),
        )
        self.rows = RowReader(self.core, index, self._reader)
        self.counts = DeliveryCountLog(count_file, self._opened.counts, self._reader.submit, loop)

    def _make_flusher(self, writers: Writers, limits: StoreLimits) -> None:
        opened = self._opened
        self._flusher = FlushDriver(
            self.core,
            opened.rdq_log,
            opened.journal_log,
            self._loop,
            writers,
            self._deliver,
            limits.flushes,
            self._progressed,
        )

    def _make_checkpointer(self, workers: _Workers, drivers: Drivers, limits: StoreLimits) -> None:
        opened = self._opened
        self._checkpointer = Checkpointer(self.core, opened.index_files, limits.checkpoint)
        self._index_threads = CheckpointDriver(
            self.core,
            self._checkpointer,
            opened.recovered.index,
            opened.folder,
            opened.ballast,
            self._loop,
            self._deliver,
            self._checkpoint_reached,
            workers.make,
            self._progressed,
        )

    def _make_collector(self, limits: StoreLimits) -> None:
        opened = self._opened
        self._collector = Collector(
            opened.folder,
            self.core,
            self.memtables,
            opened.recovered.index,
            self.pins,
            opened.now_ms,
            self.contents.segments_removed,
            self._checkpointer.request,
            limits.choice,
        )
        self._collecting = CollectorDriver(
            self._collector,
            self.core,
            self._loop,
            self._part_failed,
            make_worker=self._make_worker,
            pace=limits.pace,
        )
        self.pins.freed = self._collecting.wake

    def _make_archive(self) -> None:
        self.archive = self.core.archive  # the queues whose settled messages stay
        self._is_giving_up = False
        opened, loop = self._opened, self._loop
        self._archive_writer = ArchiveWriter(
            self.core, opened.folder, self._reader, loop, opened.vhost, opened.mark
        )
        self._marks = EndMarks(
            self.core, opened.mark, self._reader.submit, loop, opened.folder.path
        )

    # Channels.

    def write(
        self,
        messages: Sequence[Message],
        queue_nos: QueueNos,
        is_awaited: bool = True,
        size_bytes: int | None = None,
    ) -> int:
        """Take messages of one run that routing sends to these queues; see ``GroupCommit.write``.

        ``queue_nos`` are route numbers. ``is_awaited``: a publisher waits for confirms; otherwise the flush
        may be put off.
        """
        first = self.core.write(messages, queue_nos, size_bytes)
        if is_awaited:
            self.awaited_below = first + len(messages)
        if not self.backpressure.is_on:
            self.backpressure.update()
        return first

    def queue_down(self, queue_no: int) -> None:
        """Release the messages that a queue was promised and will not accept any more."""
        if self.core.error is None:
            self.core.queue_down(queue_no)

    # Queues.

    def client(
        self, queue_no: int, is_new: bool = False, routed_as: int | None = None
    ) -> QueueClient:
        """Return a queue's part.

        Args:
            queue_no: the queue, or one priority of it; never used by another.
            is_new: it was declared just now, and begins with seq 0.
            routed_as: the route number that ``write`` gets for the queue, if it differs.
        """
        client = self._clients.get(queue_no)
        if client is None:
            client = self._clients[queue_no] = self._new_client(queue_no, is_new)
            if routed_as is not None:
                client.routed_as = routed_as
        return client

    def _new_client(self, queue_no: int, is_new: bool) -> QueueClient:
        if is_new:
            return QueueClient(self, queue_no, 0)
        recovered = self._opened.recovered
        found, now = recovered.queues.get(queue_no), self.memtables.terms.get(queue_no)
        messages, size_bytes = (now.messages, now.size_bytes) if now is not None else (0, 0)
        if (terms := self._unopened.pop(queue_no, None)) is not None:
            return QueueClient(self, queue_no, terms.next_seq, messages, size_bytes, terms)
        known = [each.next_seq for each in (found, now) if each is not None]
        next_seq = max([recovered.next_no, *known])  # those of a queue with mirrors are higher
        return QueueClient(self, queue_no, next_seq, messages, size_bytes)

    def message_counts(self) -> dict[int, int]:
        """Return how many messages each queue has in the store, defined or not."""
        return {no: terms.messages for no, terms in self.memtables.terms.items()}

    def message_count(self, queue_no: int) -> int:
        """Return how many messages a queue has in the store."""
        terms = self.memtables.terms.get(queue_no)
        return terms.messages if terms is not None else 0

    def leaving(self) -> set[int]:
        """Return the queues that are being deleted."""
        return set(self.memtables.leaving)

    def delete_queue(self, queue_no: int) -> None:
        """Remove all rows of a queue, in slices, and forget it."""
        self._clients.pop(queue_no, None)
        self._unopened.pop(queue_no, None)
        self.counts.forget(queue_no)
        free_in_slices([self._producers.pop(queue_no, {})], self._loop)
        self.drop_transients(queue_no)
        if self.archive.forget(queue_no):
            self._archive_changed()
        if self.core.error is None:
            self.core.delete_queue(queue_no)

    def producers(self, queue_no: int, levels: int) -> QueueProducers:
        """Return the producers of a queue, whose rows are under so many numbers from ``queue_no`` on."""
        return QueueProducers(self.core, self._producers, queue_no, levels)

    # The archive.

    def retain(self, queue_nos: Sequence[int], name: str, retention: Retention | None) -> None:
        """Archive settled messages of a queue from now on, or cease to; each priority has one of the ``queue_nos``.

        The archive begins at the durable end: places behind it are given anew when a flush fails.
        """
        if self.archive.set(queue_nos, name, retention, Position(*self.core.durable[1:])):
            self._archive_changed()

    def policies_known(self, queue_nos: Collection[int]) -> None:
        """Note that all queues of the vhost, ``queue_nos``, have got their policies since the start."""
        if self.archive.policies_known(queue_nos):
            self._archive_changed()

    def _archive_changed(self) -> None:
        self._archive_writer.update()
        self._collecting.wake()

    def archived(self, queue_no: int) -> Archived:
        """Return how many segments are kept for a queue, and its bytes in them."""
        return self.archive.archived(queue_no, self._opened.now_ms())

    def give_up_archive(self, wanted_bytes: int) -> int:
        """Have the oldest segments removed that only the archive keeps: the disk is short.

        Args:
            wanted_bytes: so much, if there is so much; one segment at least.

        Returns:
            How many bytes will be free.
        """
        chosen: list[int] = []
        size_bytes = 0
        for file_no in self._collector.giveable():
            chosen.append(file_no)
            size_bytes += self.memtables.files[file_no].size_bytes
            if size_bytes >= wanted_bytes:
                break
        if chosen:
            if not self._is_giving_up:
                log.warning(
                    "archive gives way to a short disk, oldest segments first store=%s segments=%d bytes=%d"
                    " remedy=free some room on the disk, or archive less",
                    self._opened.folder.path,
                    len(chosen),
                    size_bytes,
                )
            self._is_giving_up = True
            self.archive.give_up(chosen, size_bytes)
            self._collecting.wake()
        return size_bytes

    def disk_has_room(self) -> None:
        """Note that the disk is not short any more: the next time is logged again."""
        self._is_giving_up = False

    # For clients.

    def drop_transients(self, queue_no: int) -> None:
        if self.transients.holds(queue_no):
            self.transients.drop_queue(queue_no)

    @property
    def is_new(self) -> bool:
        """The store was created when it was opened."""
        return self._opened.folder.is_new

    def report_gone(self, queues: Sequence[str]) -> None:
        """Report that the store is new although its vhost has these queues: somebody removed its folder."""
        if not queues:
            return
        log.error(
            "message store is gone, a new one was made store=%s queues=%d first=%s"
            " remedy=stop the broker and put the folder back, or restore a snapshot",
            self._opened.folder.path,
            len(queues),
            queues[0],
        )
        text = (
            f"the store was made anew: its folder is gone with the messages of {len(queues)} queues"
        )
        self._opened.recovered.report.doubts.append(text)

    def report_lost(self, queue_no: int, rows: Sequence[tuple[int, int]]) -> None:
        """Report messages that are lost to a queue, in the log and in the quarantine."""
        lost = [(seq, msg_no, self.contents.count_lost(msg_no)) for seq, msg_no in rows]
        log.error(
            "messages lost store=%s queue_no=%d count=%d first_seq=%d why=%s",
            self._opened.folder.path,
            queue_no,
            len(lost),
            *lost[0][::2],
        )
        self._reports += 1
        name = f"lost-{self.core.boot_epoch:06x}-{self._reports:06x}"
        report = {"queue_no": queue_no, "lost": lost}
        self._reader.submit(lambda: self._write_report(name, report))

    def _write_report(self, name: str, report: dict[str, Any]) -> None:
        try:
            self._opened.folder.report(name, report)
        except OSError as error:  # it is in the log
            log.error("report of lost messages not written name=%s error=%s", name, error)

    # Reports and errors.

    def _deliver(self, report: Report) -> None:
        if report.error is not None:
            self._fail(report.error)
            return
        for queue_no, runs in _by_queue(report.safe):
            if (client := self._clients.get(queue_no)) is not None:
                client.on_safe(runs)
        for queue_no, runs in _by_queue(report.nacked):
            if (client := self._clients.get(queue_no)) is not None:
                client.on_nacked(runs)

    def _progressed(self) -> None:
        if not self._marks.is_due:
            self._marks.begin()
        if self.backpressure.is_on:
            self.backpressure.update()
        shortage = self.core.shortage or self._checkpointer.shortage
        if shortage is self._writing.error:
            return
        if self._writing.note(shortage):
            self.is_short = shortage is not None
            if not self.is_short:
                self._collecting.resume()
            if self._shortage_changed is not None:
                self._shortage_changed()

    @property
    def shortage(self) -> str:
        """While ``is_short``: the name of the error, as ``ENOSPC``."""
        return reason_of(self._writing.error)

    def _checkpoint_reached(self, point: str) -> None:
        """Note a point of a checkpoint, on its thread."""
        if point == "committed":
            self._committed_at_s = self._monotonic_s()

    def _part_failed(self, error: Exception) -> None:
        if isinstance(error, IndexDamaged):
            self._opened.index_files.condemn()
        if self.core.error is None:
            self._deliver(self.core.fail(error))

    def _on_credit(self, queue_no: int) -> None:
        if (client := self._clients.get(queue_no)) is not None:
            client.resume()

    def _on_transients_lost(self, queue_no: int, seqs: list[int] | None) -> None:
        if (client := self._clients.get(queue_no)) is not None:
            client.on_transients_lost(seqs)

    def _fail(self, error: StoreFailed) -> None:
        if self._has_failed:
            return
        self._has_failed = True
        self.backpressure.release()
        for client in self._clients.values():
            client.on_failed(error)
        self._failed(error)

    @property
    def durable_at_failure(self) -> DurablePosition | None:
        """After a failure: how far the disk can be trusted. None if nothing has failed."""
        return self.core.durable if self._has_failed else None

    def stats(self) -> StoreStats:
        """Return the statistics of all parts; goes over segments and queues, so not for every message."""
        core, memtables, contents, syncs = self.core, self.memtables, self.contents, self._syncs
        collected, committed_at_s = self._collector.collected, self._committed_at_s
        files = list(memtables.files.values())
        kept = self.archive.kept(memtables.files, self._opened.now_ms())
        archived = [memtables.files[no] for no in kept]
        size_bytes = sum(state.size_bytes for state in files)
        live_bytes = sum(state.valid_bytes for state in files)
        age_s = None if committed_at_s is None else self._monotonic_s() - committed_at_s
        return StoreStats(
            shortage=self.shortage,
            damage=self._opened.recovered.report.damage,
            messages=sum(terms.messages for terms in memtables.terms.values()),
            segments=len(files),
            segment_bytes=size_bytes,
            live_bytes=live_bytes,
            garbage_bytes=size_bytes - live_bytes,
            journal_bytes=core.journal.bytes_since_switch,
            unindexed_rows=sum(each.weight for each in (memtables.active, *memtables.frozen)),
            frozen_memtables=len(memtables.frozen),
            checkpoint_age_s=age_s,
            ranges_leaving=len(core.range_acks),
            syncs=syncs.count,
            sync_mean_s=syncs.total_s / syncs.count if syncs.count else 0.0,
            sync_longest_s=syncs.longest_s,
            contents_read=contents.reads,
            contents_read_bytes=contents.read_bytes,
            contents_lost=contents.losses,
            read_cache_bytes=self.read_cache.size_bytes,
            transients=self.transients.stats(),
            merges=collected.merges,
            merged_bytes=collected.copied_bytes,
            removed=collected.removed,
            removed_bytes=collected.removed_bytes,
            archived_queues=len(self.archive.queues),
            archive_segments=len(archived),
            archive_bytes=sum(state.size_bytes - state.valid_bytes for state in archived),
            archive_given_up_bytes=self.archive.given_up_bytes,
        )

    def snapshot(self, target: Path, done: Callable[[Exception | None], None]) -> None:
        """Put a copy of the store as of now into a folder: all that was issued before this call. Nothing is synced.

        Args:
            target: made; on the store's file system.
            done: gets None when it is complete, or the error; then a part may be there.

        Raises:
            StoreError: another snapshot is being made, or the store is about to end.
        """
        snapshot = Snapshot(target, self.pins, done, self._archive_at_cut)
        self._checkpointer.begin_snapshot(snapshot)

    def _archive_at_cut(self) -> ArchiveAtCut:
        files = self.memtables.files
        kept = self.archive.kept(files, self._opened.now_ms())
        contents = self._archive_writer.contents() if self.archive.queues else None
        return ArchiveAtCut(frozenset(kept), contents)

    # End.

    def stop(self, then: Callable[[], None]) -> None:
        """Write all that is pending and a checkpoint, end, and call ``then`` when the files are closed.

        With a full disk, or in a store that has failed, unwritten changes are left to the journals and
        the next start.
        """
        if self._is_closed:
            self.kill(then)
        else:
            self._collecting.end()  # or it may move something behind the last flush
            self._flusher.stop(lambda: self._flushed(then))

    def _flushed(self, then: Callable[[], None]) -> None:
        core = self.core
        self.counts.end()
        self._archive_writer.stop()
        self._marks.end()
        self._reader.end()
        self.transients.end()
        if core.error is not None or not core.is_idle:
            self.kill(then)
            return
        # Only now: a change that becomes durable after a queue's end makes its terms void.
        clients = self._clients.items()
        closed = {no: client.terms for no, client in clients if client.terms is not None}
        for queue_no, terms in (closed | self._unopened).items():
            core.close_queue(queue_no, *terms)
        self._index_threads.stop(lambda: self.kill(then))

    def kill(self, then: Callable[[], None] | None = None) -> None:
        """End now, as after a crash: pending work is lost, a flush in flight is completed.

        ``then`` is called when no system call is under way any more and the files are closed. A disk that
        hangs delays ``then``, and nothing else.
        """
        if then is not None:
            if self._waiting is None:
                then()
            else:
                self._waiting.append(then)
        if self._is_closed:
            return
        for part in (
            self._flusher,
            self._collecting,
            self._archive_writer,
            self._marks,
            self._reader,
            self.transients,
        ):
            part.end()
        self._index_threads.end()
        self._begin_end()
        self._close()

    def _begin_end(self) -> None:
        try:
            worker = self._make_worker(self._loop, "leveret-end")
        except OSError as error:  # no thread can be started
            log.warning("store not closed yet store=%s error=%s", self._opened.folder.path, error)
            self._loop.call_later(END_RETRY_S, self._begin_end)
            return
        worker.submit(partial(as_steps, self._close_files), partial(self._ended, worker))
        worker.end()

    def _close_files(self) -> None:
        """Close all parts, the last part first; an error of one part keeps no other open, nor the folder locked."""
        with ExitStack() as parts:
            parts.callback(self._opened.folder.close)
            parts.callback(self._index_threads.close)
            for part in (self.transients, self._reader, self._collecting, self._flusher):
                parts.callback(part.close)

    def _ended(self, worker: Worker, _: None, error: Exception | None) -> None:
        worker.close()  # before the callbacks, which find no thread
        # No thread is left that calls back. The parts drop their references to the store: a cycle would never be freed
        # (docs/decisions/0025-no-full-collections.md).
        for part in (
            self._flusher,
            self._collecting,
            self._reader,
            self.transients,
            self._index_threads,
        ):
            part.closed()
        self.pins.freed = None
        tables = (*self.memtables.frozen, self.memtables.active)
        parts = [part for table in tables for part in table.containers()]
        free_in_slices([*self._producers.values(), *parts], self._loop)
        waiting, self._waiting = self._waiting or [], None
        for then in waiting:
            then()
        if error is not None:
            raise error

    def _close(self) -> None:
        self._is_closed = True
        self.backpressure.release()
        self._clients.clear()
        self.read_cache.drop(list(self.read_cache.contents))
        if self.core.error is None:
            self.core.fail(StoreError("it was closed"))  # drops pending work


class _Workers:
    """The workers that a store starts with: all of them, or none if one cannot be started."""

    def __init__(self, make_worker: MakeWorker) -> None:
        self._make_worker = make_worker
        self._made: list[Worker] = []

    def make(
        self,
        loop: Loop,
        name: str,
        at_end: Callable[[], None] | None = None,
        reached: Reached | None = None,
    ) -> Worker:
        worker = self._make_worker(loop, name, at_end, reached)
        self._made.append(worker)
        return worker

    def close(self) -> None:
        for worker in self._made:
            worker.close()


def _by_queue(runs: Iterable[SeqRun]) -> Iterable[tuple[int, list[tuple[int, int]]]]:
    found: dict[int, list[tuple[int, int]]] = {}
    for queue_no, first_seq, count in runs:
        found.setdefault(queue_no, []).append((first_seq, count))
    return found.items()
