"""Reading contents back from the disk: requests of queues, batches for the thread, lost messages.

The loop's half of reading; ``segments`` is the half that blocks. A queue requests contents ahead of their
use (``prefetch``), takes contents that are in RAM (``cached``) and is called back when more have been read.

::

    prefetch --> asked (in order) --> at most two batches with the thread --> read cache --> cached
                   ^                                 |
                   '---- looked up anew, <= 3 times -+--> searched for --> lost

* A message that is still pending or in flight is in RAM and never read: ``resident``.
* A place is looked up when its batch leaves. A place that only the index has (``places`` returns None) is
  looked up by the thread, and kept for the ack of the message (``learn``).
* A message that cannot be read is looked up anew, since the collector may have moved it. After three
  tries it is searched for, since a bit of its place in the index may have changed: in the segment of
  that place, and in those of its neighbours. If it is not there, it is **lost**: its bytes go to the
  quarantine, and ``cached`` answers ``LOST`` for it, so that every queue with a row of it removes the row
  and does not ask for ever.
* Contents that were read wait in ``ReadCache``, which is bounded. Evicted contents are read again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from operator import itemgetter
from typing import Any, Final, Protocol, TypeAlias

from leveret.core.log.loggers import logger
from leveret.core.message import LOST, Message
from leveret.core.system.shortage import ShortageLog
from leveret.msg_store.format.rows import Index, Location
from leveret.msg_store.memtable.read_view import ReadView
from leveret.msg_store.reading.read_cache import ReadCache
from leveret.msg_store.reading.rows import ReadThread
from leveret.msg_store.reading.segments import Outcome, SegmentReader
from leveret.msg_store.threads.worker import Loop

log = logger(__name__)

BATCH_BYTES: Final = 2 * 1024 * 1024
BATCH_COUNT: Final = 1024
BATCHES_MAX: Final = 2  # one being read, one waiting for the thread
TRIES_MAX: Final = 3  # then it is searched for, and tried once more
RETRY_S: Final = 1.0
LOST_MAX: Final = 100_000  # lost messages that are remembered; others are tried again

_msg_no_of: Final = itemgetter(0)
_size_of: Final = itemgetter(1)

Waiter: TypeAlias = Callable[[], None]


class Residents(Protocol):
    """Messages that are in RAM because they are not on disk yet: group commit."""

    @property
    def has_residents(self) -> bool: ...
    def resident(self, msg_no: int) -> Message | None: ...


class Places(Protocol):
    """Places that the loop has in RAM: the memtables."""

    def places(self, msg_nos: Sequence[int]) -> list[Location | None]:
        """Return the places of messages; None for each that only the index on disk may have."""

    def read_view(self) -> ReadView:
        """Return the read view that ``learn`` needs."""

    def learn(self, read_view: ReadView, found: Mapping[int, Location]) -> None:
        """Take the places that the index had, read after the read view was made."""


class _Batch:
    """A batch that the thread reads."""

    __slots__ = ("_msg_nos", "_places", "failed_at", "found", "read_view")

    def __init__(
        self, msg_nos: list[int], places: list[Location | None], read_view: ReadView
    ) -> None:
        self._msg_nos = msg_nos
        self._places = places
        self.read_view = read_view
        self.found: Mapping[int, Location] = {}  # the places that the index had
        self.failed_at: dict[int, Location] = {}  # places that turned out to be bad

    def read(self, files: SegmentReader, index: Index) -> Outcome:
        msg_nos, places, lacking = self._msg_nos, self._places, []
        if None in places:
            unknown = msg_nos
            if places.count(None) < len(places):
                unknown = [no for no, at in zip(msg_nos, places, strict=True) if at is None]
            self.found = index.locations(unknown)
            if len(self.found) < len(unknown):
                lacking = [no for no in unknown if no not in self.found]
            msg_nos, places = self._known()
        known: Any = places
        outcome = files.read(msg_nos, known)
        outcome.failures.update(dict.fromkeys(lacking, "not in the index"))
        if outcome.failures:
            known = zip(msg_nos, places, strict=True)
            self.failed_at = {no: at for no, at in known if no in outcome.failures}
        return outcome

    def _known(self) -> tuple[list[int], list[Location | None]]:
        msg_nos, found = self._msg_nos, self.found
        places = list(map(found.get, msg_nos))
        if len(found) < len(msg_nos):
            places = [at or before for at, before in zip(places, self._places, strict=True)]
        if None in places:
            msg_nos = [no for no, at in zip(msg_nos, places, strict=True) if at is not None]
            places = [at for at in places if at is not None]
        return msg_nos, places


class ContentReader:
    """Reads contents for all queues of a store. On the loop."""

    def __init__(
        self,
        residents: Residents,
        places: Places,
        files: SegmentReader,
        index: Index,
        background: ReadThread,
        loop: Loop,
        read_cache: ReadCache,
        shortages: ShortageLog,
    ) -> None:
        self._residents = residents
        self._places = places
        self._files = files
        self._index = index
        self._background = background
        self._loop = loop
        self._cache = read_cache
        self._waiting: dict[int, Waiter | list[Waiter]] = {}  # for messages that are being read
        self._asked: deque[tuple[int, int]] = deque()  # msg_no, body size
        self._tries: dict[int, int] = {}
        self._put_off: set[int] = set()  # messages that cannot be read now
        self._shortages = shortages
        self._lost: OrderedDict[int, str] = OrderedDict()
        self._counted: set[int] = set()  # lost messages that a queue has missed
        self._batches = 0
        self._is_scheduled = False
        self.reads = self.read_bytes = self.losses = 0

    # For queues.

    def cached(self, msg_nos: Sequence[int]) -> list[Message | None]:
        """Return contents, None where they must be read and ``LOST`` where they cannot be.

        They stay in ``ReadCache``; the caller drops messages that it will not need again.
        """
        found: list[Message | None] = list(map(self._cache.contents.get, msg_nos))
        if None in found:
            for at, message in enumerate(found):
                if message is None:
                    found[at] = self._uncached(msg_nos[at])
        return found

    def _uncached(self, msg_no: int) -> Message | None:
        if msg_no in self._lost:
            return LOST
        return self._residents.resident(msg_no)

    def prefetch(self, wanted: Iterable[tuple[int, int]], waiter: Waiter) -> None:
        """Have contents read.

        Args:
            wanted: number and body size of each; those in RAM are passed over.
            waiter: called once for every batch that brings some of them, or their loss.
        """
        new = list(wanted)
        count, numbers = len(new), dict.fromkeys(map(_msg_no_of, new), waiter)
        waiting, lost = self._waiting, self._lost
        read_cache = self._cache.contents
        if not read_cache.keys().isdisjoint(numbers.keys()):
            new = [want for want in new if want[0] not in read_cache]
        if not waiting.keys().isdisjoint(numbers.keys()):
            self._wait_too(new, waiter)
            new = [want for want in new if want[0] not in waiting]
        if lost:
            new = [want for want in new if want[0] not in lost]
        if self._residents.has_residents:
            resident = self._residents.resident
            new = [want for want in new if resident(want[0]) is None]
        if len(new) < count:
            numbers = dict.fromkeys(map(_msg_no_of, new), waiter)
        waiting.update(numbers)
        self._asked += new
        if self._asked:
            self._schedule()

    def _wait_too(self, wanted: Iterable[tuple[int, int]], waiter: Waiter) -> None:
        """Wait for messages that are being read already."""
        waiting = self._waiting
        for msg_no, _ in wanted:
            waiters = waiting.get(msg_no)
            if waiters is None or waiters is waiter or waiters == waiter:
                continue
            if not isinstance(waiters, list):
                waiters = waiting[msg_no] = [waiters]
            if waiter not in waiters:
                waiters.append(waiter)

    def count_lost(self, msg_no: int) -> str:
        """Count a message that a queue has lost, once; return the reason.

        Only that makes it a loss: a message whose rows were all acked while it was read cannot be read
        either when its segment has gone.
        """
        if msg_no in self._lost and msg_no not in self._counted:
            self._counted.add(msg_no)
            self.losses += 1
        return self._lost.get(msg_no, "")

    def segments_removed(self, file_nos: Iterable[int]) -> None:
        for file_no in file_nos:
            self._background.submit(partial(self._files.forget, file_no))

    @property
    def is_idle(self) -> bool:
        return not self._waiting

    # Batches.

    def _schedule(self) -> None:
        # Once per turn: requests of other queues in the same turn go into the same batch.
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._submit)

    def _submit(self) -> None:
        self._is_scheduled = False
        while self._asked and self._batches < BATCHES_MAX:
            self._batches += 1
            self._read(self._next())

    def _next(self) -> _Batch:
        asked, take = self._asked, self._asked.popleft
        some = [take() for _ in range(min(BATCH_COUNT, len(asked)))]
        if sum(map(_size_of, some)) > BATCH_BYTES:
            reached = list(accumulate(map(_size_of, some)))
            count = bisect_left(reached, BATCH_BYTES) + 1  # up to the one that reaches the limit
            asked.extendleft(reversed(some[count:]))
            del some[count:]
        msg_nos = list(map(_msg_no_of, some))
        return _Batch(msg_nos, self._places.places(msg_nos), self._places.read_view())

    def _read(self, batch: _Batch) -> None:
        files, index = self._files, self._index
        self._background.submit(
            lambda: batch.read(files, index), lambda outcome: self._came(batch, outcome)
        )

    def _came(self, batch: _Batch, outcome: Outcome) -> None:
        self._batches -= 1
        waiters: dict[Waiter, None] = {}
        messages = outcome.messages
        self._cache.put(messages)
        if batch.found:
            self._places.learn(batch.read_view, batch.found)
        if self._tries:
            for msg_no in messages:
                self._tries.pop(msg_no, None)
        if self._put_off or outcome.put_off:
            self._note_put_off(outcome)
        self.read_bytes += outcome.body_bytes
        self.reads += len(messages)
        self._tell(messages, waiters)
        missing: dict[int, Location] = {}
        for msg_no, why in outcome.failures.items():
            self._failed(msg_no, why, batch.failed_at.get(msg_no), waiters, missing)
        if missing:
            self._search(missing)
        if outcome.put_off:
            self._loop.call_later(RETRY_S, self._again, outcome.put_off)
        if self._asked:
            self._schedule()
        for waiter in waiters:
            waiter()

    def _note_put_off(self, outcome: Outcome) -> None:
        self._put_off.difference_update(outcome.messages, outcome.failures)
        self._put_off.update(outcome.put_off)
        if outcome.why_put_off is not None:
            self._shortages.note(outcome.why_put_off)
        elif not self._put_off:
            self._shortages.note(None)

    def _tell(self, msg_nos: Iterable[int], waiters: dict[Waiter, None]) -> None:
        last: Waiter | None = None
        for waiter in map(self._waiting.pop, msg_nos):
            if waiter is last:
                continue
            if isinstance(waiter, list):
                waiters.update(dict.fromkeys(waiter))
            else:
                waiters[waiter] = None
                last = waiter

    def _again(self, msg_nos: Iterable[int]) -> None:
        self._asked.extend((msg_no, 0) for msg_no in msg_nos)
        self._schedule()

    # Failures.

    def _failed(
        self,
        msg_no: int,
        why: str,
        at: Location | None,
        waiters: dict[Waiter, None],
        missing: dict[int, Location],
    ) -> None:
        """Try a message again, add it to those to be searched for, or lose it."""
        if self._residents.resident(msg_no) is not None:
            self._tell([msg_no], waiters)  # its flush failed, it is pending again
            return
        tries = self._tries[msg_no] = self._tries.get(msg_no, 0) + 1
        if tries < TRIES_MAX:
            self._again([msg_no])
        elif tries == TRIES_MAX and at is not None:
            missing[msg_no] = at
        else:
            del self._tries[msg_no]
            self._lose(msg_no, why)
            self._tell([msg_no], waiters)
            if at is not None:
                files = self._files
                self._background.submit(lambda: files.set_aside(at[:3]))

    def _search(self, missing: dict[int, Location]) -> None:
        """Search for messages that are not at their places; then each is tried once more."""
        files, index, read_view = self._files, self._index, self._places.read_view()

        def came(found: dict[int, Location] | None) -> None:
            if found is None:
                self._loop.call_later(RETRY_S, self._search, missing)
                return
            self._places.learn(read_view, found)
            for msg_no, (file_no, offset, *_) in found.items():
                log.warning(
                    "message is not where the index says message=%x segment=%08x offset=%d",
                    msg_no,
                    file_no,
                    offset,
                )
            self._again(missing)

        self._background.submit(lambda: files.search(missing, index), came)

    def _lose(self, msg_no: int, why: str) -> None:
        self._lost[msg_no] = why
        if len(self._lost) > LOST_MAX:
            oldest, _ = self._lost.popitem(last=False)
            self._counted.discard(oldest)
