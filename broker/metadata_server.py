"""The metadata store as an actor: writes come as calls, the answer comes when they are on disk.

The store itself belongs to the node and outlives the actor, so a killed actor leaves no environment
open twice; its successor goes on with the same store. What was asked before and not answered is asked
again (``Node.commit``): putting and deleting rows twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from leveret.actors.gen_server import NOREPLY, From, GenServer
from leveret.core.errors import StoreError

if TYPE_CHECKING:
    from leveret.broker.node import Node
    from leveret.metadata.tables import Row

NAME: Final = "metadata_store"


class Write:
    """Put and delete rows; answered None, or the StoreError."""

    __slots__ = ("deletes", "puts")

    def __init__(self, puts: Sequence[Row], deletes: Sequence[Row]) -> None:
        self.puts = puts
        self.deletes = deletes


class MetadataServer(GenServer):
    """Front of the node's metadata store, registered as ``metadata_store``."""

    def init(self, node: Node) -> None:
        """Take the name."""
        self.node = node
        self.runtime.register(NAME, self.ref)

    def handle_call(self, request: Any, frm: From | None) -> object:
        """Hand a write to the store's thread."""
        assert type(request) is Write
        self._write(request, frm)
        return NOREPLY

    def handle_cast(self, message: Any) -> None:
        """Take a write nobody waits for."""
        assert type(message) is Write
        self._write(message, None)

    def _write(self, write: Write, frm: From | None) -> None:
        runtime, ref = self.runtime, self.ref

        def done(error: StoreError | None) -> None:
            if frm is not None:
                runtime.reply(frm, error)
            elif error is not None:
                runtime.exit(ref, ("store", str(error)))

        self.node.store.write(write.puts, write.deletes, done)
