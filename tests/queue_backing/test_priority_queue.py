"""A priority queue does no more in one turn than its longest level would."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import pairwise

import pytest

from leveret.core.message import Message
from leveret.queue_backing.priority_queue import PriorityQueue
from leveret.queue_backing.variable.queue import VariableQueue
from leveret.queue_backing.variable.release import FREED_PER_TURN

LEVELS = 255
EACH = 100


def queue_of(message: Message, per_level: int) -> PriorityQueue:
    """Return a queue with so many messages in each level, all of them the same object."""
    priorities = iter(sorted([*range(LEVELS)] * per_level))
    queue = PriorityQueue([VariableQueue() for _ in range(LEVELS)], lambda _: next(priorities))
    queue.publish([message] * LEVELS * per_level, False)
    return queue


@pytest.mark.parametrize("end", [PriorityQueue.purge, PriorityQueue.delete_and_terminate])
@pytest.mark.parametrize("was_unacked", [False, True])
def test_the_messages_of_many_priorities_are_freed_in_slices(
    end: Callable[[PriorityQueue], object], was_unacked: bool
) -> None:
    message: Message = (b"o", b"h", b"body")
    before = sys.getrefcount(message)
    queue = queue_of(message, EACH)
    if was_unacked:
        for _ in range(LEVELS):
            queue.fetch(EACH, 1 << 40, True)
        if end is PriorityQueue.purge:
            end = PriorityQueue.purge_acks

    held = [sys.getrefcount(message)]
    purged = end(queue)
    held.append(sys.getrefcount(message))
    while queue.needs_timeout():
        queue.timeout()
        held.append(sys.getrefcount(message))

    assert purged in {None, LEVELS * EACH}
    assert queue.depth() == 0
    assert held[-1] == before
    assert max(before - after for before, after in pairwise(held)) <= FREED_PER_TURN


def test_messages_that_come_while_a_purge_is_under_way_stay() -> None:
    message: Message = (b"o", b"h", b"body")
    queue = queue_of(message, EACH)

    assert queue.purge() == LEVELS * EACH
    assert queue.len() == 0
    queue._priority_of = lambda _: 0
    queue.publish([message] * 3, False)
    assert queue.needs_timeout()
    while queue.needs_timeout():
        queue.timeout()

    assert queue.purge() == 3
