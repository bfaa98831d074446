"""``leveret metadata accept``: marks the metadata in a data directory as its node's own, unchanged.

For metadata that a start refuses (``server/own_metadata.py``) because it is missing, from a backup, or another node's.
The counters of the metadata are raised above all numbers that the message stores have used, so that no new queue gets
the number of a queue with messages.

Exit codes: 0 done; 70 the disk failed; 78 the data directory or a message store cannot be used.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from leveret.core.errors import StoreError
from leveret.core.printable import printable
from leveret.metadata.reader import read_contents
from leveret.metadata.store import take_over
from leveret.msg_store.offline.inspection import Inspection
from leveret.server.output.terminal import show
from leveret.server.process import CLUSTER, METADATA, DataDirectory, DataDirectoryError
from leveret.server.store_tools.command import quiet
from leveret.server.store_tools.dirs import find_stores


def run(data_dir: Path) -> int:
    """Carry the command out; return the exit code."""
    try:
        lines = _accepted(data_dir)
    except StoreError as error:
        show(f"leveret: {error}", file=sys.stderr)
        return os.EX_CONFIG
    except OSError as error:
        place = f": {error.filename}" if error.filename else ""
        show(f"leveret: {(error.strerror or str(error)).lower()}{place}", file=sys.stderr)
        return os.EX_SOFTWARE
    show("".join(f"{printable(line)}\n" for line in lines), end="")
    return 0


def _accepted(data_dir: Path) -> list[str]:
    if not data_dir.is_dir():
        raise DataDirectoryError(f"{data_dir} is not a directory")
    with DataDirectory(data_dir) as directory:
        if (directory.path / CLUSTER).exists():
            raise DataDirectoryError(
                f"{directory.path} is that of a node of a cluster, whose metadata is in etcd"
            )
        folder = directory.path / METADATA
        boot_epoch, queue_no, unknown = (
            _used(directory.path) if directory.has_messages else (0, 0, 0)
        )
        directory.note_transaction(take_over(folder, str(directory.node_id), boot_epoch, queue_no))
        count = len(read_contents(folder).rows())
    lines = [f"{folder} is the metadata of node {directory.node_id}: {count} rows"]
    if unknown:
        lines.append(
            f"{unknown} queues with messages have no definition there: a broker removes their messages after a week"
        )
    return lines


def _used(data_dir: Path) -> tuple[int, int, int]:
    """Return the stores' highest boot epoch and queue number, and how many queues with messages are undefined."""
    boot_epoch = queue_no = unknown = 0
    with quiet():
        for at in find_stores(data_dir).stores:
            with Inspection(at.path) as store:
                boot_epoch = max(boot_epoch, store.epoch_seen)
                queue_no = max([queue_no, *store.queue_nos()])
                filled = {no for no, terms in store.queues.items() if terms.messages}
                unknown += len(filled - set(at.names))
    return boot_epoch, queue_no, unknown
