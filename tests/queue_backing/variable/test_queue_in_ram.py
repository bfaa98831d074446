"""A variable queue that cannot page: what its model does not say.

Tests: queue_backing/variable/columns.py, queue_backing/variable/release.py
"""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable
from itertools import pairwise

import pytest

from leveret.core.entry import EXPIRY_MS, PERSISTENT
from leveret.core.message import Message
from leveret.queue_backing.variable.invariants import check
from leveret.queue_backing.variable.queue import VariableQueue
from leveret.queue_backing.variable.release import FREED_BYTES_PER_TURN, FREED_PER_TURN

ONE: Message = (b"o", b"h", b"body")


def test_a_requeue_restores_the_order_of_publishing() -> None:
    queue = VariableQueue()
    queue.publish([(b"", b"", b"%d" % n) for n in range(10)], persistent=False)
    queue.fetch(6, 1 << 20, ack_required=True)

    queue.requeue([5, 1, 3])
    queue.requeue([0, 4])

    fetched = queue.fetch(10, 1 << 20, ack_required=True)
    assert fetched.seqs == [0, 1, 3, 4, 5, 6, 7, 8, 9]
    assert fetched.redelivered == 5


@pytest.mark.parametrize(
    "order",
    [
        list(range(1_000)),
        list(range(999, -1, -1)),
        [*range(0, 1_000, 2), *range(1, 1_000, 2)],
        [n * 7 % 1_000 for n in range(1_000)],
    ],
    ids=["ascending", "descending", "every other", "mixed"],
)
@pytest.mark.parametrize("batch", [1, 3, 50, 700])
def test_whatever_comes_back_in_whichever_pieces_finds_its_place(
    order: list[int], batch: int
) -> None:
    queue = VariableQueue()
    queue.publish([ONE] * 1_200, persistent=False)
    queue.fetch(1_000, 1 << 20, ack_required=True)

    for start in range(0, 1_000, batch):
        queue.requeue(order[start : start + batch])
        check(queue)

    assert queue.fetch(2_000, 1 << 20, ack_required=True).seqs == list(range(1_200))


def test_messages_after_a_purge_are_not_taken_for_redelivered() -> None:
    queue = VariableQueue()
    queue.publish([ONE] * 3, persistent=False)
    queue.purge()
    queue.publish([ONE], persistent=False)

    first = queue.fetch(1, 100, ack_required=True)
    queue.requeue(first.seqs)
    second = queue.fetch(1, 100, ack_required=True)

    assert (first.redelivered, second.redelivered) == (0, 1)


def test_what_a_mirror_had_handed_out_is_redelivered() -> None:
    queue = VariableQueue()
    queue.publish([ONE] * 2, persistent=False, delivered=True)
    queue.publish([ONE], persistent=False)

    assert queue.fetch(3, 100, ack_required=True).redelivered == 2


def test_a_mirrors_messages_after_a_purge_are_redelivered_too() -> None:
    queue = VariableQueue()
    queue.publish([ONE], persistent=False)
    queue.purge()

    queue.publish([ONE], persistent=False, delivered=True)

    assert queue.fetch(1, 100, ack_required=True).redelivered == 1


@pytest.mark.parametrize(("bytes_max", "count"), [(0, 1), (4, 1), (7, 1), (8, 2), (1 << 20, 5)])
def test_a_fetch_stops_at_its_bytes_but_takes_one(bytes_max: int, count: int) -> None:
    queue = VariableQueue()
    queue.publish([ONE] * 5, persistent=False)

    assert len(queue.fetch(5, bytes_max, ack_required=False).messages) == count
    check(queue)


def test_a_fetch_of_uneven_messages_puts_back_what_is_too_much() -> None:
    queue = VariableQueue()
    queue.publish([(b"", b"", b"x" * size) for size in [1, 1, 1, 900, 1, 1]], persistent=False)

    assert queue.fetch(6, 500, ack_required=True).seqs == [0, 1, 2]
    assert queue.fetch(6, 500, ack_required=True).seqs == [3]
    assert queue.fetch(6, 500, ack_required=True).seqs == [4, 5]
    check(queue)


def test_a_large_purge_is_freed_in_slices() -> None:
    queue = VariableQueue()
    count = 2 * FREED_PER_TURN + 1
    queue.publish([ONE] * count, persistent=False)
    queue.fetch(FREED_PER_TURN + 1, 1 << 40, ack_required=True)

    assert queue.purge() == FREED_PER_TURN
    assert queue.purge_acks() == FREED_PER_TURN + 1

    slices = 0
    while queue.needs_timeout():
        queue.timeout()
        slices += 1
    assert slices == 4, "of entries, of columns, and twice of unacked ones"
    assert queue.depth() == 0


