"""Checkpoints: changes go into the index, journals are unlinked, and starts continue from both."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Sequence

import pytest

from leveret.core.errors import StoreError
from leveret.msg_store.checkpoint.checkpoint import LOOKUPS_MAX, CheckpointLimits
from leveret.msg_store.format.errors import StoreFailed
from leveret.msg_store.format.file_header import HEADER_BYTES, JOURNAL_MAGIC, decode_header
from leveret.msg_store.format.rows import IndexDamaged, IndexFull, QueueTerms
from leveret.msg_store.wal.flush import SLICE_OPS
from leveret.msg_store.wal.group_commit import KEPT_MAX, SLICE_ROWS
from rigs.disk.faulty_files import Crash, Fate
from rigs.store.store_rig import STORE, Key, StoreRig


@pytest.fixture
def rig(rng: random.Random) -> StoreRig:
    return StoreRig(rng, limits=CheckpointLimits(1 << 60, 1 << 60, 1 << 60))


def steps(rig: StoreRig, point: str) -> None:
    """Go on with a write to the index until a point is reached."""
    for _ in range(50):
        if f"index: {point}" in rig.points:
            return
        rig.step("write")
    raise AssertionError(f"a write never comes to {point}")


def ram_rows(rig: StoreRig) -> int:
    memtables = rig.core.memtables
    return sum(
        each.row_count + len(each.inserted) + len(each.changed)
        for each in (memtables.active, *memtables.frozen)
    )


# What stays in RAM.


def test_after_a_checkpoint_nothing_of_a_message_is_in_ram(rig: StoreRig) -> None:
    for _ in range(5):
        rig.publish((1, 2), 50)
        rig.run()
    assert ram_rows(rig) > 0
    rig.checkpoint()

    holds = rig.core.holds
    assert (ram_rows(rig), holds.counts, holds.locations) == (0, {}, {})
    assert holds.bodies == {}
    rig.crash(lambda disk: disk.power_cut())
    assert len(rig.held) == 500


def test_a_backlog_that_is_consumed_leaves_nothing_in_the_index(rig: StoreRig) -> None:
    rig.publish((1, 2), 300)
    rig.run()
    rig.checkpoint()
    rig.publish((1,), 300)
    rig.run()
    rig.ack(*rig.held)
    rig.run()
    rig.checkpoint()

    index = rig.location.index
    assert index.by_msg_no == {}
    assert not any(index.by_queue.values())
    rig.core.memtables.files.seal()
    assert rig.collect() == [1]


@pytest.mark.parametrize(
    ("limits", "publishes"),
    [
        (CheckpointLimits(rows=100, journal_bytes=1 << 60), 101),
        (CheckpointLimits(rows=1 << 60, journal_bytes=2000), 200),
    ],
)
def test_a_generation_ends_with_many_rows_or_a_long_journal(
    rng: random.Random, limits: CheckpointLimits, publishes: int
) -> None:
    rig = StoreRig(rng, limits=limits)
    writes = rig.location.index.writes
    rig.publish((1,), publishes)
    rig.run()

    assert rig.location.index.writes == writes + 1
    assert ram_rows(rig) == 0


def test_many_records_end_a_generation_though_their_messages_are_gone(rng: random.Random) -> None:
    """A start replays each of them: small messages that were consumed at once made it last seconds."""
    rig = StoreRig(rng, limits=CheckpointLimits(journal_records=30))
    writes = rig.location.index.writes
    for _ in range(20):
        rig.publish((1,), 1)
        rig.run()
        rig.ack(*rig.held)
        rig.run()

    assert rig.location.index.writes == writes + 1
    assert rig.core.journal.records_since_switch < 30


def test_some_rows_and_quiet_end_a_generation(rng: random.Random) -> None:
    rig = StoreRig(rng, limits=CheckpointLimits(idle_rows=10))
    rig.publish((1,), 9)
    rig.run()
    assert not rig.checkpointer.may_become_quiet
    rig.publish((1,), 1)
    rig.run()
    assert rig.checkpointer.may_become_quiet
    rig.checkpointer.turn(is_quiet=True)

    assert len(rig.core.memtables.frozen) == 1


def test_queues_that_have_ended_end_a_generation_and_leave_nothing(rng: random.Random) -> None:
    rig = StoreRig(rng, limits=CheckpointLimits(ended_queues=10))
    memtables = rig.core.memtables
    for queue_no in range(1, 41):
        rig.publish((queue_no,), 1)
        rig.run()
        rig.ack(*rig.held)
        rig.core.delete_queue(queue_no)
        rig.run()
        assert len(memtables.terms) <= 11, "of queues that have ended"
        assert len(memtables.active.queues) <= 11

    rig.checkpoint()
    assert not memtables.terms
    assert not memtables.leaving
    assert rig.location.index.writes >= 4


def test_flushes_wait_for_counts_that_are_owed_and_no_longer(rig: StoreRig) -> None:
    rig.publish((1,), 5)
    rig.run()
    rig.checkpoint()
    rig.ack(*rig.held[:2])
    rig.run_flush()
    rig.checkpointer.request()
    rig.checkpointer.turn()
    rig.publish((1,), 1)
    assert rig.core.delay_s() is None

    rig.step("read")
    rig.step("read")
    rig.step("write")

    assert rig.core.delay_s() == 0.0
    rig.run()
    rig.crash(lambda disk: disk.power_cut())
    assert len(rig.held) == 4


def test_a_generation_is_what_was_durable_also_while_more_is_pending(rig: StoreRig) -> None:
    rig.publish((1,), SLICE_OPS + 5)
    rig.run_flush()
    rig.checkpointer.request()
    rig.step("write")
    steps(rig, "committed")

    rig.crash(lambda disk: disk.power_cut())
    assert len(rig.held) == SLICE_OPS


def test_a_flush_on_its_way_is_of_the_next_generation(rig: StoreRig) -> None:
    rig.publish((1,), 5)
    rig.run()
    rig.publish((1,), 5)
    rig.start()
    rig.checkpointer.request()
    for _ in range(5):
        rig.step("write")
    rig.finish_flush()

    rig.crash(lambda disk: disk.power_cut())
    assert len(rig.held) == 10


def test_several_generations_wait_when_the_disk_is_slow(rig: StoreRig) -> None:
    for _ in range(5):
        rig.publish((1, 2), 3)
        rig.ack(*rig.rng.sample(rig.held, 2))
        rig.run_flush()
        rig.checkpointer.request()
        rig.step("read")
        rig.step("read")
        rig.checkpointer.turn()

    assert rig.core.memtables.is_behind
    assert len(rig.core.memtables.frozen) == 3
    rig.crash(lambda disk: disk.power_cut())


# Journals and crashes.


def test_journals_go_when_the_next_generation_is_in_the_index(rig: StoreRig) -> None:
    seen = []
    for _ in range(4):
        rig.publish((1,), 2)
        rig.run()
        rig.checkpoint()
        seen.append(rig.folder.journal_nos())

    assert seen == [[1], [2], [3], [4]]


@pytest.mark.parametrize("point", ["before commit", "committed", "unlinked"])
@pytest.mark.parametrize("cut", [lambda disk: disk.kill(), lambda disk: disk.power_cut()])
def test_a_crash_at_each_point_of_a_checkpoint(rig: StoreRig, point: str, cut: Callable) -> None:
    for _ in range(3):
        rig.publish((1, 2), 5)
        rig.publish((2,), 5)
        rig.run()
        rig.ack(*rig.rng.sample(rig.held, 4))
        rig.run()
        rig.checkpoint()
    rig.publish((1, 2), 5)
    rig.ack(*rig.rng.sample(rig.held, 6))
    rig.run()
    rig.points.clear()
    rig.checkpointer.request()
    rig.step("read")
    rig.step("read")
    steps(rig, point)
    rig.publish((1,), 3)
    rig.run_flush()

    rig.crash(cut)
    rig.crash(cut)


def test_an_index_that_is_one_transaction_behind_is_made_up_for(rig: StoreRig) -> None:
    """The newest page of LMDB's two is torn: the transaction before it counts again."""
    for _ in range(3):
        rig.publish((1, 2), 5)
        rig.ack(*rig.rng.sample(rig.held, 2))
        rig.run()
        rig.checkpoint()
    before = rig.location.index.image()
    rig.publish((1, 2), 5)
    rig.ack(*rig.rng.sample(rig.held, 6))
    rig.run()
    rig.checkpoint()
    rig.publish((2,), 5)
    rig.run()
    rig.location.index.restore(before)

    rig.crash(lambda disk: disk.power_cut())
    assert len(rig.held) == 3 * 10 - 6 + 10 - 6 + 5


