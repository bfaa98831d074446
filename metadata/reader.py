"""Read-only access to offline metadata: nothing is written, not even a lock.

For tools that hold the lock of the data directory; running brokers use ``MetadataStore``.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import lmdb

from leveret.core.errors import StoreError
from leveret.metadata.environment import FORMAT, FORMAT_KEY, unpacked
from leveret.metadata.store import row_of
from leveret.metadata.tables import Contents

_DATA: Final = "data.mdb"


def read_contents(directory: Path) -> Contents:
    """Return all rows.

    Raises:
        StoreError: the metadata is missing, damaged, or of a later version.
    """
    contents = Contents()
    with _opened(directory) as environment, environment.begin() as transaction:
        found = [(key[0], value) for key, value in transaction.cursor() if key[0] != 0]
    for table, value in found:
        contents.add(row_of(table, value))
    return contents


def copy_metadata(directory: Path, target: Path) -> None:
    """Write a synced copy into a new directory.

    Raises:
        StoreError: as ``read_contents``.
        OSError: the write failed.
    """
    with _opened(directory) as environment:
        target.mkdir(mode=0o700)
        try:
            environment.copy(str(target), compact=True)
        except lmdb.Error as error:
            raise OSError(errno.EIO, str(error), str(target)) from error
    for path in (target / _DATA, target, target.parent):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def _opened(directory: Path) -> Iterator[Any]:
    try:
        size_bytes = (directory / _DATA).stat().st_size
        with lmdb.open(
            str(directory), map_size=size_bytes, readonly=True, lock=False, readahead=False
        ) as environment:
            _check(directory, environment, size_bytes)
            yield environment
    except FileNotFoundError:
        raise StoreError(f"{directory} holds no metadata") from None
    except lmdb.Error as error:
        raise StoreError(f"metadata in {directory} is damaged: {error}") from error


def _check(directory: Path, environment: Any, size_bytes: int) -> None:
    used_bytes = (environment.info()["last_pgno"] + 1) * environment.stat()["psize"]
    if size_bytes < used_bytes:
        raise StoreError(
            f"metadata in {directory} is cut off: {size_bytes} bytes, {used_bytes} expected"
        )
    with environment.begin() as transaction:
        value = transaction.get(FORMAT_KEY)
    if value is None:
        raise StoreError(f"{directory} holds no metadata of Leveret")
    found = unpacked(value)
    if found > FORMAT:
        raise StoreError(
            f"metadata in {directory} has format {found}, this version of Leveret reads up to {FORMAT}"
        )
