"""Group commit on a scheduler: which work is written, which is cancelled, and when queues hear of it.

Tests: msg_store/wal/flush.py, msg_store/wal/pending.py, msg_store/wal/segment_writer.py
"""

from __future__ import annotations

import errno
import random

import pytest

from leveret.core.errors import StoreError
from leveret.msg_store.format.ballast import Ballast
from leveret.msg_store.format.errors import StoreFailed
from leveret.msg_store.wal import flush
from leveret.msg_store.wal.flush import SLICE_BYTES, SLICE_OPS
from leveret.msg_store.wal.group_commit import LINGER_S, SHORTAGE_RETRY_S
from rigs.store.store_rig import STORE, StoreRig


@pytest.fixture
def rig(rng: random.Random) -> StoreRig:
    return StoreRig(rng)


def journal_bytes(rig: StoreRig) -> int:
    return sum(len(rig.disk.image(path)) for path in rig.disk.paths() if path.suffix == ".jnl")


def rdq_bytes(rig: StoreRig) -> int:
    return sum(len(rig.disk.image(path)) for path in rig.disk.paths() if path.suffix == ".rdq")


def test_nothing_is_safe_before_both_files_are_synced(rig: StoreRig) -> None:
    rig.publish((1,), 3)
    rig.start()
    while "rdq" in rig.jobs:
        rig.step("rdq")
    assert rig.safe == set()
    points = len(rig.points)
    while "journal" in rig.jobs:
        assert rig.safe == set()
        rig.step("journal")

    assert rig.points[points - 1] == "rdq: synced"
    assert rig.points[-1] == "journal: synced"
    assert rig.safe == set(rig.held)


def test_rows_that_follow_each_other_are_reported_as_one_run(rig: StoreRig) -> None:
    first = rig.recovered.next_no
    rig.publish((1, 2), 50)
    rig.publish((1,), 50)

    report = rig.run_flush()

    assert sorted(report.safe) == [(1, first, 100), (2, first, 50)]


def test_rows_may_come_in_any_order(rig: StoreRig) -> None:
    """Those of a mirror do, which catches up."""
    first = rig.recovered.next_no
    for at, msg_no in zip((6, 5, 8, 9), rig.write((1,), 4), strict=True):
        rig.next_seq[1] = first + at
        rig.accept(1, [msg_no])
    assert [row[0] - first for row in rig.core.unwritten_rows(1)] == [5, 6, 8, 9]

    rig.start()
    rig.next_seq[1] = first + 7
    rig.accept(1, rig.write((1,)))
    assert [row[0] - first for row in rig.core.unwritten_rows(1)] == [5, 6, 7, 8, 9]
    assert sorted(rig.finish_flush().safe) == [(1, first + 5, 2), (1, first + 8, 2)]


def test_a_flush_can_leave_the_younger_messages(rig: StoreRig) -> None:
    first = rig.recovered.next_no
    rig.publish((1,), 3)
    rig.publish((2,), 1)
    rig.publish((1, 3), 2)
    assert rig.core.has_older_work(first + 1)
    assert not rig.core.has_older_work(first)

    rig.start(younger=2)
    report = rig.finish_flush()

    assert sorted(report.safe) == [(1, first, 3), (2, first, 1)]
    rig.ack((1, first + 3), (1, first + 4))
    rig.run_flush()
    assert rig.safe == set(rig.rows)


def test_what_was_acked_early_is_safe_when_the_older_ones_of_its_queue_are(rig: StoreRig) -> None:
    core, first = rig.core, rig.recovered.next_no
    rig.publish((1,), 3)
    rig.start()
    rig.publish((1,), 3)
    rig.ack((1, first + 3), (1, first + 5))
    assert core.take_cancelled() == []  # three older ones are on their way

    while rig.jobs:
        rig.step(next(iter(rig.jobs)))
    assert rig.reports[-1].safe == [(1, first, 3), (1, first + 3, 1)]
    assert core.take_cancelled() == []  # one older waits
    assert core.delay_s() == 0.0
    assert rig.run_flush().safe == [(1, first + 4, 1), (1, first + 5, 1)]


