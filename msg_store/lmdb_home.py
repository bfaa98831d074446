"""Where the index lies: opening it, setting it aside, and making its file small again.

LMDB never gives space back: pages that are free are used again, but a file that has grown to a
backlog of ten million messages stays as large when all are gone. So a start that finds an index which
is mostly free pages copies what is in use into a new file and lets that take the old one's place.
Whether it is worth it is known without reading: LMDB counts the pages of its tables. The old file
stays as it is until the new one is whole and synced, and then one rename changes them.
"""

from __future__ import annotations

import logging
import os
import shutil
from itertools import chain, count
from pathlib import Path
from typing import Final

from leveret.msg_store.index_rows import IndexDamaged, IndexFull
from leveret.msg_store.lmdb_errors import free_bytes
from leveret.msg_store.lmdb_index import CONDEMNED, DATA, MAP_BYTES, LmdbIndex

log = logging.getLogger(__name__)

COMPACT_BYTES_MIN: Final = 64 * 1024 * 1024  # below that nobody misses the space
LIVE_SHARE_MAX: Final = 4  # at most one part in so many is copied, so that a start stays short
ROOM_BYTES: Final = 16 * 1024 * 1024  # left free on the disk

_DRAFT: Final = ".compact"
_LOCK: Final = "lock.mdb"


class LmdbHome:
    """``index_rows.IndexHome`` of an LMDB environment in a folder of its own.

    Args:
        path: the folder.
        uuid: the store's 16 bytes.
        map_bytes: how large it may become before it must grow.
        compact_bytes_min: how much must be in use of the file before it is worth a look.
    """

    def __init__(
        self,
        path: Path,
        uuid: bytes,
        map_bytes: int = MAP_BYTES,
        compact_bytes_min: int = COMPACT_BYTES_MIN,
    ) -> None:
        self._path = path
        self._uuid = uuid
        self._map_bytes = map_bytes
        self._compact_bytes_min = compact_bytes_min

    @property
    def is_condemned(self) -> bool:
        """Whether it was found damaged when it was used."""
        return (self._path / CONDEMNED).exists()

    def open(self) -> LmdbIndex:
        """Open it, or make it; a file that is mostly free pages is made smaller first."""
        if self.is_condemned:
            raise IndexDamaged(f"{self._path} was found damaged when it was used")
        index = self._opened()
        if index.size_bytes < self._compact_bytes_min:
            return index
        if index.live_bytes * LIVE_SHARE_MAX > index.size_bytes:
            return index
        return self._compacted(index)

    def compact(self) -> tuple[int, int]:
        """Make the file as small as can be; return how much was in use of it before and after.

        Raises:
            OSError: the disk refuses, or has no room; the index is as it was.
        """
        index = self._opened()
        before = index.size_bytes
        try:
            self._write_draft(index)
        finally:
            index.close()
        self._take_draft()
        index = self._opened()
        after = index.size_bytes
        index.close()
        return before, after

    def _opened(self) -> LmdbIndex:
        shutil.rmtree(self._draft, ignore_errors=True)  # of a start that was cut off
        return LmdbIndex(self._path, self._uuid, self._map_bytes)

    @property
    def _draft(self) -> Path:
        return self._path.with_name(self._path.name + _DRAFT)

    def _compacted(self, index: LmdbIndex) -> LmdbIndex:
        before = index.size_bytes
        try:
            self._write_draft(index)
        except OSError as error:
            log.warning("index of messages not compacted index=%s error=%s", self._path, error)
            shutil.rmtree(self._draft, ignore_errors=True)
            return index
        except BaseException:
            index.close()
            raise
        index.close()
        self._take_draft()
        index = self._opened()
        log.info(
            "index of messages compacted index=%s bytes_before=%d bytes_after=%d",
            self._path,
            before,
            index.size_bytes,
        )
        return index

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
        _sync(self._draft / DATA)

    def _take_draft(self) -> None:
        """Let the copy take the place of the index, which is closed.

        The number of the last transaction also stands in LMDB's lock file, as long as any process
        has that open, and the copy begins to count anew: with the old lock file it may look empty.
        """
        (self._path / _LOCK).unlink(missing_ok=True)
        _sync(self._path)
        os.replace(self._draft / DATA, self._path / DATA)
        _sync(self._path)
        shutil.rmtree(self._draft, ignore_errors=True)

    def set_aside(self, quarantine: Path, name: str) -> None:
        """Move the folder to the quarantine, under a name that is free."""
        if self._path.exists():
            names = chain([name], (f"{name}-{number}" for number in count(2)))
            free = next(each for each in names if not (quarantine / each).exists())
            os.replace(self._path, quarantine / free)

    def condemn(self) -> None:
        """Have the next ``open`` say that it is damaged."""
        with open(self._path / CONDEMNED, "wb") as file:
            os.fsync(file.fileno())


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
