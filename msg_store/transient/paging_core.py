"""What the transient store has to do next: queues, their credit, and one job at a time. Without I/O.

A queue's statements pile up in its ``PagedQueue``. When no job is on its way, the next is made of what
there is: ``Write``, ``Delete`` and ``Collect`` in turns, as far as there is something for each, so that
none waits for ever behind the others. Somebody waits for contents to leave RAM, and a dropped queue or a
purge for space, so these are done at once; acks and rows of what is on disk wait for company.

Credit. A queue may have 4,000 contents waiting and gets 800 back when so many have been written
(RabbitMQ's ``{4000, 800}``); all queues together may have 64 MiB waiting. Who was refused is told when
there is half of that again. While the disk refuses, nobody gets credit; every second it is tried again.
"""

from __future__ import annotations

import enum
import logging
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final, TypeAlias

from leveret.msg_store.transient.client import SEQ, SIZE, Entry
from leveret.msg_store.transient.index import SEQ_END, Doomed, IndexLost, Key
from leveret.msg_store.transient.paged_queue import PagedQueue, size_of
from leveret.msg_store.transient.writer import Delete, Unwritten, Write

JOB_OPS: Final = 1_000
JOB_BYTES: Final = 1024 * 1024
DELETE_OPS: Final = 4_000
RANGES_MAX: Final = 1_000
WAITING_BYTES: Final = 64 * 1024 * 1024
LINGER_S: Final = 0.2  # for acks and rows
RETRY_S: Final = 1.0  # while the disk refuses

log = logging.getLogger(__name__)


class Kind(enum.Enum):
    """What a job does; two of them are jobs without more."""

    WRITE = "contents and rows into segments and index"
    DELETE = "keys out of the index, empty segments off the disk"
    COLLECT = "copy what is needed of a slice of a segment"
    RENEW = "begin with an empty folder"


Job: TypeAlias = Write | Delete | Kind

_ORDER: Final = [Kind.DELETE, Kind.WRITE, Kind.COLLECT]
_TAKES_CONTENTS: Final = frozenset({Kind.WRITE, Kind.RENEW})


@dataclass(slots=True)
class News:
    """What the owners must be told.

    Attributes:
        credit: queues that were refused and may page out again.
        lost: queues of which all that was on disk is lost.
    """

    credit: list[int] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)


