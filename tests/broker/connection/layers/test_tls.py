"""TLS listeners on real sockets: what a connection does without TLS it does with it.

Tests: broker/connection/layers/handshakes.py
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import random
import re
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from conformance import wire
from conformance.raw import Connection
from leveret.broker.connection import admission
from leveret.broker.connection.layers import tls
from leveret.broker.connection.layers.credentials import Credentials
from leveret.broker.connection.layers.handshakes import STEPS_PER_ROUND, Handshakes
from leveret.core import transports
from leveret.server import Broker, Config
from leveret.testing.virtual_clock import VirtualClock
from rigs.certificates import Authority
from rigs.waiting import eventually
from rigs.wire.garbage import garbage_of_block

SOON_S = 10.0
HEADER = b"AMQP\0\0\x09\x01"
TLS_1_2 = {"maximum_version": ssl.TLSVersion.TLSv1_2}
TLS_1_3 = {"minimum_version": ssl.TLSVersion.TLSv1_3}


@pytest.fixture
async def broker(tls_config: Callable[..., Config]) -> AsyncIterator[Broker]:
    async with Broker(tls_config()) as running:
        yield running


async def opened(broker: Broker, context: ssl.SSLContext, **login: Any) -> Connection:
    def work() -> Connection:
        connection = Connection(tuple(broker.addresses[0]), context)
        reply = connection.open(**login)
        assert reply.name == "connection.open-ok", reply
        return connection

    return await asyncio.to_thread(work)


def lines(caplog: pytest.LogCaptureFixture, begin: str) -> list[str]:
    return [text for each in caplog.records if (text := each.getMessage()).startswith(begin)]


@pytest.mark.parametrize("never_pauses", [False, True])  # as asyncio in Python 3.12.0 and 3.13.0
@pytest.mark.parametrize("versions", [TLS_1_2, TLS_1_3], ids=["1.2", "1.3"])
async def test_messages_go_both_ways(
    broker: Broker,
    authority: Authority,
    versions: dict[str, Any],
    never_pauses: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transports, "_NEVER_PAUSES", never_pauses)
    connection = await opened(broker, authority.client(**versions))
    bodies = [bytes([number]) * size for number, size in enumerate((0, 1, 100, 70_000, 3_000_000))]

    def work() -> list[bytes]:
        channel = connection.channel()
        channel.ok("queue.declare", queue="q")
        for body in bodies:
            channel.publish("q", body)
        channel.ok("basic.consume", queue="q", no_ack=True)
        found = channel.bodies(len(bodies))
        connection.close()
        return found

    assert await asyncio.to_thread(work) == bodies
    assert broker.url.startswith("amqps://guest:guest@127.0.0.1:")


async def test_a_flood_of_small_messages_keeps_its_order(
    broker: Broker, authority: Authority
) -> None:
    connection = await opened(broker, authority.client())

    def work() -> list[bytes]:
        channel = connection.channel()
        channel.ok("queue.declare", queue="q")
        for number in range(3_000):  # each in a record of its own
            channel.publish("q", b"%d" % number)
        channel.ok("basic.consume", queue="q", no_ack=True)
        return channel.bodies(3_000)

    assert await asyncio.to_thread(work) == [b"%d" % number for number in range(3_000)]
    connection.drop()


async def test_a_client_that_hangs_up_leaves_nothing(broker: Broker, authority: Authority) -> None:
    (await opened(broker, authority.client())).drop()

    await eventually(lambda: not broker.node.sockets.accepted)
    assert not broker.node.connections.readers


async def test_what_a_client_sent_before_its_end_is_handled(
    broker: Broker, authority: Authority
) -> None:
    """Also where its connection is paused meanwhile, as without TLS."""

    def work(is_told: bool) -> int:
        watcher = Connection(tuple(broker.addresses[0]), authority.client())
        watcher.open()
        channel = watcher.channel()
        channel.ok("queue.declare", queue="q")
        channel.ok("queue.purge", queue="q")
        connection = Connection(tuple(broker.addresses[0]), authority.client())
        connection.open()
        publisher = connection.channel()
        single = wire.frame(
            wire.METHOD,
            publisher.number,
            wire.method("basic.publish", exchange="", routing_key="q"),
        )
        single += wire.frame(wire.HEADER, publisher.number, wire.head(0, {}))
        connection.send_bytes(single * 30_000)
        if is_told:
            with contextlib.suppress(OSError):
                connection.socket.unwrap()
        connection.drop()
        for _ in range(1_000):
            count = channel.ok("queue.declare", queue="q", passive=True).message_count
            if count == 30_000:
                break
        watcher.drop()
        return int(count)

    for is_told in (True, False):
        assert await asyncio.to_thread(work, is_told) == 30_000


async def test_close_is_told_in_tls_before_the_socket_ends(
    broker: Broker, authority: Authority
) -> None:
    def work() -> bytes:
        connection = Connection(tuple(broker.addresses[0]), authority.client())
        connection.send_bytes(b"AMQP\0\0\0\0")
        # A stream that ends without TLS's own end would raise here.
        connection.socket.suppress_ragged_eofs = False
        data = b""
        while piece := connection.socket.recv(100):
            data += piece
        connection.drop()
        return data

    assert await asyncio.to_thread(work) == HEADER


async def test_what_a_client_does_not_read_stays_bounded(
    broker: Broker, authority: Authority
) -> None:
    connection = await opened(broker, authority.client())

    def work() -> None:
        channel = connection.channel()
        channel.ok("queue.declare", queue="q")
        for _ in range(400):
            channel.publish("q", bytes(100_000))
        channel.ok("queue.declare", queue="q", passive=True)
        channel.send("basic.consume", queue="q", no_ack=True)

    await asyncio.to_thread(work)
    (transport,) = broker.node.sockets.accepted.values()
    (reader,) = broker.node.connections.readers.values()
    await eventually(lambda: reader.channels.writing_is_paused)

    assert transport.get_write_buffer_size() < 2 * 1024 * 1024
    connection.drop()
    await eventually(lambda: not broker.node.sockets.accepted)


async def test_a_paused_connection_is_not_decrypted(broker: Broker, authority: Authority) -> None:
    connection = await opened(broker, authority.client())
    (transport,) = broker.node.sockets.accepted.values()
    transport.pause_reading()
    connection.send("channel.open", 1)
    other = await opened(broker, authority.client())  # is served meanwhile
    assert connection.is_silent()

    transport.resume_reading()
    assert (await asyncio.to_thread(connection.read, 1)).name == "channel.open-ok"
    connection.drop()
    other.drop()


async def test_the_end_of_a_client_that_is_not_read_is_seen(
    broker: Broker, authority: Authority
) -> None:
    connection = await opened(broker, authority.client())
    await asyncio.to_thread(connection.channel)
    (transport,) = broker.node.sockets.accepted.values()
    connection.drop()
    await eventually(lambda: not broker.node.sockets.accepted)
    assert transport.is_closing()


async def test_damaged_records_end_the_connection_with_a_line(
    broker: Broker, authority: Authority, caplog: pytest.LogCaptureFixture, rng: random.Random
) -> None:
    for size in (1, 5, 100, 20_000):
        connection = await opened(broker, authority.client())
        below = socket.socket(fileno=connection.socket.detach())
        below.setblocking(True)
        below.sendall(bytes([rng.choice((23, 22, 21, 20, 99)), 3, 3]) + rng.randbytes(size))
        below.shutdown(socket.SHUT_WR)
        await eventually(lambda: not broker.node.sockets.accepted)
        below.close()

    ends = lines(caplog, "connection closed")
    assert len(ends) == 4
    assert [line for line in ends if "socket lost: TLS: " in line], ends
    assert not [each for each in caplog.records if each.exc_info]


# Refused handshakes.


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (HEADER, "a client without TLS"),
        (b"GET / HTTP/1.1\r\n\r\n", "an HTTP client without TLS"),
        (bytes(50), "a client without TLS"),
        (b"\x16\x03\x01\xff\xff" + bytes(40_000), "more than 32768 bytes|packet length too long"),
    ],
)
async def test_bytes_that_are_no_handshake_are_refused_with_the_reason(
    broker: Broker, caplog: pytest.LogCaptureFixture, data: bytes, reason: str
) -> None:
    reader, writer = await asyncio.open_connection(*broker.addresses[0])
    writer.write(data)
    with contextlib.suppress(ConnectionError):
        await asyncio.wait_for(reader.read(), SOON_S)
    writer.close()
    await eventually(lambda: not broker.node.sockets.accepted)

    (line,) = lines(caplog, "connection refused")
    assert re.search(f'reason="TLS handshake failed: ({reason})"', line), line


async def test_an_old_version_is_refused(
    broker: Broker, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    context = authority.client(minimum_version=ssl.TLSVersion.MINIMUM_SUPPORTED)
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.deprecated_call():
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await opened(broker, context)
    await eventually(lambda: not broker.node.sockets.accepted)

    assert "unsupported protocol" in caplog.text


async def test_a_silent_client_is_closed_in_time(tls_config: Callable[..., Config]) -> None:
    async with Broker(tls_config(tls_handshake_s=0.1)) as broker:
        reader, writer = await asyncio.open_connection(*broker.addresses[0])
        writer.write(b"\x16")
        assert await asyncio.wait_for(reader.read(), SOON_S) == b""
        writer.close()
        assert not broker.node.sockets.accepted


async def test_a_health_check_is_no_line_above_debug(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "leveret.broker")
    for _ in range(3):
        socket.create_connection(tuple(broker.addresses[0])).close()
    await eventually(lambda: not broker.node.sockets.accepted)

    assert lines(caplog, "connection") == []


async def test_handshakes_under_way_are_sockets_before_login(
    broker: Broker, authority: Authority, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.setattr(admission, "HANDSHAKES_MAX", 3)
    waiting = [await asyncio.open_connection(*broker.addresses[0]) for _ in range(3)]
    for _, writer in waiting:
        writer.write(Flights(authority, TLS_1_3).next(b""))
    for reader, _ in waiting:
        assert await asyncio.wait_for(reader.read(5), SOON_S)
    assert broker.node.sockets.admission.waiting_count == 3

    (await opened(broker, authority.client())).drop()
    await eventually(lambda: len(broker.node.sockets.accepted) == 2)
    assert len(lines(caplog, "connection refused")) == 1
    assert "socket closed before login, to make room for others" in caplog.text
    for _, writer in waiting:
        writer.close()


async def test_a_stop_ends_handshakes_under_way(
    tls_config: Callable[..., Config], authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leveret.server.broker.FLUSH_S", 3_600.0)  # it does not wait for them
    broker = Broker(tls_config())
    await broker.start()
    reader, writer = await asyncio.open_connection(*broker.addresses[0])
    writer.write(Flights(authority, TLS_1_3).next(b""))
    await asyncio.wait_for(reader.read(5), SOON_S)

    await asyncio.wait_for(broker.stop(), SOON_S)
    writer.close()


def test_a_round_takes_a_few_steps_of_handshakes() -> None:
    rounds: list[Callable[[], None]] = []
    turns, taken = Handshakes(rounds.append), []
    for number in range(10):
        turns.wait(partial(taken.append, number))
    assert len(rounds) == 1
    assert taken == []

    while rounds:
        before = len(taken)
        rounds.pop()()
        assert len(taken) - before <= STEPS_PER_ROUND
    assert taken == list(range(10))


def test_a_step_that_fails_does_not_stop_the_others() -> None:
    rounds: list[Callable[[], None]] = []
    turns, taken = Handshakes(rounds.append), []
    turns.wait(lambda: 1 / 0)  # type: ignore[arg-type, return-value]
    turns.wait(partial(taken.append, 1))

    with pytest.raises(ZeroDivisionError):
        rounds.pop()()
    rounds.pop()()
    assert taken == [1]


class Flights:
    """A client's side of a handshake, without a socket; the protocol header goes with its last bytes."""

    def __init__(self, authority: Authority, versions: dict[str, Any]) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = authority.client(**versions)
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")
        self.is_over = False

    def next(self, answer: bytes) -> bytes:
        self.incoming.write(answer)
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            return self.outgoing.read()
        self.tls.write(HEADER)
        self.is_over = True
        return self.outgoing.read()


