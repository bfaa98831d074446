"""The metadata store as an actor: writes come as calls, the answer comes when they are on disk.

The store itself belongs to the node and outlives the actor, so a killed actor leaves no environment
open twice; its successor goes on with the same store. What was asked before and not answered is asked
again (``Node.commit``): putting and deleting rows twice changes nothing. Deletions that nobody waits
for are the node's ``unwritten`` ones: a successor begins with them, and they are tried again while the
disk refuses them.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from leveret.actors.gen_server import NOREPLY, From, GenServer
from leveret.core.errors import StoreError

if TYPE_CHECKING:
    from leveret.broker.node.node import Node
    from leveret.metadata.tables import Row

log = logging.getLogger(__name__)

NAME: Final = "metadata_store"
_RETRY_S: Final = 5.0
_RETRY: Final = "retry"


class Write:
    """Put and delete rows; answered None, or the StoreError."""

    __slots__ = ("deletes", "puts")

    def __init__(self, puts: Sequence[Row], deletes: Sequence[Row]) -> None:
        self.puts = puts
        self.deletes = deletes


class Delete:
    """Delete those of these rows that are still owed; nobody waits for it."""

    __slots__ = ("rows",)

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = rows


class MetadataServer(GenServer):
    """Front of the node's metadata store, registered as ``metadata_store``."""

    def init(self, node: Node) -> None:
        """Take the name, and up what the one before has left."""
        self.node = node
        self._retries = False
        self.runtime.register(NAME, self.ref)
        self._delete(list(node.unwritten.deletes.values()))

    def handle_call(self, request: Any, frm: From | None) -> object:
        """Hand a write to the store's thread."""
        assert type(request) is Write
        assert frm is not None
        runtime = self.runtime

        def done(error: StoreError | None) -> None:
            runtime.reply(frm, error)

        self.node.store.write(request.puts, request.deletes, done)
        return NOREPLY

    def handle_cast(self, message: Any) -> None:
        """Take deletions nobody waits for."""
        assert type(message) is Delete
        self._delete(message.rows)

    def handle_info(self, message: object) -> None:
        """Try again."""
        assert message == _RETRY
        self._retries = False
        self._delete(list(self.node.unwritten.deletes.values()))

    def _delete(self, rows: Sequence[Row]) -> None:
        unwritten = self.node.unwritten
        rows = unwritten.owed(rows)
        if not rows:
            return
        runtime, ref = self.runtime, self.ref

        def done(error: StoreError | None) -> None:
            if error is None:
                unwritten.deleted(rows)
            else:
                log.error("metadata not deleted rows=%d error=%s", len(rows), error)
                runtime.run_as(ref, self._retry_later)

        self.node.store.write([], rows, done)

    def _retry_later(self) -> None:
        if not self._retries:
            self._retries = True
            self.start_timer(_RETRY_S, _RETRY)

    def terminate(self, reason: object) -> None:
        """Leave nothing in the mailbox: the store writes what it has before it is closed."""
        self._delete(list(self.node.unwritten.deletes.values()))
