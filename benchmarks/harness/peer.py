"""The attacker of ``turns.py``: an AMQP client that writes anything, waits for nothing it was not told to, and counts.

A thread reads the socket and counts methods by their ids; the last payload of each is kept. ``call`` waits for the
answer of one method, ``calls`` writes many in one go and waits for all answers. The last content header is kept, too.
"""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from leveret.amqp import methods, spec
from leveret.amqp.fields import Method

PATIENCE_S = 600.0
PART = 131_064  # octets of body in a frame
PLAIN = b"\x00\x00"  # no properties
PERSISTENT = b"\x10\x00\x02"
_FRAME = struct.Struct(">BHI")
_ODD_ANSWERS = {spec.EXCHANGE_UNBIND: spec.EXCHANGE_UNBIND_OK}
_CLOSES = (spec.CONNECTION_CLOSE, spec.CHANNEL_CLOSE)


class RefusedError(Exception):
    """The broker closed the connection or a channel."""


class Peer:
    """One connection with channel 1 open."""

    def __init__(
        self,
        address: tuple[str, int],
        vhost: str = "/",
        heartbeat_s: int = 0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.seen: Counter[int] = Counter()
        self.last: dict[int, bytes] = {}
        self.contents = 0
        self.head = b""
        self._changed = threading.Condition()
        self._end = ""
        self._ends_well = False
        self.socket = socket.create_connection(address, 60)
        self.socket.settimeout(None)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket)
        threading.Thread(target=self._read, daemon=True).start()
        self.raw(spec.PROTOCOL_HEADER)
        self.wait(spec.CONNECTION_START)
        capabilities = {"basic.nack": ("t", True), "consumer_cancel_notify": ("t", True)}
        properties: Any = {"capabilities": ("F", capabilities)}
        self.send(0, methods.ConnectionStartOk(properties, "PLAIN", b"\0guest\0guest"))
        self.wait(spec.CONNECTION_TUNE)
        self.send(0, methods.ConnectionTuneOk(2047, 131_072, heartbeat_s))
        self.send(0, methods.ConnectionOpen(vhost))
        self.wait(spec.CONNECTION_OPEN_OK)
        self.call(1, methods.ChannelOpen())

    # Writing.

    def raw(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send(self, channel: int, *several: Method) -> None:
        self.raw(frames(channel, several))

    def call(self, channel: int, method: Method) -> Any:
        """Send a method and return the answer."""
        answer = answer_of(method)
        count = self.seen[answer] + 1
        self.send(channel, method)
        self.wait(answer, count)
        payload = self.last[answer]
        return methods.decode(answer, payload[4:])

    def calls(self, channel: int, several: Sequence[Method]) -> None:
        """Send methods of one kind in one go, and wait for all answers."""
        answer = answer_of(several[0])
        count = self.seen[answer] + len(several)
        self.raw(frames(channel, several))
        self.wait(answer, count)

    # Reading.

    def wait(self, ids: int, count: int = 1, timeout_s: float = PATIENCE_S) -> None:
        """Wait until so many methods of a kind have come since the connection was opened."""
        with self._changed:
            self._changed.wait_for(lambda: self.seen[ids] >= count or self._end, timeout_s)
            if self.seen[ids] < count:
                raise RefusedError(
                    self._end or f"{self.seen[ids]} of {count} {ids >> 16}.{ids & 0xFFFF}"
                )

    def wait_confirmed(self, number: int) -> None:
        """Wait until a publish and all before it are confirmed."""

        def is_confirmed() -> bool:
            acked = self.last.get(spec.BASIC_ACK, b"")
            return int.from_bytes(acked[4:12], "big") >= number

        with self._changed:
            self._changed.wait_for(lambda: is_confirmed() or self._end, PATIENCE_S)
            if not is_confirmed():
                raise RefusedError(self._end or f"{number} not confirmed")

    @contextmanager
    def not_reading(self) -> Iterator[None]:
        """Stop reading for a while; the broker's output stays in the socket's buffers."""
        with self._changed:
            yield

    def _read(self) -> None:
        rest = b""
        while not self._end:
            try:
                data = self.socket.recv(1 << 20)
            except OSError:
                data = b""
            with self._changed:
                if data:
                    rest = self._take(rest + data)
                else:
                    self._end = self._end or "closed"
                self._changed.notify_all()

    def _take(self, data: bytes) -> bytes:
        at, size, seen, last = 0, len(data), self.seen, self.last
        while size - at >= 7:
            kind, _, length = _FRAME.unpack_from(data, at)
            end = at + length + 8
            if end > size:
                break
            if kind == 1:
                ids = int.from_bytes(data[at + 7 : at + 11], "big")
                seen[ids] += 1
                last[ids] = data[at + 7 : end - 1]
                if ids in _CLOSES:
                    self._end = str(methods.decode(ids, last[ids][4:]))
            elif kind == 2:
                self.contents += 1
                self.head = data[at + 7 : end - 1]
            at = end
        return data[at:]

    # The end.

    def close(self) -> None:
        """Close the connection with connection.close."""
        self.call(0, methods.ConnectionClose(200, "bye", 0, 0))
        self.socket.close()

    def drop(self) -> None:
        """Close the socket with a reset, without a word."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._end = "dropped"
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()


def answer_of(method: Method) -> int:
    ids = ids_of(method)
    return _ODD_ANSWERS.get(ids, ids + 1)


def ids_of(method: Method) -> int:
    return int.from_bytes(methods.encode(method)[:4], "big")


def frames(channel: int, several: Iterable[Method]) -> bytes:
    return b"".join([methods.method_frame(channel, methods.encode(each)) for each in several])


def message(
    channel: int,
    key: bytes,
    body: bytes = b"",
    exchange: bytes = b"",
    properties: bytes = PLAIN,
    mandatory: bool = False,
) -> bytes:
    """Return the frames of a basic.publish."""
    method = b"\x00\x3c\x00\x28\x00\x00%c%b%c%b%c" % (
        len(exchange), exchange, len(key), key, mandatory,
    )  # fmt: skip
    header = struct.pack(">HHQ", 60, 0, len(body)) + properties
    parts = [body[at : at + PART] for at in range(0, len(body), PART)]
    return (
        _frame(1, channel, method)
        + _frame(2, channel, header)
        + b"".join([_frame(3, channel, each) for each in parts])
    )


def _frame(kind: int, channel: int, payload: bytes) -> bytes:
    return b"%b%b\xce" % (_FRAME.pack(kind, channel, len(payload)), payload)
