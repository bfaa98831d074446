"""LMDB for stores: environments of one format; its errors become a shortage, a failing disk, or damage.

LMDB unmaps a file before it maps it in its new length, and where there are no addresses for that (``RLIMIT_AS``)
the environment is of no use any more. So ``grow`` tries first whether there is a place for the larger map
beside the old one.
"""

from __future__ import annotations

import errno
import mmap
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import lmdb

from leveret.core.system.files import keep_lock_room
from leveret.core.system.shortage import DISK, SHORTAGES
from leveret.msg_store.format.rows import IndexDamaged, IndexFull

_OF_MACHINE: Final = (errno.EIO, errno.EAGAIN, errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY)
_FULL_BYTES: Final = 1 << 20
_NORESERVE: Final[int] = getattr(mmap, "MAP_NORESERVE", 0)
_SHORTAGES: Final = {os.strerror(number): number for number in SHORTAGES}


def open_lmdb(path: Path, **options: Any) -> Any:
    """Open an environment in LMDB's 0.9 format, which bindings of any version know.

    Raises:
        OSError: there is no room for its lock file.
    """
    if options.get("lock", True):
        is_folder = options.get("subdir", True)
        if is_folder:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        keep_lock_room(path / "lock.mdb" if is_folder else Path(f"{path}-lock"))
    options |= {"mode": 0o600, "readahead": True}  # pages written together are read together
    try:
        # Bindings that know several formats would write the newest.
        return lmdb.open(os.fsencode(path), lib_version=0, **options)
    except TypeError:
        return lmdb.open(os.fsencode(path), **options)  # these bindings know the 0.9 format only


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
    number = shortage_no(error)
    if number in DISK:
        return IndexFull(text)
    if number:
        return OSError(number, text)
    code = next((code for code in _OF_MACHINE if text.endswith(os.strerror(code))), None)
    if code == errno.EIO and free_bytes < _FULL_BYTES:
        return IndexFull(text)
    if isinstance(error, lmdb.PanicError):  # after an earlier error; the file is unchanged
        return OSError(errno.EIO, text)
    if code is not None:  # no descriptor, no memory, no permission: of the machine, not of the file
        return OSError(code, text)
    return IndexDamaged(f"the index of messages is damaged: {text}")


def shortage_no(error: lmdb.Error) -> int:
    """Return the error number of a shortage that LMDB has met; 0 if it was none."""
    if isinstance(error, lmdb.DiskError):
        return errno.ENOSPC
    if isinstance(error, lmdb.MemoryError | lmdb.ReadersFullError | lmdb.TlsFullError):
        return errno.ENOMEM
    text = str(error)
    return next((number for name, number in _SHORTAGES.items() if text.endswith(name)), 0)


def grow(env: Any, map_bytes: int) -> None:
    """Give an environment a larger map; no transaction may be open in this process.

    Raises:
        OSError: ENOMEM, and the map is as before; any other, and the environment must not be used any more.
    """
    check_addresses(map_bytes)
    try:
        env.set_mapsize(map_bytes)
    except lmdb.Error as error:
        raise OSError(errno.EIO, f"the map of the index is lost: {error}") from error


def check_addresses(map_bytes: int) -> None:
    """Raise ``OSError`` (ENOMEM) where the process may not map so much beside all that it has mapped."""
    try:
        mmap.mmap(-1, map_bytes, mmap.MAP_PRIVATE | _NORESERVE, mmap.PROT_READ).close()
    except OSError as error:
        text = f"no addresses for a map of {map_bytes} bytes: {error}"
        raise OSError(errno.ENOMEM, text) from error


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
