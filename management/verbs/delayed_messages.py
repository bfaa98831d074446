"""The operator's commands on messages that exchanges of the type ``x-delayed-message`` have delayed."""

from __future__ import annotations

from datetime import UTC, datetime
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from leveret.amqp.errors import NotFound
from leveret.broker.queue.calls import ask_queue
from leveret.broker.queue.delays.requests import Describe, ListWaiting, Waiting, Withdraw
from leveret.broker.queue.delays.schedule import seq_of
from leveret.broker.script import run_in_task
from leveret.core.slices import sliced
from leveret.management.audit_log import audit
from leveret.management.errors import EX_UNAVAILABLE, EX_USAGE, RefusedError
from leveret.management.lookups import queue_named, vhost_named
from leveret.routing.delayed import DELAYED, queue_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from leveret.broker.node.node import Node
    from leveret.broker.registry.registry import QueueEntry
    from leveret.management.json_text import Row

DESCRIBED_AT_ONCE: Final = 200
SORTED_AT_ONCE: Final = 10_000


class DelayedMessageAdmin:
    """Lists and cancels the delayed messages of one node."""

    def __init__(self, node: Node) -> None:
        self._node = node

    async def list_delayed_messages(self, vhost: str, exchange: str) -> list[Row]:
        """Return the messages that an exchange has delayed, in the order in which they are due."""
        return [row async for row in await self.delayed_message_rows(vhost, exchange)]

    async def delayed_message_rows(self, vhost: str, exchange: str) -> AsyncIterator[Row]:
        """Return the same row by row."""
        entry = self._delay_queue(vhost, exchange)
        keys: list[int] = await self._ask(entry, ListWaiting())
        chunks = [keys[at : at + SORTED_AT_ONCE] for at in range(0, len(keys), SORTED_AT_ONCE)]
        async for chunk in sliced(chunks, 1):
            chunk.sort()
        return self._rows(entry, map(seq_of, merge(*chunks)))

    async def cancel_delayed_messages(self, vhost: str, exchange: str, ids: list[str]) -> int:
        """Forget messages, named by their ids; return how many of them were waiting."""
        entry = self._delay_queue(vhost, exchange)
        if not ids or not all(each.isascii() and each.isdigit() for each in ids):
            raise RefusedError("give ids as list_delayed_messages shows them", EX_USAGE)
        count: int = await self._ask(entry, Withdraw([int(each) for each in ids]))
        audit(
            "delayed messages cancelled vhost=%s exchange=%s messages=%s by=%s",
            vhost,
            exchange,
            count,
        )
        return count

    def _delay_queue(self, vhost: str, exchange: str) -> QueueEntry:
        found = vhost_named(self._node, vhost).topology.exchanges.get(exchange)
        text = f"There is no exchange '{exchange}' of the type {DELAYED} in vhost '{vhost}'"
        missing = RefusedError(text, EX_UNAVAILABLE)
        if found is None or found.type != DELAYED:
            raise missing
        return queue_named(self._node, vhost, queue_of(exchange), missing)

    async def _ask(self, entry: QueueEntry, request: object) -> Any:
        try:
            return await run_in_task(self._node.runtime, ask_queue(entry, request))
        except NotFound as error:
            raise RefusedError(error.explanation, EX_UNAVAILABLE) from error

    async def _rows(self, entry: QueueEntry, seqs: Iterator[int]) -> AsyncIterator[Row]:
        wanted = list(islice(seqs, DESCRIBED_AT_ONCE))
        while wanted:
            count, found = await self._ask(entry, Describe(wanted))
            for each in found:
                yield _row(each)
            wanted = wanted[count:] + list(islice(seqs, count))


def _row(message: Waiting) -> Row:
    try:
        due = datetime.fromtimestamp(message.due_ms / 1000, UTC).isoformat(" ", "milliseconds")
    except (OverflowError, ValueError):  # after the year 9999
        due = f"{message.due_ms} ms after 1970"
    return {
        "id": message.seq,
        "due": due,
        "published_to": message.exchange.decode("utf-8", "replace"),
        "routing_key": message.routing_key.decode("utf-8", "replace"),
        "message_bytes": message.body_bytes,
    }
