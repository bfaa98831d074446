"""The sockets of a node, listening and accepted, and asyncio's events of the accepted ones.

Sockets outlive the actors that use them: a restarted listener finds the same ports, and ends the accepting of
its killed predecessor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec import Struct

from leveret.broker.connection import address
from leveret.broker.connection.connection_log import TO_MAKE_ROOM, ConnectionLog, refused_at_once
from leveret.broker.connection.layers.handshakes import Handshakes
from leveret.broker.connection.layers.proxy import ProxiedSocket
from leveret.broker.connection.layers.tls import TlsTransport
from leveret.core.transports import let_go

if TYPE_CHECKING:
    import socket
    import ssl

    from leveret.actors.runtime.ref import Ref
    from leveret.actors.runtime.runtime import Runtime
    from leveret.broker.connection.admission import Admission
    from leveret.broker.connection.connections import Connections
    from leveret.broker.connection.input import Input
    from leveret.broker.connection.layers.credentials import Credentials
    from leveret.broker.connection.layers.proxy_header import Place

LISTENER: Final = "listener"
READERS: Final = "readers"


class SocketReader(Protocol):
    """The reader, as its socket sees it."""

    input: Input

    @property
    def ref(self) -> Ref: ...

    def input_ended(self) -> None: ...
    def socket_lost(self, error: Exception | None) -> None: ...
    def makes_room(self) -> None: ...
    def writing_paused(self) -> None: ...
    def writing_resumed(self) -> None: ...


class Server(Protocol):
    """An acceptor of one listening socket (``accepting.py``).

    Its length is the number of accepted sockets without a transport.
    """

    def __len__(self) -> int: ...
    def close(self) -> None: ...


class Accepted(Struct, eq=False):
    """A socket was accepted; the listener has a reader started for it."""

    transport: asyncio.Transport
    protocol: ConnectionProtocol


@dataclass(frozen=True, slots=True)
class Listening:
    """A socket that listens, and what lies between the sockets it accepts and their connections.

    Attributes:
        credentials: of TLS; None: there is no TLS.
        is_proxied: connections begin with a header of the PROXY protocol.
    """

    socket: socket.socket
    credentials: Credentials | None = None
    is_proxied: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether nothing lies between."""
        return self.credentials is None and not self.is_proxied


class Sockets:
    """The sockets of one node.

    Attributes:
        listening: bound sockets; the listener works on duplicates of them.
        servers: acceptors, one per duplicate.
        accepted: transports by their protocols; empty when all sockets are closed.
    """

    def __init__(
        self, runtime: Runtime, connections: Connections[Any], admission: Admission
    ) -> None:
        self.runtime = runtime
        self.connections = connections
        self.admission = admission
        self.listening: list[Listening] = []
        self._handshakes = Handshakes(runtime.after_round)
        self.servers: list[Server] = []
        self.accepted: dict[ConnectionProtocol, asyncio.Transport] = {}

    @property
    def has_listener(self) -> bool:
        """Whether somebody would have a reader started for a new socket."""
        return self.runtime.whereis(LISTENER) is not None

    @property
    def is_full(self) -> bool:
        """Whether as many connections are open as the settings allow."""
        limit = self.connections.settings.connections_max
        return limit is not None and len(self.connections) >= limit

    def has_room(self, peer: Any) -> bool:
        """Return whether one more socket is taken, of this address; else the log tells of it."""
        if self.is_full:
            self._refuse(peer)
            return False
        return self.admission.has_room(len(self.accepted) + sum(map(len, self.servers)), peer)

    def _refuse(self, peer: Any) -> None:
        limit = self.connections.settings.connections_max
        refused_at_once(peer, f"connections_max: {limit} connections are open")

    def new_protocol(self, listening: Listening, first: bytes) -> asyncio.BaseProtocol:
        """Return the protocol of a socket that was accepted: of the connection, or of a layer before it.

        ``first``: bytes that were read with the accept, where the socket is plain.
        """
        protocol = ConnectionProtocol(self, first if listening.is_plain else b"")
        if not listening.is_proxied:
            return self._above_proxy(listening, protocol)
        following = partial(self._above_proxy, listening, protocol)
        return ProxiedSocket(protocol, following, self.runtime.clock)

    def _above_proxy(
        self, listening: Listening, protocol: ConnectionProtocol
    ) -> asyncio.BaseProtocol:
        if listening.credentials is None:
            return protocol
        clock = self.runtime.clock
        return TlsTransport(listening.credentials, protocol, self._handshakes, clock)

    def arrived(self, transport: asyncio.Transport, protocol: ConnectionProtocol) -> bool:
        """Take a new socket, unless the node is stopping or full."""
        self.accepted[protocol] = transport
        if not self.has_listener or self.connections.is_stopping:
            return False
        if self.is_full:
            self._refuse(protocol.peer)
            return False
        self.admission.waits(protocol, transport)
        return True

    def connected(self, transport: asyncio.Transport, protocol: ConnectionProtocol) -> None:
        """Have a reader started for a socket whose first byte of AMQP can come."""
        listener = self.runtime.whereis(LISTENER)
        if listener is not None:
            self.runtime.send(listener, Accepted(transport, protocol))

    def closed(self, protocol: ConnectionProtocol) -> None:
        self.accepted.pop(protocol, None)
        self.admission.waits_no_more(protocol)

    def close_servers(self) -> None:
        for server in self.servers:
            server.close()
        self.servers.clear()

    def close_unfinished(self) -> None:
        """Close the sockets that no reader has got: their TLS handshake or PROXY header is under way."""
        for protocol, transport in list(self.accepted.items()):
            if not protocol.has_begun:
                transport.abort()


