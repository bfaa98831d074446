"""An attacker's connection: requests by the thousand, with no answer asked for."""

from __future__ import annotations

import os
import re
import select
import socket
import time
from typing import Any

from conformance import wire
from conformance.raw import Connection

VHOST = "attacked"
USER, PASSWORD = "attacker", "attacker"
_CHUNK_BYTES = 1 << 18
_READ_BYTES = 1 << 16
STALLED_S = 20.0  # nothing is taken, or nothing comes, for so long: the attack gives up
_FLOW_OK = wire.frame(wire.METHOD, 1, wire.method("channel.flow-ok", active=True))
# channel.close of channel 1 and connection.close begin with: type, channel, size, class, method.
_CLOSE = re.compile(rb"\x01\x00(?:\x01....\x00\x14\x00\x28|\x00....\x00\x0a\x00\x32)", re.DOTALL)


class Peer:
    """One logged-in connection with one channel, in the attacked vhost."""

    def __init__(self, address: tuple[str, int], *, heartbeat: int = 0) -> None:
        self.connection = Connection(address)
        reply = self.connection.open(
            user=USER, password=PASSWORD, vhost=VHOST, heartbeat=heartbeat, capabilities={}
        )
        assert reply.name == "connection.open-ok", reply
        self.channel = self.connection.channel()
        self._out = bytearray()

    def call(self, name: str, **fields: Any) -> None:
        """Wait for the answer."""
        self.flush()
        self.channel.ok(name, **fields)

    def put(self, name: str, channel: int = 1, **fields: Any) -> None:
        """Send a method some time; it must ask for no answer, or one that is never read."""
        self.raw(wire.frame(wire.METHOD, channel, wire.method(name, **fields)))

    def publish(
        self, key: str, body: bytes = b"", exchange: str = "", channel: int = 1, **properties: Any
    ) -> None:
        self.raw(publish(key, body, exchange, channel, **properties))

    def raw(self, data: bytes) -> None:
        self._out += data
        if len(self._out) >= _CHUNK_BYTES:
            self.flush()

    def flush(self) -> None:
        """Send what was put; give up on a broker that does not read for long, as it may."""
        out, self._out = self._out, bytearray()
        send_for(self.connection.socket, out, STALLED_S)

    def settle(self) -> None:
        """Wait until the channel has handled all that was sent.

        What comes before the answer is dropped unparsed: ``flush`` may have dropped a part of a frame.
        """
        self.put("channel.flow", active=True)
        self.flush()
        connected, seen = self.connection.socket, b""
        connected.settimeout(STALLED_S)
        while _FLOW_OK not in seen:
            data = connected.recv(_READ_BYTES)
            seen = seen[-len(_FLOW_OK) :] + data
            if not data or _CLOSE.search(seen):
                raise ConnectionResetError("the broker closed the channel or the connection")

    def drop(self) -> None:
        self.connection.drop()


def publish(
    key: str, body: bytes = b"", exchange: str = "", channel: int = 1, **properties: Any
) -> bytes:
    """Return a publish as frames."""
    method = wire.method("basic.publish", exchange=exchange, routing_key=key)
    out = wire.frame(wire.METHOD, channel, method)
    out += wire.frame(wire.HEADER, channel, wire.head(len(body), properties))
    for at in range(0, len(body), 131_064):
        out += wire.frame(wire.BODY, channel, body[at : at + 131_064])
    return out


def send_for(connected: socket.socket, data: bytes | bytearray, stalled_s: float) -> bool:
    """Send; return False when the peer took nothing for so long. Input is read and dropped meanwhile."""
    connected.setblocking(False)
    view, until_s = memoryview(data), time.monotonic() + stalled_s
    try:
        while view:
            readable, writable, _ = select.select([connected], [connected], [], 1.0)
            if readable and not os.read(connected.fileno(), _READ_BYTES):
                raise ConnectionResetError("the broker closed the connection")
            if writable:
                view = view[connected.send(view) :]
                until_s = time.monotonic() + stalled_s
            elif time.monotonic() > until_s:
                return False
        return True
    finally:
        connected.setblocking(True)


def dials(address: tuple[str, int], count: int) -> list[socket.socket]:
    """Open so many sockets at once, without waiting for one before the next."""
    sockets = []
    for _ in range(count):
        each = socket.socket()
        each.setblocking(False)
        each.connect_ex(address)
        sockets.append(each)
    return sockets


def close_all(sockets: list[socket.socket]) -> None:
    for each in sockets:
        each.close()
