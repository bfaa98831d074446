"""A socket of a listener with the PROXY protocol, until its header has come; the connection, or TLS, follows.

The header comes before everything else, also before TLS, and within ``PROXY_HEADER_S``. From then on the
connection's addresses are those of the header. Bytes of a long header's end are dropped as they come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from leveret.broker.connection.layers.proxy_header import ProxyHeader, ProxyHeaderError, parse
from leveret.core.limits import PROXY_HEADER_S
from leveret.core.transports import let_go

if TYPE_CHECKING:
    from leveret.broker.connection.layers.connected import Connected
    from leveret.core.clock import Clock


class ProxiedSocket(asyncio.Protocol):
    """Reads the header of one socket.

    Args:
        connected: the connection, whose addresses become the header's.
        following: the protocol that goes on: the connection, or TLS for it.
    """

    def __init__(
        self,
        connected: Connected,
        following: Callable[[], asyncio.BaseProtocol],
        clock: Clock,
    ) -> None:
        self._connected = connected
        self._following = following
        self._early = b""
        self._header: ProxyHeader | None = None
        self._left = 0  # bytes of the header that are still to come
        self._is_over = False
        self._transport: asyncio.Transport | None = None
        self._timer = clock.call_later(PROXY_HEADER_S, self._timed_out)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        if not self._connected.arrived(transport):
            transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            return
        if self._header is None:
            self._early += data
            try:
                self._header = parse(self._early)
            except ProxyHeaderError as error:
                self._fail(str(error))
                return
            if self._header is None:
                return
            data, self._early = self._early, b""
            self._left = self._header.size
        if len(data) < self._left:
            self._left -= len(data)
        else:
            self._switch_protocol(self._header, data[self._left :])

    def _switch_protocol(self, header: ProxyHeader, rest: bytes) -> None:
        assert self._transport is not None
        self._is_over = True
        self._timer.cancel()
        if header.client is not None:
            self._connected.comes_from(header.client, header.proxy)
        following: Any = self._following()
        self._transport.set_protocol(following)
        following.connection_made(self._transport)
        if rest:
            following.data_received(rest)

    def _timed_out(self) -> None:
        self._fail(f"no PROXY header within {PROXY_HEADER_S:g} s")

    def _fail(self, reason: str) -> None:
        if not self._is_over:
            self._is_over = True
            self._timer.cancel()
            self._connected.refused(reason, has_spoken=self._has_spoken)
            if self._transport is not None:
                self._transport.abort()

    @property
    def _has_spoken(self) -> bool:
        return bool(self._early) or self._header is not None

    def eof_received(self) -> None:
        self._fail("the client closed the socket before the end of the PROXY header")

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail("the client closed the socket before the end of the PROXY header")
        let_go(self._transport)
        self._transport = None
        self._connected.connection_lost(exc)
