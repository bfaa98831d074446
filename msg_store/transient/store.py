"""The transient store: where queues page out messages that need not survive.

A queue pages out contents of transients and reads rows and contents back when it gets there. A message on
disk costs one to four bytes of RAM: its *position*, which says in which row of which file it is
(``segment``, ``paged_queue``). Whether it is live is known in RAM alone, so an ack is done when its call returns.

Nothing here is recovered: the folder is wiped when the store starts, so there is no journal and no sync. A
message that several queues page out is written for each: it is rare, a shared content would need counts,
and counts are RAM per message.

::

    loop     TransientStore, PagingCore: calls of queues, waiting contents, positions, one job at a time
    writer   TransientWriter: writes and unlinks segments, ``transient/%08x.rdq``
    reader   TransientReader: rows and contents

A content can be read at any time: from RAM until its job is done, then from the disk. Its row can be read as well,
from the call of ``page_out`` on. The result of the reader is compared with the queue when it comes: rows
that were acked meanwhile are left out, and missing rows are read.

Errors. Nothing is lost while the disk refuses: contents are in RAM until they are written, and credit
stops, so that queues keep theirs. A content that was written and cannot be read is lost: the owner is
told, there is one line in the log per queue, and the row stays until the owner acks it, for it has counted
it. When a row cannot be read, all of its queue that is on the disk is lost.

Turned down: an index in LMDB, and a file per queue (decision 0050). Locations in RAM as Python's objects, 200 bytes per
message. A count of references per content: see above. A second instance of the persistent store without
journal and syncs (decision 0012).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeAlias

from leveret.core.clock import TimerHandle
from leveret.core.entry import Entry
from leveret.core.log.loggers import logger
from leveret.core.message import Message
from leveret.core.system.files import Files
from leveret.msg_store.format.file_header import Identity
from leveret.msg_store.format.folder import StorePaths
from leveret.msg_store.format.seq_range import SeqRange
from leveret.msg_store.threads.worker import Loop, MakeWorker, Steps, T, ThreadWorker
from leveret.msg_store.transient.paged_queue import PagedQueue, Places
from leveret.msg_store.transient.paging_core import (
    JOB_OPS,
    LIMITS,
    RETRY_S,
    Job,
    Limits,
    PagingCore,
    Unlink,
)
from leveret.msg_store.transient.reader import Contents, TransientReader
from leveret.msg_store.transient.segment import ROW, ROW_BITS, Fields, Row, Segment
from leveret.msg_store.transient.writer import TransientWriter

FOLDER = "transient"

GotRows: TypeAlias = Callable[[list[Row]], None]
GotContents: TypeAlias = Callable[[dict[int, Message]], None]  # by seq

OnCredit: TypeAlias = Callable[[int], None]
"""The queue with this number may page out again."""

OnLost: TypeAlias = Callable[[int, "list[int] | None"], None]
"""Contents of this queue, by seq, cannot be read any more; None: all of it that was on disk is lost, and
the rows are gone as well."""

OnFailed: TypeAlias = Callable[[Exception], None]
"""A bug; the store does nothing any more and should be closed."""

log = logger(__name__)


class TransientStats(NamedTuple):
    """Statistics of paged-out messages, for the store's status."""

    waiting_bytes: int
    disk_bytes: int
    live: int
    live_bytes: int
    segments: int


