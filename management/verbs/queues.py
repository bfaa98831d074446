"""The operator's commands on single queues."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from leveret.amqp.errors import NotFound, SoftError
from leveret.broker.queue.calls import ask_queue
from leveret.broker.queue_requests import ForgetProducer, ListProducers, Purge
from leveret.broker.script import run_in_task
from leveret.management import rows
from leveret.management.audit_log import audit
from leveret.management.errors import EX_UNAVAILABLE, EX_USAGE, RefusedError
from leveret.management.lookups import queue_named, vhost_named
from leveret.management.queue_stats import unresponsive

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from leveret.broker.node.node import Node
    from leveret.management.json_text import Row

NOT_FOUND: Final = "Queue not found"


class QueueAdmin:
    """Purges, deletes and tests the queues of one node."""

    def __init__(self, node: Node) -> None:
        self._node = node

    async def purge_queue(self, vhost: str, name: str) -> int:
        """Drop the ready messages of a queue; return how many they were."""
        missing = RefusedError("not_found", EX_UNAVAILABLE)
        entry = queue_named(self._node, vhost, name, missing)
        try:
            count: int = await run_in_task(self._node.runtime, ask_queue(entry, Purge()))
        except NotFound as error:
            raise RefusedError(error.explanation, EX_UNAVAILABLE) from error
        audit("queue purged vhost=%s queue=%s messages=%s by=%s", vhost, name, count)
        return count

    async def delete_queue(self, vhost: str, name: str, if_empty: bool, if_unused: bool) -> int:
        """Delete a queue, also an exclusive one; return how many ready messages it had."""
        entry = queue_named(self._node, vhost, name, RefusedError(NOT_FOUND, EX_USAGE))
        if entry.delayed_exchange is not None:
            exchange = entry.delayed_exchange
            text = f"Queue {name} has the delayed messages of exchange {exchange}, and goes with it"
            raise RefusedError(text, EX_USAGE)
        steps = self._node.vhosts[vhost].remove_queue(entry, if_unused, if_empty)
        try:
            count: int = await run_in_task(self._node.runtime, steps)
        except SoftError as error:
            text = (
                "Queue is in use" if error.explanation.endswith("in use") else "Queue is not empty"
            )
            raise RefusedError(text, EX_USAGE) from error
        audit("queue deleted vhost=%s queue=%s messages=%s by=%s", vhost, name, count)
        return count

    async def list_producers(self, vhost: str, name: str) -> list[Row]:
        """Return the producers that a queue knows, the least recently used first."""
        found: list[tuple[bytes, tuple[int, int, int]]] = await self._ask(
            vhost, name, ListProducers()
        )
        return [
            {
                "producer": producer.decode("utf-8", "backslashreplace"),
                "epoch": epoch,
                "sequence": sequence,
                "used": datetime.fromtimestamp(used_ms / 1000, UTC).isoformat(" ", "milliseconds"),
            }
            for producer, (epoch, sequence, used_ms) in found
        ]

    async def forget_producer(self, vhost: str, name: str, producer: str) -> None:
        """Have a queue forget a producer, named as ``list_producers`` shows it."""
        found: list[tuple[bytes, Any]] = await self._ask(vhost, name, ListProducers())
        for known, _ in found:
            if known.decode("utf-8", "backslashreplace") == producer:
                await self._ask(vhost, name, ForgetProducer(known))
                audit(
                    "producer forgotten vhost=%s queue=%s producer=%s by=%s", vhost, name, producer
                )
                return
        text = f"There is no producer '{producer}' in queue '{name}' of vhost '{vhost}'"
        raise RefusedError(text, EX_UNAVAILABLE)

    async def _ask(self, vhost: str, name: str, request: object) -> Any:
        missing = RefusedError(NOT_FOUND, EX_UNAVAILABLE)
        entry = queue_named(self._node, vhost, name, missing)
        try:
            return await run_in_task(self._node.runtime, ask_queue(entry, request))
        except NotFound as error:
            raise RefusedError(error.explanation, EX_UNAVAILABLE) from error

    async def list_unresponsive_queues(self, vhost: str, queue_timeout_s: float) -> list[Row]:
        """Return the queues that run and do not answer in time."""
        return [row async for row in await self.unresponsive_rows(vhost, queue_timeout_s)]

    async def unresponsive_rows(
        self, vhost: str, queue_timeout_s: float, local: bool = False
    ) -> AsyncIterator[Row]:
        """Return the rows of this node's queues; without ``local`` a cluster adds those of other nodes."""
        found = vhost_named(self._node, vhost)
        entries = unresponsive(self._node.runtime, found, queue_timeout_s)
        return (rows.queue(entry, {}) | {"recoverable_slaves": ""} async for entry in entries)
