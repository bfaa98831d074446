"""The metadata store as an actor: writes come as calls, the answer comes when they are on disk.

The store itself belongs to the node and outlives the actor, so a killed actor leaves no environment
open twice; its successor uses the same store. Writes that were not answered are asked for again
(``MetadataWriter.commit``): putting and deleting rows twice changes nothing. Deletions without an answer
are among the pending writes: a successor begins with them, and they are tried again while the disk
refuses them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from leveret.actors.gen_server import NOREPLY, From, GenServer
from leveret.broker.vhost.metadata.metadata_writer import (
    ATTEMPTS_MAX,
    METADATA_SERVER,
    Delete,
    MetadataWriter,
    Write,
)
from leveret.core.log.loggers import logger
from leveret.metadata.interface import ConflictError

if TYPE_CHECKING:
    from leveret.core.errors import StoreError
    from leveret.metadata.tables import Row

log = logger(__name__)

_RETRY_S: Final = 5.0
_RETRY: Final = "retry"


class MetadataServer(GenServer):
    """Front of the node's metadata store, registered as ``metadata_store``."""

    def init(self, writer: MetadataWriter) -> None:
        """Register the name, and take over the deletions that the actor before has left."""
        self._writer = writer
        self._retries = False
        self.runtime.register(METADATA_SERVER, self.ref)
        self._delete_pending()

    def handle_call(self, request: Any, frm: From | None) -> object:
        assert type(request) is Write
        assert frm is not None
        runtime, writer = self.runtime, self._writer  # the actor may have ended when it is done

        def done(error: StoreError | None) -> None:
            runtime.reply(frm, error)
            writer.settled(request.puts)  # their client may have gone

        writer.store.write(request.puts, request.deletes, done)
        return NOREPLY

    def handle_cast(self, message: Any) -> None:
        assert type(message) is Delete
        self._delete(message.rows)

    def handle_info(self, message: object) -> None:
        assert message == _RETRY
        self._retries = False
        self._delete_pending()

    def _delete_pending(self) -> None:
        self._delete(list(self._writer.pending.deletes.values()))

    def _delete(self, rows: Sequence[Row], conflicts: int = 0) -> None:
        writer = self._writer  # as above
        pending = writer.pending
        rows = pending.owed(rows)
        if not rows:
            return
        runtime, ref = self.runtime, self.ref

        def done(error: StoreError | None) -> None:
            if error is None:
                pending.deleted(rows)
                writer.settled(rows)
            elif isinstance(error, ConflictError) and conflicts < ATTEMPTS_MAX:
                # Another node has changed one of them meanwhile.
                runtime.run_as(ref, lambda: self._delete(rows, conflicts + 1))
            else:
                log.error(
                    "metadata not deleted, it is tried again in %d s rows=%d error=%s",
                    int(_RETRY_S),
                    len(rows),
                    error,
                )
                runtime.run_as(ref, self._retry_later)

        writer.store.write([], rows, done)

    def _retry_later(self) -> None:
        if not self._retries:
            self._retries = True
            self.start_timer(_RETRY_S, _RETRY)

    def terminate(self, reason: object) -> None:
        """Leave nothing in the mailbox: the store writes all its rows before it is closed."""
        self._delete_pending()
