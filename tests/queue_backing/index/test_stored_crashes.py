"""Queues over a real store whose process or machine dies at any step: commits, fan-out, purges."""

from __future__ import annotations

import errno
import random

import pytest

from leveret.msg_store.wal.group_commit import KEPT_MAX
from leveret.queue_backing.variable.invariants import check
from rigs.disk.faulty_files import FaultyCalls
from rigs.queues.stored_rig import (
    StoreBench,
    StoredQueue,
    bodies,
    fetch_all,
    power_cut,
    publish,
    take,
)
from rigs.queues.variable_rig import ON_DISK, SMALL, UNBOUNDED, message

# Crashes.


@pytest.mark.parametrize("cut", [FaultyCalls.kill, power_cut])
@pytest.mark.parametrize("steps", range(0, 26, 2))
def test_a_crash_anywhere_in_a_commit_loses_no_confirmed_message(
    steps: int, cut: object, rng: random.Random
) -> None:
    bench = StoreBench(rng, rdq_file_bytes=300, journal_file_bytes=300, checkpoint_rows=3)
    queue = StoredQueue(bench, limits=SMALL, target=ON_DISK)
    publish(queue, 6)
    bench.run()
    queue.take_confirmed()
    queue.queue.ack(take(queue, 2).seqs)
    publish(queue, 3, first=6)
    bench.loop.turn()
    for _ in range(steps):
        bench.loop.step()
        bench.loop.turn()
    confirmed = {seq for low, n in queue.take_confirmed() for seq in range(low, low + n)}
    used = queue.queue.next_seq

    bench.crash(cut)  # type: ignore[arg-type]
    queue.begin()

    assert queue.queue.next_seq >= used
    got = fetch_all(queue)
    seqs = [seq for seq, _ in got]
    assert set(range(2, 6)) | confirmed <= set(seqs) <= set(range(9))
    assert seqs == sorted(seqs)
    assert [body for _, body in got] == bodies(seqs)
    bench.close()


def test_a_crash_amid_a_fan_out_leaves_every_queue_consistent(rng: random.Random) -> None:
    for steps in range(0, 60, 7):
        bench = StoreBench(rng, rdq_file_bytes=500, journal_file_bytes=700, checkpoint_rows=20)
        queues = [StoredQueue(bench, number) for number in range(1, 21)]
        numbers = tuple(range(1, 21))
        for batch in range(3):
            messages = [message(9, 2 * batch + n) for n in range(2)]
            first = bench.store.write(messages, numbers)
            for queue in queues[: 20 - 3 * batch]:  # the others are not reached before the crash
                queue.queue.publish(messages, True, first_msg_no=first)
            bench.loop.turn()
            for _ in range(steps):
                bench.loop.step()
            bench.loop.turn()
        confirmed = [queue.take_confirmed() for queue in queues]

        bench.crash(power_cut)

        counts: dict[int, int] = {}
        for queue, runs in zip(queues, confirmed, strict=True):
            for row in bench.rows(queue.queue_no):
                counts[row[1]] = counts.get(row[1], 0) + 1
            queue.begin()
            got = fetch_all(queue)
            assert len(got) >= sum(count for _, count in runs)
            assert [body for _, body in got] == bodies([seq for seq, _ in got])
        places = {msg_no: bench.location.index.by_msg_no[msg_no][4] for msg_no in counts}
        assert places == counts
        for queue in queues:
            queue.queue.ack([*queue.queue.pending.in_ram, *queue.queue.pending.on_disk])
        bench.idle_disk()
        assert not sum(state.valid_bytes for state in bench.store.memtables.files.values())
        bench.close()


def test_neither_seqs_nor_numbers_are_used_twice(bench: StoreBench) -> None:
    queue = StoredQueue(bench)
    seqs: set[int] = set()
    numbers: set[int] = set()
    for round_no in range(12):
        messages = [message(9, 1)] * 3
        first = bench.store.write(messages, (1,))
        seq = queue.queue.publish(messages, True, first_msg_no=first)[0]
        assert seqs.isdisjoint(range(seq, seq + 3))
        assert numbers.isdisjoint(range(first, first + 3))
        seqs.update(range(seq, seq + 3))
        numbers.update(range(first, first + 3))
        for _ in range(round_no):
            bench.loop.step()
            bench.loop.turn()
        if round_no % 4 == 3:
            bench.run()
        bench.crash(power_cut if round_no % 2 else FaultyCalls.kill)
        queue.begin()


