"""The collector: garbage collection and compaction of segments.

A segment is written once and holds messages of many queues, so they rarely all die at once.
The collector does two things, and readers and writers go on meanwhile:

* A segment without live messages is unlinked. Where messages are consumed about as fast as they come
  the collector does nothing else, and this costs nothing.
* Segments with **much garbage**, and **many small** segments, are *merged* (``choose``): their live
  messages are copied into a new segment with a higher number, the index gets the new places, and the
  old segments have no live messages left.

::

    chosen --scan--> judged (RAM, then the index on disk) --copy--> renamed, synced
           --MOVE records, in slices, through group commit--> durable --grace--> unlinked

Nothing is changed in place, so at every step each message lies complete in the place that the durable
log names. The state after a crash, by step:

=============================  ==========================================  =========================
crash                          on disk                                     at the next start
=============================  ==========================================  =========================
while copying                  a draft (.rdt)                              removed
after the rename, no MOVE      a segment that no row refers to             removed
some MOVE records durable      copy and sources both hold live messages    collected some other time
all durable, not yet unlinked  sources that no row refers to               removed
=============================  ==========================================  =========================

Only accounting decides about unlinking: a segment goes when ``Memtables`` counts nothing valid in it, the
flush that made it so is durable (``Memtables`` changes only then), the memtable of the log in which
that happened is in the index on disk (until then a damaged journal could bring messages back that lie
in it), no snapshot pins it, and the archive (``archive.archive``) does not keep it and has published that it goes.
Therefore nothing that was overlooked while copying is lost, and what died meanwhile is just garbage in the copy:
``Memtables.moved`` takes only messages still at their source.

For the archive the collector also counts and saves the shares of the queues in sealed segments (``survey``); segments
that the archive keeps are not merged either.

The work is written as *tasks*, generators that yield each wait, and *jobs*, generators that block and
name the points they have reached; ``TURN`` is where a job may be put aside. The driver, or a test, resumes
a task when its wait is over, or throws the error of its job into it. Jobs run on the collector's thread in
turns of bounded work. At most two merges are on their way.

A merge that fails is given up, and its copy removed. After a shortage the next one waits
(``Wait.RETRY``). A source that made a merge fail, or did not come out of it empty (a message that a queue
has been promised is not moved; a message whose header is damaged is not found), is left alone for a while,
longer each time, measured in memtables of the log.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Collection, Generator
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeAlias

from leveret.core.log.loggers import logger
from leveret.core.system.shortage import ShortageLog, is_shortage
from leveret.msg_store.archive.archive import OFFSET_MAX
from leveret.msg_store.archive.segment_shares import forget_shares
from leveret.msg_store.format.errors import Corrupt
from leveret.msg_store.format.folder import StoreFolder
from leveret.msg_store.format.pins import Pins
from leveret.msg_store.format.rows import Index, IndexFull
from leveret.msg_store.gc.choose import DEFAULT, ChoiceLimits, choose, dead
from leveret.msg_store.gc.copy import Copy, copy, discard, relocations, unlink
from leveret.msg_store.gc.scan import NEEDED, NOT_NEEDED, Source, ask_index, scan
from leveret.msg_store.gc.survey import Survey, survey
from leveret.msg_store.memtable.memtables import Memtables
from leveret.msg_store.threads.worker import Steps
from leveret.msg_store.wal.group_commit import GroupCommit

log = logger(__name__)

MERGES_MAX: Final = 2
BACKOFF_BASE: Final = 4  # to the power of its failures: how long a segment is left alone
BACKOFF_MAX: Final = 6
JUDGED_PER_TURN: Final = 4_000
MOVED_PER_FLUSH: Final = 2_000


class Wait(enum.Enum):
    """A wait of a task on the loop."""

    TURN = "the next turn of the loop"
    GRACE = "readers that have looked up a place have read there"
    RETRY = "a shortage may have passed"


@dataclass(frozen=True, slots=True)
class Job:
    """A job that must have ended on the thread before the task is resumed."""

    steps: Steps[None]


class Moving:
    """Moves, each of which must be applied or dropped before the task is resumed."""

    def __init__(self, count: int) -> None:
        self.used = 0
        self._left = count
        self._then: Callable[[], object] | None = None

    def decided(self, is_used: bool) -> None:
        self.used += is_used
        self._left -= 1
        if not self._left and self._then is not None:
            self._then()

    def when_done(self, then: Callable[[], object]) -> None:
        self._then = then
        if not self._left:
            then()


Task: TypeAlias = Generator[Job | Moving | Wait, None, None]


@dataclass(slots=True)
class Collected:
    """Statistics since the start."""

    merges: int = 0
    given_up: int = 0
    copied_bytes: int = 0
    moved: int = 0
    removed: int = 0
    removed_bytes: int = 0
    damaged: int = 0


class Collector:
    """Chooses segments and collects them. For the loop; its jobs block on the thread.

    ``removed`` gets the numbers of unlinked segments, so that readers close them; ``checkpoint`` requests one
    early, because segments wait for it.
    """

    def __init__(
        self,
        folder: StoreFolder,
        core: GroupCommit,
        memtables: Memtables,
        index: Index,
        pins: Pins,
        now_ms: Callable[[], int],
        removed: Callable[[list[int]], object],
        checkpoint: Callable[[], None],
        limits: ChoiceLimits = DEFAULT,
    ) -> None:
        self.collected = Collected()
        self._folder = folder
        self._core = core
        self._memtables = memtables
        self._index = index
        self._pins = pins
        self._now_ms = now_ms
        self._removed = removed
        self._checkpoint = checkpoint
        self._limits = limits
        self._busy: set[int] = set()  # sources, copies, and segments that are being unlinked
        self._failures: Counter[int] = Counter()
        self._left_alone: dict[int, int] = {}  # until which memtable
        self._merges = 0
        self._archive = core.archive
        self._is_surveying = False
        self._shortages = ShortageLog("merging segments", folder.path)
        self._surveys = ShortageLog("counting archived messages", folder.path)
        self._removing = ShortageLog("removing segments", folder.path)

    def next_task(self) -> Task | None:
        kept = self._archive.kept(self._memtables.files, self._now_ms())
        return self._next_survey() or self._next_removal(kept) or self._next_merge(kept)

    def next_end_s(self) -> float | None:
        """Return in how many seconds the archive may let a segment go; None: it keeps none for a time."""
        end_ms = self._archive.next_end_ms
        return None if end_ms is None else max(0.0, (end_ms - self._now_ms()) / 1000)

    def _next_removal(self, kept: Collection[int]) -> Task | None:
        files, waiting_bytes, ready = self._memtables.files, 0, []
        for file_no in dead(files, self._busy.union(self._pins, kept)):
            if self._is_settled(file_no):
                ready.append(file_no)
            else:
                waiting_bytes += files[file_no].size_bytes
        if waiting_bytes >= self._limits.file_bytes:
            self._checkpoint()
        if not ready or not self._may_go(ready):
            return None
        self._busy.update(ready)
        return self._remove(ready)

    def _may_go(self, file_nos: list[int]) -> bool:
        """Return whether ``archive.json`` says that these segments go; else have it written."""
        version = self._archive.version
        is_published = self._archive.free(file_nos)
        if self._archive.version != version:
            self._core.wake_index()
        return is_published

    def _is_settled(self, file_no: int) -> bool:
        """Return whether nothing in a segment is needed, also in the eyes of the index."""
        return self._memtables.files[file_no].emptied_in <= self._memtables.committed

    def giveable(self) -> list[int]:
        """Return the segments that only the archive keeps, and that could be unlinked at once, the oldest first."""
        files = self._memtables.files
        kept = self._archive.kept(files, self._now_ms())
        ready = dead(files, self._busy.union(self._pins))
        return [
            no for no in ready if no in kept and no in self._archive.shares and self._is_settled(no)
        ]

    def _leave_alone_now(self) -> set[int]:
        now = self._memtables.active.number
        return {no for no, until in self._left_alone.items() if until > now}

    def _next_merge(self, kept: Collection[int]) -> Task | None:
        if self._merges >= MERGES_MAX:
            return None
        taken = self._busy.union(self._pins, self._leave_alone_now(), kept)
        chosen = choose(self._memtables.files, taken, self._limits)
        if not chosen:
            return None
        self._merges += 1
        self._busy.update(chosen)
        return self._merge(chosen)

    # The archive.

    def _next_survey(self) -> Task | None:
        """Return the task for the next sealed segment whose shares are unknown, or not saved as they are."""
        archive, files = self._archive, self._memtables.files
        if not archive.queues or self._is_surveying:
            return None
        taken = self._busy.union(self._leave_alone_now())
        for file_no, state in files.items():
            if not state.is_sealed or file_no in taken:
                continue
            shares, is_settled = archive.shares.get(file_no), self._is_settled(file_no)
            if shares is None or not shares.is_saved or (is_settled and not shares.is_settled):
                self._is_surveying = True
                self._busy.add(file_no)
                end = archive.ends.get(file_no, OFFSET_MAX)
                return self._survey(Survey(file_no, shares, is_settled, end))
        return None

    def _survey(self, wanted: Survey) -> Task:
        file_no = wanted.file_no
        try:
            yield Job(survey(self._folder, wanted))
            self._surveys.note(None)
        except (OSError, EOFError) as error:
            if is_shortage(error):
                self._surveys.note(error)
                yield Wait.RETRY
            else:
                log.error("archived messages not counted segment=%08x error=%s", file_no, error)
                self._leave_alone(file_no)
        finally:
            if wanted.shares is not None and self._archive.queues:
                self._archive.shares[file_no] = wanted.shares
            self._is_surveying = False
            self._busy.discard(file_no)

    # Unlinking.

    def _remove(self, file_nos: list[int]) -> Task:
        gone: list[int] = []
        has_shares = self._archive.shares.keys() & set(file_nos)
        try:
            yield Job(unlink(self._folder, file_nos, gone))
        except OSError as error:
            self._removing.note(error)
            yield Wait.RETRY
        else:
            self._removing.note(None)
        finally:
            self._note_removed(gone)
            self._busy.difference_update(file_nos)
        if has_shares.intersection(gone):
            try:
                yield Job(_forget(self._folder, sorted(has_shares.intersection(gone))))
            except OSError as error:  # the next start removes them
                log.warning("shares of removed segments not removed error=%s", error)

    def _note_removed(self, gone: list[int]) -> None:
        for file_no in gone:
            self.collected.removed += 1
            self.collected.removed_bytes += self._memtables.files[file_no].size_bytes
            self._memtables.files.remove(file_no)
            self._archive.removed(file_no)
            del self._failures[file_no]
            self._left_alone.pop(file_no, None)
        if gone:
            self._removed(gone)

    # Merging.

    def _merge(self, file_nos: list[int]) -> Task:
        try:
            try:
                yield from self._merged(file_nos)
            finally:
                self._merges -= 1
            yield Wait.GRACE
        finally:
            self._busy.difference_update(file_nos)

    def _merged(self, file_nos: list[int]) -> Task:
        try:
            sources = yield from self._judged(file_nos)
        except (OSError, IndexFull) as error:
            if not is_shortage(error):
                raise  # of the index: the store is recovered
            yield from self._wait(error)
            return
        made = Copy(self._core.rdq.take_file_no(), sources, self._core.boot_epoch, self._now_ms())
        self._busy.add(made.file_no)
        try:
            yield Job(copy(self._folder, made))
        except (OSError, EOFError) as error:
            yield from self._give_up(made, error)
        else:
            yield from self._move(made)
            self._note(made, sources)
        finally:
            self._busy.discard(made.file_no)

    def _judged(self, file_nos: list[int]) -> Generator[Job | Wait, None, list[Source]]:
        """Find the live messages of the sources.

        The memtables are asked before the index: a change that a checkpoint writes between the two
        questions is then seen twice, and never missed.
        """
        sources: list[Source] = []
        for file_no in file_nos:
            source = Source(file_no)
            try:
                yield Job(scan(self._folder, source))
            except (OSError, Corrupt) as error:
                if is_shortage(error):
                    raise
                self._blame(file_no, error)
                continue
            if not sources or source.crc_kind == sources[0].crc_kind:
                sources.append(source)
        for source in sources:
            yield from self._judge(source)
            yield Job(ask_index(self._index, source))
        return sources

    def _judge(self, source: Source) -> Generator[Job | Wait, None, None]:
        memtables, needed = self._memtables, source.needed
        for start in range(0, len(needed), JUDGED_PER_TURN):
            some = source.msg_nos[start : start + JUDGED_PER_TURN]
            for at, msg_no in enumerate(some, start):
                place = memtables.location(msg_no)
                if place is not None:
                    needed[at] = NEEDED if source.is_at(at, place) else NOT_NEEDED
                elif memtables.knows(msg_no):
                    needed[at] = NOT_NEEDED
            yield Wait.TURN

    def _move(self, made: Copy) -> Task:
        """Log the moves, a slice per flush."""
        if not made.size_bytes:
            return
        files, used = self._memtables.files, 0
        files.add_sealed(made.file_no, made.size_bytes)
        moves = relocations(made)
        while some := list(islice(moves, MOVED_PER_FLUSH)):
            moving = Moving(len(some))
            self._core.move(some, moving.decided)
            yield moving
            used += moving.used
        self.collected.moved += used
        if not used:  # all died meanwhile
            files.free(made.file_no, 0, self._memtables.active.number)

    def _note(self, made: Copy, sources: list[Source]) -> None:
        """Count a completed merge; leave sources alone that still hold live messages."""
        self._shortages.note(None)
        self.collected.merges += 1
        self.collected.copied_bytes += made.size_bytes
        self.collected.damaged += len(made.damaged)
        for source in sources:
            if self._memtables.files[source.file_no].valid_bytes:
                self._leave_alone(source.file_no)

    def _give_up(self, made: Copy, error: Exception) -> Task:
        self.collected.given_up += 1
        yield Job(discard(self._folder, made.file_no))
        if is_shortage(error):
            yield from self._wait(error)
        else:
            self._blame(made.reading, error)

    def _wait(self, error: Exception) -> Task:
        self._shortages.note(error)
        yield Wait.RETRY

    def _blame(self, file_no: int, error: Exception) -> None:
        log.error("segment not merged segment=%08x error=%s", file_no, error)
        self._leave_alone(file_no)

    def _leave_alone(self, file_no: int) -> None:
        """Do not choose a segment for a while: its merge failed, or left live messages in it."""
        self._failures[file_no] += 1
        memtables = BACKOFF_BASE ** min(self._failures[file_no], BACKOFF_MAX)
        self._left_alone[file_no] = self._memtables.active.number + memtables


def _forget(folder: StoreFolder, file_nos: list[int]) -> Steps[None]:
    """Remove the files beside segments that have been unlinked."""
    for file_no in file_nos:
        forget_shares(folder, file_no)
        yield "shares forgotten"
