"""Reading a queue without consuming its messages."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from leveret.actors.runtime.signals import CallExit
from leveret.broker.queue_requests import Info
from leveret.core.entry import MESSAGE, SEQ
from leveret.core.errors import LeveretError
from leveret.queue_backing.proxy import BackingProxy
from leveret.testing.seen_messages import SeenMessage, seen

if TYPE_CHECKING:
    from leveret.broker.registry.registry import QueueEntry
    from leveret.core.entry import Entry
    from leveret.testing.broker import BrokerThread

PAUSE_S: Final = 0.005  # between two tries
SOON_S: Final = 5.0


class QueueNotRunningError(LeveretError):
    """The queue does not exist or does not run."""


class QueueInspector:
    """One queue of a vhost; every property is read from the queue at each access.

    Messages that a client has published without waiting for a confirm may still be in flight: use confirms or
    ``wait_until``.
    """

    def __init__(self, broker: BrokerThread, vhost: str, name: str) -> None:
        self._broker = broker
        self._vhost = vhost
        self.name = name

    @property
    def state(self) -> str:
        """``running``, ``crashed``, ``stopped`` and so on; ``missing`` if it does not exist."""
        entry = self._broker.run(self._queues).get(self.name)
        return "missing" if entry is None else entry.state

    @property
    def ready(self) -> int:
        return int(self._info()["messages_ready"])

    @property
    def unacked(self) -> int:
        return int(self._info()["messages_unacknowledged"])

    @property
    def depth(self) -> int:
        info = self._info()
        return int(info["messages_ready"] + info["messages_unacknowledged"])

    @property
    def consumers(self) -> int:
        return int(self._info()["consumers"])

    def messages(self) -> list[SeenMessage]:
        """Return ready and unacked messages in the order of publishing, without consuming them.

        A priority queue delivers in another order.
        """
        return self._broker.wait_for(self._messages())

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages()]

    def wait_until(
        self, holds: Callable[[QueueInspector], object], within_s: float = SOON_S
    ) -> None:
        """Wait until a predicate holds, such as ``lambda queue: queue.ready == 3``.

        Raises:
            AssertionError: the predicate did not hold within that time.
        """
        __tracebackhide__ = True
        deadline_s = time.monotonic() + within_s
        while not holds(self):
            if time.monotonic() > deadline_s:
                raise AssertionError(f"not so within {within_s} s: {self}")
            time.sleep(PAUSE_S)

    def __repr__(self) -> str:
        try:
            return f"<{self}>"
        except LeveretError as error:  # the broker is stopped, or the queue ends just now
            return f"<queue {self.name!r}: {error}>"

    def __str__(self) -> str:
        state = self.state
        if state != "running":
            return f"queue {self.name!r} {state}"
        return f"queue {self.name!r} ready={self.ready} unacked={self.unacked} consumers={self.consumers}"

    # Inside.

    def _queues(self) -> dict[str, QueueEntry]:
        """Return the vhost's queues; in the broker's thread."""
        vhost = self._broker.broker.node.vhosts.get(self._vhost)
        return {} if vhost is None else vhost.topology.queues

    async def _running(self) -> QueueEntry:
        """Return the entry once the queue runs."""
        queues = self._queues()
        entry = queues.get(self.name)
        if entry is None:
            names = ", ".join(queues)
            raise QueueNotRunningError(
                f"no queue {self.name!r} in vhost {self._vhost!r}; there are: {names or 'none'}"
            )
        settled = asyncio.Event()
        entry.when_running(lambda _: settled.set())
        await settled.wait()
        if not entry.is_running:
            raise QueueNotRunningError(f"{entry} is {entry.state}")
        return entry

    def _info(self) -> dict[str, Any]:
        return self._broker.wait_for(self._ask())

    async def _ask(self) -> dict[str, Any]:
        while True:
            ref = (await self._running()).ref
            assert ref is not None
            try:
                found: dict[str, Any] = await self._broker.broker.runtime.call(ref, Info(), None)
            except CallExit:
                continue  # it was restarted meanwhile
            return found

    async def _messages(self) -> list[SeenMessage]:
        runtime = self._broker.broker.runtime
        found: list[SeenMessage] = []
        from_seq = 0
        while True:
            backing = (await self._running()).backing
            assert backing is not None
            part = _Part()
            try:
                BackingProxy(runtime.turns, backing).fold(part.step, None, from_seq)
            except CallExit:
                found, from_seq = [], 0  # it was restarted meanwhile
                continue
            found += part.found
            if not part.is_cut:
                return found
            from_seq = part.last_seq + 1 if part.found else from_seq
            await asyncio.sleep(PAUSE_S)  # while messages are read from disk


class _Part:
    """The messages of one scan."""

    def __init__(self) -> None:
        self.found: list[SeenMessage] = []
        self.last_seq = -1
        self.is_cut = False

    def step(self, entry: Entry | None, is_unacked: bool, _: None) -> tuple[bool, None]:
        if entry is None:
            self.is_cut = True
            return False, None
        self.found.append(seen(entry[MESSAGE], is_unacked))
        self.last_seq = entry[SEQ]
        return True, None
