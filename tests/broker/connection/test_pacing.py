"""Pacing: which connections get large bodies at once, whatever the system's congestion control is."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from typing import Any

import pika
import pytest

from leveret.broker.connection import pacing
from leveret.broker.connection.pacing import UNPACED, stop_pacing
from leveret.server import Address, Broker, Config

LARGE = bytes(16 << 10)
ELSEWHERE = ("192.0.2.1", 1)


class Transport(asyncio.BaseTransport):
    """Has a socket, whose peer may have another address than it says."""

    def __init__(self, found: socket.socket, peer: Any = None, local: Any = None) -> None:
        super().__init__()
        self._found, self._peer, self._local = found, peer, local
        self.getsockopt, self.setsockopt = found.getsockopt, found.setsockopt

    def getpeername(self) -> Any:
        return self._peer or self._found.getpeername()

    def getsockname(self) -> Any:
        return self._local or self._found.getsockname()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self if name == "socket" else default


def algorithm(made: Any) -> bytes:
    found: bytes = made.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
    return found.rstrip(b"\0")


@pytest.fixture
def other(monkeypatch: pytest.MonkeyPatch) -> bytes:
    """Return an algorithm that the broker takes for one that paces: not Reno, if the system has another."""
    with open("/proc/sys/net/ipv4/tcp_allowed_congestion_control", "rb") as file:
        names = file.read().split()
    found = next((each for each in names if each != UNPACED), UNPACED)
    monkeypatch.setattr(pacing, "PACING", {found})
    return found


@pytest.fixture
def accepted(other: bytes) -> Iterator[socket.socket]:
    """The broker's end of a connection over the loopback."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, other)
        with socket.create_connection(listening.getsockname()):
            made, _ = listening.accept()
            with made:
                yield made


@pytest.mark.parametrize(
    ("peer", "local"),
    [
        pytest.param(None, None, id="loopback"),
        pytest.param(("::1", 1, 0, 0), ("::1", 2, 0, 0), id="loopback of IPv6"),
        pytest.param(ELSEWHERE, ELSEWHERE, id="own address"),
    ],
)
def test_a_peer_on_this_machine_is_sent_to_at_once(
    accepted: socket.socket, peer: Any, local: Any
) -> None:
    stop_pacing(Transport(accepted, peer, local))

    assert algorithm(accepted) == UNPACED


def test_a_peer_elsewhere_is_sent_to_as_the_system_does(
    accepted: socket.socket, other: bytes
) -> None:
    stop_pacing(Transport(accepted, ELSEWHERE))

    assert algorithm(accepted) == other


def test_an_algorithm_that_does_not_pace_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, accepted: socket.socket, other: bytes
) -> None:
    monkeypatch.setattr(pacing, "PACING", {b"vegas"})

    stop_pacing(Transport(accepted))

    assert algorithm(accepted) == other


def test_a_unix_socket_is_left_alone() -> None:
    here, there = socket.socketpair()
    with here, there:
        stop_pacing(Transport(here))


@pytest.mark.parametrize("size", [len(LARGE), 2 << 20])
async def test_a_connection_is_paced_until_its_first_large_body(other: bytes, size: int) -> None:
    async with Broker(Config(listen=(Address("127.0.0.1", 0),), data_dir=None)) as running:
        host, port = running.addresses[0]
        connection = await asyncio.to_thread(
            pika.BlockingConnection, pika.ConnectionParameters(host, port)
        )
        (transport,) = running.node.sockets.accepted.values()
        found = transport.get_extra_info("socket")
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, other)
        seen = [await asyncio.to_thread(_passed, connection, LARGE[1:]), algorithm(found)]
        seen += [await asyncio.to_thread(_passed, connection, bytes(size)), algorithm(found)]
        await asyncio.to_thread(connection.close)

    assert seen == [len(LARGE) - 1, other, size, UNPACED]


def _passed(connection: pika.BlockingConnection, body: bytes) -> int:
    """Publish a body and get it; return the size of what came."""
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare("q")
    channel.basic_publish("", "q", body)
    _, _, got = channel.basic_get("q", auto_ack=True)
    channel.close()
    return len(got)
