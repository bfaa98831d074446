"""The collector over a whole store: the segments it removes, merges and leaves alone, and when.

Tests: msg_store/gc/scan.py
"""

from __future__ import annotations

import errno
from functools import partial

import pytest

from leveret.msg_store.format.file_header import CRC32, CRC32C, Identity
from leveret.msg_store.gc import collector
from leveret.msg_store.gc.collector import Moving, Wait
from leveret.msg_store.gc.scan import NEEDED, TURN, Source
from leveret.msg_store.recovery import recovery
from leveret.msg_store.threads.worker import Steps
from rigs.store.collector.collector_rig import (
    FILE_BYTES,
    CollectorRig,
    copied_by,
    in_files,
    until,
    wasteful,
)

# Empty segments.


def test_a_segment_goes_when_its_emptiness_is_in_the_index_and_not_before(
    rig: CollectorRig,
) -> None:
    msg_nos = rig.fill(20)
    rig.drop(in_files(rig, msg_nos, 1))
    rig.steps.look()
    assert not rig.steps.ready

    rig.checkpoint()
    rig.work()

    assert 1 not in rig.folder.rdq_nos()
    assert rig.removed == [1]
    assert rig.collector.collected.removed_bytes > FILE_BYTES
    rig.check()


def test_a_checkpoint_is_asked_for_when_a_segments_worth_waits(rig: CollectorRig) -> None:
    msg_nos = rig.fill(30)
    before = rig.core.memtables.committed

    rig.drop(in_files(rig, msg_nos, 1, 2, 3))
    rig.work()

    assert rig.core.memtables.committed > before
    assert rig.removed == [1, 2, 3]


def test_the_segment_in_use_stays_although_it_is_empty(rig: CollectorRig) -> None:
    rig.drop(rig.fill(3))

    rig.collect_all()

    assert rig.folder.rdq_nos() == [1]
    (msg_no,) = rig.fill(1)
    assert rig.body(msg_no) == rig.bodies[msg_no]


def test_a_pinned_segment_stays_until_its_pin_is_gone(rig: CollectorRig) -> None:
    wasteful(rig)
    whole = {no: rig.disk.image(rig.folder.rdq_path(no)) for no in rig.folder.rdq_nos()}
    rig.pins.pin([1, 2])

    rig.collect_all()
    assert {1, 2} <= set(rig.folder.rdq_nos())
    rig.drop(in_files(rig, [rig.rows[key] for key in rig.held], 1, 2))
    rig.collect_all()

    assert {no: rig.disk.image(rig.folder.rdq_path(no)) for no in (1, 2)} == {
        no: whole[no] for no in (1, 2)
    }
    rig.pins.unpin([1, 2])
    rig.collect_all()
    assert {1, 2}.isdisjoint(rig.folder.rdq_nos())


def test_a_segment_that_was_pinned_during_its_merge_stays_but_is_empty(rig: CollectorRig) -> None:
    kept = wasteful(rig)
    until(rig, "name synced")
    source_no = rig.file_of(copied_by(rig)[0])
    rig.pins.pin([source_no])

    rig.collect_all()

    assert rig.core.memtables.files[source_no].valid_bytes == 0
    assert source_no in rig.folder.rdq_nos()
    rig.pins.unpin([source_no])
    rig.collect_all()
    assert source_no not in rig.folder.rdq_nos()
    assert {rig.rows[key] for key in rig.held} == set(kept)


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOENT])
def test_a_segment_that_cannot_be_removed_does_no_harm(rig: CollectorRig, code: int) -> None:
    msg_nos = rig.fill(30)
    rig.disk.fail("unlink", OSError(code, "injected"), "*.rdq")

    rig.drop(in_files(rig, msg_nos, 1, 2))
    rig.collect_all()

    assert rig.removed == [1, 2]
    rig.check()


# Merging.


def test_what_is_needed_is_copied_and_the_rest_given_back(rig: CollectorRig) -> None:
    kept = wasteful(rig, 100)
    before = sum(len(rig.disk.image(rig.folder.rdq_path(no))) for no in rig.folder.rdq_nos())

    rig.collect_all()

    after = sum(len(rig.disk.image(rig.folder.rdq_path(no))) for no in rig.folder.rdq_nos())
    assert after < before * 0.7
    assert rig.collector.collected.moved > 10
    assert {rig.rows[key] for key in rig.held} == set(kept)
    rig.check()
    rig.crash(lambda disk: disk.kill())
    assert {rig.rows[key] for key in rig.held} == set(kept)
    rig.check_no_orphans()


@pytest.mark.parametrize("is_indexed", [False, True])
def test_it_does_not_matter_whether_places_are_in_ram_or_in_the_index(
    rig: CollectorRig, is_indexed: bool
) -> None:
    wasteful(rig, 60)
    if is_indexed:
        rig.checkpoint()
        rig.drop([rig.rows[key] for key in rig.held[::4]])

    rig.collect_all()

    assert rig.collector.collected.merges >= 2
    rig.check()
    rig.stop()
    rig.compare()


def test_messages_in_several_queues_keep_their_count(rig: CollectorRig) -> None:
    msg_nos = rig.fill(40, queue_nos=(1, 2, 3))
    rig.ack(*[key for key in rig.held if key[0] == 3])
    rig.drop([no for index, no in enumerate(msg_nos) if index % 3])

    rig.collect_all()

    assert rig.collector.collected.moved
    rig.check()
    rig.drop([rig.rows[key] for key in rig.held])
    rig.collect_all()
    assert len(rig.folder.rdq_nos()) <= 1