@pytest.mark.parametrize("point", ["open", "writev", "fdatasync", "fsync", "fsync_dir", "unlink"])
@pytest.mark.parametrize("after", range(4))
def test_a_crash_at_each_step_of_a_start_with_an_index(
    rng: random.Random, point: str, after: int
) -> None:
    rig = StoreRig(rng, rdq_file_bytes=300, limits=CheckpointLimits(rows=5))
    for _ in range(6):
        rig.publish((1, 2), 3, size=90)
        rig.ack(*rng.sample(rig.held, 3))
        rig.run()
    rig.publish((1,), 5)
    rig.start()
    for name in ("rdq", "journal", "journal"):
        rig.step(name)
    rig.disk.power_cut(Fate.CUT)

    for _ in range(20):
        rig.disk.fail(point, Crash("again"), after=after)
        if rng.random() < 0.3:
            rig.location.index.fail(IndexFull("no room"))
        try:
            rig.open()
        except Crash:
            rig.disk.power_cut(rng.choice(list(Fate)))
        else:
            break
    else:
        rig.disk.heal()
        rig.open()
    rig.location.index.heal()
    rig.compare()


def test_a_row_that_was_judged_is_not_judged_again_after_a_crash_in_between(rig: StoreRig) -> None:
    rig.publish((1,), 3)
    rig.run()
    rig.publish((1,), 7, size=100)
    rig.start()
    for name in ("rdq", "journal") * 2:
        rig.step(name)
    rig.disk.power_cut(lambda path: Fate.LOST if path.suffix == ".rdq" else Fate.KEPT)
    rig.location.index.fail(OSError(5, "gone"))
    with pytest.raises(OSError, match="gone"):
        rig.open()
    rig.disk.kill()
    rig.open()

    assert (rig.recovered.report.lost, rig.recovered.report.dropped) == ([], [])
    rig.compare()
    assert len(rig.held) == 3


