"""Metadata in a real etcd: several nodes in one process, each with connections of its own.

Tests: metadata/etcd/session_settings.py
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from random import Random

import pytest

from leveret.core.errors import ConfigError, StoreError
from leveret.etcd.settings import EtcdSettings
from leveret.metadata.etcd.session_settings import SessionSettings
from leveret.metadata.etcd.store import QUEUE_NOS, EtcdMetadata
from leveret.metadata.interface import ConflictError, Metadata
from leveret.metadata.reader import read_contents, read_counters
from leveret.metadata.tables import BindingRow, QueueRow, Row, VhostRow
from rigs.cluster.etcd import Etcd
from rigs.metadata.linearizability import DECLARE, DELETE, Operation, is_linearizable
from rigs.waiting import eventually

PATIENT = {"timeout_s": 20.0, "connect_timeout_s": 20.0}  # the machine may be busy
OPERATIONS = 40
ATTEMPTS = 50

VALID_S = 8.0

Open = Callable[..., Awaitable[EtcdMetadata]]


@pytest.fixture
async def opened(etcd: Etcd, name: str) -> AsyncIterator[Open]:
    """Opens nodes of one cluster; slow machines do not take them for dead."""
    stores: list[EtcdMetadata] = []

    async def opened(node: str, valid_s: float = VALID_S) -> EtcdMetadata:
        where = EtcdSettings((etcd.url,), **PATIENT)
        settings = SessionSettings(f"/{name}", valid_s=valid_s, suspect_s=60.0, lease_s=60)
        stores.append(await EtcdMetadata.open(where, node, f"uuid-{node}", settings))
        return stores[-1]

    yield opened
    for store in stores:
        store.close()
        await store.leave(0.0)


async def written(store: EtcdMetadata, puts: list[Row], deletes: list[Row]) -> StoreError | None:
    done: asyncio.Future[StoreError | None] = asyncio.get_running_loop().create_future()
    store.write(puts, deletes, done.set_result)
    return await done


async def synced(store: EtcdMetadata) -> None:
    done = asyncio.Event()
    store.when_applied(done.set)
    await done.wait()


def queue_of(store: EtcdMetadata, name: str) -> QueueRow | None:
    return next((row for row in store.load().queues if row.name == name), None)


async def test_it_is_a_metadata_store_whose_rows_are_on_all_nodes(
    opened: Open, tmp_path: Path
) -> None:
    one, two = await opened("one"), await opened("two")
    store: Metadata = one
    rows: list[Row] = [
        VhostRow("/"),
        QueueRow("/", "q\udcff", queue_no=one.next_queue_no()),
        BindingRow("/", "amq.topic", "queue", "q\udcff", b"\xff"),
        QueueRow("/", "transient", durable=False),
        BindingRow("/", "amq.topic", "queue", "transient"),
    ]
    assert await written(one, rows, []) is None
    assert sorted(map(repr, two.load().rows())) == sorted(map(repr, rows))
    assert isinstance(await written(two, [QueueRow("none", "q")], []), ConflictError)

    epochs = [each.next_boot_epoch() for each in (store, two) for _ in range(4)]
    assert len(set(epochs)) == 8
    assert epochs[:4] == sorted(epochs[:4])
    store.copy_to(tmp_path / "copy")
    assert sorted(map(repr, read_contents(tmp_path / "copy").rows())) == sorted(map(repr, rows[:3]))
    assert read_counters(tmp_path / "copy")[1] >= one.next_queue_no() - 1


async def test_queue_numbers_go_on_over_blocks_and_no_two_nodes_have_the_same(
    opened: Open,
) -> None:
    one, two = await opened("one"), await opened("two")
    taken: set[int] = set()
    for store in (one, two):
        numbers = [store.next_queue_no() for _ in range(QUEUE_NOS)]
        await eventually(lambda store=store: store._next_end)
        numbers += [store.next_queue_no() for _ in range(QUEUE_NOS)]
        assert not taken.intersection(numbers)
        assert len(set(numbers)) == 2 * QUEUE_NOS
        taken.update(numbers)
    with pytest.raises(StoreError, match="no number for a queue"):
        two.next_queue_no()  # the next block has been asked for, and nobody has waited for it


async def test_a_node_that_leaves_takes_its_own_queues_along(opened: Open) -> None:
    one, two = await opened("one"), await opened("two")
    assert await written(one, [VhostRow("/"), QueueRow("/", "q", durable=False)], []) is None
    last: list[object] = []
    one.write([QueueRow("/", "last")], [], last.append)
    await one.leave(20.0)

    assert last == [None]
    await eventually(lambda: queue_of(two, "q") is None)
    assert queue_of(two, "last") is not None
    with pytest.raises(StoreError, match="closed"):
        one.write([], [], last.append)


async def test_a_node_without_etcd_says_why_it_does_not_start() -> None:
    where = EtcdSettings(("http://127.0.0.1:1",))
    with pytest.raises(
        StoreError, match=r"has not joined its cluster in 5\.0 s: etcd is not avail"
    ):
        await EtcdMetadata.open(where, "n", "uuid", timeout_s=5.0)


async def test_rows_are_told_before_the_outcome_of_their_write(opened: Open) -> None:
    one, two = await opened("one"), await opened("two")
    told: list[tuple[str, object]] = []

    class Listener:
        def __init__(self, name: str) -> None:
            self.name = name

        def changed(self, changed: object) -> None:
            told.append((self.name, changed.puts))  # type: ignore[attr-defined]

        def live(self, is_live: bool) -> None:
            told.append((self.name, is_live))

    one.listener, two.listener = Listener("one"), Listener("two")
    one.write([VhostRow("/")], [], lambda error: told.append(("answer", error)))
    await eventually(lambda: ("answer", None) in told, within_s=60.0)

    assert sorted(told[:2], key=str) == [("one", [VhostRow("/")]), ("two", [VhostRow("/")])]
    assert told[2:] == [("answer", None)]


async def test_a_node_with_another_time_of_validity_is_refused_while_others_are_there(
    opened: Open,
) -> None:
    one = await opened("one")
    with pytest.raises(ConfigError, match="valid_s is 4, and 8 on node one: it must be the same"):
        await opened("two", 4.0)
    assert await written(one, [VhostRow("/")], []) is None, "it holds nobody up"
    await one.leave()

    two = await opened("two", 4.0)
    assert [row.name for row in two.load().vhosts] == ["/"]


async def test_a_node_goes_on_when_etcd_was_killed_and_compacted(tmp_path: Path, name: str) -> None:
    settings = SessionSettings(f"/{name}", lease_s=30, write_timeout_s=60.0)
    with Etcd(tmp_path) as etcd:
        where = EtcdSettings((etcd.url,), **PATIENT)
        stores = [await EtcdMetadata.open(where, each, each, settings) for each in ("a", "b")]
        assert await written(stores[0], [VhostRow("/")], []) is None
        etcd.kill()
        pending = asyncio.ensure_future(written(stores[0], [QueueRow("/", "q")], []))
        etcd.start()
        assert await pending is None
        newest = json.loads(etcd.post("/v3/kv/range", '{"key":"eA=="}'))["header"]["revision"]
        etcd.post("/v3/kv/compaction", json.dumps({"revision": newest}))
        assert await written(stores[1], [QueueRow("/", "r")], []) is None
        for store in stores:
            assert {row.name for row in store.load().queues} == {"q", "r"}
        for store in stores:
            await store.leave()


# Histories.


class Clients:
    """Clients of several nodes, each of which does one thing after the other."""

    def __init__(self, random: Random) -> None:
        self.operations: dict[str, list[Operation]] = {}
        self._random = random
        self._moments = itertools.count()
        self._identities = itertools.count(1)
        self._busy: set[tuple[int, str]] = set()

    async def run(self, store: EtcdMetadata) -> None:
        for _ in range(OPERATIONS):
            name = self._random.choice("ab")
            if self._random.random() < 0.6:
                row = QueueRow("/", name, queue_no=next(self._identities))
                await self._do(store, Operation(DECLARE, row.queue_no, next(self._moments)), row)
            else:
                operation = Operation(DELETE, None, next(self._moments))
                await self._do(store, operation, QueueRow("/", name))

    async def _do(self, store: EtcdMetadata, operation: Operation, row: QueueRow) -> None:
        self.operations.setdefault(row.name, []).append(operation)
        for _ in range(ATTEMPTS):
            found = queue_of(store, row.name)
            answer = None if found is None else found.queue_no
            if operation.kind == DECLARE and found is None:
                error = await written(store, [row], [])
                answer = row.queue_no
            elif operation.kind == DELETE and found is not None:
                error = await written(store, [], [row])
            else:
                error = None
                await synced(store)
            if not isinstance(error, ConflictError):
                break
        assert error is None, "no faults here"
        operation.answered_at, operation.answer = next(self._moments), answer


@pytest.mark.parametrize("nodes", [2, 3])
async def test_histories_of_real_nodes_are_linearizable(opened: Open, nodes: int) -> None:
    stores = [await opened(f"n{at}") for at in range(nodes)]
    assert await written(stores[0], [VhostRow("/")], []) is None
    clients = Clients(Random(nodes))
    await asyncio.gather(*(clients.run(store) for store in stores))

    for name, operations in clients.operations.items():
        assert is_linearizable(operations), name
    rows = [sorted(map(repr, store.load().rows())) for store in stores]
    assert all(each == rows[0] for each in rows)
