"""BatchedKeyValues: many reads and compare-and-swaps in few requests.

When a node of a cluster ends, the record of each replica that it had changes: thousands of small requests at once. etcd
syncs its disk for each request that writes. So operations wait while four requests are under way, and the next request
takes up to 127 of them. Each operation succeeds or fails for itself; if a request fails, all its operations fail with
the same error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from leveret.etcd.errors import ClusterError
from leveret.etcd.gateway_txns import EXCHANGE_MAX, TXN_BYTES_MAX, operation
from leveret.etcd.key_values import CompareAndSwap, Operation, Read

if TYPE_CHECKING:
    from leveret.etcd.key_values import OnOutcomes, OnRow, OnSwap, Outcome

REQUESTS_MAX: Final = 4  # under way


class Exchanger(Protocol):
    """What carries out several operations at once: ``Background``."""

    def exchange(self, operations: Sequence[Operation], then: OnOutcomes) -> None:
        """Answer the outcome of each operation, on different keys, or the error of all."""


class _Waiting(NamedTuple):
    operation: Operation
    then: Callable[[Any], None]
    size_bytes: int


class BatchedKeyValues:
    """``KeyValues`` on an ``Exchanger``."""

    def __init__(self, exchanger: Exchanger) -> None:
        self._exchanger = exchanger
        self._waiting: list[_Waiting] = []
        self._requests = 0
        self._under_way: set[str] = set()  # keys: operations on one key are made in their order
        self._is_due = False

    def read(self, key: str, then: OnRow) -> None:
        self._add(Read(key), then)

    def swap(self, key: str, value: bytes | None, revision: int, then: OnSwap) -> None:
        self._add(CompareAndSwap(key, value, revision), then)

    def _add(self, wanted: Operation, then: Callable[[Any], None]) -> None:
        try:
            operation(wanted)
        except ClusterError as error:  # a request with it would fail as a whole
            asyncio.get_running_loop().call_soon(then, error)
            return
        value = wanted.value if isinstance(wanted, CompareAndSwap) else None
        self._waiting.append(_Waiting(wanted, then, 4 * len(wanted.key) + len(value or b"")))
        self._plan()

    def _plan(self) -> None:
        """Send a request at the end of this turn, which may bring more operations."""
        if self._waiting and not self._is_due and self._requests < REQUESTS_MAX:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._send)

    def _send(self) -> None:
        self._is_due = False
        batch: dict[str, _Waiting] = {}
        later: list[_Waiting] = []
        size_bytes = 0
        for at, each in enumerate(self._waiting):
            size_bytes += each.size_bytes
            if len(batch) == EXCHANGE_MAX or (batch and size_bytes > TXN_BYTES_MAX):
                later += self._waiting[at:]
                break
            key = each.operation.key
            if key in self._under_way or batch.setdefault(key, each) is not each:
                later.append(each)
        self._waiting = later
        if not batch:
            return  # the next answer comes first
        self._under_way.update(batch)
        self._requests += 1
        operations = [each.operation for each in batch.values()]
        self._exchanger.exchange(operations, partial(self._answered, list(batch.values())))
        self._plan()

    def _answered(self, batch: list[_Waiting], outcomes: Sequence[Outcome] | ClusterError) -> None:
        self._requests -= 1
        self._under_way.difference_update([each.operation.key for each in batch])
        self._plan()
        if isinstance(outcomes, ClusterError):
            outcomes = [outcomes] * len(batch)  # type: ignore[list-item]  # each gets it
        for each, outcome in zip(batch, outcomes, strict=True):
            each.then(outcome)