class ConnectionProtocol(asyncio.Protocol):
    """Passes the transport's events to a reader.

    Reading is paused until the reader has been started and has attached itself. uvloop begins to read after
    ``connection_made`` although reading was paused there, so bytes that come early wait for the reader. It
    also looks ``data_received`` up only in ``set_protocol``, which ``attach`` therefore calls again.

    Attributes:
        peer: the client's address, which a proxy may have told.
        local: the address that it has connected to.
    """

    __slots__ = (
        "_early", "_reader", "_sockets", "_transport", "data_received", "local", "peer",
    )  # fmt: skip

    def __init__(self, sockets: Sockets, first: bytes = b"") -> None:
        self._sockets = sockets
        self._reader: SocketReader | None = None
        self._transport: asyncio.Transport | None = None
        self._early: list[bytes] = [first] if first else []
        self.peer: Any = None
        self.local: Any = None
        # asyncio calls this with received bytes: a turn of the reader, once it is attached.
        self.data_received: Callable[[bytes], None] = self._early.append  # type: ignore[assignment]

    @property
    def tls(self) -> ssl.SSLObject | None:
        """The TLS of the connection, if there is any."""
        found: ssl.SSLObject | None = None
        if self._transport is not None:
            found = self._transport.get_extra_info("ssl_object")
        return found

    @property
    def has_begun(self) -> bool:
        """Whether a reader has got this connection."""
        return self._reader is not None

    @property
    def is_attached(self) -> bool:
        return self._reader is not None and self._reader.ref.is_alive

    def attach(self, reader: SocketReader, transport: asyncio.Transport) -> None:
        """Begin: events go to this reader from now on."""
        self._reader = reader
        self.data_received = partial(
            self._sockets.runtime.run_event, reader.ref, reader.input.received
        )
        transport.set_protocol(self)
        while self._early:
            self.data_received(self._early.pop(0))
        transport.resume_reading()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Have a reader started; a node that is full or stopping closes the socket at once.

        uvloop's transports are not instances of asyncio's classes, so the class is not checked.
        """
        transport.pause_reading()
        if self.arrived(transport):
            self._sockets.connected(transport, self)
        else:
            transport.abort()

    def arrived(self, transport: asyncio.Transport) -> bool:
        """Count a socket in, below any layer first; return whether it may stay."""
        self._transport = transport
        if self.peer is None:
            self.peer, self.local = address.ends_of(transport)
        return self._sockets.arrived(transport, self)

    def comes_from(self, peer: Place, local: Place | None) -> None:
        """Take the addresses that a proxy tells."""
        self.peer, self.local = peer, local

    def refused(self, reason: str, has_spoken: bool) -> None:
        """Write that the socket is closed before there is a connection; the level is debug for a health check."""
        if self not in self._sockets.accepted:  # it made room, which is written
            return
        now_s = self._sockets.runtime.clock.monotonic_s()
        log = ConnectionLog(address.name(self.peer, self.local), self.peer, now_s)
        if has_spoken:
            log.refused(reason)
        else:
            log.ends(reason)
            log.closed(now_s, reason)

    def opened(self) -> None:
        """The connection is open: its socket is not closed for another one."""
        self._sockets.admission.waits_no_more(self)

    def ended(self) -> None:
        """The connection is not open any more; its socket may still have to send."""
        transport = self._sockets.accepted.get(self)
        if transport is not None:
            self._sockets.admission.waits(self, transport)

    def forget(self) -> None:
        """The socket is closed now, before its end is seen."""
        transport = self._sockets.accepted.get(self)
        self._sockets.closed(self)
        if self._reader is not None:
            self._reader.makes_room()
        elif transport is not None:
            refused_at_once(self.peer, TO_MAKE_ROOM)

    def eof_received(self) -> None:
        """The transport closes itself after this, when it has written what it has to write."""
        if self._reader is not None:
            self._sockets.runtime.run_as(self._reader.ref, self._reader.input_ended)

    def connection_lost(self, exc: Exception | None) -> None:
        self._sockets.closed(self)
        reader, self._reader = self._reader, None
        self.data_received = _dropped
        let_go(self._transport)
        self._transport = None
        if reader is not None:
            self._sockets.runtime.run_as(reader.ref, reader.socket_lost, exc)

    def pause_writing(self) -> None:
        if self._reader is not None:
            self._sockets.runtime.run_as(self._reader.ref, self._reader.writing_paused)

    def resume_writing(self) -> None:
        if self._reader is not None:
            self._sockets.runtime.run_as(self._reader.ref, self._reader.writing_resumed)


def _dropped(data: bytes) -> None:
    """Drop bytes that come after the end of the connection."""
