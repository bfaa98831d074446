"""Archived queues in a store: early acks, the collector, restarts, a lost index, a short disk.

Tests: msg_store/gc/survey.py
"""

from __future__ import annotations

import errno
import random

import pytest

from leveret.msg_store.archive import archive_file
from leveret.msg_store.archive.archive import Retention
from leveret.msg_store.archive.segment_shares import load_shares
from leveret.msg_store.format import end_mark
from rigs.store.collector.archive_rig import ArchiveRig
from rigs.store.collector.collector_rig import wasteful


@pytest.fixture
def rig(rng: random.Random) -> ArchiveRig:
    return ArchiveRig(rng)


def settle(rig: ArchiveRig, count: int, queue_nos: tuple[int, ...] = (1,)) -> list[int]:
    """Publish messages, one per flush, and ack each before its flush."""
    msg_nos = []
    for _ in range(count):
        before = set(rig.rows)
        msg_nos += rig.publish(queue_nos, 1, 100)
        rig.ack(*sorted(rig.rows.keys() - before))
        rig.run()
    return msg_nos


def test_a_message_that_is_acked_before_its_flush_is_written(rig: ArchiveRig) -> None:
    msg_nos = settle(rig, 5)
    rig.publish_watermark()

    assert rig.in_segments(1) == msg_nos
    assert rig.found() == {}


def test_a_message_of_other_queues_is_not_written(rig: ArchiveRig) -> None:
    settle(rig, 5, (2, 3))

    assert rig.folder.rdq_nos() == []


def test_a_message_for_several_queues_is_written_once(rig: ArchiveRig) -> None:
    msg_nos = settle(rig, 5, (3, 1, 2))
    rig.publish_watermark()

    assert rig.in_segments(1) == msg_nos


def test_settled_messages_stay_for_the_retention_and_are_freed_then(rig: ArchiveRig) -> None:
    msg_nos = settle(rig, 30)
    rig.collect_all()
    rig.check_archive()
    assert rig.in_segments(1) == msg_nos

    rig.time_ms += 1000
    rig.collect_all()

    assert rig.core.memtables.removable() == []
    assert len(rig.folder.rdq_nos()) <= 1  # the one in use


def test_a_segment_in_retention_is_not_merged(rig: ArchiveRig) -> None:
    wasteful(rig)
    before = rig.folder.rdq_nos()
    rig.collect_all()

    assert rig.collector.collected.merges == 0
    assert rig.folder.rdq_nos() == before


def test_a_queue_without_a_policy_frees_its_segments(rig: ArchiveRig) -> None:
    settle(rig, 30)
    rig.policies.clear()
    rig.retain(1, None)
    rig.collect_all()
    rig.loop.run()

    assert len(rig.folder.rdq_nos()) <= 1
    assert archive_file.read(rig.folder) is None


def test_a_restart_keeps_settled_messages(rig: ArchiveRig) -> None:
    msg_nos = settle(rig, 30)
    rig.publish_watermark()
    rig.checkpoint()
    rig.crash(lambda disk: disk.kill())
    rig.collect_all()
    rig.check_archive()

    assert rig.in_segments(1) == msg_nos
    assert rig.found() == {}


def test_a_lost_index_does_not_bring_settled_segments_back(rig: ArchiveRig) -> None:
    msg_nos = settle(rig, 30)
    for _ in range(3):  # then no journal is left that has the acks
        rig.checkpoint()
        rig.fill(1, queue_nos=(2,))
    rig.collect_all()
    rig.publish_watermark()
    sealed = [no for no in rig.folder.rdq_nos() if load_shares(rig.folder, no)]
    rig.crash_without_index()
    rig.publish_watermark()

    assert len(sealed) > 1
    assert rig.in_segments(1) == msg_nos
    in_last = {no for no in set(rig.found().values()) if rig.file_of(no) not in sealed}
    assert set(rig.found().values()) == in_last


def test_a_short_disk_gets_the_oldest_settled_segments(rig: ArchiveRig) -> None:
    msg_nos = settle(rig, 30)
    kept = rig.fill(1)
    rig.collect_all()
    rig.publish_watermark()
    giveable = rig.collector.giveable()
    assert giveable == sorted(giveable)
    assert len(giveable) > 2

    rig.archive.give_up(giveable[:2], 2000)
    rig.collect_all()
    rig.publish_watermark()

    assert not set(giveable[:2]) & set(rig.folder.rdq_nos())
    assert set(giveable[2:]) <= set(rig.folder.rdq_nos())
    assert rig.archive.queues[1].complete_from == giveable[1] + 1
    assert rig.in_segments(1) == (msg_nos + kept)[-len(rig.in_segments(1)) :]
    assert rig.body(kept[0]) == rig.bodies[kept[0]]


