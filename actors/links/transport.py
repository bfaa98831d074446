"""Sockets of links: TCP, Unix, TLS.

TCP connections with TLS are accepted here, and not by the loop's server, because that tells nobody why a handshake has
failed: a certificate that has expired must be found in the log.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from typing import Any, Final, Protocol, cast

from leveret.actors.links.codec import Buffer
from leveret.actors.links.endpoint import Endpoint
from leveret.actors.links.peer import Wire
from leveret.actors.links.security import Security, certified_names
from leveret.core.addresses import listening_socket, plain_host
from leveret.core.errors import ConfigError
from leveret.core.log.loggers import logger
from leveret.core.transports import write_parts

log = logger(__name__)

_UNIX: Final = "unix:"
_FULL_BYTES: Final = (
    512 * 1024
)  # of the socket's buffer in this process: what is sent next waits behind it
_EMPTY_BYTES: Final = 128 * 1024
_HANDSHAKE_READ_BYTES: Final = 4096  # at once
_BACKLOG: Final = 100
_ACCEPT_AGAIN_S: Final = 1.0  # when no descriptor is left


class Sockets:
    """Connects nodes by sockets of an event loop.

    Args:
        loop: the loop.
        security: has the contexts of TLS.
        handshake_s: for the handshake of TLS.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, security: Security, handshake_s: float
    ) -> None:
        self._loop = loop
        self._tls_s = handshake_s if security.listener_tls else None
        self._security = security
        self._servers: list[asyncio.AbstractServer] = []
        self._listening: list[socket.socket] = []  # with TLS
        self._tasks: set[asyncio.Task[None]] = set()

    async def listen(self, address: str, accept: Callable[[], Endpoint]) -> str:
        """Listen; return the address with the port that was chosen."""

        def protocol() -> _UnauthenticatedPeer:
            return _UnauthenticatedPeer(accept())

        tls = self._security.listener_tls
        if address.startswith(_UNIX):
            server = await self._loop.create_unix_server(
                protocol, _path(address), ssl=tls, ssl_handshake_timeout=self._tls_s
            )
            self._servers.append(server)
            return address
        host, port = host_and_port(address)
        bound = await self._bound(host, port)
        port = bound[0].getsockname()[1]
        for each in bound:
            if tls is None:
                self._servers.append(await self._loop.create_server(protocol, sock=each))
            else:
                self._listening.append(each)
                self._start(self._accept(each, tls, accept))
        shown = f"[{host}]" if ":" in host else host
        return f"{shown}:{port}"

    async def _bound(self, host: str, port: int) -> list[socket.socket]:
        """Return sockets that listen, one for each address of the host; OSError: one cannot, and none does."""
        infos = await self._loop.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        with ExitStack() as bound:
            found = [
                bound.enter_context(listening_socket(family, place, _BACKLOG))
                for family, place in dict.fromkeys((info[0], info[4]) for info in infos)
            ]
            bound.pop_all()
        return found

    async def _accept(
        self, listening: socket.socket, tls: ssl.SSLContext, accept: Callable[[], Endpoint]
    ) -> None:
        while True:
            try:
                accepted, place = await self._loop.sock_accept(listening)
            except OSError as error:
                log.warning("connection of a node not accepted error=%s", error)
                await asyncio.sleep(_ACCEPT_AGAIN_S)
                continue
            shown = f"{plain_host(place[0])}:{place[1]}"
            self._start(self._secure(accepted, tls, accept(), shown))

    async def _secure(
        self, accepted: socket.socket, tls: ssl.SSLContext, endpoint: Endpoint, shown: str
    ) -> None:
        """Make the handshake of TLS with a node that has connected."""
        try:
            await self._loop.connect_accepted_socket(
                lambda: _UnauthenticatedPeer(endpoint, shown),
                accepted,
                ssl=tls,
                ssl_handshake_timeout=self._tls_s,
            )
        except OSError as error:
            endpoint.ended(_reason(error, shown))

    def dial(self, address: str, endpoint: Endpoint) -> None:
        """Begin to connect; ConfigError: the address is malformed."""
        if address.startswith(_UNIX):
            _path(address)
        else:
            host_and_port(address)
        self._start(self._connect(address, endpoint))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, address: str, endpoint: Endpoint) -> None:
        tls = self._security.dialler_tls
        try:
            if address.startswith(_UNIX):
                await self._loop.create_unix_connection(
                    lambda: _UnauthenticatedPeer(endpoint, address), _path(address), ssl=tls,
                    server_hostname="" if tls else None, ssl_handshake_timeout=self._tls_s,
                )  # fmt: skip
            else:
                await self._loop.create_connection(
                    lambda: _UnauthenticatedPeer(endpoint, address), *host_and_port(address), ssl=tls,
                    ssl_handshake_timeout=self._tls_s,
                )  # fmt: skip
        except OSError as error:
            endpoint.ended(_reason(error, address))

    async def close(self) -> None:
        """Listen and dial no more."""
        for server in self._servers:
            server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for each in self._listening:
            each.close()
        await asyncio.sleep(0)  # the loop closes sockets that were aborted in its next round


