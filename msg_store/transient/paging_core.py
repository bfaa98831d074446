"""The transient store's queues, their credit, and its jobs, one at a time. Without I/O.

Calls pile up in each queue's ``PagedQueue``. When no job is on its way the next one is made: ``Write``,
``Delete`` and ``Collect`` take turns, as far as there is work for each, so that none starves. Contents
are written at once, to free RAM; ranges and dropped queues are deleted at once, to free the disk; acks
linger, to share a transaction.

Credit. A queue may have 4,000 contents waiting and gets 800 back when so many have been written
(RabbitMQ's ``{4000, 800}``); all queues together may have 64 MiB waiting. A queue that was refused is told
when at most half of that is waiting. While the disk refuses, no queue gets credit; every second the job is
tried again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final, TypeAlias

from leveret.core.entry import SEQ, SIZE, Entry
from leveret.core.log.loggers import logger
from leveret.msg_store.format.seq_range import SeqRange
from leveret.msg_store.transient.index import SEQ_END, IndexLost, Key, KeyRange
from leveret.msg_store.transient.paged_queue import PagedQueue, size_of

JOB_OPS: Final = 1_000
JOB_BYTES: Final = 1024 * 1024
DELETE_OPS: Final = 4_000
RANGES_MAX: Final = 1_000
LINGER_S: Final = 0.2  # for acks
RETRY_S: Final = 1.0  # while the disk refuses

log = logger(__name__)


@dataclass(slots=True)
class Write:
    """Write contents, each an entry of an incarnation, into a segment and the index."""

    contents: list[tuple[int, Entry]]


@dataclass(slots=True)
class Delete:
    """Delete keys and ranges from the index; ``left`` has those of the last ranges that are left afterwards."""

    keys: list[Key]
    ranges: list[KeyRange]
    left: list[KeyRange]


class Collect:
    """Copy forward the live records of a slice of a segment."""


class Renew:
    """Begin with an empty folder."""


Job: TypeAlias = Write | Delete | Collect | Renew

_TURNS: Final[list[type[Job]]] = [Delete, Write, Collect]


@dataclass(slots=True)
class Notices:
    """Queues to notify.

    Attributes:
        credit: refused before, they may page out again.
        lost: all their contents on disk are lost.
    """

    credit: list[int] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)


class PagingCore:
    """The queues and the jobs. For one thread.

    Attributes:
        is_stalled: the disk has refused contents, and not taken any since.
        has_garbage: as the last job has found it.
        waiting_bytes: contents that are in RAM until they are written.
        held: kinds of jobs that the disk has refused; not tried before ``retry``.
    """

    def __init__(self, waiting_bytes_max: int) -> None:
        self.queues: dict[int, PagedQueue] = {}
        self.job: Job | None = None
        self.is_stalled = False
        self.has_garbage = False
        self.waiting_bytes = 0
        self.held: set[type[Job]] = set()
        self._waiting_bytes_max = waiting_bytes_max
        self._next_incarnation = 1
        self._living: dict[int, PagedQueue] = {}  # by incarnation, as the three that follow
        self._to_write: dict[int, PagedQueue] = {}  # those with contents
        self._to_delete: dict[int, PagedQueue] = {}  # those with acks
        self._refused: dict[int, PagedQueue] = {}
        self._in_flight: list[PagedQueue] = []
        self._ranges: deque[KeyRange] = deque()
        self._acks = 0  # that wait, at most
        self._needs_renewal = True
        self._is_lost = False  # found while a job was on its way
        self._last: type[Job] = Collect

    # Calls of queues.

    def page_out(self, queue_no: int, entries: Sequence[Entry], must: bool) -> int:
        queue = self.queues.get(queue_no) or self._begin(queue_no)
        taken = len(entries)
        sizes = list(accumulate([entry[SIZE] for entry in entries]))
        if not must:
            taken = min(taken, self._room(queue, sizes))
            if taken < len(entries):
                self._refused[queue.incarnation] = queue
        if taken:
            queue.page_out(entries[:taken])
            self.waiting_bytes += sizes[taken - 1]
            self._to_write[queue.incarnation] = queue
        return taken

    def _room(self, queue: PagedQueue, sizes: list[int]) -> int:
        room = self._waiting_bytes_max - self.waiting_bytes
        if self.is_stalled or queue.credit <= 0 or room <= 0:
            return 0
        return min(queue.credit, bisect_left(sizes, room) + 1)  # the last one may pass the limit

    def _begin(self, queue_no: int) -> PagedQueue:
        queue = PagedQueue(queue_no, self._next_incarnation)
        self._next_incarnation += 1
        self.queues[queue_no] = self._living[queue.incarnation] = queue
        return queue

    def ack(self, queue_no: int, entries: Sequence[Entry]) -> None:
        queue = self.queues.get(queue_no)
        if queue is not None:
            self.waiting_bytes -= queue.ack([entry[SEQ] for entry in entries])
            self._acks += len(entries)
            self._note(queue)

    def ack_range(self, queue_no: int, seqs: SeqRange) -> None:
        queue = self.queues.get(queue_no)
        if queue is not None:
            self.waiting_bytes -= queue.ack_range(seqs)
            if queue.is_on_disk:
                self._ranges.append(KeyRange(queue.incarnation, seqs, seqs.low))
            self._note(queue)

    def _note(self, queue: PagedQueue) -> None:
        if queue.acks:
            self._to_delete[queue.incarnation] = queue
        if not queue.contents:
            self._to_write.pop(queue.incarnation, None)

    def drop_queue(self, queue_no: int) -> None:
        queue = self.queues.pop(queue_no, None)
        if queue is None:
            return
        incarnation = queue.incarnation
        for table in (self._living, self._to_write, self._to_delete, self._refused):
            table.pop(incarnation, None)
        if queue.is_on_disk:
            self._ranges.append(KeyRange(incarnation, SeqRange(0, SEQ_END), 0))
        self.waiting_bytes -= size_of(queue.contents.values())
        queue.contents, queue.acks = {}, {}

    # Calls of the driver.

    def delay_s(self) -> float | None:
        """Tell in how many seconds ``start`` should be called; None: not before the next call."""
        if self.job is not None:
            return None
        if self._needs_renewal:
            return None if Renew in self.held else 0.0
        due: list[tuple[type[Job], object]] = [
            (Write, self._to_write),
            (Delete, self._ranges or self._acks >= JOB_OPS),
            (Collect, self.has_garbage),
        ]
        if any(is_due and kind not in self.held for kind, is_due in due):
            return 0.0
        return LINGER_S if self._acks and Delete not in self.held else None

    def start(self) -> Job | None:
        """Make the next job, also of acks that could wait; None if there is no work."""
        assert self.job is None, "one job at a time"
        if self._needs_renewal:
            self.job = None if Renew in self.held else Renew()
            return self.job
        first = _TURNS.index(self._last) + 1
        for kind in _TURNS[first:] + _TURNS[:first]:
            if kind not in self.held:
                self.job = self._made(kind)
            if self.job is not None:
                self._last = kind
                return self.job
        self._count_acks()
        return None

    def _made(self, kind: type[Job]) -> Job | None:
        if kind is Collect:
            return Collect() if self.has_garbage else None
        return self._write() if kind is Write else self._delete()

    def _write(self) -> Write | None:
        contents: list[tuple[int, Entry]] = []
        count, size_bytes = JOB_OPS, JOB_BYTES
        while self._to_write and count > 0 and size_bytes > 0:
            queue = self._to_write.pop(next(iter(self._to_write)))
            taken = queue.take_contents(count, size_bytes)
            contents += [(queue.incarnation, entry) for entry in taken]
            count, size_bytes = count - len(taken), size_bytes - size_of(taken)
            self._in_flight.append(queue)
            if queue.contents:
                self._to_write[queue.incarnation] = queue  # behind the others, for the next job
        return Write(contents) if contents else None

    def _delete(self) -> Delete | None:
        keys: list[Key] = []
        while self._to_delete and len(keys) < DELETE_OPS:
            queue = self._to_delete.pop(next(iter(self._to_delete)))
            if taken := queue.take_acks(DELETE_OPS - len(keys)):  # none if their write has failed
                keys += taken
                self._in_flight.append(queue)
            if queue.acks:
                self._to_delete[queue.incarnation] = queue
        take = self._ranges.popleft
        ranges = [take() for _ in range(min(RANGES_MAX, len(self._ranges)))]
        return Delete(keys, ranges, ranges) if keys or ranges else None

    def finish(self, error: Exception | None) -> Notices:
        """Note that the job has ended, well or with an error.

        Raises:
            Exception: the error is a bug; nothing that was taken is lost.
        """
        job, self.job = self.job, None
        assert job is not None, "no job was started"
        is_lost, self._is_lost = self._is_lost or isinstance(error, IndexLost), False
        if error is None and not is_lost:
            self._done(job)
        else:
            self._failed(job)
        if is_lost:
            return self._lose()
        if error is not None and not isinstance(error, OSError):
            raise error
        self._note_outcome(job, error)
        self._count_acks()
        return self.notices()

    def _note_outcome(self, job: Job, error: OSError | None) -> None:
        if error is not None:
            self.held.add(type(job))
        if isinstance(job, Delete | Collect):
            return
        if error is not None and not self.is_stalled:
            log.warning("transients cannot be written and stay in memory: %s", error)
        elif error is None and self.is_stalled:
            log.info("transients can be written again")
        self.is_stalled = error is not None

    def retry(self) -> Notices:
        """Try the jobs again that the disk has refused."""
        self.held.clear()
        if not self._to_write and not self._needs_renewal:
            self.is_stalled = False
        return self.notices()

    def _count_acks(self) -> None:
        self._acks = sum(len(queue.acks) for queue in self._to_delete.values())

    def _done(self, job: Job) -> None:
        for queue in self._in_flight:
            self.waiting_bytes -= queue.job_done()
        self._in_flight.clear()
        if isinstance(job, Renew):
            self._needs_renewal = False
        elif isinstance(job, Delete):
            self._advance(job)

    def _advance(self, job: Delete) -> None:
        """Forget the ranges that have been deleted; go on with the others in the next job."""
        done = len(job.ranges) - len(job.left)
        for keys in job.ranges[:done]:
            queue = self._living.get(keys.incarnation)
            if queue is not None:
                queue.deleting.remove(keys.seqs)
        self._ranges.extendleft(reversed(job.left))

    def _failed(self, job: Job) -> None:
        for queue in self._in_flight:
            self.waiting_bytes -= queue.job_failed()
            if self._living.get(queue.incarnation) is not queue:  # dropped meanwhile
                self.waiting_bytes -= size_of(queue.contents.values())
                continue
            if queue.contents:
                self._to_write = {queue.incarnation: queue} | self._to_write
            self._note(queue)
        self._in_flight.clear()
        if isinstance(job, Delete):
            self._ranges.extendleft(reversed(job.ranges))

    def lose_index(self) -> Notices:
        """Note that the reader has found the index unusable."""
        if self.job is not None:
            self._is_lost = True
            return Notices()
        if self._needs_renewal:
            return Notices()
        return self._lose()

    def _lose(self) -> Notices:
        self._needs_renewal = True
        self.has_garbage = False
        self._ranges.clear()
        self._to_delete.clear()
        lost = [queue for queue in self.queues.values() if queue.is_stored]
        for queue in self.queues.values():
            queue.lose()
        self._count_acks()
        log.warning("the index of transients is unusable and made anew queues_lost=%d", len(lost))
        return Notices(lost=[queue.queue_no for queue in lost])

    def notices(self) -> Notices:
        """Return, once, the queues that may page out again."""
        if self.is_stalled or 2 * self.waiting_bytes > self._waiting_bytes_max:
            return Notices()
        granted = [queue for queue in self._refused.values() if queue.credit > 0]
        for queue in granted:
            del self._refused[queue.incarnation]
        return Notices(credit=[queue.queue_no for queue in granted])