# Errors of the index.


def test_with_a_full_disk_the_memtable_waits_and_the_journals_stay(rig: StoreRig) -> None:
    rig.publish((1,), 5)
    rig.run()
    rig.checkpoint()
    rig.publish((1,), 5)
    rig.run()
    journals = rig.folder.journal_nos()
    rig.location.index.fail(IndexFull("no room"), 3)
    rig.checkpointer.request()
    for _ in range(4):
        rig.step("write")
    assert rig.checkpointer.is_short
    assert rig.folder.journal_nos() == journals
    rig.publish((1,), 5)
    rig.run()  # goes on, tries again, and again
    assert rig.core.memtables.frozen == []

    rig.crash(lambda disk: disk.power_cut())
    assert len(rig.held) == 15


def test_the_ballast_makes_room_for_a_checkpoint(rng: random.Random) -> None:
    rig = StoreRig(rng, ballast_bytes=1000)
    rig.publish((1,), 5)
    rig.run()
    rig.location.index.fail(IndexFull("no room"), 1)
    rig.checkpoint()

    assert not rig.checkpointer.is_short
    assert rig.core.memtables.frozen == []
    assert not [path for path in rig.disk.paths() if path.name == "ballast"]


def test_a_start_with_a_full_disk_keeps_its_memtable(rig: StoreRig) -> None:
    rig.publish((1, 2), 5)
    rig.run()
    rig.location.index.fail(IndexFull("no room"), 1)
    rig.crash(lambda disk: disk.power_cut())
    assert len(rig.core.memtables.frozen) == 1
    rig.ack(*rig.held[:3])
    rig.run()

    assert rig.core.memtables.frozen == []
    rig.crash(lambda disk: disk.power_cut())
    assert len(rig.held) == 7


