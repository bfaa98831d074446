"""The transient store: where messages go that need not survive and must leave RAM.

A queue pages out the contents of transients, then their rows, and reads both back when it gets there.
What is on disk costs no RAM but a few numbers per segment and per queue: a backlog of ten million
messages is ten million rows of an LMDB file, in the page cache of the system.

::

    transient/%08x.rdq     contents, in the layout of all segments (record.py), never synced
    transient/index-*.lmdb (life, seq) -> where the content lies, and the queue's row; never synced

Nothing here is recovered: the folder is wiped when the store starts, so there is no journal and no sync.
A content is named by queue and seq, in the record as well: its number is the seq, and the one queue of
its meta is the *life*, the store's own number for a queue until it is dropped. So a queue that dies and
begins anew at the same seqs never meets what it had before, whether that is deleted yet or not. A message
that several queues page out is written for each: it is rare, a shared content would need counts, and
counts are RAM per message.

::

    loop     TransientStore, PagingCore: what queues say, what is waiting, credit, one job at a time
    writer   TransientWriter: jobs; the only one to write the index, keeps the segments' accounts
    reader   TransientReader: rows and contents

A content that was taken is readable all the time: from RAM until its job is done, then from the disk,
where a reader that was overtaken looks again. Rows that a read finds are what the index says under all
that was said since (``RowsRead``).

Errors. Nothing is lost while the disk refuses: contents are in RAM until they are written, and credit
stops, so that queues keep theirs. What was written and cannot be read is lost: the owner is told, there
is one line in the log per queue, and the rows stay until the owner acks them, for it has counted them.
When the index is unusable everything that is on disk is lost and the store begins with an empty folder.

Turned down: locations in RAM (``storage.md`` 5.9's first plan): 200 bytes per message. A count of
references per content: see above. The persistent store without syncs: it would journal for nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from leveret.core.files import Files
from leveret.core.gil_yielding import Timer
from leveret.core.message import Message
from leveret.msg_store.format.append_log import Reserve
from leveret.msg_store.format.file_header import Identity
from leveret.msg_store.threads.worker import Loop, MakeWorker, Steps, ThreadWorker
from leveret.msg_store.transient.client import (
    Entry,
    GotContents,
    GotRows,
    OnCredit,
    OnFailed,
    OnLost,
    Row,
)
from leveret.msg_store.transient.index import MAP_BYTES, IndexLost, TransientIndex
from leveret.msg_store.transient.paged_queue import PagedQueue, RowsRead
from leveret.msg_store.transient.paging_core import (
    RETRY_S,
    WAITING_BYTES,
    Job,
    Kind,
    News,
    PagingCore,
)
from leveret.msg_store.transient.reader import Contents, TransientReader
from leveret.msg_store.transient.segments import FILE_BYTES, ROOM_BYTES, TransientSegments
from leveret.msg_store.transient.writer import TransientWriter, Write

FOLDER = "transient"

log = logging.getLogger(__name__)


class Limits(NamedTuple):
    """Constants of a transient store, in bytes.

    Attributes:
        file_bytes: when to begin a new segment.
        waiting_bytes: what all queues together may have waiting to be written.
        map_bytes: the index's first map.
        room_bytes: left on the disk, so that there is room for noting what goes.
    """

    file_bytes: int = FILE_BYTES
    waiting_bytes: int = WAITING_BYTES
    map_bytes: int = MAP_BYTES
    room_bytes: int = ROOM_BYTES


class Figures(NamedTuple):
    """What status shows."""

    waiting_bytes: int
    disk_bytes: int
    live: int
    live_bytes: int
    segments: int


class _Swept(NamedTuple):
    """What a job leaves to do."""

    unlinked: list[int]
    has_garbage: bool


class TransientStore:
    """Fulfils ``Transients``; starts with an empty folder. All methods are for the loop.

    Args:
        files: the way to the segments.
        folder: ``transient/`` of a store; made if it is not there. The index lies in it as well.
        identity: for the files' headers and checksums.
        reserve: the ballast.
        loop: where everything is called.
        now_ms: wall time, for time stamps that nothing depends on.
        on_credit: see ``OnCredit``.
        on_lost: see ``OnLost``.
        on_failed: see ``OnFailed``.
        limits: the constants.
        make_worker: makes writer and reader.
        index: the index; tests bring theirs.
    """

    def __init__(
        self,
        files: Files,
        folder: Path,
        identity: Identity,
        reserve: Reserve,
        loop: Loop,
        now_ms: Callable[[], int],
        on_credit: OnCredit,
        on_lost: OnLost,
        on_failed: OnFailed,
        limits: Limits = Limits(),  # noqa: B008  immutable
        make_worker: MakeWorker = ThreadWorker,
        index: TransientIndex | None = None,
    ) -> None:
        index = index or TransientIndex(files, folder, limits.map_bytes)
        segments = TransientSegments(
            files, folder, identity, now_ms, limits.file_bytes, limits.room_bytes
        )
        self._core = PagingCore(limits.waiting_bytes)
        self._writer = TransientWriter(files, segments, index, identity, reserve, now_ms)
        self._reader = TransientReader(files, segments.path, index, identity)
        self._loop = loop
        self._on_credit = on_credit
        self._on_lost = on_lost
        self._on_failed = on_failed
        self._is_closed = False
        self._is_scheduled = False
        self._linger: Timer | None = None
        self._retry: Timer | None = None
        self._write_worker = make_worker(loop, "leveret-transient-writer", self._writer.close)
        self._read_worker = make_worker(loop, "leveret-transient-reader", self._reader.close)
        self._wake()

    # Said by queues; see Transients.

    def page_out(self, queue_no: int, entries: Sequence[Entry], must: bool = False) -> int:
        """Take contents."""
        taken = self._core.page_out(queue_no, entries, must)
        self._wake()
        return taken

    def add(self, queue_no: int, entries: Sequence[Entry]) -> None:
        """Add rows of contents that were taken."""
        self._core.add(queue_no, entries)
        self._wake()

    def ack(self, queue_no: int, entries: Sequence[Entry]) -> None:
        """Remove contents and rows."""
        self._core.ack(queue_no, entries)
        self._wake()

    def ack_range(self, queue_no: int, low: int, high: int) -> None:
        """Remove rows with their contents."""
        self._core.ack_range(queue_no, low, high)
        self._wake()

    def drop_queue(self, queue_no: int) -> None:
        """Forget all of a queue."""
        self._core.drop_queue(queue_no)
        self._wake()

    def holds(self, queue_no: int) -> bool:
        """Whether anything was taken for the queue."""
        return queue_no in self._core.queues

    # Asked by queues.

    def contents(self, queue_no: int, seqs: Sequence[int]) -> list[Message | None]:
        """Return contents that are in RAM, None for others."""
        queue = self._core.queues.get(queue_no)
        return [None] * len(seqs) if queue is None else [queue.message(seq) for seq in seqs]

    def read(self, queue_no: int, seqs: Sequence[int], then: GotContents) -> None:
        """Read contents."""
        queue = self._core.queues.get(queue_no)
        if queue is None:
            self._loop.call_soon(self._tell_nothing, then)
            return
        found: dict[int, Message] = {}
        missing: list[int] = []
        for seq in seqs:
            message = queue.message(seq)
            if message is None:
                missing.append(seq)
            else:
                found[seq] = message
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

        self._read_worker.submit(partial(self._reader.contents, queue.life, seqs), got)

    def _tell_nothing(self, then: GotContents) -> None:
        if not self._is_closed:
            then({})

    def _got(self, queue: PagedQueue, found: dict[int, Message], then: GotContents) -> None:
        if not self._is_over(queue):
            then(found)

    def rows(self, queue_no: int, low: int, high: int, limit: int, then: GotRows) -> None:
        """Find the first rows of a range."""
        queue = self._core.queues.get(queue_no)
        if queue is None:
            self._loop.call_soon(self._tell_no_rows, queue_no, low, high, limit, then)
            return
        request = RowsRead(queue, low, high, limit, then)
        queue.reads.append(request)
        self._ask(request)

    def _tell_no_rows(self, queue_no: int, low: int, high: int, limit: int, then: GotRows) -> None:
        if self.holds(queue_no):  # since it was asked
            self.rows(queue_no, low, high, limit, then)
        elif not self._is_closed:
            then([])

    def _ask(self, request: RowsRead) -> None:
        queue, low = request.queue, request.next_low()
        if self._is_over(queue):
            return
        if low >= request.high or not queue.is_stored:
            self._loop.call_soon(self._got_rows, request, [], request.high)
            return

        def got(answer: tuple[list[Row], int] | None, error: Exception | None) -> None:
            if self._is_over(queue):
                return
            if error is not None and self._must_wait(error):
                self._loop.call_later(RETRY_S, self._ask, request)
            else:
                self._got_rows(request, *(answer or ([], request.high)))

        limits = low, request.high, request.limit
        self._read_worker.submit(partial(self._reader.rows, queue.life, *limits), got)

    def _got_rows(self, request: RowsRead, rows: list[Row], reached: int) -> None:
        if self._is_over(request.queue):
            return
        result = request.take(rows, reached)
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
        return self._core.job is not None  # whose end tells what is lost

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
            self._tell(self._core.news())
        else:
            self._write_worker.submit(partial(self._steps, job), self._finished)

    def _steps(self, job: Job) -> Steps[_Swept]:
        """Carry out a job, on the writer."""
        writer = self._writer
        if job is Kind.COLLECT:
            yield from writer.collect()
        elif job is Kind.RENEW:
            yield from writer.renew()
        elif isinstance(job, Write):
            yield from writer.write(job)
        elif not isinstance(job, Kind):
            yield from writer.delete(job)
        unlinked, writer.segments.unlinked = writer.segments.unlinked, []
        return _Swept(unlinked, writer.has_garbage)

    def _finished(self, swept: _Swept | None, error: Exception | None) -> None:
        if self._is_closed:
            return
        if swept is not None:
            self._core.has_garbage = swept.has_garbage
            if swept.unlinked:
                self._read_worker.submit(partial(self._reader.forgetting, swept.unlinked))
        try:
            news = self._core.finish(error)
        except Exception as bug:  # noqa: BLE001  whatever it is, the owner ends the store
            self._fail(bug)
            return
        if self._core.held and self._retry is None:
            self._retry = self._loop.call_later(RETRY_S, self._retried)
        self._wake()
        self._tell(news)

    def _retried(self) -> None:
        self._retry = None
        self._wake()
        self._tell(self._core.retry())

    # News.

    def _tell(self, news: News) -> None:
        for queue_no in news.credit:
            self._on_credit(queue_no)
        for queue_no in news.lost:
            queue = self._core.queues.get(queue_no)
            if queue is not None:
                self._note_lost(queue, -1)
                self._on_lost(queue_no, None)

    def _note_lost(self, queue: PagedQueue, count: int) -> None:
        if not queue.has_lost:
            queue.has_lost = True
            what = "all on disk" if count < 0 else count
            log.warning("transients of a queue are lost queue_no=%d count=%s", queue.queue_no, what)

    def _fail(self, error: Exception) -> None:
        self._is_closed = True
        self._core.is_stalled = True  # nothing is taken any more but what must be
        self._on_failed(error)

    def figures(self) -> Figures:
        """Return figures; those of the disk are as of some job."""
        total = self._writer.segments.total
        return Figures(
            self._core.waiting_bytes,
            total.size_bytes,
            total.live,
            total.live_bytes,
            len(self._writer.segments.accounts),
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
