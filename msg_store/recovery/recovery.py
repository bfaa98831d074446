"""Recovery: from index, journal and segments to tables that can be trusted, in time for what is new.

Steps, each of which may be cut off by another crash and is then done again with the same outcome:

1. Open the index. If it is missing, damaged, or older than the journals that are left, it is set aside
   and rebuilt from the segments (``rebuild``), instead of steps 2 and 3.
2. Read the journal files since its checkpoint, in order, and replay them (``journal_scan``, ``replay``).
3. Read every message of a row that came from there (``verify``). A row that fails is **dropped** if it
   lies above the last mark: it was never confirmed, or nobody can tell. Below the mark it was durable;
   then all segments are searched for the message, and only what is not found is **lost**: listed in
   the report, its bytes set aside. Rows of the index were checked at a start before, or were durable
   when they got there; only if a whole segment is missing are they looked through.
4. Sync the files that were open at the crash, so that what was just read from memory is on the disk.
5. Begin a new journal file. Its first frame acks what was dropped and lost and carries a new mark, so
   that a row judged once is not judged again. Old files are never appended to.
6. Make a checkpoint of it all. Then remove segments that no row refers to, unless there was damage.

So a start costs what the journals since the last checkpoint do, and of what lies below it a look at the
pages of the index (``index_pages``).
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

from leveret.core.errors import StoreError
from leveret.msg_store.format.append_log import AppendLog, Reserve
from leveret.msg_store.format.file_header import EPOCH_MAX, EPOCH_SHIFT, MOVED, Identity
from leveret.msg_store.format.folder import StoreFolder
from leveret.msg_store.format.journal_frames import DurablePosition
from leveret.msg_store.format.journal_records import encode_acks
from leveret.msg_store.format.rows import (
    Checkpoint,
    Index,
    IndexDamaged,
    IndexFull,
    IndexLocation,
    QueueTerms,
)
from leveret.msg_store.index import lmdb_index
from leveret.msg_store.index.location import LmdbLocation
from leveret.msg_store.memtable.file_states import NEVER
from leveret.msg_store.memtable.memtables import Memtables
from leveret.msg_store.reading.verify import Segment
from leveret.msg_store.recovery.findings import Findings, Recovered
from leveret.msg_store.recovery.journal_scan import FIRST_FILE, FIRST_LSN, JournalScan
from leveret.msg_store.recovery.rebuild import JournalMemory, Rebuild
from leveret.msg_store.recovery.replay import Replay
from leveret.msg_store.recovery.row_check import RowCheck
from leveret.msg_store.wal import journal
from leveret.msg_store.wal import segment_writer as rdq_writer
from leveret.msg_store.wal.group_commit import GroupCommit
from leveret.msg_store.wal.journal import Journal
from leveret.msg_store.wal.pending import References
from leveret.msg_store.wal.segment_writer import SegmentWriter

log = logging.getLogger(__name__)

_T = TypeVar("_T")
_NEW = Checkpoint(FIRST_LSN, FIRST_FILE, 0, 1)


class Recovery:
    """Brings a store back and opens it for writing. Use ``run`` once.

    Args:
        folder: the store's.
        boot_epoch: of this start, above all before.
        reserve: to be given up when the disk is full.
        now_ms: wall time.
        trusted: after a failed sync, how far the disk can be trusted.
        rdq_file_bytes: when a segment is full.
        journal_file_bytes: when a journal file is full.
        home: where the index lies; in the store's folder by default.
        inline_bytes_max: up to which the journal carries the messages of a flush.
        journal_ahead_bytes: how much room the journal takes ahead at most.

    Attributes:
        rdq_log, journal_log: carry out the jobs of the group commit that ``run`` returns.
        epoch_seen: the highest boot epoch that was used before.
    """

    def __init__(
        self,
        folder: StoreFolder,
        boot_epoch: int,
        reserve: Reserve,
        now_ms: Callable[[], int],
        trusted: DurablePosition | None = None,
        rdq_file_bytes: int = rdq_writer.FILE_BYTES,
        journal_file_bytes: int = journal.FILE_BYTES,
        home: IndexLocation | None = None,
        inline_bytes_max: int = rdq_writer.INLINE_BYTES_MAX,
        journal_ahead_bytes: int = journal.AHEAD_BYTES_MAX,
    ) -> None:
        self.home = home or LmdbLocation(folder.path / lmdb_index.FOLDER, folder.uuid)
        self.rdq_log: AppendLog = folder.rdq_log(reserve)
        self.journal_log: AppendLog = folder.journal_log(reserve, journal_ahead_bytes)
        self._folder = folder
        self._identity = Identity(folder.uuid, boot_epoch)
        self._now_ms = now_ms
        self._trusted = trusted
        self._journal_file_bytes = journal_file_bytes
        self._rdq_limits = rdq_file_bytes, inline_bytes_max
        self._references = References()
        self._index: Index
        self._is_new = False
        self._point = _NEW
        self._may_rebuild = True
        self.epoch_seen = 0
        self._begin()

    def _begin(self) -> None:
        self._findings = Findings()
        self._scan = JournalScan(self._folder, self._findings, self._trusted)
        self._numbers = (
            max(self._folder.rdq_nos(), default=0),
            max(self._folder.journal_nos(), default=0),
        )
        self._msg_no_seen = self._file_no_seen = 0

    def run(self) -> tuple[Recovered, GroupCommit]:
        """Do all the steps.

        Returns:
            What was found, and a group commit that goes on from there.

        Raises:
            StoreError: the boot epoch was used before.
            OSError: the disk refuses.
        """
        return self._twice(self._run)

    def inspect(self, may_rebuild: bool = True) -> Recovered:
        """Do the first three steps: what a start finds. The caller closes the index.

        Files are changed, so an inspection works over ``core.scratch_files``.

        Args:
            may_rebuild: else an index that must be rebuilt is an error.

        Raises:
            StoreError: the boot epoch was used before, or the index must be rebuilt and may not be.
            OSError: the disk refuses.
        """
        self._may_rebuild = may_rebuild
        return self._twice(self._judged)

    def _twice(self, steps: Callable[[str], _T]) -> _T:
        try:
            try:
                return self._closing(steps, self._open_index())
            except IndexDamaged as error:
                # Found while it was used; reading it as a whole at each start would cost too much.
                self._index.close()
                self._is_new = False
                self._begin()
                return self._closing(steps, str(error))
        except IndexFull as error:  # to make or rebuild the index; else it can wait
            raise OSError(errno.ENOSPC, str(error), str(self._folder.path)) from error

    def _closing(self, steps: Callable[[str], _T], damage: str) -> _T:
        try:
            return steps(damage)
        except BaseException:
            self._index.close()
            raise

    def _run(self, damage: str) -> tuple[Recovered, GroupCommit]:
        recovered = self._judged(damage)
        self._sync_what_was_open()
        core = self._opened(recovered.tables)
        self._remove_segments(recovered.tables)
        self._report()
        return recovered, core

    def _judged(self, damage: str) -> Recovered:
        point = None if damage else self._index.checkpoint()
        damage = damage or self._why_rebuild(point)
        self._point = point or _NEW
        if damage:
            tables, queues = self._rebuilt(damage)
        else:
            tables, queues = self._replayed(self._point)
        is_clean = self._is_clean(point) and not damage
        if not is_clean:
            queues = {no: terms._replace(is_clean=False) for no, terms in queues.items()}
        first_no = self._identity.first_no
        next_lsn = self._scan.next_lsn
        return Recovered(
            self._index, self._point, next_lsn, tables, queues, is_clean, first_no, self._findings
        )

    def _is_clean(self, point: Checkpoint | None) -> bool:
        """Tell whether nothing happened after the checkpoint of a clean stop."""
        return point is not None and point.is_clean and self._numbers[1] < point.first_journal

    # Index.

    def _open_index(self) -> str:
        """Open the index, a new one if need be; return what was wrong with it."""
        try:
            self._index = self.home.open()
        except IndexDamaged as error:
            self._check_may_rebuild(str(error))
            self._new_index()
            return str(error)
        return ""

    def _check_may_rebuild(self, damage: str) -> None:
        if not self._may_rebuild:
            path = self._folder.path
            raise StoreError(f"{path} must be recovered first, by a start of the broker: {damage}")

    def _new_index(self) -> None:
        name = f"index-{self._identity.boot_epoch:06x}"
        self.home.set_aside(self._folder.quarantine, name)
        self._index = self.home.open()
        self._is_new = True

    def _why_rebuild(self, point: Checkpoint | None) -> str:
        """Return why index and journals do not add up; nothing if they do."""
        starts_at = self._scan.starts_at((point or _NEW).first_journal)
        if point is None and self._folder.rdq_nos() and not self._scan.has_first():
            return "neither the index nor the beginning of the journal is there"
        if starts_at > (point or _NEW).lsn:
            goes_to = (point or _NEW).lsn
            return f"the index goes up to record {goes_to}, the journal begins at {starts_at}"
        return ""

    # Journal.

    def _replayed(self, point: Checkpoint) -> tuple[Memtables, dict[int, QueueTerms]]:
        index, queues = self._index, self._index.queues()
        on_disk = set(self._folder.rdq_nos())
        indexed = index.files()
        files = {no: row for no, row in indexed.items() if no in on_disk}
        tables = Memtables(self._references.locations, files, queues)
        replay = Replay(tables, index, point.lsn)
        self._scan.run(replay, point.first_journal, point.lsn)
        replay.finish()
        self._msg_no_seen, self._file_no_seen = replay.msg_no_seen, replay.file_no_seen
        self._check_epoch(point.boot_epoch)
        checked = RowCheck(self._folder, tables, index, self._findings, replay, self._scan.mark)
        checked.check_journal()
        on_disk = set(self._folder.rdq_nos())  # without those of other stores
        missing = {no for no, row in indexed.items() if row.valid_bytes and no not in on_disk}
        if missing:
            checked.check_index(missing)
        self._measure(tables)
        return tables, queues

    def _rebuilt(self, damage: str) -> tuple[Memtables, dict[int, QueueTerms]]:
        self._check_may_rebuild(damage)
        log.error("index of messages is rebuilt store=%s reason=%s", self._folder.path, damage)
        self._findings.rebuilt = damage
        memory = JournalMemory()
        self._scan.run(memory, 0, self._scan.starts_at(0))
        # With no journal left, the next one must not look as if nothing had been before it.
        self._scan.next_lsn = max(self._scan.next_lsn, FIRST_LSN + 1)
        if not self._is_new:
            self._index.close()
            self._new_index()
        rebuild = Rebuild(self._folder, self._index, memory, self._trusted)
        rebuild.run()
        self._msg_no_seen = rebuild.msg_no_seen
        self._check_epoch(0)
        tables = Memtables(self._references.locations, rebuild.files, rebuild.terms())
        for state in tables.files.values():
            state.emptied_in = NEVER  # perhaps it is only that nothing in it could be read
        for file_no in tables.files.keys() - set(self._folder.rdq_nos()):
            tables.removed(file_no)  # it was another store's
        tables.active.dirty_files.update(rebuild.files)
        tables.active.dirty_queues.update(rebuild.queues)
        return tables, rebuild.terms()

    def _measure(self, tables: Memtables) -> None:
        """Know exactly the segments that are there, with their lengths."""
        on_disk = self._folder.rdq_nos()
        for file_no in {*tables.files, *self._index.files()}.difference(on_disk):
            tables.removed(file_no)
        for file_no in on_disk:
            with self._folder.files.open_read(self._folder.rdq_path(file_no)) as file:
                size_bytes = file.size_bytes()
            tables.files.measured(file_no, size_bytes)

    def _check_epoch(self, epoch_seen: int) -> None:
        epoch_seen = max(epoch_seen, self._scan.epoch_seen, self._msg_no_seen >> EPOCH_SHIFT)
        for file_no in self._folder.rdq_nos():
            with Segment(self._folder, file_no) as segment:
                header = segment.header
            if header is not None:
                epoch_seen = max(epoch_seen, header.boot_epoch)
            elif segment.is_foreign:
                path = self._folder.rdq_path(file_no)
                self._findings.foreign.append(path.name)
                self._findings.set_aside.append(self._folder.move_aside(path))
        self.epoch_seen = epoch_seen
        if not epoch_seen < self._identity.boot_epoch <= EPOCH_MAX:
            raise StoreError(
                f"boot epoch {self._identity.boot_epoch} must be above {epoch_seen}, which "
                f"was used, and at most {EPOCH_MAX}"
            )

    # Going on.

    def _sync_what_was_open(self) -> None:
        last = [*self._maybe_open()]
        last += [self._folder.journal_path(no) for no in self._folder.journal_nos()[-1:]]
        for path in last:
            with self._folder.files.open_append(path) as file:
                file.fdatasync()

    def _maybe_open(self) -> Iterator[Path]:
        """Yield the segments from the last one that is no copy on; copies were synced when made."""
        for file_no in reversed(self._folder.rdq_nos()):
            yield self._folder.rdq_path(file_no)
            with Segment(self._folder, file_no) as segment:
                header = segment.header
            if header is not None and not header.flags & MOVED:
                return

    def _opened(self, tables: Memtables) -> GroupCommit:
        point = self._point
        rdq_no, journal_no = self._numbers
        seen = max(rdq_no, self._file_no_seen, self._scan.mark.file_no)
        rdq = SegmentWriter(self._identity, max(seen + 1, point.next_file_no), *self._rdq_limits)
        frames = Journal(
            self._identity,
            max(journal_no + 1, point.first_journal),
            self._scan.next_lsn,
            self._journal_file_bytes,
        )
        mark = DurablePosition(self._scan.next_lsn, *rdq.reached)
        job = frames.job(self._acks_of_dropped(), mark, self._now_ms())
        for _ in self.journal_log.run(job):
            pass
        mark, epoch = DurablePosition(frames.end.next_lsn, *rdq.reached), self._identity.boot_epoch
        point = Checkpoint(mark.lsn, frames.end.place.file_no, epoch, rdq.next_file_no)
        self._checkpoint(tables, point)
        return GroupCommit(
            rdq, frames, self._references, tables, mark, self._identity.boot_epoch, self._now_ms
        )

    def _checkpoint(self, tables: Memtables, point: Checkpoint) -> None:
        before = self._index.checkpoint()
        generation = tables.rotate(point)
        try:
            self._index.write(generation.batch())
        except IndexFull:
            log.warning("no checkpoint at the start, the disk is full store=%s", self._folder.path)
            return  # it stays above the index, and is tried again
        tables.commit(generation)
        for file_no in self._folder.journal_nos():
            if before is not None and file_no < before.first_journal:
                self._folder.files.unlink(self._folder.journal_path(file_no))

    def _acks_of_dropped(self) -> list[bytes]:
        seqs: dict[int, list[int]] = {}
        for queue_no, seq, _, _ in self._findings.dropped + self._findings.lost:
            seqs.setdefault(queue_no, []).append(seq)
        return [ack for no, each in seqs.items() for ack in encode_acks(no, sorted(each))]

    def _remove_segments(self, tables: Memtables) -> None:
        findings = self._findings
        if findings.gaps or findings.foreign or findings.rebuilt:
            for file_no in tables.removable():
                tables.files[file_no].emptied_in = NEVER  # nor is it the collector's
            return
        if tables.frozen:
            return
        for file_no in sorted(tables.removable()):
            self._folder.files.unlink(self._folder.rdq_path(file_no))
            tables.removed(file_no)
            findings.removed.append(file_no)
        if findings.removed:
            self._folder.files.fsync_dir(self._folder.rdq)

    def _report(self) -> None:
        findings = self._findings
        if findings.is_damage or findings.dropped or findings.tails:
            name = f"recovery-{self._identity.boot_epoch:06x}"
            self._folder.report(name, asdict(findings))
        if findings.is_damage:
            log.error(
                "message store damaged store=%s gaps=%d lost=%d found=%d foreign=%d",
                self._folder.path,
                len(findings.gaps),
                len(findings.lost),
                len(findings.found),
                len(findings.foreign),
            )
