"""Files, injected: code whose data must survive a power cut uses ``Files``, so that tests run on faulty disks.

``Files`` contains the work that is easily done wrong: it continues after short writes and interrupted calls, and uses
the platform's real sync. Below it is ``SystemCalls``, one method per system call; ``OsCalls`` makes the calls, and
``tests/rigs/disk/faulty_files.py`` has an implementation that fails, loses data and runs out of space on demand.

Three rules of POSIX that callers rely on:

* Written data is durable after ``fdatasync`` of that file returned, and not before.
* A new, renamed or removed *name* is durable after ``fsync_dir`` of its folder, and not before.
* After a failed ``fdatasync`` the kernel may have dropped the pages and marked them clean: a second
  try on the same descriptor proves nothing.

All methods raise ``OSError`` as the system does; this module does not interpret errors.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self, TypeAlias

Buffer: TypeAlias = bytes | memoryview

FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700

_WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_COPY_BYTES: Final = 1 << 20
_LMDB_LOCK_BYTES: Final = 8192  # for the 126 readers that LMDB has room for by default
_IOV_MAX: Final = max(16, os.sysconf("SC_IOV_MAX"))
_FULLFSYNC: Final[int | None] = getattr(fcntl, "F_FULLFSYNC", None)  # macOS
# EBADF: the target was opened for appending, which copy_file_range refuses.
_NO_COPY_RANGE: Final = frozenset(
    {errno.ENOSYS, errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.EBADF}
)
# EBADF: the C library would have to write, which it refuses for a file opened for appending.
_NO_ALLOCATE: Final = frozenset({errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EBADF})


def refuse_link(path: Path) -> None:
    """Raise OSError if a file that is to be written is a symbolic link: it may lead anywhere."""
    if path.is_symlink():
        raise _is_link(path)


def _is_link(path: Path) -> OSError:
    return OSError(errno.ELOOP, "a symbolic link, which is not followed; remove it", str(path))


def make_folders(path: Path) -> None:
    """Make a folder and its missing parents with mode 0700, unless it exists."""
    try:
        path.mkdir(FOLDER_MODE, exist_ok=True)
    except FileNotFoundError:
        make_folders(path.parent)  # ``mkdir(parents=True)`` would make the parents readable for all
        path.mkdir(FOLDER_MODE, exist_ok=True)


def keep_room(path: Path, size_bytes: int, offset: int = 0) -> None:
    """Have the disk space of a file that a library maps into memory taken; the file is made if it is missing.

    A write through a memory map to a hole of a file ends the process (SIGBUS) when the disk is full.

    Raises:
        OSError: there is no room, or the file cannot be opened.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(path, flags, FILE_MODE)
    try:
        os.posix_fallocate(descriptor, offset, size_bytes)
    except AttributeError:  # macOS lacks posix_fallocate
        return
    except OSError as error:
        if error.errno not in _NO_ALLOCATE:
            raise
    finally:
        os.close(descriptor)


def keep_lock_room(path: Path) -> None:
    """Have the disk space of LMDB's lock file taken, which LMDB writes through a memory map.

    Raises:
        OSError: there is no room, or the file cannot be opened.
    """
    keep_room(path, _LMDB_LOCK_BYTES)


class SystemCalls(Protocol):
    """One method per system call; each may process fewer bytes than requested, as in the system."""

    def open(self, path: Path, flags: int) -> int:
        """Return a descriptor."""

    def close(self, descriptor: int) -> None:
        """Close the descriptor."""

    def writev(self, descriptor: int, buffers: Sequence[Buffer]) -> int:
        """Append some of the bytes; return how many."""

    def pwrite(self, descriptor: int, data: Buffer, offset: int) -> int:
        """Write some of the bytes at an offset; return how many."""

    def pread(self, descriptor: int, count: int, offset: int) -> bytes:
        """Return some of the bytes; none at the end of the file."""

    def size(self, descriptor: int) -> int:
        """Return the file's length in bytes."""

    def truncate(self, descriptor: int, size_bytes: int) -> None:
        """Set the file's length."""

    def allocate(self, descriptor: int, size_bytes: int) -> None:
        """Extend the file and allocate its disk space, so that later writes within its length need none."""

    def fdatasync(self, descriptor: int) -> None:
        """Make contents and length durable."""

    def fsync(self, descriptor: int) -> None:
        """Make contents and metadata of the file, or a folder's names, durable."""

    def copy_range(self, source: int, offset: int, target: int, count: int) -> int:
        """Append some bytes of one file to another inside the kernel; return how many."""

    def lock(self, descriptor: int) -> None:
        """Lock the file; ``BlockingIOError`` if another process holds the lock."""

    def rename(self, old: Path, new: Path) -> None:
        """Rename a file; an existing target is replaced."""

    def unlink(self, path: Path) -> None:
        """Remove a name."""

    def link(self, path: Path, new: Path) -> None:
        """Give a file a second name."""

    def mkdir(self, path: Path) -> None:
        """Make a folder with its parents, unless it exists."""

    def names(self, folder: Path) -> list[str]:
        """Return the names in a folder, in any order."""

    def free_bytes(self, folder: Path) -> int:
        """Return the free space on the folder's disk (``statvfs``)."""