class PagingCore:
    """The queues and the jobs. For one thread.

    Args:
        waiting_bytes_max: what all queues together may have waiting.

    Attributes:
        queues: by queue_no.
        job: what is on its way.
        is_stalled: the disk has refused contents, and not taken any since.
        has_garbage: as the last job has found it.
        waiting_bytes: contents that are in RAM until they are written.
        held: kinds of jobs that the disk has refused; not tried before ``retry``.
    """

    def __init__(self, waiting_bytes_max: int = WAITING_BYTES) -> None:
        self.queues: dict[int, PagedQueue] = {}
        self.job: Job | None = None
        self.is_stalled = False
        self.has_garbage = False
        self.waiting_bytes = 0
        self.held: set[Kind] = set()
        self._waiting_bytes_max = waiting_bytes_max
        self._next_life = 1
        self._by_life: dict[int, PagedQueue] = {}
        self._to_write: dict[int, PagedQueue] = {}  # by life, as all that follow
        self._to_delete: dict[int, PagedQueue] = {}
        self._refused: dict[int, PagedQueue] = {}
        self._flying: list[PagedQueue] = []
        self._ranges: deque[Doomed] = deque()
        self._waits = False  # somebody waits for a job of contents
        self._ops = 0  # acks and rows, at most
        self._needs_renewal = True
        self._is_lost = False  # found while a job was on its way
        self._last = Kind.COLLECT

    # What queues call.

    def page_out(self, queue_no: int, entries: Sequence[Entry], must: bool) -> int:
        """Take contents; see ``Transients``."""
        queue = self.queues.get(queue_no) or self._begin(queue_no)
        taken = len(entries)
        sizes = list(accumulate([entry[SIZE] for entry in entries]))
        if not must:
            taken = min(taken, self._room(queue, sizes))
            if taken < len(entries):
                self._refused[queue.life] = queue
        if taken:
            queue.page_out(list(entries[:taken]))
            self.waiting_bytes += sizes[taken - 1]
            self._to_write[queue.life] = queue
            self._waits = True
        return taken

    def _room(self, queue: PagedQueue, sizes: list[int]) -> int:
        room = self._waiting_bytes_max - self.waiting_bytes
        if self.is_stalled or queue.credit <= 0 or room <= 0:
            return 0
        return min(queue.credit, bisect_left(sizes, room) + 1)  # also the one that fills it

    def _begin(self, queue_no: int) -> PagedQueue:
        queue = PagedQueue(queue_no, self._next_life)
        self._next_life += 1
        self.queues[queue_no] = self._by_life[queue.life] = queue
        return queue

    def add(self, queue_no: int, entries: Sequence[Entry]) -> None:
        """Add rows."""
        queue = self.queues[queue_no]
        queue.add(list(entries))
        self._to_write[queue.life] = queue
        self._ops += len(entries)

    def ack(self, queue_no: int, entries: Sequence[Entry]) -> None:
        """Remove contents and rows."""
        queue = self.queues.get(queue_no)
        if queue is not None:
            self.waiting_bytes -= queue.ack([entry[SEQ] for entry in entries])
            self._ops += len(entries)
            self._note(queue)

    def ack_range(self, queue_no: int, low: int, high: int) -> None:
        """Remove rows."""
        queue = self.queues.get(queue_no)
        if queue is not None:
            doomed, size_bytes = queue.ack_range(low, high)
            self.waiting_bytes -= size_bytes
            if doomed is not None:
                self._ranges.append(doomed)
            self._note(queue)

    def _note(self, queue: PagedQueue) -> None:
        if queue.gone:
            self._to_delete[queue.life] = queue

    def drop_queue(self, queue_no: int) -> None:
        """Forget a queue."""
        queue = self.queues.pop(queue_no, None)
        if queue is None:
            return
        life = queue.life
        for table in (self._by_life, self._to_write, self._to_delete, self._refused):
            table.pop(life, None)
        if queue.is_on_disk:
            self._ranges.append(Doomed(life, 0, SEQ_END, rows_only=False))
        self.waiting_bytes -= size_of(queue.contents.values())
        queue.contents, queue.rows, queue.added, queue.gone = {}, {}, {}, {}

    # What the driver calls.

    def delay_s(self) -> float | None:
        """Tell in how many seconds ``start`` should be called; None: not before something happens."""
        if self.job is not None:
            return None
        if self._needs_renewal:
            return None if Kind.RENEW in self.held else 0.0
        due = (
            (Kind.WRITE, self._waits),
            (Kind.DELETE, bool(self._ranges)),
            (Kind.COLLECT, self.has_garbage),
        )
        if any(is_due and kind not in self.held for kind, is_due in due):
            return 0.0
        if not self._ops:
            return None
        return LINGER_S if self._ops < JOB_OPS else 0.0

    def start(self) -> Job | None:
        """Make a job of what there is, also of what nobody waits for; None if there is nothing."""
        assert self.job is None, "one job at a time"
        if self._needs_renewal:
            self.job = None if Kind.RENEW in self.held else Kind.RENEW
            return self.job
        first = _ORDER.index(self._last) + 1
        for kind in _ORDER[first:] + _ORDER[:first]:
            if kind not in self.held:
                self.job = self._made(kind)
            if self.job is not None:
                self._last = kind
                return self.job
        self._recount()
        return None

    def _made(self, kind: Kind) -> Job | None:
        if kind is Kind.COLLECT:
            return Kind.COLLECT if self.has_garbage else None
        return self._write() if kind is Kind.WRITE else self._delete()

    def _write(self) -> Write | None:
        contents: list[Unwritten] = []
        rows: list[Key] = []
        size_bytes = 0
        while self._to_write and len(contents) + len(rows) < JOB_OPS and size_bytes < JOB_BYTES:
            queue = self._to_write.pop(next(iter(self._to_write)))
            room = JOB_OPS - len(contents) - len(rows), JOB_BYTES - size_bytes
            taken, added = queue.take_writes(*room)
            contents += taken
            rows += added
            size_bytes += sum([each.size for each in taken])
            self._flying.append(queue)
            if queue.contents or queue.added:
                self._to_write[queue.life] = queue  # behind the others, for the next job
                break
        return Write(contents, rows) if contents or rows else None

    def _delete(self) -> Delete | None:
        keys: list[Key] = []
        while self._to_delete and len(keys) < DELETE_OPS:
            queue = self._to_delete.pop(next(iter(self._to_delete)))
            keys += queue.take_gone(DELETE_OPS - len(keys))
            self._flying.append(queue)
            if queue.gone:
                self._to_delete[queue.life] = queue
                break
        take = self._ranges.popleft
        ranges = [take() for _ in range(min(RANGES_MAX, len(self._ranges)))]
        return Delete(keys, ranges, ranges) if keys or ranges else None

    def finish(self, error: Exception | None) -> News:
        """Note that the job has ended, well or with an error.

        Raises:
            Exception: the error is a bug; nothing that was taken is lost.
        """
        job, self.job = self.job, None
        assert job is not None, "no job was started"
        is_lost, self._is_lost = self._is_lost or isinstance(error, IndexLost), False
        if error is None and not is_lost:
            self._land(job)
        else:
            self._put_back(job)
        if is_lost:
            return self._lose()
        if error is not None and not isinstance(error, OSError):
            raise error
        self._note_outcome(job, error)
        self._recount()
        return self.news()

    def _note_outcome(self, job: Job, error: OSError | None) -> None:
        kind = _kind_of(job)
        if error is not None:
            self.held.add(kind)
        if kind not in _TAKES_CONTENTS:
            return
        if error is not None and not self.is_stalled:
            log.warning("transients cannot be written and stay in memory: %s", error)
        elif error is None and self.is_stalled:
            log.info("transients can be written again")
        self.is_stalled = error is not None

    def retry(self) -> News:
        """Try again what the disk has refused."""
        self.held.clear()
        self._recount()
        if not self._waits and not self._needs_renewal:
            self.is_stalled = False
        return self.news()

    def _recount(self) -> None:
        self._waits = any(queue.contents for queue in self._to_write.values())
        self._ops = 0
        if Kind.WRITE not in self.held:
            self._ops += sum(len(queue.added) for queue in self._to_write.values())
        if Kind.DELETE not in self.held:
            self._ops += sum(len(queue.gone) for queue in self._to_delete.values())

    def _land(self, job: Job) -> None:
        for queue in self._flying:
            self.waiting_bytes -= queue.land()
        self._flying.clear()
        if job is Kind.RENEW:
            self._needs_renewal = False
        elif isinstance(job, Delete):
            self._advance(job)

    def _advance(self, job: Delete) -> None:
        """Take ranges up again that are deleted in part, and forget those that are."""
        done = len(job.ranges) - len(job.left)
        for doomed in job.ranges[:done]:
            queue = self._by_life.get(doomed.life)
            if queue is not None:
                queue.undoom(doomed)
        self._ranges.extendleft(reversed(job.left))

    def _put_back(self, job: Job) -> None:
        for queue in self._flying:
            self.waiting_bytes -= queue.put_back()
            if self._by_life.get(queue.life) is not queue:  # dropped meanwhile
                self.waiting_bytes -= size_of(queue.contents.values())
                continue
            if queue.contents or queue.added:
                self._to_write = {queue.life: queue} | self._to_write
            self._note(queue)
        self._flying.clear()
        if isinstance(job, Delete):
            self._ranges.extendleft(reversed(job.ranges))

    def lose_index(self) -> News:
        """Note that the reader has found the index unusable."""
        if self.job is not None:
            self._is_lost = True
            return News()
        if self._needs_renewal:
            return News()
        return self._lose()

    def _lose(self) -> News:
        self._needs_renewal = True
        self.has_garbage = False
        self._ranges.clear()
        self._to_delete.clear()
        lost = [queue for queue in self.queues.values() if queue.is_stored]
        for queue in lost:
            queue.lose()
        self._recount()
        log.warning("the index of transients is unusable and made anew queues_lost=%d", len(lost))
        return News(lost=[queue.queue_no for queue in lost])

    def news(self) -> News:
        """Return, once, who may page out again."""
        if self.is_stalled or 2 * self.waiting_bytes > self._waiting_bytes_max:
            return News()
        granted = [queue for queue in self._refused.values() if queue.credit > 0]
        for queue in granted:
            del self._refused[queue.life]
        return News(credit=[queue.queue_no for queue in granted])


def _kind_of(job: Job) -> Kind:
    if isinstance(job, Kind):
        return job
    return Kind.WRITE if isinstance(job, Write) else Kind.DELETE
