"""Shortages of room, descriptors and memory: wherever the store meets one it waits, keeps its work, and goes on."""

from __future__ import annotations

import errno
import random

import pytest

from leveret.msg_store.format.rows import IndexFull
from rigs.store.store_rig import StoreRig

SHORTAGES = [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT]


def small_files(rng: random.Random, **options: int) -> StoreRig:
    """Return a store with work done in it, each of whose flushes begins files."""
    rig = StoreRig(rng, rdq_file_bytes=500, journal_file_bytes=300, **options)
    rig.publish((1,), 10, size=90)
    rig.run()
    return rig


@pytest.mark.parametrize("code", SHORTAGES)
@pytest.mark.parametrize("point", ["open", "writev", "fsync", "fsync_dir", "truncate", "unlink"])
@pytest.mark.parametrize("times", [1, 2, 3, 5, 8])
def test_a_shortage_while_files_are_begun_is_waited_out(
    rng: random.Random, code: int, point: str, times: int
) -> None:
    rig = small_files(rng)
    rig.disk.fail("writev", OSError(errno.ENOSPC, "full"), after=1, times=2)  # the log goes back
    rig.disk.fail(point, OSError(code, "injected"), after=2, times=times)

    rig.publish((1,), 12, size=90)
    rig.run()

    assert rig.core.error is None
    assert rig.safe == set(rig.held)
    assert rig.core.shortage is None
    rig.crash(lambda disk: disk.power_cut())


def test_a_log_that_cannot_go_back_goes_back_before_its_next_job(rng: random.Random) -> None:
    rig = small_files(rng)
    rig.publish((1,), 12, size=90)
    rig.disk.fail("open", OSError(errno.EMFILE, "too many"), times=9)

    report = rig.run_flush()

    assert report.nacked
    assert isinstance(rig.core.shortage, OSError)
    assert rig.core.shortage.errno == errno.EMFILE
    rig.disk.heal()
    rig.run()
    assert rig.safe == set(rig.held)
    rig.crash(lambda disk: disk.power_cut())


def test_a_file_whose_creation_failed_half_way_leaves_no_name(rng: random.Random) -> None:
    rig = StoreRig(rng, rdq_file_bytes=100)
    rig.publish((1,), 1, size=90)
    rig.run()
    before = len(rig.folder.rdq_nos())
    rig.publish((1,), 1)
    rig.disk.fail_after("open", OSError(errno.ENOMEM, "no memory"), "*.rdq")

    rig.run()

    assert rig.core.error is None
    assert len(rig.folder.rdq_nos()) == before + 1
    rig.crash(lambda disk: disk.power_cut())


@pytest.mark.parametrize("code", SHORTAGES)
def test_room_ahead_that_cannot_be_taken_is_done_without(rng: random.Random, code: int) -> None:
    rig = StoreRig(rng, journal_ahead_bytes=2000)
    rig.disk.fail("allocate", OSError(code, "injected"), times=1 << 30)

    rig.publish((1,), 5)
    rig.run_flush()

    assert rig.safe == set(rig.held)


@pytest.mark.parametrize("error", [*(OSError(code, "injected") for code in SHORTAGES), IndexFull()])
def test_a_shortage_of_the_index_is_waited_out(rng: random.Random, error: Exception) -> None:
    rig = StoreRig(rng)
    rig.publish((1,), 5)
    rig.run()
    rig.location.index.fail(error, 3)

    rig.checkpointer.request()
    while not rig.checkpointer.is_short:
        rig.step("write")
    assert rig.checkpointer.shortage is error
    rig.settle()

    assert rig.core.error is None
    assert rig.checkpointer.shortage is None
    assert not rig.core.memtables.frozen


@pytest.mark.parametrize("code", SHORTAGES)
@pytest.mark.parametrize("times", [1, 4])
def test_a_read_of_the_index_that_meets_a_shortage_is_done_again(
    rng: random.Random, code: int, times: int
) -> None:
    rig = StoreRig(rng)
    rig.publish((1, 2), 5)
    rig.run()
    rig.checkpoint()
    rig.location.index.fail_reads(OSError(code, "injected"), times)

    rig.ack(*rig.held[:3])
    rig.ack_range(2, 0, 1 << 60)
    rig.run()

    assert rig.core.error is None
    assert rig.found() == {key: rig.rows[key] for key in rig.held}
    rig.check_tables(rig.found())


@pytest.mark.parametrize("code", [*SHORTAGES, errno.EIO])
def test_journals_that_cannot_be_unlinked_go_with_a_later_checkpoint(
    rng: random.Random, code: int
) -> None:
    rig = StoreRig(rng)
    for _ in range(3):
        rig.publish((1,), 5)
        rig.run()
        rig.disk.fail("unlink", OSError(code, "injected"), "*.jnl", times=9)
        rig.checkpoint()

    assert rig.core.error is None
    assert len(rig.folder.journal_nos()) > 2
    rig.disk.heal()
    rig.publish((1,), 5)
    rig.run()
    rig.checkpoint()
    assert len(rig.folder.journal_nos()) <= 2
    rig.crash(lambda disk: disk.power_cut())


@pytest.mark.parametrize("code", SHORTAGES)
def test_a_segment_that_cannot_be_opened_for_its_sync_keeps_the_memtable(
    rng: random.Random, code: int
) -> None:
    rig = StoreRig(rng, inline_bytes_max=1 << 14)
    rig.publish((1,), 3)
    rig.run()
    rig.publish((1,), 3)
    rig.run()
    rig.disk.fail("open", OSError(code, "injected"), "*.rdq", times=2)

    rig.checkpoint()

    assert rig.core.error is None
    assert not rig.core.memtables.frozen
    rig.crash(lambda disk: disk.power_cut())


@pytest.mark.parametrize("code", SHORTAGES)
def test_a_sync_of_inline_messages_that_fails_is_final(rng: random.Random, code: int) -> None:
    rig = StoreRig(rng, inline_bytes_max=1 << 14)
    rig.publish((1,), 3)
    rig.run()
    rig.publish((1,), 3)
    rig.run()
    rig.disk.fail("fdatasync", OSError(code, "injected"), "*.rdq")

    rig.checkpoint()

    assert "cannot be synced" in str(rig.core.error)
    rig.crash(lambda disk: disk.power_cut(), rig.core.durable)


def test_a_ballast_that_cannot_be_released_is_no_error(rng: random.Random) -> None:
    rig = StoreRig(rng, ballast_bytes=1000)
    rig.publish((1,), 3)
    rig.disk.fail("unlink", OSError(errno.EIO, "injected"), "ballast")
    rig.disk.fail("writev", OSError(errno.ENOSPC, "full"), "*.rdq", times=2)

    rig.run()

    assert rig.safe == set(rig.held)
