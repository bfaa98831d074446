"""Channels of the raw client to a broker under test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from conformance.raw import Channel, Connection
from rigs.nodes import BrokerUnderTest


@contextmanager
def channel_of(broker: BrokerUnderTest) -> Iterator[Channel]:
    """Yield a channel on a connection of its own, which is dropped at the end."""
    connection = Connection((broker.host, broker.port))
    connection.open()
    try:
        yield connection.channel()
    finally:
        connection.drop()
