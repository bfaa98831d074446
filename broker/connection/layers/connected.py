"""The connection, as the layers between it and its socket see it."""

from __future__ import annotations

import asyncio
from typing import Protocol

from leveret.broker.connection.layers.proxy_header import Place


class Connected(Protocol):
    """What asyncio tells a protocol, and what happens before the connection is made."""

    def arrived(self, transport: asyncio.Transport) -> bool:
        """A socket has been accepted; return whether it may stay."""

    def comes_from(self, peer: Place, local: Place | None) -> None:
        """A proxy has sent the client's address, and the address that the client has connected to."""

    def refused(self, reason: str, has_spoken: bool) -> None:
        """The socket is closed before it has become a connection; ``has_spoken``: the client has sent something."""

    def connection_made(self, transport: asyncio.Transport) -> None: ...
    def data_received(self, data: bytes) -> None: ...
    def eof_received(self) -> None: ...
    def connection_lost(self, exc: Exception | None) -> None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...
