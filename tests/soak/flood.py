"""A publisher with confirms and a group of consumers for many queues, fast enough for a soak.

One thread does it all, over plain sockets, life after life of a broker. It knows of every message
whether it was confirmed and whether it was ever delivered, in one byte each.
"""

from __future__ import annotations

import queue
import selectors
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

from conformance import wire
from conformance.raw import Connection

QUEUES = 50
CONSUMERS = 2  # connections, each with a consumer for every queue
BODY_BYTES = 256
UNCONFIRMED_MAX = 20_000
BACKLOG_MAX = 100_000  # confirmed and not delivered yet
BATCH = 500
PAUSE_S = 0.005

CONFIRMED, SEEN = 1, 2
_FRAME = struct.Struct(">BHI")
_IDS = struct.Struct(">HH")
_TAG = struct.Struct(">QB")
_ACK, _NACK, _DELIVER = (60, 80), (60, 120), (60, 60)


def body_of(number: int, queue_no: int) -> bytes:
    return (b"%d %d " % (queue_no, number)).ljust(BODY_BYTES, b"x")


class Flood(threading.Thread):
    """Works on every broker it is given the address of.

    Args:
        rate: messages per second that are wanted.

    Attributes:
        error: why it ended early.
    """

    def __init__(self, rate: float) -> None:
        super().__init__(daemon=True)
        self.rate = rate
        self.error: BaseException | None = None
        self.messages = [bytearray() for _ in range(QUEUES)]  # queue -> number -> what is known
        self.confirmed = self.delivered = 0
        self._addresses: queue.Queue[tuple[str, int] | None] = queue.Queue()
        self._is_enough = threading.Event()
        self.is_done = threading.Event()

    def serve(self, address: tuple[str, int]) -> None:
        """Work on the next life of the broker."""
        self._addresses.put(address)

    def finish(self) -> None:
        """Publish no more, and be done when all that is confirmed was delivered."""
        self._is_enough.set()

    def end(self) -> None:
        self._addresses.put(None)
        self.join(30)

    def run(self) -> None:
        try:
            while (address := self._addresses.get()) is not None:
                with suppress(ConnectionError, AssertionError):
                    _Life(self, address, self._is_enough).work()
        except Exception as error:  # noqa: BLE001  the test fails with it
            self.error = error

    def lost(self) -> int:
        """Return how many messages were confirmed and never delivered."""
        return sum(each.count(CONFIRMED) for each in self.messages)


