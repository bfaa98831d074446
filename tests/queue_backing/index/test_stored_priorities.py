"""Priority queues over a real store: what becomes of priorities when the index is lost."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from leveret.amqp.properties import Properties, head_of
from leveret.broker.queue.storage.factory import priority_of
from leveret.core.message import Message
from leveret.msg_store.format.record import route_no
from leveret.queue_backing.priority_queue import PriorityQueue
from rigs.queues.stored_rig import StoreBench, StoredQueue, fetch_all, take
from rigs.queues.variable_rig import SMALL, message

HIGHEST = 2
ROUTE = route_no(1, HIGHEST)


@pytest.fixture
def bench(rng: random.Random) -> Iterator[StoreBench]:
    bench = StoreBench(rng)
    yield bench
    bench.close()


def with_priority(priority: int | None, durable: int) -> Message:
    origin, _, body = message(9, durable)
    return (origin, head_of(Properties(priority=priority), len(body)), body)


def levels_on(bench: StoreBench) -> list[StoredQueue]:
    return [StoredQueue(bench, 1 + n, SMALL, routed_as=ROUTE) for n in range(HIGHEST + 1)]


def published(bench: StoreBench, levels: list[StoredQueue], priorities: list[int | None]) -> None:
    queue = PriorityQueue([each.queue for each in levels], priority_of)
    messages = [with_priority(each, durable) for durable, each in enumerate(priorities)]
    queue.publish(messages, True, None, None, False, bench.store.write(messages, (ROUTE,)))
    bench.run()
    assert any(level.take_confirmed() for level in levels)


def marks(level: StoredQueue) -> list[int]:
    level.begin()
    return [int(body.rstrip(b".")) for _, body in fetch_all(level)]


def test_a_rebuilt_index_has_every_message_under_its_priority(bench: StoreBench) -> None:
    levels = levels_on(bench)
    published(bench, levels, [0, 2, None, 1, 7, 0])

    bench.location.condemn()
    bench.crash()

    assert bench.opened.recovered.report.rebuilt
    assert [marks(level) for level in levels] == [[0, 2, 5], [3], [1, 4]]


def test_what_a_journal_says_was_acked_in_any_priority_stays_away(bench: StoreBench) -> None:
    levels = levels_on(bench)
    published(bench, levels, [0, 2, 1, 2, 0])
    for level in levels:
        level.queue.ack(take(level, 1).seqs)
    bench.idle_disk()

    bench.location.condemn()
    bench.crash()

    assert [marks(level) for level in levels] == [[4], [], [3]]


def test_the_acks_of_priorities_after_a_rebuild_hold_in_the_next(bench: StoreBench) -> None:
    levels = levels_on(bench)
    published(bench, levels, [0, 2, 1, 2, 0])
    bench.location.condemn()
    bench.crash()
    for level in levels:
        level.begin()
        level.queue.ack(take(level, 1).seqs)
    bench.idle_disk()

    bench.location.condemn()
    bench.crash()

    assert [marks(level) for level in levels] == [[4], [], [3]]