class TransientStore:
    """Starts with an empty folder. All methods are for the loop and return at once.

    A message is named by ``(queue_no, seq)`` and not by its ``msg_no``: contents of transients get none at
    routing. ``queue_no`` may be any number that its owner alone uses, so the levels of a priority queue
    take one each. Nothing outlives the process, and nothing outlives ``drop_queue``.

    Args:
        folder: ``transient/`` of a store; made if it is not there.
    """

    def __init__(
        self,
        files: Files,
        folder: Path,
        identity: Identity,
        loop: Loop,
        now_ms: Callable[[], int],
        on_credit: OnCredit,
        on_lost: OnLost,
        on_failed: OnFailed,
        limits: Limits = LIMITS,
        make_worker: MakeWorker = ThreadWorker,
    ) -> None:
        paths = StorePaths(files, folder, identity.uuid)
        paths.rdq = folder
        self._core = PagingCore(limits)
        self._writer = TransientWriter(paths, identity, now_ms, limits.room_bytes)
        self._reader = TransientReader(paths)
        self._loop = loop
        self._on_credit = on_credit
        self._on_lost = on_lost
        self._on_failed = on_failed
        self._is_closed = False
        self._is_scheduled = False
        self._is_collecting = False
        self._retry: TimerHandle | None = None
        self._write_worker = make_worker(loop, "leveret-transient-writer", self._writer.close)
        self._read_worker = make_worker(loop, "leveret-transient-reader", self._reader.close)
        self._wake()

    # Calls of queues.

    def page_out(self, queue_no: int, entries: Sequence[Entry], must: bool = False) -> int:
        """Take contents, at seqs that are new to the queue. They and their rows can be read at once.

        The entries have their messages. ``must`` takes all of them, also beyond the credit, which is then owed.
        Returns how many of the first ones were taken: if fewer than asked for, ``on_credit`` is owed.
        """
        taken = self._core.page_out(queue_no, entries, must)
        self._wake()
        return taken

    def ack(self, queue_no: int, entries: Sequence[Entry]) -> None:
        """Remove contents and their rows; unknown seqs are passed over."""
        self._core.ack(queue_no, entries)
        self._wake()

    def ack_range(self, queue_no: int, seqs: SeqRange) -> None:
        """Remove all contents within a range; none is paged out within it afterwards."""
        self._core.ack_range(queue_no, seqs)
        self._wake()

    def drop_queue(self, queue_no: int) -> None:
        """Forget all of a queue, which may begin anew at any seq; its callbacks are not called."""
        self._core.drop_queue(queue_no)
        self._wake()

    def holds(self, queue_no: int) -> bool:
        """Whether anything was taken or asked for; if not, there is nothing to read."""
        return queue_no in self._core.queues

    def contents(self, queue_no: int, seqs: Sequence[int]) -> list[Message | None]:
        """Return contents that are in RAM because they have not been written, None for others."""
        queue = self._core.queues.get(queue_no)
        return [None] * len(seqs) if queue is None else queue.messages(seqs)

    def read(self, queue_no: int, seqs: Sequence[int], then: GotContents) -> None:
        """Read contents and call ``then`` in a later turn.

        The answer leaves out contents that were acked meanwhile, and lost contents, of which ``on_lost``
        is told before.
        """
        queue = self._core.queue(queue_no)
        self._loop.call_soon(self._read, queue, seqs, {}, then)

    def _read(
        self, queue: PagedQueue, seqs: Sequence[int], found: dict[int, Message], then: GotContents
    ) -> None:
        """Answer with the messages that were read and the messages in RAM, when all have been read."""
        if self._is_over(queue):
            return
        in_ram = zip(seqs, queue.messages(seqs), strict=True)
        found |= {seq: message for seq, message in in_ram if message is not None}
        missing = queue.places([seq for seq in seqs if seq not in found])
        if not missing:
            then(found)
            return

        def got(contents: Contents) -> None:
            messages = contents.messages
            found.update({seq: messages[at] for seq, at in missing.items() if at in messages})
            lost: list[int] = []
            if len(messages) < len(missing):
                lost = [seq for seq, at in _still(queue, missing) if at not in messages]
            if lost:
                self._note_lost(queue, len(lost))
                self._on_lost(queue.queue_no, sorted(lost))
            self._read(queue, [seq for seq in seqs if seq not in lost], found, then)

        self._ask(queue, partial(self._reader.contents, missing.values()), got)

    def _ask(
        self, queue: PagedQueue, read: Callable[[], Steps[T]], then: Callable[[T], None]
    ) -> None:
        """Have the reader read, again and again until the disk lets it."""

        def got(found: T | None, error: Exception | None) -> None:
            if self._is_over(queue):
                return
            if found is not None:
                then(found)
            elif isinstance(error, OSError):
                self._loop.call_later(RETRY_S, self._ask, queue, read, then)
            elif error is not None:
                self._fail(error)

        if not self._is_over(queue):
            self._read_worker.submit(read, got)

    def rows(self, queue_no: int, low: int, high: int, limit: int, then: GotRows) -> None:
        """Find the first ``limit`` rows with ``low <= seq < high``; ``then`` gets them, ascending.

        They are right as of the turn in which ``then`` is called.
        """
        queue = self._core.queue(queue_no)
        self._loop.call_soon(self._find, queue, (low, high, limit), {}, then)

    def _find(
        self, queue: PagedQueue, bounds: tuple[int, int, int], known: dict[int, Row], then: GotRows
    ) -> None:
        """Answer with the rows, when the unknown ones have been read."""
        if self._is_over(queue):
            return
        if queue.deleting:
            self._loop.call_soon(self._find, queue, bounds, known, then)
            return
        rows, missing = queue.rows(*bounds, known)
        if not missing:
            then(rows)
            return

        def got(read: dict[int, Row]) -> None:
            known.update(read)
            is_whole = len(read) == len(missing) and all(map(known.__contains__, missing))
            if not is_whole and any(seq not in known for seq, _ in _still(queue, missing)):
                self._lose(queue)
            self._find(queue, bounds, known, then)

        self._ask(queue, partial(self._reader.rows, missing.values()), got)

    def _lose(self, queue: PagedQueue) -> None:
        """Forget all of a queue that is on the disk: rows of it cannot be read."""
        self._core.lose(queue)
        self._wake()
        self._note_lost(queue, "all on disk")
        self._on_lost(queue.queue_no, None)

    def _is_over(self, queue: PagedQueue) -> bool:
        return self._is_closed or self._core.queues.get(queue.queue_no) is not queue

    # Jobs.

    def _wake(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_scheduled = False
        if self._is_closed:
            return
        if self._core.delete():
            self._wake()
        if self._core.job is None:
            job = self._core.start()
            if job is not None:
                self._write_worker.submit(
                    partial(self._writer.run, job), partial(self._finished, job)
                )
        self._collect()
        self._grant()

    def _grant(self) -> None:
        for queue_no in self._core.granted():
            self._on_credit(queue_no)

    def _finished(self, job: Job, _: None, error: Exception | None) -> None:
        if self._is_closed:
            return
        if isinstance(job, Unlink):
            self._read_worker.submit(partial(self._reader.forget, job.unlinked))
        try:
            self._core.finish(error)
        except Exception as bug:  # noqa: BLE001  the owner ends the store
            self._fail(bug)
            return
        if self._core.held and self._retry is None:
            self._retry = self._loop.call_later(RETRY_S, self._retried)
        self._wake()
        self._grant()

    def _retried(self) -> None:
        self._retry = None
        self._core.retry()
        self._wake()

    # Garbage.

    def _collect(self) -> None:
        """Have live messages of a segment with much garbage written anew."""
        victim = None if self._is_collecting else self._core.victim()
        if victim is not None:
            self._is_collecting = True
            low = victim.file_no << ROW_BITS
            rows = range(low + victim.scanned, low + min(victim.scanned + JOB_OPS, victim.rows))
            self._read_worker.submit(
                partial(self._reader.fields, rows), partial(self._got_fields, victim)
            )

    def _got_fields(
        self, victim: Segment, fields: dict[int, Fields] | None, error: Exception | None
    ) -> None:
        queues = {} if fields is None else self._core.to_move(victim, fields)
        then = partial(self._got_garbage, victim, queues)
        if error is None:
            self._read_worker.submit(partial(self._reader.contents, queues), then)
        else:
            then(None, error)

    def _got_garbage(
        self,
        victim: Segment,
        queues: dict[int, PagedQueue],
        read: Contents | None,
        error: Exception | None,
    ) -> None:
        if self._is_closed:
            return
        if read is not None:
            for position, message in read.messages.items():
                seq, msg_no, size, expiry_ms, _ = read.fields[position][ROW]
                entry = seq, message, expiry_ms, False, msg_no, size, True, True
                self._core.move(queues[position], entry, position)
            self._collect_on()
        elif isinstance(error, OSError):
            victim.scanned = 0
            self._loop.call_later(RETRY_S, self._collect_on)
        elif error is not None:
            self._fail(error)

    def _collect_on(self) -> None:
        self._is_collecting = False
        self._wake()

    # Notices.

    def _note_lost(self, queue: PagedQueue, count: int | str) -> None:
        if not queue.has_lost:
            queue.has_lost = True
            log.warning(
                "transients of a queue are lost queue_no=%d count=%s", queue.queue_no, count
            )

    def _fail(self, error: Exception) -> None:
        self._is_closed = True
        self._core.is_stalled = True  # only ``must`` is served any more
        self._on_failed(error)

    def stats(self) -> TransientStats:
        """Return statistics; ``live_bytes`` roughly."""
        core = self._core
        segments = len(core.segments)
        return TransientStats(
            core.waiting_bytes, core.size_bytes, core.live, core.live_bytes, segments
        )

    def end(self) -> None:
        """Call no callback any more."""
        self._is_closed = True
        if self._retry is not None:
            self._retry.cancel()

    def close(self) -> None:
        """End, the threads as well, and close the files. Blocks for jobs on their way."""
        self.end()
        self._write_worker.close()
        self._read_worker.close()

    def closed(self) -> None:
        """After ``close``, on the loop: forget the store."""
        self._on_credit = self._on_lost = self._on_failed = _unheard


def _still(queue: PagedQueue, places: Places) -> list[tuple[int, int]]:
    """Return the rows that are still live, and their former positions."""
    return [(seq, at) for seq, at in places.items() if queue.position(seq) == at]


def _unheard(*_: object) -> None:
    """The store has ended."""
