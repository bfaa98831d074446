"""What LMDB's errors mean to a store."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import lmdb

from leveret.msg_store.format.rows import IndexDamaged, IndexFull

_FULL_BYTES: Final = 1 << 20


@contextmanager
def sorted_errors(folder: Path | None = None) -> Iterator[None]:
    """Sort LMDB's errors: no room, a disk that fails, and all else, which is damage.

    Args:
        folder: where is written; None for who reads.
    """
    try:
        yield
    except lmdb.MapFullError:
        raise
    except lmdb.Error as error:
        raise meant_by(error, 1 << 60 if folder is None else free_bytes(folder)) from error
    except struct.error as error:
        raise IndexDamaged(f"the index of messages is damaged: {error}") from error


def meant_by(error: lmdb.Error, free_bytes: int) -> Exception:
    """Return what an error of LMDB means to a store on a disk with so much room.

    A write that the disk takes in part only is an "input/output error" to LMDB, so one on a full disk
    is taken for a full disk. That is safe to be wrong about: a transaction that is tried again writes
    all its pages again, and pages of transactions before have been synced.
    """
    text = str(error)
    if isinstance(error, lmdb.DiskError) or os.strerror(errno.ENOSPC) in text:
        return IndexFull(text)
    if os.strerror(errno.EIO) in text:
        return IndexFull(text) if free_bytes < _FULL_BYTES else OSError(errno.EIO, text)
    if isinstance(error, lmdb.PanicError):  # an error before; the file is as it was
        return OSError(errno.EIO, text)
    return IndexDamaged(f"the index of messages is damaged: {text}")


def free_bytes(folder: Path) -> int:
    """Return what can still be written on a folder's disk."""
    stat = os.statvfs(folder)
    return stat.f_bavail * stat.f_frsize
