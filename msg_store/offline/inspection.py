"""An offline store as the next start would open it, read only.

Recovery does the work, with all writes kept in memory (``core.scratch_files``) and an index that
is opened read-only; an index that must be rebuilt is built in a temporary folder. So audit, salvage,
snapshots and the commands on top report by construction what the next start of a broker would find. The
store is locked meanwhile.

A snapshot copies the index that is on the disk. So with ``may_rebuild=False`` a store whose next start
would rebuild its index, or that has lost its FORMAT, is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Self

from leveret.core.errors import StoreError
from leveret.core.system.files import Files
from leveret.core.system.scratch_files import ScratchCalls
from leveret.msg_store.format.ballast import Ballast
from leveret.msg_store.format.file_header import EPOCH_MAX
from leveret.msg_store.format.folder import StoreFolder, StorePaths, read_format
from leveret.msg_store.format.rows import SEQ_END, IndexDamaged, IndexMissing, IndexRow, Location
from leveret.msg_store.index import lmdb_index
from leveret.msg_store.index.files import LmdbFiles
from leveret.msg_store.index.lmdb_index import LmdbIndex
from leveret.msg_store.memtable.read_view import next_low
from leveret.msg_store.recovery.format_repair import restore_format
from leveret.msg_store.recovery.recovery import Recovery, StoreFiles

PAGE_ROWS: Final = 10_000
_MSG_NO_END: Final = 1 << 64


class ReadOnlyFiles:
    """``IndexFiles`` of an index that is only read.

    ``scratch`` is an empty folder for an index that must be rebuilt, None if it may not. With ``damage`` the index
    on the disk is not used.
    """

    def __init__(self, path: Path, uuid: bytes, scratch: Path | None, damage: str = "") -> None:
        self._path = path
        self._uuid = uuid
        self._scratch = scratch
        self._damage = damage
        self._is_aside = False
        self.read: LmdbIndex | None = None  # the index on the disk, while it is used

    def open(self) -> LmdbIndex:
        """Open the index; a new one if it is missing, or was set aside."""
        if self._is_aside:
            assert self._scratch is not None, "recovery was asked not to rebuild the index"
            return LmdbIndex(self._scratch / lmdb_index.FOLDER, self._uuid)
        if self._damage:
            raise IndexDamaged(self._damage)
        LmdbFiles(self._path, self._uuid).check()
        try:
            self.read = LmdbIndex(self._path, self._uuid, is_readonly=True)
        except IndexMissing:
            if self._scratch is None:
                raise
            self._is_aside = True
            return self.open()
        return self.read

    def set_aside(self, quarantine: Path, name: str) -> None:
        """Have the next ``open`` make a new index."""
        self._is_aside, self.read = True, None

    def condemn(self) -> None:
        """Do nothing: the index stays as it is."""


class Inspection:
    """An offline store, locked and read. ``close`` it.

    Args:
        index_damage: why the index must not be used; empty if nothing is known against it.
        may_rebuild: an index that cannot be used is rebuilt in a temporary folder, and a lost FORMAT is
            restored in memory; else both are errors.

    Attributes:
        folder: the store's; writes to it stay in memory.
        on_disk: its files as they are on the disk.
        format_damage: the damage of FORMAT, which was restored in memory; empty if there is none.
        recovered: the state that a start would continue from.

    Raises:
        StoreLocked: another process has the store open.
        StoreError: it is no store, a newer version's, or must be recovered first.
    """

    def __init__(
        self,
        path: Path,
        index_damage: str = "",
        may_rebuild: bool = True,
        files: Files | None = None,
    ) -> None:
        self.path = path
        files_on_disk = files or Files()
        self._scratch = ScratchCalls(files_on_disk.calls)
        files = Files(self._scratch)
        self.format_damage = restore_format(files, path) if may_rebuild else ""
        if not may_rebuild:
            _check_format(files, path)
        with ExitStack() as stack:
            self.folder = StoreFolder(files, path, lambda: bytes(16), _no_time)
            stack.callback(self.folder.close)
            self.on_disk = StorePaths(files_on_disk, path, self.folder.uuid)
            scratch = None
            if may_rebuild:
                scratch = Path(stack.enter_context(TemporaryDirectory(prefix="leveret-store-")))
            index_path = path / lmdb_index.FOLDER
            location = ReadOnlyFiles(index_path, self.folder.uuid, scratch, index_damage)
            ballast = Ballast(files, path)
            where = StoreFiles(files, path, ballast, _no_time, index_files=location)
            recovery = Recovery(self.folder, where, EPOCH_MAX)
            self.recovered = recovery.inspect(may_rebuild)
            stack.callback(self.recovered.index.close)
            self._open = stack.pop_all()
        self.report = self.recovered.report  # the damage that a start would report
        self.index = self.recovered.index  # without the changes of ``recovered.memtables``
        self.queues = self.recovered.memtables.terms  # messages and bytes of each, by the store
        self.epoch_seen = recovery.epoch_seen  # the highest boot epoch that was used
        self.lmdb = location.read  # the index on the disk; None if it is lost or damaged

    def has_redone(self, file_no: int) -> bool:
        """Return whether ``folder`` has bytes of a segment that a power cut has left in the journal only."""
        return self._scratch.is_changed(self.folder.rdq_path(file_no))

    def queue_nos(self) -> list[int]:
        """Return the numbers of all queues that have rows, or had some and are not forgotten."""
        return sorted(
            {*self.index.queue_nos(), *self.queues, *self.recovered.memtables.active.rows}
        )

    def rows(self, queue_no: int) -> Iterator[IndexRow]:
        view, low = self.recovered.memtables.read_view(), 0
        while low < SEQ_END:
            base = self.index.rows(queue_no, low, SEQ_END, PAGE_ROWS)
            rows = view.rows(queue_no, low, SEQ_END, PAGE_ROWS, base)
            yield from rows
            low = next_low(rows, base, PAGE_ROWS, SEQ_END)

    def locations(self) -> Iterator[tuple[int, Location]]:
        """Yield all messages that have rows, ascending, with their locations."""
        active = self.recovered.memtables.active
        inserted = sorted(active.inserted.items(), reverse=True)
        low = 0
        while low < _MSG_NO_END:
            base = self.index.scan_locations(low, PAGE_ROWS)
            high = base[-1][0] + 1 if len(base) == PAGE_ROWS else _MSG_NO_END
            merged = [(no, active.changed.get(no, location)) for no, location in base]
            while inserted and inserted[-1][0] < high:
                merged.append(inserted.pop())
            merged.sort()
            yield from ((no, location) for no, location in merged if location is not None)
            low = high

    def close(self) -> None:
        self._open.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _check_format(files: Files, path: Path) -> None:
    try:
        read_format(files, path)
    except (FileNotFoundError, NotADirectoryError):
        raise StoreError(f"{path} is not a message store") from None


def _no_time() -> int:
    return 0
