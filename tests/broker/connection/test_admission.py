"""Which new sockets are taken: descriptors as a budget, sockets before login, accepting without descriptors.

Tests: broker/connection/connection_log.py
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import select
import socket
import struct
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from conformance.raw import Connection
from leveret.broker.connection import accepting as accepting_module
from leveret.broker.connection import admission as admission_module
from leveret.broker.connection.accepting import ACCEPTS_PER_TURN, TRANSPORTS_PER_TURN, Accepting
from leveret.broker.connection.sockets import LISTENER
from leveret.core.system import descriptors
from leveret.server import Address, Broker, Config
from rigs.waiting import eventually

SOON_S = 10.0
HEADER = b"AMQP\0\0\x09\x01"


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(Config(listen=(Address("127.0.0.1", 0),), data_dir=None)) as running:
        yield running


def room_for(monkeypatch: pytest.MonkeyPatch, sockets: int) -> None:
    """Let the process seem to have so many descriptors for clients (there is one vhost)."""
    monkeypatch.setattr(admission_module.Admission, "sockets_limit", sockets)


async def opened(broker: Broker) -> Connection:
    """Open a connection; ConnectionError when the broker closes the socket."""

    def work() -> Connection:
        connection = Connection(tuple(broker.addresses[0]))
        assert connection.open().name == "connection.open-ok"
        return connection

    return await asyncio.to_thread(work)


async def dial(broker: Broker) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection(*broker.addresses[0])
    writer.write(HEADER)
    return reader, writer


async def is_answered(reader: asyncio.StreamReader) -> bool:
    try:
        return bool(await asyncio.wait_for(reader.read(3), SOON_S))
    except ConnectionError:
        return False


@pytest.mark.parametrize("vhosts", [1, 3, 7, 100])
@pytest.mark.parametrize(
    ("limit", "allowed_by_rabbitmq"), [(300, 178), (1_024, 829), (4_096, 3_594), (65_536, 58_890)]
)
def test_no_fewer_sockets_than_in_rabbitmq_however_many_vhosts(
    monkeypatch: pytest.MonkeyPatch, limit: int, allowed_by_rabbitmq: int, vhosts: int
) -> None:
    monkeypatch.setattr(descriptors, "limit", lambda: limit)

    sockets = admission_module.Admission(range(vhosts)).sockets_limit

    assert sockets >= allowed_by_rabbitmq
    assert limit - sockets >= 100, "for the node and a store at rest"


def test_a_process_with_hardly_any_descriptors_takes_no_sockets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(descriptors, "limit", lambda: 64)

    assert admission_module.Admission(range(1)).sockets_limit == 0


async def test_a_socket_that_has_not_logged_in_makes_room(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    silent = [await dial(broker) for _ in range(3)]
    for reader, _ in silent:
        assert await is_answered(reader)
    room_for(monkeypatch, 3)

    connection = await opened(broker)

    oldest = silent[0][0]
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await asyncio.wait_for(oldest.readexactly(1 << 20), SOON_S)
    assert len(broker.node.sockets.accepted) == 3
    assert "socket closed before login" in caplog.text
    connection.drop()
    for _, writer in silent:
        writer.close()


async def test_an_open_connection_is_not_closed_for_a_new_one(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = await opened(broker), await opened(broker)
    room_for(monkeypatch, 2)

    for _ in range(5):
        reader, writer = await dial(broker)
        assert not await is_answered(reader)
        writer.close()

    for each in (first, second):
        await asyncio.to_thread(lambda each=each: each.channel().ok("queue.declare", queue="q"))
    refusals = [each for each in caplog.messages if "refused" in each]
    assert len(refusals) == 5
    assert all('reason="out of file descriptors: 2 sockets are open"' in each for each in refusals)
    await asyncio.to_thread(first.close)
    (await opened(broker)).drop()
    second.drop()


async def test_sockets_before_login_are_bounded(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission_module, "HANDSHAKES_MAX", 10)
    connection = await opened(broker)
    sockets = [await dial(broker) for _ in range(50)]

    for reader, _ in sockets[40:]:
        assert await is_answered(reader)

    assert broker.node.sockets.admission.waiting_count == 10
    await asyncio.to_thread(lambda: connection.channel().ok("queue.declare", queue="q"))
    connection.drop()
    for _, writer in sockets:
        writer.close()


async def test_a_refused_login_does_not_hold_its_place(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refused peer waits for three seconds; in a flood of them the ones who know the password get in."""
    room_for(monkeypatch, 5)
    guesses = []

    def guess() -> Connection:
        connection = Connection(tuple(broker.addresses[0]))
        guesses.append(connection)
        connection.send_bytes(HEADER)
        connection.read()
        connection.send(
            "connection.start-ok", mechanism="PLAIN", response="\0guest\0wrong", locale="en_US"
        )
        return connection

    for _ in range(20):
        await asyncio.to_thread(guess)

    connection = await opened(broker)
    assert len(broker.node.sockets.accepted) == 5
    for each in [*guesses, connection]:
        each.drop()


