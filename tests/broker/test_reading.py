"""How much a connection reads at a time: more where bodies are large."""

from __future__ import annotations

import pytest

from broker_rig import Client, Rig
from leveret.amqp import methods as m
from leveret.broker.session import READ_BYTES, WIDE_READ_BYTES

BODY = bytes(range(256)) * 256


def publishing(rig: Rig, body: bytes, max_size: int | None = READ_BYTES) -> Client:
    """Return a client that has sent one full read of such messages, and a queue for them."""
    client = rig.session()
    client.ask(1, m.QueueDeclare("q"))
    if max_size is not None:
        client.wire.max_size = max_size  # type: ignore[attr-defined]
    one = client.contents(1, ("", "q", body, {}))
    data = one * (READ_BYTES // len(one) + 1)
    client.feed(data[:READ_BYTES])
    client.feed(data[READ_BYTES:])
    return client


@pytest.mark.parametrize(
    ("body", "read_bytes"), [(BODY, WIDE_READ_BYTES), (BODY[:1024], READ_BYTES)]
)
def test_a_full_read_that_cuts_a_large_body_makes_the_next_ones_larger(
    rig: Rig, body: bytes, read_bytes: int
) -> None:
    client = publishing(rig, body)
    assert client.wire.max_size == read_bytes  # type: ignore[attr-defined]


def test_transports_of_other_loops_are_left_alone(rig: Rig) -> None:
    client = publishing(rig, BODY, max_size=None)

    client.send(1, m.BasicGet("q", no_ack=True))

    assert not hasattr(client.wire, "max_size")
    assert client.bodies() == [BODY]
