"""Blocking clients that leave nothing open."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from leveret.testing.vhost import FreshVhost

Connect = Callable[..., BlockingChannel]


@pytest.fixture
def connect(amqp_broker: FreshVhost) -> Iterator[Connect]:
    """Return a pika channel with confirms, each on a connection of its own."""
    connections: list[pika.BlockingConnection] = []

    def dial(heartbeat: int | None = None) -> BlockingChannel:
        parameters = pika.URLParameters(amqp_broker.url)
        parameters.heartbeat = heartbeat
        connections.append(pika.BlockingConnection(parameters))
        channel = connections[-1].channel()
        channel.confirm_delivery()
        return channel

    yield dial
    for connection in connections:
        if connection.is_open:
            connection.close()