def test_a_message_acked_everywhere_before_the_flush_costs_no_byte(rig: StoreRig) -> None:
    before = journal_bytes(rig)
    rig.publish((1, 2), 10, size=500)
    rig.ack(*rig.held)

    rig.run()

    assert rig.safe == rig.acked
    assert (journal_bytes(rig), rdq_bytes(rig)) == (before, 0)
    assert rig.core.holds.counts == {}
    assert rig.core.holds.bodies == {}


def test_a_message_acked_in_one_queue_is_written_for_the_other_alone(rig: StoreRig) -> None:
    rig.publish((1, 2))
    (key,) = [key for key in rig.held if key[0] == 1]
    rig.ack(key)

    rig.run()
    rig.crash(lambda disk: disk.power_cut())

    assert [key[0] for key in rig.held] == [2]


def test_an_early_ack_frees_nothing_that_another_queue_waits_for(rig: StoreRig) -> None:
    msg_nos = rig.write((1, 2))
    rig.accept(1, msg_nos)
    rig.ack(*rig.held)
    rig.run()
    rig.accept(2, msg_nos)

    rig.run()
    rig.crash(lambda disk: disk.power_cut())

    assert [key[0] for key in rig.held] == [2]


def test_a_queue_that_accepts_later_refers_to_the_record_that_is_there(rig: StoreRig) -> None:
    msg_nos = rig.write((1, 2), 2, size=300)
    rig.accept(1, msg_nos)
    rig.run()
    size = rdq_bytes(rig)
    rig.accept(2, msg_nos)

    rig.run()

    assert rdq_bytes(rig) == size
    rig.crash(lambda disk: disk.power_cut())
    assert len(rig.held) == 4


def test_a_queue_that_goes_down_gives_up_what_it_never_accepted(rig: StoreRig) -> None:
    msg_nos = rig.write((1, 2), 3)
    rig.accept(1, msg_nos[:1])
    rig.core.queue_down(1)
    rig.core.queue_down(2)

    assert rig.core.holds.counts == {msg_nos[0]: 1}, "its row in queue 1 is pending"
    assert list(rig.core.holds.bodies) == msg_nos[:1]
    with pytest.raises(StoreError, match="not written for it"):
        rig.accept(2, msg_nos[:1])


def test_the_last_ack_makes_the_bytes_garbage(rig: StoreRig) -> None:
    rig.publish((1, 2), 2, size=100)
    rig.run()
    (file,) = rig.core.memtables.files.values()
    assert (file.valid_bytes, file.size_bytes) == (rdq_bytes(rig) - 64, rdq_bytes(rig))
    rig.ack(*rig.held)
    assert file.valid_bytes == rdq_bytes(rig) - 64, "it is not durable yet"
    rig.run()

    assert file.valid_bytes == 0
    assert rig.core.memtables.active.inserted == {}


def test_a_flush_takes_a_slice_and_the_rest_follows_in_order(rig: StoreRig) -> None:
    rig.publish((1,), SLICE_OPS + 500, size=1)
    rig.publish((2,), 3, size=1)

    first, second = rig.run_flush(), rig.run_flush()

    start = rig.next_seq[1] - SLICE_OPS - 500
    assert first.safe == [(1, start, SLICE_OPS)]
    assert second.safe == [(2, rig.next_seq[2] - 3, 3), (1, start + SLICE_OPS, 500)]


