"""The door: who is let in, and what happens to sockets whose reader cannot close them.

Tests: broker/connection/accepting.py, broker/connection/sockets.py
"""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import AsyncIterator

import pytest

from conformance.raw import Connection
from leveret.actors.runtime.ref import Ref
from leveret.broker.connection.accepting import Accepting
from leveret.broker.connection.sockets import LISTENER, Listening
from leveret.server import Address, Broker, Config

SOON_S = 10.0
HEADER = b"AMQP\0\0\x09\x01"


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    place = Config(listen=(Address("127.0.0.1", 0),), data_dir=None, connections_max=1)
    async with Broker(place) as running:
        yield running


async def hello(broker: Broker) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect and wait for connection.start."""
    reader, writer = await asyncio.open_connection(*broker.addresses[0])
    writer.write(HEADER)
    assert await asyncio.wait_for(reader.readexactly(3), SOON_S) == b"\x01\0\0"
    return reader, writer


def listener(broker: Broker) -> Ref:
    ref = broker.runtime.whereis(LISTENER)
    assert ref is not None
    return ref


async def test_a_killed_reader_leaves_no_open_socket(broker: Broker) -> None:
    reader, writer = await hello(broker)
    (cell,) = [each for each in broker.runtime.cells() if type(each.actor).__name__ == "Reader"]
    broker.runtime.exit(cell.ref, "kill")

    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await asyncio.wait_for(reader.readexactly(1_000_000), SOON_S)
    writer.close()
    assert not broker.node.sockets.accepted


async def test_a_killed_listener_comes_back_on_its_port(broker: Broker) -> None:
    before = listener(broker)
    broker.runtime.exit(before, "kill")
    _, writer = await hello(broker)
    writer.close()

    assert listener(broker) is not before


async def test_a_socket_has_its_protocol_when_it_is_accepted(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each iteration of the loop, with a drain, that a login waits is seen by the client."""
    (accepting,) = broker.node.sockets.servers
    made: list[object] = []
    new_protocol = broker.node.sockets.new_protocol

    def noted(listening: Listening, first: bytes) -> asyncio.BaseProtocol:
        made.append(listening)
        assert first == HEADER
        return new_protocol(listening, first)

    monkeypatch.setattr(broker.node.sockets, "new_protocol", noted)
    with socket.create_connection(broker.addresses[0]) as client:
        client.sendall(HEADER)
        accepting._accept_some()  # type: ignore[attr-defined]
        assert made

        reader, writer = await asyncio.open_connection(sock=client.dup())
        assert await asyncio.wait_for(reader.readexactly(3), SOON_S) == b"\x01\0\0"
        writer.close()


async def test_a_login_begins_with_the_accept(broker: Broker) -> None:
    """The client's header is read with the accept, and a drain that is coming starts the reader."""
    (accepting,) = broker.node.sockets.servers
    assert isinstance(accepting, Accepting)
    accepting._loop.remove_reader(accepting._listening.fileno())
    with socket.create_connection(broker.addresses[0]) as client:
        client.sendall(HEADER)
        client.setblocking(False)
        await asyncio.to_thread(select.select, [accepting._listening], [], [], SOON_S)
        broker.runtime.after_drain(lambda: None)
        accepting._accept_some()
        await asyncio.sleep(0)  # behind the drain

        assert client.recv(3) == b"\x01\0\0"


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_small_frames_do_not_wait_for_acknowledgements_of_tcp(host: str) -> None:
    async with Broker(Config(listen=(Address(host, 0),), data_dir=None)) as running:
        _, writer = await hello(running)
        (transport,) = running.node.sockets.accepted.values()
        accepted = transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        writer.close()


async def test_all_addresses_of_ipv6_are_those_of_ipv4_too() -> None:
    config = Config(listen=(Address("::", 0),), data_dir=None)
    async with Broker(config) as running:
        _, port = running.addresses[0]

        def work(host: str) -> str:
            connection = Connection((host, port))
            try:
                return connection.open().name  # of guest, who must come from this machine
            finally:
                connection.drop()

        for host in ("127.0.0.1", "::1"):
            assert await asyncio.to_thread(work, host) == "connection.open-ok"


async def test_a_full_node_closes_new_sockets_at_once(broker: Broker) -> None:
    broker.node.connections.readers[listener(broker)] = None  # type: ignore[assignment]
    reader, writer = await asyncio.open_connection(*broker.addresses[0])
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await asyncio.wait_for(reader.readexactly(1), SOON_S)
    writer.close()
    del broker.node.connections.readers[listener(broker)]

    _, writer = await hello(broker)
    writer.close()
