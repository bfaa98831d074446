"""A store at rest, read and not changed: what a start on these files would find.

For snapshots, and for stores that no broker has open. The index is read as it is; the journals above it
are replayed in memory, and their rows are kept if their messages can be read, as recovery does it.
Damage that recovery would mend by rebuilding the index is an error here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, Self

from leveret.core.errors import StoreError
from leveret.core.files import Files
from leveret.core.scratch_files import ScratchCalls
from leveret.msg_store.format.folder import StoreAtRest, StorePaths
from leveret.msg_store.format.rows import SEQ_END, Checkpoint, IndexDamaged, IndexRow, Location
from leveret.msg_store.index import lmdb_index
from leveret.msg_store.index.lmdb_index import LmdbIndex
from leveret.msg_store.memtable.memtable import Terms
from leveret.msg_store.memtable.memtables import Memtables
from leveret.msg_store.memtable.read_view import next_low
from leveret.msg_store.reading.verify import check, search
from leveret.msg_store.recovery.journal_reader import JournalFile
from leveret.msg_store.recovery.journal_scan import FIRST_FILE, FIRST_LSN
from leveret.msg_store.recovery.redo import RedoWriter
from leveret.msg_store.recovery.replay import Replay

PAGE_ROWS: Final = 2_000


class StoreImage:
    """What a store at rest holds. Close it.

    Args:
        files: the way to the disk.
        path: the store's folder; nobody writes it meanwhile.

    Attributes:
        paths: where its files lie.
        point: how far its index goes.
        lsn: above all records of its log.
        dropped: rows above the index whose messages cannot be read.

    Raises:
        StoreError: it is no store, of a newer version, or damaged so that it must be mended first.
    """

    def __init__(self, files: Files, path: Path) -> None:
        self.paths = StoreAtRest(Files(ScratchCalls(files.calls)), path)
        self.index = open_index(self.paths)
        try:
            self.point = self.index.checkpoint() or Checkpoint(FIRST_LSN, FIRST_FILE, 0, 1)
            self.lsn = self.point.lsn
            self.dropped = 0
            self._files = self.index.files()
            self._tables = Memtables({}, self._files, self.index.queues())
            self._replay()
        except IndexDamaged as error:
            self.index.close()
            raise _unreadable(path, str(error)) from error
        except BaseException:
            self.index.close()
            raise

    @property
    def is_clean(self) -> bool:
        """The store had been stopped, and nothing happened since."""
        return self.point.is_clean and not journals_above(self.paths, self.point)

    @property
    def queues(self) -> Mapping[int, Terms]:
        """Every queue's number of messages and their bytes."""
        return self._tables.terms

    @property
    def message_count(self) -> int:
        """How many messages lie in it, however many queues hold each."""
        active = self._tables.active
        gone = self.index.locations(no for no, place in active.changed.items() if place is None)
        return self.index.location_count + len(active.inserted) - len(gone)

    def rows(self, queue_no: int) -> Iterator[list[IndexRow]]:
        """Yield a queue's rows, ascending, some at a time."""
        low = 0
        while low < SEQ_END:
            base = self.index.rows(queue_no, low, SEQ_END, PAGE_ROWS)
            rows = self._tables.read_view().rows(queue_no, low, SEQ_END, PAGE_ROWS, base)
            yield rows
            low = next_low(rows, base, PAGE_ROWS, SEQ_END)

    def places(self, msg_nos: Iterable[int]) -> dict[int, Location]:
        """Return where messages lie, those that do."""
        msg_nos = list(msg_nos)
        return self._tables.read_view().locations(msg_nos, self.index.locations(msg_nos))

    def segment_bytes(self, file_no: int) -> int:
        """Return how long a segment is as far as the store needs it."""
        row = self._files.get(file_no)
        if row is not None and not self._tables.active.inserted:
            return row.size_bytes
        with self.paths.files.open_read(self.paths.rdq_path(file_no)) as file:
            return file.size_bytes()

    def close(self) -> None:
        """Let go of the files."""
        self.index.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Inside.

    def _replay(self) -> None:
        replay, is_first = Replay(self._tables, self.index, self.point.lsn), True
        carried = RedoWriter(self.paths)
        for file_no in journals_above(self.paths, self.point):
            file = read_journal(self.paths, file_no)
            if file is None:
                continue
            if is_first and file.header is not None and file.header.first_lsn > self.lsn:
                first = file.header.first_lsn
                why = f"its index goes up to record {self.lsn}, its journal begins at {first}"
                raise _unreadable(self.paths.path, why)
            is_first = False
            for frame, records in file.frames():
                carried.add(records)
                replay.add(frame, records)
                self.lsn = max(self.lsn, frame.next_lsn)
        carried.close()
        replay.finish()
        self._check(replay)

    def _check(self, replay: Replay) -> None:
        tables = self._tables
        rows = [
            (no, row[0], row[1]) for no, each in tables.active.rows.items() for row in each.values()
        ]
        msg_nos = {msg_no for _, _, msg_no in rows} | replay.moved
        wrong = check(self.paths, {no: place for no in msg_nos if (place := tables.location(no))})
        if not wrong:
            return
        for msg_no, place in search(self.paths, wrong).items():
            tables.found(msg_no, place)
            del wrong[msg_no]
        for queue_no, seq, msg_no in rows:
            if msg_no in wrong:
                self.dropped += 1
                tables.acked(queue_no, [(seq, msg_no)])
        replay.finish()


def open_index(paths: StorePaths) -> LmdbIndex:
    """Open the index of a store at rest, for reading.

    Raises:
        StoreError: it must be rebuilt first.
    """
    folder = paths.path / lmdb_index.FOLDER
    if (folder / lmdb_index.CONDEMNED).exists():
        raise _unreadable(paths.path, "its index was found damaged")
    try:
        return LmdbIndex(folder, paths.uuid, is_readonly=True)
    except IndexDamaged as error:
        raise _unreadable(paths.path, str(error)) from error


def journals_above(paths: StorePaths, point: Checkpoint) -> list[int]:
    """Return the journal files that may say more than the index."""
    return [file_no for file_no in paths.journal_nos() if file_no >= point.first_journal]


def read_journal(paths: StorePaths, file_no: int) -> JournalFile | None:
    """Read a journal file; None if it has nothing, or is not this store's."""
    data = paths.files.read(paths.journal_path(file_no))
    file = JournalFile(data, paths.uuid)
    is_foreign = file.is_foreign or (file.header is not None and file.header.number != file_no)
    is_empty = file.header is None and file.used_bytes <= file.end
    return None if is_foreign or is_empty else file


def _unreadable(path: Path, why: str) -> StoreError:
    return StoreError(f"{path} must be recovered first, by a start of the broker: {why}")
