"""The operator's commands on single queues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.amqp.errors import NotFound, SoftError
from leveret.broker.mail import Purge
from leveret.broker.queue.calls import ask_queue
from leveret.broker.script import run_in_task
from leveret.server.admin import rows
from leveret.server.admin.lookups import queue_named, vhost_named
from leveret.server.admin.queue_figures import unresponsive
from leveret.server.audit_log import audit
from leveret.server.errors import EX_UNAVAILABLE, EX_USAGE, RefusedError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from leveret.broker.node.node import Node
    from leveret.server.output.json_text import Row

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

    async def list_unresponsive_queues(self, vhost: str, queue_timeout_s: float) -> list[Row]:
        """Return the queues that run and do not answer in time."""
        return [row async for row in await self.unresponsive_rows(vhost, queue_timeout_s)]

    async def unresponsive_rows(self, vhost: str, queue_timeout_s: float) -> AsyncIterator[Row]:
        found = vhost_named(self._node, vhost)
        entries = unresponsive(self._node.runtime, found, queue_timeout_s)
        return (rows.queue(entry, {}) | {"recoverable_slaves": ""} async for entry in entries)