def test_no_room_to_rebuild_an_index_is_an_error_of_the_disk(rig: StoreRig) -> None:
    long_lived(rig)
    rig.disk.kill()
    rig.location.lose()
    for _ in range(2):  # for the index that is found empty, and for the new one
        rig.location.fail_next(IndexFull("no room"))
    with pytest.raises(OSError, match="no room"):
        rig.open()
    rig.disk.kill()

    rig.crash_without_index()


@pytest.mark.parametrize("error", [OSError(5, "gone"), IndexDamaged("garbage")])
def test_an_error_of_the_index_other_than_a_full_disk_ends_the_store(
    rig: StoreRig, error: Exception
) -> None:
    rig.publish((1, 2), 5)
    rig.run()
    rig.checkpointer.request()
    rig.checkpointer.turn()
    job = rig.checkpointer.write_job()
    assert job is not None
    report = rig.checkpointer.write_done(job, error)
    assert report is not None
    assert isinstance(report.error, StoreFailed)
    assert rig.location.is_damaged == isinstance(error, IndexDamaged)

    rig.disk.kill()
    recovered = rig.open(rig.core.durable)
    assert bool(recovered.report.rebuilt) == rig.location.was_lost
    assert len(rig.found()) == 10


# A lost index.


def long_lived(rig: StoreRig) -> None:
    """A store whose first journals are gone."""
    for _ in range(4):
        rig.publish((3, 1, 2), 5, expiry_ms=9)
        rig.publish((2,), 3)
        rig.ack(*rig.rng.sample(rig.held, 4))
        rig.run()
        rig.checkpoint()
    assert rig.folder.journal_nos()[0] > 1


def test_a_lost_index_is_rebuilt_and_nothing_confirmed_is_missing(rig: StoreRig) -> None:
    long_lived(rig)
    needed = sorted((key[0], rig.rows[key]) for key in rig.held)
    recovered = rig.crash_without_index()

    assert "beginning of the journal" in recovered.report.rebuilt
    found = [(queue_no, msg_no) for (queue_no, _), msg_no in sorted(rig.found().items())]
    assert set(needed) <= set(found)
    assert found == sorted(found), "the order is that of routing"
    rig.publish((1, 2), 5)
    rig.ack(*rig.rng.sample(rig.held, 5))
    rig.run()
    rig.crash(lambda disk: disk.power_cut())


def test_what_is_acked_after_a_rebuild_is_nobody_elses_row_in_the_next(rig: StoreRig) -> None:
    """Old seqs, still in a journal, must not be mixed up with the seqs that a rebuild gives."""
    long_lived(rig)
    rig.publish((2,), 1)
    rig.publish((1,), 4)
    rig.run()
    rig.crash_without_index()
    rig.ack(*[key for key in rig.held if key[0] == 1][:-2])
    rig.run()
    left = {rig.rows[key] for key in rig.held if key[0] == 1}

    rig.crash_without_index()

    assert {msg_no for (queue_no, _), msg_no in rig.found().items() if queue_no == 1} == left


