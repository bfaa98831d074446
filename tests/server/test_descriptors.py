"""A broker whose process may have few descriptors: clients get what is left, the store keeps its own.

Tests: core/system/descriptors.py
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from conformance.raw import Connection
from leveret.server.control_client import ask
from rigs.nodes import BrokerUnderTest, leveret_program, start_leveret, stop_leveret

LIMIT = 300
SOCKETS = 178  # RabbitMQ's figure: 90 % of what is left of 100, less 2


def limited(folder: Path, soft: int, hard: int) -> BrokerUnderTest:
    script = f'ulimit -Sn {soft} && ulimit -Hn {hard} && exec {leveret_program()} "$@"'
    return start_leveret(folder, program=("sh", "-c", script, "sh"))


def connect(node: BrokerUnderTest) -> Connection:
    connection = Connection((node.host, node.port))
    assert connection.open().name == "connection.open-ok"
    return connection


@pytest.fixture
def node(tmp_path: Path) -> Iterator[BrokerUnderTest]:
    started = limited(tmp_path, LIMIT // 2, LIMIT)
    yield started
    stop_leveret(started)


def is_refused(node: BrokerUnderTest) -> bool:
    with socket.create_connection((node.host, node.port)) as late:
        try:
            late.sendall(b"AMQP\0\0\x09\x01")
            return not late.recv(1)
        except ConnectionError:
            return True


def descriptors_of(node: BrokerUnderTest) -> dict[str, int]:
    assert node.data is not None
    found: dict[str, int] = ask(node.data, "status", {})["file_descriptors"]
    return found


def test_the_soft_limit_is_raised_and_silent_sockets_keep_nobody_out(
    node: BrokerUnderTest,
) -> None:
    with ExitStack() as closing:
        publisher = connect(node)
        closing.callback(publisher.drop)
        channel = publisher.channel()
        channel.ok("queue.declare", queue="q", durable=True)
        channel.ok("confirm.select")
        for _ in range(3 * LIMIT):
            closing.enter_context(socket.create_connection((node.host, node.port)))

        for _ in range(40):  # some segments
            channel.publish("q", bytes(1 << 20), delivery_mode=2)
            assert channel.read().name == "basic.ack"

        other = connect(node)
        closing.callback(other.drop)
        stats = descriptors_of(node)
        assert stats["total_limit"] == LIMIT
        assert stats["sockets_limit"] == SOCKETS
        assert stats["sockets_used"] <= SOCKETS
        assert stats["total_used"] < LIMIT
        assert other.channel().ready("q") == 40


def test_honest_clients_beyond_the_limit_are_refused_and_the_store_goes_on(
    node: BrokerUnderTest,
) -> None:
    with ExitStack() as closing:
        connections = []
        for _ in range(SOCKETS):
            connections.append(connect(node))
            closing.callback(connections[-1].drop)
        for _ in range(10):
            assert is_refused(node)

        channel = connections[0].channel()
        channel.ok("queue.declare", queue="q", durable=True)
        channel.ok("confirm.select")
        for _ in range(40):
            channel.publish("q", bytes(1 << 20), delivery_mode=2)
            assert channel.read().name == "basic.ack"
        assert descriptors_of(node)["sockets_used"] == SOCKETS
        connections[1].close()
        closing.callback(connect(node).drop)
    assert node.log is not None
    assert "out of file descriptors" in node.log.read_text()
