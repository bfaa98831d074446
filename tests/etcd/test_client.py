"""The client on a real etcd: reads, compare-and-swap, scans, logins, TLS, faults of servers and of the network.

Tests: etcd/background.py
"""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import itertools
import json
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from leveret.etcd.background import Background
from leveret.etcd.client import PAGE_ROWS, EtcdClient
from leveret.etcd.errors import (
    ClusterError,
    GatewayError,
    LoginRefusedError,
    TooLargeError,
    UnavailableError,
    UnknownOutcomeError,
)
from leveret.etcd.gateway import ANSWER_BYTES_MAX, AUTHENTICATE, VALUE_BYTES_MAX
from leveret.etcd.key_values import Row, Swap
from leveret.etcd.settings import EtcdSettings
from rigs.certificates import Authority
from rigs.cluster.etcd import Etcd
from rigs.faulty_proxy import Fault, FaultyProxy
from rigs.waiting import eventually

PATIENT = {"timeout_s": 20.0, "connect_timeout_s": 20.0}  # the machine may be busy


@pytest.fixture
async def client(etcd: Etcd) -> AsyncIterator[EtcdClient]:
    async with EtcdClient(EtcdSettings((etcd.url,), **PATIENT)) as made:
        yield made


@pytest.fixture
def nowhere() -> Iterator[str]:
    """An endpoint that refuses connections: its port is taken, and nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


async def test_a_value_is_written_only_over_the_revision_that_was_read(
    client: EtcdClient, name: str
) -> None:
    key = f"/{name}"
    assert await client.read(key) is None
    first = await client.swap(key, b"\x00\xff one", 0)
    assert first.row is not None
    assert first == Swap(True, Row(key, b"\x00\xff one", first.row.revision))
    assert await client.read(key) == first.row
    assert await client.swap(key, b"two", 0) == Swap(False, first.row)

    second = await client.swap(key, b"two", first.row.revision)
    assert second.row is not None
    assert second.row.revision > first.row.revision
    assert await client.swap(key, None, first.row.revision) == Swap(False, second.row)
    assert await client.swap(key, None, second.row.revision) == Swap(True, None)
    assert await client.swap(key, None, second.row.revision) == Swap(False, None)
    assert await client.read(key) is None


async def test_of_many_swaps_at_once_one_succeeds(client: EtcdClient, name: str) -> None:
    swaps = await asyncio.gather(*(client.swap(f"/{name}", b"%d" % at, 0) for at in range(50)))

    (winner,) = [swap for swap in swaps if swap.is_done]
    assert {swap.row for swap in swaps} == {winner.row}


async def test_a_scan_returns_all_pages_and_only_the_prefix(client: EtcdClient, name: str) -> None:
    count = PAGE_ROWS * 2 + 1
    wanted = [f"/{name}/a/{at:04}" for at in range(count)]
    await asyncio.gather(*(client.swap(key, key.encode(), 0) for key in wanted))
    await client.swap(f"/{name}/b", b"", 0)
    found = await client.scan(f"/{name}/a/")

    assert [row.key for row in found] == wanted
    assert all(row.value == row.key.encode() for row in found)
    assert await client.scan(f"/{name}/none/") == []


async def test_a_scan_of_large_values_takes_smaller_pages(client: EtcdClient, name: str) -> None:
    large = bytes(VALUE_BYTES_MAX)
    for at in range(26):
        assert (await client.swap(f"/{name}/{at:02}", large, 0)).is_done
    found = await client.scan(f"/{name}/")

    assert [len(row.value) for row in found] == [VALUE_BYTES_MAX] * 26
    for row in found:
        await client.swap(row.key, None, row.revision)


async def test_a_scan_during_a_compaction_begins_again(
    etcd: Etcd, client: EtcdClient, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for at in range(5):
        await client.swap(f"/{name}/{at}", b"", 0)
    monkeypatch.setattr("leveret.etcd.client.PAGE_ROWS", 2)
    asked, scan_request = itertools.count(), client_request()

    def with_compaction(prefix: str, after: str | None, limit: int, revision: int) -> bytes:
        if next(asked) == 1:
            etcd.post("/v3/kv/put", json.dumps({"key": "eA==", "value": "eA=="}))
            newest = json.loads(etcd.post("/v3/kv/range", '{"key":"eA=="}'))["header"]["revision"]
            etcd.post("/v3/kv/compaction", json.dumps({"revision": newest}))
        return scan_request(prefix, after, limit, revision)

    monkeypatch.setattr("leveret.etcd.client.gateway.scan_request", with_compaction)
    found = await client.scan(f"/{name}/")

    assert [row.key for row in found] == [f"/{name}/{at}" for at in range(5)]
    assert next(asked) == 5, "a page, one that was compacted, and three"


def client_request() -> Callable[[str, str | None, int, int], bytes]:
    from leveret.etcd import gateway

    return gateway.scan_request


async def test_a_value_above_etcds_own_limit_is_refused_with_the_remedy(tmp_path: Path) -> None:
    with Etcd(tmp_path, "--max-request-bytes", "10000") as small:
        async with EtcdClient(EtcdSettings((small.url,), **PATIENT)) as client:
            with pytest.raises(TooLargeError, match="--max-request-bytes"):
                await client.swap("/k", bytes(20_000), 0)
            with pytest.raises(TooLargeError, match=f"limit {VALUE_BYTES_MAX}"):
                await client.swap("/k", bytes(VALUE_BYTES_MAX + 1), 0)


# Servers that fail.


async def test_an_endpoint_that_refuses_is_passed_over_also_by_writes(
    etcd: Etcd, nowhere: str, name: str
) -> None:
    async with EtcdClient(EtcdSettings((nowhere, etcd.url), **PATIENT)) as client:
        assert (await client.swap(f"/{name}", b"1", 0)).is_done
        assert (await client.swap(f"/{name}", b"1", 0)).is_done is False


async def test_without_any_server_the_error_names_every_endpoint(nowhere: str) -> None:
    async with EtcdClient(EtcdSettings((nowhere, nowhere + "/"))) as client:
        for work in (client.read("/k"), client.swap("/k", b"", 0), client.scan("/k")):
            with pytest.raises(UnavailableError) as raised:
                await work
            assert str(raised.value).count(nowhere) >= 2


@asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[str]:
    """A server of HTTP that gives one answer to everything."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        with suppress(ConnectionError):  # the client has had enough
            writer.write(answer)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()


