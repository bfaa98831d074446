"""asyncio's view of a connection: every event becomes a turn of the reader actor."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leveret.broker.connection.reader import Reader
    from leveret.broker.connection.sockets import Sockets


class ConnectionProtocol(asyncio.Protocol):
    """Passes the transport's events to a reader.

    Reading is paused until the reader has been started and has attached itself. Bytes that come all the
    same wait for it: uvloop begins to read after ``connection_made`` even when that has paused reading. It
    also looks ``data_received`` up only when it is given a protocol, so it is given this one again.
    """

    __slots__ = ("_early", "_reader", "_sockets", "data_received")

    def __init__(self, sockets: Sockets) -> None:
        self._sockets = sockets
        self._reader: Reader | None = None
        self._early: list[bytes] = []
        # What asyncio calls for bytes: straight into a turn of the reader once there is one.
        self.data_received: Callable[[bytes], None] = self._early.append  # type: ignore[assignment]

    @property
    def is_attached(self) -> bool:
        return self._reader is not None and self._reader.ref.is_alive

    def attach(self, reader: Reader, transport: asyncio.Transport) -> None:
        """Begin: events go to this reader from now on."""
        self._reader = reader
        self.data_received = partial(self._sockets.runtime.run_event, reader.ref, reader.received)
        transport.set_protocol(self)
        while self._early:
            self.data_received(self._early.pop(0))
        transport.resume_reading()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Have a reader started; a node that is full or stopping closes the socket at once.

        A transport of uvloop is none of asyncio's classes, so its class is not looked at.
        """
        transport.pause_reading()
        if not self._sockets.accept(transport, self):
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._sockets.closed(self)
        reader, self._reader = self._reader, None
        self.data_received = _dropped
        if reader is not None:
            self._sockets.runtime.run_as(reader.ref, reader.socket_lost)

    def pause_writing(self) -> None:
        if self._reader is not None:
            self._sockets.runtime.run_as(self._reader.ref, self._reader.writing_paused)

    def resume_writing(self) -> None:
        if self._reader is not None:
            self._sockets.runtime.run_as(self._reader.ref, self._reader.writing_resumed)


def _dropped(data: bytes) -> None:
    """Drop bytes that come after the end of the connection."""
