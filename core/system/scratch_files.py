"""Copy on write: files are read from a disk, and changes stay in memory.

So the effects of a start on a store can be computed, inspected and discarded. A changed file is read into memory
first, which suits truncated and small files; a file opened for writing and not written costs nothing. Locks are
real.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from leveret.core.system.files import Buffer, OsCalls, SystemCalls

NONE: Final = -1
_ROOM_BYTES: Final = 1 << 60


@dataclass(slots=True)
class _Opened:
    """An open descriptor: bytes in memory, a file on the disk, or a folder."""

    path: Path
    data: bytearray | None = None
    below: int = NONE


class ScratchCalls:
    """Implements ``files.SystemCalls``."""

    def __init__(self, disk: SystemCalls | None = None) -> None:
        self._disk = disk or OsCalls()
        self._written: dict[Path, bytearray] = {}
        self._moved: dict[Path, Path] = {}  # new name -> path on the disk
        self._gone: set[Path] = set()
        self._folders: set[Path] = set()
        self._open: dict[int, _Opened] = {}
        self._next = 0

    def is_changed(self, path: Path) -> bool:
        """Return whether a file has other bytes here than on the disk."""
        return path in self._written or path in self._moved

    def open(self, path: Path, flags: int) -> int:
        self._next += 1
        self._open[self._next] = self._opened(path, flags)
        return self._next

    def _opened(self, path: Path, flags: int) -> _Opened:
        if flags & os.O_DIRECTORY:
            return _Opened(path)
        if path in self._written:
            _refuse_existing(path, flags)
            return _Opened(path, self._written[path])
        try:
            if path in self._gone:
                raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
            below = self._disk.open(self._moved.get(path, path), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            if not flags & os.O_CREAT:
                raise
            self._gone.discard(path)
            return _Opened(path, self._written.setdefault(path, bytearray()))
        try:
            _refuse_existing(path, flags)
        except FileExistsError:
            self._disk.close(below)
            raise
        return _Opened(path, below=below)

    def close(self, descriptor: int) -> None:
        below = self._open.pop(descriptor).below
        if below != NONE:
            self._disk.close(below)

    def writev(self, descriptor: int, buffers: Sequence[Buffer]) -> int:
        data = self._data(descriptor)
        before = len(data)
        for buffer in buffers:
            data += buffer
        return len(data) - before

    def pwrite(self, descriptor: int, data: Buffer, offset: int) -> int:
        """Write to memory, unless the bytes are equal already."""
        if self.pread(descriptor, len(data), offset) == data:
            return len(data)
        held = self._data(descriptor)
        held.extend(bytes(max(0, offset - len(held))))
        held[offset : offset + len(data)] = data
        return len(data)

    def _data(self, descriptor: int) -> bytearray:
        """Return the bytes of a file before a change."""
        opened = self._open[descriptor]
        if opened.data is None:
            size_bytes = self._disk.size(opened.below)
            opened.data = bytearray(self._disk.pread(opened.below, size_bytes, 0))
            self._written[opened.path] = opened.data
        return opened.data

    def pread(self, descriptor: int, count: int, offset: int) -> bytes:
        opened = self._open[descriptor]
        if opened.data is None:
            return self._disk.pread(opened.below, count, offset)
        return bytes(opened.data[offset : offset + count])

    def size(self, descriptor: int) -> int:
        opened = self._open[descriptor]
        return self._disk.size(opened.below) if opened.data is None else len(opened.data)

    def truncate(self, descriptor: int, size_bytes: int) -> None:
        data = self._data(descriptor)
        del data[size_bytes:]
        data.extend(bytes(size_bytes - len(data)))

    def allocate(self, descriptor: int, size_bytes: int) -> None:
        self.truncate(descriptor, size_bytes)

    def fdatasync(self, descriptor: int) -> None:
        """Do nothing."""

    def fsync(self, descriptor: int) -> None:
        """Do nothing."""

    def copy_range(self, source: int, offset: int, target: int, count: int) -> int:
        return self.writev(target, [self.pread(source, count, offset)])

    def lock(self, descriptor: int) -> None:
        """Lock a file on the disk; a file in memory has no lock."""
        below = self._open[descriptor].below
        if below != NONE:
            self._disk.lock(below)

    def rename(self, old: Path, new: Path) -> None:
        self._require(old)
        data, source = self._written.pop(old, None), self._moved.pop(old, old)
        self._written.pop(new, None)
        self._moved.pop(new, None)
        if data is None:
            self._moved[new] = source
        else:
            self._written[new] = data
        self._gone.add(old)
        self._gone.discard(new)

    def unlink(self, path: Path) -> None:
        self._require(path)
        self._written.pop(path, None)
        self._moved.pop(path, None)
        self._gone.add(path)

    def _require(self, path: Path) -> None:
        if path.name not in self.names(path.parent):
            raise FileNotFoundError(errno.ENOENT, "no such file", str(path))

    def link(self, path: Path, new: Path) -> None:
        """Refuse; inspections do not need it."""
        raise OSError(errno.EROFS, "links are not made here", str(new))

    def mkdir(self, path: Path) -> None:
        self._folders.add(path)

    def names(self, folder: Path) -> list[str]:
        try:
            names = set(self._disk.names(folder))
        except FileNotFoundError:
            if folder not in self._folders:
                raise
            names = set()
        names -= {path.name for path in self._gone if path.parent == folder}
        return [*names.union(p.name for p in (*self._written, *self._moved) if p.parent == folder)]

    def free_bytes(self, folder: Path) -> int:
        return _ROOM_BYTES


def _refuse_existing(path: Path, flags: int) -> None:
    if flags & os.O_EXCL:
        raise FileExistsError(errno.EEXIST, "file exists", str(path))
