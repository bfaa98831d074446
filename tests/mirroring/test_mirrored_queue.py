"""Mirrored queues over variable queues, on random schedules with crashes, in virtual time.

Tests: mirroring/mirrored_queue.py, mirroring/master_content.py, mirroring/mirror_content.py, mirroring/replicated.py

``Schedule(seed, QueueCluster).run()`` repeats one; each test's first seed comes from ``--seed``.
"""

from __future__ import annotations

from random import Random

import pytest

from leveret.mirroring.mirrored_queue import MirroredQueue
from leveret.mirroring.replicas.seq_runs import first_seq_of
from leveret.queue_backing.api import Fetched
from rigs.mirroring.queues import QueueCluster, QueueNode
from rigs.mirroring.schedules import Schedule
from rigs.queues.variable_rig import UNBOUNDED

BLOCKS = 4
SCHEDULES = 25  # per block
FIRST = first_seq_of(1)


@pytest.mark.parametrize("block", range(BLOCKS))
def test_nothing_confirmed_is_lost_on_random_schedules(seed: int, block: int) -> None:
    for each in range(seed + block * SCHEDULES, seed + (block + 1) * SCHEDULES):
        violations = Schedule(each, QueueCluster).run()
        assert not violations, f"Schedule({each}, QueueCluster).run() found {violations}"


def started() -> tuple[QueueCluster, QueueNode, QueueNode]:
    """Return a cluster of two nodes, both in sync; the first has the master."""
    cluster = QueueCluster(Random("mirrored"), 2, 1)
    for node in cluster.nodes.values():
        node.start()
        cluster.clock.jump(1.0)
    one, two = cluster.nodes.values()
    assert isinstance(one, QueueNode)
    assert isinstance(two, QueueNode)
    return cluster, one, two


def mirrored(node: QueueNode) -> MirroredQueue:
    assert node.mirrored is not None
    return node.mirrored


def fetched_of(cluster: QueueCluster, node: QueueNode) -> Fetched:
    """Fetch, and wait for what must be read, or known to the mirrors."""
    for _ in range(10):
        fetched = mirrored(node).fetch(5, UNBOUNDED, True)
        if fetched.seqs:
            return fetched
        node.settle()
        cluster.clock.jump(0.5)
    raise AssertionError("nothing comes")


def test_a_fetch_waits_until_the_mirrors_know() -> None:
    cluster, one, _ = started()
    cluster.publish(cluster.masters()[0], 3)
    queue = mirrored(one)

    fetched = queue.fetch(2, UNBOUNDED, True)
    assert (fetched.seqs, fetched.pending) == ([], True)
    assert not queue.take_fetch_ready()
    cluster.clock.jump(1.0)
    assert queue.take_fetch_ready()

    fetched = queue.fetch(2, UNBOUNDED, True)
    assert (fetched.seqs, fetched.redelivered, fetched.pending) == ([FIRST, FIRST + 1], 0, False)


def test_messages_go_straight_to_consumers_without_waiting() -> None:
    cluster, one, two = started()
    cluster.publish(cluster.masters()[0], 2, is_handed_out=True)
    assert sorted(one.unacked) == [FIRST, FIRST + 1]

    cluster.clock.jump(1.0)
    one.crash()
    cluster.clock.jump(2.0)

    fetched = fetched_of(cluster, two)
    assert (fetched.seqs, fetched.redelivered) == ([FIRST, FIRST + 1], 2)


def test_a_batch_is_safe_when_the_mirrors_have_it() -> None:
    cluster, one, _ = started()
    queue, safe = mirrored(one), []
    queue._safe = safe.extend
    cluster.publish(cluster.masters()[0], 3)
    assert safe == []
    cluster.clock.jump(1.0)
    assert safe == [(FIRST, 3)]


def test_what_a_purge_removes_is_gone_everywhere_and_unacked_messages_stay() -> None:
    cluster, one, two = started()
    cluster.publish(cluster.masters()[0], 2, is_handed_out=True)
    cluster.publish(cluster.masters()[0], 3)

    assert mirrored(one).purge() == 3
    one.settle()
    cluster.clock.jump(1.0)

    assert one.messages == two.messages == {FIRST: 0, FIRST + 1: 1}
    assert mirrored(one).purge_acks() == 2
    cluster.clock.jump(1.0)
    assert one.messages == two.messages == {}


def test_what_is_dropped_is_gone_everywhere() -> None:
    cluster, one, two = started()
    cluster.publish(cluster.masters()[0], 6)
    queue = mirrored(one)

    assert queue.drop(1, ack_required=False) == [FIRST]
    dropped = queue.dropwhile(lambda entry: entry[0] < FIRST + 3, 5)
    assert dropped.count == 2
    assert queue.drop(1, ack_required=True) == [FIRST + 3]
    cluster.clock.jump(1.0)
    assert list(two.messages.values()) == [3, 4, 5]

    assert queue.ack([FIRST + 3, FIRST + 4]) == 1, "the other is not unacked"
    cluster.clock.jump(1.0)
    assert one.messages == two.messages == {FIRST + 4: 4, FIRST + 5: 5}


def test_a_read_of_messages_that_are_gone_says_so() -> None:
    cluster, one, _ = started()
    cluster.publish(cluster.masters()[0], 3)
    mirrored(one).drop(3, ack_required=False)
    found: list[object] = []

    one.content.read(
        ((FIRST, FIRST + 2), (FIRST + 5, FIRST + 9)), lambda *answer: found.append(answer)
    )

    assert found == [(FIRST + 9, [])]


def test_messages_for_consumers_that_do_not_ack_are_gone_when_they_are_fetched() -> None:
    cluster, one, two = started()
    cluster.publish(cluster.masters()[0], 3)
    queue = mirrored(one)
    queue.fetch(2, UNBOUNDED, False)
    cluster.clock.jump(1.0)

    assert queue.fetch(2, UNBOUNDED, False).seqs == [FIRST, FIRST + 1]
    one.settle()
    cluster.clock.jump(1.0)

    assert one.messages == two.messages == {FIRST + 2: 2}


def test_expired_messages_are_taken_without_a_word_to_the_mirrors() -> None:
    cluster, one, two = started()
    cluster.publish(cluster.masters()[0], 3)
    one.settle()
    queue = mirrored(one)

    for _ in range(10):
        fetched, head = queue.fetchwhile(lambda entry: entry[0] == FIRST, 5, UNBOUNDED)
        if fetched.seqs:
            break
        one.settle()
    assert (fetched.seqs, head and head[0]) == ([FIRST], FIRST + 1)
    queue.ack(fetched.seqs)
    cluster.clock.jump(1.0)

    assert list(two.messages.values()) == [1, 2]
    assert two.content.handed_out == 0
