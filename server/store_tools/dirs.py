"""The argument of a tool: a data directory with a store for each vhost, or the folder of one store.

A snapshot is laid out as a data directory: tools that only read take it, and ``DataDirectory`` keeps the others out.

A broker holds the lock of its data directory as long as it runs, and a tool as long as it works. A tool
that only reads locks the file that is there and creates none.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from leveret.broker.node.orphans import DELETED
from leveret.broker.node.store_server import store_folder
from leveret.broker.queue.storage.factory import queue_nos_of_row
from leveret.core.errors import StoreError
from leveret.management.snapshots.manifest import NAME as MANIFEST
from leveret.metadata.reader import read_contents, read_node
from leveret.metadata.store import MetadataStore
from leveret.metadata.tables import Contents
from leveret.msg_store.format.folder import FORMAT
from leveret.msg_store.offline.store_at import StoreAt
from leveret.server.own_metadata import difference
from leveret.server.process import (
    LOCK,
    METADATA,
    NODE,
    VHOSTS,
    DataDirectory,
    stored_node,
    take_lock,
)


@dataclass(frozen=True, slots=True)
class Stores:
    """The stores to work on.

    Attributes:
        data_dir: the data directory; None for a store outside one.
        stores: all stores of the data directory, or the named one.
        metadata_damage: the error that leaves queues without names; empty if the metadata can be read.
        metadata_difference: why the metadata does not belong to this node; empty if it does.
    """

    data_dir: Path | None
    stores: list[StoreAt]
    metadata_damage: str = ""
    metadata_difference: str = ""


def find_stores(path: Path) -> Stores:
    """Return the stores of a data directory, or the store in a folder.

    Raises:
        StoreError: the folder is neither a data directory nor a store.
    """
    path = path.absolute()
    data_dir = data_dir_of(path)
    if data_dir is None:
        return Stores(None, [StoreAt(path)])
    contents, damage = _metadata(data_dir)
    found = _stores_of(data_dir, contents)
    if data_dir != path:
        found = [each for each in found if each.path == path]
    return Stores(data_dir, found, damage, "" if damage else _difference(data_dir))


def data_dir_of(path: Path) -> Path | None:
    """Return the data directory at a path or around it; None for a store outside a data directory.

    Raises:
        StoreError: the path is neither a data directory nor a store.
    """
    path = path.absolute()
    if not path.is_dir():
        raise StoreError(f"{path} is not a directory")
    if (path / VHOSTS).is_dir() or (path / METADATA).is_dir():
        return path
    if not ((path / FORMAT).exists() or (path / "rdq").is_dir()):
        raise StoreError(f"{path} is neither a data directory nor a message store")
    above = path.parent.parent
    is_in_one = (above / METADATA).is_dir() or (above / MANIFEST).exists()
    return above if path.parent.name == VHOSTS and is_in_one else None


def _metadata(data_dir: Path) -> tuple[Contents, str]:
    try:
        return read_contents(data_dir / METADATA), ""
    except StoreError as error:
        return Contents(), str(error)


def _difference(data_dir: Path) -> str:
    """Return why a broker would refuse the metadata; nothing for a snapshot, which has no node."""
    try:
        own = stored_node(data_dir)
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as error:
        return f"cannot be compared: {data_dir / NODE}: {error}"
    wrong = difference(*read_node(data_dir / METADATA), str(own.node_id), own.transaction)
    return wrong and f"{data_dir / METADATA} {wrong}"


def _stores_of(data_dir: Path, contents: Contents) -> list[StoreAt]:
    names: dict[str, dict[int, str]] = {}
    for row in contents.queues:
        names.setdefault(row.vhost, {}).update(dict.fromkeys(queue_nos_of_row(row), row.name))
    vhosts = {store_folder(data_dir, row.name): row.name for row in contents.vhosts}
    folders = sorted((data_dir / VHOSTS).iterdir()) if (data_dir / VHOSTS).is_dir() else []
    return [
        StoreAt(folder, vhosts.get(folder), names.get(vhosts.get(folder, ""), {}))
        for folder in folders
        if folder.is_dir() and not folder.name.endswith(DELETED)
    ]


@contextmanager
def held(data_dir: Path | None, is_read_only: bool) -> Iterator[None]:
    """Keep brokers and other tools out of a data directory.

    Raises:
        DataDirectoryError: another process has it; or it cannot be used for writing.
    """
    if data_dir is None:
        yield
    elif not is_read_only:
        with DataDirectory(data_dir):
            yield
    else:
        try:
            lock = os.open(data_dir / LOCK, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:  # a copy, in which no broker has run
            yield
            return
        take_lock(lock, data_dir)
        try:
            yield
        finally:
            os.close(lock)


def next_epoch(data_dir: Path | None, epoch_seen: int) -> int:
    """Return a boot epoch above a used one; the data directory, if there is one, counts it as a start.

    Raises:
        StoreError: the metadata cannot be written.
    """
    if data_dir is None or not (data_dir / METADATA).is_dir():
        return epoch_seen + 1
    store = MetadataStore(data_dir / METADATA, lambda report: report())
    try:
        while (epoch := store.next_boot_epoch()) <= epoch_seen:
            pass
    finally:
        store.close()
    return epoch