def test_holes_that_crashes_left_in_the_seqs_are_jumped_over(bench: StoreBench) -> None:
    queue = StoredQueue(bench, limits=SMALL)
    for start in range(5):
        publish(queue, 3, first=3 * start)
        bench.run()
        bench.crash()
        queue.begin()
    bench.run(jumps=0)

    before = bench.loop.pieces
    got = fetch_all(queue)

    assert [body for _, body in got] == bodies(range(15))
    assert {seq >> 40 for seq, _ in got} == {0, 2, 3, 4, 5}
    assert bench.loop.pieces - before < 60


# Purges.


@pytest.mark.parametrize("cut", [FaultyCalls.kill, power_cut])
@pytest.mark.parametrize("steps", range(0, 30, 3))
def test_a_purge_beside_unacked_and_unconfirmed_survives_a_crash(
    steps: int, cut: object, rng: random.Random
) -> None:
    bench = StoreBench(rng, rdq_file_bytes=400, checkpoint_rows=6)
    queue = StoredQueue(bench, limits=SMALL, target=3)
    publish(queue, 12)
    bench.run()
    unacked = queue.queue.fetch(2, UNBOUNDED, ack_required=True).seqs
    publish(queue, 3, first=12)
    confirmed_before = queue.take_confirmed()

    assert queue.queue.purge() == 13
    check(queue.queue)
    bench.loop.turn()
    for _ in range(steps):
        bench.loop.step()
        bench.loop.turn()
    bench.crash(cut)  # type: ignore[arg-type]
    queue.begin()

    assert confirmed_before == [(0, 12)]
    got = [seq for seq, _ in fetch_all(queue)]
    assert set(unacked) <= set(got) <= set(range(15))
    bench.close()


def test_a_purged_range_is_gone_at_once_for_whoever_reads(bench: StoreBench) -> None:
    queue = StoredQueue(bench, limits=SMALL, target=ON_DISK, mode="lazy")
    publish(queue, 20)
    bench.idle_disk()
    queue.settle()
    fetched = take(queue, 3)
    assert fetched.seqs == [0, 1, 2]
    assert queue.queue.purge() == 17

    queue.queue.requeue(fetched.seqs)
    assert [seq for seq, _ in fetch_all(queue)] == [0, 1, 2]
    queue.queue.ack([0, 1, 2])
    bench.idle_disk()
    assert not bench.rows(1)
    bench.crash()
    queue.begin()
    assert queue.queue.len() == 0


def test_a_store_that_stops_right_after_a_purge_does_not_bring_it_back(bench: StoreBench) -> None:
    queue = StoredQueue(bench)
    publish(queue, 30)
    bench.run()
    queue.queue.purge()
    queue.queue.terminate()
    bench.restart()

    queue.begin()

    assert queue.queue.len() == 0
    assert bench.opened.recovered.is_clean


def test_a_stop_waits_for_a_purge_that_the_journal_does_not_announce(bench: StoreBench) -> None:
    """So many unacked messages lie between those that were purged."""
    queue = StoredQueue(bench)
    publish(queue, 2_202)
    bench.run()
    unacked = [seq for seq, _ in fetch_all(queue)]
    queue.queue.requeue(unacked[::2])
    bench.idle_disk()

    assert queue.queue.purge() == 1_101
    (purged,) = bench.store.core.range_acks
    assert len(purged.seqs.kept) > KEPT_MAX
    queue.queue.terminate()
    bench.restart()
    queue.begin()

    assert [seq for seq, _ in fetch_all(queue)] == unacked[1::2]


def test_stopping_on_a_full_disk_ends_and_keeps_what_was_confirmed(bench: StoreBench) -> None:
    queue = StoredQueue(bench)
    publish(queue, 3)
    bench.run()
    queue.take_confirmed()
    bench.disk.fail("writev", OSError(errno.ENOSPC, "full"), "*.rdq", times=99)
    publish(queue, 2, first=3)
    queue.queue.purge()
    queue.queue.terminate()

    bench.stop()
    bench.disk.heal()
    bench.open()
    queue.begin()

    assert queue.queue.len() in {0, 3}