async def handshake_cut(
    broker: Broker, authority: Authority, versions: dict[str, Any], at: int
) -> bool:
    """Send so many bytes of a handshake and of the protocol header, then hang up; return whether they were all."""
    reader, writer = await asyncio.open_connection(*broker.addresses[0])
    client, answer, left = Flights(authority, versions), b"", at
    try:
        while True:
            flight = client.next(answer)
            writer.write(flight[:left])
            await writer.drain()
            left -= len(flight)
            if left <= 0 or client.is_over:
                return left > 0
            answer = await asyncio.wait_for(reader.read(100_000), SOON_S)
            assert answer, "the broker has closed the socket"
    finally:
        writer.close()


async def cut_everywhere(broker: Broker, authority: Authority, count: int, step: int) -> None:
    done = at = 0
    versions = TLS_1_3
    while done < count:
        places = range(at, at + 20 * step, step)
        over = await asyncio.gather(
            *(handshake_cut(broker, authority, versions, place) for place in places)
        )
        done, at = done + len(over), places.stop
        if any(over):
            at, versions = 0, TLS_1_2 if versions is TLS_1_3 else TLS_1_3
    await eventually(lambda: not broker.node.sockets.accepted)
    await eventually(lambda: not broker.node.sockets.admission.waiting_count)