async def test_another_server_is_told_apart() -> None:
    answer = b"HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\nnot found"
    async with answering(answer) as url, EtcdClient(EtcdSettings((url,), **PATIENT)) as client:
        with pytest.raises(GatewayError, match="it is no etcd"):
            await client.read("/k")


async def test_an_answer_above_the_limit_is_not_taken() -> None:
    answer = b"HTTP/1.1 200 OK\r\n\r\n" + bytes(ANSWER_BYTES_MAX + 1)
    async with answering(answer) as url, EtcdClient(EtcdSettings((url,), **PATIENT)) as client:
        with pytest.raises(TooLargeError, match=f"above {ANSWER_BYTES_MAX} bytes"):
            await client.read("/k")


async def test_a_server_that_hangs_is_left_after_the_timeout_and_not_asked_again(
    etcd: Etcd, name: str
) -> None:
    async with FaultyProxy(etcd.port) as proxy:
        proxy.fail(Fault.SILENCE)
        settings = EtcdSettings((proxy.url, etcd.url), timeout_s=1.0, connect_timeout_s=20.0)
        async with EtcdClient(settings) as client:
            await client.read(f"/{name}")
            assert proxy.faults == 1
            proxy.fail(Fault.SILENCE)
            await client.read(f"/{name}")
            assert proxy.faults == 1, "the second one goes to the server that has answered"


FAULTS = {
    "the request was lost": (Fault.LOSE_REQUEST, False),
    "the answer was lost": (Fault.LOSE_ANSWER, True),
    "the answer is late": (Fault.SILENCE, True),
}


