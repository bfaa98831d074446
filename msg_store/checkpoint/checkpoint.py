"""Checkpoints: when memtables go into the index, and when acks need a read of it. Without I/O.

There are two kinds of jobs, for two threads (``checkpoint.driver``) or for a test that goes step by step:

* a **read** finds reference counts that acks need and only the index has, and the next slice of a range
  that is acked;
* a **write** puts the oldest frozen memtable into the index, then unlinks journal files.

Between two writes there may be a **snapshot** (``snapshot``): a memtable is frozen for it, and when
that memtable is in the index, and no later one, the index is copied.

A memtable is frozen when it has many rows, or its journal is long (a start has to replay it, 100,000 records in half a
second, also records of messages that are gone), or when nothing happens for a while. Flushes wait for this rotation,
and the rotation for missing reference counts: some short reads. A memtable is one transaction with its own checkpoint,
so the index is always the log up to some LSN. Its journal files stay until the *next* memtable is in the index: if the
newest transaction is lost, the previous transaction and the journals replace it.

After a shortage (``core/system/shortage.py``), a full disk above all, the memtable stays frozen, its journals stay
too, and it is tried again; so is a read. Journals that cannot be unlinked go with a later checkpoint. An index
that is damaged is condemned, and with any other error as well the store has failed.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from typing import Final

from leveret.core.errors import StoreError
from leveret.core.log.loggers import logger
from leveret.core.system.files import File
from leveret.core.system.shortage import is_shortage
from leveret.msg_store.checkpoint.snapshot import Snapshot, disk_full
from leveret.msg_store.format.ballast import Ballast
from leveret.msg_store.format.folder import StoreFolder
from leveret.msg_store.format.rows import (
    Index,
    IndexDamaged,
    IndexFiles,
    IndexFull,
    IndexRow,
    Location,
)
from leveret.msg_store.memtable.memtable import Memtable
from leveret.msg_store.memtable.memtables import BEHIND_MEMTABLES
from leveret.msg_store.threads.worker import Steps
from leveret.msg_store.wal.flush import SLICE_OPS
from leveret.msg_store.wal.group_commit import SLICE_ROWS, GroupCommit, RangeAck, Report
from leveret.msg_store.wal.journal import Journal

log = logger(__name__)

IDLE_S: Final = 1.0
LOOKUPS_MAX: Final = 10_000  # of messages in one read; some 5 ms of work to apply


@dataclass(frozen=True, slots=True)
class CheckpointLimits:
    """When a memtable ends."""

    rows: int = 100_000  # it has so many
    journal_bytes: int = 32 * 1024 * 1024  # its journal is so long
    idle_rows: int = 10_000  # it has so many and nothing happens for ``IDLE_S``
    journal_records: int = 100_000  # its journal has so many, whether the rows are gone or not
    ended_queues: int = 5_000  # so many queues were deleted; each takes some 250 bytes of memory

    def is_long(self, journal: Journal) -> bool:
        return (
            journal.bytes_since_switch >= self.journal_bytes
            or journal.records_since_switch >= self.journal_records
        )


@dataclass(slots=True)
class ReadJob:
    """A read of the index, with its results: reference counts of messages, and rows of a range."""

    msg_nos: list[int]
    range_ack: RangeAck | None
    locations: dict[int, Location] = field(default_factory=dict)
    rows: list[IndexRow] = field(default_factory=list)

    def run(self, index: Index) -> None:
        if self.msg_nos:
            self.locations = index.locations(self.msg_nos)
        asked = self.range_ack
        if asked is not None:
            self.rows = index.rows(asked.queue_no, asked.low, asked.high, SLICE_ROWS)


@dataclass(slots=True)
class WriteJob:
    """A memtable that is to be put into the index.

    The journals may go then, so messages that were inline in them are synced in their segments before.
    """

    memtable: Memtable

    def run(self, index: Index, folder: StoreFolder, ballast: Ballast) -> Steps[None]:
        """Write it, then unlink journals that no start needs; yields the points that are reached.

        Raises ``IndexFull`` or the ``OSError`` of a shortage (nothing was written); any other ``OSError`` is final.
        """
        for file_no in sorted(self.memtable.owed):
            with folder.files.open_append(folder.rdq_path(file_no)) as segment:
                _sync_owed(segment)
            yield "segment synced"
        before = index.checkpoint()
        yield "before commit"
        try:
            index.write(self.memtable.batch())
        except IndexFull:
            if not ballast.release(makes_room=True):
                raise
            index.write(self.memtable.batch())
        yield "committed"
        point = self.memtable.checkpoint
        if before is None or point is None or point.lsn == before.lsn:
            return  # keep one journal that reaches the checkpoint: a start expects it
        try:
            for file_no in folder.journal_nos():
                if file_no < before.first_journal:
                    folder.files.unlink(folder.journal_path(file_no))
                    yield "unlinked"
        except OSError as error:  # the next checkpoint unlinks them, or the next start
            log.warning("journal files not removed yet folder=%s error=%s", folder.journal, error)


def _sync_owed(segment: File) -> None:
    """Sync inline messages. Every failure is final, also a shortage: their pages may be gone."""
    try:
        segment.fdatasync()
    except OSError as error:
        text = f"inline records cannot be synced: {error}"
        raise OSError(errno.EIO, text, str(segment.path)) from error


class Checkpointer:
    """Decides about memtables and jobs. For the loop's thread. ``index_files`` can condemn a damaged index."""

    def __init__(
        self, core: GroupCommit, index_files: IndexFiles, limits: CheckpointLimits | None = None
    ) -> None:
        self.is_short = False  # a job met a shortage, and waits for ``resume``
        self.shortage: Exception | None = None  # that the last job met
        self.snapshot: Snapshot | None = None  # the snapshot that is being made
        self.is_stopping = False
        self._committed: list[Memtable] = []  # not freed yet
        self._core = core
        self._index_files = index_files
        self._limits = limits or CheckpointLimits()
        self._is_requested = False
        self._read: ReadJob | None = None
        self._write: WriteJob | Snapshot | None = None
        self._is_last = False

    def request(self) -> None:
        """End the memtable as soon as possible."""
        self._is_requested = True
        self._core.wake_index()

    def begin_snapshot(self, snapshot: Snapshot) -> None:
        """Make a snapshot of all that was issued before; ``StoreError`` while another is made, or at the end."""
        if self.snapshot is not None:
            raise StoreError("another snapshot of this store is being made")
        if self.is_stopping or self._core.error is not None:
            raise StoreError("the store is being closed")
        self.snapshot = snapshot
        self._core.hurry()
        self._core.wake_index()

    def end_snapshot(self, error: Exception | None) -> None:
        """Note that the snapshot is made, or never will be."""
        snapshot, self.snapshot = self.snapshot, None
        if snapshot is not None:
            snapshot.then(error)

    def _give_snapshot_up(self, error: Exception) -> None:
        """End the snapshot with an error, unless the thread is making it."""
        if self.snapshot is not None and self._write is not self.snapshot:
            self.end_snapshot(error)

    def stop(self) -> None:
        """Put all durable changes into the index, as a clean end if no work is left. No flush follows."""
        self.is_stopping = True
        self._give_snapshot_up(StoreError("the store is being closed"))
        self._core.wake_index()

    @property
    def is_stopped(self) -> bool:
        """All is in the index, or never will be."""
        has_failed = self._core.error is not None or self.is_short
        is_over = has_failed or (self._is_last and not self._core.memtables.frozen)
        return self.is_stopping and is_over and self._read is None and self._write is None

    # Rotation.

    def turn(self, is_quiet: bool = False) -> None:
        """End the memtable if it is time; ``is_quiet``: nothing has happened for ``IDLE_S``."""
        core = self._core
        if core.error is not None or self._is_last:
            return
        if core.is_short or self.is_short:
            shortage = core.shortage or self.shortage
            self._give_snapshot_up(shortage if isinstance(shortage, OSError) else disk_full())
        if self._is_due(is_quiet):
            core.is_rotating = True
        if not core.is_rotating or not core.can_rotate():
            return
        self._is_requested = False
        if self.is_stopping:
            self._is_last = True
            core.rotate(is_clean=core.is_idle)
        elif self.snapshot is not None and self.snapshot.wants_cut:
            core.rdq.roll()
            self.snapshot.begin(core.rotate().number, core.memtables.files)
        else:
            core.rotate()

    def _is_due(self, is_quiet: bool) -> bool:
        core, limits = self._core, self._limits
        if self.is_stopping:
            return True
        memtables, snapshot = core.memtables, self.snapshot
        if snapshot is not None and not snapshot.memtable_no:
            # Other reasons wait, so that the snapshot's memtable has all work issued before it.
            return len(memtables.frozen) < BEHIND_MEMTABLES and snapshot.is_ready(core)
        is_empty = memtables.active.is_empty and not memtables.files.dirty
        if is_empty or len(memtables.frozen) >= BEHIND_MEMTABLES:
            return False
        weight = memtables.active.weight
        return (
            self._is_requested
            or weight >= limits.rows
            or memtables.active.ended_queues >= limits.ended_queues
            or limits.is_long(core.journal)
            or (is_quiet and weight >= limits.idle_rows)
        )

    @property
    def may_act(self) -> bool:
        """A turn or a job may be due. Checked at every flush, so that most flushes need no turn."""
        core, limits = self._core, self._limits
        memtables = core.memtables
        return bool(
            limits.is_long(core.journal)
            or memtables.active.weight >= limits.rows
            or memtables.active.ended_queues >= limits.ended_queues
            or core.is_rotating
            or core.range_acks
            or memtables.has_unresolved
            or (memtables.frozen and self._write is None)
            or self._is_requested
            or self.snapshot is not None
            or self.is_stopping
        )

    @property
    def may_become_quiet(self) -> bool:
        """``turn`` may have work once nothing has happened for ``IDLE_S``."""
        return self._core.memtables.active.weight >= self._limits.idle_rows

    # Reading.

    def read_job(self) -> ReadJob | None:
        """Return the next read; None if none is needed, or one is under way."""
        core = self._core
        if self._read is not None or self.is_short or core.error is not None:
            return None
        asked: RangeAck | None = None
        if core.range_acks and core.pending_ops < SLICE_OPS and not self.is_stopping:
            asked = core.range_acks[0]
            asked.read_view = core.memtables.read_view()
        msg_nos = core.memtables.unresolved(LOOKUPS_MAX)
        if asked is None and not msg_nos:
            return None
        self._read = ReadJob(msg_nos, asked)
        return self._read

    def read_done(self, job: ReadJob, error: Exception | None = None) -> Report | None:
        """Apply a read; returns a report if the store has failed."""
        self._read = None
        if self._core.error is not None:
            return None
        if self._is_short(error):
            if job.range_ack is not None:
                job.range_ack.read_view = None
            return None
        if error is not None:
            return self._fail(error)
        self._core.memtables.resolve(job.msg_nos, job.locations)
        if job.range_ack is not None:
            self._ack_slice(job.range_ack, job.rows)
        self._core.wake_index()
        return None

    def _ack_slice(self, asked: RangeAck, base: list[IndexRow]) -> None:
        core = self._core
        meanwhile = core.acked_meanwhile(asked.queue_no)
        rows = asked.rows(base)
        acked = [(row[0], row[1]) for row in rows if row[0] not in meanwhile]
        if asked.is_done:
            core.range_acks.remove(asked)
            if core.wake is not None:
                core.wake()
        if acked:
            core.ack(asked.queue_no, acked)
        if asked.is_done and asked.then is not None:
            asked.then()

    # Writing.

    def write_job(self) -> WriteJob | Snapshot | None:
        """Return the next write; None if none is needed, or one is under way."""
        core, snapshot = self._core, self.snapshot
        if self._write is not None or self.is_short or core.error is not None:
            return None
        if snapshot is not None and 0 < snapshot.memtable_no == core.memtables.committed:
            self._write = snapshot
            return self._write
        if not core.memtables.frozen:
            return None
        if core.has_unannounced and not (self.is_stopping or core.is_short):
            return None  # the start would read no journal that has the announcement
        self._write = WriteJob(core.memtables.frozen[0])
        return self._write

    def write_done(self, job: WriteJob | Snapshot, error: Exception | None = None) -> Report | None:
        """Drop the memtable, or keep it; returns a report if the store has failed."""
        self._write = None
        if isinstance(job, Snapshot):
            self.end_snapshot(error)
            self._core.wake_index()
            return None
        if self._core.error is not None:
            return None
        if self._is_short(error):
            return None
        if error is not None:
            return self._fail(error)
        self._core.memtables.commit(job.memtable)
        self._committed.append(job.memtable)
        self._core.wake_index()
        return None

    def take_committed(self) -> list[Memtable]:
        """Remove and return the memtables that are in the index and that no read of it needs."""
        is_read = self._core.memtables.is_read
        free = [each for each in self._committed if not is_read(each)]
        self._committed = [each for each in self._committed if each not in free]
        return free

    @property
    def has_committed(self) -> bool:
        """A memtable that is in the index has not been taken to be freed."""
        return bool(self._committed)

    def _is_short(self, error: Exception | None) -> bool:
        if is_shortage(error):
            self.is_short, self.shortage = True, error
            return True
        if not self.is_short:
            self.shortage = None
        return False

    def resume(self) -> None:
        self.is_short = False
        self._core.wake_index()

    def _fail(self, error: Exception) -> Report:
        if isinstance(error, IndexDamaged):
            self._index_files.condemn()
        return self._core.fail(error)
