"""Sockets of links, on a transport that is as strict as uvloop's: it refuses a write once it is closing."""

from __future__ import annotations

import asyncio
from typing import Any

from leveret.actors.links.peer import Wire
from leveret.actors.links.transport import LinkProtocol, SocketWire


class StrictTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self._is_closing = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high is not None
        assert low is not None
        assert low < high

    def is_closing(self) -> bool:
        return self._is_closing

    def writelines(self, list_of_data: Any) -> None:
        if self._is_closing:
            raise RuntimeError("the handler is closed")
        self.written += b"".join(list_of_data)

    def close(self) -> None:
        self._is_closing = True

    def abort(self) -> None:
        self.close()


class Heard:
    """An endpoint that notes what it hears."""

    def __init__(self) -> None:
        self.wire: Wire | None = None
        self.events: list[Any] = []

    def connected(self, wire: Wire) -> None:
        self.wire = wire

    def received(self, data: bytes) -> None:
        self.events.append(data)

    def writable(self) -> None:
        self.events.append("writable")

    def ended(self, reason: str) -> None:
        self.events.append(reason)


def test_nothing_is_written_to_a_transport_that_is_closing() -> None:
    transport = StrictTransport()
    wire = SocketWire(transport)
    wire.write([b"a", b"b"])
    wire.close()
    wire.write([b"c"])

    assert transport.written == b"ab"


def test_a_socket_without_a_handshake_is_a_link_from_its_connection_on() -> None:
    heard, transport = Heard(), StrictTransport()
    protocol = LinkProtocol(heard)
    protocol.connection_made(transport)
    wire = heard.wire
    assert wire is not None
    wire.write([b"ours"])
    protocol.data_received(b"theirs")
    protocol.pause_writing()
    assert wire.is_full
    protocol.resume_writing()
    assert not wire.is_full
    protocol.connection_lost(OSError("reset"))

    assert transport.written == b"ours"
    assert heard.events == [b"theirs", "writable", "reset"]
