"""What happens beside the collector, and to it: acks, duplicates, damage, a full disk."""

from __future__ import annotations

import pytest

from leveret.core.system.shortage import SHORTAGES
from leveret.msg_store.gc import copy as collector_copy
from leveret.msg_store.gc.choose import choose
from leveret.msg_store.gc.collector import Moving
from leveret.msg_store.gc.scan import TURN
from rigs.store.collector.collector_rig import (
    CollectorRig,
    copied_by,
    in_files,
    spoil,
    until,
    wasteful,
)


def test_a_message_acked_between_copy_and_move_is_garbage_in_the_copy(rig: CollectorRig) -> None:
    kept = wasteful(rig)
    until(rig, "name synced")
    copied, copy_no = copied_by(rig), max(rig.folder.rdq_nos())

    rig.drop(copied[:2])
    assert rig.core.memtables.files.get(copy_no) is None
    rig.work()

    assert rig.core.memtables.files[copy_no].valid_bytes > 0
    assert {rig.rows[key] for key in rig.held} == set(kept) - set(copied[:2])
    rig.check()
    rig.crash(lambda disk: disk.kill())
    assert {rig.rows[key] for key in rig.held} == set(kept) - set(copied[:2])


def test_an_ack_and_a_move_in_one_flush(rig: CollectorRig) -> None:
    kept = wasteful(rig)
    until(rig, "name synced")
    while not any(isinstance(wait, Moving) for wait in rig.steps.waits.values()):
        assert rig.steps.step()
    moving = [each.msg_no for moves in rig.core._relocations for each in moves.copies]

    rig.drop(moving[:1])
    rig.work()

    assert {rig.rows[key] for key in rig.held} == set(kept) - {moving[0]}
    rig.check()
    rig.crash(lambda disk: disk.kill())


def test_a_copy_of_which_nothing_is_needed_any_more_goes(rig: CollectorRig) -> None:
    wasteful(rig)
    until(rig, "name synced")
    copy_no = max(rig.folder.rdq_nos())

    rig.drop([rig.rows[key] for key in rig.held])
    rig.collect_all()

    assert copy_no not in rig.folder.rdq_nos()
    assert len(rig.folder.rdq_nos()) <= 1
    rig.check()


def test_the_last_ack_of_a_source_during_its_scan(rig: CollectorRig) -> None:
    wasteful(rig)
    until(rig, "turn")

    rig.drop([rig.rows[key] for key in rig.held])
    rig.collect_all()

    assert len(rig.folder.rdq_nos()) <= 1
    assert rig.collector.collected.copied_bytes == 0


def test_of_two_copies_the_good_one_is_found(rig: CollectorRig) -> None:
    kept = wasteful(rig)
    until(rig, "name synced")
    copied, copy_no = copied_by(rig), max(rig.folder.rdq_nos())
    spoil(rig, copied[0], 60)

    rig.crash(lambda disk: disk.kill(), is_damaged=True)

    assert rig.recovered.report.found == [copied[0]]
    assert rig.file_of(copied[0]) == copy_no
    assert {rig.rows[key] for key in rig.held} == set(kept)


def test_a_copy_that_is_corrupt_after_its_moves_is_found_in_the_source(rig: CollectorRig) -> None:
    kept = wasteful(rig)
    until(rig, "name synced")
    rig.pins.pin(rig.folder.rdq_nos())
    rig.work()
    copy_no = max(rig.folder.rdq_nos())
    moved = in_files(rig, kept, copy_no)
    spoil(rig, moved[0], 60)

    rig.crash(lambda disk: disk.kill(), is_damaged=True)

    assert rig.recovered.report.found == [moved[0]]
    assert {rig.rows[key] for key in rig.held} == set(kept)


def test_a_damaged_message_is_moved_and_set_aside(rig: CollectorRig) -> None:
    kept = wasteful(rig)
    file_no = choose(rig.core.memtables.files, (), rig.choice)[0]
    damaged = in_files(rig, kept, file_no)[0]
    spoil(rig, damaged, 60)

    rig.collect_all()

    assert rig.collector.collected.damaged == 1
    assert file_no not in rig.folder.rdq_nos()
    assert len(rig.files.names(rig.folder.quarantine)) == 1
    rig.drop([damaged])
    rig.check()


@pytest.mark.parametrize("is_file_header", [False, True])
def test_segments_that_do_not_become_empty_are_left_alone_for_a_while(
    rig: CollectorRig, is_file_header: bool
) -> None:
    kept = wasteful(rig)
    file_nos = [no for no, state in rig.core.memtables.files.items() if state.is_sealed]
    damaged = [in_files(rig, kept, file_no)[0] for file_no in file_nos]
    for file_no, msg_no in zip(file_nos, damaged, strict=True):
        if is_file_header:
            path = rig.folder.rdq_path(file_no)
            rig.disk.damage(path, lambda data: data.__setitem__(20, data[20] ^ 255))
        else:
            spoil(rig, msg_no, 34)  # its magic

    rig.work()

    assert rig.steps.points.count(TURN) < 50
    assert [rig.file_of(msg_no) for msg_no in damaged] == file_nos
    rig.drop(in_files(rig, kept, *file_nos))
    rig.collect_all()
    assert set(file_nos).isdisjoint(rig.folder.rdq_nos())
    rig.check()


@pytest.mark.parametrize("code", sorted(SHORTAGES))
@pytest.mark.parametrize("point", ["open", "writev", "copy_range", "fsync", "fdatasync"])
def test_a_shortage_puts_merging_off(
    rig: CollectorRig, code: int, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collector_copy, "SYNC_BYTES", 100)
    kept = wasteful(rig)
    rig.disk.fail(point, OSError(code, "injected"), "*.rdt")

    until(rig, "RETRY")
    rig.collect_all()

    assert all(path.suffix != ".rdt" for path in rig.disk.paths())
    assert rig.collector.collected.given_up == 1
    assert rig.collector.collected.merges
    assert {rig.rows[key] for key in rig.held} == set(kept)
    rig.check()


@pytest.mark.parametrize("code", sorted(SHORTAGES))
@pytest.mark.parametrize("is_of_index", [False, True])
def test_a_shortage_before_the_copy_blames_no_segment(
    rig: CollectorRig, code: int, is_of_index: bool
) -> None:
    kept = wasteful(rig)
    rig.checkpoint()
    error = OSError(code, "injected")
    if is_of_index:
        rig.location.index.fail_reads(error)
    else:
        rig.disk.fail("open", error, "*.rdq")

    until(rig, "RETRY")

    assert rig.collector._left_alone == {}
    rig.location.index.heal()
    rig.collect_all()
    assert rig.collector.collected.merges
    assert {rig.rows[key] for key in rig.held} == set(kept)
    rig.check()
