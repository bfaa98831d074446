"""Opening a store: after kill -9 or a power cut, index and journals become memtables again.

The journal is the log: a change is durable when its frame is synced. The index is the log up to its last
checkpoint, one synced transaction; the journal files since then have the rest, and the segments have the
messages. Each frame names the **durable position**, up to which log and segments were synced when it was
written. A crash may tear the last frame of the journal and lose messages above the last durable position.
It does nothing else, so all else that is wrong (bad bytes inside a journal, an unreadable message below
that position, a missing segment, a file of another store, an index that cannot be used) is **damage**:
moved or copied to the quarantine, reported, and worked around.

``open_store`` locks the folder and does these steps. Each may be cut off by another crash; the next start
does it again, with the same outcome:

1. Open the index (``index.files``). An index that is missing, damaged, or older than the journals that
   are left goes to the quarantine and is rebuilt from the segments (``rebuild``) instead of steps 2, 3.
2. Read the journal files since its checkpoint, in order (``journal_scan``). Inline records are written to
   their segments (``redo``); publishes, acks and moves are applied to the memtables (``replay``).
   Then compare the last LSN that they reach with the LSN of the checkpoint and the LSN of the end mark
   (``format.end_mark``). If records are missing, messages are taken from the segments (``reclaim``).
3. Read the messages of all rows that came from the journal (``row_check``). A row whose message cannot be
   read is **dropped** if it lies above the last durable position: it was never confirmed, or nobody can
   tell. Below it all segments are searched for the message, and a row whose message is not found is
   **lost**: the report names it. Rows of the index were checked by an earlier start, or were durable
   when they got there, so they are read only if a segment is missing, or shorter than the index says.
4. Sync the files that were open at the crash: the bytes that were just read may be in memory only.
5. Begin a new journal file. Its first frame acks the dropped and lost rows, takes back the sequences of producers
   that came with dropped rows, has the rows of reclaimed messages, and names a new durable
   position, so no row is judged twice. Old files are never appended to. Write the end mark.
6. Write a checkpoint. Then remove segments without rows, unless there was damage, or queues are archived: then the
   collector decides about them (``archive``).

So a start costs a replay of the journals since the last checkpoint, and a check of the index's pages.
Steps 1 to 3 alone, with all writes kept in memory, are the inspection of an offline store
(``offline.inspection``).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from leveret.core.errors import StoreError
from leveret.core.log.loggers import logger
from leveret.core.system.files import Files
from leveret.core.system.shortage import is_shortage
from leveret.msg_store.archive import archive_file
from leveret.msg_store.archive.archive import Archive
from leveret.msg_store.archive.segment_shares import drop_orphans
from leveret.msg_store.format import count_file
from leveret.msg_store.format.append_log import AppendLog
from leveret.msg_store.format.ballast import Ballast
from leveret.msg_store.format.count_file import CountFile, Counts
from leveret.msg_store.format.end_mark import EndMark, EndMarkFile, read_mark
from leveret.msg_store.format.errors import Corrupt, EpochUsed
from leveret.msg_store.format.file_header import (
    EPOCH_MAX,
    EPOCH_SHIFT,
    HEADER_BYTES,
    MOVED,
    REBUILT,
    Identity,
)
from leveret.msg_store.format.folder import JOURNAL_NAME, SEGMENT_NAME, StoreFolder
from leveret.msg_store.format.journal_frames import DurablePosition
from leveret.msg_store.format.journal_records import (
    ProducerSeqs,
    Publishes,
    encode_acks,
    encode_producer,
    encode_publishes,
)
from leveret.msg_store.format.rows import (
    Checkpoint,
    FileRow,
    Index,
    IndexDamaged,
    IndexFiles,
    IndexFull,
    ProducerKey,
    ProducerRow,
    Producers,
    QueueTerms,
)
from leveret.msg_store.index import lmdb_index
from leveret.msg_store.index.files import LmdbFiles
from leveret.msg_store.memtable.file_states import NEVER
from leveret.msg_store.memtable.memtables import Memtables
from leveret.msg_store.reading.verify import Segment
from leveret.msg_store.recovery.journal_scan import FIRST_FILE, FIRST_LSN, JournalScan
from leveret.msg_store.recovery.rebuild import JournalMemory, Rebuild
from leveret.msg_store.recovery.reclaim import Reclaim
from leveret.msg_store.recovery.replay import Replay
from leveret.msg_store.recovery.report import Recovered, RecoveryReport
from leveret.msg_store.recovery.row_check import RowCheck
from leveret.msg_store.wal import journal
from leveret.msg_store.wal import segment_writer as rdq_writer
from leveret.msg_store.wal.group_commit import GroupCommit
from leveret.msg_store.wal.journal import Journal
from leveret.msg_store.wal.pending import Holds
from leveret.msg_store.wal.segment_writer import SegmentWriter

log = logger(__name__)

_T = TypeVar("_T")
_NEW = Checkpoint(FIRST_LSN, FIRST_FILE, 0, 1)
_LOGGED_MAX = 20


@dataclass(frozen=True, slots=True)
class StoreFiles:
    """Where a store lies and how large its files become."""

    files: Files
    path: Path  # the folder; made if it is not there
    ballast: Ballast  # of the data directory, given up when the disk is full
    now_ms: Callable[[], int]
    rdq_file_bytes: int = rdq_writer.FILE_BYTES  # when a segment is full
    journal_file_bytes: int = journal.FILE_BYTES  # when a journal file is full
    index_files: IndexFiles | None = None  # in the folder by default
    new_uuid: Callable[[], bytes] = lambda: os.urandom(16)  # makes the 16 bytes of a new store
    inline_bytes_max: int = rdq_writer.INLINE_BYTES_MAX  # larger flushes are not inline
    journal_ahead_bytes: int = journal.AHEAD_BYTES_MAX  # how much room it takes ahead at most
    vhost: str = ""  # whose messages they are; ``archive.json`` names it


@dataclass(frozen=True, slots=True)
class Opened:
    """A recovered store, open for writing."""

    folder: StoreFolder
    ballast: Ballast
    identity: Identity
    now_ms: Callable[[], int]
    recovered: Recovered
    core: GroupCommit
    rdq_log: AppendLog
    journal_log: AppendLog
    index_files: IndexFiles
    count_file: CountFile
    counts: Counts  # its contents: how often messages came back
    mark: EndMarkFile
    vhost: str

    def close(self) -> None:
        """Close all files; for a caller that does not make a ``MsgStore`` of it."""
        index = self.recovered.index
        with ExitStack() as parts:  # the folder last, also after an error of another part
            for part in (self.folder, self.count_file, index, self.journal_log, self.rdq_log):
                parts.callback(part.close)


def open_store(
    where: StoreFiles, boot_epoch: int, trusted: DurablePosition | None = None
) -> Opened:
    """Lock a store and recover it. Takes as long as the journals are; call it beside the loop.

    The boot epoch, of this start of the broker or of the store in it, is above all before. ``trusted`` is, after
    a failed sync, the durable position of the group commit that failed.

    Raises:
        StoreLocked: another process has it open.
        StoreError: it cannot be used as it is.
    """
    folder = StoreFolder(where.files, where.path, where.new_uuid, where.now_ms)
    try:
        return Recovery(folder, where, boot_epoch, trusted).run()
    except BaseException:
        folder.close()
        raise


class Recovery:
    """The steps. Use ``run`` or ``inspect`` once."""

    def __init__(
        self,
        folder: StoreFolder,
        where: StoreFiles,
        boot_epoch: int,
        trusted: DurablePosition | None = None,
    ) -> None:
        default = LmdbFiles(folder.path / lmdb_index.FOLDER, folder.uuid)
        self._index_files = where.index_files or default
        self._rdq_log = AppendLog(folder.files, folder.rdq, SEGMENT_NAME, where.ballast)
        self._journal_log = AppendLog(
            folder.files, folder.journal, JOURNAL_NAME, where.ballast, where.journal_ahead_bytes
        )
        self._folder = folder
        self._where = where
        self._identity = Identity(folder.uuid, boot_epoch)
        self._trusted = trusted
        self._holds = Holds()
        self._index: Index
        self._is_new = False
        self._point = _NEW
        self._may_rebuild = True
        self._ends: dict[int, int] = {}  # of segments in use at a crash: the end of what counts
        self._torn: dict[int, list[tuple[int, int]]] = {}  # and unreadable bytes before it
        self.epoch_seen = 0  # the highest boot epoch that was used before
        self._begin()

    def _begin(self) -> None:
        self._report = RecoveryReport()
        self._scan = JournalScan(self._folder, self._report, self._trusted)
        last_rdq = max(self._folder.rdq_nos(), default=0)
        self._numbers = last_rdq, max(self._folder.journal_nos(), default=0)
        self._msg_no_seen = self._file_no_seen = 0
        self._producers: Producers = {}
        self._changed: dict[
            ProducerKey, ProducerRow | None
        ] = {}  # sequences that the log has otherwise
        self._reclaimed: list[Publishes] = []
        self._mark: EndMark | None = None
        self._seen: dict[
            int, tuple[int, str]
        ] = {}  # lengths of the segments, and damage of their headers

    def run(self) -> Opened:
        return self._twice(self._run)

    def inspect(self, may_rebuild: bool = True) -> Recovered:
        """Do the first three steps, over ``core.scratch_files``. The caller closes the index.

        Raises:
            StoreError: the boot epoch was used before, or the index must be rebuilt and may not be.
        """
        self._may_rebuild = may_rebuild
        return self._twice(self._judged)

    def _twice(self, steps: Callable[[str], _T]) -> _T:
        try:
            try:
                return self._closing(steps, self._open_index())
            except IndexDamaged as error:
                # Found while it was used: reading every value at each start would cost too much.
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
            self._index.close()  # first: a disk that fails must not keep it open
            self._rdq_log.close()
            self._journal_log.close()
            raise

    def _run(self, damage: str) -> Opened:
        recovered = self._judged(damage)
        self._sync_what_was_open()
        if self._ends or self._torn:
            archive_file.note_crash(self._folder, self._ends, self._torn)
        archive = archive_file.load(self._folder, archive_file.NAME in self._missing())
        mark = EndMarkFile(self._folder, self._identity, self._where.now_ms())
        core = self._opened(recovered.memtables, archive, mark)
        self._remove_segments(recovered.memtables, archive)
        drop_orphans(self._folder)
        self._write_report()
        counts = CountFile(self._folder, self._identity, self._where.now_ms)
        found = counts.read()
        if count_file.fault_of(self._folder):
            self._rewrite(counts)
        return Opened(
            self._folder,
            self._where.ballast,
            self._identity,
            self._where.now_ms,
            recovered,
            core,
            self._rdq_log,
            self._journal_log,
            self._index_files,
            counts,
            found,
            mark,
            self._where.vhost,
        )

    def _judged(self, damage: str) -> Recovered:
        point = None if damage else self._index.checkpoint()
        damage = damage or self._why_rebuild(point)
        self._point = point or _NEW
        self._read_mark()
        self._check_others()
        if damage:
            memtables, queues = self._rebuilt(damage)
        else:
            memtables, queues = self._replayed(self._point)
        is_clean = self._is_clean(point) and not damage
        if not is_clean:
            queues = {no: terms._replace(is_clean=False) for no, terms in queues.items()}
        first_no = self._identity.first_no
        next_lsn = self._scan.next_lsn
        return Recovered(
            self._index,
            self._point,
            next_lsn,
            memtables,
            queues,
            is_clean,
            first_no,
            self._report,
            self._scan.files,
            self._scan.records,
            self._producers,
        )

    def _is_clean(self, point: Checkpoint | None) -> bool:
        """Tell whether nothing happened after the checkpoint of a clean stop."""
        return point is not None and point.is_clean and self._numbers[1] < point.first_journal

    # Step 1: the index.

    def _open_index(self) -> str:
        """Open the index, a new one if it cannot be used; return the damage of the old one."""
        try:
            self._index = self._index_files.open()
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
        self._index_files.set_aside(self._folder.quarantine, name)
        self._index = self._index_files.open()
        self._is_new = True

    def _why_rebuild(self, point: Checkpoint | None) -> str:
        """Return why index and journals do not add up; nothing if they do."""
        starts_at = self._scan.starts_at((point or _NEW).first_journal)
        if point is None and self._folder.rdq_nos() and not self._scan.has_first():
            return "neither the index nor the beginning of the journal is there"
        if starts_at > (point or _NEW).lsn:
            goes_to = (point or _NEW).lsn
            return f"the index goes up to record {goes_to}, the journal begins at {starts_at}"
        if point is not None and self._scan.is_rebuilt(point.first_journal, point.boot_epoch):
            return "the index is from before it was rebuilt"  # since then rows have other seqs
        return ""

    # Missing files and records.

    def _read_mark(self) -> None:
        """Read the end mark. A checkpoint of this version requires a mark, of the same start or a later one."""
        doubts, has_one = self._report.doubts, self._point.since is not None
        try:
            mark = read_mark(self._folder)
        except Corrupt as error:
            doubts.append(f"the end mark cannot be used: {error}")
            return
        if mark is None:
            if has_one and self._folder.journal_nos():  # a snapshot has neither
                doubts.append("the end mark is missing")
        elif mark.boot_epoch >= self._point.boot_epoch:
            self._mark = mark
        elif has_one:
            doubts.append("the end mark is of an earlier start")

    def _check_others(self) -> None:
        """Check the files that no message depends on. A damaged archive.json stays until the policies are known."""
        counts = count_file.fault_of(self._folder)
        if not counts and count_file.NAME in self._missing():
            counts = f"{count_file.NAME} is missing: all counts begin at 0 again"
        is_archive_missing = archive_file.NAME in self._missing()
        if counts:
            self._report.doubts.append(counts)
        if archive := archive_file.fault_of(self._folder, is_archive_missing):
            self._report.notes.append(archive)

    def _missing(self) -> list[str]:
        """Return the files that the end mark names and that are missing."""
        if self._mark is None:
            return []
        return self._mark.missing(self._folder.files.names(self._folder.path))

    def _check_end(self, point: Checkpoint) -> None:
        """Report a gap if the journal ends before the checkpoint or before the end mark."""
        name = self._folder.journal_path(point.first_journal).name
        is_there = self._numbers[1] >= point.first_journal
        reached = self._scan.reached or self._scan.end_before(point.first_journal)
        expected = self._mark.durable.lsn if self._mark is not None else 0
        if not point.is_clean and (reached or self._mark is not None):
            expected = max(expected, point.lsn)
        if reached >= expected or (point.is_clean and expected <= point.lsn):
            return
        where = "at its end" if is_there else f"with {name}, which is not there"
        first = max(reached, point.lsn) if is_there else point.lsn
        self._report.gaps.append(
            f"records {min(first, expected - 1)} to {expected - 1} are missing {where}"
        )
        self._scan.next_lsn = max(self._scan.next_lsn, expected)

    def _short_segments(self, indexed: Mapping[int, FileRow]) -> dict[int, int]:
        """Return the lengths of segments that are shorter than their messages' row in the index says; 0: missing."""
        on_disk, ends = set(self._folder.rdq_nos()), dict[int, int]()
        for file_no, row in indexed.items():
            if not row.valid_bytes:
                continue
            if file_no not in on_disk:
                ends[file_no] = 0
                continue
            size_bytes, damage = self._seen[file_no]
            if size_bytes < row.size_bytes:
                ends[file_no] = max(1, size_bytes)
                text = f"segment {file_no:08x} has {size_bytes} bytes, and had {row.size_bytes}"
                self._report.cut.append(text)
            elif damage:
                self._report.notes.append(f"segment {file_no:08x}: {damage}")
        return ends

    # Steps 2 and 3: journal and rows.

    def _replayed(self, point: Checkpoint) -> tuple[Memtables, dict[int, QueueTerms]]:
        index, queues = self._index, self._index.queues()
        on_disk = set(self._folder.rdq_nos())
        indexed = index.files()
        files = {no: row for no, row in indexed.items() if no in on_disk}
        memtables = Memtables(self._holds.locations, files, queues)
        if self._mark is not None:
            self._scan.durable = self._mark.durable
        replay = Replay(memtables, index, point.lsn, self._scan.durable)
        self._scan.run(replay.add, point.first_journal, point.lsn)
        replay.finish()
        self._msg_no_seen, self._file_no_seen = replay.msg_no_seen, replay.file_no_seen
        self._check_epoch(point.boot_epoch)
        self._check_end(point)
        reclaim = Reclaim(self._folder, index, replay)
        self._look_behind(reclaim, point)
        checked = RowCheck(self._folder, memtables, index, self._report, replay, self._scan.durable)
        checked.check_journal()
        ends = self._short_segments(indexed)  # other stores' segments have been set aside
        if ends:
            checked.check_index(ends)
        if self._report.gaps:
            self._reclaim(reclaim, point)
        self._producers = replay.producers
        self._changed = {**replay.rolled_back, **reclaim.sequences}
        self._measure(memtables)
        memtables.files.dirty.update(ends.keys() & memtables.files.keys())
        if not self._report.gaps:  # records that are missing in the journal may have been durable
            self._torn = checked.torn()
            self._find_ends(memtables, indexed, replay)
        return memtables, queues

    def _look_behind(self, reclaim: Reclaim, point: Checkpoint) -> None:
        """Report a gap if the segments have durable messages behind the end of the journal."""
        if self._trusted is not None or self._is_clean(point):
            return
        end = max(reclaim.known_end(self._scan.durable, point.next_file_no), point.since or (0, 0))
        if (place := reclaim.cut_from(end)) is not None:
            text = "segment %08x has confirmed messages from byte %d on that no record names"
            self._report.gaps.append(text % place)

    def _reclaim(self, reclaim: Reclaim, point: Checkpoint) -> None:
        memory, again = JournalMemory(), RecoveryReport()  # the first report has the damage already
        scan = JournalScan(self._folder, again, self._trusted)
        scan.run(memory.add, point.first_journal, point.lsn)
        since = point.since or reclaim.indexed_end(point.next_file_no)
        reclaim.take_missing(since, memory, self._trusted)
        reclaim.finish()
        self._reclaimed = reclaim.runs
        self._report.reclaimed = reclaim.counts

    def _rebuilt(self, damage: str) -> tuple[Memtables, dict[int, QueueTerms]]:
        self._check_may_rebuild(damage)
        log.error("index of messages is rebuilt store=%s reason=%s", self._folder.path, damage)
        self._report.rebuilt = damage
        memory = JournalMemory()
        self._scan.run(memory.add, 0, self._scan.starts_at(0))
        # With no journal left, the next one must not look as if nothing had been before it.
        self._scan.next_lsn = max(self._scan.next_lsn, FIRST_LSN + 1)
        if not self._is_new:
            self._index.close()
            self._new_index()
        rebuild = Rebuild(self._folder, self._index, memory, self._trusted)
        rebuild.run()
        self._msg_no_seen = rebuild.msg_no_seen
        self._producers = rebuild.producers
        self._check_epoch(0)
        memtables = Memtables(self._holds.locations, rebuild.files, rebuild.terms())
        for state in memtables.files.values():
            state.emptied_in = NEVER  # perhaps it is only that nothing in it could be read
        for file_no in memtables.files.keys() - set(self._folder.rdq_nos()):
            memtables.files.remove(file_no)  # it was another store's
        memtables.files.dirty.update(rebuild.files)
        memtables.write_all_terms()
        for queue_no, producers in rebuild.producers.items():
            for producer, row in producers.items():
                memtables.produced(queue_no, producer, row)
        return memtables, rebuild.terms()

    def _measure(self, memtables: Memtables) -> None:
        """Take number and length of all segments from the disk."""
        on_disk = self._folder.rdq_nos()
        for file_no in {*memtables.files, *self._index.files()}.difference(on_disk):
            memtables.files.remove(file_no)
        for file_no in on_disk:
            memtables.files.measured(file_no, self._seen[file_no][0])

    def _find_ends(
        self, memtables: Memtables, indexed: Mapping[int, FileRow], replay: Replay
    ) -> None:
        """Note segments with bytes behind their durable end: a crash has cut off a flush."""
        durable = max(self._scan.durable, self._trusted or self._scan.durable)
        for file_no, state in memtables.files.items():
            row = indexed.get(file_no)
            end = max(row.size_bytes if row is not None else 0, replay.ends.get(file_no, 0))
            if file_no == durable.file_no:
                end = max(end, durable.offset)
            is_torn = self._torn.get(file_no) == [(HEADER_BYTES, end)]
            if is_torn:
                del self._torn[file_no]
                end = HEADER_BYTES  # nothing in it counts, and its header may be torn, too
            if is_torn or end < state.size_bytes or state.size_bytes < HEADER_BYTES:
                with Segment(self._folder, file_no) as segment:
                    is_copy = segment.header is not None and segment.header.flags & MOVED
                if not is_copy:
                    self._ends[file_no] = max(end, HEADER_BYTES)

    def _check_epoch(self, epoch_seen: int) -> None:
        epoch_seen = max(epoch_seen, self._scan.epoch_seen, self._msg_no_seen >> EPOCH_SHIFT)
        for file_no in self._folder.rdq_nos():
            with Segment(self._folder, file_no) as segment:
                header = segment.header
                self._seen[file_no] = segment.size_bytes, segment.damage
            if header is not None:
                epoch_seen = max(epoch_seen, header.boot_epoch)
            if segment.is_foreign:
                path = self._folder.rdq_path(file_no)
                self._report.foreign.append(path.name)
                self._report.set_aside.append(self._folder.move_aside(path))
        self.epoch_seen = epoch_seen
        if not epoch_seen < self._identity.boot_epoch <= EPOCH_MAX:
            raise EpochUsed(
                f"boot epoch {self._identity.boot_epoch} must be above {epoch_seen}, which "
                f"was used, and at most {EPOCH_MAX}"
            )

    # From here on files are written (steps 4 to 6).

    def _sync_what_was_open(self) -> None:
        last = [*self._maybe_open()]
        last += [self._folder.journal_path(no) for no in self._folder.journal_nos()[-1:]]
        for path in last:
            with self._folder.files.open_append(path) as file:
                file.fdatasync()

    def _maybe_open(self) -> Iterator[Path]:
        """Yield the last segment that is no copy, and the copies after it; older ones were synced."""
        for file_no in reversed(self._folder.rdq_nos()):
            yield self._folder.rdq_path(file_no)
            with Segment(self._folder, file_no) as segment:
                header = segment.header
            if header is not None and not header.flags & MOVED:
                return

    def _opened(self, memtables: Memtables, archive: Archive, mark: EndMarkFile) -> GroupCommit:
        identity, where, next_lsn = self._identity, self._where, self._scan.next_lsn
        rdq_no, journal_no = self._numbers
        known = (rdq_no, self._file_no_seen, self._scan.durable.file_no, archive.segment_seen)
        seen = max(known)
        rdq_no = max(seen + 1, self._point.next_file_no)
        rdq = SegmentWriter(identity, rdq_no, where.rdq_file_bytes, where.inline_bytes_max)
        journal_no = max(journal_no + 1, self._point.first_journal)
        flags = REBUILT if self._report.rebuilt else 0
        frames = Journal(identity, journal_no, next_lsn, where.journal_file_bytes, flags)
        durable = DurablePosition(next_lsn, *rdq.reached)
        records = [
            *self._acks_of_dropped(),
            *map(encode_publishes, self._reclaimed),
            *self._sequences_changed(),
        ]
        job = frames.job(records, durable, self._where.now_ms())
        for _ in self._journal_log.run(job):
            pass
        durable, epoch = DurablePosition(frames.end.next_lsn, *rdq.reached), identity.boot_epoch
        has_mark = self._begin_mark(mark, durable)
        since = rdq.reached if has_mark else None
        journal_no, next_file_no = frames.end.place.file_no, rdq.next_file_no
        point = Checkpoint(durable.lsn, journal_no, epoch, next_file_no, since=since)
        self._checkpoint(memtables, point)
        return GroupCommit(
            rdq, frames, self._holds, memtables, durable, epoch, where.now_ms, archive, has_mark
        )

    def _rewrite(self, counts: CountFile) -> None:
        try:
            counts.write([])
        except OSError as error:  # the next change writes the counts
            path = self._folder.path
            log.warning("delivery counts not written yet store=%s error=%s", path, error)

    def _begin_mark(self, mark: EndMarkFile, durable: DurablePosition) -> bool:
        try:
            mark.begin(durable, set(self._missing()) - {count_file.NAME})
        except OSError as error:
            if not is_shortage(error):
                raise
            log.warning("no end mark at the start store=%s error=%s", self._folder.path, error)
            return False
        return True

    def _checkpoint(self, memtables: Memtables, point: Checkpoint) -> None:
        before = self._index.checkpoint()
        memtable = memtables.rotate(point)
        try:
            self._index.write(memtable.batch())
        except IndexFull:
            log.warning("no checkpoint at the start, the disk is full store=%s", self._folder.path)
            return  # it stays above the index, and is tried again
        memtables.commit(memtable)
        for file_no in self._folder.journal_nos():
            if before is not None and file_no < before.first_journal:
                self._folder.files.unlink(self._folder.journal_path(file_no))

    def _acks_of_dropped(self) -> list[bytes]:
        seqs: dict[int, list[int]] = {}
        for queue_no, seq, _, _ in self._report.dropped + self._report.lost:
            seqs.setdefault(queue_no, []).append(seq)
        return [ack for no, each in seqs.items() for ack in encode_acks(no, sorted(each))]

    def _sequences_changed(self) -> list[bytes]:
        made = []
        for (queue_no, producer), row in self._changed.items():
            epoch, seq, used_ms = row or (0, 0, 0)
            seqs = () if row is None else (seq,)
            record = ProducerSeqs(queue_no, 1, producer, epoch, used_ms, (0,) * len(seqs), seqs)
            made.append(encode_producer(record))
        return made

    def _remove_segments(self, memtables: Memtables, archive: Archive) -> None:
        report = self._report
        if report.gaps or report.foreign or report.rebuilt or report.cut:
            for file_no in memtables.removable():
                memtables.files[file_no].emptied_in = NEVER  # nor is it the collector's
            return
        if memtables.frozen or archive:
            return
        for file_no in sorted(memtables.removable()):
            self._folder.files.unlink(self._folder.rdq_path(file_no))
            memtables.files.remove(file_no)
            report.removed.append(file_no)
        if report.removed:
            self._folder.files.fsync_dir(self._folder.rdq)

    def _write_report(self) -> None:
        report, name = self._report, f"recovery-{self._identity.boot_epoch:06x}"
        if report.is_damage or report.dropped or report.tails:
            self._folder.report(name, asdict(report))
        for text in report.of_files[:_LOGGED_MAX]:
            log.error("message store damaged store=%s damage=%s", self._folder.path, text)
        dropped = [f"{len(report.dropped)} messages: {why}" for *_, why in report.dropped[:1]]
        for text in [*report.tails, *dropped]:
            log.warning(
                "last write is not whole, it was not confirmed if a crash has cut it off store=%s place=%s",
                self._folder.path,
                text,
            )
        for text in report.notes[:_LOGGED_MAX]:
            log.warning("message store has damage store=%s damage=%s", self._folder.path, text)
        if report.is_damage:
            log.error(
                "message store recovered from damage store=%s files=%d lost=%d found=%d reclaimed=%d"
                " remedy=messages may be delivered again; see quarantine/%s.json",
                self._folder.path,
                len(report.of_files),
                len(report.lost),
                len(report.found),
                sum(report.reclaimed.values()),
                name,
            )
