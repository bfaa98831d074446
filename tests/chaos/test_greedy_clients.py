"""Clients that take no notice of anybody: the node's memory stays bounded and others are served."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from chaos.rig import Chaos
from conformance import wire
from conformance.raw import Channel, Connection
from leveret.broker.connection import listener, reader
from rigs.nodes import BrokerUnderTest
from rigs.waiting import eventually

MIB = 1 << 20
SLACK_BYTES = 48 * MIB  # socket buffers, the transport's buffer, and the allocator


@pytest.fixture
def node(own_leveret: Callable[..., BrokerUnderTest]) -> BrokerUnderTest:
    return own_leveret()


@pytest.fixture
def dial(node: BrokerUnderTest) -> Iterator[Callable[[], Channel]]:
    """Open connections with one channel each, dropped at the end."""
    connections = []

    def dialled() -> Channel:
        connections.append(Connection((node.host, node.port)))
        assert connections[-1].open().name == "connection.open-ok"
        return connections[-1].channel()

    yield dialled
    for connection in connections:
        connection.drop()


def resident_bytes(node: BrokerUnderTest) -> int:
    status = Path(f"/proc/{node.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) << 10


def send_until_stuck(channel: Channel, data: bytes, times: int) -> int:
    """Send the same again and again until the broker does not read any more; return the bytes."""
    sent = 0
    channel.connection.socket.settimeout(1.0)
    with suppress(TimeoutError):
        for _ in range(times):
            channel.connection.socket.sendall(data)
            sent += len(data)
    return sent


def content(channel: Channel, key: str, body: bytes, *, mandatory: bool = False) -> bytes:
    method = wire.method("basic.publish", routing_key=key, mandatory=mandatory)
    frames = [(wire.METHOD, method), (wire.HEADER, wire.head(len(body)))]
    step = channel.connection.frame_max - 8
    frames += [(wire.BODY, body[at : at + step]) for at in range(0, len(body), step)]
    return b"".join(wire.frame(kind, channel.number, payload) for kind, payload in frames)


def filled(dial: Callable[[], Channel], queue: str, count: int, size: int) -> Channel:
    """A queue with a backlog."""
    channel = dial()
    channel.ok("queue.declare", queue=queue)
    for number in range(count):
        channel.publish(queue, b"%08d" % number + bytes(size - 8))
    assert channel.ready(queue) == count
    return channel


def is_served(dial: Callable[[], Channel]) -> bool:
    """Whether a well-behaved client gets its answer soon."""
    started_s = time.monotonic()
    channel = dial()
    queue = channel.ok("queue.declare", exclusive=True).queue
    channel.publish(queue, "hello")
    channel.settle()
    assert channel.get(queue).body == b"hello"
    return time.monotonic() - started_s < 2


def test_a_consumer_that_never_reads_costs_no_more_than_its_queue(
    node: BrokerUnderTest, dial: Callable[[], Channel]
) -> None:
    filled(dial, "q", 3_000, 20_000)
    before = resident_bytes(node)

    lazy = dial()
    lazy.send("basic.consume", queue="q", no_ack=True)

    assert is_served(dial)
    assert resident_bytes(node) - before < SLACK_BYTES
    left = dial().ready("q")
    assert left > 1_000
    assert lazy.read().name == "basic.consume-ok"
    assert [int(body[:8]) for body in lazy.bodies(3_000)] == list(range(3_000))


def test_gets_whose_answers_nobody_reads_are_not_answered_in_memory(
    node: BrokerUnderTest, dial: Callable[[], Channel]
) -> None:
    filled(dial, "q", 100, MIB)
    before = resident_bytes(node)
    channel = dial()

    get = wire.frame(wire.METHOD, 1, wire.method("basic.get", queue="q"))
    channel.connection.send_bytes(get * 100)

    assert is_served(dial)
    assert resident_bytes(node) - before < SLACK_BYTES
    assert dial().ready("q") > 50


def test_returns_that_nobody_reads_stop_the_publisher(
    node: BrokerUnderTest, dial: Callable[[], Channel]
) -> None:
    channel = dial()
    before = resident_bytes(node)

    data = content(channel, "nowhere", bytes(64 << 10), mandatory=True)
    sent = send_until_stuck(channel, data, 3_000)

    assert sent < 100 * MIB
    assert is_served(dial)
    assert resident_bytes(node) - before < SLACK_BYTES


def test_confirms_that_nobody_reads_are_bounded(
    node: BrokerUnderTest, dial: Callable[[], Channel]
) -> None:
    channel = dial()
    channel.ok("confirm.select")
    before = resident_bytes(node)

    send_until_stuck(channel, content(channel, "nowhere", b"x") * 1_000, 300)

    assert is_served(dial)
    assert resident_bytes(node) - before < SLACK_BYTES


def test_a_publisher_is_not_read_faster_than_its_queue_works(
    node: BrokerUnderTest, dial: Callable[[], Channel]
) -> None:
    """A fast publisher, a backlog and a slow consumer: all is delivered, in order."""
    consumer = dial()
    consumer.ok("queue.declare", queue="q")
    consumer.ok("basic.qos", prefetch_count=100)
    consumer.ok("basic.consume", queue="q")
    publisher = dial()
    for number in range(20_000):
        publisher.publish("q", b"%d" % number)
    assert publisher.ok("queue.declare", queue="q", passive=True).message_count == 19_900

    seen = []
    while len(seen) < 20_000:
        delivery = consumer.read()
        seen.append(int(delivery.body))
        if len(seen) % 50 == 0:
            consumer.send("basic.ack", delivery_tag=delivery.delivery_tag, multiple=True)

    assert seen == list(range(20_000))


async def test_the_socket_of_a_peer_that_never_reads_is_closed_in_the_end(
    chaos: Chaos, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "CLOSING_WAIT_S", 0.1)
    monkeypatch.setattr(listener, "LINGER_S", 0.1)
    channel = await chaos.channel()
    data = content(channel, "nowhere", bytes(64 << 10), mandatory=True)
    await asyncio.to_thread(send_until_stuck, channel, data, 3_000)
    (transport,) = chaos.broker.node.sockets.accepted.values()
    assert transport.get_write_buffer_size()

    chaos.kill(chaos.channel_of(channel.connection))

    await eventually(lambda: not chaos.broker.node.sockets.accepted)
    assert channel.connection.socket.fileno() > 0


async def test_a_peer_that_vanished_is_found_out_by_its_heartbeats(chaos: Chaos) -> None:
    connection = await chaos.connect(heartbeat=1)
    connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)

    await eventually(lambda: not chaos.broker.node.sockets.accepted)

    assert chaos.broker.node.connections.readers == {}