class _Life:
    """One life of the broker."""

    def __init__(self, flood: Flood, address: tuple[str, int], is_enough: threading.Event) -> None:
        self._flood = flood
        self._is_enough = is_enough
        self._connections: list[Connection] = []
        self._address = address
        self._first = [len(each) for each in flood.messages]
        self._tag = 0
        self._unconfirmed: dict[int, None] = {}
        self._last: dict[tuple[Connection, int], int] = {}
        self._out = bytearray()

    def work(self) -> None:
        """Go on until the broker ends, or everything has arrived."""
        selector = selectors.DefaultSelector()
        try:
            self._connect()
            for each in self._connections:
                each.socket.setblocking(False)
                selector.register(each.socket, selectors.EVENT_READ, each)
            began_s = time.monotonic()
            while not self._is_over():
                for key, _ in selector.select(PAUSE_S):
                    if not self._read(key.data):
                        return
                self._publish((time.monotonic() - began_s) * self._flood.rate)
                self._write()
            self._flood.is_done.set()
        finally:
            selector.close()
            for each in self._connections:
                each.drop()

    def _connect(self) -> None:
        for consumes in [False] + [True] * CONSUMERS:
            connection = Connection(self._address)
            self._connections.append(connection)
            _prepare(connection, consumes)
            self._last.update(((connection, queue_no), -1) for queue_no in range(QUEUES))
        self._publisher = self._connections[0]

    def _is_over(self) -> bool:
        return self._is_enough.is_set() and not self._unconfirmed and not self._flood.lost()

    # Publishing.

    def _publish(self, upto: float) -> None:
        flood = self._flood
        room = min(
            UNCONFIRMED_MAX - len(self._unconfirmed),
            BACKLOG_MAX - (flood.confirmed - flood.delivered),
            int(upto) - self._tag,
            BATCH,
        )
        if self._is_enough.is_set() or self._out or room <= 0:
            return
        for _ in range(room):
            queue_no = self._tag % QUEUES
            number = len(flood.messages[queue_no])
            flood.messages[queue_no].append(0)
            self._tag += 1
            self._unconfirmed[self._tag] = None
            self._out += _PUBLISH[queue_no] + wire.frame(wire.BODY, 1, body_of(number, queue_no))

    def _write(self) -> None:
        if self._out:
            with suppress(BlockingIOError):
                del self._out[: self._publisher.socket.send(self._out)]

    def _settled(self, tags: Iterator[int], is_ack: bool) -> None:
        flood = self._flood
        for tag in tags:
            del self._unconfirmed[tag]
            queue_no = (tag - 1) % QUEUES
            if is_ack:
                # Tags of this connection go round the queues.
                number = self._first[queue_no] + (tag - 1) // QUEUES
                flood.messages[queue_no][number] |= CONFIRMED
                flood.confirmed += 1

    # Reading.

    def _read(self, connection: Connection) -> bool:
        try:
            data = connection.socket.recv(1 << 18)
        except BlockingIOError:
            return True
        except ConnectionResetError:
            return False
        if not data:
            return False
        connection.buffer += data
        end = 0
        last_tag = 0
        while (found := _content(connection.buffer, end)) is not None:
            ids, at, body, end = found
            if ids == _DELIVER:
                last_tag = self._delivered(connection, at, body)
            else:
                self._confirmed(connection.buffer, ids, at)
        del connection.buffer[:end]
        if last_tag:
            # A full socket buffer cannot be: the broker reads acks at once.
            connection.send("basic.ack", 1, delivery_tag=last_tag, multiple=True)
        return True

    def _confirmed(self, buffer: bytearray, ids: tuple[int, int], at: int) -> None:
        assert ids in {_ACK, _NACK}, ids
        upto, bits = _TAG.unpack_from(buffer, at)
        tags = [upto]
        if bits & 1:
            tags = []
            for tag in self._unconfirmed:
                if tag > upto:
                    break
                tags.append(tag)
        self._settled(iter(tags), ids == _ACK)

    def _delivered(self, connection: Connection, at: int, body: bytes) -> int:
        buffer = connection.buffer
        size = buffer[at]
        queue_no = int(buffer[at + 1 : at + 1 + size])
        tag, redelivered = _TAG.unpack_from(buffer, at + 1 + size)
        number = int(body.split(b" ", 2)[1])
        assert body == body_of(number, queue_no), "not this message's body, or not its queue"
        known, flood = self._flood.messages[queue_no], self._flood
        if not redelivered:
            assert not known[number] & SEEN, "delivered again without saying so"
            assert self._last[connection, queue_no] < number, "out of order"
            self._last[connection, queue_no] = number
        if not known[number] & SEEN:
            known[number] |= SEEN
            flood.delivered += 1
        return tag


def _prepare(connection: Connection, consumes: bool) -> None:
    connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    assert connection.open().name == "connection.open-ok"
    channel = connection.channel()
    for queue_no in range(QUEUES):
        channel.ok("queue.declare", queue=f"q{queue_no}", durable=True)
    if not consumes:
        channel.ok("confirm.select")
        return
    channel.ok("basic.qos", prefetch_count=200)
    for queue_no in range(QUEUES):
        payload = wire.method(
            "basic.consume", queue=f"q{queue_no}", consumer_tag=str(queue_no), nowait=True
        )
        connection.send_bytes(wire.frame(wire.METHOD, channel.number, payload))


def _content(buffer: bytearray, at: int) -> tuple[tuple[int, int], int, bytes, int] | None:
    """Return a method's ids, where its arguments begin, the content's body and the end of it all."""
    frame = _frame(buffer, at)
    if frame is None:
        return None
    begin, end = frame
    ids = _IDS.unpack_from(buffer, begin)
    if ids != _DELIVER:
        return ids, begin + 4, b"", end
    head = _frame(buffer, end)
    body = _frame(buffer, head[1]) if head is not None else None
    if body is None:
        return None
    return ids, begin + 4, bytes(buffer[body[0] : body[1] - 1]), body[1]


def _frame(buffer: bytearray, at: int) -> tuple[int, int] | None:
    """Return where a frame's payload begins and where the frame ends, if it is there."""
    if len(buffer) < at + 8:
        return None
    _, _, size = _FRAME.unpack_from(buffer, at)
    end = at + 8 + size
    return (at + 7, end) if end <= len(buffer) else None


_PUBLISH = [
    wire.frame(wire.METHOD, 1, wire.method("basic.publish", routing_key=f"q{queue_no}"))
    + wire.frame(wire.HEADER, 1, wire.head(BODY_BYTES, {"delivery_mode": 2}))
    for queue_no in range(QUEUES)
]
