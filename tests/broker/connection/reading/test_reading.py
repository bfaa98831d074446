"""How much a connection reads at a time: more where much comes, most where bodies are large.

Tests: broker/connection/reading/read_sizes.py
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from leveret.amqp import methods as m
from leveret.broker.connection.reading.read_sizes import (
    FIRST_READ_BYTES,
    READ_BYTES,
    UVLOOP_READ_BYTES,
    WIDE_READ_BYTES,
    WideReads,
)
from leveret.broker.connection.sockets import ConnectionProtocol
from rigs.broker_rig import Client, Rig, Wire

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


# uvloop's transports: 256,000 bytes at a time, or into a buffer.


@pytest.mark.parametrize(
    ("body", "reads", "is_wide"),
    [
        (LARGE, (), False),
        (LARGE, (FIRST_READ_BYTES, UVLOOP_READ_BYTES - 1), False),
        (LARGE, (FIRST_READ_BYTES, UVLOOP_READ_BYTES), True),
        (LARGE, (FIRST_READ_BYTES, UVLOOP_READ_BYTES, WIDE_READ_BYTES, 99), True),
        (SMALL, (FIRST_READ_BYTES, UVLOOP_READ_BYTES, UVLOOP_READ_BYTES), False),
    ],
)
def test_large_bodies_are_read_into_a_buffer_by_a_loop_that_has_its_own_size(
    rig: Rig, body: bytes, reads: tuple[int, ...], is_wide: bool
) -> None:
    client = publishing(rig, body, *reads)

    assert isinstance(client.wire.protocol, WideReads) is is_wide
    count = client.ask(2, m.QueueDeclare("q", passive=True)).message_count
    assert count == sum(reads) // len(body) + 1
    for _ in range(count):
        client.send(1, m.BasicGet("q", no_ack=True))
    assert client.bodies() == [body] * count


def test_a_full_read_of_many_runs_into_the_buffer_is_the_last_one(rig: Rig) -> None:
    client = publishing(rig, LARGE, FIRST_READ_BYTES, UVLOOP_READ_BYTES)
    client.ask(2, m.QueueDeclare("r"))
    runs = client.contents(1, ("", "q", b"x" * 400, {}), ("", "r", b"x" * 400, {})) * 2_000
    client.feed(runs[:WIDE_READ_BYTES])
    client.feed(runs[WIDE_READ_BYTES:])

    assert client.wire.protocol is client.protocol
    assert client.ask(2, m.QueueDeclare("r", passive=True)).message_count == 2_000


def test_what_happens_to_a_connection_that_reads_into_a_buffer_reaches_its_reader(rig: Rig) -> None:
    client = publishing(rig, LARGE, FIRST_READ_BYTES, UVLOOP_READ_BYTES)
    wide = client.wire.protocol
    wide.pause_writing()
    wide.resume_writing()
    assert wide.eof_received() is None
    wide.connection_lost(None)
    rig.settle()
    wide.buffer_updated(10)  # which nobody reads any more
    rig.settle()

    assert not client.protocol.is_attached


def test_brokers_in_two_threads_do_not_read_into_one_buffer() -> None:
    def buffer() -> memoryview:
        return WideReads(ConnectionProtocol(None)).get_buffer(-1)  # type: ignore[arg-type]

    with ThreadPoolExecutor(1) as other:
        theirs = other.submit(buffer).result()

    assert theirs is not buffer()
    assert buffer() is buffer()
