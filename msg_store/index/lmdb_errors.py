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

from leveret.msg_store.format.rows import IndexDamaged, IndexFull

_FULL_BYTES: Final = 1 << 20


def open_lmdb(path: Path, **options: Any) -> Any:
    """Open an environment in LMDB's 0.9 format, which bindings of any version know."""
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
    if isinstance(error, lmdb.DiskError) or os.strerror(errno.ENOSPC) in text:
        return IndexFull(text)
    if os.strerror(errno.EIO) in text:
        return IndexFull(text) if free_bytes < _FULL_BYTES else OSError(errno.EIO, text)
    if isinstance(error, lmdb.PanicError):  # after an earlier error; the file is unchanged
        return OSError(errno.EIO, text)
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