async def test_handshakes_cut_anywhere_leave_nothing(broker: Broker, authority: Authority) -> None:
    actors = broker.runtime.actor_count
    await cut_everywhere(broker, authority, 200, step=13)

    await eventually(lambda: broker.runtime.actor_count == actors)
    (await opened(broker, authority.client())).drop()


async def test_nothing_needs_the_cyclic_collector(broker: Broker, authority: Authority) -> None:
    async def several() -> None:
        for versions in (TLS_1_2, TLS_1_3):
            connection = await opened(broker, authority.client(**versions))
            await asyncio.to_thread(connection.channel)
            connection.drop()
            connection = await opened(broker, authority.client(**versions))
            await asyncio.to_thread(connection.close)
        await cut_everywhere(broker, authority, 40, step=100)

    await several()
    with garbage_of_block() as found:
        await several()

    of_connections = {"TlsTransport", "ConnectionProtocol", "Reader", "Writer", "SSLObject"}
    assert of_connections.isdisjoint(found), found


@pytest.mark.slow
async def test_10_000_handshakes_cut_at_every_byte_leave_nothing(
    broker: Broker, authority: Authority
) -> None:
    await cut_everywhere(broker, authority, 2_000, step=1)  # what is loaded and cached once
    actors, before = broker.runtime.actor_count, anonymous_kib()
    await cut_everywhere(broker, authority, 10_000, step=1)

    await eventually(lambda: broker.runtime.actor_count == actors)
    assert anonymous_kib() - before < 8 * 1024
    assert not [each for each in gc.get_objects() if isinstance(each, tls.TlsTransport)]