def acked(queue: VariableQueue) -> None:
    queue.ack(queue.fetch(queue.len(), 1 << 40, ack_required=True).seqs)


def expired(queue: VariableQueue) -> None:
    queue.dropwhile(lambda _: True, queue.len())


ENDS = [VariableQueue.purge, VariableQueue.delete_and_terminate, acked, expired]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("was_unacked", [False, True])
def test_large_bodies_are_freed_in_slices(
    end: Callable[[VariableQueue], object], was_unacked: bool
) -> None:
    """The system takes 70 us to take back a MiB."""
    queue = VariableQueue()
    body = bytes(1 << 20)
    queue.publish([(b"o", b"h", body) for _ in range(100)], persistent=False)
    if was_unacked:
        queue.requeue(queue.fetch(100, 1 << 40, ack_required=True).seqs)
    held = [sys.getrefcount(body)]

    end(queue)
    held.append(sys.getrefcount(body))
    while queue.needs_timeout():
        queue.timeout()
        held.append(sys.getrefcount(body))

    slices = [before - after for before, after in pairwise(held)]
    assert sum(slices) == 100
    assert max(slices) <= FREED_BYTES_PER_TURN >> 20
    assert queue.depth() == 0


def test_deleting_leaves_no_message_behind() -> None:
    queue = VariableQueue()
    message: Message = (b"o", b"h", bytes(100))
    references = sys.getrefcount(message)
    queue.publish([message] * 4, persistent=True)
    queue.fetch(2, 1 << 20, ack_required=True)
    assert sys.getrefcount(message) > references

    queue.delete_and_terminate()

    assert sys.getrefcount(message) == references


def test_entries_are_soon_forgotten_by_the_collector() -> None:
    queue = VariableQueue()
    queue.publish([(b"o", b"h", b"%d" % n) for n in range(5)], persistent=False, expiries=[9] * 5)
    queue.fetch(3, 1 << 20, ack_required=True)
    queue.requeue([1])
    queue.publish([ONE], persistent=False)
    gc.collect()
    gc.collect()  # the message goes first, then the entry around it

    held = [*queue.q4, *queue.pending.in_ram.values()]
    assert len(held) == 5 + 1
    assert not any(map(gc.is_tracked, held))


def test_lazy_mode_and_ram_targets_are_taken_without_effect() -> None:
    queue = VariableQueue()
    queue.publish([ONE], persistent=False)

    queue.set_queue_mode("lazy")
    queue.set_ram_duration_target(0.0)
    queue.resume()
    queue.discard([ONE], persistent=False)

    assert queue.info()["mode"] == "lazy"
    assert queue.ram_duration() == float("inf")
    assert queue.len() == 1


def test_a_message_that_stands_in_many_queues_costs_each_a_reference() -> None:
    queues = [VariableQueue() for _ in range(10)]
    messages = [(b"o", b"h", b"%d" % n) for n in range(10_000)]
    for queue in queues:
        queue.publish([], persistent=False)
        queue.publish(messages[:1], persistent=False)

    tracemalloc.start()
    for queue in queues:
        for first in range(1, 10_000, 10):
            queue.publish(messages[first : first + 10], persistent=first > 5_000)
    copies_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()

    assert copies_bytes / 100_000 < 10
    for queue in queues:
        check(queue)


def test_persistence_and_expiry_stay_with_their_messages() -> None:
    queue = VariableQueue()
    pieces = [
        (3, True, None),
        (1, False, None),
        (2, False, [7, 8]),
        (2, True, None),
        (1, True, [9]),
    ]
    expected = []
    for count, persistent, expiries in pieces:
        queue.publish([ONE] * count, persistent, expiries)
        expected += [(each, persistent) for each in expiries or [0] * count]
    seen = []

    def step(entry: tuple, acc: None) -> None:
        seen.append((entry[EXPIRY_MS], entry[PERSISTENT]))

    for limit in (2, 3, 1, 9):
        queue.ackfold(step, None, queue.fetch(limit, 1 << 20, ack_required=True).seqs)
        check(queue)

    assert seen == expected
    queue.publish([ONE], persistent=False)
    queue.ackfold(step, None, queue.fetch(1, 1, ack_required=True).seqs)
    assert seen[-1] == (0, False)
