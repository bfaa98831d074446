"""The sockets of a node: those it listens on, and those it has accepted.

They outlive the actors that use them: a restarted listener finds the same ports, and closes the servers that
a killed one has left open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec import Struct

from leveret.amqp.errors import InternalError

if TYPE_CHECKING:
    import asyncio
    import socket

    from leveret.actors.runtime.ref import Ref
    from leveret.actors.runtime.runtime import Runtime
    from leveret.broker.connection.connections import Connections

LISTENER: Final = "listener"
READERS: Final = "readers"


class SocketEvents(Protocol):
    """asyncio's side of a socket (``ConnectionProtocol``)."""

    @property
    def is_attached(self) -> bool:
        """Whether a live reader takes the events."""

    def attach(self, reader: Any, transport: asyncio.Transport) -> None:
        """Give the events to this reader from now on."""


class Accepted(Struct, eq=False):
    """A socket was accepted; the listener has a reader started for it."""

    transport: asyncio.Transport
    protocol: SocketEvents


class Sockets:
    """The sockets of one node.

    Attributes:
        runtime: where readers take their events.
        connections: which of them are open connections.
        listening: bound sockets; the listener works on duplicates of them.
        servers: accept on those duplicates.
        accepted: transports by their protocols; empty when all sockets are closed.
    """

    def __init__(self, runtime: Runtime, connections: Connections[Any]) -> None:
        self.runtime = runtime
        self.connections = connections
        self.listening: list[socket.socket] = []
        self.servers: list[asyncio.Server] = []
        self.accepted: dict[SocketEvents, asyncio.Transport] = {}

    @property
    def readers_sup(self) -> Ref:
        """The supervisor of the readers.

        Raises:
            InternalError: it is being restarted.
        """
        ref = self.runtime.whereis(READERS)
        if ref is None:
            raise InternalError()
        return ref

    def accept(self, transport: asyncio.Transport, protocol: SocketEvents) -> bool:
        """Take a new socket, unless the node is stopping or full."""
        self.accepted[protocol] = transport
        listener, connections = self.runtime.whereis(LISTENER), self.connections
        limit = connections.settings.connections_max
        if listener is None or connections.is_stopping or (limit and len(connections) >= limit):
            return False
        self.runtime.send(listener, Accepted(transport, protocol))
        return True

    def closed(self, protocol: SocketEvents) -> None:
        del self.accepted[protocol]

    def close_servers(self) -> None:
        for server in self.servers:
            server.close()
        self.servers.clear()
