"""The client for code that cannot wait: an actor's turn, a state machine's driver."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from leveret.etcd.errors import ClusterError, UnavailableError
from leveret.etcd.key_values import (
    OnAlive,
    OnEvents,
    OnLease,
    OnOutcomes,
    OnRow,
    OnScan,
    OnSwap,
    OnTxn,
    Operation,
    Txn,
)

if TYPE_CHECKING:
    from leveret.etcd.client import EtcdClient

_T = TypeVar("_T")
_Request: TypeAlias = "Callable[[], Coroutine[Any, Any, _T]]"


class Background:
    """``KeyValues`` and ``WatchedStore`` on a client. Each request, and each watch, is a task.

    Args:
        client: asked; it may have other users.
    """

    def __init__(self, client: EtcdClient) -> None:
        self._client = client
        self._tasks: set[asyncio.Task[None]] = set()

    def read(self, key: str, then: OnRow) -> None:
        self._start(partial(self._client.read, key), then)

    def swap(self, key: str, value: bytes | None, revision: int, then: OnSwap) -> None:
        self._start(partial(self._client.swap, key, value, revision), then)

    def exchange(self, operations: Sequence[Operation], then: OnOutcomes) -> None:
        """Answer the outcome of each operation, or the error of all; see ``EtcdClient.exchange``."""
        self._start(partial(self._client.exchange, operations), then)

    def scan(self, prefix: str, then: OnScan) -> None:
        self._start(partial(self._client.scan_at, prefix), then)

    def transact(self, txn: Txn, then: OnTxn) -> None:
        self._start(partial(self._client.transact, txn), then)

    def grant(self, ttl_s: int, then: OnLease) -> None:
        self._start(partial(self._client.grant, ttl_s), then)

    def keep_alive(self, lease: int, then: OnAlive) -> None:
        self._start(partial(self._client.keep_alive, lease), then)

    def revoke(self, lease: int, then: OnAlive) -> None:
        self._start(partial(self._client.revoke, lease), then)

    def watch(self, prefix: str, revision: int, on_events: OnEvents) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(self._watch(prefix, revision, on_events))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _watch(self, prefix: str, revision: int, on_events: OnEvents) -> None:
        error: ClusterError = UnavailableError("the watch has ended")
        try:
            async with aclosing(self._client.watch(prefix, revision)) as stream:
                async for events in stream:
                    on_events(events)
        except ClusterError as failure:
            error = failure
        on_events(error)

    def cancel(self) -> None:
        """End all requests and watches; their callbacks are not called any more."""
        for task in self._tasks:
            task.cancel()

    async def settle(self) -> None:
        """Wait until every request has been answered; close the client first to have that soon."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _start(self, request: _Request[_T], then: Callable[[_T | ClusterError], None]) -> None:
        task = asyncio.get_running_loop().create_task(_answer(request, then))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _answer(request: _Request[_T], then: Callable[[_T | ClusterError], None]) -> None:
    try:
        # The request's coroutine is made here, since a task may be cancelled before it begins.
        answer: _T | ClusterError = await request()
    except ClusterError as error:
        answer = error
    then(answer)
