"""The machine is stopped at every step of the collector; nothing is lost and nothing left over."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from leveret.msg_store.gc import collector
from leveret.msg_store.gc.choose import ChoiceLimits
from rigs.disk.faulty_files import Crash, Fate, FaultyCalls
from rigs.store.collector.collector_rig import CollectorRig

Cut = Callable[[FaultyCalls], None]


def kill(disk: FaultyCalls) -> None:
    disk.kill()


def lose(disk: FaultyCalls) -> None:
    disk.power_cut(Fate.LOST, 0.0)


def forget_names(disk: FaultyCalls) -> None:
    disk.power_cut(Fate.KEPT, 0.0)


def mix(disk: FaultyCalls) -> None:
    disk.power_cut(lambda _: disk.rng.choice(list(Fate)))


CUTS: dict[str, Cut] = {
    "kill": kill,
    "all that was not synced is lost": lose,
    "names that were not synced are as before": forget_names,
    "anything": mix,
}


def collecting(seed: int, is_busy: bool = False) -> CollectorRig:
    """Return a store in which there is much to collect, some of it in the index, some not."""
    rig = CollectorRig(random.Random(seed))
    old = rig.fill(20)
    rig.checkpoint()
    new = rig.fill(16, queue_nos=(1, 2))
    rig.drop([no for index, no in enumerate(old + new) if index % 3])
    if is_busy:
        rig.publish((1,), 3, 100)
        rig.ack(*rig.held[:2])
    return rig


def go(rig: CollectorRig, steps: int) -> int:
    """Do so many steps, or all there are; return how many were done."""
    return next((count for count in range(steps) if not rig.stepped()), steps)


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "MOVED_PER_FLUSH", 2)


def crash_at(seed: int, cut: Cut, steps: int, is_busy: bool) -> None:
    rig = collecting(seed, is_busy)
    go(rig, steps)

    rig.crash(cut)

    rig.check_no_orphans()
    rig.collect_all()
    rig.check()
    assert not [path for path in rig.disk.paths() if path.suffix == ".rdt"]


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
def test_a_crash_at_every_fifth_step(seed: int, cut: Cut) -> None:
    total = go(collecting(seed), 10_000)
    assert total > 50
    for steps in range(seed % 5, total, 5):
        crash_at(seed, cut, steps, is_busy=bool(steps % 2))


@pytest.mark.slow
@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
def test_a_crash_at_every_step(seed: int, cut: Cut) -> None:
    for is_busy in (False, True):
        for steps in range(go(collecting(seed, is_busy), 10_000)):
            crash_at(seed, cut, steps, is_busy)


def test_a_crash_at_every_step_after_another_crash(seed: int) -> None:
    rig = collecting(seed)
    for steps in range(60):
        go(rig, steps)
        rig.crash(rig.rng.choice(list(CUTS.values())))
        rig.check_no_orphans()
        rig.fill(3)
        rig.drop([rig.rows[key] for key in rig.held[::2]])


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
def test_a_segment_with_a_lower_number_than_a_copy_is_synced_at_the_next_start(
    seed: int, cut: Cut
) -> None:
    """The segment in use at a crash need not be the one with the highest number."""
    rig = collecting(seed)
    rig.collect_all()
    (msg_no,) = rig.publish((1,), 1, 10)
    assert rig.start()
    for line in ("rdq", "journal"):
        while rig.points[-1] != f"{line}: written":
            rig.step(line)

    rig.crash(kill)
    assert rig.file_of(msg_no) < max(rig.folder.rdq_nos())
    rig.crash(cut)


def test_a_crash_at_every_step_with_many_small_segments(seed: int) -> None:
    rig = CollectorRig(random.Random(seed), choice=ChoiceLimits(100_000, 4, 3, 6))
    for steps in range(40):
        rig.fill(1)
        go(rig, steps)
        rig.crash(rig.rng.choice(list(CUTS.values())))
        rig.check_no_orphans()
    rig.collect_all()
    assert len(rig.folder.rdq_nos()) < 10
    assert len(rig.rows) == 40


def test_after_a_gap_in_the_journal_nothing_is_removed(seed: int) -> None:
    """What no row refers to may be what the rows in the gap referred to."""
    rig = collecting(seed)
    while "name synced" not in rig.steps.points:
        assert rig.stepped()
    journal = rig.folder.journal_path(rig.folder.journal_nos()[-1])
    rig.disk.damage(journal, lambda data: data.__setitem__(-800, data[-800] ^ 1))
    rig.steps.close()
    rig.disk.kill()
    rig.open()
    assert rig.recovered.report.gaps
    unused = [no for no, state in rig.core.memtables.files.items() if not state.valid_bytes]

    rig.work()

    assert unused
    assert set(unused) <= set(rig.folder.rdq_nos())


def test_an_index_lost_again_after_it_was_rebuilt_without_journals_is_rebuilt_again(
    seed: int,
) -> None:
    """The journal after a rebuild must not look like the first ever."""
    rig = collecting(seed)
    rig.collect_all()
    for file_no in rig.folder.journal_nos():
        rig.files.unlink(rig.folder.journal_path(file_no))

    for _ in range(3):
        rig.crash_without_index()


def test_copies_come_back_when_the_index_is_lost_and_a_sync_failed(seed: int) -> None:
    """A copy has a higher number than the segment that the mark names, and was synced before it."""
    rig = collecting(seed)
    rig.collect_all()
    rig.location.lose()
    durable = rig.core.durable
    assert max(rig.folder.rdq_nos()) > durable.file_no
    kept = {rig.rows[key] for key in rig.held}
    rig.steps.close()
    rig.disk.kill()

    rig.open(durable)

    assert set(rig.found().values()) >= kept


def test_a_rebuild_that_crashed_over_its_first_journal_file_is_done_again(seed: int) -> None:
    rig = collecting(seed)
    rig.collect_all()
    kept = {rig.rows[key] for key in rig.held}
    rig.steps.close()
    rig.disk.kill()
    rig.location.lose()
    rig.disk.fail("fsync", Crash(), "*.jnl")
    with pytest.raises(Crash):
        rig.open()
    rig.disk.power_cut(Fate.LOST, 1.0)
    assert rig.files.names(rig.folder.journal)

    rig.open()

    assert set(rig.found().values()) >= kept