def test_an_index_from_before_a_rebuild_is_not_used_with_the_journals_of_both(
    rig: StoreRig,
) -> None:
    """Seqs that a rebuild has given are acked in a journal, and not known to the old index."""
    rig.publish((1,), 5)
    rig.run()
    rig.checkpoint()
    old = copy.deepcopy(rig.location.index)
    rig.location.condemn()
    rig.disk.kill()
    assert rig.open().report.rebuilt
    rig.rows = rig.found()
    rig.ack(*rig.held[:2])
    rig.run()
    left = {rig.rows[key] for key in rig.held}
    rig.disk.kill()
    rig.location.index = old

    assert "from before it was rebuilt" in rig.open().report.rebuilt
    assert set(rig.found().values()) == left


def test_an_index_damaged_though_all_journals_are_there(rig: StoreRig) -> None:
    rig.publish((1, 2), 5)
    rig.run()
    rig.location.condemn()
    rig.disk.kill()
    recovered = rig.open()

    assert recovered.report.rebuilt
    assert len(rig.found()) == 10
    assert [path for path in rig.disk.paths() if path.suffix == ".json"]


# Clean ends.


def test_a_clean_stop_keeps_what_the_queues_said(rig: StoreRig) -> None:
    rig.publish((1, 2), 5)
    rig.run()
    first = rig.held[0][1]
    rig.core.close_queue(1, first + 70, first + 3)
    recovered = rig.stop()

    assert recovered.is_clean
    assert recovered.queues[1] == QueueTerms(first + 70, first + 3, 5, 100, True)
    assert not recovered.queues[2].is_clean
    rig.compare()
    recovered = rig.crash(lambda disk: disk.power_cut())
    assert not recovered.is_clean
    assert not recovered.queues[1].is_clean


def test_a_clean_stop_is_not_believed_twice_though_the_index_could_not_be_told(
    rig: StoreRig,
) -> None:
    rig.publish((1,), 5)
    rig.run()
    rig.core.close_queue(1, rig.next_seq[1], rig.next_seq[1])
    rig.run()
    rig.checkpointer.stop()
    rig.settle()
    rig.disk.kill()
    rig.location.index.fail(IndexFull("no room"))
    assert rig.open().is_clean

    assert not rig.crash(lambda disk: disk.kill()).is_clean
    assert not rig.recovered.queues[1].is_clean


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_queue_that_goes_on_is_not_closed(rig: StoreRig, goes_on: bool) -> None:
    rig.publish((1,), 5)  # on its way when the queue closes
    first = rig.held[0][1]
    rig.core.close_queue(1, first + 70, first + 3)
    if goes_on:
        rig.ack(rig.held[0])

    assert rig.stop().queues[1].is_clean != goes_on


def test_a_clean_start_reads_no_journal(rig: StoreRig) -> None:
    rig.publish((1,), 50)
    rig.run()
    rig.stop()
    rig.core.close_queue(1, 1, 1)
    rig.run()
    rig.checkpointer.stop()
    rig.settle()
    rig.disk.kill()
    before = rig.disk.seen["pread"]
    rig.open()

    segments = len(rig.folder.rdq_nos())
    assert rig.disk.seen["pread"] - before <= 5 + 2 * segments  # FORMAT, whose it is, the end mark


def test_a_stop_with_a_full_disk_ends_and_loses_nothing(rig: StoreRig) -> None:
    rig.publish((1,), 5)
    rig.run()
    rig.location.index.fail(IndexFull("no room"), 1 << 20)
    rig.checkpointer.stop()
    for _ in range(5):
        rig.step("write")
    assert rig.checkpointer.is_stopped

    rig.location.index.heal()
    rig.crash(lambda disk: disk.kill())
    assert len(rig.held) == 5


@pytest.mark.parametrize("is_range", [True, False])
def test_a_stop_with_work_left_is_not_a_clean_one(rig: StoreRig, is_range: bool) -> None:
    rig.publish((1,), 5)
    rig.run()
    if is_range:
        rig.ack_range(1, 0, rig.next_seq[1])
    else:
        rig.ack(*rig.held)
    rig.checkpointer.stop()
    rig.settle()
    assert rig.checkpointer.is_stopped
    rig.crash(lambda disk: disk.kill())

    assert not rig.recovered.is_clean
    assert len(rig.held) == 5


