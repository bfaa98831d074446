"""A snapshot of a running store: links to segments, and a copy of the index.

A snapshot is the store as of one LSN, the *cut*. Segments never change, so they are only linked; the
index does, so it is copied. The cut is the end of a memtable (``checkpoint``), and the index is copied
when it has that memtable and no later one.
So a snapshot needs no journal, and its index alone names its contents.

::

    loop                    work issued before is flushed; the segment in use is left, so that
                            no linked file is written; the memtable is frozen: the cut; pins
    the checkpoint's thread that memtable, then links and the copy; later memtables wait
    loop                    pins are taken back

Only segments with messages that the cut needs are linked, and those that the archive keeps at the cut, with its
``archive.json``. Pins keep them until then: the
collector may have moved messages since, and then unlinks nothing that is pinned.

A snapshot is made as a draft: nothing is synced, and its caller decides when it counts
(``management/snapshots``).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from leveret.core.system.files import Files
from leveret.msg_store.archive.archive_file import NAME as ARCHIVE_NAME
from leveret.msg_store.archive.archive_file import ArchiveContents
from leveret.msg_store.format.ballast import Ballast
from leveret.msg_store.format.folder import FORMAT, StorePaths
from leveret.msg_store.format.pins import Pins
from leveret.msg_store.format.rows import Index, IndexFull
from leveret.msg_store.index import lmdb_index
from leveret.msg_store.threads.worker import Steps
from leveret.msg_store.wal.flush import SLICE_OPS
from leveret.msg_store.wal.group_commit import GroupCommit

OPS_PER_FLUSH: Final = SLICE_OPS // 4  # at least, with large messages too
ROOM_BYTES: Final = 64 * 1024 * 1024  # is left to the store


def disk_full() -> OSError:
    """Return the error of a snapshot that has no room."""
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def check_room(files: Files, folder: Path, index: Index) -> None:
    """Raise ``OSError`` (disk full) where the copy of an index would leave the store without room."""
    free, needed = files.free_bytes(folder), index.size_bytes + ROOM_BYTES
    if free < needed:
        raise OSError(errno.ENOSPC, f"{free} bytes are free on the disk, {needed} are needed")


def make_draft(folder: StorePaths, target: Path) -> StorePaths:
    """Make the folders of a draft, and link FORMAT."""
    new = StorePaths(folder.files, target)
    for each in (target, new.rdq, new.journal):
        folder.files.mkdir(each)
    folder.files.link(folder.path / FORMAT, target / FORMAT)
    return new


def copy_index(index: Index, target: Path) -> None:
    """Copy the index into a draft."""
    try:
        index.copy_to(target / lmdb_index.FOLDER)
    except IndexFull as error:
        raise disk_full() from error


@dataclass(frozen=True, slots=True)
class ArchiveAtCut:
    """The archive of a store at one moment: the segments that it keeps, and its file; None: nothing is archived."""

    kept: frozenset[int]
    contents: ArchiveContents | None


@dataclass(slots=True)
class Snapshot:
    """A snapshot that is being made. For the loop, but for ``run``."""

    target: Path  # the store's folder in the draft; not there yet
    pins: Pins  # of the store
    done: Callable[[Exception | None], None]  # gets the error, None if there was none
    archive_now: Callable[[], ArchiveAtCut]  # asked at the cut
    wants_cut: bool = False  # the next rotation makes the cut
    memtable_no: int = 0  # the memtable that is frozen at the cut; 0 before
    _pinned: list[int] = field(default_factory=list)
    _archive: ArchiveAtCut = ArchiveAtCut(frozenset(), None)
    _lsn: int = -1
    _flushes_left: int = 0

    def is_ready(self, core: GroupCommit) -> bool:
        """Return whether the cut may be made: all work issued before is durable or in flight.

        Under load that never ends, a number of flushes must do. All confirmed messages are in the
        snapshot in any case.
        """
        if self._lsn < 0:
            self._flushes_left = 2 + core.pending_ops // OPS_PER_FLUSH
        elif core.durable.lsn != self._lsn:
            self._flushes_left -= 1
        self._lsn = core.durable.lsn
        self.wants_cut |= not core.pending_ops or self._flushes_left <= 0
        return self.wants_cut

    def begin(self, memtable_no: int, file_nos: Iterable[int]) -> None:
        """Note the cut, and pin the segments that are there."""
        self.wants_cut = False
        self.memtable_no, self._pinned = memtable_no, list(file_nos)
        self.pins.pin(self._pinned)
        self._archive = self.archive_now()

    def run(self, index: Index, folder: StorePaths, ballast: Ballast) -> Steps[None]:
        """Link and copy, on the checkpoint's thread; yields the points that are reached. The ballast stays."""
        new = make_draft(folder, self.target)
        check_room(folder.files, self.target, index)
        yield "snapshot: made"
        needed = {file_no for file_no, row in index.files().items() if row.valid_bytes}
        for file_no in sorted(needed | self._archive.kept):
            folder.files.link(folder.rdq_path(file_no), new.rdq_path(file_no))
            yield "snapshot: linked"
        if self._archive.contents is not None:
            folder.files.write_new(self.target / ARCHIVE_NAME, self._archive.contents.encoded())
        copy_index(index, self.target)
        yield "snapshot: copied"

    def then(self, error: Exception | None) -> None:
        """Release the segments, and call ``done``."""
        self.pins.unpin(self._pinned)
        self.done(error)
