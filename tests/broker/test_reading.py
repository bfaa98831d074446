"""How much a connection reads at a time: more where much comes, most where bodies are large."""

from __future__ import annotations

import pytest

from broker_rig import Client, Rig, Wire
from leveret.amqp import methods as m
from leveret.broker.session import FIRST_READ_BYTES, READ_BYTES, WIDE_READ_BYTES

LARGE = bytes(range(256)) * 256
SMALL = LARGE[:1024]


@pytest.fixture
def of_asyncio(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have transports read as much at a time as asyncio's."""
    monkeypatch.setattr(Wire, "max_size", READ_BYTES, raising=False)


def publishing(rig: Rig, body: bytes, *reads: int) -> Client:
    """Return a client whose messages came in reads of these sizes, and a queue for them."""
    client = rig.session(channels=2)
    client.ask(1, m.QueueDeclare("q"))
    data = client.contents(1, ("", "q", body, {})) * (sum(reads) // len(body) + 1)
    for read in reads:
        client.feed(data[:read])
        data = data[read:]
    client.feed(data)
    return client


@pytest.mark.usefixtures("of_asyncio")
@pytest.mark.parametrize(
    ("body", "reads", "read_bytes"),
    [
        (SMALL, (), FIRST_READ_BYTES),
        (SMALL, (FIRST_READ_BYTES - 1,), FIRST_READ_BYTES),
        (SMALL, (FIRST_READ_BYTES,), READ_BYTES),
        (LARGE, (FIRST_READ_BYTES,), READ_BYTES),
        (SMALL, (FIRST_READ_BYTES, READ_BYTES), READ_BYTES),
        (LARGE, (FIRST_READ_BYTES, FIRST_READ_BYTES), READ_BYTES),
        (LARGE, (FIRST_READ_BYTES, READ_BYTES), WIDE_READ_BYTES),
    ],
)
def test_full_reads_make_the_next_ones_larger(
    rig: Rig, body: bytes, reads: tuple[int, ...], read_bytes: int
) -> None:
    client = publishing(rig, body, *reads)

    assert client.wire.max_size == read_bytes  # type: ignore[attr-defined]


@pytest.mark.usefixtures("of_asyncio")
def test_a_full_read_of_many_runs_is_work_enough(rig: Rig) -> None:
    client = publishing(rig, SMALL, FIRST_READ_BYTES)
    client.ask(2, m.QueueDeclare("r"))
    runs = client.contents(1, ("", "q", b"x" * 400, {}), ("", "r", b"x" * 400, {})) * 500
    client.feed(runs[:READ_BYTES])

    assert client.wire.max_size == FIRST_READ_BYTES  # type: ignore[attr-defined]


def test_after_a_full_read_all_that_waits_is_handled_first(rig: Rig) -> None:
    client = publishing(rig, SMALL)
    ready = client.ask(2, m.QueueDeclare("q", passive=True)).message_count
    data = client.contents(1, ("", "q", SMALL, {})) * 64
    client.protocol.data_received(data[: FIRST_READ_BYTES - 1])
    assert client.wire.is_reading
    client.protocol.data_received(data[FIRST_READ_BYTES - 1 :])
    assert client.wire.is_reading  # it was a small one
    client.protocol.data_received(data[:FIRST_READ_BYTES])
    assert not client.wire.is_reading
    client.rig.settle()

    client.feed(data[FIRST_READ_BYTES:])
    assert client.ask(2, m.QueueDeclare("q", passive=True)).message_count == ready + 128


def test_transports_of_other_loops_are_left_alone(rig: Rig) -> None:
    client = publishing(rig, LARGE, FIRST_READ_BYTES, READ_BYTES)

    client.send(1, m.BasicGet("q", no_ack=True))

    assert not hasattr(client.wire, "max_size")
    assert client.bodies() == [LARGE]
