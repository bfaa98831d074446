"""VariableQueue and PriorityQueue: what model, reference and contract do not say.

Tests: core/entry.py, queue_backing/variable/delta.py, queue_backing/variable/paged.py
"""

from __future__ import annotations

import gc
import random
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest

from leveret.core.entry import SEQ, Entry
from leveret.core.message import Message
from leveret.queue_backing.priority_queue import PriorityQueue
from leveret.queue_backing.variable.invariants import check
from leveret.queue_backing.variable.limits import Limits
from leveret.queue_backing.variable.queue import VariableQueue
from leveret.queue_backing.variable.release import FREED_PER_TURN
from leveret.testing.virtual_clock import VirtualClock
from rigs.queues.fake_index import FakeIndex
from rigs.queues.variable_rig import SMALL, UNBOUNDED, VariableRig, message


def test_an_unused_queue_owns_no_containers() -> None:
    rig, other = VariableRig(), VariableRig()

    own = [each for each in gc.get_referents(rig.queue) if isinstance(each, dict | deque)]

    shared = [id(each) for each in gc.get_referents(other.queue)]
    assert all(id(each) in shared for each in own)


def test_entries_are_soon_forgotten_by_the_collector() -> None:
    rig = VariableRig(target=2)
    rig.publish([(b"o", b"h", b"%d" % n) for n in range(90)], expiries=[9] * 90)
    rig.queue.fetch(1, UNBOUNDED, ack_required=True)
    gc.collect()
    gc.collect()

    queue = rig.queue
    entries = [*queue.q4, *queue.paged.q3, *queue.pending.in_ram.values()]
    assert len(entries) == 90
    assert not any(map(gc.is_tracked, entries))


def test_no_turn_moves_more_than_its_step() -> None:
    rig = VariableRig()
    rig.publish_some(5_000)

    rig.set_target(0)

    turns, before = 1, 5_000
    while rig.queue.needs_timeout():
        assert 0 < before - rig.queue.ram_count <= Limits().step
        before = rig.queue.ram_count
        rig.queue.timeout()
        turns += 1
    assert rig.queue.ram_count == 0
    assert turns == 5
    check(rig.queue)


def test_without_credit_paging_waits_for_the_store() -> None:
    rig = VariableRig(credit=30)
    rig.publish_some(100)

    rig.set_target(10)
    assert (rig.queue.ram_count, rig.queue.needs_timeout()) == (70, False)

    rig.index.grant(40)
    rig.queue.resume()
    assert rig.queue.ram_count == 30
    rig.index.grant(None)
    rig.queue.resume()
    assert rig.queue.ram_count == 10
    check(rig.queue)


@pytest.mark.parametrize("mode", ["default", "lazy"])
def test_a_fetch_never_waits_for_the_disk(mode: str) -> None:
    rig = VariableRig(SMALL, target=0, is_late=True, mode=mode)
    rig.publish([message(2, n) for n in range(30)])
    rig.settle()
    got: list[int] = []

    rounds = 0
    while len(got) < 30:
        fetched = rig.queue.fetch(30, UNBOUNDED, ack_required=False)
        got += fetched.seqs
        assert fetched.pending == (len(got) < 30)
        assert not rig.queue.take_fetch_ready()
        if fetched.pending:
            assert rig.index.arrive(), "something was asked for"
            rig.queue.resume()
            assert rig.queue.take_fetch_ready()
        check(rig.queue)
        rounds += 1
        assert rounds < 100

    assert got == list(range(30))
    assert not rig.index.contents


def test_a_message_put_back_may_be_read_when_it_is_wanted() -> None:
    rig = VariableRig(SMALL, target=0, is_late=True)
    rig.publish([message(2, n) for n in range(3)])
    rig.queue.fetch(3, UNBOUNDED, ack_required=True)
    rig.settle()
    fetched = rig.queue.fetch(3, UNBOUNDED, ack_required=True)
    rig.index.resident.clear()
    rig.set_target(float("inf"))

    rig.queue.requeue(fetched.seqs)
    check(rig.queue)
    assert (rig.queue.ram_count, rig.shape()["q4"]) == (0, "0b 1b 2b")
    again = rig.queue.fetch(3, UNBOUNDED, ack_required=True)
    assert (again.seqs, again.pending) == ([], True)

    rig.settle()
    assert rig.queue.take_fetch_ready()
    again = rig.queue.fetch(3, UNBOUNDED, ack_required=True)
    assert (again.messages, again.pending) == ([message(2, n) for n in range(3)], False)
    check(rig.queue)
    assert rig.queue.ack([0, 1, 2]) == 3
    assert not rig.index.contents


