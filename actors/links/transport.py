"""Sockets of links: TCP, Unix, TLS."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol, cast

from leveret.actors.links.codec import Buffer
from leveret.actors.links.endpoint import Endpoint
from leveret.actors.links.peer import Wire
from leveret.actors.links.security import Security, certified_names
from leveret.core.errors import ConfigError

_UNIX: Final = "unix:"
_FULL_BYTES: Final = (
    512 * 1024
)  # of the socket's buffer in this process: what is sent next waits behind it
_EMPTY_BYTES: Final = 128 * 1024
_STRANGER_BYTES: Final = 4096  # read at once before the handshake is over


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
        self._dialling: set[asyncio.Task[None]] = set()

    async def listen(self, address: str, accept: Callable[[], Endpoint]) -> str:
        """Listen; return the address with the port that was chosen."""

        def protocol() -> _Stranger:
            return _Stranger(accept())

        tls = self._security.listener_tls
        if address.startswith(_UNIX):
            server = await self._loop.create_unix_server(
                protocol, _path(address), ssl=tls, ssl_handshake_timeout=self._tls_s
            )
        else:
            host, port = host_and_port(address)
            server = await self._loop.create_server(
                protocol, host, port, ssl=tls, ssl_handshake_timeout=self._tls_s
            )
            if port == 0:
                port = server.sockets[0].getsockname()[1]
            shown = f"[{host}]" if ":" in host else host
            address = f"{shown}:{port}"
        self._servers.append(server)
        return address

    def dial(self, address: str, endpoint: Endpoint) -> None:
        """Begin to connect; ConfigError: the address is malformed."""
        if address.startswith(_UNIX):
            _path(address)
        else:
            host_and_port(address)
        task = self._loop.create_task(self._connect(address, endpoint))
        self._dialling.add(task)
        task.add_done_callback(self._dialling.discard)

    async def _connect(self, address: str, endpoint: Endpoint) -> None:
        tls = self._security.dialler_tls
        try:
            if address.startswith(_UNIX):
                await self._loop.create_unix_connection(
                    lambda: _Stranger(endpoint), _path(address), ssl=tls,
                    server_hostname="" if tls else None, ssl_handshake_timeout=self._tls_s,
                )  # fmt: skip
            else:
                host, port = host_and_port(address)
                await self._loop.create_connection(lambda: _Stranger(endpoint), host, port, ssl=tls)
        except OSError as error:
            endpoint.ended(str(error))

    async def close(self) -> None:
        """Listen and dial no more."""
        for server in self._servers:
            server.close()
        for task in list(self._dialling):
            task.cancel()
        await asyncio.gather(*self._dialling, return_exceptions=True)
        await asyncio.sleep(0)  # the loop closes sockets that were aborted in its next round


class SocketWire:
    """A socket that an endpoint writes to."""

    def __init__(self, transport: asyncio.Transport) -> None:
        transport.set_write_buffer_limits(_FULL_BYTES, _EMPTY_BYTES)
        self._transport = transport
        self.is_full = False

    def write(self, data: list[Buffer]) -> None:
        if not self._transport.is_closing():
            self._transport.writelines(data)

    def abort(self) -> None:
        self._transport.abort()

    def close(self) -> None:
        self._transport.close()


class Listener(Protocol):
    """What hears of a socket's events: an ``Endpoint``, or the link with a process."""

    def connected(self, wire: Wire) -> None:
        """Begin."""

    def received(self, data: bytes) -> None:
        """Take bytes."""

    def writable(self) -> None:
        """Hear that the socket takes bytes again."""

    def ended(self, reason: str) -> None:
        """Hear that the socket has ended."""


class _Stranger(asyncio.BufferedProtocol):
    """A socket before the end of the handshake: little is read at once."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._buffer = bytearray()
        self._wire: SocketWire | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._buffer = bytearray(_STRANGER_BYTES)
        self._transport = transport = cast("asyncio.Transport", transport)
        wire = self._wire = SocketWire(transport)
        certificate = transport.get_extra_info("peercert")
        self._endpoint.connected(wire, certified_names(certificate or {}))

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Take bytes; behind the handshake the socket belongs to the link."""
        self._endpoint.received(bytes(self._buffer[:nbytes]))
        if self._endpoint.is_made and self._wire is not None:
            self._transport.set_protocol(LinkProtocol(self._endpoint, self._wire))

    def connection_lost(self, exc: Exception | None) -> None:
        self._endpoint.ended(str(exc or "the other side has closed the connection"))


class LinkProtocol(asyncio.Protocol):
    """A socket behind the handshake, or one that needs none.

    Args:
        endpoint: hears of the socket's events.
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
