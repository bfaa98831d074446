"""Many operations in few requests, on a real etcd."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from leveret.etcd.background import Background
from leveret.etcd.batched import REQUESTS_MAX, BatchedKeyValues
from leveret.etcd.client import EtcdClient
from leveret.etcd.errors import ClusterError, TooLargeError, UnavailableError
from leveret.etcd.gateway import VALUE_BYTES_MAX
from leveret.etcd.gateway_txns import EXCHANGE_MAX, exchange_answer
from leveret.etcd.key_values import OnOutcomes, Operation, Outcome, Read, Row, Swap
from leveret.etcd.settings import EtcdSettings
from rigs.cluster.etcd import Etcd

PATIENT = {"timeout_s": 20.0, "connect_timeout_s": 20.0}  # the machine may be busy


class Counted:
    """An exchanger that notes how many operations each request has, and how many are under way."""

    def __init__(self, background: Background) -> None:
        self.background = background
        self.sizes: list[int] = []
        self.most = self._under_way = 0

    def exchange(self, operations: Sequence[Operation], then: OnOutcomes) -> None:
        self.sizes.append(len(operations))
        self._under_way += 1
        self.most = max(self.most, self._under_way)

        def answer(outcomes: Sequence[Outcome] | ClusterError) -> None:
            self._under_way -= 1
            then(outcomes)

        self.background.exchange(operations, answer)


class Asked:
    """A client with batches, and the answers by the order of the questions."""

    def __init__(self, client: EtcdClient) -> None:
        self.background = Background(client)
        self.counted = Counted(self.background)
        self.batched = BatchedKeyValues(self.counted)
        self.answers: dict[int, object] = {}
        self._asked = 0

    def read(self, key: str) -> None:
        self.batched.read(key, self._then())

    def swap(self, key: str, value: bytes | None, revision: int) -> None:
        self.batched.swap(key, value, revision, self._then())

    def _then(self):
        at, self._asked = self._asked, self._asked + 1

        def answer(found: object) -> None:
            assert at not in self.answers
            self.answers[at] = found

        return answer

    async def all(self) -> list[object]:
        """Return the answers since the last time."""
        for _ in range(1_000):
            if len(self.answers) == self._asked:
                break
            await self.background.settle()
            await asyncio.sleep(0)
        else:
            raise AssertionError(f"{len(self.answers)} answers to {self._asked} questions")
        answers, self.answers, self._asked = self.answers, {}, 0
        return [answers[at] for at in sorted(answers)]


@pytest.fixture
async def asked(etcd: Etcd) -> AsyncIterator[Asked]:
    async with EtcdClient(EtcdSettings((etcd.url,), **PATIENT)) as client:
        yield Asked(client)


async def test_many_changes_go_in_few_requests(asked: Asked, name: str) -> None:
    count = 10 * EXCHANGE_MAX + 1
    for at in range(count):
        asked.swap(f"/{name}/{at}", b"%d" % at, 0)
    swaps = await asked.all()

    assert asked.counted.sizes == [EXCHANGE_MAX] * 10 + [1]
    assert asked.counted.most == REQUESTS_MAX
    rows = [swap.row for swap in swaps if isinstance(swap, Swap) and swap.is_done]
    assert [row and (row.key, row.value) for row in rows] == [
        (f"/{name}/{at}", b"%d" % at) for at in range(count)
    ]
    for at in range(count):
        asked.read(f"/{name}/{at}")
    assert await asked.all() == rows, "with the revisions of the writes"


async def test_each_operation_succeeds_or_fails_for_itself(asked: Asked, name: str) -> None:
    asked.swap(f"/{name}/there", b"1", 0)
    (made,) = await asked.all()
    assert isinstance(made, Swap)
    assert made.row is not None

    asked.swap(f"/{name}/there", b"2", made.row.revision + 1)
    asked.swap(f"/{name}/new", b"3", 0)
    asked.swap(f"/{name}/missing", None, 7)
    asked.read(f"/{name}/nothing")
    asked.swap(f"/{name}/{'k' * 5_000}", b"", 0)
    asked.swap(f"/{name}/large", bytes(VALUE_BYTES_MAX + 1), 0)
    conflict, new, missing, nothing, long, large = await asked.all()

    assert conflict == Swap(False, made.row)
    assert isinstance(new, Swap)
    assert new.is_done
    assert missing == Swap(False, None)
    assert nothing is None
    assert isinstance(long, TooLargeError)
    assert isinstance(large, TooLargeError)
    assert asked.counted.sizes == [1, 4]


async def test_operations_on_one_key_are_made_one_after_the_other(asked: Asked, name: str) -> None:
    key = f"/{name}/k"
    asked.swap(key, b"1", 0)
    asked.swap(key, b"2", 0)
    asked.read(key)
    asked.swap(f"/{name}/other", b"3", 0)
    first, second, read, other = await asked.all()

    assert isinstance(first, Swap)
    assert first.is_done
    assert second == Swap(False, first.row)
    assert read == first.row
    assert isinstance(other, Swap)
    assert other.is_done


async def test_large_values_are_divided_among_requests(asked: Asked, name: str) -> None:
    for at in range(5):
        asked.swap(f"/{name}/{at}", bytes(400_000), 0)
    assert all(isinstance(each, Swap) and each.is_done for each in await asked.all())
    assert asked.counted.sizes == [2, 2, 1]


async def test_the_error_of_a_request_is_that_of_all_its_operations(etcd: Etcd) -> None:
    client = EtcdClient(EtcdSettings((etcd.url,), **PATIENT))
    asked = Asked(client)
    await client.close()
    asked.read("/k")
    asked.swap("/l", b"", 0)

    assert [type(each) for each in await asked.all()] == [UnavailableError, UnavailableError]


def test_an_answer_that_is_another_ones_is_refused() -> None:
    for body in (b'{"responses": []}', b'{"responses": [{"response_txn": {}}]}', b"[]"):
        with pytest.raises(ClusterError):
            exchange_answer([Read("/k")], body)
    row = b'{"responses": [{"response_range": {"header": {}, "kvs": [{"key": "L2s=", "mod_revision": "5"}]}}]}'
    assert exchange_answer([Read("/k")], row) == [Row("/k", b"", 5)]


async def test_an_operation_waits_for_earlier_ones_on_its_key() -> None:
    sent: list[tuple[Sequence[Operation], OnOutcomes]] = []

    class Late:
        def exchange(self, operations: Sequence[Operation], then: OnOutcomes) -> None:
            sent.append((operations, then))

    batched, found = BatchedKeyValues(Late()), list[object]()
    batched.read("/k", found.append)
    batched.read("/k", found.append)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [operations for operations, _ in sent] == [[Read("/k")]]

    batched.read("/other", found.append)
    await asyncio.sleep(0)
    assert [operations for operations, _ in sent[1:]] == [[Read("/other")]]
    sent[0][1]([None])
    await asyncio.sleep(0)
    assert [operations for operations, _ in sent[2:]] == [[Read("/k")]]