def test_foreign_files_are_set_aside_or_passed_over(rig: StoreRig) -> None:
    long_lived(rig)
    old = rig.folder.journal_nos()[0]
    image = rig.disk.image(rig.folder.journal_path(old))
    rig.stop()
    rig.compare()
    newest = rig.folder.journal_nos()[-1]
    rig.files.write_new(rig.folder.journal_path(newest + 5), image)  # under a wrong number
    rig.files.write_new(rig.folder.journal_path(1), image[:HEADER_BYTES])

    rig.crash(lambda disk: disk.kill(), is_damaged=True)

    assert rig.recovered.report.foreign == [f"{newest + 5:016x}.jnl"]
    header = decode_header(image, JOURNAL_MAGIC)
    assert header.number == old
    rig.publish((1,), 1)
    rig.run()
    assert rig.folder.journal_nos()[-1] == newest + 6


def test_the_epoch_of_an_index_counts_though_all_files_are_gone(rig: StoreRig) -> None:
    rig.publish((1,), 5)
    rig.run()
    rig.stop()
    rig.ack(*rig.held)
    rig.run()
    rig.checkpointer.stop()
    rig.settle()
    rig.disk.kill()
    for path in rig.disk.paths():
        if path.suffix in {".jnl", ".rdq"}:
            rig.files.unlink(path)
    rig.boot_epoch -= 1
    with pytest.raises(StoreError, match="must be above 2"):
        rig.open()


def test_rows_of_the_index_in_a_missing_segment_are_named_and_go(rng: random.Random) -> None:
    rig = StoreRig(rng, rdq_file_bytes=300)
    rig.publish((1, 2), 6, size=100)
    rig.run()
    rig.checkpoint()
    rig.publish((1,), 2)
    rig.run()

    rig.crash_without_segment(rig.held[1])

    rig.crash(lambda disk: disk.kill())
    assert rig.recovered.report.lost == [], "reported twice"


# Counts that only the index has.


def test_acks_of_many_old_messages_are_looked_up_a_slice_at_a_time(rig: StoreRig) -> None:
    """A million at once came faster than they were read, and one turn applied all that had come meanwhile."""
    count = 2 * LOOKUPS_MAX + 5
    rig.publish((1,), count, size=1)
    rig.run()
    rig.checkpoint()
    rig.ack(*rig.held)
    rig.run_flush()
    rig.run_flush()

    memtables, left = rig.core.memtables, {count: None}
    while memtables.has_unresolved:
        rig.step("read")
        left[len(memtables.unresolved())] = None
    assert list(left) == [count, count - LOOKUPS_MAX, 5, 0]
    rig.checkpoint()
    assert not any(rig.location.index.by_queue.values())
    assert memtables.files[1].valid_bytes == 0


# Ranges and queues that go.


@pytest.mark.parametrize("checkpoints", [True, False])
def test_a_range_takes_what_is_in_it_wherever_that_is(rig: StoreRig, checkpoints: bool) -> None:
    rig.publish((1, 2), SLICE_OPS + 300)
    rig.run()
    if checkpoints:
        rig.checkpoint()
    first = rig.held[0][1]
    rig.ack(*rig.held[10:20])
    rig.publish((1,), 10)
    rig.start()
    rig.publish((1,), 10)
    rig.ack_range(1, first + 5, first + SLICE_OPS + 315)
    rig.finish_flush()
    rig.run()

    left = [key[1] - first for key in rig.held if key[0] == 1]
    assert left == [0, 1, 2, 3, 4, *range(SLICE_OPS + 315, SLICE_OPS + 320)]
    assert set(rig.found()) == set(rig.held)
    rig.crash(lambda disk: disk.power_cut())
    assert len([key for key in rig.held if key[0] == 2]) == SLICE_OPS + 300


