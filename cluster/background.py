"""The client for code that cannot wait: an actor's turn, a state machine's driver."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from leveret.cluster.errors import ClusterError
from leveret.cluster.key_values import OnRow, OnSwap

if TYPE_CHECKING:
    from leveret.cluster.client import EtcdClient

_T = TypeVar("_T")


class Background:
    """``KeyValues`` on a client. Each request is a task.

    Args:
        client: asked; it may have other users.
    """

    def __init__(self, client: EtcdClient) -> None:
        self._client = client
        self._tasks: set[asyncio.Task[None]] = set()

    def read(self, key: str, then: OnRow) -> None:
        self._start(self._client.read(key), then)

    def swap(self, key: str, value: bytes | None, revision: int, then: OnSwap) -> None:
        self._start(self._client.swap(key, value, revision), then)

    async def settle(self) -> None:
        """Wait until every request has been answered; close the client first to have that soon."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _start(
        self, work: Coroutine[Any, Any, _T], then: Callable[[_T | ClusterError], None]
    ) -> None:
        task = asyncio.get_running_loop().create_task(_answer(work, then))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _answer(work: Coroutine[Any, Any, _T], then: Callable[[_T | ClusterError], None]) -> None:
    try:
        answer: _T | ClusterError = await work
    except ClusterError as error:
        answer = error
    then(answer)
