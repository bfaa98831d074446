"""The files of an index: opening, condemning, setting aside and compacting it.

LMDB never gives space back: free pages are used again, but a file that has grown to a backlog of ten
million messages stays as large when all are acked. So a start that finds an index of mostly free pages
copies the pages in use into a new file, syncs it and renames it over the old one. Whether that is worth
it is known without a read: LMDB counts the pages of its tables.

All pages are checked before LMDB opens the index (``page_check``), because a damaged one may end the
process. While the index is open, a file lies beside it. A start that finds that file (a crash left it)
checks all pages; else the leaves of very large indexes are not checked, which would take seconds. If
such a leaf ends the process, the next start finds the file, and checks all.
"""

from __future__ import annotations

import math
import os
import shutil
from itertools import chain, count
from pathlib import Path
from typing import Final

from leveret.core.log.loggers import logger
from leveret.msg_store.format.rows import IndexDamaged, IndexFull
from leveret.msg_store.index.lmdb_errors import free_bytes, sync
from leveret.msg_store.index.lmdb_index import CONDEMNED, DATA, MAP_BYTES, LmdbIndex
from leveret.msg_store.index.page_check import fault_of

log = logger(__name__)

COMPACT_BYTES_MIN: Final = 64 * 1024 * 1024  # below that nobody misses the space
LIVE_SHARE_MAX: Final = 4  # at most one part in so many is copied, so that a start stays short
LEAVES_BYTES_MAX: Final = 256 * 1024 * 1024  # two million messages, half a second
ROOM_BYTES: Final = 16 * 1024 * 1024  # left free on the disk

_DRAFT: Final = ".compact"
_LOCK: Final = "lock.mdb"
_IN_USE: Final = "in-use"


class LmdbFiles:
    """``rows.IndexFiles`` of an LMDB environment in a folder of its own.

    Args:
        map_bytes: how large it may become before it must grow.
        compact_bytes_min: smaller files are not compacted.
        leaves_bytes_max: of larger indexes that were closed in order the leaves are not checked.
    """

    def __init__(
        self,
        path: Path,
        uuid: bytes,
        map_bytes: int = MAP_BYTES,
        compact_bytes_min: int = COMPACT_BYTES_MIN,
        leaves_bytes_max: int = LEAVES_BYTES_MAX,
    ) -> None:
        self._path = path
        self._uuid = uuid
        self._map_bytes = map_bytes
        self._compact_bytes_min = compact_bytes_min
        self._leaves_bytes_max = leaves_bytes_max

    def check(self, leaves_bytes_max: float = math.inf) -> None:
        """Raise ``IndexDamaged`` if the index was condemned or a page is damaged; see ``page_check.fault_of``."""
        if (self._path / CONDEMNED).exists():
            raise IndexDamaged(f"{self._path} was found damaged when it was used")
        if fault := fault_of(self._path / DATA, leaves_bytes_max):
            raise IndexDamaged(fault)

    def open(self) -> LmdbIndex:
        """Open it, or make it; a file of mostly free pages is compacted first."""
        index = self._opened()
        before = index.size_bytes
        if before < self._compact_bytes_min:
            return index
        if index.live_bytes * LIVE_SHARE_MAX > before:
            return index
        try:
            self._write_draft(index)
        except OSError as error:
            log.warning("index of messages not compacted index=%s error=%s", self._path, error)
            shutil.rmtree(self._draft, ignore_errors=True)
            return index
        except BaseException:
            index.close()
            raise
        index = self._swapped(index)
        text = "index of messages compacted index=%s bytes_before=%d bytes_after=%d"
        log.info(text, self._path, before, index.size_bytes)
        return index

    def compact(self) -> tuple[int, int]:
        """Compact the file; return the bytes in use before and after. An ``OSError`` leaves it unchanged."""
        index = self._opened()
        before = index.size_bytes
        try:
            self._write_draft(index)
            index = self._swapped(index)
            return before, index.size_bytes
        finally:
            index.close()

    def _opened(self) -> LmdbIndex:
        shutil.rmtree(self._draft, ignore_errors=True)  # of a start that was cut off
        in_use = self._path / _IN_USE
        self.check(math.inf if in_use.exists() else self._leaves_bytes_max)
        self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
        in_use.touch(mode=0o600)
        sync(self._path)
        index = LmdbIndex(self._path, self._uuid, self._map_bytes)
        index.closed = lambda: in_use.unlink(missing_ok=True)
        return index

    @property
    def _draft(self) -> Path:
        return self._path.with_name(self._path.name + _DRAFT)

    def _write_draft(self, index: LmdbIndex) -> None:
        need = index.live_bytes + ROOM_BYTES
        if free_bytes(self._path) < need:
            raise OSError(f"{need} bytes of room are needed on the disk")
        self._draft.mkdir(mode=0o700)
        try:
            index.compact_to(self._draft)
        except (IndexFull, IndexDamaged) as error:
            # Lost pages, which are no damage, make a compact copy fail, too.
            raise OSError(str(error)) from error
        sync(self._draft / DATA)

    def _swapped(self, index: LmdbIndex) -> LmdbIndex:
        """Close the index, rename the copy over it and open that.

        The number of the last transaction also stands in LMDB's lock file, as long as any process
        has that open, and the copy begins to count anew: with the old lock file it may look empty.
        """
        index.close()
        (self._path / _LOCK).unlink(missing_ok=True)
        sync(self._path)
        os.replace(self._draft / DATA, self._path / DATA)
        sync(self._path)
        return self._opened()

    def set_aside(self, quarantine: Path, name: str) -> None:
        """Move the folder to the quarantine, under a name that is free."""
        if self._path.exists():
            names = chain([name], (f"{name}-{number}" for number in count(2)))
            free = next(each for each in names if not (quarantine / each).exists())
            os.replace(self._path, quarantine / free)

    def condemn(self) -> None:
        """Have the next ``open`` raise ``IndexDamaged``."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        with open(os.open(self._path / CONDEMNED, flags, 0o600), "wb") as file:
            os.fsync(file.fileno())