class SocketWire:
    """A socket that an endpoint writes to."""

    def __init__(self, transport: asyncio.Transport) -> None:
        transport.set_write_buffer_limits(_FULL_BYTES, _EMPTY_BYTES)
        self._transport = transport
        self.is_full = False

    def write(self, data: list[Buffer]) -> None:
        if not self._transport.is_closing():
            write_parts(self._transport, data)

    def abort(self) -> None:
        self._transport.abort()

    def close(self) -> None:
        self._transport.close()


class Listener(Protocol):
    """The receiver of a socket's events: an ``Endpoint``, or the link with a process."""

    def connected(self, wire: Wire) -> None:
        """Begin."""

    def received(self, data: bytes) -> None:
        """Take bytes."""

    def writable(self) -> None:
        """The socket takes bytes again."""

    def ended(self, reason: str) -> None:
        """The socket has ended."""


class _UnauthenticatedPeer(asyncio.BufferedProtocol):
    """A socket during the handshake: no more than ``_HANDSHAKE_READ_BYTES`` are read at once.

    Args:
        endpoint: gets the socket's events.
        place: of the other side, for the log.
    """

    def __init__(self, endpoint: Endpoint, place: str = "") -> None:
        self._endpoint = endpoint
        self._place = place
        self._buffer = bytearray()
        self._wire: SocketWire | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._buffer = bytearray(_HANDSHAKE_READ_BYTES)
        self._transport = transport = cast("asyncio.Transport", transport)
        wire = self._wire = SocketWire(transport)
        certificate = transport.get_extra_info("peercert")
        self._endpoint.connected(wire, certified_names(certificate or {}))

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Pass bytes to the handshake; after it the link has the socket."""
        self._endpoint.received(bytes(self._buffer[:nbytes]))
        if self._endpoint.is_made and self._wire is not None:
            self._transport.set_protocol(LinkProtocol(self._endpoint, self._wire))

    def connection_lost(self, exc: Exception | None) -> None:
        self._endpoint.ended(_reason(exc, self._place))


class LinkProtocol(asyncio.Protocol):
    """A socket after its handshake, or without one.

    Args:
        endpoint: gets the socket's events.
        wire: the socket, if it is behind the handshake.
    """

    def __init__(self, endpoint: Listener, wire: SocketWire | None = None) -> None:
        self._endpoint = endpoint
        self._wire = wire
        self.data_received = endpoint.received  # type: ignore[method-assign]  # no further call per read

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._wire = SocketWire(cast("asyncio.Transport", transport))
        self._endpoint.connected(self._wire)

    def pause_writing(self) -> None:
        if self._wire is not None:
            self._wire.is_full = True

    def resume_writing(self) -> None:
        if self._wire is not None:
            self._wire.is_full = False
            self._endpoint.writable()

    def connection_lost(self, exc: Exception | None) -> None:
        self._endpoint.ended(str(exc or "the other side has closed the connection"))


def _reason(error: Exception | None, place: str) -> str:
    """Return why there is no link, as a text for operators; log it if TLS was refused."""
    if not isinstance(error, ssl.SSLError):
        return str(error or "the other side has closed the connection")
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = f"its certificate is refused: {error.verify_message}"
    else:
        words = (error.reason or str(error)).lower().replace("_", " ")
        start = "it refuses this node" if "alert" in words else "TLS handshake failed"
        reason = f"{start}: {words}"
    log.warning("link refused: %s: %s", place, reason)
    return reason


def host_and_port(address: str) -> tuple[str, int]:
    """Return host and port of ``HOST:PORT``; ConfigError: the address does not have this form."""
    host, colon, port = address.rpartition(":")
    if not (colon and host and port.isdigit() and int(port) < 65536):
        raise ConfigError(f"{address!r} is no address: it must be HOST:PORT or unix:PATH")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _path(address: str) -> str:
    path = address.removeprefix(_UNIX)
    if not path:
        raise ConfigError(f"{address!r} is no address: it must be HOST:PORT or unix:PATH")
    return path
