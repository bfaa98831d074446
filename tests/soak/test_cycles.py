"""Queues and connections come and go, and nothing of them stays: memory, objects, actors, files."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance import wire
from conformance.raw import Channel, Connection
from leveret.core.addresses import Address
from leveret.core.system.files import Files
from leveret.server.broker import Broker
from leveret.server.config.config import Config
from leveret.server.control_client import ask
from rigs.faulty_serve import FailingCalls, Faults, FaultyCall
from rigs.waiting import eventually
from rigs.wire.garbage import garbage_of_block
from soak.churn import churn

pytestmark = pytest.mark.usefixtures("_others_are_frozen")

CYCLES = 5
BATCH = 500
AT_ONCE = 50


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def live_objects() -> Counter[str]:
    """Count the live objects of Leveret's own classes."""
    gc.collect()
    kinds = (type(each) for each in gc.get_objects())
    return Counter(
        kind.__qualname__ for kind in kinds if str(kind.__module__).startswith("leveret")
    )


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def connected(address: tuple[str, int]) -> Channel:
    connection = Connection(address)
    assert connection.open().name == "connection.open-ok"
    return connection.channel()


def declare_and_delete(address: tuple[str, int], count: int) -> None:
    """Declare queues, every tenth durable and bound, then delete them all."""
    channel = connected(address)
    for first in range(0, count, BATCH):
        for number in range(first, min(first + BATCH, count)):
            declare(channel, number)
        channel.ok("channel.flow", active=True)
    assert channel.ok("queue.declare", queue=f"q{count - 1}", passive=True).queue
    for first in range(0, count, BATCH):
        out = bytearray()
        for number in range(first, min(first + BATCH, count)):
            payload = wire.method("queue.delete", queue=f"q{number}", nowait=True)
            out += wire.frame(wire.METHOD, channel.number, payload)
        channel.connection.send_bytes(bytes(out))
        channel.ok("channel.flow", active=True)
    assert channel.connection.close().name == "connection.close-ok"


def declare(channel: Channel, number: int) -> None:
    is_durable, queue = number % 10 == 0, f"q{number}"
    payload = wire.method("queue.declare", queue=queue, durable=is_durable, nowait=True)
    out = wire.frame(wire.METHOD, channel.number, payload)
    if is_durable:
        payload = wire.method(
            "queue.bind", queue=queue, exchange="amq.topic", routing_key=f"a.{number}", nowait=True
        )
        out += wire.frame(wire.METHOD, channel.number, payload)
    channel.connection.send_bytes(out)


def open_and_close(address: tuple[str, int], count: int) -> None:
    """Open connections, fifty at a time; one half says goodbye, the other just leaves."""
    for first in range(0, count, AT_ONCE):
        channels = [connected(address) for _ in range(first, min(first + AT_ONCE, count))]
        for number, channel in enumerate(channels):
            channel.ok("queue.declare", exclusive=True)
            if number % 2:
                channel.connection.drop()
            else:
                assert channel.connection.close().name == "connection.close-ok"


def misbehave(address: tuple[str, int]) -> None:
    """End connections in ways in which none should end."""
    leave_unread(address)
    channel = connected(address)
    assert channel.call("queue.declare", queue="nowhere", passive=True).name == "channel.close"
    channel.connection.drop()
    connection = connected(address).connection
    connection.send_bytes(b"these bytes are no frame")
    assert connection.read().name == "connection.close"
    connection.drop()
    for data in (b"GET / HTTP/1.0\r\n\r\n", b"AMQP\0\0\x09\x01"):
        with socket.create_connection(address) as client:
            client.sendall(data)
            client.recv(1_000)


def leave_unread(address: tuple[str, int]) -> None:
    """End a connection that reads nothing while queues wait to deliver to each of its channels."""
    publisher, reader = connected(address), connected(address).connection
    for number in range(6):
        queue = f"unread{number}"
        publisher.ok("queue.declare", queue=queue, auto_delete=True)
        for _ in range(40):
            publisher.publish(queue, bytes(100_000))
        publisher.settle(queue)
        channel = reader.channel()
        channel.ok("basic.consume", queue=queue, no_ack=True)
        channel.publish("nowhere")
    publisher.ok("channel.flow", active=True)
    reader.drop()
    assert publisher.connection.close().name == "connection.close-ok"


async def all_have_gone(broker: Broker) -> None:
    """Wait until the broker has seen the end of all clients and queues."""
    node = broker.node
    topology = node.vhosts["/"].topology
    await eventually(
        lambda: not (node.sockets.accepted or node.connections.readers or topology.queues)
    )


async def cycle(broker: Broker, queues: int, connections: int, *, collect: bool = True) -> int:
    """Run one cycle; return the resident memory after it."""
    address = tuple(broker.addresses[0])
    await asyncio.to_thread(declare_and_delete, address, queues)
    await asyncio.to_thread(open_and_close, address, connections)
    await all_have_gone(broker)
    if collect:
        gc.collect()
    return resident_bytes()