def anonymous_kib() -> int:
    gc.collect()
    return int(Path("/proc/self/status").read_text().partition("RssAnon:")[2].split()[0])


# Without sockets.


class Raw:
    """A socket's transport that keeps what is written to it."""

    def __init__(self) -> None:
        self.out = bytearray()
        self.is_reading, self.is_closed = True, False

    def write(self, data: bytes) -> None:
        self.out += data

    def writelines(self, pieces: list[bytes]) -> None:
        self.out += b"".join(pieces)

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def close(self) -> None:
        self.is_closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.is_closed

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return 0, 0

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        """Take any."""

    def get_write_buffer_size(self) -> int:
        return 0


class Read:
    """A connection that pauses after each read, if it is told to."""

    def __init__(self, pauses: bool) -> None:
        self.pauses = pauses
        self.events: list[bytes | str] = []
        self.transport: Any = None

    def arrived(self, transport: Any) -> bool:
        return True

    def refused(self, reason: str, has_spoken: bool) -> None:
        self.events.append(reason)

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        self.events.append(data)
        if self.pauses:
            self.transport.pause_reading()

    def eof_received(self) -> None:
        self.events.append("end")

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append("lost")


def joined(
    config: Config, authority: Authority, *, pauses: bool
) -> tuple[Flights, Raw, Read, tls.TlsTransport]:
    """Return a client, and a connection whose handshake with it is complete."""
    rounds: list[Callable[[], None]] = []
    raw, read, client = Raw(), Read(pauses), Flights(authority, TLS_1_3)
    clock: Any = VirtualClock()
    transport = tls.TlsTransport(Credentials(config), read, Handshakes(rounds.append), clock)
    transport.connection_made(raw)  # type: ignore[arg-type]
    data = client.next(b"")
    while not client.is_over:
        transport.data_received(data)
        assert not raw.is_reading
        rounds.pop()()
        data, raw.out = client.next(bytes(raw.out)), bytearray()
    transport.data_received(data)
    rounds.pop()()
    assert read.transport is transport
    return client, raw, read, transport