@pytest.mark.parametrize("what", FAULTS)
async def test_a_write_without_an_answer_has_an_unknown_outcome(
    etcd: Etcd, client: EtcdClient, name: str, what: str
) -> None:
    fault, has_effect = FAULTS[what]
    async with FaultyProxy(etcd.port) as proxy:
        settings = EtcdSettings((proxy.url, etcd.url), timeout_s=1.5, connect_timeout_s=20.0)
        async with EtcdClient(settings) as faulty:
            await faulty.read(f"/{name}")  # the connection is there
            proxy.fail(fault)
            with pytest.raises(UnknownOutcomeError, match="read again"):
                await faulty.swap(f"/{name}", b"1", 0)
            assert (await faulty.read(f"/{name}") is not None) is has_effect
            assert proxy.faults == 1, "the read goes to the other endpoint"


async def test_a_read_whose_answer_is_lost_is_made_again_at_another_endpoint(
    etcd: Etcd, client: EtcdClient, name: str
) -> None:
    await client.swap(f"/{name}", b"1", 0)
    async with FaultyProxy(etcd.port) as proxy:
        proxy.fail(Fault.LOSE_ANSWER)
        settings = EtcdSettings((proxy.url, etcd.url), **PATIENT)
        async with EtcdClient(settings) as faulty:
            row = await faulty.read(f"/{name}")

    assert row is not None
    assert proxy.faults == 1


async def test_a_server_that_was_killed_serves_again_after_its_restart(tmp_path: Path) -> None:
    with Etcd(tmp_path) as server:
        async with EtcdClient(EtcdSettings((server.url,), **PATIENT)) as client:
            assert (await client.swap("/k", b"1", 0)).is_done
            server.kill()
            with pytest.raises(UnavailableError, match=r"cannot be reached|has not answered"):
                await client.read("/k")
            await asyncio.to_thread(server.start)
            row = await client.read("/k")

    assert row is not None
    assert row.value == b"1"


async def test_a_server_that_stands_still_is_bounded_in_time(tmp_path: Path) -> None:
    with Etcd(tmp_path) as server:
        settings = EtcdSettings((server.url,), timeout_s=0.2, connect_timeout_s=0.2)
        async with EtcdClient(settings) as client:
            server.pause()
            try:
                with pytest.raises(UnavailableError, match=r"has not answered|cannot be reached"):
                    await client.read("/k")
                with pytest.raises((UnknownOutcomeError, UnavailableError)):
                    await client.swap("/k", b"1", 0)
            finally:
                server.resume()


async def test_a_closed_client_refuses_and_its_requests_under_way_fail(etcd: Etcd) -> None:
    async with FaultyProxy(etcd.port) as proxy:
        proxy.fail(Fault.SILENCE)
        client = EtcdClient(EtcdSettings((proxy.url,), **PATIENT))
        waiting = asyncio.create_task(client.read("/k"))
        await eventually(lambda: proxy.faults)
        await client.close()
        with pytest.raises(UnavailableError):
            await waiting
        with pytest.raises(UnavailableError, match="closed"):
            await client.read("/k")
        await client.close()


# Logins.


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    """An etcd with the users root and u, who may use /allowed; tokens are valid for two seconds."""
    folder = tmp_path_factory.mktemp("guarded")
    with Etcd(folder, "--auth-token", "simple", "--auth-token-ttl", "2") as server:
        for user in ("root", "u"):
            server.post("/v3/auth/user/add", json.dumps({"name": user, "password": "secret"}))
        server.post("/v3/auth/user/grant", json.dumps({"user": "root", "role": "root"}))
        server.post("/v3/auth/role/add", json.dumps({"name": "r"}))
        grant = {"permType": "READWRITE", "key": "L2E=", "range_end": "L2I="}  # /a to /b
        server.post("/v3/auth/role/grant", json.dumps({"name": "r", "perm": grant}))
        server.post("/v3/auth/user/grant", json.dumps({"user": "u", "role": "r"}))
        server.post("/v3/auth/enable", "{}")
        yield server


def as_user(server: Etcd, password: str = "secret") -> EtcdSettings:
    return EtcdSettings((server.url,), user="u", password=password, **PATIENT)


async def test_a_user_reads_and_writes_what_it_may(guarded: Etcd, name: str) -> None:
    async with EtcdClient(as_user(guarded)) as client:
        swaps = await asyncio.gather(*(client.swap(f"/a{name}{at}", b"1", 0) for at in range(20)))
        assert all(swap.is_done for swap in swaps)
        with pytest.raises(LoginRefusedError, match="grant the user's role"):
            await client.read("/z")