async def test_nothing_needs_the_cyclic_collector(tmp_path: Path) -> None:
    config = Config(listen=(Address("127.0.0.1", 0),), data_dir=tmp_path)
    async with Broker(config) as broker:
        await cycle(broker, 20, 2)
        with garbage_of_block() as found:
            await cycle(broker, 200, 20, collect=False)
            await asyncio.to_thread(misbehave, tuple(broker.addresses[0]))
            await asyncio.to_thread(ask, tmp_path, "status", {}, 10.0)
            await all_have_gone(broker)

    assert found == Counter()


def make_and_end_everything(address: tuple[str, int], data: Path, number: int) -> None:
    churn(address, data, number, 2)


def delete_a_vhost_that_writes(address: tuple[str, int], data: Path, number: int) -> None:
    """Delete a vhost that has queues, while its store writes."""
    vhost = f"vhost{number}"
    ask(data, "add_vhost", {"name": vhost}, 30.0)
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    ask(data, "set_permissions", {"vhost": vhost, "user": "guest", **everything}, 30.0)
    connection = Connection(address)
    assert connection.open(vhost=vhost).name == "connection.open-ok"
    channel = connection.channel()
    for queue in ("one", "two", "three"):
        channel.ok("queue.declare", queue=queue, durable=True)
        channel.ok("queue.bind", queue=queue, exchange="amq.fanout")
    for _ in range(500):
        channel.publish("", bytes(10_000), "amq.fanout", delivery_mode=2)
    ask(data, "delete_vhost", {"name": vhost}, 30.0)
    connection.drop()


@pytest.mark.parametrize("use", [make_and_end_everything, delete_a_vhost_that_writes])
async def test_what_clients_and_operators_end_needs_no_cyclic_collector(
    tmp_path: Path, use: Callable[[tuple[str, int], Path, int], None]
) -> None:
    config = Config(listen=(Address("127.0.0.1", 0),), data_dir=tmp_path)
    async with Broker(config) as broker:
        address = (broker.addresses[0].host, broker.addresses[0].port)
        await asyncio.to_thread(use, address, tmp_path, 0)
        with garbage_of_block() as found:
            await asyncio.to_thread(use, address, tmp_path, 1)
            await all_have_gone(broker)
            await eventually(lambda: not broker.node.removals)

    assert found == Counter()


async def test_a_store_that_fails_leaves_nothing_to_the_cyclic_collector(tmp_path: Path) -> None:
    faults = Faults(tmp_path / "faults")
    files = Files(FailingCalls(faults))
    config = Config(listen=(Address("127.0.0.1", 0),), data_dir=tmp_path / "data")
    async with Broker(config, files=files) as broker:
        address = (broker.addresses[0].host, broker.addresses[0].port)
        outages = broker.node.outages.by_vhost

        async def fail() -> None:
            faults.set(FaultyCall.WRITE, 1.0)
            await asyncio.to_thread(publish_unconfirmed, address)
            await eventually(lambda: outages and outages["/"].tries > 1)  # nor can it be opened
            faults.set(FaultyCall.WRITE, 0.0)
            await broker.wait_serving()
            await all_have_gone(broker)

        await fail()
        with garbage_of_block() as found:
            await fail()

    assert found == Counter()


def publish_unconfirmed(address: tuple[str, int]) -> None:
    channel = connected(address)
    channel.ok("queue.declare", queue="q", durable=True, auto_delete=True)
    channel.ok("basic.consume", queue="q")
    channel.publish("q", bytes(1_000), delivery_mode=2)
    channel.connection.drop()


@pytest.mark.parametrize(
    ("queues", "connections"),
    [(2_000, 100), pytest.param(50_000, 1_000, marks=pytest.mark.slow)],
)
async def test_what_came_and_went_leaves_nothing(
    tmp_path: Path, queues: int, connections: int
) -> None:
    config = Config(listen=(Address("127.0.0.1", 0),), data_dir=tmp_path)
    async with Broker(config) as broker:
        await cycle(broker, 20, 2)  # objects that are made once exist now
        objects, actors, files = live_objects(), broker.runtime.actor_count, open_files()

        memory = [await cycle(broker, queues, connections) for _ in range(CYCLES)]

        assert broker.runtime.actor_count == actors
        assert open_files() == files
        left = live_objects() - objects
        # The clock keeps cancelled calls that are no more than the others.
        assert left.pop("_Call", 0) <= objects["_Call"]
        assert left == Counter()
        assert memory[-1] <= memory[0] * 1.1, memory
        contents = broker.node.metadata.store.load()
        assert (list(contents.queues), list(contents.bindings)) == ([], [])