def test_no_more_is_read_ahead_than_its_bytes() -> None:
    limits = Limits(read_ahead=8, read_ahead_bytes=10, slack=0)
    rig = VariableRig(limits, target=0, is_late=True)
    rig.publish([message(size, n) for n, size in enumerate([1, 4, 5, 1, 50, 1])])
    rig.index.resident.add(1)

    assert rig.queue.fetch(1, UNBOUNDED, ack_required=False).seqs == [0]
    assert rig.index.asked == {2, 3, 4}
    rig.settle()
    assert rig.queue.fetch(3, UNBOUNDED, ack_required=False).seqs == [1, 2, 3]
    assert rig.index.asked == {5}


def test_a_recovered_queue_takes_messages_before_its_rows_are_there() -> None:
    rig = VariableRig(SMALL, is_late=True)
    rig.publish_some(10, persistent=True)
    rig.index.sync()
    rig.restart(crash=True)
    first = rig.publish_some(2)
    check(rig.queue)

    assert rig.queue.len() == 12
    assert rig.queue.fetch(1, UNBOUNDED, ack_required=True).pending
    dropped = rig.queue.dropwhile(lambda entry: True, 5)
    assert (dropped.count, dropped.head, dropped.pending) == (0, None, True)

    rig.settle()
    got: list[int] = []
    while len(got) < 12:
        fetched = rig.queue.fetch(12, UNBOUNDED, ack_required=True)
        got += fetched.seqs
        assert fetched.redelivered == len([seq for seq in fetched.seqs if seq < first])
        rig.settle()
    assert got == [*range(10), first, first + 1]


def test_a_hole_in_delta_is_skipped_in_one_step() -> None:
    rig = VariableRig(Limits(segment=4, io_batch=0, slack=0), mode="lazy")
    rig.publish_some(1)
    rig.queue.skip_to(1 << 50)
    rig.publish_some(2)

    assert rig.queue.fetch(3, UNBOUNDED, ack_required=False).seqs == [0, 1 << 50, (1 << 50) + 1]
    check(rig.queue)


def test_a_fold_waits_at_a_hole_in_delta_whose_end_must_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = VariableRig(Limits(segment=4, io_batch=0, slack=0), mode="lazy")
    rig.publish_some(1)
    rig.queue.skip_to(1 << 50)
    rig.publish_some(1)
    known_to, read, reads = 1 << 49, rig.index.read, 0

    def late_read(low: int, high: int, limit: int) -> list[Entry] | None:
        nonlocal reads
        reads += 1
        assert reads < 10, "the hole is walked through"
        return read(low, high, limit) if high <= known_to else None

    monkeypatch.setattr(rig.index, "read", late_read)

    def step(entry: Entry | None, unacked: bool, seqs: list[int | None]) -> Any:
        return True, [*seqs, entry and entry[SEQ]]

    assert rig.queue.fold(step, [], 0) == [0, None]
    known_to, reads = 1 << 51, 0
    assert rig.queue.fold(step, [], 0) == [0, 1 << 50]


def test_unacked_messages_within_delta_are_looked_through_in_steps() -> None:
    rig = VariableRig(Limits(segment=4, read_max=4, windows=2, io_batch=0, slack=0), mode="lazy")
    rig.publish_some(41)
    unacked = rig.queue.fetch(40, UNBOUNDED, ack_required=True).seqs
    rig.queue.requeue(unacked[:1])
    rig.set_target(0)
    rig.settle()
    assert rig.queue.fetch(1, UNBOUNDED, ack_required=True).seqs == [0]

    fetched = rig.queue.fetch(1, UNBOUNDED, ack_required=True)
    assert (fetched.seqs, fetched.pending) == ([], True)
    turns = 0
    while rig.queue.needs_timeout():
        rig.queue.timeout()
        turns += 1
    assert turns > 2
    assert rig.queue.take_fetch_ready()
    assert rig.queue.fetch(1, UNBOUNDED, ack_required=True).seqs == [40]


