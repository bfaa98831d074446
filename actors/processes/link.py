"""The link between a process and its parent: a socketpair in the place of a node's connection.

Frames, streams, credit, monitors, links and calls are those of the links between nodes (``links.peer``). What differs:

* There is no handshake: nobody else can hold the inherited socket, and the parent has chosen the process's name
  (``runtime.remote.Routes.new_child``).
* There are no heartbeats: a process may compute for minutes. Its end is that of the socket, and its parent has the
  pidfd as well. A link on which nothing moves has no timer.
* Mail may be sent before the socket is connected; it waits.
* A side that ends writes all that waits, also what the other's credit does not cover.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.actors.links.handshake import Claim
from leveret.actors.links.limits import NODE_BYTES_MAX, LinkLimits
from leveret.actors.links.peer import SERVER, Peer
from leveret.actors.links.transport import LinkProtocol
from leveret.actors.runtime.actor_ref import ActorRef
from leveret.actors.runtime.ref import DEAD_CELL, Ref
from leveret.core.errors import ActorError

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from leveret.actors.links.codec import Buffer
    from leveret.actors.links.peer import Wire
    from leveret.actors.runtime.runtime import Runtime

PARENT: Final = 1  # the number of the actor's parent in the process, which starts it first of all
ROOT: Final = 2  # the number of the actor for which the process is there
LIMITS: Final = LinkLimits()


class ProcessLink:
    """One end of the link.

    Args:
        runtime: whose actors are linked.
        node: the other side, ``name/creation``.
        lost: called once when the link has ended.
        server: an actor of this side that the other has under the number ``SERVER``; None: there is none.

    Attributes:
        peer: the other side's actors.
        server: as given, or a dead address.

    Raises:
        ActorError: the name is too long.
    """

    def __init__(
        self, runtime: Runtime, node: str, lost: Callable[[], None], server: Ref | None = None
    ) -> None:
        if len(node.encode()) > NODE_BYTES_MAX:
            raise ActorError(
                f"{node!r:.80} is a name of {len(node.encode())} bytes, limit {NODE_BYTES_MAX}:"
                " shorten the runtime's name"
            )
        self._runtime = runtime
        self._lost = lost
        self.server = server or ActorRef(runtime.node, SERVER, DEAD_CELL)
        self._wire: Wire | None = None
        self._is_closing = False
        claim = Claim(incarnation=1, parted_at=0)
        self.peer = Peer(runtime, node, claim, claim, LIMITS, self, self, has_heartbeats=False)
        runtime.routes.add(node, self.peer)

    async def connect(self, end: socket.socket) -> None:
        """Begin to use this side's end of the socketpair."""
        loop = self._runtime.loop
        assert loop is not None
        await loop.create_connection(lambda: LinkProtocol(self), sock=end)

    def discard(self) -> None:
        """Forget a link that will not be connected, because there is no process."""
        self._runtime.routes.remove(self.peer.node, self.peer)

    def close(self) -> None:
        """End the link when all that waits has been written."""
        self._is_closing = True
        self.peer.connection.finish()
        self._write()

    @property
    def is_connected(self) -> bool:
        """Whether there is, or was, a connection."""
        return self._wire is not None

    # The peer's hub.

    def down(self, peer: Peer, reason: str) -> None:
        self._runtime.routes.remove(peer.node, peer)
        self._lost()

    # The peer's wire.

    @property
    def is_full(self) -> bool:
        return self._wire is None or self._wire.is_full

    def write(self, data: list[Buffer]) -> None:
        if self._wire is not None:
            self._wire.write(data)

    def abort(self) -> None:
        if self._wire is not None:
            self._wire.abort()

    # The socket.

    def connected(self, wire: Wire) -> None:
        self._wire = wire
        if self.peer.is_lost:
            wire.abort()
        else:
            self._write()

    def received(self, data: bytes) -> None:
        self._runtime.run_callback(self.peer.received, data)

    def writable(self) -> None:
        """Write what waits."""
        self._write()

    def ended(self, reason: str) -> None:
        self._runtime.run_callback(self.peer.lost, reason)

    def _write(self) -> None:
        self.peer.flush()
        wire = self._wire
        if self._is_closing and wire is not None and not wire.is_full:
            wire.close()