async def test_a_wrong_password_and_a_missing_login_are_refused(guarded: Etcd) -> None:
    for settings in (as_user(guarded, "wrong"), EtcdSettings((guarded.url,), **PATIENT)):
        async with EtcdClient(settings) as client:
            with pytest.raises(LoginRefusedError, match="set user and password"):
                await client.swap("/a", b"1", 0)


async def test_a_login_where_there_is_none_is_refused(etcd: Etcd) -> None:
    async with EtcdClient(as_user(etcd)) as client:
        with pytest.raises(LoginRefusedError, match="authentication is not enabled"):
            await client.read("/a")


async def test_a_token_that_has_become_old_is_renewed_once_for_all(guarded: Etcd) -> None:
    async with FaultyProxy(guarded.port) as proxy:
        settings = dataclasses.replace(as_user(guarded), endpoints=(proxy.url,))
        async with EtcdClient(settings) as client:
            await client.read("/a")
            client._token = "no token.1"
            await asyncio.gather(*(client.read("/a") for _ in range(20)))
            assert client._token != "no token.1"
        assert proxy.paths.count(AUTHENTICATE) == 2


async def test_a_change_of_users_makes_tokens_old_and_is_survived(guarded: Etcd, name: str) -> None:
    async with EtcdClient(as_user(guarded)) as client:
        await client.read("/a")
        login = json.loads(
            guarded.post("/v3/auth/authenticate", '{"name":"root","password":"secret"}')
        )
        guarded.post(
            "/v3/auth/user/add", json.dumps({"name": name, "password": "x"}), login["token"]
        )
        assert (await client.swap(f"/a{name}", b"1", 0)).is_done


# TLS.


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


async def test_tls_with_certificates_of_both_sides(authority: Authority, tmp_path: Path) -> None:
    server, own = authority.issue("etcd"), authority.issue("leveret")
    options = (
        "--cert-file", str(server.cert), "--key-file", str(server.key), "--client-cert-auth",
        "--trusted-ca-file", str(authority.cert),
    )  # fmt: skip
    with Etcd(tmp_path, *options, scheme="https") as running:
        known: dict[str, Any] = {"ca_file": authority.cert, **PATIENT}
        settings = EtcdSettings((running.url,), cert_file=own.cert, key_file=own.key, **known)
        async with EtcdClient(settings) as client:
            assert (await client.swap("/k", b"1", 0)).is_done
        async with EtcdClient(EtcdSettings((running.url,), **known)) as stranger:
            with pytest.raises(UnavailableError):
                await stranger.read("/k")
        async with EtcdClient(EtcdSettings((running.url,), **PATIENT)) as distrustful:
            with pytest.raises(UnavailableError, match="see the certificates"):
                await distrustful.read("/k")


# Without waiting.


async def test_in_the_background_every_request_is_answered_once(
    client: EtcdClient, nowhere: str, name: str
) -> None:
    answers: list[object] = []
    background = Background(client)
    background.swap(f"/{name}", b"1", 0, answers.append)
    background.read("/none", answers.append)
    await background.settle()
    assert [type(answer) for answer in answers] in ([Swap, type(None)], [type(None), Swap])

    answers.clear()
    async with EtcdClient(EtcdSettings((nowhere,))) as lost:
        background = Background(lost)
        background.swap("/k", b"1", 0, answers.append)
        background.read("/k", answers.append)
        await background.settle()
    assert len(answers) == 2
    assert all(isinstance(answer, ClusterError) for answer in answers)


async def test_requests_that_are_cancelled_before_they_begin_leave_nothing(nowhere: str) -> None:
    """A coroutine that nobody awaits would be a RuntimeWarning, which is an error here."""
    answers: list[object] = []
    async with EtcdClient(EtcdSettings((nowhere,))) as lost:
        background = Background(lost)
        background.read("/k", answers.append)
        background.watch("/", 1, answers.append)
        background.cancel()
        await background.settle()
        gc.collect()

    assert answers == []