def test_a_range_keeps_some_and_passes_over_stretches_of_them(
    rig: StoreRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.publish((1,), 6 * SLICE_ROWS)
    rig.run()
    rig.checkpoint()
    first, index, reads = rig.held[0][1], rig.location.index, []
    rows = index.rows
    monkeypatch.setattr(index, "rows", lambda *asked: reads.append(asked) or rows(*asked))
    every_second = range(first + 1, first + SLICE_ROWS, 2)
    stretch = range(first + SLICE_ROWS + 10, first + 6 * SLICE_ROWS - 10)

    rig.ack_range(1, first, first + 6 * SLICE_ROWS, [*every_second, *stretch])
    rig.run()

    assert len(reads) == 3
    assert [seq for _, seq in rig.held] == [*every_second, *stretch]
    assert set(rig.found()) == set(rig.held)
    rig.crash(lambda disk: disk.power_cut())


def purged(rig: StoreRig, kept: Sequence[int] = ()) -> set[Key]:
    """Purge most of a queue that is in the index; return what must be left."""
    rig.publish((1, 2), 8 * SLICE_OPS)
    rig.run()
    rig.checkpoint()
    first = rig.held[0][1]
    high = first + 8 * SLICE_OPS - 5
    rig.ack_range(1, first + 5, high, [first + seq for seq in kept])
    return set(rig.held)


def test_a_range_is_gone_with_the_next_flush(rig: StoreRig) -> None:
    left = purged(rig, [10, 11, 12, 40, SLICE_OPS, 8 * SLICE_OPS - 6])
    rig.run_flush()

    rig.crash(lambda disk: disk.power_cut())

    assert set(rig.held) == left
    rig.run()
    rig.checkpoint()
    assert set(rig.found()) == left


@pytest.mark.parametrize("slices", [0, 1, 2])
def test_a_range_that_is_left_is_announced_in_the_next_journal(rig: StoreRig, slices: int) -> None:
    left = purged(rig)
    rig.publish((3,), 1)  # an empty memtable would not end
    rig.run_flush()
    for _ in range(slices):
        rig.step("read")
        rig.step("read")
        rig.run_flush()
    while rig.core.memtables.has_unresolved:
        rig.step("read")
    rig.checkpointer.request()
    rig.checkpointer.turn()
    for _ in range(5):
        rig.step("write")
    assert rig.core.memtables.frozen, "the index waits for the announcement"
    rig.run_flush()
    for _ in range(5):
        rig.step("write")
    assert not rig.core.memtables.frozen

    rig.crash(lambda disk: disk.power_cut())

    assert {key for key in rig.held if key[0] < 3} == left


def test_a_range_with_many_gaps_is_not_announced(rig: StoreRig) -> None:
    purged(rig, range(10, 10 + 2 * KEPT_MAX + 2, 2))
    assert not rig.core.has_unannounced
    rig.run()
    rig.crash(lambda disk: disk.power_cut())


def test_a_full_disk_does_not_keep_the_index_waiting(rig: StoreRig) -> None:
    left = purged(rig)
    rig.run_flush()
    rig.publish((3,), 1)
    rig.checkpointer.request()
    rig.checkpointer.turn()
    rig.core.is_short = True

    for _ in range(5):
        rig.step("write")

    assert not rig.core.memtables.frozen
    rig.core.resume()
    rig.run_flush()
    rig.crash(lambda disk: disk.power_cut())
    assert {key for key in rig.held if key[0] < 3} == left


def test_a_deleted_queue_is_forgotten_when_it_is_empty(rig: StoreRig) -> None:
    rig.publish((1, 2), 2 * SLICE_OPS)
    rig.write((1, 2), 3)
    rig.run()
    rig.checkpoint()
    done: list[int] = []
    rig.core.delete_queue(1, lambda: done.append(1))
    rig.acked.update(key for key in rig.held if key[0] == 1)
    rig.run()
    rig.checkpoint()

    assert done == [1]
    assert list(rig.location.index.terms) == [2]
    assert rig.core.holds.counts.keys() == set(rig.core.holds.bodies)
    rig.crash(lambda disk: disk.power_cut())
    assert list(rig.recovered.queues) == [2]


def test_a_crash_while_a_queue_is_deleted_leaves_nothing_of_it(rig: StoreRig) -> None:
    rig.publish((1,), 2 * SLICE_OPS)
    rig.run()
    rig.checkpoint()
    rig.core.delete_queue(1)
    rig.acked.update(rig.held)
    rig.step("read")
    rig.step("read")
    rig.run_flush()

    rig.crash(lambda disk: disk.power_cut())

    assert rig.held == []


# Copies of the collector.


def test_copies_of_what_is_gone_or_held_are_not_used(rig: StoreRig) -> None:
    msg_nos = rig.publish((1,), 6)
    held = rig.write((1, 2), 1)
    rig.accept(1, held)
    rig.run()
    rig.checkpoint()
    rig.ack(*[key for key in rig.held if rig.rows[key] == msg_nos[0]])
    rig.move([*msg_nos[:3], *held])
    rig.run()

    assert sorted(rig.moves) == [False, False, True, True]
    rig.accept(2, held)
    rig.run()
    rig.crash(lambda disk: disk.power_cut())
    assert len(rig.held) == 7


def test_a_copy_counts_from_when_its_move_is_durable(rig: StoreRig) -> None:
    msg_nos = rig.publish((1, 2), 6)
    rig.run()
    rig.checkpoint()
    file_no = rig.move(msg_nos)
    rig.start()
    rig.step("journal")
    assert {place[0] for place in rig.locations.values()} == {1}
    rig.finish_flush()
    rig.settle()
    assert {place[0] for place in rig.locations.values()} == {file_no}
    rig.core.memtables.files.seal()
    assert rig.collect() == [], "the index does not know it yet"
    rig.crash(lambda disk: disk.power_cut())

    assert rig.recovered.report.removed == [1]
    assert STORE / "rdq" / f"{file_no:08x}.rdq" in rig.disk.paths()


# Whether a turn is worth it.


def test_after_most_flushes_no_turn_is_needed(rig: StoreRig) -> None:
    rig.publish((1,), 3)
    rig.run_flush()
    assert not rig.checkpointer.may_act

    rig.checkpointer.request()
    assert rig.checkpointer.may_act
    rig.settle()
    assert not rig.checkpointer.may_act


@pytest.mark.parametrize("limits", [CheckpointLimits(rows=20), CheckpointLimits(journal_bytes=900)])
def test_where_no_turn_is_needed_a_turn_does_nothing(
    rng: random.Random, limits: CheckpointLimits
) -> None:
    rig = StoreRig(rng, limits=limits, journal_file_bytes=2000)
    idle = 0
    for _ in range(600):
        if rng.random() < 0.3:
            rig.publish(rng.choice([(1,), (1, 2)]), rng.randint(1, 4))
        if rig.held and rng.random() < 0.3:
            rig.ack(*rng.sample(rig.held, min(4, len(rig.held))))
        if rng.random() < 0.02:
            rig.ack_range(1, 0, rig.next_seq.get(1, 0))
        if rng.random() < 0.7 or not rig.checkpointer.may_act:
            if rig.jobs:
                rig.step(rng.choice(sorted(rig.jobs)))
            else:
                rig.start()
        else:
            rig.step(rng.choice(["read", "write"]))
        if not rig.checkpointer.may_act:
            idle += 1
            rig.checkpointer.turn()
            assert not rig.core.is_rotating
            assert rig.checkpointer.read_job() is None
            if rig.write_job is None:
                assert rig.checkpointer.write_job() is None
    assert idle > 60
    assert rig.core.memtables.committed
