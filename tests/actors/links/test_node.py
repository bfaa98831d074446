"""Nodes over real sockets: TCP, Unix, TLS, strangers.

Tests: actors/links/endpoint.py, actors/links/security.py
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from leveret.actors.gen_server import From, GenServer
from leveret.actors.links.frames import Kind, frame
from leveret.actors.links.handshake import Claim, Handshake
from leveret.actors.links.limits import LinkLimits
from leveret.actors.links.node import Node
from leveret.actors.links.security import Security
from leveret.actors.runtime.runtime import Runtime
from leveret.actors.runtime.signals import CallExit
from leveret.core.errors import ConfigError
from rigs.certificates import Authority
from rigs.links.linked_nodes import SECRET
from rigs.waiting import eventually

Made = Callable[..., Awaitable[Node]]


class Echo(GenServer):
    def handle_call(self, request: Any, frm: From | None) -> Any:
        return request

    def handle_cast(self, message: Any) -> None:
        """Take it."""


@pytest.fixture
async def made() -> AsyncIterator[Made]:
    nodes: list[Node] = []

    async def make(
        name: str, security: Security = SECRET, limits: LinkLimits | None = None
    ) -> Node:
        runtime = Runtime(name=name)
        nodes.append(Node(runtime, security, limits))
        runtime.spawn(Echo, name="echo")
        return nodes[-1]

    yield make
    for node in nodes:
        await node.close()
        await node.runtime.shutdown(5)
        assert node.runtime.actor_count == 0
    await asyncio.sleep(0)


async def test_tasks_wait_until_their_mail_has_left(made: Made) -> None:
    a, b = await made("a"), await made("b", limits=LinkLimits())
    a.dial(await b.listen("127.0.0.1:0"))
    await a.connected("b", 20)
    echo = await a.whereis("echo", "b", 20)
    assert echo is not None
    peer = a._peers["b"]
    for _ in range(20):
        a.runtime.send(echo, b"." * 1_000_000)
    assert peer.connection.unsent_bytes > 15_000_000
    await asyncio.wait_for(a.written(echo), 20)
    assert peer.connection.unsent_bytes < 1_000_000


async def _echo(node: Node, to: str) -> None:
    await node.connected(to, 20)
    echo = await node.whereis("echo", to, 20)
    assert echo is not None
    for value in (1, b"x" * 3_000_000, ("a", [b"y" * 20_000])):
        assert await node.runtime.call(echo, value, 20) == value


@pytest.mark.parametrize("has_tls", [True, False])
async def test_all_addresses_of_ipv6_are_those_of_ipv4_too(
    made: Made, tmp_path: Path, has_tls: bool
) -> None:
    authority = Authority(tmp_path)
    secret = b"a secret of tests"
    a, b = [
        await made(each, Security(secret, **_contexts(authority, each) if has_tls else {}))
        for each in ("a", "b")
    ]
    port = (await b.listen("[::]:0")).rpartition(":")[2]
    a.dial(f"127.0.0.1:{port}")

    await _echo(a, "b")


@pytest.mark.parametrize("kind", ["127.0.0.1:0", "unix"])
async def test_two_nodes_reach_each_other(made: Made, kind: str, tmp_path: Path) -> None:
    a, b = await made("a"), await made("b")
    address = await b.listen(f"unix:{tmp_path}/b" if kind == "unix" else kind)
    a.dial(address)
    await _echo(a, "b")
    await _echo(b, "a")

    assert (a.nodes, b.nodes) == (["b"], ["a"])
    assert await a.whereis("nobody", "b") is None


async def test_a_node_that_is_closed_is_down_for_others_and_is_dialled_again(made: Made) -> None:
    a, b = await made("a"), await made("b")
    address = await b.listen("127.0.0.1:0")
    a.dial(address)
    await a.connected("b", 20)
    echo = await a.whereis("echo", "b")
    assert echo is not None
    ending = asyncio.ensure_future(a.runtime.join(echo))
    await asyncio.sleep(0)
    await b.close()
    assert await asyncio.wait_for(ending, 20) == "noconnection"
    with pytest.raises(CallExit, match="noconnection"):
        await a.runtime.call(echo, 1)
    with pytest.raises(CallExit, match="noconnection"):
        await a.whereis("echo", "b")
    with pytest.raises(TimeoutError):
        await a.connected("b", 0.01)
    b2 = await made("b")
    await b2.listen(address)
    await _echo(a, "b")


async def test_a_link_that_is_broken_comes_back(made: Made) -> None:
    a, b = await made("a"), await made("b")
    a.dial(await b.listen("127.0.0.1:0"))
    for _ in range(3):
        await _echo(a, "b")
        b.disconnect("a")
        await eventually(lambda: a.nodes == [])
    await _echo(b, "a")


async def test_nodes_with_other_secrets_are_not_linked(
    made: Made, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = await made("a", Security(b"another secret of tests")), await made("b")
    a.dial(await b.listen("127.0.0.1:0"))
    await eventually(lambda: "does not know the secret" in caplog.text)

    assert (a.nodes, b.nodes) == ([], [])


async def test_a_stranger_is_closed_after_a_while_and_holds_nobody_up(made: Made) -> None:
    a = await made("a")
    b = await made("b", limits=LinkLimits(handshake_s=0.2, handshakes_max=5))
    host, _, port = (await b.listen("127.0.0.1:0")).rpartition(":")
    for data in (b"", b"GET / HTTP/1.1\r\n\r\n", b"LVRTLNK\x01"):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(data)
        assert await asyncio.wait_for(reader.read(), 20) == b""
        writer.close()
    strangers = [socket.create_connection((host, int(port))) for _ in range(20)]
    await eventually(lambda: len(b._shaking) <= 5)
    a.dial(f"{host}:{port}")
    await _echo(a, "b")
    for stranger in strangers:
        stranger.close()


async def test_a_stranger_costs_little_memory(made: Made) -> None:
    b = await made("b", limits=LinkLimits(handshakes_max=200))
    host, _, port = (await b.listen("127.0.0.1:0")).rpartition(":")
    strangers: list[socket.socket] = []

    async def come(count: int) -> None:
        for _ in range(count):
            strangers.append(socket.create_connection((host, int(port))))
            strangers[-1].send(b"LVRTLNK\x01\xff" + b"x" * 200)
        await eventually(
            lambda: sum(len(each.handshake._came) == 209 for each in b._shaking) == len(strangers)
        )

    await come(10)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    await come(100)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    for stranger in strangers:
        stranger.close()

    assert (after - before) / 100 < 64 * 1024


async def test_a_stranger_that_is_dialled_costs_little_memory(made: Made) -> None:
    b = await made("b", limits=LinkLimits(handshakes_max=200))
    answers: list[asyncio.StreamWriter] = []

    async def stranger(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(9)
        writer.write(b"LVRTLNK\x01\xff" + b"x" * 200)
        answers.append(writer)

    servers = [await asyncio.start_server(stranger, "127.0.0.1", 0) for _ in range(110)]
    addresses = [f"127.0.0.1:{each.sockets[0].getsockname()[1]}" for each in servers]

    async def dial(begin: int, end: int) -> None:
        for address in addresses[begin:end]:
            b.dial(address)
        await eventually(
            lambda: sum(len(each.handshake._came) == 209 for each in b._shaking) == end
        )

    await dial(0, 10)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    await dial(10, 110)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    await b.close()
    for writer in answers:
        writer.transport.abort()
    for server in servers:
        server.close()
    await asyncio.gather(*(writer.wait_closed() for writer in answers))

    assert (after - before) / 100 < 64 * 1024, "the strangers' side is in it"


async def test_a_stranger_learns_a_name_and_nothing_else(made: Made) -> None:
    b = await made("b")
    host, _, port = (await b.listen("127.0.0.1:0")).rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    claim = Claim(1, 0)
    stranger = Handshake("s/1", b"another secret of tests", b"n" * 32, True, lambda *_: claim)
    writer.write(stranger.begin())
    hello = await asyncio.wait_for(reader.readexactly(9 + len(b.runtime.node) + 32), 20)
    writer.write(stranger.receive(hello) + frame(1, Kind.OPEN, 1, b"\x92\xc0\x01"))
    rest = await asyncio.wait_for(reader.read(), 20)
    writer.close()

    assert rest == b""
    assert b.runtime.node.encode() in hello
    assert b.nodes == []


async def test_what_cannot_be_dialled_is_tried_again(made: Made) -> None:
    a, b = await made("a"), await made("b")
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    a.dial(address)
    await asyncio.sleep(0)
    await b.listen(address)
    await _echo(a, "b")
    a.hang_up(address)
    a.disconnect("b")
    with pytest.raises(TimeoutError):
        await a.connected("b", 0.3)


@pytest.mark.parametrize("address", ["", "host", "host:", ":5", "host:x", "host:70000", "unix:"])
async def test_an_address_that_is_none_is_refused(made: Made, address: str) -> None:
    a = await made("a")
    with pytest.raises(ConfigError, match="no address"):
        a.dial(address)
    with pytest.raises(ConfigError, match="no address"):
        await a.listen(address)


def _contexts(authority: Authority, name: str) -> dict[str, ssl.SSLContext]:
    issued = authority.issue(name, f"subjectAltName=DNS:localhost,DNS:{name},IP:127.0.0.1")
    listener = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.cert))
    listener.load_cert_chain(*issued.pair)
    listener.verify_mode = ssl.CERT_REQUIRED
    return {"listener_tls": listener, "dialler_tls": authority.client(issued)}


@pytest.mark.parametrize("secret", [b"", b"a secret of tests"])
async def test_nodes_know_each_other_by_their_certificates(
    made: Made, tmp_path: Path, secret: bytes
) -> None:
    authority = Authority(tmp_path)
    a = await made("a", Security(secret, **_contexts(authority, "a")))
    b = await made("b", Security(secret, **_contexts(authority, "b")))
    a.dial(await b.listen("127.0.0.1:0"))
    await _echo(a, "b")
    await _echo(b, "a")


async def test_a_host_of_which_one_address_is_taken_is_not_listened_on(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.2", 0)) as taken, socket.socket() as client:
        port = taken.getsockname()[1]
        places = [("127.0.0.1", port), ("127.0.0.2", port)]
        infos = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", place) for place in places]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: infos)
        node = await made("a", Security(**_contexts(Authority(tmp_path), "a")))
        with pytest.raises(OSError, match="in use"):
            await node.listen(f"here:{port}")

        with pytest.raises(ConnectionRefusedError):
            client.connect(places[0])


async def test_a_certificate_of_another_name_or_authority_is_refused(
    made: Made, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority, other = Authority(tmp_path / "one"), Authority(tmp_path / "other")
    b = await made("b", Security(**_contexts(authority, "b")))
    address = await b.listen("127.0.0.1:0")
    liar = await made("a", Security(**_contexts(authority, "c")))
    liar.dial(address)
    await eventually(lambda: "its name must be in it" in caplog.text)
    stranger = await made("s", Security(**_contexts(other, "s")))
    stranger.dial(address)
    plain = await made("p")
    plain.dial(address)
    with pytest.raises(TimeoutError):
        await stranger.connected("b", 0.3)

    assert b.nodes == []


def test_security_that_authenticates_nobody_is_refused(tmp_path: Path) -> None:
    contexts = _contexts(Authority(tmp_path), "a")
    open_context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    for settings, text in (
        ({}, "need a secret, or TLS"),
        ({"secret": b"short"}, "16 at least"),
        ({"listener_tls": open_context}, "two contexts"),
        ({**contexts, "listener_tls": open_context}, "does not demand a certificate"),
    ):
        with pytest.raises(ConfigError, match=text):
            Security(**settings)
    assert "short" not in repr(Security(b"short" * 5))
