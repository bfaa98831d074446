"""The transient store's queues, their credit, its segments and its jobs, one at a time. Without I/O.

Contents pile up in each queue's ``PagedQueue``. When no job is on its way the next one is made: ``Write`` and
``Unlink`` take turns, so that neither starves. All queues write to one segment until it is full; a segment
without live messages is unlinked, but for that one.

Credit. A queue may have 4,000 contents waiting and gets 800 back when so many have been written
(RabbitMQ's ``{4000, 800}``); all queues together may have 64 MiB waiting. A queue that was refused is told
when at most half of that is waiting. While the disk refuses, no queue gets credit; every second the job is
tried again.

Garbage. In a queue that drains a segment is soon without live messages, and goes. Messages that one slow queue
keeps among those of fast ones are written anew, by RabbitMQ's rule: when there are more bytes than twice a full
segment's, and more than half of them are garbage, the live messages of the emptiest segment are read back, a part
at a time. So the disk holds at most about twice the live bytes, and two segments. A damaged message makes
its segment stay until all that it holds is acked.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import Final, NamedTuple, TypeAlias

from leveret.core.entry import SEQ, SIZE, Entry
from leveret.core.log.loggers import logger
from leveret.core.system.shortage import is_disk_full
from leveret.msg_store.format.seq_range import SeqRange
from leveret.msg_store.transient.paged_queue import PagedQueue, size_of
from leveret.msg_store.transient.segment import (
    FILE_NO_MAX,
    OVERHEAD_BYTES,
    QUEUE_NO,
    ROW_BITS,
    ROW_SIZE,
    ROWS,
    Fields,
    Segment,
)

JOB_OPS: Final = 1_000
JOB_BYTES: Final = 1024 * 1024
UNLINK_FILES: Final = 100
DELETE_WORK: Final = 1_500  # in one turn, some 2 ms
RETRY_S: Final = 1.0  # while the disk refuses

log = logger(__name__)


class Limits(NamedTuple):
    """Constants of a transient store, in bytes."""

    file_bytes: int = 16 * 1024 * 1024  # a segment of this length is full; RabbitMQ's
    waiting_bytes: int = 64 * 1024 * 1024  # of contents that all queues together may have waiting
    room_bytes: int = 16 * 1024 * 1024  # left free on the disk, for those who must write


LIMITS: Final = Limits()


class Wipe:
    """Begin with an empty folder."""


@dataclass(slots=True)
class Write:
    """Write contents and rows to a segment; ``end`` is where they end afterwards.

    A content is an entry of the queue with this number.
    """

    segment: Segment
    contents: list[tuple[int, Entry]]
    end: int = 0


@dataclass(slots=True)
class Unlink:
    """Unlink segments; ``unlinked`` gets the unlinked ones."""

    segments: list[Segment]
    unlinked: list[int]


Job: TypeAlias = Wipe | Write | Unlink


class PagingCore:
    """The queues and the jobs. For one thread.

    Attributes:
        is_stalled: the disk has refused contents, and not taken any since.
        waiting_bytes: contents that are in RAM until they are written.
        segments: by number; the last one may be in use.
        size_bytes, live, live_bytes: of all segments.
        held: kinds of jobs that the disk has refused; not tried before ``retry``.
    """

    def __init__(self, limits: Limits = LIMITS) -> None:
        self.queues: dict[int, PagedQueue] = {}
        self.job: Job | None = None
        self.is_stalled = False
        self.waiting_bytes = 0
        self.segments: dict[int, Segment] = {}
        self.size_bytes = self.live = self.live_bytes = 0
        self.held: set[type[Job]] = set()
        self._limits = limits
        self._current: Segment | None = None
        self._file_no = 0
        # A dict would walk over all that have been taken from its front.
        self._to_write: OrderedDict[PagedQueue, None] = OrderedDict()  # those with contents
        self._to_delete: OrderedDict[PagedQueue, None] = OrderedDict()  # with ranges, or dropped
        self._refused: dict[PagedQueue, None] = {}
        self._in_flight: list[tuple[PagedQueue, list[Entry]]] = []
        self._dead: dict[Segment, None] = {}  # segments without live messages
        self._needs_wipe = True
        self._last: type[Job] = Unlink

    # Calls of queues.

    def queue(self, queue_no: int) -> PagedQueue:
        """Return a queue, which begins with this call if there is none."""
        queue = self.queues.get(queue_no)
        if queue is None:
            queue = self.queues[queue_no] = PagedQueue(queue_no, self._release)
        return queue

    def _release(self, position: int, count: int, size_bytes: int) -> None:
        segment = self.segments[position >> ROW_BITS]
        if size_bytes < 0:
            size_bytes = segment.live_bytes * count // segment.live
        else:
            size_bytes = min(size_bytes + count * OVERHEAD_BYTES, segment.live_bytes)
        segment.live -= count
        if not segment.live:
            size_bytes = segment.live_bytes
            if segment is not self._current:
                self._dead[segment] = None
        segment.live_bytes -= size_bytes
        self.live -= count
        self.live_bytes -= size_bytes

    def page_out(self, queue_no: int, entries: Sequence[Entry], must: bool) -> int:
        queue = self.queue(queue_no)
        taken = len(entries)
        sizes = list(accumulate([entry[SIZE] for entry in entries]))
        if not must:
            taken = min(taken, self._room(queue, sizes))
            if taken < len(entries):
                self._refused[queue] = None
        if taken:
            queue.page_out(entries[:taken])
            self.waiting_bytes += sizes[taken - 1]
            self._to_write[queue] = None
        return taken

    def _room(self, queue: PagedQueue, sizes: list[int]) -> int:
        room = self._limits.waiting_bytes - self.waiting_bytes
        if self.is_stalled or queue.credit <= 0 or room <= 0:
            return 0
        return min(queue.credit, bisect_left(sizes, room) + 1)  # the last one may pass the limit

    def ack(self, queue_no: int, entries: Sequence[Entry]) -> None:
        queue = self.queues.get(queue_no)
        if queue is not None:
            self.waiting_bytes -= queue.ack(entries)
            if not queue.contents:
                self._to_write.pop(queue, None)

    def ack_range(self, queue_no: int, seqs: SeqRange) -> None:
        queue = self.queues.get(queue_no)
        if queue is not None:
            self.waiting_bytes -= queue.ack_range(seqs)
            if not queue.contents:
                self._to_write.pop(queue, None)
            if queue.deleting:
                self._to_delete[queue] = None

    def drop_queue(self, queue_no: int) -> None:
        queue = self.queues.pop(queue_no, None)
        if queue is None:
            return
        self._to_write.pop(queue, None)
        self._refused.pop(queue, None)
        self.waiting_bytes -= size_of(queue.contents.values()) + size_of(queue.in_flight.values())
        queue.contents, queue.in_flight = {}, {}
        self.lose(queue)

    def lose(self, queue: PagedQueue) -> None:
        """Forget all of a queue that is on the disk."""
        self._to_delete.pop(queue, None)
        self._to_delete[queue.detach()] = None

    # Calls of the driver.

    def delete(self) -> bool:
        """Remove messages of ranges, as many as one turn has time for; return whether some are left."""
        work = DELETE_WORK
        while self._to_delete and work > 0:
            queue = next(iter(self._to_delete))
            work = queue.delete(work)
            if not queue.deleting:
                del self._to_delete[queue]
        return bool(self._to_delete)

    def start(self) -> Job | None:
        """Make the next job; None if there is no work."""
        assert self.job is None, "one job at a time"
        if self._needs_wipe:
            self.job = None if Wipe in self.held else Wipe()
            return self.job
        for kind in (Unlink, Write) if self._last is Write else (Write, Unlink):
            if self.job is None and kind not in self.held:
                self.job = self._write() if kind is Write else self._unlink()
        if self.job is not None:
            self._last = type(self.job)
        elif not self._to_write and Write not in self.held:
            self.is_stalled = False  # what the disk refused has been acked
        return self.job

    def _write(self) -> Write | None:
        contents: list[tuple[int, Entry]] = []
        count, size_bytes = JOB_OPS, JOB_BYTES
        while self._to_write and count > 0 and size_bytes > 0:
            queue, _ = self._to_write.popitem(last=False)
            taken = queue.take_contents(count, size_bytes)
            contents += [(queue.queue_no, entry) for entry in taken]
            count, size_bytes = count - len(taken), size_bytes - size_of(taken)
            self._in_flight.append((queue, taken))
            if queue.contents:
                self._to_write[queue] = None  # behind the others, for the next job
        return Write(self._segment(), contents) if contents else None

    def _segment(self) -> Segment:
        """Return the segment to write to, which has room for the rows of a job."""
        current = self._current
        if current is not None and (
            current.size_bytes >= self._limits.file_bytes or current.rows + JOB_OPS > ROWS
        ):
            self._leave()
        if self._current is None:
            while not self._file_no or self._file_no in self.segments:
                self._file_no = self._file_no % FILE_NO_MAX + 1
            self._current = self.segments[self._file_no] = Segment(self._file_no)
            self.size_bytes += self._current.size_bytes
        return self._current

    def _leave(self) -> None:
        current, self._current = self._current, None
        if current is not None and not current.live:
            self._dead[current] = None

    def _unlink(self) -> Unlink | None:
        segments = [*islice(self._dead, UNLINK_FILES)]
        return Unlink(segments, []) if segments else None

    def finish(self, error: Exception | None) -> None:
        """Note that the job has ended, well or with an error.

        Raises:
            Exception: the error is a bug; nothing that was taken is lost.
        """
        job, self.job = self.job, None
        assert job is not None, "no job was started"
        if isinstance(job, Write):
            self._written(job, error)
        elif isinstance(job, Unlink):
            for file_no in job.unlinked:
                segment = self.segments.pop(file_no)
                del self._dead[segment]
                self.size_bytes -= segment.size_bytes
        elif error is None:
            self._needs_wipe = False
        if error is not None and not isinstance(error, OSError):
            raise error
        if error is not None:
            self.held.add(type(job))
        if not isinstance(job, Unlink):
            self._note_outcome(error)

    def _written(self, job: Write, error: Exception | None) -> None:
        in_flight, self._in_flight = self._in_flight, []
        if error is not None:
            for queue, _ in reversed(in_flight):
                queue.put_back()
                if queue.contents:
                    self._to_write[queue] = None
                    self._to_write.move_to_end(queue, last=False)
            if not is_disk_full(error):
                self._leave()
            return
        segment, count = job.segment, len(job.contents)
        position = segment.position
        live_bytes = size_of([entry for _, entry in job.contents]) + count * OVERHEAD_BYTES
        self.size_bytes -= segment.size_bytes
        segment.rows, segment.end = segment.rows + count, job.end
        self.size_bytes += segment.size_bytes
        segment.live, self.live = segment.live + count, self.live + count
        segment.live_bytes += live_bytes
        self.live_bytes += live_bytes
        for queue, entries in in_flight:
            self.waiting_bytes -= queue.written(entries, position)
            position += len(entries)

    def _note_outcome(self, error: Exception | None) -> None:
        if error is not None and not self.is_stalled:
            log.warning("transients cannot be written and stay in memory: %s", error)
        elif error is None and self.is_stalled:
            log.info("transients can be written again")
        self.is_stalled = error is not None

    def retry(self) -> None:
        """Try the jobs again that the disk has refused."""
        self.held.clear()

    def granted(self) -> list[int]:
        """Return, once, the queues that were refused and may page out again."""
        if self.is_stalled or 2 * self.waiting_bytes > self._limits.waiting_bytes:
            return []
        granted = [queue for queue in self._refused if queue.credit > 0]
        for queue in granted:
            del self._refused[queue]
        return [queue.queue_no for queue in granted]

    # Garbage.

    def victim(self) -> Segment | None:
        """Return a segment whose live messages should be written anew; None when there is little garbage."""
        total = self.size_bytes
        if total <= 2 * self._limits.file_bytes or 2 * self.live_bytes >= total:
            return None
        if self.is_stalled or 2 * self.waiting_bytes > self._limits.waiting_bytes:
            return None
        shares = [
            (segment.live_bytes / segment.size_bytes, file_no)
            for file_no, segment in self.segments.items()
            if segment.live and segment is not self._current and segment.scanned < segment.rows
        ]
        share, file_no = min(shares, default=(1.0, 0))
        return self.segments[file_no] if share < 0.5 else None

    def to_move(self, segment: Segment, fields: dict[int, Fields]) -> dict[int, PagedQueue]:
        """Return whose the live ones of rows are, by position, as many as one job may have; the others are next."""
        found: dict[int, PagedQueue] = {}
        size_bytes = 0
        if not fields:
            segment.scanned = segment.rows  # they are damaged
        for position, row in fields.items():
            segment.scanned = (position & ROWS - 1) + 1
            queue = self.queues.get(row[QUEUE_NO])
            if queue is not None and queue.position(row[SEQ]) == position:
                found[position] = queue
                size_bytes += row[ROW_SIZE]
                if size_bytes >= JOB_BYTES:
                    break
        return found

    def move(self, queue: PagedQueue, entry: Entry, position: int) -> None:
        """Have a content that was read back written anew, if it has not been acked meanwhile."""
        if self.queues.get(queue.queue_no) is queue and queue.position(entry[SEQ]) == position:
            queue.ack([entry])
            self.page_out(queue.queue_no, [entry], must=True)
