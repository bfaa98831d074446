"""LMDB for stores: environments of one format; its errors become no room, a failing disk, or damage."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import lmdb

from leveret.core.files import DISK_FULL, keep_room
from leveret.msg_store.format.rows import IndexDamaged, IndexFull

LOCK_BYTES: Final = 8192  # for the 126 readers that LMDB has room for by default
_OF_MACHINE: Final = (
    *DISK_FULL, errno.EIO, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.EACCES,
    errno.EPERM, errno.EROFS, errno.EBUSY,
)  # fmt: skip
_FULL_BYTES: Final = 1 << 20


def open_lmdb(path: Path, **options: Any) -> Any:
    """Open an environment in LMDB's 0.9 format, which bindings of any version know.

    Raises:
        OSError: there is no room for its lock file, which LMDB writes through a memory map.
    """
    if options.get("lock", True):
        is_folder = options.get("subdir", True)
        if is_folder:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        keep_room(path / "lock.mdb" if is_folder else Path(f"{path}-lock"), LOCK_BYTES)
    options |= {"mode": 0o600, "readahead": True}  # pages written together are read together
    try:
        # Bindings that know several formats would write the newest.
        return lmdb.open(str(path), lib_version=0, **options)
    except TypeError:
        return lmdb.open(str(path), **options)  # they know the 0.9 format only


@contextmanager
def store_errors(folder: Path | None = None) -> Iterator[None]:
    """Raise ``IndexFull``, ``OSError`` or ``IndexDamaged`` for LMDB's errors; a write names its ``folder``."""
    try:
        yield
    except lmdb.MapFullError:
        raise
    except lmdb.Error as error:
        raise store_error(error, 1 << 60 if folder is None else free_bytes(folder)) from error
    except struct.error as error:
        raise IndexDamaged(f"the index of messages is damaged: {error}") from error


def store_error(error: lmdb.Error, free_bytes: int) -> Exception:
    """Return the store's error for LMDB's, on a disk with so much room.

    LMDB reports a write that was cut short as an "input/output error", so with a full disk that error
    means a full disk. If it does not, no harm is done: the next try writes all pages of the transaction
    again, and pages of earlier transactions have been synced.
    """
    text = str(error)
    code = next((code for code in _OF_MACHINE if text.endswith(os.strerror(code))), None)
    if isinstance(error, lmdb.DiskError) or code in DISK_FULL:
        return IndexFull(text)
    if code == errno.EIO and free_bytes < _FULL_BYTES:
        return IndexFull(text)
    if isinstance(error, lmdb.MemoryError):
        return OSError(errno.ENOMEM, text)
    if isinstance(error, lmdb.PanicError | lmdb.ReadersFullError):  # the file is unchanged
        return OSError(errno.EIO, text)
    if code is not None:  # no descriptor, no memory, no permission: of the machine, not of the file
        return OSError(code, text)
    return IndexDamaged(f"the index of messages is damaged: {text}")


def free_bytes(folder: Path) -> int:
    """Return the room that is left on a folder's disk."""
    stat = os.statvfs(folder)
    return stat.f_bavail * stat.f_frsize


def sync(path: Path) -> None:
    """Sync a file or a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
