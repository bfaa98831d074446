"""Contents that cannot be read any more: the queue goes on without them, and never asks for them again."""

from __future__ import annotations

import random

import pytest

from leveret.core.entry import MESSAGE, MSG_NO, SEQ
from leveret.core.message import LOST
from leveret.queue_backing.variable.invariants import check
from rigs.queues.variable_rig import SMALL, UNBOUNDED, VariableRig, message


def rig_with(
    count: int, damaged: set[int], is_late: bool = False, persistent: bool = True
) -> VariableRig:
    """Return a queue with ``count`` messages on disk, those with these seqs damaged."""
    rig = VariableRig(SMALL, target=0, is_late=is_late)
    rig.publish([message(2, n) for n in range(count)], persistent)
    rig.settle()
    rig.index.damaged = {seq + 1 for seq in damaged}
    return rig


def fetch_all(rig: VariableRig, batch: int = 100) -> list[int]:
    got: list[int] = []
    for _ in range(200):
        fetched = rig.queue.fetch(batch, UNBOUNDED, ack_required=True)
        assert LOST not in fetched.messages
        got += fetched.seqs
        check(rig.queue)
        rig.settle()
        if not rig.queue.len():
            return got
        assert fetched.seqs or fetched.pending, "nothing came, and nothing will"
    raise AssertionError("the queue does not come to its end")


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("batch", [1, 3, 100])
def test_a_fetch_passes_over_what_is_damaged(batch: int, persistent: bool, is_late: bool) -> None:
    for damaged in ({0}, {4}, {9}, {0, 1, 2, 3, 4}, set(range(10)), {8, 9}):
        rig = rig_with(10, damaged, is_late, persistent)

        got = fetch_all(rig, batch)

        assert got == [seq for seq in range(10) if seq not in damaged]
        assert set(rig.index.rows) <= set(got), "the row of a damaged one is settled"
        rig.queue.ack(got)
        assert not rig.index.contents
        assert rig.queue.persistent()[0] == rig.queue.depth() == 0


def test_a_fetch_that_meets_damage_still_brings_as_many_as_it_may() -> None:
    rig = rig_with(10, {1, 2, 3})

    assert rig.queue.fetch(4, UNBOUNDED, ack_required=True).seqs == [0, 4, 5, 6]


def test_a_walk_with_a_predicate_passes_over_what_is_damaged() -> None:
    rig = rig_with(10, {0, 5})

    fetched, head = rig.queue.fetchwhile(lambda entry: entry[SEQ] < 7, 100, UNBOUNDED)

    assert fetched.seqs == [1, 2, 3, 4, 6]
    assert head is not None
    assert head[SEQ] == 7
    check(rig.queue)


def test_damage_that_shows_after_a_requeue_is_passed_over_when_it_is_wanted() -> None:
    rig = rig_with(3, set())
    seqs = rig.queue.fetch(3, UNBOUNDED, ack_required=True).seqs
    rig.index.damaged = {2}
    rig.set_target(float("inf"))

    rig.queue.requeue(seqs)
    check(rig.queue)

    assert fetch_all(rig) == [0, 2]


def test_folds_leave_out_what_is_damaged() -> None:
    rig = rig_with(6, {1})
    unacked = rig.queue.fetch(1, UNBOUNDED, ack_required=True).seqs
    rig.index.damaged |= {1}
    seen: list[int] = []

    rig.queue.fold(lambda entry, unacked, acc: (True, seen.append(entry[SEQ])), None)
    folded = rig.queue.ackfold(lambda entry, acc: [*acc, entry[MESSAGE]], [], unacked)

    assert seen == [2, 3, 4, 5]
    assert folded == []


def test_random_damage_never_stops_a_queue(rng: random.Random) -> None:
    for _ in range(30):
        rig = VariableRig(SMALL, target=rng.choice([0, 2, 5]), is_late=rng.random() < 0.5)
        for _ in range(60):
            if rng.random() < 0.5:
                rig.publish([message(3, 1)] * rng.randint(1, 5), rng.random() < 0.5)
            numbers = sorted(rig.index.contents)
            rig.index.damaged.update(rng.sample(numbers, min(len(numbers), rng.randint(0, 2))))
            fetched = rig.queue.fetch(rng.randint(1, 4), rng.choice([0, 9, UNBOUNDED]), True)
            assert LOST not in fetched.messages
            (rig.queue.ack if rng.random() < 0.5 else rig.queue.requeue)(fetched.seqs)
            check(rig.queue)
            rig.settle()
        rig.queue.ack(fetch_all(rig, 3))
        assert not rig.index.contents
        assert {row[MSG_NO] for row in rig.index.rows.values()} == set()