def test_a_message_that_a_queue_is_still_promised_is_left_where_it_is(rig: CollectorRig) -> None:
    msg_nos = rig.write((1, 2), 8, 100)
    rig.accept(1, msg_nos)
    rig.run()
    places = {rig.file_of(no) for no in msg_nos}
    rest = wasteful(rig)

    rig.collect_all()
    assert {rig.file_of(no) for no in msg_nos} == places
    rig.accept(2, msg_nos)
    rig.run()

    assert rig.held == sorted(rig.rows.keys() - rig.acked)
    rig.check()
    assert len(rig.held) == len(rest) + 16


def test_a_message_acked_while_a_queue_is_still_promised_it_outlives_the_collector(
    rig: CollectorRig,
) -> None:
    msg_nos = rig.write((1, 2), 8, 100)
    rig.accept(1, msg_nos)
    rig.run()
    rig.drop(msg_nos)
    wasteful(rig)

    rig.collect_all()
    rig.accept(2, msg_nos)
    rig.run()

    rig.check()
    rig.crash(lambda disk: disk.kill())
    assert {no for (queue_no, _), no in rig.rows.items() if queue_no == 2} == set(msg_nos)


def test_no_more_than_two_merges_are_on_their_way(rig: CollectorRig) -> None:
    wasteful(rig, 300)
    for _ in range(10_000):
        assert sum(path.suffix == ".rdt" for path in rig.disk.paths()) <= collector.MERGES_MAX
        assert rig.collector._merges <= collector.MERGES_MAX
        if not rig.stepped():
            break

    assert rig.collector.collected.merges > 4


def test_moves_go_in_slices_and_each_waits_for_its_flush(
    rig: CollectorRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collector, "MOVED_PER_FLUSH", 2)
    wasteful(rig)

    until(rig, "name synced")
    for _ in range(1000):
        if not rig.stepped():
            break
        waiting = sum(isinstance(wait, Moving) for wait in rig.steps.waits.values())
        assert sum(len(moves.copies) for moves in rig.core._relocations) <= 2 * waiting

    assert rig.collector.collected.moved > 6
    rig.check()


def test_small_segments_left_by_many_crashes_are_merged(rig: CollectorRig) -> None:
    rig.choice = rig.choice.__class__(FILE_BYTES * 100, 4, 3, 6)
    for _ in range(12):
        rig.fill(1)
        rig.crash(lambda disk: disk.kill())
    assert len(rig.folder.rdq_nos()) == 12

    rig.collect_all()

    assert len(rig.folder.rdq_nos()) <= 4
    rig.check()
    rig.crash(lambda disk: disk.kill())
    assert len(rig.rows) == 12


def test_garbage_is_given_back_until_none_is_worth_it(rig: CollectorRig) -> None:
    for _ in range(20):
        rig.fill(rig.rng.randint(1, 20), rig.rng.choice([10, 100, 700, 3000]))
        held = [rig.rows[key] for key in rig.held]
        rig.drop(rig.rng.sample(held, len(held) * 2 // 3))
        rig.collect_all()

        files = [state for state in rig.core.memtables.files.values() if state.is_sealed]
        size = sum(state.size_bytes - 64 for state in files)
        valid = sum(state.valid_bytes for state in files)
        assert size <= 2 * FILE_BYTES or 2 * valid >= size or len(files) == 1
        rig.check()


def test_sources_stay_for_a_grace_period_for_those_who_have_looked_up_a_place(
    rig: CollectorRig,
) -> None:
    wasteful(rig)
    sources = set(rig.core.memtables.files)
    rig.steps.endless = {Wait.GRACE}

    rig.collect_all()
    assert sources <= set(rig.folder.rdq_nos())
    assert [no for no in sources if not rig.core.memtables.files[no].valid_bytes]

    rig.steps.endless = set()
    rig.work()
    assert not sources <= set(rig.folder.rdq_nos())


def test_a_copy_stays_although_its_first_messages_died_before_the_others_are_moved(
    rig: CollectorRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collector, "MOVED_PER_FLUSH", 2)
    kept = wasteful(rig)
    until(rig, "name synced")
    copied, copy_no = copied_by(rig), max(rig.folder.rdq_nos())
    assert len(copied) > 2
    while (
        copy_no not in rig.core.memtables.files or not rig.core.memtables.files[copy_no].valid_bytes
    ):
        rig.steps.step()
        if rig.start():
            rig.finish_flush()
        rig.settle()

    rig.ack(*[key for key in rig.held if rig.rows[key] in copied[:2]])
    rig.run()
    rig.checkpoint()
    rig.collect_all()

    assert {rig.rows[key] for key in rig.held} == set(kept) - set(copied[:2])
    rig.check()


def test_copying_what_is_not_needed_does_no_harm(
    rig: CollectorRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def all_of_it(_: object, source: Source) -> Steps:
        source.needed[:] = bytes([NEEDED]) * len(source.needed)
        yield TURN

    monkeypatch.setattr(collector, "ask_index", all_of_it)
    kept = wasteful(rig, 60)
    rig.checkpoint()

    for _ in range(300):
        rig.stepped()
    monkeypatch.undo()
    rig.collect_all()

    assert rig.collector.collected.moved
    assert {rig.rows[key] for key in rig.held} == set(kept)
    rig.check()
    rig.crash(lambda disk: disk.kill())
    assert {rig.rows[key] for key in rig.held} == set(kept)


def test_segments_with_different_checksums_are_not_mixed(
    rig: CollectorRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in (CRC32, CRC32C):
        monkeypatch.setattr(recovery, "Identity", partial(Identity, crc_kind=kind))
        rig.crash(lambda disk: disk.kill())
        msg_nos = rig.fill(14)
        rig.drop([no for index, no in enumerate(msg_nos) if index % 7])

    rig.collect_all()

    assert rig.collector.collected.moved
    assert rig.collector.collected.damaged == 0
    rig.check()
    rig.crash(lambda disk: disk.kill())
