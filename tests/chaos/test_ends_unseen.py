"""The end of a connection that is not read: it is seen soon, and gives back all it held."""

from __future__ import annotations

import asyncio
import fcntl
import socket
import struct
import termios
from contextlib import suppress

import pytest

from chaos.rig import Chaos
from conformance import wire
from conformance.raw import Channel
from leveret.broker.channel.session import Block
from leveret.broker.connection.reader import Reader
from leveret.broker.connection.reading.end_watch import POLL_S
from leveret.core.limits import REST_S
from leveret.core.sizes import SizeLimit
from rigs.waiting import eventually

SEEN_S = 2.0  # "within a second", and some for a slow machine
MIB = 1 << 20


async def raise_alarm(chaos: Chaos) -> None:
    resources = chaos.broker.node.resources
    resources.set_limits(memory=SizeLimit(1))
    await eventually(lambda: resources.alarms.raised)


def clear_alarm(chaos: Chaos) -> None:
    chaos.broker.node.resources.set_limits(memory=SizeLimit(1 << 50))


async def with_delivery(chaos: Chaos, queue: str = "work") -> Channel:
    """Return a channel that consumes and has not acked a delivery."""
    channel = await chaos.channel()

    def work() -> None:
        channel.ok("queue.declare", queue=queue)
        channel.publish(queue, "job")
        channel.ok("basic.consume", queue=queue)
        assert channel.read().body == b"job"

    await asyncio.to_thread(work)
    return channel


def reader_of(chaos: Chaos, channel: Channel) -> Reader:
    return chaos.broker.node.connections.readers[chaos.reader_of(channel.connection)]


def end(channel: Channel, how: str) -> None:
    """Close the client's socket, as a process does that ends or is killed; or only its sending half."""
    client = channel.connection.socket
    if how == "reset":
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    if how == "half":
        client.shutdown(socket.SHUT_WR)
    else:
        client.close()


