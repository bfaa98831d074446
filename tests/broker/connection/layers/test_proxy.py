"""The PROXY protocol: headers of both versions, what a connection shows of them, and bytes that are none.

Tests: broker/connection/layers/proxy_header.py
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import struct
from collections.abc import AsyncIterator, Callable
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.raw import Connection
from leveret.broker.connection.layers.proxy_header import ProxyHeader, ProxyHeaderError, parse
from leveret.management.node_admin import NodeAdmin
from leveret.server import Address, Broker, Config
from rigs.certificates import Authority
from rigs.waiting import eventually

SOON_S = 10.0
HEADER = b"AMQP\0\0\x09\x01"
V1 = b"PROXY TCP4 203.0.113.7 10.0.0.1 4711 5672\r\n"
SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"


def v2(
    client: str = "203.0.113.7",
    proxy: str = "10.0.0.1",
    ports: tuple[int, int] = (4711, 5672),
    command: int = 0x21,
    kind: int | None = None,
    rest: bytes = b"",
) -> bytes:
    packed = ip_address(client).packed + ip_address(proxy).packed + struct.pack(">HH", *ports)
    kind = kind if kind is not None else {12: 0x11, 36: 0x21}[len(packed)]
    body = packed + rest
    return SIGNATURE + struct.pack(">BBH", command, kind, len(body)) + body


TLV = b"\x03\x00\x04abcd"
CLIENT, PROXY = ("203.0.113.7", 4711), ("10.0.0.1", 5672)
CLIENT_6, PROXY_6 = ("2001:db8::7", 4711), ("2001:db8::1", 5672)

HEADERS = [
    (V1, CLIENT, PROXY),
    (b"PROXY TCP6 2001:db8:0:0::7 2001:db8::1 4711 5672\r\n", CLIENT_6, PROXY_6),
    (b"PROXY UNKNOWN\r\n", None, None),
    (b"PROXY UNKNOWN ffff::1 ffff::2 65535 65535\r\n", None, None),
    (v2(), CLIENT, PROXY),
    (v2(rest=TLV * 100), CLIENT, PROXY),
    (v2(*(host for host, _ in (CLIENT_6, PROXY_6))), CLIENT_6, PROXY_6),
    (v2(command=0x20), None, None),  # LOCAL
    (v2(kind=0x00), None, None),  # UNSPEC
    (v2(kind=0x31, rest=bytes(204)), None, None),  # a Unix socket before the proxy
    (SIGNATURE + b"\x20\x00\x00\x00", None, None),
]

NO_HEADERS = [
    HEADER,
    b"GET / HTTP/1.1\r\n",
    b"\x16\x03\x01\x02\x00",
    b"PROXY TCP4 203.0.113.7 10.0.0.1 4711\r\n",
    b"PROXY TCP4 203.0.113.7 10.0.0.1 4711 65536\r\n",
    b"PROXY TCP4 203.0.113.7 10.0.0.1 4711 -1\r\n",
    b"PROXY TCP4 2001:db8::7 10.0.0.1 4711 5672\r\n",
    b"PROXY TCP6 fe80::1%eth0 fe80::2 4711 5672\r\n",
    b"PROXY TCP4 localhost 10.0.0.1 4711 5672\r\n",
    b"PROXY UDP4 203.0.113.7 10.0.0.1 4711 5672\r\n",
    b"PROXY \r\n",
    b"PROXY " + b"x" * 200,
    SIGNATURE + b"\x11\x11\x00\x0c" + bytes(12),
    SIGNATURE + b"\x22\x11\x00\x0c" + bytes(12),
    SIGNATURE + b"\x21\x11\x00\x0b" + bytes(12),
]


@pytest.mark.parametrize(("data", "client", "proxy"), HEADERS)
def test_a_header_tells_both_addresses(
    data: bytes, client: tuple[str, int] | None, proxy: tuple[str, int] | None
) -> None:
    assert parse(data + HEADER) == ProxyHeader(len(data), client, proxy)


@pytest.mark.parametrize(("data", "client", "proxy"), HEADERS)
def test_a_header_may_come_byte_by_byte(data: bytes, client: object, proxy: object) -> None:
    found = [parse(data[:size]) for size in range(len(data) + 1)]

    first = next(size for size, header in enumerate(found) if header is not None)
    assert first <= min(len(data), 107)
    assert found[:first] == [None] * first
    assert found[first] == found[-1] == (len(data), client, proxy)


@pytest.mark.parametrize("data", NO_HEADERS)
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ProxyHeaderError):
        parse(data)


@given(
    st.one_of(
        st.binary(max_size=200),
        st.binary(max_size=200).map(lambda data: b"PROXY " + data),
        st.binary(max_size=200).map(lambda data: SIGNATURE + data),
        st.sampled_from([each[0] for each in HEADERS]),
    ),
    st.integers(0, 250),
    st.binary(max_size=3),
)
def test_any_bytes_are_a_header_or_refused_or_too_few(data: bytes, at: int, other: bytes) -> None:
    damaged = data[:at] + other + data[at + len(other) :]
    with contextlib.suppress(ProxyHeaderError):
        found = parse(damaged)
        assert found is not None or len(damaged) < 107
        if found is not None and found.client is not None:
            ip_address(found.client[0])


# On sockets.


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    listen = (Address("127.0.0.1", 0, proxy_protocol=True),)
    async with Broker(Config(listen=listen, data_dir=None)) as running:
        yield running


async def start_of(reader: asyncio.StreamReader) -> bytes:
    return await asyncio.wait_for(reader.readexactly(3), SOON_S)


@pytest.mark.parametrize(
    ("data", "step"),
    [(V1, 1), (V1, 7), (V1, 1_000), (v2(), 1), (v2(), 1_000), (v2(rest=TLV * 9_000), 5_000)],
)
async def test_a_connection_has_the_address_of_its_client(
    broker: Broker, caplog: pytest.LogCaptureFixture, data: bytes, step: int
) -> None:
    caplog.set_level(logging.INFO, "leveret.broker")
    reader, writer = await asyncio.open_connection(*broker.addresses[0])
    stream = data + HEADER
    for at in range(0, len(stream), step):
        writer.write(stream[at : at + step])
        await asyncio.sleep(0)
    assert await start_of(reader) == b"\x01\0\0"

    assert 'connection accepted name="203.0.113.7:4711 -> 10.0.0.1:5672"' in caplog.text
    writer.close()
    await eventually(lambda: not broker.node.sockets.accepted)


@pytest.mark.parametrize(
    ("data", "is_let_in"),
    [
        (V1, False),
        (V1.replace(b"203.0.113.7", b"127.0.0.1"), True),
        (b"PROXY TCP6 ::ffff:127.0.0.1 ::1 4711 5672\r\n", True),
        (b"PROXY TCP6 ::ffff:7f00:1 ::1 4711 5672\r\n", True),
        (b"PROXY TCP6 ::ffff:203.0.113.7 ::1 4711 5672\r\n", False),
        (v2("::ffff:127.0.0.1", "::1"), True),
        (v2("::ffff:203.0.113.7", "::1"), False),
    ],
)
async def test_guest_logs_in_from_the_machine_of_the_client_only(
    broker: Broker, data: bytes, is_let_in: bool
) -> None:
    def work() -> str:
        connection = Connection(tuple(broker.addresses[0]))
        connection.send_bytes(data)
        reply = connection.open()
        connection.drop()
        return reply.name

    reply = await asyncio.to_thread(work)
    assert reply == ("connection.open-ok" if is_let_in else "connection.close")


async def test_the_list_of_connections_shows_the_client(broker: Broker) -> None:
    def work() -> Connection:
        connection = Connection(tuple(broker.addresses[0]))
        connection.send_bytes(b"PROXY TCP6 ::1 2001:db8::1 4711 5671\r\n")
        assert connection.open().name == "connection.open-ok"
        return connection

    connection = await asyncio.to_thread(work)
    (row,) = await NodeAdmin(broker).connections.list_connections()
    assert (row["peer_host"], row["peer_port"]) == ("::1", 4711)
    assert (row["host"], row["port"]) == ("2001:db8::1", 5671)
    assert row["name"] == "[::1]:4711 -> [2001:db8::1]:5671"
    connection.drop()


async def test_a_connection_of_the_proxy_itself_keeps_its_address(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "leveret.broker")
    reader, writer = await asyncio.open_connection(*broker.addresses[0])
    writer.write(v2(command=0x20) + HEADER)
    assert await start_of(reader) == b"\x01\0\0"

    assert re.search(r'connection accepted name="127\.0\.0\.1:\d+ -> 127\.0\.0\.1:', caplog.text)
    writer.close()


@pytest.mark.parametrize("data", NO_HEADERS)
async def test_a_client_without_a_header_is_refused_with_a_line(
    broker: Broker, caplog: pytest.LogCaptureFixture, data: bytes
) -> None:
    reader, writer = await asyncio.open_connection(*broker.addresses[0])
    writer.write(data)
    with contextlib.suppress(ConnectionError):
        assert await asyncio.wait_for(reader.read(), SOON_S) == b""
    writer.close()
    await eventually(lambda: not broker.node.sockets.accepted)

    assert len(re.findall('connection refused .*reason=".*PROXY header', caplog.text)) == 1


async def test_a_client_that_says_nothing_is_closed_in_time(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("leveret.broker.connection.layers.proxy.PROXY_HEADER_S", 0.05)
    reader, writer = await asyncio.open_connection(*broker.addresses[0])
    writer.write(b"PROXY TC")
    with contextlib.suppress(ConnectionError):
        assert await asyncio.wait_for(reader.read(), SOON_S) == b""
    writer.close()

    await eventually(lambda: not broker.node.sockets.accepted)
    assert "no PROXY header within" in caplog.text


async def test_health_checks_are_no_line_above_debug(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "leveret.broker")
    for _ in range(3):
        _, writer = await asyncio.open_connection(*broker.addresses[0])
        writer.close()
        await writer.wait_closed()
    await eventually(lambda: not broker.node.sockets.accepted)

    assert not [each for each in caplog.records if each.getMessage().startswith("connection")]


async def test_headers_cut_anywhere_leave_nothing(broker: Broker) -> None:
    actors = broker.runtime.actor_count
    for data in (V1, v2(rest=TLV * 5)):
        for at in range(len(data) + len(HEADER)):
            _, writer = await asyncio.open_connection(*broker.addresses[0])
            writer.write((data + HEADER)[:at])
            writer.close()

    await eventually(lambda: not broker.node.sockets.accepted)
    await eventually(lambda: broker.runtime.actor_count == actors)
    assert not broker.node.sockets.admission.waiting_count


async def test_the_header_comes_before_tls(
    tls_config: Callable[..., Config], authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "leveret.broker")
    async with Broker(tls_config(proxy_protocol=True)) as broker:
        reader, writer = await asyncio.open_connection(*broker.addresses[0])
        writer.write(v2(rest=TLV))
        await writer.start_tls(authority.client(), server_hostname="localhost")
        writer.write(HEADER)
        assert await start_of(reader) == b"\x01\0\0"
        writer.close()

    assert 'connection accepted name="203.0.113.7:4711 -> 10.0.0.1:5672"' in caplog.text


async def test_one_listener_may_differ_from_the_others() -> None:
    listen = (Address("127.0.0.1", 0), Address("127.0.0.2", 0, proxy_protocol=False))
    async with Broker(Config(listen=listen, data_dir=None, proxy_protocol=True)) as broker:
        reader, writer = await asyncio.open_connection(*broker.addresses[1])
        writer.write(HEADER)
        assert await start_of(reader) == b"\x01\0\0"
        writer.close()
