"""A disk in memory: the system calls of ``leveret.core.system.files`` over a dict.

It is fast, the same on every machine, and needs no privileges. It cannot serve code that opens files itself (LMDB). It
does not distinguish written from durable bytes; ``rigs.disk.faulty_files``, which wraps it, does.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from leveret.core.system.files import Buffer


class _Inode:
    """A file's bytes and the holder of its lock."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.locked_by: int | None = None


class _Opened:
    """An open descriptor; ``inode`` is None for a folder."""

    def __init__(self, inode: _Inode | None, flags: int) -> None:
        self.inode = inode
        self.flags = flags


class MemoryDisk:
    """Implements ``leveret.core.system.files.SystemCalls``."""

    def __init__(self, size_bytes: int = 1 << 40) -> None:
        self.size_bytes = size_bytes
        self._inodes: dict[Path, _Inode] = {}
        self._folders: set[Path] = {Path("/")}
        self._open: dict[int, _Opened] = {}
        self._next = 3

    @property
    def open_files(self) -> int:
        return len(self._open)

    def open(self, path: Path, flags: int) -> int:
        if flags & os.O_DIRECTORY:
            if path not in self._folders:
                raise FileNotFoundError(errno.ENOENT, "no such folder", str(path))
            return self._opened(_Opened(None, flags))
        inode = self._inodes.get(path)
        if inode is None:
            if not flags & os.O_CREAT or path.parent not in self._folders:
                raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
            inode = self._inodes[path] = _Inode()
        elif flags & os.O_EXCL:
            raise FileExistsError(errno.EEXIST, "file exists", str(path))
        return self._opened(_Opened(inode, flags))

    def _opened(self, opened: _Opened) -> int:
        self._next += 1
        self._open[self._next] = opened
        return self._next

    def _inode(self, descriptor: int) -> _Inode:
        opened = self._open.get(descriptor)
        if opened is None or opened.inode is None:
            raise OSError(errno.EBADF, "bad file descriptor")
        return opened.inode

    def close(self, descriptor: int) -> None:
        opened = self._open.pop(descriptor, None)
        if opened is None:
            raise OSError(errno.EBADF, "bad file descriptor")
        if opened.inode is not None and opened.inode.locked_by == descriptor:
            opened.inode.locked_by = None

    def writev(self, descriptor: int, buffers: Sequence[Buffer]) -> int:
        """Append as many bytes as fit on the disk."""
        inode, data = self._inode(descriptor), b"".join(buffers)
        if not self._open[descriptor].flags & os.O_RDWR:
            raise OSError(errno.EBADF, "file is not open for writing")
        room = self.free_bytes(Path("/"))
        if data and room <= 0:
            raise OSError(errno.ENOSPC, "no space left on device")
        inode.data += data[:room]
        return min(len(data), room)

    def pwrite(self, descriptor: int, data: Buffer, offset: int) -> int:
        """Overwrite existing bytes; past the end write as many bytes as fit on the disk."""
        held = self._inode(descriptor).data
        room = self.free_bytes(Path("/")) + len(held) - offset
        if data and room <= 0:
            raise OSError(errno.ENOSPC, "no space left on device")
        held.extend(bytes(max(0, offset - len(held))))
        held[offset : offset + len(data[:room])] = data[:room]
        return min(len(data), room)

    def pread(self, descriptor: int, count: int, offset: int) -> bytes:
        return bytes(self._inode(descriptor).data[offset : offset + count])

    def size(self, descriptor: int) -> int:
        return len(self._inode(descriptor).data)

    def truncate(self, descriptor: int, size_bytes: int) -> None:
        data = self._inode(descriptor).data
        del data[size_bytes:]
        data.extend(bytes(size_bytes - len(data)))

    def allocate(self, descriptor: int, size_bytes: int) -> None:
        inode = self._inode(descriptor)
        if self.free_bytes(Path("/")) < size_bytes - len(inode.data):
            raise OSError(errno.ENOSPC, "no space left on device")
        inode.data.extend(bytes(size_bytes - len(inode.data)))

    def fdatasync(self, descriptor: int) -> None:
        """Do nothing: all bytes count as durable."""
        self._inode(descriptor)

    def fsync(self, descriptor: int) -> None:
        """Do nothing, as ``fdatasync``."""
        if descriptor not in self._open:
            raise OSError(errno.EBADF, "bad file descriptor")

    def copy_range(self, source: int, offset: int, target: int, count: int) -> int:
        return self.writev(target, [self.pread(source, count, offset)])

    def lock(self, descriptor: int) -> None:
        """Lock the file; every descriptor counts as another process."""
        inode = self._inode(descriptor)
        if inode.locked_by not in {None, descriptor}:
            raise BlockingIOError(errno.EWOULDBLOCK, "locked")
        inode.locked_by = descriptor

    def rename(self, old: Path, new: Path) -> None:
        self._inodes[new] = self._take(old)

    def unlink(self, path: Path) -> None:
        self._take(path)

    def link(self, path: Path, new: Path) -> None:
        if new in self._inodes:
            raise FileExistsError(errno.EEXIST, "file exists", str(new))
        inode = self._take(path)
        self._inodes[path] = self._inodes[new] = inode

    def _take(self, path: Path) -> _Inode:
        inode = self._inodes.pop(path, None)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
        return inode

    def mkdir(self, path: Path) -> None:
        self._folders.update((path, *path.parents))

    def names(self, folder: Path) -> list[str]:
        if folder not in self._folders:
            raise FileNotFoundError(errno.ENOENT, "no such folder", str(folder))
        inside = {*self._inodes, *self._folders}
        return [path.name for path in inside if path.parent == folder and path != folder]

    def free_bytes(self, folder: Path) -> int:
        inodes = {id(inode): inode for inode in self._inodes.values()}
        return self.size_bytes - sum(len(inode.data) for inode in inodes.values())
