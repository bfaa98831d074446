"""The statistics of many queues, requested while clients use them.

Each queue gets a request of its own and answers in its own turn. Requests go out in slices, so that neither
the requests nor the answers block the event loop. One timer serves a slice.
"""

from __future__ import annotations

import asyncio
import heapq
from typing import TYPE_CHECKING, Any, Final

from leveret.actors.runtime.calls import Answer, From, Request
from leveret.broker.queue_requests import Info
from leveret.core.slices import sliced
from leveret.management import rows as admin_rows
from leveret.management.json_text import Row

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection

    from leveret.actors.runtime.runtime import Runtime
    from leveret.broker.registry.registry import QueueEntry
    from leveret.broker.vhost.vhost import VHost

ASKED_AT_ONCE: Final = 100
ASK_S: Final = 5.0
LARGEST: Final = 20
COUNTS: Final = ("messages_ready", "messages_unacknowledged", "consumers")
PLACES: Final = (
    "messages_ram", "messages_paged_out", "messages_persistent",
    "q4", "q3", "delta_messages", "q2", "q1",
)  # fmt: skip


async def queue_rows(
    runtime: Runtime, vhosts: Collection[VHost], items: tuple[str, ...] = ()
) -> AsyncIterator[Row]:
    """Yield a row for every queue of some vhosts that lives on this node, with some statistics or all.

    A queue that ends meanwhile, or does not answer within ``ASK_S``, has no statistics; its state says why.
    """
    entries = [entry for vhost in vhosts for entry in _own(vhost)]
    cluster_nodes = next((vhost.cluster_nodes for vhost in vhosts), None)
    node = {} if cluster_nodes is None else {"node": cluster_nodes.own}
    for start in range(0, len(entries), ASKED_AT_ONCE):
        some = entries[start : start + ASKED_AT_ONCE]
        for entry, stats in zip(some, await _stats(runtime, some, items), strict=True):
            yield admin_rows.queue(entry, stats) | {"vhost": entry.vhost_name} | node
        await asyncio.sleep(0)


async def totals(runtime: Runtime, vhosts: Collection[VHost]) -> tuple[dict[str, int], list[Row]]:
    """Return the sums of ``COUNTS`` and ``memory`` over the queues of this node, and the ``LARGEST`` by messages.

    The sums also have ``count``, the number of queues, and ``quorum``, that of quorum queues.

    The largest queues have their ``PLACES`` too, except transient queues, which have none.
    """
    sums = dict.fromkeys((*COUNTS, "memory", "quorum"), 0)
    largest: list[tuple[int, int, Row]] = []
    number = 0
    async for row in queue_rows(runtime, vhosts, (*COUNTS, "memory", *PLACES)):
        sums["memory"] += int(row.get("memory", 0))
        sums["quorum"] += row["type"] == "quorum"
        counts = {name: int(row.get(name, 0)) for name in COUNTS}
        for name, count in counts.items():
            sums[name] += count
        number -= 1  # of equally large queues the first stays
        size = counts["messages_ready"] + counts["messages_unacknowledged"]
        places = {name: row[name] for name in PLACES if name in row}
        ranked = (size, number, {"vhost": row["vhost"], "name": row["name"]} | counts | places)
        if len(largest) < LARGEST:
            heapq.heappush(largest, ranked)
        elif ranked > largest[0]:
            heapq.heapreplace(largest, ranked)
    return sums | {"count": -number}, [row for _, _, row in sorted(largest, reverse=True)]


async def active_consumers(runtime: Runtime, vhost: VHost) -> dict[str, tuple[str, str]]:
    """Return channel and tag of the active consumer of each queue that has but one, by the queue's name."""
    items = ("single_active_consumer_pid", "single_active_consumer_tag")
    entries = [
        entry
        async for entry in sliced(list(vhost.topology.queues.values()))
        if entry.settings.single_active_consumer
    ]
    found: dict[str, tuple[str, str]] = {}
    for start in range(0, len(entries), ASKED_AT_ONCE):
        some = entries[start : start + ASKED_AT_ONCE]
        for entry, stats in zip(some, await _stats(runtime, some, items), strict=True):
            found[entry.name] = (stats.get(items[0], ""), stats.get(items[1], ""))
        await asyncio.sleep(0)
    return found


async def unresponsive(
    runtime: Runtime, vhost: VHost, timeout_s: float
) -> AsyncIterator[QueueEntry]:
    """Yield the queues of a vhost that run on this node and do not answer in time."""
    entries = _own(vhost)
    for start in range(0, len(entries), ASKED_AT_ONCE):
        some = entries[start : start + ASKED_AT_ONCE]
        answers = await _stats(runtime, some, ("state",), timeout_s)
        for entry, stats in zip(some, answers, strict=True):
            if entry.is_running and not stats:
                yield entry
        await asyncio.sleep(0)


def _own(vhost: VHost) -> list[QueueEntry]:
    entries = vhost.topology.queues.values()
    return (
        [entry for entry in entries if not entry.is_remote]
        if vhost.cluster_nodes
        else list(entries)
    )


async def _stats(
    runtime: Runtime, entries: list[QueueEntry], items: tuple[str, ...], timeout_s: float = ASK_S
) -> list[dict[str, Any]]:
    loop = asyncio.get_running_loop()
    waiting: list[asyncio.Future[Any] | None] = []
    watches = []
    for entry in entries:
        if entry.ref is None or not entry.is_running:
            waiting.append(None)
            continue
        future: asyncio.Future[Any] = loop.create_future()
        answer = Answer(future)
        watches.append(runtime.watch(entry.ref, _no_stats(answer)))
        runtime.send(entry.ref, Request(From(answer), Info(items)))
        waiting.append(future)
    timer = runtime.clock.call_later(timeout_s, _give_up, waiting)
    try:
        return [await each if each is not None else {} for each in waiting]
    finally:
        timer.cancel()
        for watch in watches:
            runtime.demonitor(watch)


def _no_stats(answer: Answer) -> Callable[[object], None]:
    return lambda _: answer.give({})


def _give_up(waiting: list[asyncio.Future[Any] | None]) -> None:
    for future in waiting:
        if future is not None and not future.done():
            future.set_result({})
