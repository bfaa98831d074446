"""Bodies above a megabyte: they go to the client piece by piece, as its socket takes them."""

from __future__ import annotations

import pytest

from leveret.amqp import methods as m
from leveret.broker.connection.writer import FLUSH_BYTES, TURN_BYTES
from leveret.core.limits import LARGE_BODY_BYTES
from rigs.broker_rig import BODY, HEAD, METHOD, Client, Rig

LARGE = bytes(range(256)) * (5 * LARGE_BODY_BYTES // 256) + b"end"
PIECE = FLUSH_BYTES + 1024  # with the overhead of its frames
ROOM = 4 * FLUSH_BYTES


@pytest.fixture
def client(rig: Rig) -> Client:
    client = rig.session(channels=2)
    client.ask(1, m.QueueDeclare("q"))
    return client


class Narrow:
    """Has the transport of a client say that it is full when the client has not read ``ROOM`` bytes."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._write = client.wire.write
        self.read = bytearray()
        self.is_full = False
        client.wire.write = self._limited  # type: ignore[method-assign]

    def _limited(self, data: bytes) -> None:
        self._write(data)
        self._client.wire.unread_bytes = len(self._client.wire.out)
        if len(self._client.wire.out) >= ROOM and not self.is_full:
            self.is_full = True
            self._client.protocol.pause_writing()

    def take(self) -> None:
        """Read all that was written."""
        wire = self._client.wire
        self.read += wire.out
        wire.out.clear()
        wire.unread_bytes = 0
        if self.is_full:
            self.is_full = False
            self._client.protocol.resume_writing()
        self._client.rig.settle()

    def take_all(self) -> None:
        while self._client.wire.out:
            self.take()
        self._client.wire.out += self.read


def joined(client: Client) -> list[object]:
    """Return methods and whole bodies."""
    contents: list[object] = []
    for frame in client.frames():
        if frame.kind == METHOD:
            ids = int.from_bytes(frame.payload[:4], "big")
            contents.append(type(m.decode(ids, frame.payload[4:])))
        elif frame.kind == HEAD:
            contents.append(b"")
        elif frame.kind == BODY:
            assert isinstance(contents[-1], bytes)
            contents[-1] += frame.payload
    return contents


def test_a_delivery_is_written_in_pieces(client: Client) -> None:
    client.send(1, m.BasicConsume("q", "c", no_ack=True))
    client.publish(1, "q", b"before", LARGE, b"after")

    assert client.wire.largest_write <= PIECE
    deliver = m.BasicDeliver
    assert joined(client)[1:] == [deliver, b"before", deliver, LARGE, deliver, b"after"]


def test_a_get_and_a_return_are_written_in_pieces(client: Client) -> None:
    client.publish(1, "q", LARGE)
    client.publish(1, "nowhere", b"small", LARGE, b"small", mandatory=True)
    client.send(1, m.BasicGet("q", no_ack=True))

    assert client.wire.largest_write <= PIECE
    back = m.BasicReturn
    expected = [back, b"small", back, LARGE, back, b"small", m.BasicGetOk, LARGE]
    assert joined(client) == expected


def test_no_turn_of_the_loop_writes_more_than_a_few_pieces(rig: Rig, client: Client) -> None:
    client.publish(1, "q", LARGE)
    written = []
    write = client.wire.write

    def count(data: bytes) -> None:
        write(data)
        written.append((rig.runtime.drains, len(data)))

    client.wire.write = count  # type: ignore[method-assign]
    client.send(1, m.BasicGet("q", no_ack=True))

    drains = {drain: 0 for drain, _ in written}
    for drain, size in written:
        drains[drain] += size
    assert len(drains) > len(LARGE) // (TURN_BYTES + PIECE)
    assert max(drains.values()) <= TURN_BYTES + PIECE


def test_a_client_that_does_not_read_gets_no_more_than_its_transport_takes(
    rig: Rig, client: Client
) -> None:
    client.publish(1, "q", LARGE, LARGE)
    narrow = Narrow(client)
    client.send(1, m.BasicConsume("q", "c", no_ack=True))

    assert len(client.wire.out) <= ROOM + PIECE
    assert rig.node.connections.readers[client.reader].writer.unsent_bytes >= len(LARGE)
    assert rig.session().ask(1, m.QueueDeclare("q", passive=True)).message_count == 1

    narrow.take_all()
    assert [each for each in joined(client) if isinstance(each, bytes)] == [LARGE, LARGE]
    assert rig.node.connections.readers[client.reader].writer.unsent_bytes == 0


def test_other_channels_are_answered_behind_it(client: Client) -> None:
    client.publish(1, "q", LARGE)
    narrow = Narrow(client)
    client.send(1, m.BasicGet("q", no_ack=True))
    client.send(2, m.QueueDeclare("other"))

    narrow.take_all()
    assert joined(client) == [m.BasicGetOk, LARGE, m.QueueDeclareOk]


def test_reading_goes_on_when_returns_have_been_read(client: Client) -> None:
    narrow = Narrow(client)
    published = 0
    while client.wire.is_reading:
        client.publish(1, "nowhere", LARGE, mandatory=True)
        published += 1
    assert 1 < published * len(LARGE) >> 20 < 26

    narrow.take_all()
    assert client.wire.is_reading
    assert joined(client) == [m.BasicReturn, LARGE] * published


def test_the_close_of_the_connection_comes_behind_it(client: Client) -> None:
    client.publish(1, "q", LARGE)
    narrow = Narrow(client)
    client.send(1, m.BasicGet("q", no_ack=True))
    client.send(0, m.ConnectionClose(200, "", 0, 0))

    narrow.take_all()
    assert joined(client) == [m.BasicGetOk, LARGE, m.ConnectionCloseOk]


def test_a_broker_that_stops_says_so_behind_a_whole_frame(rig: Rig, client: Client) -> None:
    client.publish(1, "q", LARGE)
    Narrow(client)
    client.send(1, m.BasicGet("q", no_ack=True))
    rig.node.connections.is_stopping = True
    rig.runtime.exit(rig.root, "shutdown")
    rig.settle()

    got, cut, closed = joined(client)
    assert (got, closed) == (m.BasicGetOk, m.ConnectionClose)
    assert isinstance(cut, bytes)
    assert LARGE.startswith(cut)
    assert len(cut) < len(LARGE)


def test_a_connection_that_is_lost_meanwhile_leaves_nothing(rig: Rig, client: Client) -> None:
    client.publish(1, "q", LARGE)
    Narrow(client)
    client.send(1, m.BasicConsume("q", "c"))
    writer = rig.node.connections.readers[client.reader].writer
    client.hang_up()

    assert not writer.has_large_body
    assert writer.unsent_bytes == 0
    assert rig.session().ask(1, m.QueueDeclare("q", passive=True)).message_count == 1