def test_shares_are_counted_alike_from_the_segment_and_as_it_is_written(rig: ArchiveRig) -> None:
    settle(rig, 30, (1, 2))
    rig.publish_watermark()
    rig.collect_all()
    written = {no: each.queues for no, each in rig.archive.shares.items() if each.is_saved}
    for file_no in written:
        rig.files.unlink(rig.folder.path / "archive" / f"{file_no:08x}.json")
    rig.crash(lambda disk: disk.kill())
    rig.collect_all()

    assert len(written) > 1
    assert {no: rig.archive.shares[no].queues for no in written} == written


def test_a_policy_that_comes_later_finds_old_segments(rig: ArchiveRig) -> None:
    rig.retain(1, None)
    msg_nos = rig.fill(30, queue_nos=(2,))
    rig.policies = {2: Retention(1000)}
    rig.tell_policies()
    rig.drop(msg_nos)
    rig.collect_all()
    rig.publish_watermark()

    assert rig.in_segments(2) == msg_nos


def test_the_bytes_of_a_flush_that_a_crash_cut_off_are_not_read(rig: ArchiveRig) -> None:
    confirmed = rig.publish((1,), 2)
    rig.run()
    rig.publish_watermark()
    rig.publish((1,), 2)
    rig.start()
    while "rdq" in rig.jobs:  # the journal is not written any more
        rig.step("rdq")
    rig.crash(lambda disk: disk.kill())
    rig.publish_watermark()

    assert rig.in_segments(1) == confirmed


def test_acks_of_a_flush_that_found_no_room_wait_for_their_rows(rig: ArchiveRig) -> None:
    rig.fill(1)
    rig.disk.fail("writev", OSError(errno.ENOSPC, "full"), "*.rdq", times=2)
    msg_nos = settle(rig, 3)
    rig.publish_watermark()

    assert rig.in_segments(1)[1:] == msg_nos
    assert set(rig.found().values()).isdisjoint(msg_nos)


def test_numbers_of_segments_are_not_used_again_when_all_is_lost(rig: ArchiveRig) -> None:
    settle(rig, 5)
    rig.publish_watermark()
    assert rig.reader is not None
    last, _ = rig.reader.at
    for file_no in rig.folder.rdq_nos():
        rig.files.unlink(rig.folder.rdq_path(file_no))
    for file_no in rig.folder.journal_nos():
        rig.files.unlink(rig.folder.journal_path(file_no))
    rig.files.unlink(rig.folder.path / end_mark.NAME)
    rig.crash_without_index()
    rig.publish_watermark()

    assert rig.reader.at[0] > last


def test_what_a_crash_has_torn_is_told_to_readers(rig: ArchiveRig) -> None:
    rig.publish((1,), 2)
    rig.run()
    rig.publish_watermark()
    assert rig.reader is not None
    file_no, end = rig.reader.at
    rig.publish((1,), 3, 50)
    rig.start()
    while "journal" in rig.jobs:  # the segment is not written any more
        rig.step("journal")
    rig.crash(lambda disk: disk.kill())
    later = rig.publish((1,), 1)
    rig.run()
    rig.publish_watermark()

    ((low, high),) = rig.archive.torn[file_no]
    assert low == end
    assert high > rig.files.open_read(rig.folder.rdq_path(file_no)).size_bytes()
    assert rig.reader.seen[2:] == later


def test_a_segment_is_unlinked_when_readers_have_been_told(rig: ArchiveRig) -> None:
    settle(rig, 30)
    rig.collect_all()
    before = rig.folder.rdq_nos()
    rig.time_ms += 1000
    for _ in range(100):  # without the writer of archive.json
        rig.stepped()

    assert rig.archive.published < rig.archive.version
    assert rig.folder.rdq_nos() == before
    rig.publish_watermark()
    rig.collect_all()
    assert len(rig.folder.rdq_nos()) <= 1


def test_what_a_crash_has_cut_off_is_not_counted(rig: ArchiveRig) -> None:
    rig.publish((1,), 2)
    rig.run()
    rig.publish((1, 2), 2)
    rig.start()
    while "rdq" in rig.jobs:  # the journal is not written any more
        rig.step("rdq")
    rig.crash(lambda disk: disk.kill())
    rig.collect_all()

    ((file_no, end),) = rig.archive.ends.items()
    shares = rig.archive.shares[file_no].queues
    assert shares.keys() == {1}
    assert (shares[1].records, shares[1].end) == (2, end)
