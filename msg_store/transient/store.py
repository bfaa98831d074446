"""The transient store: where queues page out messages that need not survive.

A queue pages out contents of transients and reads rows and contents back when it gets there. A message on
disk costs no RAM, only a few numbers per segment and per queue: a backlog of ten million messages is ten
million rows of an LMDB file, in the page cache of the system.

::

    transient/%08x.rdq     contents, in the layout of all segments (record.py), never synced
    transient/index-*.lmdb (incarnation, seq) -> where the content lies, and the queue's row; never synced

Nothing here is recovered: the folder is wiped when the store starts, so there is no journal and no sync.
A content is named by queue and seq, in its record as well: the record's number is the seq, and the one
queue of its meta is the *incarnation*, the store's own number for a queue until it is dropped. So a queue
that dies and begins anew at the same seqs never meets its contents of before, deleted yet or not. A
message that several queues page out is written for each: it is rare, a shared content would need counts,
and counts are RAM per message.

::

    loop     TransientStore, PagingCore: calls of queues, waiting contents, credit, one job at a time
    writer   TransientWriter: jobs; alone writes the index and the segments, and counts live records
    reader   TransientReader: rows and contents

A content can be read at any time: from RAM until its job is done, then from the disk, where a reader that
was overtaken looks again. Its row can be read as well, from the call of ``page_out`` on; a read overlays
the rows of the index with all calls since (``RowsRead``).

Errors. Nothing is lost while the disk refuses: contents are in RAM until they are written, and credit
stops, so that queues keep theirs. A content that was written and cannot be read is lost: the owner is
told, there is one line in the log per queue, and the row stays until the owner acks it, for it has counted
it. When the index is unusable everything that is on disk is lost and the store begins with an empty folder.

Turned down (decision 0012): locations in RAM, 200 bytes per message. A count of references per content: see
above. A second instance of the persistent store without journal and syncs.
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
from leveret.msg_store.format.ballast import Ballast
from leveret.msg_store.format.file_header import Identity
from leveret.msg_store.format.folder import StorePaths
from leveret.msg_store.format.seq_range import SeqRange
from leveret.msg_store.threads.worker import Loop, MakeWorker, ThreadWorker
from leveret.msg_store.transient.index import (
    LIMITS,
    GotContents,
    GotRows,
    IndexLost,
    Limits,
    Row,
    TransientIndex,
)
from leveret.msg_store.transient.paged_queue import PagedQueue, RowsRead
from leveret.msg_store.transient.paging_core import RETRY_S, Notices, PagingCore
from leveret.msg_store.transient.reader import Contents, TransientReader
from leveret.msg_store.transient.segments import TransientSegments
from leveret.msg_store.transient.writer import TransientWriter

FOLDER = "transient"

OnCredit: TypeAlias = Callable[[int], None]
"""The queue with this number may page out again."""

OnLost: TypeAlias = Callable[[int, "list[int] | None"], None]
"""Contents of this queue, by seq, cannot be read any more; None: all of it that was on disk is lost, and
the rows are gone as well."""

OnFailed: TypeAlias = Callable[[Exception], None]
"""A bug; the store does nothing any more and should be closed."""

log = logger(__name__)


class Figures(NamedTuple):
    """Figures for the store's status."""

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
        folder: ``transient/`` of a store; made if it is not there. The index lies in it as well.
    """

    def __init__(
        self,
        files: Files,
        folder: Path,
        identity: Identity,
        ballast: Ballast,
        loop: Loop,
        now_ms: Callable[[], int],
        on_credit: OnCredit,
        on_lost: OnLost,
        on_failed: OnFailed,
        limits: Limits = LIMITS,
        make_worker: MakeWorker = ThreadWorker,
        index: TransientIndex | None = None,
    ) -> None:
        paths = StorePaths(files, folder)
        paths.rdq, paths.uuid = folder, identity.uuid
        index = index or TransientIndex(files, folder, limits.map_bytes)
        segments = TransientSegments(paths, identity, now_ms, limits)
        self._core = PagingCore(limits.waiting_bytes)
        self._writer = TransientWriter(segments, index, ballast)
        self._reader = TransientReader(paths, index)
        self._loop = loop
        self._on_credit = on_credit
        self._on_lost = on_lost
        self._on_failed = on_failed
        self._is_closed = False
        # For rows of queues of which nothing is held, by queue, until the next turn.
        self._asked: dict[int, list[tuple[int, int, int, GotRows]]] = {}
        self._is_scheduled = False
        self._linger: TimerHandle | None = None
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
        self._asked.pop(queue_no, None)
        self._wake()

    def holds(self, queue_no: int) -> bool:
        """Whether anything was taken for the queue; if not, there is nothing to read."""
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
        queue = self._core.queues.get(queue_no)
        if queue is None:
            self._loop.call_soon(self._tell_nothing, then)
            return
        in_ram = dict(zip(seqs, queue.messages(seqs), strict=True))
        found = {seq: message for seq, message in in_ram.items() if message is not None}
        missing = [seq for seq, message in in_ram.items() if message is None]
        if missing:
            self._read(queue, missing, found, then)
        else:
            self._loop.call_soon(self._got, queue, found, then)

    def _read(
        self, queue: PagedQueue, seqs: list[int], found: dict[int, Message], then: GotContents
    ) -> None:
        if self._is_over(queue):
            return

        def got(contents: Contents | None, error: Exception | None) -> None:
            if self._is_over(queue):
                return
            if error is not None and self._must_wait(error):
                self._loop.call_later(RETRY_S, self._read, queue, seqs, found, then)
                return
            if contents is not None and contents.lost:
                self._note_lost(queue, len(contents.lost))
                self._on_lost(queue.queue_no, contents.lost)
            self._got(queue, found | contents.found if contents else found, then)

        self._read_worker.submit(partial(self._reader.contents, queue.incarnation, seqs), got)

    def _tell_nothing(self, then: GotContents) -> None:
        if not self._is_closed:
            then({})

    def _got(self, queue: PagedQueue, found: dict[int, Message], then: GotContents) -> None:
        if not self._is_over(queue):
            then(found)

    def rows(self, queue_no: int, low: int, high: int, limit: int, then: GotRows) -> None:
        """Find the first ``limit`` rows with ``low <= seq < high``; ``then`` gets them, ascending.

        They are right as of the turn in which ``then`` is called.
        """
        queue = self._core.queues.get(queue_no)
        if queue is None:
            asked = self._asked.setdefault(queue_no, [])
            asked.append((low, high, limit, then))
            self._loop.call_soon(self._tell_no_rows, queue_no)
            return
        request = RowsRead(queue, low, high, limit, then)
        queue.reads.append(request)
        self._ask(request)

    def _tell_no_rows(self, queue_no: int) -> None:
        for low, high, limit, then in self._asked.pop(queue_no, ()):
            if self.holds(queue_no):  # since it was asked
                self.rows(queue_no, low, high, limit, then)
            elif not self._is_closed:
                then([])

    def _ask(self, request: RowsRead) -> None:
        queue, low = request.queue, request.next_low()
        if self._is_over(queue):
            return
        if low >= request.high or not queue.is_stored:
            self._loop.call_soon(self._got_rows, request, [])
            return

        def got(rows: list[Row] | None, error: Exception | None) -> None:
            if self._is_over(queue):
                return
            if error is not None and self._must_wait(error):
                self._loop.call_later(RETRY_S, self._ask, request)
            else:
                self._got_rows(request, rows or [])

        limits = low, request.high, request.limit
        self._read_worker.submit(partial(self._reader.rows, queue.incarnation, *limits), got)

    def _got_rows(self, request: RowsRead, rows: list[Row]) -> None:
        if self._is_over(request.queue):
            return
        result = request.take(rows)
        if result is None:
            self._ask(request)
            return
        request.queue.reads.remove(request)
        request.then(result)

    def _is_over(self, queue: PagedQueue) -> bool:
        return self._is_closed or self._core.queues.get(queue.queue_no) is not queue

    def _must_wait(self, error: Exception) -> bool:
        """See to an error of the reader; return whether it should read again, later."""
        if isinstance(error, OSError):
            return True
        if not isinstance(error, IndexLost):
            self._fail(error)
            return False
        self._tell(self._core.lose_index())
        self._wake()
        return self._core.job is not None  # its end tells which queues have lost contents

    # Jobs.

    def _wake(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_scheduled = False
        if self._is_closed:
            return
        delay_s = self._core.delay_s()
        if delay_s == 0.0:
            self._start()
        elif delay_s is not None and self._linger is None:
            self._linger = self._loop.call_later(delay_s, self._lingered)

    def _lingered(self) -> None:
        self._linger = None
        if self._core.job is None and not self._is_closed:
            self._start()

    def _start(self) -> None:
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        job = self._core.start()
        if job is None:
            self._tell(self._core.notices())
        else:
            self._write_worker.submit(partial(self._writer.run, job), self._finished)

    def _finished(self, unlinked: list[int] | None, error: Exception | None) -> None:
        if self._is_closed:
            return
        if error is None:
            self._core.has_garbage = self._writer.has_garbage
        if unlinked:
            self._read_worker.submit(partial(self._reader.forget, unlinked))
        try:
            notices = self._core.finish(error)
        except Exception as bug:  # noqa: BLE001  the owner ends the store
            self._fail(bug)
            return
        if self._core.held and self._retry is None:
            self._retry = self._loop.call_later(RETRY_S, self._retried)
        self._wake()
        self._tell(notices)

    def _retried(self) -> None:
        self._retry = None
        self._wake()
        self._tell(self._core.retry())

    # Notices.

    def _tell(self, notices: Notices) -> None:
        for queue_no in notices.credit:
            self._on_credit(queue_no)
        for queue_no in notices.lost:
            queue = self._core.queues.get(queue_no)
            if queue is not None:
                self._note_lost(queue, -1)
                self._on_lost(queue_no, None)

    def _note_lost(self, queue: PagedQueue, count: int) -> None:
        if not queue.has_lost:
            queue.has_lost = True
            lost = "all on disk" if count < 0 else count
            log.warning("transients of a queue are lost queue_no=%d count=%s", queue.queue_no, lost)

    def _fail(self, error: Exception) -> None:
        self._is_closed = True
        self._core.is_stalled = True  # only ``must`` is served any more
        self._on_failed(error)

    def figures(self) -> Figures:
        """Return figures; those of the disk are as of the last job."""
        total = self._writer.segments.total
        return Figures(
            self._core.waiting_bytes,
            total.size_bytes,
            total.live,
            total.live_bytes,
            len(self._writer.segments.usage),
        )

    def end(self) -> None:
        """Call no callback any more."""
        self._is_closed = True
        for timer in (self._linger, self._retry):
            if timer is not None:
                timer.cancel()

    def close(self) -> None:
        """End, the threads as well, and close the files. Blocks for jobs on their way."""
        self.end()
        self._write_worker.close()
        self._read_worker.close()
        self._writer.index.close()
