"""Listeners on Unix sockets: who may connect, how clients are shown, and files that were left behind."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import stat
from pathlib import Path

import pytest

from conformance.raw import Connection
from leveret.broker.channel.session import Block
from leveret.management.node_admin import NodeAdmin
from leveret.server import Address, Broker, Config
from leveret.server.process import AddressUnavailableError, bind
from rigs.waiting import eventually

HEADER = b"AMQP\0\0\x09\x01"


class UnixConnection(Connection):
    """A raw client on a Unix socket."""

    def __init__(self, path: str) -> None:
        listener = socket.create_server(("127.0.0.1", 0))  # only to make the rest of a connection
        super().__init__(listener.getsockname())
        listener.close()
        self.socket.close()
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(10)
        self.socket.connect(path)


@pytest.fixture
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("s")
    return str(folder / "amqp.sock")


def is_there(path: str) -> bool:
    return os.path.lexists(path)


def place(path: str, **more: int) -> Config:
    return Config(listen=(Address("", 0, "unix", path=path, **more),), data_dir=None)  # type: ignore[arg-type]


async def test_guest_logs_in_and_is_shown_as_a_process(path: str) -> None:
    async with Broker(place(path)) as broker:
        assert broker.url == f"unix://{path}"
        connections = [await asyncio.to_thread(UnixConnection, path) for _ in range(2)]
        for connection in connections:
            reply = await asyncio.to_thread(connection.open)
            assert reply.name == "connection.open-ok"
        rows = await NodeAdmin(broker).connections.list_connections()

        assert len({row["name"] for row in rows}) == 2
        for row in rows:
            process = f"unix:uid={os.getuid()},pid={os.getpid()}"
            assert re.fullmatch(rf"{process}#\d+ -> unix:{path}", row["name"])
            assert (row["peer_host"], row["host"], row["port"]) == (process, f"unix:{path}", 0)
            assert row["ssl"] is False
        for connection in connections:
            connection.drop()
        await eventually(lambda: not broker.node.sockets.accepted)


async def test_large_messages_go_both_ways(path: str) -> None:
    body = bytes(5_000_000)

    def work() -> bytes:
        connection = UnixConnection(path)
        connection.open()
        channel = connection.channel()
        channel.ok("queue.declare", queue="q")
        channel.publish("q", body)
        channel.ok("basic.consume", queue="q", no_ack=True)
        (found,) = channel.bodies(1)
        connection.close()
        return found

    async with Broker(place(path)):
        assert await asyncio.to_thread(work) == body


@pytest.mark.parametrize("mode", [None, 0o600, 0o666])
async def test_the_file_has_the_permissions_that_were_set(path: str, mode: int | None) -> None:
    config = place(path) if mode is None else place(path, mode=mode)
    async with Broker(config):
        assert stat.S_IMODE(os.stat(path).st_mode) == (0o660 if mode is None else mode)


async def test_the_file_goes_with_the_broker(path: str) -> None:
    async with Broker(place(path)):
        assert is_there(path)
    assert not is_there(path)


def test_a_file_that_somebody_else_has_put_there_stays(path: str) -> None:
    (bound,) = bind(place(path).listen)
    os.unlink(path)
    other = socket.socket(socket.AF_UNIX)
    other.bind(path)
    bound.close()

    assert is_there(path)
    other.close()


async def test_a_file_on_which_nobody_listens_is_replaced(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(path)
        killed.listen()
    assert is_there(path)

    async with Broker(place(path)):
        connection = await asyncio.to_thread(UnixConnection, path)
        assert (await asyncio.to_thread(connection.open)).name == "connection.open-ok"
        connection.drop()


def test_a_socket_on_which_somebody_listens_is_left_alone(path: str) -> None:
    (bound,) = bind(place(path).listen)
    try:
        with pytest.raises(AddressUnavailableError) as caught:
            bind(place(path).listen)
        assert str(caught.value) == f"cannot listen on unix://{path}: somebody listens there"
        assert is_there(path)
    finally:
        bound.close()


def test_a_file_that_is_no_socket_is_left_alone(path: str) -> None:
    Path(path).write_text("precious")
    with pytest.raises(AddressUnavailableError, match=r"the file is no socket$"):
        bind(place(path).listen)

    assert Path(path).read_text() == "precious"


@pytest.mark.parametrize(
    ("path", "reason"),
    [("/no/such/folder/s", "no such file or directory"), ("/" + "x" * 200, "path too long")],
)
def test_a_path_that_cannot_be_used_is_told(path: str, reason: str) -> None:
    with pytest.raises(AddressUnavailableError, match=f"^cannot listen on unix://.*{reason}$"):
        bind(place(path).listen)


async def test_a_client_that_hangs_up_is_seen_while_it_is_not_read(path: str) -> None:
    async with Broker(place(path)) as broker:
        connection = await asyncio.to_thread(UnixConnection, path)
        await asyncio.to_thread(connection.open)
        (reader,) = broker.node.connections.readers.values()
        reader.read_control.block(Block.CREDIT)
        connection.drop()
        await eventually(lambda: reader.peer_has_ended)
