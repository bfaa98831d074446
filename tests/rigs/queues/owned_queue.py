"""A variable queue over a store on a real loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from leveret.core.message import BODY
from leveret.queue_backing.index.stored import StoredIndex
from leveret.queue_backing.variable.limits import Limits
from leveret.queue_backing.variable.queue import VariableQueue
from leveret.testing.virtual_clock import VirtualClock
from rigs.queues.variable_rig import UNBOUNDED, message
from rigs.store.live_store import LiveStore

SMALL = Limits(segment=64, io_batch=1, step=500, read_max=64, slack=0, read_ahead=32)


class Owned:
    """A queue that hears of its store in the loop."""

    def __init__(self, running: LiveStore, queue_no: int, is_new: bool = True) -> None:
        self.running = running
        self.queue_no = queue_no
        self.changed = asyncio.Event()
        client = running.store.client(queue_no, is_new)
        self.queue = VariableQueue(StoredIndex(client, self), VirtualClock(), SMALL)
        self.queue.init(not is_new)
        self.safe: set[int] = set()

    def confirmed(self, runs: list[tuple[int, int]]) -> None:
        for first, count in runs:
            self.safe.update(range(first, first + count))
        self.changed.set()

    def resume(self) -> None:
        self.queue.resume()
        self.changed.set()

    def nacked(self, runs: list[tuple[int, int]]) -> None:
        raise AssertionError(runs)

    def failed(self, error: Exception) -> None:
        raise error

    def publish(self, count: int, persistent: bool = True, first: int = 0) -> None:
        messages = [message(100, first + n) for n in range(count)]
        number = self.running.store.write(messages, (self.queue_no,)) if persistent else 0
        self.queue.publish(messages, persistent, first_msg_no=number)

    async def until(self, condition: Callable[[], Any]) -> None:
        async with asyncio.timeout(30):
            while not condition():
                while self.queue.needs_timeout():
                    self.queue.timeout()
                self.changed.clear()
                if not condition():
                    await self.changed.wait()

    async def fetch_all(self) -> list[bytes]:
        got: list[bytes] = []
        async with asyncio.timeout(30):
            while self.queue.len():
                self.changed.clear()
                fetched = self.queue.fetch(50, UNBOUNDED, ack_required=True)
                got += [each[BODY] for each in fetched.messages]
                self.queue.ack(fetched.seqs)
                while self.queue.needs_timeout():
                    self.queue.timeout()
                if fetched.pending:
                    await self.changed.wait()
        return got
