"""Ballast: a file that only takes space, removed when the disk is full.

A broker that can write nothing cannot write acks either, and stays full. One ballast
lies in a data directory, however many stores are in it; the first write that meets a full disk releases it.
``restore`` brings it back when there is room again.

The *reserve* is a second, smaller one that messages never get. It is given up where a disk is full although the
ballast is gone: for the recovery of a store, for acks and for checkpoints, which make room. Until ``restore`` has
brought it back the owner keeps publishers out (``is_given_up``), so what it freed is left to acks.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

from leveret.core.log.loggers import logger
from leveret.core.system.files import Files
from leveret.core.system.shortage import is_disk_full

log = logger(__name__)

BALLAST_BYTES: Final = 64 * 1024 * 1024
RESERVE_BYTES: Final = 16 * 1024 * 1024

_ROOM_FACTOR: Final = 2  # taken only where as much again is left


class Ballast:
    """The ballast of a data directory; safe to use from several threads.

    Attributes:
        is_given_up: it was released, and could not be restored since.
    """

    def __init__(
        self,
        files: Files,
        folder: Path,
        size_bytes: int = BALLAST_BYTES,
        name: str = "ballast",
        is_synced: bool = True,
        reserve: Ballast | None = None,
    ) -> None:
        self._files = files
        self._folder = folder
        self._path = folder / name
        self._size_bytes = size_bytes
        self._is_synced = is_synced
        self._reserve = reserve
        self.is_given_up = False
        self._lock = threading.Lock()

    def restore(self) -> bool:
        """Make the file, if there is room, and return whether it is there.

        The room is allocated, not written, where the system can do that.

        Raises:
            OSError: the disk refuses for another reason than being full.
        """
        with self._lock:
            if self._exists():
                self.is_given_up = False
                return True
            if self._files.free_bytes(self._folder) < _ROOM_FACTOR * self._size_bytes:
                return False
            try:
                self._make()
            except OSError as error:
                if not is_disk_full(error):
                    raise
                self._files.unlink(self._path)
                return False
            self.is_given_up = False
            return True

    def _exists(self) -> bool:
        if self._path.name not in self._files.names(self._folder):
            return False
        with self._files.open_read(self._path) as file:
            if file.size_bytes() >= self._size_bytes:
                return True
        self._files.unlink(self._path)  # a crash came between
        return False

    def _make(self) -> None:
        with self._files.create(self._path) as file:
            file.allocate(self._size_bytes)
            if self._is_synced:
                file.fsync()
        if self._is_synced:
            self._files.fsync_dir(self._folder)

    def release(self, makes_room: bool = False) -> bool:
        """Remove the file, or the reserve where it is gone and the work ``makes_room``; False if neither could be."""
        if self._released():
            return True
        return makes_room and self._reserve is not None and self._reserve.release()

    def _released(self) -> bool:
        with self._lock:
            try:
                self._files.unlink(self._path)
            except FileNotFoundError:
                return False
            except OSError as error:
                log.warning("ballast not released file=%s error=%s", self._path, error)
                return False
            self.is_given_up = True
            with suppress(OSError):  # it only hurries the file system
                self._files.fsync_dir(self._folder)
            return True


def reserve(files: Files, folder: Path) -> Ballast:
    """Return the reserve of a data directory; it is not synced, so that an event loop may make it."""
    return Ballast(files, folder, RESERVE_BYTES, "reserve", is_synced=False)