def test_transients_that_a_restart_left_are_dropped() -> None:
    rig = VariableRig(SMALL, mode="lazy")
    rig.publish_some(2, persistent=True)
    rig.index.sync()
    rig.index.route(90, [message(1)])
    transient = (2, None, 0, False, 90, 1, True, True)
    rig.index.synced[2], rig.index.synced_contents[90] = transient, message(1)
    rig.index.highest = 4
    rig.queue.terminate()
    rig.index.synced[2], rig.index.synced_contents[90] = transient, message(1)
    rig.index = rig.index.restart(crash=False)
    rig.queue = rig._queue()

    rig.queue.init(True)

    assert rig.queue.fetch(9, UNBOUNDED, ack_required=True).seqs == [0, 1]
    assert 2 not in rig.index.rows


def test_a_large_purge_acks_ranges_and_frees_in_slices() -> None:
    rig = VariableRig()
    count = 2 * FREED_PER_TURN + 1
    rig.publish_some(count, persistent=True)
    unacked = rig.queue.fetch(3, UNBOUNDED, ack_required=True).seqs
    rig.queue.requeue([1])

    assert rig.queue.purge() == count - 2
    assert set(rig.index.rows) == {0, 2}
    turns = 0
    while rig.queue.needs_timeout():
        rig.queue.timeout()
        turns += 1
    assert turns == 2
    assert rig.queue.ack(unacked) == 2
    assert not rig.index.rows
    check(rig.queue)


def test_a_purge_of_persistent_messages_looks_at_no_unacked_one() -> None:
    looked_at = 0

    class Counted(dict[int, Any]):
        def __iter__(self) -> Iterator[int]:
            nonlocal looked_at
            looked_at += len(self)
            return super().__iter__()

        def values(self) -> Any:
            nonlocal looked_at
            looked_at += len(self)
            return super().values()

    rig = VariableRig()
    rig.publish_some(50, persistent=True)
    rig.queue.fetch(40, UNBOUNDED, ack_required=True)
    rig.queue.pending.in_ram = Counted(rig.queue.pending.in_ram)

    assert rig.queue.purge() == 10
    assert not looked_at
    assert set(rig.index.rows) == set(range(40))
    check(rig.queue)


@pytest.mark.parametrize("unacked_are_persistent", [False, True])
def test_a_purge_counts_the_persistent_messages_of_a_mixed_queue(
    unacked_are_persistent: bool,
) -> None:
    rig = VariableRig()
    rig.publish_some(4, persistent=unacked_are_persistent)
    rig.publish_some(3, persistent=not unacked_are_persistent)
    rig.queue.fetch(2, UNBOUNDED, ack_required=True)

    assert rig.queue.purge() == 5
    assert rig.queue.persistent()[0] == (2 if unacked_are_persistent else 0)
    check(rig.queue)


def test_unacked_that_are_purged_do_not_come_back_with_a_clean_stop() -> None:
    rig = VariableRig()
    rig.publish_some(FREED_PER_TURN + 5, persistent=True)
    rig.queue.drop(FREED_PER_TURN + 3, ack_required=True)
    assert rig.queue.purge_acks() == FREED_PER_TURN + 3

    rig.restart(crash=False)

    assert rig.queue.len() == 2
    assert rig.queue.fetch(9, UNBOUNDED, ack_required=True).seqs == [
        FREED_PER_TURN + 3,
        FREED_PER_TURN + 4,
    ]


def test_a_purge_while_purged_unacked_are_still_being_freed_acks_nothing_twice() -> None:
    rig = VariableRig()
    rig.publish_some(FREED_PER_TURN + 5, persistent=True)
    rig.queue.drop(FREED_PER_TURN + 3, ack_required=True)
    rig.queue.requeue([0, 7])
    assert rig.queue.purge_acks() == FREED_PER_TURN + 1

    assert rig.queue.purge() == 4
    rig.settle()

    assert not rig.index.rows
    assert not rig.index.contents


def test_a_deleted_queue_leaves_nothing() -> None:
    rig = VariableRig(SMALL, target=1)
    rig.publish_some(20, persistent=True)
    rig.publish_some(20)
    rig.queue.fetch(3, UNBOUNDED, ack_required=True)

    rig.queue.delete_and_terminate()
    rig.settle()

    assert not rig.index.contents
    assert not rig.index.rows
    assert rig.queue.depth() == 0


def test_the_change_to_lazy_mode_waits_for_credit_and_can_be_taken_back() -> None:
    rig = VariableRig(credit=4)
    rig.publish_some(10)

    rig.queue.set_queue_mode("lazy")
    assert (rig.queue.mode, rig.queue.info()["mode"]) == ("default", "lazy")
    assert (rig.queue.ram_count, rig.queue.needs_timeout()) == (10, True)
    rig.queue.timeout()
    assert rig.queue.ram_count == 6
    rig.queue.set_queue_mode("default")
    rig.publish_some(1)
    assert rig.queue.ram_count == 7

    rig.queue.set_queue_mode("lazy")
    rig.index.grant(None)
    rig.queue.resume()
    rig.settle()
    assert (rig.queue.mode, rig.queue.ram_count) == ("lazy", 0)
    check(rig.queue)


