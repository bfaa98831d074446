"""Contents on their way back from the disk: who asked, what is being read, what has arrived.

The loop's half of reading; ``segment_reader`` is the half that blocks. A queue asks for contents ahead
of their use (``prefetch``), looks what is there (``look``) and is told when more is.

::

    prefetch --> asked (in order) --> at most two batches with the thread --> arrived --> look
                   ^                                 |
                   '---- looked up anew, <= 3 times -+--> lost

* What is still in RAM for the disk's sake, pending or in the flush, is never read: ``resident``.
* A place is looked up when its batch leaves. One that is only in the index on disk (``locate`` says
  None) is looked up by the thread, first thing.
* A message that cannot be read is looked up anew, since the collector may have moved it. After three
  tries it is **lost**: its bytes go to the quarantine, and ``look`` answers ``LOST`` for it, so that
  whoever holds a row of it removes the row instead of asking for ever.
* What has arrived waits in ``Arrived``, which is bounded. What had to go is asked for again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol, TypeAlias

from leveret.core.message import BODY, LOST, Message
from leveret.msg_store.arrived import Arrived
from leveret.msg_store.flush_threads import Loop
from leveret.msg_store.index_rows import Location
from leveret.msg_store.read_thread import Background
from leveret.msg_store.segment_reader import Outcome, Place, SegmentReader, Want

BATCH_BYTES: Final = 1024 * 1024
BATCH_COUNT: Final = 512
BATCHES_MAX: Final = 2  # one being read, one waiting for the thread
TRIES_MAX: Final = 3
RETRY_S: Final = 1.0
LOST_MAX: Final = 100_000  # lost messages that are remembered; others are tried again

Waiter: TypeAlias = Callable[[], None]


class Places(Protocol):
    """What the loop knows about where messages are."""

    def resident(self, msg_no: int) -> Message | None:
        """Return a message that is in RAM because the disk has not got it yet."""

    def locate(self, msg_no: int) -> Location | None:
        """Return where a message lies; None when only the index on disk can tell, if anything."""


class Locations(Protocol):
    """The index on disk, asked by the thread."""

    def locations(self, msg_nos: Sequence[int]) -> Mapping[int, Location]:
        """Return the places of those that it knows."""


class _Batch:
    """What is with the thread: numbers with their places, None where the index must be asked."""

    __slots__ = ("failed_at", "wants")

    def __init__(self, wants: list[tuple[int, Location | None]]) -> None:
        self.wants = wants
        self.failed_at: dict[int, Place] = {}  # places that turned out to be bad

    def read(self, files: SegmentReader, index: Locations | None) -> Outcome:
        """Do it, on the thread."""
        known: list[Want] = [(no, at) for no, at in self.wants if at is not None]
        unknown = [no for no, at in self.wants if at is None]
        found: Mapping[int, Location] = index.locations(unknown) if index and unknown else {}
        known += found.items()
        outcome = files.read(known)
        outcome.failures.update({no: "not in the index" for no in unknown if no not in found})
        self.failed_at = {no: at for no, at in known if no in outcome.failures}
        return outcome


class ContentReader:
    """Reads contents for all queues of a store. On the loop.

    Args:
        places: what RAM knows.
        files: reads, on the thread.
        index: the index on disk, if there is one.
        background: the thread.
        loop: puts things off.
        arrived: where contents go.
    """

    def __init__(
        self,
        places: Places,
        files: SegmentReader,
        index: Locations | None,
        background: Background,
        loop: Loop,
        arrived: Arrived,
    ) -> None:
        self._places = places
        self._files = files
        self._index = index
        self._background = background
        self._loop = loop
        self._arrived = arrived
        self._waiting: dict[int, Waiter | list[Waiter]] = {}  # for what is on its way
        self._asked: deque[tuple[int, int]] = deque()  # msg_no, body size
        self._tries: dict[int, int] = {}
        self._lost: dict[int, str] = {}
        self._batches = 0
        self._is_scheduled = False
        self.reads = self.read_bytes = self.losses = 0

    # What queues call.

    def look(self, msg_nos: Sequence[int]) -> list[Message | None]:
        """Return contents, None where they must be read and ``LOST`` where they cannot be.

        Nothing is taken away; who will not ask again drops it from ``Arrived``.
        """
        found: list[Message | None] = list(map(self._arrived.contents.get, msg_nos))
        if None in found:
            for at, message in enumerate(found):
                if message is None:
                    found[at] = self._elsewhere(msg_nos[at])
        return found

    def _elsewhere(self, msg_no: int) -> Message | None:
        if msg_no in self._lost:
            return LOST
        return self._places.resident(msg_no)

    def prefetch(self, wanted: Iterable[tuple[int, int]], waiter: Waiter) -> None:
        """Have contents read.

        Args:
            wanted: number and body size of each; those in RAM are passed over.
            waiter: called once for every batch that brings some of them, or their loss.
        """
        arrived, waiting, lost = self._arrived.contents, self._waiting, self._lost
        resident, ask = self._places.resident, self._asked.append
        for want in wanted:
            msg_no = want[0]
            if msg_no in arrived or msg_no in lost:
                continue
            known = waiting.get(msg_no)
            if known is None:
                if resident(msg_no) is None:
                    waiting[msg_no] = waiter
                    ask(want)
            elif known != waiter:
                self._wait_too(msg_no, waiter)
        if self._asked:
            self._schedule()

    def _wait_too(self, msg_no: int, waiter: Waiter) -> None:
        waiters = self._waiting[msg_no]
        if not isinstance(waiters, list):
            waiters = self._waiting[msg_no] = [waiters]
        if waiter not in waiters:
            waiters.append(waiter)

    def why_lost(self, msg_no: int) -> str:
        """Say why a message is lost."""
        return self._lost.get(msg_no, "")

    def segment_removed(self, file_no: int) -> None:
        """Let go of a segment, so that its space is free."""
        self._background.do(lambda: self._files.forget(file_no), _ignore)

    @property
    def is_idle(self) -> bool:
        """Nothing is asked for or on its way."""
        return not self._waiting

    # Batches.

    def _schedule(self) -> None:
        # Once per turn: what other queues ask for in it goes into the same batch.
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._submit)

    def _submit(self) -> None:
        self._is_scheduled = False
        while self._asked and self._batches < BATCHES_MAX:
            self._batches += 1
            self._read(_Batch(self._next()))

    def _next(self) -> list[tuple[int, Location | None]]:
        asked, locate = self._asked, self._places.locate
        wants: list[tuple[int, Location | None]] = []
        size_bytes = 0
        while asked and len(wants) < BATCH_COUNT and size_bytes < BATCH_BYTES:
            msg_no, size = asked.popleft()
            wants.append((msg_no, locate(msg_no)))
            size_bytes += size
        return wants

    def _read(self, batch: _Batch) -> None:
        files, index = self._files, self._index
        self._background.do(
            lambda: batch.read(files, index), lambda outcome: self._came(batch, outcome)
        )

    def _came(self, batch: _Batch, outcome: Outcome) -> None:
        self._batches -= 1
        waiters: dict[Waiter, None] = {}
        self._arrived.put(outcome.messages)
        for msg_no, message in outcome.messages.items():
            self._tries.pop(msg_no, None)
            self.read_bytes += len(message[BODY])
            self._tell(msg_no, waiters)
        self.reads += len(outcome.messages)
        for msg_no, why in outcome.failures.items():
            self._failed(msg_no, why, batch.failed_at.get(msg_no), waiters)
        if outcome.put_off:
            self._loop.call_later(RETRY_S, self._again, outcome.put_off)
        if self._asked:
            self._schedule()
        for waiter in waiters:
            waiter()

    def _tell(self, msg_no: int, waiters: dict[Waiter, None]) -> None:
        waiter = self._waiting.pop(msg_no)
        if isinstance(waiter, list):
            waiters.update(dict.fromkeys(waiter))
        else:
            waiters[waiter] = None

    def _again(self, msg_nos: Iterable[int]) -> None:
        self._asked.extend((msg_no, 0) for msg_no in msg_nos)
        self._schedule()

    # Failures.

    def _failed(self, msg_no: int, why: str, at: Place | None, waiters: dict[Waiter, None]) -> None:
        if self._places.resident(msg_no) is not None:
            self._tell(msg_no, waiters)  # its flush failed, it is pending again
            return
        tries = self._tries.get(msg_no, 0) + 1
        if tries < TRIES_MAX:
            self._tries[msg_no] = tries
            self._again([msg_no])
            return
        self._tries.pop(msg_no, None)
        self._lose(msg_no, why)
        self._tell(msg_no, waiters)
        if at is not None:
            files = self._files
            self._background.do(lambda: files.set_aside(at), _ignore)

    def _lose(self, msg_no: int, why: str) -> None:
        self.losses += 1
        self._lost[msg_no] = why
        if len(self._lost) > LOST_MAX:
            del self._lost[next(iter(self._lost))]


def _ignore(_: object) -> None:
    """Nobody waits for the result."""
