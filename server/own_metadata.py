"""The metadata of a single node, opened only if it belongs to the messages in the data directory.

Messages belong to queues by queue numbers that only the metadata knows. With other metadata, or none, the messages
would be removed as orphans after a week. With older metadata, a new queue could get the number of a queue with
messages. So the metadata names the node by its UUID, and the file ``node`` has the last transaction of the metadata
that a start has made, or a stop has seen. ``leveret metadata accept`` marks metadata as the node's own, unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from leveret.core.gil_yielding import NEVER
from leveret.metadata.environment import MetadataLostError
from leveret.metadata.store import MetadataStore
from leveret.server.process import METADATA, DataDirectory, DataDirectoryError

if TYPE_CHECKING:
    from pathlib import Path

    from leveret.core.gil_yielding import GilYielding
    from leveret.metadata.interface import Deliver


def open_metadata(
    directory: DataDirectory, deliver: Deliver, gil_yielding: GilYielding = NEVER
) -> MetadataStore:
    """Open a node's metadata; a new directory gets new metadata.

    Raises:
        DataDirectoryError: the metadata is missing, empty, damaged, older than the node or another node's.
        StoreError: the metadata is of a later version, or cannot be read or written.
        OSError: no thread is left.
    """
    is_new = not directory.has_messages and not directory.transaction
    with explained(directory.path):
        store = MetadataStore(
            directory.path / METADATA, deliver, gil_yielding=gil_yielding, may_create=is_new
        )
    try:
        node = str(directory.node_id)
        if wrong := difference(store.node, store.last_transaction, node, directory.transaction):
            raise DataDirectoryError(
                f"{directory.path / METADATA} {wrong}; {remedy(directory.path)}"
            )
        if not store.node:
            store.belongs_to(node)
    except BaseException:
        store.close()
        raise
    return store


def difference(node: str, transaction: int, own_node: str, own_transaction: int) -> str:
    """Return why metadata does not belong to a node; "": it does.

    Args:
        node: the UUID that the metadata names; "": none.
        transaction: the metadata's last transaction.
        own_node: the UUID of the node.
        own_transaction: the last transaction that the node knows of; 0: none.
    """
    if node and node != own_node:
        return f"is that of node {node}, and its data directory that of node {own_node} (file node)"
    if not node and own_transaction:
        return "is not that of this node: it is a copy from a snapshot, or was begun anew"
    if transaction < own_transaction:
        return f"is older than its node: it ends with transaction {transaction}, the node knows of {own_transaction}"
    return ""


@contextmanager
def explained(data_dir: Path | None) -> Iterator[None]:
    """Add the remedy to an error about lost metadata."""
    try:
        yield
    except MetadataLostError as error:
        if data_dir is None:
            raise
        raise DataDirectoryError(f"{error}; {remedy(data_dir)}") from error


def remedy(data_dir: Path) -> str:
    """Return the remedy for a data directory without its metadata."""
    return (
        f"put back the newest {data_dir / METADATA} that there is, from a backup of the stopped broker or a snapshot, and "
        f"run leveret metadata accept --data {data_dir}, which without any begins anew; or start with a new --data "
        "directory, and import the definitions (leveret ctl import_definitions)"
    )
