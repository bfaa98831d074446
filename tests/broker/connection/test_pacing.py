"""Pacing: which connections are sent to at once, whatever the system's congestion control is."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from leveret.broker.connection import accepting
from leveret.broker.connection.pacing import UNPACED, is_paced, stop_pacing
from leveret.server import Address, Broker, Config

SOON_S = 10.0


def algorithm(made: socket.socket) -> bytes:
    return made.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0")


@pytest.fixture
def other() -> bytes:
    """An algorithm of this system that is not the unpaced one, where there is any."""
    with open("/proc/sys/net/ipv4/tcp_allowed_congestion_control", "rb") as file:
        names = file.read().split()
    return next((each for each in names if each != UNPACED), UNPACED)


@pytest.fixture
def accepted(other: bytes) -> Iterator[socket.socket]:
    """The broker's end of a connection over the loopback."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, other)
        with socket.create_connection(listening.getsockname()):
            made, _ = listening.accept()
            with made:
                yield made


def test_a_listening_socket_says_whether_its_connections_are_paced(
    accepted: socket.socket, other: bytes
) -> None:
    assert is_paced(accepted, {other})
    assert not is_paced(accepted, {b"vegas"})
    with socket.socket(socket.AF_UNIX) as unix:
        assert not is_paced(unix, {other})


@pytest.mark.parametrize("peer", [("127.0.0.9", 1), ("::1", 1, 0, 0), None])
def test_a_peer_on_this_machine_is_sent_to_at_once(accepted: socket.socket, peer: Any) -> None:
    stop_pacing(accepted, accepted.getsockname() if peer is None else peer)

    assert algorithm(accepted) == UNPACED


def test_a_peer_elsewhere_is_sent_to_as_the_system_does(
    accepted: socket.socket, other: bytes
) -> None:
    stop_pacing(accepted, ("192.0.2.1", 1))

    assert algorithm(accepted) == other


@pytest.mark.parametrize("paced", [True, False])
async def test_the_broker_looks_at_its_listening_sockets(
    monkeypatch: pytest.MonkeyPatch, *, paced: bool
) -> None:
    monkeypatch.setattr(accepting, "is_paced", lambda _: paced)
    with socket.socket() as new:
        system = algorithm(new)
    place = Config(listen=(Address("127.0.0.1", 0),), data_dir=None)
    async with Broker(place) as running:
        reader, writer = await asyncio.open_connection(*running.addresses[0])
        writer.write(b"AMQP\0\0\x09\x01")
        assert await asyncio.wait_for(reader.readexactly(3), SOON_S) == b"\x01\0\0"
        (transport,) = running.node.sockets.accepted.values()
        found = algorithm(transport.get_extra_info("socket"))
        writer.close()

    assert found == (UNPACED if paced else system)
