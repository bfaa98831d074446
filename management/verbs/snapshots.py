"""Snapshots of a running broker: the broker makes the draft, the command completes it (``management/snapshots``)."""

from __future__ import annotations

import shutil
from functools import partial
from typing import TYPE_CHECKING

from leveret.broker.node.background import in_thread
from leveret.broker.node.snapshots import take
from leveret.core.errors import StoreError
from leveret.core.log.loggers import logger
from leveret.management.errors import RefusedError
from leveret.management.lookups import vhost_named
from leveret.management.snapshots.directory import FOLDER, SnapshotDirectory

if TYPE_CHECKING:
    from leveret.broker.node.node import Node

log = logger(__name__)


class SnapshotAdmin:
    """Makes drafts of snapshots, one at a time."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._is_taking = False

    async def take_snapshot(self, name: str, vhosts: list[str]) -> None:
        """Make the draft of a snapshot; the caller holds the lock of the snapshot directory.

        Args:
            name: of the snapshot.
            vhosts: their names; empty: all.
        """
        node = self._node
        if node.data_dir is None:
            raise RefusedError("a broker without a data directory has nothing to take")
        if self._is_taking:
            raise RefusedError("another snapshot is being made")
        names = vhosts or list(node.vhosts)
        for each in names:
            vhost_named(self._node, each)
        directory = SnapshotDirectory(node.files, node.data_dir / FOLDER)
        directory.check_new(name)
        draft = directory.draft(name)

        def prepare() -> None:
            directory.drop_drafts()
            node.files.mkdir(draft)

        self._is_taking = True
        try:
            await in_thread(node.gil_yielding, "leveret-snapshot", prepare)
            await take(node, draft, names)
        except (OSError, StoreError) as error:
            drop = partial(shutil.rmtree, draft, ignore_errors=True)
            await in_thread(node.gil_yielding, "leveret-snapshot", drop)
            reason = error.strerror or error if isinstance(error, OSError) else error
            raise StoreError(f"snapshot '{name}' not made: {reason}") from error
        finally:
            self._is_taking = False
        log.info("snapshot taken name=%s vhosts=%d", name, len(names))