async def body_of(chaos: Chaos, queue: str) -> bytes:
    other = await chaos.channel()
    return (await asyncio.to_thread(other.get, queue)).body  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("how", "sent_bytes"),
    [("close", 1_000), ("close", 300_000), ("reset", 300_000), ("half", 1_000)],
)
async def test_the_end_of_a_blocked_publisher_is_seen(
    chaos: Chaos, how: str, sent_bytes: int
) -> None:
    """Also when it waits behind bytes that the socket has no room for."""
    channel = await with_delivery(chaos)
    reader = reader_of(chaos, channel)
    await raise_alarm(chaos)
    half = wire.frame(wire.METHOD, 1, wire.method("basic.publish", routing_key="work"))
    half += wire.frame(wire.HEADER, 1, wire.head(100 * MIB))
    half += wire.frame(wire.BODY, 1, bytes(sent_bytes // 3)) * 3
    channel.connection.send_bytes(half)
    await eventually(lambda: Block.ALARM in reader.read_control.blocks)

    end(channel, how)

    connections = chaos.broker.node.connections
    await eventually(lambda: not connections.readers, within_s=SEEN_S)
    assert not reader.ref.is_alive
    assert await body_of(chaos, "work") == b"job"
    clear_alarm(chaos)


async def test_a_blocked_connection_that_lives_stays(chaos: Chaos) -> None:
    channel = await with_delivery(chaos)
    reader = reader_of(chaos, channel)
    await raise_alarm(chaos)
    channel.publish("work", "more")
    await eventually(lambda: Block.ALARM in reader.read_control.blocks)
    await chaos.clock.advance(10 * POLL_S)
    assert reader.ref.is_alive

    clear_alarm(chaos)

    def next_body() -> bytes:
        while (event := channel.connection.read(1)).name != "basic.deliver":
            pass
        return event.body  # type: ignore[no-any-return]

    assert await asyncio.to_thread(next_body) == b"more"


@pytest.mark.parametrize("how", ["close", "reset", "half"])
async def test_a_throttled_publisher_that_ends_has_its_messages_published(
    chaos: Chaos, how: str
) -> None:
    """Its consumers and unacked messages come back at once; what it has sent is read to the end."""
    channel = await with_delivery(chaos)
    await asyncio.to_thread(lambda: channel.ok("queue.declare", queue="sent"))
    reader = reader_of(chaos, channel)
    reader.read_control.block(Block.BACK_PRESSURE)

    def send() -> None:
        for number in range(100):
            channel.publish("sent", b"%04d" % number + bytes(200))
        channel.send("basic.ack", delivery_tag=1)
        channel.publish("sent", b"last")

    await asyncio.to_thread(send)
    await eventually(lambda: not _unsent_bytes(channel.connection.socket))
    end(channel, how)

    await eventually(lambda: not _consumers(chaos, "work"), within_s=SEEN_S)
    assert await body_of(chaos, "work") == b"job"
    assert reader.ref.is_alive
    reader.read_control.unblock(Block.BACK_PRESSURE)
    await eventually(lambda: not reader.ref.is_alive)
    other = await chaos.channel()

    def bodies() -> list[bytes]:
        return [other.get("sent").body[:4] for _ in range(101)]

    assert await asyncio.to_thread(bodies) == [b"%04d" % number for number in range(100)] + [
        b"last"
    ]


@pytest.mark.parametrize("how", ["close", "reset", "half"])
@pytest.mark.parametrize("number", [1, 2], ids=["open channel", "new channel"])
async def test_a_throttled_client_that_ends_behind_a_get_is_read_to_its_end(
    chaos: Chaos, how: str, number: int
) -> None:
    """Nobody takes the get's message, so it stays; the channel may also be opened behind the end."""
    channel = await with_delivery(chaos)
    connection = channel.connection

    def declare() -> None:
        channel.ok("queue.declare", queue="sent")
        channel.ok("queue.declare", queue="mine", exclusive=True)

    await asyncio.to_thread(declare)
    reader = reader_of(chaos, channel)
    reader.read_control.block(Block.BACK_PRESSURE)

    def send() -> None:
        sender = Channel(connection, number)
        if number != channel.number:
            sender.send("channel.open")
        sender.publish("sent", b"first")
        sender.send("basic.get", queue="sent", no_ack=True)
        sender.publish("sent", b"last")

    await asyncio.to_thread(send)
    await eventually(lambda: not _unsent_bytes(connection.socket))
    end(channel, how)
    await chaos.clock.advance(3 * POLL_S)
    assert reader.peer_has_ended

    reader.read_control.unblock(Block.BACK_PRESSURE)

    await eventually(lambda: not reader.ref.is_alive)
    await eventually(lambda: "mine" not in chaos.broker.node.vhosts["/"].topology.queues)
    assert [await body_of(chaos, "sent") for _ in range(2)] == [b"first", b"last"]


async def test_the_end_of_a_getter_that_does_not_read_is_seen(chaos: Chaos) -> None:
    """It has closed its sending half, and one of its gets waits until it reads."""
    channel = await with_delivery(chaos)
    reader = reader_of(chaos, channel)
    other = await chaos.channel()

    def send() -> None:
        other.ok("queue.declare", queue="big")
        for _ in range(60):
            other.publish("big", bytes(MIB // 8))
        other.ok("queue.declare", queue="big", passive=True)
        for _ in range(60):
            channel.send("basic.get", queue="big")

    await asyncio.to_thread(send)
    await eventually(
        lambda: reader.channels.writing_is_paused and Block.HELD_RUNS in reader.read_control.blocks
    )

    end(channel, "half")

    await eventually(lambda: not reader.ref.is_alive, within_s=SEEN_S)
    found = await asyncio.to_thread(lambda: other.ok("queue.declare", queue="big", passive=True))
    assert found.message_count == 60


async def test_a_client_that_has_ended_is_not_read_for_ever(chaos: Chaos) -> None:
    channel = await with_delivery(chaos)
    reader = reader_of(chaos, channel)
    reader.read_control.block(Block.BACK_PRESSURE)
    end(channel, "close")
    await chaos.clock.advance(3 * POLL_S)
    assert reader.peer_has_ended
    await chaos.clock.advance(REST_S - 2 * POLL_S)
    assert reader.ref.is_alive

    await chaos.clock.advance(2 * POLL_S)

    assert not reader.ref.is_alive


async def test_the_end_of_a_throttled_publisher_is_seen_behind_full_buffers_during_an_alarm(
    chaos: Chaos,
) -> None:
    channel = await with_delivery(chaos)
    reader = reader_of(chaos, channel)
    reader.read_control.block(Block.BACK_PRESSURE)
    channel.connection.socket.settimeout(0.2)

    def fill() -> None:
        with suppress(TimeoutError):
            while True:
                channel.publish("work", bytes(100_000))

    await asyncio.to_thread(fill)
    await raise_alarm(chaos)

    end(channel, "close")

    await eventually(lambda: not reader.ref.is_alive, within_s=SEEN_S)
    assert await body_of(chaos, "work") == b"job"
    clear_alarm(chaos)


async def test_the_end_of_a_publisher_that_reads_no_replies_is_seen(chaos: Chaos) -> None:
    channel = await with_delivery(chaos)
    reader = reader_of(chaos, channel)
    reader.read_control.block(Block.UNSENT)

    end(channel, "half")

    await eventually(lambda: not reader.ref.is_alive, within_s=SEEN_S)
    assert await body_of(chaos, "work") == b"job"


async def test_the_end_of_a_consumer_that_does_not_read_is_seen(chaos: Chaos) -> None:
    """It has closed its sending half, and megabytes wait for it: nobody asks for them any more."""
    channel = await with_delivery(chaos)
    reader = reader_of(chaos, channel)
    other = await chaos.channel()

    def send() -> None:
        for _ in range(20):
            other.publish("work", bytes(MIB))

    await asyncio.to_thread(send)
    await eventually(lambda: reader.channels.writing_is_paused)

    end(channel, "half")

    await eventually(lambda: not reader.ref.is_alive, within_s=SEEN_S)
    assert not _consumers(chaos, "work")


def _unsent_bytes(client: socket.socket) -> int:
    """Return how many bytes the broker's system has not acknowledged."""
    (found,) = struct.unpack("i", fcntl.ioctl(client, termios.TIOCOUTQ, bytes(4)))
    return int(found)


def _consumers(chaos: Chaos, queue: str) -> int:
    entry = chaos.broker.node.vhosts["/"].topology.queues[queue]
    assert entry.ref is not None
    consumers = entry.ref.cell.actor.consumers  # type: ignore[union-attr]
    return len(consumers.channels) if consumers is not None else 0
