"""Looking at connections that are not read: which are looked at, how many in a turn, and who cannot be reached."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from leveret.broker.channel.session import Block
from leveret.broker.connection.reading.end_watch import (
    POLL_MIN_S,
    POLL_S,
    POLLED_MAX,
    EndWatch,
    is_unreachable,
)
from leveret.testing.virtual_clock import VirtualClock
from rigs.broker_rig import Rig


class Connection:
    """A connection that is not read; ``looks`` counts."""

    def __init__(self, descriptor: int = -1) -> None:
        self.blocks: Any = {"some": 1}
        self.blocks_seen: Any = None
        self.own = descriptor
        self.looks = 0
        self.ends = 0

    @property
    def descriptor(self) -> int:
        self.looks += 1
        return self.own

    def provoke_reset(self) -> None:
        pass

    def peer_ended(self) -> None:
        self.ends += 1


@pytest.fixture
def watch(clock: VirtualClock) -> EndWatch:
    return EndWatch(clock)


def watched(watch: EndWatch, *connections: Connection) -> tuple[Connection, ...]:
    for each in connections:
        watch.watch(each)
    return connections


@pytest.fixture
def pair() -> Iterator[Callable[[], tuple[socket.socket, socket.socket]]]:
    """Make connected sockets: the client's, the broker's."""
    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))

        def make() -> tuple[socket.socket, socket.socket]:
            client = stack.enter_context(socket.create_connection(listening.getsockname()))
            return client, stack.enter_context(listening.accept()[0])

        yield make


def test_an_end_is_seen_by_the_second_look_and_behind_unread_bytes(
    clock: VirtualClock,
    watch: EndWatch,
    pair: Callable[[], tuple[socket.socket, socket.socket]],
) -> None:
    client, server = pair()
    other, theirs = pair()
    ending, staying = watched(watch, Connection(server.fileno()), Connection(theirs.fileno()))
    for each in (client, other):
        each.sendall(b"unread")

    client.close()
    clock.jump(2 * POLL_S)

    assert (ending.ends, staying.ends) == (1, 0)
    assert server.recv(100) == b"unread"


def test_a_connection_that_was_read_meanwhile_is_not_looked_at(
    clock: VirtualClock, watch: EndWatch
) -> None:
    busy, free = watched(watch, Connection(), Connection())
    for _ in range(10):
        busy.blocks = dict(busy.blocks)
        clock.jump(POLL_S)
    free.blocks = {}
    looks = free.looks
    clock.jump(10 * POLL_S)

    assert (looks, free.looks) == (9, 9)
    assert busy.looks == 10
    assert free.blocks_seen is None


def test_nobody_looks_when_no_connection_is_paused(clock: VirtualClock, watch: EndWatch) -> None:
    read, closed = watched(watch, Connection(), Connection())
    watch.forget(closed)
    read.blocks = {}
    clock.jump(POLL_S)

    assert clock.pending_count == 0


def test_a_turn_looks_at_a_thousand_and_each_is_looked_at_as_often(
    clock: VirtualClock, watch: EndWatch
) -> None:
    many = watched(watch, *[Connection() for _ in range(5 * POLLED_MAX)])
    clock.jump(POLL_S)
    for _ in range(50):
        before = sum(each.looks for each in many)
        clock.jump(POLL_MIN_S)
        assert sum(each.looks for each in many) - before <= POLLED_MAX

    assert {each.looks for each in many} <= {9, 10, 11}


class Info:
    """A transport whose socket says this of its peer."""

    def __init__(self, probes: int, unacked: int, acked_ms_ago: int) -> None:
        self.told = bytearray(104)
        self.told[3] = probes
        struct.pack_into("=I", self.told, 24, unacked)
        struct.pack_into("=I", self.told, 56, acked_ms_ago)

    def get_extra_info(self, name: str) -> Info:
        return self

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        return bytes(self.told[:size])

    def fileno(self) -> int:
        return -1


@pytest.mark.parametrize(
    ("probes", "unacked", "acked_ms_ago", "unreachable"),
    [
        (0, 0, 1_000_000, False),
        (0, 1, 19_000, False),
        (0, 1, 20_000, True),
        (1, 0, 20_000, False),
        (2, 0, 20_000, True),
    ],
)
def test_a_peer_is_unreachable_when_it_does_not_acknowledge(
    probes: int, unacked: int, acked_ms_ago: int, unreachable: bool
) -> None:
    assert is_unreachable(Info(probes, unacked, acked_ms_ago), 20.0) is unreachable


def test_a_peer_that_does_not_read_is_reachable(
    pair: Callable[[], tuple[socket.socket, socket.socket]],
) -> None:
    _, server = pair()

    class Real:
        def get_extra_info(self, name: str) -> socket.socket:
            return server

    server.setblocking(False)
    for _ in range(1_000):
        try:
            server.send(bytes(100_000))
        except BlockingIOError:
            break

    assert not is_unreachable(Real(), 0.5)


@pytest.mark.parametrize(
    ("is_open", "block", "is_sent"),
    [
        (True, Block.CREDIT, True),
        (True, Block.ENDING, False),
        (False, Block.LONG_READ, False),
    ],
)
def test_a_heartbeat_that_provokes_a_reset_is_for_open_connections(
    rig: Rig,
    pair: Callable[[], tuple[socket.socket, socket.socket]],
    is_open: bool,
    block: Block,
    is_sent: bool,
) -> None:
    _, server = pair()
    client = rig.session() if is_open else rig.client()
    client.wire.socket = server
    rig.node.resources.alarms.set("memory", True, "")
    client.reader.cell.actor.read_control.block(block)
    rig.jump(3 * POLL_S)

    assert ("heartbeat" in client.take()) is is_sent


def test_a_paused_connection_whose_peer_vanished_is_found_by_the_heartbeats(rig: Rig) -> None:
    client = rig.session(heartbeat_s=10)
    reader = rig.node.connections.readers[client.reader]
    reader.read_control.block(Block.CREDIT)
    rig.jump(60)
    assert client.is_up

    client.wire.socket = Info(0, 1, 20_000)
    rig.jump(10)

    assert not client.is_up
    assert not client.reader.is_alive