async def callbacks() -> None:
    """Run the callbacks that wait in the event loop, and those that they schedule."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_the_end_waits_while_the_connection_is_paused(
    tls_config: Callable[..., Config], authority: Authority
) -> None:
    client, raw, read, transport = joined(tls_config(), authority, pauses=True)
    client.tls.write(b"abcdef")
    with contextlib.suppress(ssl.SSLError):
        client.tls.unwrap()
    transport.data_received(client.outgoing.read())
    for _ in range(20):
        seen = len(read.events)
        await callbacks()
        assert len(read.events) == seen
        assert not raw.is_reading
        transport.resume_reading()
        await callbacks()
        assert len(read.events) == seen + 1
        if read.events[-1] == "end":
            break

    assert b"".join(each for each in read.events if isinstance(each, bytes)) == HEADER + b"abcdef"
    assert read.events[-1] == "end"
    assert raw.is_closed


@pytest.mark.parametrize("step", [1, 100, 20_000, 1_000_000])
async def test_bytes_pass_in_reads_of_any_size(
    tls_config: Callable[..., Config], authority: Authority, step: int
) -> None:
    client, raw, read, transport = joined(tls_config(), authority, pauses=False)
    transport.resume_reading()
    sent = b"".join(bytes([number % 256]) * number for number in range(60))
    sent += bytes(400_000 if step > 1 else 0)
    client.tls.write(sent)
    data = client.outgoing.read()
    for at in range(0, len(data), step):
        await eventually(lambda: raw.is_reading)
        transport.data_received(data[at : at + step])
    await eventually(lambda: raw.is_reading)

    assert b"".join(each for each in read.events if isinstance(each, bytes)) == HEADER + sent


@pytest.mark.parametrize("size", [1, 16_384, 16_385, 1_000_000])
async def test_what_is_written_is_read(
    tls_config: Callable[..., Config], authority: Authority, size: int
) -> None:
    client, raw, _, transport = joined(tls_config(), authority, pauses=False)
    transport.write(bytes(size))
    client.incoming.write(bytes(raw.out))
    found = 0
    while found < size:
        found += len(client.tls.read(100_000))

    assert found == size
