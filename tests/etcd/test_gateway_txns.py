"""Transactions, leases and watches: their forms, and on a real etcd."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from leveret.etcd.background import Background
from leveret.etcd.client import EtcdClient
from leveret.etcd.errors import (
    ClusterError,
    CompactedError,
    GatewayError,
    LeaseGoneError,
    TooLargeError,
    UnavailableError,
    UnknownOutcomeError,
)
from leveret.etcd.gateway import VALUE_BYTES_MAX
from leveret.etcd.gateway_txns import (
    OPERATIONS_MAX,
    TXN_BYTES_MAX,
    grant_answer,
    keep_alive_answer,
    txn_answer,
    txn_request,
    watch_events,
)
from leveret.etcd.key_values import Delete, Event, Expect, Put, Row, Txn
from leveret.etcd.settings import EtcdSettings
from rigs.cluster.etcd import Etcd
from rigs.faulty_proxy import Fault, FaultyProxy
from rigs.waiting import eventually

PATIENT = {"timeout_s": 20.0, "connect_timeout_s": 20.0}  # the machine may be busy


def b64(text: bytes) -> str:
    return base64.b64encode(text).decode()


# Forms.


@pytest.mark.parametrize(
    ("txn", "words"),
    [
        (Txn([Expect(f"/{at}", 0) for at in range(OPERATIONS_MAX)], [], "/p"), "128 preconditions"),
        (Txn([], [Delete(f"/{at}") for at in range(OPERATIONS_MAX)], "/p"), "128 writes"),
        (Txn([], [Put("/k", bytes(VALUE_BYTES_MAX + 1))], "/p"), "value of 524289 bytes"),
        (Txn([], [Put(f"/{at}", bytes(400_000)) for at in range(3)], "/p"), f"{TXN_BYTES_MAX}"),
    ],
)
def test_a_transaction_above_a_limit_is_refused_before_it_is_sent(txn: Txn, words: str) -> None:
    with pytest.raises(TooLargeError, match=words):
        txn_request(txn)


def _line(**fields: Any) -> bytes:
    return json.dumps({"result": {"header": {"revision": "9"}, **fields}}).encode()


def test_a_line_of_a_watch_is_events_or_an_error() -> None:
    put = {"kv": {"key": b64(b"/k"), "mod_revision": "7", "value": b64(b"v"), "lease": "3"}}
    delete = {"type": "DELETE", "kv": {"key": b64(b"/k"), "mod_revision": "8"}}

    assert watch_events(_line(created=True), "e") == []
    assert watch_events(_line(events=[put, delete]), "e") == [
        Event("/k", b"v", 7, 3),
        Event("/k", None, 8),
    ]
    with pytest.raises(CompactedError, match="revision 5"):
        watch_events(_line(canceled=True, compact_revision="5"), "e")
    with pytest.raises(GatewayError, match="permission denied"):
        watch_events(_line(canceled=True, cancel_reason="permission denied"), "e")
    with pytest.raises(GatewayError, match="too large"):
        watch_events(b'{"error":{"message":"received message too large"}}', "e")
    with pytest.raises(GatewayError):
        watch_events(b"nonsense", "e")


def test_answers_that_are_none_of_etcds_are_errors() -> None:
    txn = Txn([Expect("/k", 0)], [], "/p")
    short = json.dumps({"header": {"revision": "1"}, "responses": []}).encode()
    for read in (lambda body: txn_answer(txn, body), grant_answer, keep_alive_answer):
        for body in (b"{}", b"[]", short):
            with pytest.raises(GatewayError):
                read(body)


# On a real etcd.


@pytest.fixture
async def client(etcd: Etcd) -> AsyncIterator[EtcdClient]:
    async with EtcdClient(EtcdSettings((etcd.url,), **PATIENT)) as made:
        yield made


async def test_a_transaction_is_made_wholly_or_not_at_all(client: EtcdClient, name: str) -> None:
    one, two, read = f"/{name}/1", f"/{name}/2", f"/{name}/"
    made = await client.transact(
        Txn([Expect(one, 0), Expect(two, 0)], [Put(one, b"1"), Put(two, b"2")], read)
    )
    assert made.is_done
    assert made.rows == [Row(one, b"1", made.revision), Row(two, b"2", made.revision)]

    failed = await client.transact(
        Txn([Expect(one, made.revision), Expect(two, 0)], [Put(one, b"x"), Delete(two)], read)
    )
    assert not failed.is_done
    assert failed.found == {one: made.revision, two: made.revision}
    assert failed.rows == made.rows

    deleted = await client.transact(Txn([Expect(one, made.revision)], [Delete(one)], read))
    assert deleted.is_done
    assert deleted.rows == [Row(two, b"2", made.revision)]
    assert (await client.transact(Txn([Expect(one, 0)], [], read))).is_done


async def test_a_full_transaction_is_taken(client: EtcdClient, name: str) -> None:
    keys = [f"/{name}/{at:03}" for at in range(OPERATIONS_MAX - 1)]
    expects, value = [Expect(key, 0) for key in keys], bytes(8000)
    answer = await client.transact(Txn(expects, [Put(key, value) for key in keys], f"/{name}/"))

    assert answer.is_done
    assert [row.key for row in answer.rows] == keys


async def test_keys_end_with_their_lease(client: EtcdClient, name: str) -> None:
    key, lease = f"/{name}/k", await client.grant(60)
    made = await client.transact(Txn([], [Put(key, b"v", lease)], key))

    assert made.rows == [Row(key, b"v", made.revision, lease)]
    assert await client.keep_alive(lease)
    assert await client.revoke(lease)
    assert await client.read(key) is None
    assert not await client.keep_alive(lease)
    assert not await client.revoke(lease)
    with pytest.raises(LeaseGoneError):
        await client.transact(Txn([], [Put(key, b"v", lease)], key))


async def test_a_watch_tells_of_every_write_from_a_revision_on(
    client: EtcdClient, name: str
) -> None:
    prefix = f"/{name}/"
    first = await client.transact(
        Txn([], [Put(f"{prefix}a", b"1"), Put(f"{prefix}b", b"")], prefix)
    )
    found: list[Event] = []
    async with aclosing(client.watch(prefix, first.revision)) as told:
        found += await anext(told)
        await client.swap(f"/{name}-other", b"", 0)
        last = await client.transact(Txn([], [Delete(f"{prefix}a")], prefix))
        found += await anext(told)

    assert sorted(found, key=lambda event: (event.key, event.revision)) == [
        Event(f"{prefix}a", b"1", first.revision),
        Event(f"{prefix}a", None, last.revision),
        Event(f"{prefix}b", b"", first.revision),
    ]


async def test_a_watch_of_a_compacted_revision_says_so(etcd: Etcd, name: str) -> None:
    async with EtcdClient(EtcdSettings((etcd.url,), **PATIENT)) as client:
        one = await client.transact(Txn([], [Put(f"/{name}/k", b"1")], f"/{name}/"))
        two = await client.transact(Txn([], [Put(f"/{name}/k", b"2")], f"/{name}/"))
        etcd.post("/v3/kv/compaction", json.dumps({"revision": two.revision}))
        with pytest.raises(CompactedError):
            async for _ in client.watch(f"/{name}/", one.revision):
                pass


async def test_a_watch_at_a_server_that_refuses_goes_to_the_next_one(etcd: Etcd, name: str) -> None:
    settings = EtcdSettings(("http://127.0.0.1:1", etcd.url), **PATIENT)
    async with EtcdClient(settings) as client:
        with pytest.raises(UnavailableError, match="cannot be reached"):
            await anext(client.watch(f"/{name}/", 1))
        made = await client.transact(Txn([], [Put(f"/{name}/k", b"")], f"/{name}/"))
        async with aclosing(client.watch(f"/{name}/", made.revision)) as told:
            assert await anext(told) == [Event(f"/{name}/k", b"", made.revision)]


async def test_a_transaction_whose_answer_is_lost_has_an_unknown_outcome(
    etcd: Etcd, name: str
) -> None:
    async with (
        FaultyProxy(etcd.port) as proxy,
        EtcdClient(EtcdSettings((proxy.url,), **PATIENT)) as client,
    ):
        proxy.fail(Fault.LOSE_ANSWER)
        with pytest.raises(UnknownOutcomeError):
            await client.transact(Txn([], [Put(f"/{name}/k", b"1")], f"/{name}/"))
        assert await client.read(f"/{name}/k") is not None
        proxy.fail(Fault.LOSE_ANSWER)
        with pytest.raises(UnavailableError):
            await client.transact(Txn([Expect(f"/{name}/k", 0)], [], f"/{name}/"))


async def test_a_watch_in_the_background_tells_its_events_and_its_end(
    etcd: Etcd, name: str
) -> None:
    told: list[object] = []
    client = EtcdClient(EtcdSettings((etcd.url,), **PATIENT))
    background = Background(client)
    made = await client.transact(Txn([], [Put(f"/{name}/k", b"")], f"/{name}/"))
    background.watch(f"/{name}/", made.revision, told.append)
    await eventually(lambda: bool(told))
    cancelled = background.watch(f"/{name}/", made.revision, told.append)
    cancelled.cancel()
    await client.close()
    await background.settle()

    assert told[0] == [Event(f"/{name}/k", b"", made.revision)]
    assert isinstance(told[1], ClusterError)
    assert len(told) == 2
    assert asyncio.all_tasks() == {asyncio.current_task()}
