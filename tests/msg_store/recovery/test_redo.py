"""A few small messages go with the journal's frame: one sync, and nothing less than with two."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import pytest

from leveret.msg_store.checkpoint.checkpoint import CheckpointLimits
from leveret.msg_store.format.append_log import Job
from leveret.msg_store.format.file_header import RDQ_MAGIC, Identity
from leveret.msg_store.format.journal_records import CARRY, RedoRecord
from leveret.msg_store.recovery.journal_reader import JournalFile
from rigs.disk.faulty_files import Fate, FaultyCalls
from rigs.store.store_rig import STORE, UUID, StoreRig

LOST = Fate.LOST
Cut = Callable[[FaultyCalls], None]


@pytest.fixture
def rig(rng: random.Random) -> StoreRig:
    """Return a store whose segment and journal are there already."""
    rig = StoreRig(rng, inline_bytes_max=1000)
    rig.publish((1,), 1)
    rig.run_flush()
    return rig


def inline(rig: StoreRig, queue_nos: tuple[int, ...] = (1,), count: int = 1) -> Job:
    """Publish little, and flush it."""
    rig.publish(queue_nos, count)
    rig.run_flush()
    assert rig.flush.rdq.is_inline
    return rig.flush.rdq


def segment(rig: StoreRig) -> str:
    return rig.folder.rdq_path(rig.flush.rdq.start.file_no).name


def power_cut(rdq: Fate) -> Cut:
    """The journal loses its unsynced bytes; ``rdq`` is the fate of the segments' bytes."""
    return lambda disk: disk.power_cut(lambda path: rdq if path.suffix == ".rdq" else LOST)


def test_one_file_is_synced(rig: StoreRig) -> None:
    before = rig.disk.seen["fdatasync"]
    inline(rig, (1, 2), 3)

    assert rig.disk.seen["fdatasync"] == before + 1
    assert rig.points[-3:] == ["journal: before write", "journal: written", "journal: synced"]
    assert rig.safe == set(rig.held)


def test_much_or_the_first_of_a_segment_is_synced_in_both(rig: StoreRig) -> None:
    rig.publish((1,), 1, size=2000)
    rig.run_flush()
    assert not rig.flush.rdq.is_inline

    rig.core.rdq.roll()
    rig.publish((1,), 1)
    rig.run_flush()

    assert not rig.flush.rdq.is_inline
    assert "rdq: synced" in rig.points[-4:]


@pytest.mark.parametrize("fate", Fate)
def test_a_power_cut_loses_nothing(rig: StoreRig, fate: Fate) -> None:
    for _ in range(5):
        inline(rig, (1, 2), 2)

    rig.crash(power_cut(fate))

    assert len(rig.held) == 21


@pytest.mark.parametrize("point", ["before write", "written"])
def test_a_power_cut_at_each_point_of_the_flush(rig: StoreRig, point: str) -> None:
    inline(rig)
    rig.publish((1,), 2)
    rig.start()
    while not rig.points[-1].endswith(point):
        rig.step("journal")

    rig.crash(power_cut(Fate.SCATTERED))

    assert len(rig.held) in {2, 4}


def test_a_crash_while_it_is_put_back_is_made_up_for(rig: StoreRig) -> None:
    inline(rig, (1, 2), 3)
    for point in ("pwrite", "fdatasync"):
        rig.disk.power_cut(power_cut_fates)
        rig.disk.fail(point, OSError(errno.EIO, "dying"), "*.rdq")
        with pytest.raises(OSError, match="dying"):
            rig.open()
        rig.disk.kill()

    rig.crash(power_cut(LOST))

    assert len(rig.held) == 7


def power_cut_fates(_: object) -> Fate:
    return LOST


@pytest.mark.parametrize("fate", [LOST, Fate.ZEROED, Fate.SCATTERED])
def test_what_is_in_the_index_is_synced_in_its_segment(rng: random.Random, fate: Fate) -> None:
    limits = CheckpointLimits(rows=3)
    rig = StoreRig(rng, inline_bytes_max=1000, limits=limits)
    for _ in range(20):
        rig.publish((1,), 1)
        rig.run()
    assert len(rig.folder.journal_nos()) < 5
    assert rig.points.index("index: segment synced") < rig.points.index("index: committed")

    rig.crash(power_cut(fate))

    assert len(rig.held) == 20