class NoDescriptors:
    """A listening socket whose accept fails until it is told otherwise."""

    def __init__(self, real: socket.socket, code: int) -> None:
        self.real = real
        self.code = code
        self.tries = 0
        self.is_short = True

    def accept(self) -> Any:
        self.tries += 1
        if self.is_short:
            raise OSError(self.code, os.strerror(self.code))
        return self.real.accept()

    def fileno(self) -> int:
        return self.real.fileno()

    def close(self) -> None:
        self.real.close()


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM])
async def test_accepting_goes_on_when_there_are_descriptors_again(
    broker: Broker, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    (accepting,) = broker.node.sockets.servers
    short = accepting._listening = NoDescriptors(accepting._listening, code)  # type: ignore[assignment]

    reader, writer = await dial(broker)
    await eventually(lambda: short.tries == 3)
    short.is_short = False

    assert await is_answered(reader)
    assert len([each for each in caplog.messages if "cannot accept" in each]) == 3
    writer.close()


async def test_accepting_without_descriptors_closes_sockets_before_login(broker: Broker) -> None:
    silent = [await dial(broker) for _ in range(3)]
    for reader, _ in silent:
        assert await is_answered(reader)
    (accepting,) = broker.node.sockets.servers
    short = accepting._listening = NoDescriptors(accepting._listening, errno.EMFILE)  # type: ignore[assignment]

    _, writer = await dial(broker)
    await eventually(lambda: not broker.node.sockets.accepted)

    short.is_short = False
    for _, each in [*silent, (None, writer)]:
        each.close()


def transports_per_turn(monkeypatch: pytest.MonkeyPatch) -> list[list[tuple[Any, bytes]]]:
    """Return which clients, with which first bytes, get a transport in each turn from now on."""
    turns: list[list[tuple[Any, bytes]]] = [[]]
    connect: Callable[[Accepting, socket.socket, bytes], None] = Accepting._connect
    turn: Callable[[Accepting], None] = Accepting._connect_some

    def counted(self: Accepting) -> None:
        turn(self)
        turns.append([])

    def connected(self: Accepting, accepted: socket.socket, first: bytes) -> None:
        turns[-1].append((accepted.getpeername(), first))
        connect(self, accepted, first)

    monkeypatch.setattr(Accepting, "_connect_some", counted)
    monkeypatch.setattr(Accepting, "_connect", connected)
    return turns


def backlog(broker: Broker, count: int, first: bytes) -> tuple[Accepting, list[socket.socket]]:
    """Let so many clients connect and send something, and stop accepting until ``Accepting._begin``."""
    (accepting,) = broker.node.sockets.servers
    assert isinstance(accepting, Accepting)
    accepting._loop.remove_reader(accepting._listening.fileno())
    clients = [socket.create_connection(tuple(broker.addresses[0])) for _ in range(count)]
    for each in clients:
        each.sendall(first)
    return accepting, clients


@pytest.mark.parametrize("first", [b"", HEADER])
async def test_a_turn_makes_a_few_transports(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, first: bytes
) -> None:
    """With a backlog of hundreds, other work comes between the turns."""
    accepting, clients = backlog(broker, 300, first)
    turns = transports_per_turn(monkeypatch)
    accepting._begin()
    await eventually(lambda: len(broker.node.sockets.accepted) == 300)

    assert max(map(len, turns)) <= TRANSPORTS_PER_TURN
    for each in clients:
        each.close()


async def test_a_client_that_comes_last_waits_for_one_turn_and_the_first_as_well(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    accepting, clients = backlog(broker, 100, HEADER)
    turns = transports_per_turn(monkeypatch)
    accepting._begin()
    await eventually(lambda: len(broker.node.sockets.accepted) == 100)

    first = {peer for peer, _ in turns[0]}
    half = TRANSPORTS_PER_TURN // 2
    assert first == {each.getsockname() for each in (*clients[:half], *clients[-half:])}
    for each in clients:
        each.close()


async def test_only_some_hundred_sockets_are_accepted_before_they_get_a_transport(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accepting_module, "WAITING_MAX", 40)
    accepting, clients = backlog(broker, 100, HEADER)
    accepting._accept_some()

    assert len(accepting._waiting) == 40 - TRANSPORTS_PER_TURN
    accepting._begin()
    await eventually(lambda: len(broker.node.sockets.accepted) == 100)
    for each in clients:
        each.close()


async def test_a_client_that_speaks_does_not_wait_behind_silent_ones(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    accepting, silent = backlog(broker, 100, b"")
    await asyncio.to_thread(select.select, [accepting._listening], [], [], SOON_S)
    reader, writer = await dial(broker)
    turns = transports_per_turn(monkeypatch)
    accepting._begin()
    assert await is_answered(reader)

    assert turns[0][0][1] == HEADER
    assert all(first == b"" for _, first in turns[0][1:])
    for each in (*silent, writer):
        each.close()


async def test_clients_that_have_left_get_no_transport(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One that comes behind hundreds of them is accepted in the same turn."""
    caplog.set_level(logging.DEBUG, "leveret.broker.connection")
    (accepting,) = broker.node.sockets.servers
    accepting._loop.remove_reader(accepting._listening.fileno())
    for number in range(ACCEPTS_PER_TURN - 1):
        client = socket.create_connection(tuple(broker.addresses[0]))
        if number % 2:  # a reset
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
    reader, writer = await dial(broker)
    turns = transports_per_turn(monkeypatch)
    accepting._begin()
    assert await is_answered(reader)

    assert len(turns[0]) == 1
    assert any(each.startswith("connection closed before its") for each in caplog.messages)
    writer.close()


async def test_new_connections_wait_in_the_kernel_while_there_is_no_listener(
    broker: Broker,
) -> None:
    runtime = broker.runtime
    ref = runtime.whereis(LISTENER)
    assert ref is not None
    runtime.exit(ref, "kill")
    reader, writer = await dial(broker)

    assert await is_answered(reader)
    writer.close()
