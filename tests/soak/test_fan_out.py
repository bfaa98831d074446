"""A hundred publishers, fifteen hundred queues, one fanout exchange: memory and others bear it."""

from __future__ import annotations

import selectors
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from conformance import wire
from conformance.raw import Channel, Connection
from rigs.nodes import BrokerUnderTest, anonymous_bytes

QUEUES = 1_500
PUBLISHERS = 100
FLOOD_S = 20.0
PROBES_MIN = 10
COPY_BYTES_MAX = 30
PAIR_BYTES_MAX = 1_500  # of a publisher and a queue: credit on both sides, a monitor


def dialled(node: BrokerUnderTest) -> Channel:
    connection = Connection((node.host, node.port))
    assert connection.open().name == "connection.open-ok"
    return connection.channel()


def method(name: str, **fields: object) -> bytes:
    return wire.frame(wire.METHOD, 1, wire.method(name, **fields))


def flood(channels: list[Channel], stop: threading.Event) -> None:
    """Publish on all of them whenever their sockets take more."""
    publish = method("basic.publish", exchange="amq.fanout")
    data = memoryview((publish + wire.frame(wire.HEADER, 1, wire.head(0))) * 1_000)
    selector = selectors.DefaultSelector()
    for channel in channels:
        channel.connection.socket.setblocking(False)
        selector.register(channel.connection.socket, selectors.EVENT_WRITE, [0])
    while not stop.is_set():
        for key, _ in selector.select(0.1):
            with suppress(BlockingIOError):
                key.data[0] += key.fileobj.send(data[key.data[0] :])
                key.data[0] %= len(data)
    selector.close()


def session(node: BrokerUnderTest) -> None:
    """What a well-behaved client does; each of its steps is answered within the time of ``raw``."""
    channel = dialled(node)
    queue = channel.ok("queue.declare", exclusive=True).queue
    channel.publish(queue, "hello")
    channel.settle()
    assert channel.get(queue).body == b"hello"
    assert channel.connection.close().name == "connection.close-ok"
    channel.connection.drop()


@pytest.mark.slow
def test_a_wide_fan_out_neither_fills_the_memory_nor_starves_others(
    own_leveret: Callable[..., BrokerUnderTest],
) -> None:
    node = own_leveret()
    owner = dialled(node)
    for number in range(QUEUES):
        name = f"q{number}"
        owner.connection.send_bytes(
            method("queue.declare", queue=name, nowait=True)
            + method("queue.bind", queue=name, exchange="amq.fanout", nowait=True)
        )
    owner.ready(f"q{QUEUES - 1}")
    before = anonymous_bytes(node)
    channels = [dialled(node) for _ in range(PUBLISHERS)]
    stop = threading.Event()
    thread = threading.Thread(target=flood, args=(channels, stop))
    thread.start()

    probes, until_s = 0, time.monotonic() + FLOOD_S
    while time.monotonic() < until_s:
        session(node)
        probes += 1
    stop.set()
    thread.join()

    grown = anonymous_bytes(node) - before
    copies = owner.ready("q0") * QUEUES
    assert probes >= PROBES_MIN
    assert copies > QUEUES * PUBLISHERS
    assert grown < copies * COPY_BYTES_MAX + QUEUES * PUBLISHERS * PAIR_BYTES_MAX
    for channel in (owner, *channels):
        channel.connection.drop()
    session(node)