# Priorities.


def priorities(count: int) -> tuple[PriorityQueue, list[FakeIndex]]:
    indexes = [FakeIndex() for _ in range(count)]
    levels = [VariableQueue(index, VirtualClock(), SMALL) for index in indexes]
    return PriorityQueue(levels, lambda message: message[2][0]), indexes


def of_priority(*values: int) -> list[Message]:
    return [(b"o", b"h", bytes([value])) for value in values]


def test_the_highest_priority_goes_first_and_a_seq_stays_one_integer() -> None:
    queue, _ = priorities(3)
    assert queue.publish(of_priority(0, 2, 1, 2, 9, 0), False) == (0, True)

    got = []
    while not queue.is_empty():
        got += queue.fetch(2, UNBOUNDED, ack_required=True).seqs

    assert got == [1, 3, 4, 2, 0, 5]
    assert queue.requeue([4, 0, 99, 1]) == 3
    again = queue.fetch(9, UNBOUNDED, ack_required=True)
    assert (again.seqs, again.redelivered) == ([1, 4], 2)
    assert queue.ack([1, 2, 3, 4, 5]) == 5
    assert queue.depth() == 1


def test_a_change_of_mode_moves_nothing_before_its_steps_one_level_at_a_time() -> None:
    queue, indexes = priorities(3)
    for priority in (0, 1, 2):
        queue.publish(of_priority(*[priority] * 9), False, first_msg_no=1 + 9 * priority)

    queue.set_queue_mode("lazy")

    paged = [len(index.contents) for index in indexes]
    assert paged == [0, 0, 0]
    while queue.needs_timeout():
        before, paged = paged, [len(index.contents) for index in indexes]
        assert sum(a != b for a, b in zip(before, paged, strict=True)) <= 1
        queue.timeout()
    assert [len(index.contents) for index in indexes] == [9, 9, 9]
    assert queue.info()["mode"] == "lazy"


def paged_per_turn(queue: PriorityQueue, indexes: list[FakeIndex], begin: object) -> list[int]:
    """Return how many levels have paged in each turn, the one of ``begin`` first."""
    changes, before = [], [len(index.contents) for index in indexes]
    begin()  # type: ignore[operator]
    while True:
        paged = [len(index.contents) for index in indexes]
        changes.append(sum(a != b for a, b in zip(before, paged, strict=True)))
        if not queue.needs_timeout():
            return changes
        before = paged
        queue.timeout()


def test_a_lower_target_pages_one_level_in_a_turn() -> None:
    queue, indexes = priorities(4)
    for priority in (0, 1, 3):
        queue.publish(of_priority(*[priority] * 9), False, first_msg_no=1 + 9 * priority)

    changes = paged_per_turn(queue, indexes, lambda: queue.set_ram_duration_target(0.0))

    assert max(changes) == 1
    assert [len(index.contents) for index in indexes] == [9, 9, 0, 9]
    assert changes[0] == 1, "the first goes at once"


def test_a_store_that_takes_more_gets_it_one_level_in_a_turn() -> None:
    queue, indexes = priorities(3)
    for index in indexes:
        index.credit = 0
    for priority in (0, 1, 2):
        queue.publish(of_priority(*[priority] * 9), False, first_msg_no=1 + 9 * priority)
    queue.set_ram_duration_target(0.0)
    while queue.needs_timeout():
        queue.timeout()
    assert not any(index.contents for index in indexes)
    for index in indexes:
        index.credit = 99

    changes = paged_per_turn(queue, indexes, queue.resume)

    assert max(changes) == 1
    assert [len(index.contents) for index in indexes] == [9, 9, 9]


