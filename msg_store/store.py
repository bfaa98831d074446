"""MsgStore: the message store of one vhost, with one interface for all its parts.

::

    channels --write--> MsgStore <--clients-- queues (queue_backing.StoredIndex)
                           |
       GroupCommit + FlushDriver        writing: segments, journal, confirms
       Memtables + Checkpointer         durable rows and places: RAM above the index
       RowReader, ContentReader          reading back
       Collector, TransientStore         room on the disk; paged-out transients

``open_store`` (``recovery.opening``) locks and recovers the store; it blocks, in any thread. ``MsgStore`` takes
over on the loop. Reports of group commit are distributed to the queues' clients.

A store that has **failed** reports it once and takes no work any more: its owner ends it (``kill``) and
opens it again. An index that is found damaged is a failure as well; the next start rebuilds it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from leveret.core.errors import StoreError
from leveret.core.message import Message
from leveret.msg_store.client import CleanTerms, QueueClient
from leveret.msg_store.drivers import DEFAULT_LIMITS, THREADS, Drivers, StoreLimits
from leveret.msg_store.format.errors import StoreFailed
from leveret.msg_store.format.journal_frames import DurablePosition
from leveret.msg_store.format.record import QueueNos
from leveret.msg_store.format.rows import IndexDamaged
from leveret.msg_store.parts import Listeners, StoreParts
from leveret.msg_store.recovery.recovery import Opened
from leveret.msg_store.status import StoreStatus
from leveret.msg_store.threads.worker import Loop
from leveret.msg_store.wal.backpressure import Backpressure
from leveret.msg_store.wal.group_commit import Report
from leveret.msg_store.wal.pending import SeqRun

log = logging.getLogger(__name__)


class MsgStore:
    """One vhost's store. All methods are for the loop.

    Args:
        opened: the recovered store; taken over.
        monotonic_s: for figures.
        failed: gets the error after which the store is of no use, once.
        full_changed: called when ``is_full`` has become another.

    Attributes:
        is_full: the disk has no room; publishes are nacked and stay pending until it has.
    """

    def __init__(
        self,
        opened: Opened,
        loop: Loop,
        monotonic_s: Callable[[], float],
        failed: Callable[[Exception], None],
        drivers: Drivers = THREADS,
        limits: StoreLimits = DEFAULT_LIMITS,
        full_changed: Callable[[], None] | None = None,
    ) -> None:
        self.core = opened.core  # group commit
        self.memtables = opened.core.memtables
        self._opened = opened
        self._loop = loop
        self._failed = failed
        self.awaited_below = 0  # confirms are awaited of messages with lower numbers, if of any
        self._clients: dict[int, QueueClient] = {}
        self._unopened = {  # ended cleanly, and not opened in this start
            no: CleanTerms(terms.next_seq, terms.next_deliver)
            for no, terms in opened.recovered.queues.items()
            if terms.is_clean
        }
        self._has_failed = self._is_closed = self.is_full = False
        self._full_changed = full_changed
        self._waiting: list[Callable[[], None]] | None = []  # for the end; None after it
        self._reports = 0
        self.backpressure = Backpressure(opened.core, limits.backpressure)
        listeners = Listeners(
            self._deliver,
            self._part_failed,
            self._on_credit,
            self._on_transients_lost,
            self._progressed,
        )
        self._parts = parts = StoreParts(opened, loop, monotonic_s, listeners, drivers, limits)
        self.read_cache = parts.read_cache  # contents that have been read and not taken
        self.contents = parts.contents  # reads contents
        self.pins = parts.pins  # segments that must stay, for snapshots
        self.rows = parts.rows  # reads rows
        self.transients = parts.transients  # where transients are paged out to

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
            self.backpressure.look()
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
            routed_as: the queue's route number, which ``write`` is told, if that is another.
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
        next_seq = max(recovered.next_no, found.next_seq if found is not None else 0)
        return QueueClient(self, queue_no, next_seq, messages, size_bytes)

    def message_counts(self) -> dict[int, int]:
        """Return how many messages each queue has in the store, defined or not."""
        return {no: terms.messages for no, terms in self.memtables.terms.items()}

    def leaving(self) -> set[int]:
        """Return the queues that are being deleted."""
        return set(self.memtables.leaving)

    def queue_nos(self) -> set[int]:
        """Return all queues that have messages in the store, defined or not."""
        return {no for no, terms in self.memtables.terms.items() if terms.messages}

    def delete_queue(self, queue_no: int) -> None:
        """Remove all rows of a queue, in slices, and forget it."""
        self._clients.pop(queue_no, None)
        self._unopened.pop(queue_no, None)
        self.drop_transients(queue_no)
        if self.core.error is None:
            self.core.delete_queue(queue_no)

    # For clients.

    def drop_transients(self, queue_no: int) -> None:
        if self.transients.holds(queue_no):
            self.transients.drop_queue(queue_no)

    def report_lost(self, queue_no: int, rows: Sequence[tuple[int, int]]) -> None:
        """Write down which messages a queue goes on without."""
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
        self._parts.reader.submit(lambda: self._write_report(name, report))

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
        if self.backpressure.is_on:
            self.backpressure.look()
        if self.is_full != self._parts.is_full:
            self.is_full = not self.is_full
            if self._full_changed is not None:
                self._full_changed()

    def _part_failed(self, error: Exception) -> None:
        if isinstance(error, IndexDamaged):
            self._opened.index_location.condemn()
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

    def status(self) -> StoreStatus:
        return self._parts.status()

    def snapshot(self, target: Path, done: Callable[[Exception | None], None]) -> None:
        """Put a copy of the store as of now into a folder: all that was issued before this call. Nothing is synced.

        Args:
            target: made; on the store's file system.
            done: gets None when it is complete, or the error; then a part may be there.

        Raises:
            StoreError: another snapshot is being made, or the store is about to end.
        """
        self._parts.snapshot(target, done)

    # End.

    def stop(self, then: Callable[[], None]) -> None:
        """Write all that is pending and a checkpoint, end, and call ``then``.

        With a full disk, or in a store that has failed, what could not be written is left to the
        journals and the next start.
        """
        if self._is_closed:
            self._has_ended(then)
        else:
            self._parts.flush(lambda: self._flushed(then))

    def _flushed(self, then: Callable[[], None]) -> None:
        core = self.core
        if core.error is not None or not core.is_idle:
            self.kill(then)
            return
        # Only now, for what becomes durable after a queue has ended makes its terms void.
        clients = self._clients.items()
        closed = {no: client.terms for no, client in clients if client.terms is not None}
        for queue_no, terms in (closed | self._unopened).items():
            core.close_queue(queue_no, *terms)
        self._parts.write_index(lambda: self._written(then))

    def _written(self, then: Callable[[], None]) -> None:
        self._waiting = None
        self._close()
        then()

    def kill(self, then: Callable[[], None] | None = None) -> None:
        """End now, as after a crash: pending work is lost, a flush in flight is completed.

        ``then`` is called when no system call is under way any more and the files are closed.
        """
        if self._is_closed:
            self._has_ended(then)
        else:
            self._parts.kill(self._ended)
            self._has_ended(then)
            self._close()

    def _has_ended(self, then: Callable[[], None] | None) -> None:
        if then is None:
            return
        if self._waiting is None:
            then()
        else:
            self._waiting.append(then)

    def _ended(self) -> None:
        waiting, self._waiting = self._waiting or [], None
        for then in waiting:
            then()

    def _close(self) -> None:
        self._is_closed = True
        self.backpressure.release()
        self._clients.clear()
        if self.core.error is None:
            self.core.fail(StoreError("it was closed"))  # drops pending work


def _by_queue(runs: Iterable[SeqRun]) -> Iterable[tuple[int, list[tuple[int, int]]]]:
    found: dict[int, list[tuple[int, int]]] = {}
    for queue_no, first_seq, count in runs:
        found.setdefault(queue_no, []).append((first_seq, count))
    return found.items()
