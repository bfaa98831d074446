"""Connections of the test's own, closed and cleaned up after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from conformance.raw import Channel, Connection
from rigs.nodes import BrokerUnderTest

Dial = Callable[[], Connection]
Connect = Callable[..., Connection]


@pytest.fixture
def dial(broker: BrokerUnderTest) -> Iterator[Dial]:
    """Make TCP connections; not a byte is sent on them."""
    made: list[Connection] = []

    def make() -> Connection:
        made.append(Connection(broker.place, broker.tls))
        return made[-1]

    yield make
    for connection in made:
        connection.drop()


@pytest.fixture
def connect(dial: Dial) -> Connect:
    """Make connections that are open."""

    def make(**options: Any) -> Connection:
        connection = dial()
        reply = connection.open(**options)
        assert reply.name == "connection.open-ok", reply
        return connection

    return make


@pytest.fixture
def channel(connect: Connect) -> Channel:
    """Channel 1 of a connection of its own."""
    return connect().channel()


@pytest.fixture
def litter(connect: Connect) -> Iterator[Callable[..., None]]:
    """Delete the named queues and exchanges after the test."""
    queues: list[str] = []
    exchanges: list[str] = []

    def remember(*names: str, exchange: str = "") -> None:
        queues.extend(names)
        exchanges.extend([exchange] if exchange else [])

    yield remember
    broom = connect().channel()
    for name in queues:
        broom.ok("queue.delete", queue=name)
    for name in exchanges:
        broom.ok("exchange.delete", exchange=name)


@pytest.fixture
def queue(name: str, channel: Channel, litter: Callable[..., None]) -> str:
    """A transient queue that is there; of no connection's own."""
    channel.ok("queue.declare", queue=name)
    litter(name)
    return name


@pytest.fixture
def exchange(name: str, channel: Channel, litter: Callable[..., None]) -> Callable[..., str]:
    """Declare exchanges with unique names: ``exchange("topic")``."""
    made: list[str] = []

    def declare(kind: str = "direct", **options: Any) -> str:
        made.append(f"{name}-x{len(made)}")
        channel.ok("exchange.declare", exchange=made[-1], type=kind, **options)
        litter(exchange=made[-1])
        return made[-1]

    return declare