def test_priorities_against_a_model(rng: random.Random) -> None:
    queue, indexes = priorities(4)
    ready: set[tuple[int, int]] = set()  # (-priority, seq)
    unacked: set[tuple[int, int]] = set()
    next_seq = 0
    for _ in range(400):
        operation = rng.choice(["publish", "fetch", "fetch", "ack", "requeue", "target"])
        if operation == "publish":
            values = [rng.randint(0, 5) for _ in range(rng.randint(1, 4))]
            assert queue.publish(of_priority(*values), False, first_msg_no=next_seq)[0] == next_seq
            ready |= {(-min(value, 3), next_seq + n) for n, value in enumerate(values)}
            next_seq += len(values)
        elif operation == "fetch":
            expected = sorted(ready)[:3]
            seqs = queue.fetch(3, UNBOUNDED, ack_required=True).seqs
            assert seqs == [seq for _, seq in expected][: len(seqs)]
            assert bool(seqs) == bool(expected)
            ready -= set(expected[: len(seqs)])
            unacked |= set(expected[: len(seqs)])
        elif operation == "target":
            queue.set_ram_duration_target(rng.choice([0.0, float("inf")]))
            queue.resume()
        else:
            some = set(rng.sample(sorted(unacked), rng.randint(0, len(unacked))))
            unacked -= some
            ready |= some if operation == "requeue" else set()
            assert getattr(queue, operation)([seq for _, seq in some]) == len(some)
        assert (queue.len(), queue.depth()) == (len(ready), len(ready) + len(unacked))
    assert queue.purge() == len(ready)
    assert queue.purge_acks() == len(unacked)
    while queue.needs_timeout():
        queue.timeout()
    assert not any(index.contents for index in indexes)


def test_a_predicate_goes_through_the_priorities() -> None:
    queue, _ = priorities(3)
    queue.publish(of_priority(1, 2, 0, 1), False)

    fetched, head = queue.fetchwhile(lambda entry: entry[SEQ] == 1, 9, UNBOUNDED)
    assert (fetched.seqs, head and head[SEQ]) == ([1], 0)
    dropped = queue.dropwhile(lambda entry: entry[SEQ] != 2, 9)
    assert (dropped.count, dropped.head and dropped.head[SEQ]) == (2, 2)
    assert queue.ack([1]) == 1
    assert queue.info()["messages"] == 1


def test_a_recovered_priority_queue_goes_on_with_higher_seqs() -> None:
    queue, indexes = priorities(2)
    for index in indexes:
        index.route(7, of_priority(0, 1))  # both, as the channel does not know the level
    queue.publish(of_priority(1, 0), True, first_msg_no=7)
    queue.terminate()
    after = PriorityQueue(
        [VariableQueue(index.restart(crash=False), VirtualClock(), SMALL) for index in indexes],
        lambda message: message[2][0],
    )

    after.init(recover=True)

    assert after.publish(of_priority(0), False)[0] == 2
    assert after.fetch(9, UNBOUNDED, ack_required=True).seqs == [0]
    assert after.fetch(9, UNBOUNDED, ack_required=True).seqs == [1, 2]


def test_paging_goes_on_past_messages_whose_contents_are_on_disk_already() -> None:
    rig = VariableRig(Limits(segment=4, io_batch=0, step=1, slack=0), 2, is_late=True)
    rig.publish_some(6)
    rig.settle()
    rig.queue.drop(6, ack_required=True)
    rig.queue.requeue([0, 1, 2, 3])
    assert (rig.shape()["q4"], rig.queue.absent) == ("0a 1a 2b 3b", 2)

    rig.set_target(1)
    rig.settle()

    assert rig.queue.ram_count == 1


def test_a_queue_that_has_become_lazy_keeps_to_its_target() -> None:
    rig = VariableRig(Limits(segment=2, io_batch=0, step=1, slack=0))
    rig.publish_some(9)
    rig.queue.fetch(5, UNBOUNDED, ack_required=True)
    rig.queue.ram.rates.ack_out = 1.0  # so it begins with the ready messages
    rig.queue.set_queue_mode("lazy")
    rig.set_target(2)

    rig.settle()

    assert rig.queue.mode == "lazy"
    assert len(rig.queue.pending.in_ram) == 2


def test_a_full_batch_waits_for_nothing() -> None:
    rig = VariableRig(Limits(segment=2, io_batch=0, step=1, read_max=1, slack=0), 0, is_late=True)
    rig.publish([message(1), message(1)])
    rig.settle()
    rig.queue.set_queue_mode("lazy")
    rig.settle()
    assert rig.queue.paged.delta.length == 2
    for _ in ("row", "content"):
        rig.queue.fetch(1, 0, ack_required=False)
        rig.settle()
    assert (len(rig.queue.paged.q3), rig.queue.paged.delta.length) == (1, 1)

    full = rig.queue.fetch(2, 0, ack_required=False)

    assert (full.seqs, full.pending) == ([0], False)
    assert not rig.queue.paged.fetch_is_pending
