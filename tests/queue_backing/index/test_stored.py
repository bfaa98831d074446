"""Queues over a real store: confirms, reading back, queues that begin again, figures."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterable
from typing import Any

import pytest

from leveret.core.message import BODY
from leveret.msg_store.client import RESTART_GAP
from leveret.msg_store.format.seq_range import SeqRange, rows_outside
from leveret.queue_backing.priority_queue import PriorityQueue
from leveret.queue_backing.variable.limits import Limits
from rigs.queues.stored_rig import (
    StoreBench,
    StoredQueue,
    bodies,
    fetch_all,
    publish,
    take,
)
from rigs.queues.variable_rig import ON_DISK, SMALL, UNBOUNDED, message

READER = "leveret-read"


# Confirms.


def test_a_batch_is_confirmed_when_it_is_on_disk_and_not_before(bench: StoreBench) -> None:
    queue = StoredQueue(bench)
    publish(queue, 5)
    bench.loop.turn()
    assert not queue.confirmed_runs

    bench.run(jumps=0)

    assert queue.reports == 1
    assert queue.take_confirmed() == [(0, 5)]
    assert not queue.confirmed_runs


def test_what_was_acked_before_it_was_written_is_confirmed_all_the_same(bench: StoreBench) -> None:
    queue = StoredQueue(bench)
    publish(queue, 3)
    queue.queue.fetch(3, UNBOUNDED, ack_required=False)

    bench.run(jumps=0)

    assert queue.take_confirmed() == [(0, 3)]
    assert bench.opened.folder.rdq_nos() == []


def test_what_nobody_awaits_is_put_off(bench: StoreBench) -> None:
    queue = StoredQueue(bench)
    messages = [message(9, 1)]
    first = bench.store.write(messages, (1,), is_awaited=False)
    queue.queue.publish(messages, True, first_msg_no=first)

    bench.run(jumps=0)
    assert not queue.confirmed_runs
    bench.run(jumps=1)
    assert queue.take_confirmed() == [(0, 1)]


def test_confirms_reach_the_queue_that_published(bench: StoreBench) -> None:
    queues = [StoredQueue(bench, number) for number in (1, 2, 3)]
    for at, queue in enumerate(queues):
        publish(queue, at + 1)

    bench.run(jumps=0)

    assert [q.take_confirmed() for q in queues] == [[(0, 1)], [(0, 2)], [(0, 3)]]


def test_a_full_disk_nacks_and_confirms_later(bench: StoreBench) -> None:
    queue = StoredQueue(bench)
    bench.disk.fail("writev", OSError(errno.ENOSPC, "full"), "*.rdq", times=2)
    publish(queue, 2)

    bench.run(jumps=0)
    assert queue.nacks == [(0, 2)]
    assert not queue.confirmed_runs
    bench.run(jumps=2)

    assert queue.take_confirmed() == [(0, 2)]


def test_a_failed_sync_fails_the_store_once_and_recovery_trusts_the_mark(bench: StoreBench) -> None:
    queue, other = StoredQueue(bench, 1), StoredQueue(bench, 2)
    publish(queue, 2)
    bench.run()
    bench.disk.fail("fdatasync", OSError(errno.EIO, "gone"), "*.jnl")
    publish(queue, 2, first=2)

    bench.run()
    assert len(bench.errors) == len(queue.failures) == len(other.failures) == 1
    with pytest.raises(Exception, match="gone"):
        publish(queue, 1)
    durable = bench.store.durable_at_failure
    assert durable is not None
    bench.store.kill()
    bench.run()
    bench.disk.heal()
    bench.open(trusted=durable)
    assert bench.store.durable_at_failure is None

    queue.begin()
    assert [body for _, body in fetch_all(queue)] == bodies(range(2))


# Reading back.


@pytest.mark.parametrize("mode", ["default", "lazy"])
@pytest.mark.parametrize("persistent", [False, True])
def test_what_was_handed_out_does_not_stay_in_ram(
    persistent: bool, mode: str, bench: StoreBench
) -> None:
    queue = StoredQueue(bench, limits=SMALL, target=ON_DISK, mode=mode)
    publish(queue, 40, persistent)
    queue.settle()
    bench.idle_disk()

    got = fetch_all(queue)

    assert [body for _, body in got] == bodies(range(40))
    assert bench.store.read_cache.size_bytes == 0
    assert not bench.store.read_cache.contents


def test_what_was_handed_out_with_others_does_not_stay_in_ram(bench: StoreBench) -> None:
    queue = StoredQueue(bench, limits=SMALL, target=ON_DISK, mode="lazy")
    for number in range(40):
        publish(queue, 1, persistent=bool(number % 2))
    queue.settle()
    bench.idle_disk()

    assert len(fetch_all(queue)) == 40
    assert not bench.store.read_cache.contents


def test_what_a_flush_is_writing_can_be_fetched(bench: StoreBench) -> None:
    queue = StoredQueue(bench, limits=SMALL, target=ON_DISK, mode="lazy")
    publish(queue, 5)
    bench.loop.turn()
    assert bench.loop.step()

    seqs: list[int] = []
    reader = bench.loop.named(READER)
    for _ in range(20):
        seqs += queue.queue.fetch(5, UNBOUNDED, ack_required=True).seqs
        if reader:
            reader.step()  # rows are read; nothing is written any further
        bench.loop.turn()

    assert seqs == [0, 1, 2, 3, 4]
    assert not queue.confirmed_runs
    assert not bench.store.stats().contents_read


def read_now(bench: StoreBench) -> list[int]:
    """Return the seqs of queue 1 that a read finds before anything else is done."""
    found: list[int] = []
    bench.store.client(1).rows(0, 100, lambda rows, _: found.extend(row[0] for row in rows))
    bench.loop.named(READER).finish()
    callback, args = bench.loop.soon.pop()
    callback(*args)
    return found


def test_an_ack_holds_for_readers_before_it_is_on_disk(bench: StoreBench) -> None:
    queue = StoredQueue(bench)
    publish(queue, 6)
    bench.idle_disk()
    queue.queue.ack(take(queue, 3).seqs)

    assert read_now(bench) == [3, 4, 5]
    bench.loop.turn()
    queue.queue.ack(take(queue, 1).seqs)
    assert read_now(bench) == [4, 5]


@pytest.mark.parametrize("is_written", [False, True])
def test_what_is_acked_is_no_longer_counted(bench: StoreBench, is_written: bool) -> None:
    queue = StoredQueue(bench)
    publish(queue, 6)
    if is_written:
        queue.settle()
    queue.queue.ack(take(queue, 2).seqs)

    assert queue.index.persistent() == (4, 4 * len(message(9, 0)[BODY]))
    queue.settle()
    queue.begin()
    assert queue.queue.count == 4


def test_a_purge_holds_for_readers_before_a_row_has_gone(bench: StoreBench) -> None:
    queue = StoredQueue(bench)
    publish(queue, 6)
    bench.idle_disk()
    take(queue, 2)

    queue.queue.purge()

    assert read_now(bench) == [0, 1]


@pytest.mark.parametrize(
    ("ranges", "left"),
    [
        ([], range(12)),
        ([(0, 10), (2, 4)], [10, 11]),  # the second one ends before the first
        ([(0, 4), (2, 8)], [8, 9, 10, 11]),
        ([(1, 3), (5, 6), (5, 9)], [0, 3, 4, 9, 10, 11]),
        ([(0, 12), (12, 20)], []),
        ([(0, 12, [0, 1, 5, 7, 11])], [0, 1, 5, 7, 11]),
        ([(0, 12, [5, 7]), (6, 8)], [5]),
    ],
)
def test_rows_outside_of_purges_are_left(
    ranges: list[tuple[Any, ...]], left: Iterable[int]
) -> None:
    rows = [(seq, seq, 1, 0, 1) for seq in range(12)]

    assert [row[0] for row in rows_outside(rows, [SeqRange(*each) for each in ranges])] == [*left]


def test_a_purge_beside_many_unacked_is_one_range(bench: StoreBench) -> None:
    """A range for each stretch between them, in one turn: each had to look at all acks before it."""
    queue = StoredQueue(bench)
    publish(queue, 40)
    bench.idle_disk()
    unacked = take(queue, 40).seqs
    queue.queue.requeue(unacked[::2])

    assert queue.queue.purge() == 20

    assert len(bench.store.core.range_acks) == 1
    bench.idle_disk()
    assert read_now(bench) == unacked[1::2]
    bench.crash()
    queue.begin()
    assert [seq for seq, _ in fetch_all(queue)] == unacked[1::2]


def test_a_purge_of_paged_out_messages_beside_many_unacked_is_one_range(bench: StoreBench) -> None:
    queue = StoredQueue(bench, limits=SMALL, target=ON_DISK, mode="lazy")
    publish(queue, 40, persistent=False)
    queue.settle()
    unacked = [seq for seq, _ in fetch_all(queue)]
    queue.queue.requeue(unacked[::2])
    queue.settle()

    assert queue.queue.purge() == 20

    (paged,) = bench.store.transients._core.queues.values()
    assert len(paged.deleting) == 1
    queue.settle()
    assert bench.store.transients.stats().live == 20
    queue.queue.requeue(unacked[1::2])
    assert [seq for seq, _ in fetch_all(queue)] == unacked[1::2]


def test_a_purge_over_a_purge_holds_for_readers_as_well(bench: StoreBench) -> None:
    queue = StoredQueue(bench)
    publish(queue, 30)
    bench.idle_disk()
    queue.take_confirmed()
    unacked = take(queue, 3).seqs
    queue.queue.requeue([0])
    assert queue.queue.purge() == 28
    publish(queue, 30, first=30)
    writers = [bench.loop.named(name) for name in ("leveret-rdq", "leveret-journal")]
    while not queue.confirmed_runs:  # nothing else is done
        bench.loop.turn()
        for writer in writers:
            writer.finish()
    queue.queue.requeue(unacked[1:])

    assert queue.queue.purge() == 32

    assert read_now(bench) == []
    bench.idle_disk()
    assert not bench.rows(1)


# Queues that end while the store goes on.


def test_a_queue_that_dies_leaves_its_batch_to_the_next(bench: StoreBench) -> None:
    queue = StoredQueue(bench)
    publish(queue, 4)
    bench.loop.turn()
    bench.store.write([message(9, 7)] * 2, (1,))  # on the way to the queue
    bench.store.queue_down(1)

    queue.begin()
    assert queue.queue.len() == 4
    assert queue.queue.next_seq == 4 + RESTART_GAP
    publish(queue, 2, first=4)
    bench.run()

    assert queue.take_confirmed() == [(4 + RESTART_GAP, 2)]
    got = fetch_all(queue)
    assert [body for _, body in got] == bodies(range(6))
    queue.queue.ack([seq for seq, _ in got])
    bench.idle_disk()
    assert not bench.rows(1)
    assert not bench.store.core.holds.bodies


def test_a_queue_that_ended_in_order_goes_on_where_it_was(bench: StoreBench) -> None:
    queue = StoredQueue(bench)
    publish(queue, 4)
    queue.queue.fetch(2, UNBOUNDED, ack_required=True)
    queue.queue.terminate()

    queue.begin()

    assert queue.queue.next_seq == 4
    fetched = take(queue, 4)
    assert (fetched.seqs, fetched.redelivered) == ([0, 1, 2, 3], 2)


def test_a_store_that_stopped_in_order_keeps_what_queues_said(bench: StoreBench) -> None:
    queue = StoredQueue(bench)
    publish(queue, 4)
    queue.queue.fetch(3, UNBOUNDED, ack_required=True)
    queue.queue.terminate()
    bench.restart()

    queue.begin()

    assert bench.opened.recovered.is_clean
    assert queue.queue.next_seq == 4
    assert take(queue, 9).redelivered == 3


def test_a_queue_that_nobody_opened_keeps_its_terms(bench: StoreBench) -> None:
    queue, other = StoredQueue(bench, 1), StoredQueue(bench, 2)
    for each in (queue, other):
        publish(each, 4)
        each.queue.fetch(3, UNBOUNDED, ack_required=True)
        each.queue.terminate()
    bench.restart()
    bench.store.delete_queue(2)
    bench.restart()

    assert 2 not in bench.opened.recovered.queues
    queue.begin()

    assert queue.queue.next_seq == 4
    assert take(queue, 9).redelivered == 3


def test_terms_hold_for_one_start(bench: StoreBench) -> None:
    queue = StoredQueue(bench)
    publish(queue, 2)
    queue.queue.terminate()
    bench.restart()
    bench.crash()

    queue.begin()

    assert take(queue, 9).redelivered == 2
    assert queue.queue.next_seq >= bench.opened.recovered.next_no


def test_the_priorities_of_a_queue_have_rows_of_their_own(bench: StoreBench) -> None:
    """Messages are routed to the queue; which of its levels they go to is seen there."""
    levels = [StoredQueue(bench, number, SMALL, ON_DISK, routed_as=1) for number in (1, 2, 3)]
    queue = PriorityQueue([each.queue for each in reversed(levels)], lambda each: each[BODY][0] % 3)
    messages = [message(9, n) for n in range(9)]
    first = bench.store.write(messages, (1,))
    queue.publish(messages, True, None, None, False, first)
    bench.run()
    assert any(each.confirmed_runs for each in levels)
    more = bench.store.write(messages, (1,))
    queue.discard(messages, True, more)
    bench.store.write(messages, (1,))

    bench.crash()
    for level in levels:
        level.begin()
        level.settle()

    assert [level.queue.len() for level in levels] == [3, 3, 3]
    for level in levels:
        level.queue.ack([seq for seq, _ in fetch_all(level)])
    bench.idle_disk()
    assert not sum(state.valid_bytes for state in bench.store.memtables.files.values())


def test_a_deleted_queue_is_gone_and_its_messages_in_others_are_not(bench: StoreBench) -> None:
    one, other = StoredQueue(bench, 1), StoredQueue(bench, 2)
    messages = [message(9, n) for n in range(9)]
    first = bench.store.write(messages, (1, 2))
    for queue in (one, other):
        queue.queue.publish(messages, True, first_msg_no=first)
    bench.run()

    one.queue.delete_and_terminate()
    bench.idle_disk()
    assert [no for no, count in bench.store.message_counts().items() if count] == [2]
    bench.restart()

    assert 1 not in bench.opened.recovered.queues
    other.begin()
    got = fetch_all(other)
    assert [body for _, body in got] == bodies(range(9))
    other.queue.ack([seq for seq, _ in got])
    bench.idle_disk()
    assert not sum(state.valid_bytes for state in bench.store.memtables.files.values())


# Figures.


def test_status_shows_what_is_there(bench: StoreBench) -> None:
    queue = StoredQueue(bench, limits=SMALL, target=ON_DISK)
    publish(queue, 8)
    queue.settle()
    take(queue, 3, ack_required=False)
    bench.idle_disk()

    status = bench.store.stats()

    assert status.messages == 5
    assert status.segments == 1
    assert status.segment_bytes == len(
        bench.disk.image(bench.opened.folder.rdq_path(bench.opened.folder.rdq_nos()[0]))
    )
    assert 0 < status.live_bytes < status.segment_bytes
    assert status.garbage_bytes + status.live_bytes == status.segment_bytes
    assert status.syncs > 0
    assert status.checkpoint_age_s is not None
    assert status.contents_read >= 3
    assert status.contents_lost == status.ranges_leaving == 0


@pytest.mark.parametrize("mode", ["default", "lazy"])
def test_who_drains_a_queue_waits_for_the_disk_at_its_beginning_only(
    bench: StoreBench, mode: str
) -> None:
    limits = Limits(segment=16, io_batch=1, step=100, read_max=16, slack=0, read_ahead=16)
    queue = StoredQueue(bench, limits=limits, target=ON_DISK)
    publish(queue, 320)
    queue.settle()
    queue.set_target(float("inf"))
    queue.queue.set_queue_mode(mode)
    take(queue, 4)

    got = []
    while queue.queue.len():
        bench.run(jumps=0)
        fetched = queue.queue.fetch(4, UNBOUNDED, ack_required=False)
        assert not fetched.pending, got
        got += fetched.seqs

    assert got == list(range(4, 320))


def test_contents_are_read_less_far_ahead_when_they_have_little_room(rng: random.Random) -> None:
    bench = StoreBench(rng, checkpoint_rows=4, room_bytes=80_000)
    first, second = [StoredQueue(bench, number, target=ON_DISK) for number in (1, 2)]
    for queue in (first, second):
        publish(queue, 300)
        queue.settle()
    entries = list(first.queue.paged.q3)
    first.index.prefetch(entries)
    bench.run(jumps=0)
    assert len(bench.store.read_cache.contents) == 300

    second.index.prefetch(list(second.queue.paged.q3))
    bench.run(jumps=0)

    found = second.index.fetch_contents(list(second.queue.paged.q3))
    assert found.index(None) == len(found) - found.count(None) < 200
    bench.close()