def test_a_slice_ends_with_the_body_that_fills_it(rig: StoreRig) -> None:
    rig.publish((1,), 4, size=SLICE_BYTES // 2)
    rig.publish((1,), 1, size=3 * SLICE_BYTES)

    counts = []
    while rig.start():
        counts.append(sum(run[2] for run in rig.finish_flush().safe))

    assert counts == [2, 2, 1]
    rig.crash(lambda disk: disk.power_cut())


def test_acks_do_not_wait_behind_what_is_published(rig: StoreRig) -> None:
    """However slow the disk and however much of it there is: what a consumer has done is done."""
    rig.publish((8,), 3, size=1)
    rig.publish((9,), SLICE_OPS + 5, size=1)
    rig.run()
    acked = rig.held
    for queue_no in range(1, 5):
        rig.publish((queue_no,), SLICE_OPS, size=1)
    rig.ack(*acked)

    first = rig.run_flush()

    assert first.safe == [(1, rig.next_seq[1] - SLICE_OPS, SLICE_OPS)]
    assert rig.gone >= set(acked)
    rig.crash(lambda disk: disk.power_cut())


def test_more_acks_than_a_flush_should_have_are_left_to_the_next(
    rig: StoreRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flush, "SLICE_ACKS", 10)
    for queue_no in range(1, 7):
        rig.publish((queue_no,), 4, size=1)
    rig.run()
    rig.ack(*rig.held)

    taken = []
    while rig.start():
        taken.append(sum(map(len, rig.flush.batch.acks.values())))
        rig.finish_flush()

    assert taken == [10, 10, 4]
    rig.crash(lambda disk: disk.power_cut())


def test_work_that_nobody_waits_for_is_put_off(rig: StoreRig) -> None:
    assert rig.core.delay_s() is None
    msg_nos = rig.write((1,), 2)
    assert rig.core.delay_s() is None
    rig.core.publish(1, 1, [(msg_nos[0], 0)], is_awaited=False)
    assert rig.core.delay_s() == LINGER_S
    rig.core.publish(1, 2, [(msg_nos[1], 0)])
    assert rig.core.delay_s() == 0.0
    rig.start()
    assert rig.core.delay_s() is None
    rig.finish_flush()

    rig.core.ack(1, [(1, msg_nos[0])])
    assert rig.core.delay_s() == LINGER_S
    rig.core.hurry()
    assert rig.core.delay_s() == 0.0


def test_much_work_is_not_put_off_though_nobody_waits(rig: StoreRig) -> None:
    msg_nos = rig.write((1,), SLICE_OPS)
    rig.core.publish(1, 1, [(each, 0) for each in msg_nos], is_awaited=False)

    assert rig.core.delay_s() == 0.0


def test_numbers_follow_each_other_within_a_boot(rig: StoreRig) -> None:
    assert rig.write((1,), 3) == [(1 << 40) + each for each in range(3)]
    assert rig.write((1,), 1) == [(1 << 40) + 3]


def test_expiries_are_kept(rig: StoreRig) -> None:
    rig.publish((1,), 2, expiry_ms=77)
    rig.publish((1,), 1)
    rig.run()
    rig.crash(lambda disk: disk.power_cut())

    assert [row[2:] for row in rig.rows_of(1)] == [
        (20, 77, 1),
        (20, 77, 1),
        (20, 0, 1),
    ]


@pytest.mark.parametrize("wait", ["rdq", "journal"])
def test_a_slow_disk_makes_flushes_larger_not_more(rig: StoreRig, wait: str) -> None:
    """One flush on its way, everything else waits and goes together."""
    other = "journal" if wait == "rdq" else "rdq"
    rig.publish((1,), 1)
    rig.start()
    for _ in range(100):
        rig.step(other)
        rig.publish((1, 2), 5)
        assert rig.core.delay_s() is None
    assert rig.safe == set()
    while rig.jobs:
        rig.step(wait)

    flushes = len(rig.reports)
    rig.run()

    assert rig.safe == set(rig.held)
    assert len(rig.reports) - flushes <= 3
    rig.crash(lambda disk: disk.power_cut())


def test_a_sync_of_half_a_second_loses_and_repeats_nothing(rig: StoreRig) -> None:
    rig.disk.delay("fdatasync", 0.5)
    for _ in range(10):
        rig.publish((1,), 20)
        rig.run_flush()

    assert rig.slept == 10.0
    assert rig.safe == set(rig.held)


# Disks that are full.


def full_rig(rng: random.Random, ballast_bytes: int = 0, room: int = 20_000) -> StoreRig:
    rig = StoreRig(rng, ballast_bytes=ballast_bytes, disk_bytes=1 << 30)
    rig.publish((1,), 5, size=100)
    rig.run()
    rig.memory.size_bytes = (1 << 30) - rig.memory.free_bytes(STORE) + room
    return rig


def test_the_ballast_makes_room_for_the_batch(rng: random.Random) -> None:
    rig = full_rig(rng, ballast_bytes=50_000)
    rig.publish((1,), 100, size=500)

    rig.run()

    assert rig.nacked == set()
    assert rig.safe == set(rig.held)
    assert not [path for path in rig.disk.paths() if path.name == "ballast"]
    rig.crash(lambda disk: disk.power_cut())


@pytest.mark.parametrize("room", range(0, 6000, 371))
def test_a_batch_that_does_not_fit_is_nacked_and_written_when_it_does(
    rng: random.Random, room: int
) -> None:
    rig = full_rig(rng, room=room)
    before = rig.safe.copy()
    rig.ack(rig.held[0])
    rig.publish((1,), 100, size=500)
    acked_late = rig.held[-1]

    rig.run_flush()
    assert rig.nacked == set(rig.rows) - before
    assert rig.safe == before
    assert rig.core.delay_s() == SHORTAGE_RETRY_S
    rig.ack(acked_late)
    rig.publish((2,), 1)
    rig.memory.size_bytes = 1 << 30
    rig.run()

    assert rig.safe == set(rig.rows)
    rig.crash(lambda disk: disk.power_cut())
    assert acked_late not in rig.held


def test_acks_are_written_while_messages_find_no_room(rng: random.Random) -> None:
    rig = full_rig(rng, room=10_000)
    before = rig.safe.copy()
    rig.ack(rig.held[0])
    rig.publish((1,), 100, size=500)
    rig.run_flush()
    assert rig.nacked == set(rig.rows) - before
    assert rig.core.memtables.terms[1].messages == 5

    rig.core.resume()
    rig.run_flush()
    assert rig.core.memtables.terms[1].messages == 4
    assert rig.core.shortage is not None, "publishers still wait"

    rig.run_flush()
    assert rig.core.delay_s() == SHORTAGE_RETRY_S
    assert rig.safe == before
    rig.memory.size_bytes = 1 << 30
    rig.run()
    assert rig.core.shortage is None
    assert rig.safe == set(rig.rows)
    rig.crash(lambda disk: disk.power_cut())


@pytest.mark.parametrize("is_turn_of_acks", [True, False])
def test_a_shortage_ends_when_all_that_waited_is_cancelled(
    rng: random.Random, is_turn_of_acks: bool
) -> None:
    rig = full_rig(rng, room=10_000)
    rig.publish((1,), 3, size=5_000)
    if is_turn_of_acks:
        rig.ack(rig.held[0])
    rig.run_flush()
    assert rig.core.is_short
    if is_turn_of_acks:
        rig.core.resume()
        rig.run_flush()
        assert not rig.core.is_short
    for seq_row in rig.held[-3:]:
        rig.ack(seq_row)
    assert not rig.core.pending_ops
    assert rig.core.shortage is not None

    rig.memory.size_bytes = 1 << 30
    rig.run()
    assert rig.core.shortage is None
    assert rig.core.delay_s() is None


def full_rig_with_reserve(rng: random.Random) -> tuple[StoreRig, Ballast]:
    rig = full_rig(rng, room=0)
    rig.ballast._reserve = reserve = Ballast(rig.files, STORE, 10_000, "reserve")
    rig.memory.size_bytes += 20_000
    assert reserve.restore()
    rig.memory.size_bytes -= rig.memory.free_bytes(STORE)
    return rig, reserve


def test_a_flush_of_nothing_leaves_the_reserve_to_acks(rng: random.Random) -> None:
    rig, reserve = full_rig_with_reserve(rng)
    rig.publish((1,), 1)
    rig.run_flush()
    rig.ack(rig.held[-1])
    assert not rig.core.pending_ops

    rig.core.resume()
    rig.run_flush()
    assert not reserve.is_given_up
    assert rig.core.shortage is not None

    rig.ack(rig.held[0])
    rig.core.resume()
    rig.run_flush()
    assert reserve.is_given_up
    assert rig.core.shortage is None


@pytest.mark.parametrize("is_of_acks", [True, False])
def test_the_reserve_is_for_acks(rng: random.Random, is_of_acks: bool) -> None:
    rig, reserve = full_rig_with_reserve(rng)
    if is_of_acks:
        rig.ack(rig.held[0])
    else:
        rig.publish((1,), 1)

    rig.run_flush()

    assert reserve.is_given_up is is_of_acks
    assert bool(rig.nacked) is not is_of_acks


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("pattern", ["*.rdq", "*.jnl"])
@pytest.mark.parametrize("point", ["writev", "fdatasync"])
@pytest.mark.parametrize("times", [1, 2])
def test_a_flush_to_a_full_disk_is_tried_twice_then_nacked(
    rng: random.Random, code: int, pattern: str, point: str, times: int
) -> None:
    rig = StoreRig(rng)
    rig.publish((1, 2), 5)
    rig.run()
    rig.publish((1, 2), 5)
    rig.disk.fail(point, OSError(code, "full"), pattern, times=times)

    report = rig.run_flush()

    assert bool(report.nacked) == (times == 2)
    rig.run()
    assert rig.safe == set(rig.held)
    rig.crash(lambda disk: disk.power_cut())


@pytest.mark.parametrize("point", ["open", "writev", "fsync", "fdatasync", "fsync_dir"])
@pytest.mark.parametrize("after", range(4))
@pytest.mark.parametrize("times", [1, 2])
def test_a_disk_that_is_full_while_a_new_segment_is_made(
    rng: random.Random, point: str, after: int, times: int
) -> None:
    rig = StoreRig(rng, rdq_file_bytes=500, journal_file_bytes=300)
    rig.publish((1,), 10, size=90)
    rig.run()
    rig.disk.fail(point, OSError(errno.ENOSPC, "full"), after=after, times=times)

    rig.publish((1,), 12, size=90)
    rig.run()

    assert rig.safe == set(rig.held)
    rig.crash(lambda disk: disk.power_cut())


def test_a_crash_while_the_disk_is_full_loses_nothing_confirmed(rng: random.Random) -> None:
    rig = full_rig(rng, room=1000)
    rig.publish((1,), 100, size=500)
    rig.run_flush()

    rig.memory.size_bytes = 1 << 30
    rig.crash(lambda disk: disk.power_cut())


# Disks that fail.


@pytest.mark.parametrize("pattern", ["*.rdq", "*.jnl"])
@pytest.mark.parametrize("point", ["writev", "fdatasync"])
def test_after_an_error_other_than_a_full_disk_the_store_takes_nothing_and_recovers(
    rig: StoreRig, pattern: str, point: str
) -> None:
    rig.publish((1, 2), 5)
    rig.run()
    safe = rig.safe.copy()
    rig.publish((1, 2), 5)
    rig.disk.fail(point, OSError(errno.EIO, "gone"), pattern)

    report = rig.run_flush()

    assert isinstance(report.error, StoreFailed)
    assert rig.safe == safe
    for call in (
        lambda: rig.write((1,)),
        lambda: rig.core.ack(1, []),
        lambda: rig.core.publish(1, 99, []),
        lambda: rig.core.queue_down(1),
        rig.core.start,
    ):
        with pytest.raises(StoreFailed, match="gone"):
            call()
    rig.crash(lambda disk: disk.kill(), rig.core.durable)
    assert set(rig.held) == safe


def test_a_failed_sync_is_not_repeated(rig: StoreRig) -> None:
    rig.publish((1,), 5)
    rig.run()
    rig.publish((1,), 5)
    rig.disk.fail("fdatasync", OSError(errno.EIO, "gone"), "*.rdq")
    before = rig.disk.seen["fdatasync"]

    rig.run_flush()

    assert rig.disk.seen["fdatasync"] == before + 2  # one of each file


# Short writes and interrupted calls.


def test_short_writes_and_interruptions_change_nothing(rng: random.Random) -> None:
    rig = StoreRig(rng, rdq_file_bytes=3000, journal_file_bytes=1000)
    rig.disk.short_writes = rig.disk.interrupts = 0.6
    for _ in range(20):
        rig.publish((1, 2), 7, size=150)
        rig.ack(*rng.sample(rig.held, 5))
        rig.run_flush()
    rig.run()

    assert rig.safe == set(rig.rows)
    rig.disk.kill()
    rig.open()
    rig.compare()


@pytest.mark.parametrize(("failing", "other"), [("*.jnl", ".rdq"), ("*.rdq", ".jnl")])
def test_a_file_that_was_made_for_a_nacked_batch_goes_when_it_is_tried_again(
    rng: random.Random, failing: str, other: str
) -> None:
    rig = StoreRig(rng, rdq_file_bytes=100, journal_file_bytes=100)
    rig.publish((1,), 1)
    rig.run()
    rig.publish((1,), 1)
    rig.disk.fail("writev", OSError(errno.ENOSPC, "full"), failing, times=2)
    before = [path for path in rig.disk.paths() if path.suffix == other]
    rig.run_flush()

    rig.run()

    assert len([path for path in rig.disk.paths() if path.suffix == other]) == len(before) + 1
    rig.crash(lambda disk: disk.power_cut())


def test_a_row_acked_while_its_flush_fails_is_never_written(rng: random.Random) -> None:
    rig = StoreRig(rng)
    rig.publish((1,), 3)
    rig.start()
    acked = rig.held[1]
    rig.ack(acked)
    rig.disk.fail("writev", OSError(errno.ENOSPC, "full"), "*.rdq", times=2)

    report = rig.finish_flush()

    assert report.safe == [(1, acked[1], 1)]
    assert report.nacked == [(1, acked[1] - 1, 3)]
    assert not rig.core.holds.bodies.keys() & {rig.rows[acked]}
    rig.run()
    assert rig.reports[-2].safe == [(1, acked[1] - 1, 1), (1, acked[1] + 1, 1)]


def test_what_came_after_a_nacked_batch_is_written_behind_it(rng: random.Random) -> None:
    rig = StoreRig(rng)
    rig.publish((1,), 3)
    first = rig.held[0][1]
    rig.disk.fail("writev", OSError(errno.ENOSPC, "full"), "*.rdq", times=2)
    rig.start()
    rig.publish((1,), 3)
    rig.finish_flush()
    rig.publish((1,), 3)

    assert rig.run_flush().safe == [(1, first, 9)]


def test_a_batch_that_spans_segments_is_read_from_each_of_them(rng: random.Random) -> None:
    rig = StoreRig(rng, rdq_file_bytes=300)
    rig.publish((1, 2), 10, size=90)
    rig.run_flush()

    assert len({at[0] for at in rig.locations.values()}) == 5
    rig.crash(lambda disk: disk.power_cut())


def test_numbers_that_only_seem_to_follow_each_other_are_kept(rig: StoreRig) -> None:
    one, two, three, four = rig.write((1,), 4)
    rig.accept(1, [one, three, two, four])
    rig.run_flush()

    rig.crash(lambda disk: disk.power_cut())


def test_what_is_published_behind_a_purge_is_not_confirmed_before_it(rig: StoreRig) -> None:
    first = rig.recovered.next_no
    rig.publish((1, 2), 5)
    rig.run_flush()
    rig.ack_range(1, first, first + 5)
    rig.publish((1,), 1)
    rig.run_flush()

    rig.crash(lambda disk: disk.power_cut())

    assert [seq for queue_no, seq in rig.held if queue_no == 1] == [first + 5]