def test_a_segment_that_cannot_be_synced_for_the_index_fails_the_store(rig: StoreRig) -> None:
    inline(rig, (1,), 3)
    rig.disk.fail("fdatasync", OSError(errno.EIO, "gone"), segment(rig))

    rig.checkpoint()

    assert rig.core.error is not None
    rig.crash(power_cut(LOST), trusted=rig.core.durable)
    assert len(rig.held) == 4


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_sync_that_fails_while_one_is_owed_is_final(rig: StoreRig, number: int) -> None:
    inline(rig, (1, 2), 3)
    rig.publish((1,), 1, size=5000)
    rig.disk.fail("fdatasync", OSError(number, "no"), segment(rig))

    rig.run_flush()

    assert rig.core.error is not None
    rig.crash(power_cut(LOST), trusted=rig.core.durable)
    assert len(rig.held) == 7


def test_without_a_debt_a_full_disk_is_not_final(rig: StoreRig) -> None:
    inline(rig)
    rig.publish((1,), 1, size=5000)
    rig.run_flush()
    rig.publish((1,), 1, size=5000)
    rig.disk.fail("fdatasync", OSError(errno.ENOSPC, "full"), segment(rig), times=2)

    rig.run_flush()

    assert rig.core.is_short
    rig.run()
    assert rig.safe == set(rig.held)


@pytest.mark.parametrize("pattern", ["*.rdq", "*.jnl"])
def test_a_full_disk_puts_all_of_it_back(rig: StoreRig, pattern: str) -> None:
    inline(rig)
    rig.publish((1, 2), 2)
    rig.disk.fail("writev", OSError(errno.ENOSPC, "full"), pattern, times=2)
    rig.run_flush()
    assert len(rig.nacked) == 4

    rig.run()

    assert rig.safe == set(rig.held)
    rig.crash(power_cut(LOST))
    assert len(rig.held) == 6


def test_a_lost_index_is_rebuilt_with_it(rig: StoreRig) -> None:
    inline(rig, (1, 2), 3)
    rig.disk.power_cut(power_cut_fates)

    rig.crash_without_index()

    assert len(rig.held) == 7


def test_after_a_failed_sync_a_rebuild_believes_what_was_inline(rig: StoreRig) -> None:
    inline(rig, (1, 2), 3)
    trusted = rig.core.durable
    rig.disk.power_cut(power_cut_fates)
    rig.location.lose()

    rig.open(trusted)

    assert len(rig.found()) == 7


def test_a_segment_that_is_gone_is_not_made_again(rig: StoreRig) -> None:
    inline(rig, (1,), 3)
    rig.ack(*rig.held)
    rig.run()
    (inline_in,) = rig.folder.rdq_nos()
    rig.core.rdq.roll()
    rig.publish((1,), 1)
    rig.run()
    rig.checkpoint()
    assert rig.collect() == [inline_in]
    assert rig.folder.journal_nos(), "the frames are there still, and a rebuild reads them"

    rig.crash_without_index()

    assert inline_in not in rig.folder.rdq_nos()


def test_a_segment_of_another_store_is_left_alone(rig: StoreRig) -> None:
    inline(rig, (1,), 3)
    path = rig.folder.rdq_path(rig.flush.rdq.start.file_no)
    foreign = Identity(bytes(reversed(UUID)), 1).header(RDQ_MAGIC, 1, 7)
    rig.disk.kill()
    rig.disk.damage(path, lambda data: data.__setitem__(slice(None), foreign))

    rig.open()

    assert rig.recovered.report.foreign == [path.name]
    (kept,) = [each for each in rig.disk.paths() if each.name.startswith(path.name)]
    assert kept.parent == STORE / "quarantine"
    assert rig.disk.image(kept) == foreign


def test_the_frame_has_the_bytes_of_the_segment(rig: StoreRig) -> None:
    job = inline(rig, (1, 2), 2)
    (last,) = [path for path in rig.disk.paths() if path.suffix == ".jnl"][-1:]
    frames = list(JournalFile(rig.disk.image(last), rig.folder.uuid).frames())
    (record,) = [each for each in frames[-1][1] if isinstance(each, RedoRecord)]

    whole = rig.disk.image(rig.folder.rdq_path(job.start.file_no))
    assert record.offset == job.start.offset
    assert record.data == whole[job.start.offset : job.end.offset]
    assert frames[-1][0].payload[0] == CARRY