class OsCalls:
    """The machine's system calls."""

    def open(self, path: Path, flags: int) -> int:
        """Return a descriptor that child processes do not inherit. No symbolic link is opened for writing."""
        if not flags & _WRITES:
            return os.open(path, flags, FILE_MODE)
        try:
            return os.open(path, flags | os.O_NOFOLLOW, FILE_MODE)
        except OSError as error:
            raise _is_link(path) if error.errno == errno.ELOOP else error from None

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def writev(self, descriptor: int, buffers: Sequence[Buffer]) -> int:
        return os.writev(descriptor, buffers)

    def pwrite(self, descriptor: int, data: Buffer, offset: int) -> int:
        return os.pwrite(descriptor, data, offset)

    def pread(self, descriptor: int, count: int, offset: int) -> bytes:
        return os.pread(descriptor, count, offset)

    def size(self, descriptor: int) -> int:
        return os.fstat(descriptor).st_size

    def truncate(self, descriptor: int, size_bytes: int) -> None:
        os.ftruncate(descriptor, size_bytes)

    def allocate(self, descriptor: int, size_bytes: int) -> None:
        """Allocate disk space, without writing where the system supports that."""
        try:
            os.posix_fallocate(descriptor, 0, size_bytes)
        except AttributeError:  # macOS lacks posix_fallocate
            self._fill(descriptor, size_bytes)
        except OSError as error:
            if error.errno not in _NO_ALLOCATE:
                raise
            self._fill(descriptor, size_bytes)

    def _fill(self, descriptor: int, size_bytes: int) -> None:
        block = bytes(_COPY_BYTES)
        while (missing := size_bytes - (end := os.fstat(descriptor).st_size)) > 0:
            os.pwrite(descriptor, block[:missing], end)

    def fdatasync(self, descriptor: int) -> None:
        """Make contents and length durable; on macOS flush the drive's cache too."""
        if _FULLFSYNC is not None:
            fcntl.fcntl(descriptor, _FULLFSYNC)
        else:
            os.fdatasync(descriptor)

    def fsync(self, descriptor: int) -> None:
        if _FULLFSYNC is not None:
            fcntl.fcntl(descriptor, _FULLFSYNC)
        else:
            os.fsync(descriptor)

    def copy_range(self, source: int, offset: int, target: int, count: int) -> int:
        """Append in the kernel, or else by read and write."""
        try:
            return os.copy_file_range(source, target, count, offset)
        except AttributeError:  # not Linux
            return self._copied(source, offset, target, count)
        except OSError as error:
            if error.errno in _NO_COPY_RANGE:
                return self._copied(source, offset, target, count)
            raise

    def _copied(self, source: int, offset: int, target: int, count: int) -> int:
        data = os.pread(source, min(count, _COPY_BYTES), offset)
        return os.write(target, data) if data else 0

    def lock(self, descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def rename(self, old: Path, new: Path) -> None:
        os.replace(old, new)

    def unlink(self, path: Path) -> None:
        os.unlink(path)

    def link(self, path: Path, new: Path) -> None:
        os.link(path, new)

    def mkdir(self, path: Path) -> None:
        make_folders(path)

    def names(self, folder: Path) -> list[str]:
        return os.listdir(folder)

    def free_bytes(self, folder: Path) -> int:
        """Return the free space for unprivileged users."""
        stat = os.statvfs(folder)
        return stat.f_bavail * stat.f_frsize


class File:
    """An open file. One owner at a time: there is no locking between threads."""

    __slots__ = ("_calls", "_descriptor", "path")

    def __init__(self, calls: SystemCalls, path: Path, flags: int) -> None:
        self._calls = calls
        self._descriptor = calls.open(path, flags | os.O_CLOEXEC)
        self.path = path

    def append(self, buffers: Sequence[Buffer]) -> None:
        """Append all bytes, in one system call if the system accepts all."""
        rest = [each for each in buffers if len(each)]
        while rest:
            try:
                written = self._calls.writev(self._descriptor, rest[:_IOV_MAX])
            except InterruptedError:
                continue
            rest = _unwritten(rest, self._checked(written))

    def write_at(self, data: Buffer, offset: int) -> None:
        """Write all bytes at an offset; the file must come from ``open_write``."""
        rest = memoryview(data)
        while rest:
            try:
                written = self._calls.pwrite(self._descriptor, rest, offset)
            except InterruptedError:
                continue
            rest = rest[self._checked(written) :]
            offset += written

    def _checked(self, written: int) -> int:
        if written <= 0:
            raise OSError(errno.EIO, "nothing was written", str(self.path))
        return written

    def pread(self, count: int, offset: int) -> bytes:
        """Return ``count`` bytes from ``offset``; fewer only where the file ends."""
        parts: list[bytes] = []
        while count > 0:
            try:
                part = self._calls.pread(self._descriptor, count, offset)
            except InterruptedError:
                continue
            if not part:
                break
            parts.append(part)
            count -= len(part)
            offset += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def blocks(self, offset: int, block_bytes: int = _COPY_BYTES) -> Iterator[bytes]:
        while block := self.pread(block_bytes, offset):
            yield block
            offset += len(block)

    def size_bytes(self) -> int:
        return self._calls.size(self._descriptor)

    def truncate(self, size_bytes: int) -> None:
        """Truncate the file; durable after the next ``fdatasync``."""
        self._calls.truncate(self._descriptor, size_bytes)

    def allocate(self, size_bytes: int) -> None:
        """Extend the file with zeros and allocate its disk space; not durable yet."""
        self._calls.allocate(self._descriptor, size_bytes)

    def append_from(self, source: File, offset: int, count: int) -> None:
        """Append bytes of a file inside the kernel; EOFError: ``source`` ends before ``count``."""
        while count > 0:
            try:
                copied = self._calls.copy_range(source.descriptor, offset, self._descriptor, count)
            except InterruptedError:
                continue
            if copied <= 0:
                raise EOFError(f"{source.path} ends {count} bytes too early")
            offset += copied
            count -= copied

    def fdatasync(self) -> None:
        """Make contents and length durable; after a failure a second try proves nothing (see the module)."""
        self._calls.fdatasync(self._descriptor)

    def fsync(self) -> None:
        self._calls.fsync(self._descriptor)

    def lock(self) -> None:
        """Lock the file while it is open; BlockingIOError: another process holds the lock."""
        self._calls.lock(self._descriptor)

    @property
    def descriptor(self) -> int:
        """The descriptor, -1 after ``close``."""
        return self._descriptor

    @property
    def system_descriptor(self) -> int | None:
        """The descriptor, if plain ``pwrite`` and ``fdatasync`` on it are equivalent to these methods."""
        is_plain = type(self._calls) is OsCalls and _FULLFSYNC is None
        return self._descriptor if is_plain and self._descriptor >= 0 else None

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            self._calls.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _unwritten(buffers: list[Buffer], written: int) -> list[Buffer]:
    """Return the buffers without their first ``written`` bytes."""
    for index, buffer in enumerate(buffers):
        if written < len(buffer):
            return [memoryview(buffer)[written:], *buffers[index + 1 :]] if written else buffers[index:]  # fmt: skip
        written -= len(buffer)
    return []


class Files:
    """The file system, as far as stores need it."""

    def __init__(self, calls: SystemCalls | None = None) -> None:
        self._calls = OsCalls() if calls is None else calls

    @property
    def calls(self) -> SystemCalls:
        return self._calls

    def create(self, path: Path) -> File:
        """Create a file to append to; FileExistsError: the name is taken."""
        return File(self._calls, path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND)

    def create_copy(self, path: Path) -> File:
        """Create a file for ``append_from``: the kernel does not copy into files opened for appending.

        Also for ``write_at``, and for nothing else: appends go to the end of the last append.

        Raises:
            FileExistsError: the name is taken.
        """
        return File(self._calls, path, os.O_RDWR | os.O_CREAT | os.O_EXCL)

    def open_append(self, path: Path) -> File:
        return File(self._calls, path, os.O_RDWR | os.O_APPEND)

    def open_write(self, path: Path) -> File:
        """Open an existing file, to overwrite (``write_at``)."""
        return File(self._calls, path, os.O_RDWR)

    def open_read(self, path: Path) -> File:
        return File(self._calls, path, os.O_RDONLY)

    def open_lock(self, path: Path) -> File:
        """Open a file for its lock; created if missing."""
        return File(self._calls, path, os.O_RDWR | os.O_CREAT)

    def read(self, path: Path) -> bytes:
        with self.open_read(path) as file:
            return file.pread(file.size_bytes(), 0)

    def write_new(self, path: Path, data: bytes, is_synced: bool = True) -> None:
        """Write a small file atomically: after a power cut it is complete or absent.

        Not synced, it is so after the end of the process; after a power cut the file may be the old one, or damaged.
        """
        draft = path.with_name(path.name + ".tmp")
        if draft.name in self.names(draft.parent):
            self.unlink(draft)
        with self.create(draft) as file:
            file.append([data])
            if is_synced:
                file.fsync()
        self.rename(draft, path)
        if is_synced:
            self.fsync_dir(path.parent)

    def fsync_dir(self, folder: Path) -> None:
        with File(self._calls, folder, os.O_RDONLY | os.O_DIRECTORY) as file:
            file.fsync()

    def rename(self, old: Path, new: Path) -> None:
        """Rename a file; an existing target is replaced."""
        self._calls.rename(old, new)

    def unlink(self, path: Path) -> None:
        self._calls.unlink(path)

    def link(self, path: Path, new: Path) -> None:
        self._calls.link(path, new)

    def mkdir(self, path: Path) -> None:
        """Make a folder with its parents, with mode 0700, unless it exists."""
        self._calls.mkdir(path)

    def names(self, folder: Path) -> list[str]:
        return sorted(self._calls.names(folder))

    def free_bytes(self, folder: Path) -> int:
        return self._calls.free_bytes(folder)
