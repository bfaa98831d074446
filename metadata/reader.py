"""Read-only access to offline metadata: nothing is written, not even a lock.

For tools that hold the lock of the data directory; running brokers use ``MetadataStore``.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import lmdb

from leveret.core.system.files import FILE_MODE, FOLDER_MODE
from leveret.metadata.environment import (
    DATA,
    at_rest,
    check_format,
    counters,
    node_of,
    rows_of,
    sync,
)
from leveret.metadata.store import row_at
from leveret.metadata.tables import Contents


def read_contents(directory: Path) -> Contents:
    """Return all rows; StoreError: the metadata is missing, damaged, or of a later version."""
    contents = Contents()
    with at_rest(directory) as environment:
        check_format(environment, directory)
        for key, value in rows_of(environment, directory):
            contents.add(row_at(key, value))
    return contents


def read_counters(directory: Path) -> tuple[int, int]:
    """Return the last boot epoch, and the last queue number that may be in use; StoreError as ``read_contents``."""
    with at_rest(directory) as environment:
        check_format(environment, directory)
        return counters(environment, directory)


def read_node(directory: Path) -> tuple[str, int]:
    """Return the UUID of the metadata's node ("": no node) and the last transaction; StoreError as above."""
    with at_rest(directory) as environment:
        check_format(environment, directory)
        return node_of(environment, directory), environment.info()["last_txnid"]


def copy_metadata(directory: Path, target: Path) -> None:
    """Write a synced copy into a new directory.

    Raises:
        StoreError: as ``read_contents``.
        OSError: the write failed.
    """
    with at_rest(directory) as environment:
        check_format(environment, directory)
        target.mkdir(mode=FOLDER_MODE)
        try:
            environment.copy(os.fsencode(target), compact=True)
        except lmdb.Error as error:
            raise OSError(errno.EIO, str(error), str(target)) from error
        (target / DATA).chmod(FILE_MODE)  # LMDB makes it
    sync(target / DATA, target, target.parent)
