"""Snapshots of stores that nobody has open: stopped, killed, torn, damaged.

Tests: msg_store/offline/inspection.py
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from leveret.core.errors import StoreError
from leveret.core.system.files import Files
from leveret.msg_store.format.errors import StoreLocked
from leveret.msg_store.format.folder import StoreFolder
from leveret.msg_store.offline.audit import audited
from leveret.msg_store.offline.inspection import Inspection
from leveret.msg_store.offline.snapshot import take
from leveret.msg_store.recovery.report import RecoveryReport
from rigs.store.live_store import opened_at
from rigs.store.offline.offline_rig import quiet
from rigs.store.offline.snapshot_load import QUEUES, Rows, rows_of
from rigs.store.offline.store_damage import lose_inline, used_bytes
from rigs.store.store_folders import UUID, Filled, fill, killed_after


def taken(path: Path, target: Path) -> int:
    """Make a draft; return how many torn bytes were left out."""
    steps = take(Files(), path, target)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return int(end.value)


def recovered(path: Path) -> tuple[Rows, RecoveryReport]:
    """Return what a start finds."""
    opened = opened_at(path, 1000)
    try:
        index = opened.recovered.index
        rows = {
            (no, row[0]): row[1]
            for no in index.queues()
            for row in index.rows(no, 0, 1 << 64, 1 << 40)
        }
        return rows, opened.recovered.report
    finally:
        opened.close()


def contents_of(path: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in path.rglob("*")
        if file.is_file() and file.name != "lock"
    }


def compare(path: Path, target: Path) -> RecoveryReport:
    """Hold a snapshot to what a start on the store itself finds."""
    with audited(target, quiet, may_rebuild=False) as audit:
        assert audit.is_index_sound
        in_snapshot = rows_of(audit.store)
        counts = {no: terms.messages for no, terms in audit.store.queues.items()}
    restored, report = recovered(target)
    found, _ = recovered(path)
    assert in_snapshot == restored == found
    assert sum(counts.values()) == len(found)
    return report


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[Filled]:
    made = fill(tmp_path / "store")
    yield made
    made.close()


def test_of_a_store_that_was_stopped(filled: Filled, tmp_path: Path) -> None:
    filled.stop()
    before = contents_of(filled.path)

    torn = taken(filled.path, tmp_path / "snapshot")

    assert contents_of(filled.path) == before
    assert torn == 0
    with Inspection(tmp_path / "snapshot", may_rebuild=False) as store:
        assert store.recovered.is_clean
    report = compare(filled.path, tmp_path / "snapshot")
    assert not report.is_damage
    assert not report.tails


def test_of_a_store_that_was_killed(filled: Filled, tmp_path: Path) -> None:
    filled.kill()
    before = contents_of(filled.path)

    taken(filled.path, tmp_path / "snapshot")

    assert contents_of(filled.path) == before
    with Inspection(tmp_path / "snapshot", may_rebuild=False) as store:
        assert not store.recovered.is_clean
        assert rows_of(store) == filled.durable
    compare(filled.path, tmp_path / "snapshot")


@pytest.mark.parametrize("name", ["rdq", "journal"])
@pytest.mark.parametrize("cut", [1, 5, 50])
def test_a_torn_end_is_left_out_and_counted(
    filled: Filled, tmp_path: Path, name: str, cut: int
) -> None:
    filled.kill()
    journal = max((filled.path / "journal").iterdir())
    os.truncate(journal, used_bytes(journal) - cut)  # else it would have the end of the segment
    last = max((filled.path / name).iterdir())
    os.truncate(last, used_bytes(last) - cut)

    torn = taken(filled.path, tmp_path / "snapshot")

    copies = [tmp_path / "snapshot" / each.parent.name / each.name for each in {last, journal}]
    left_out = [used_bytes(each) for each in {last, journal}]
    assert 0 < torn == sum(left_out) - sum(copy.stat().st_size for copy in copies)
    report = compare(filled.path, tmp_path / "snapshot")
    assert not report.tails


@pytest.mark.parametrize("fate", ["cut", "zeroed"])
@pytest.mark.parametrize("torn", [0, 5])
def test_messages_that_only_the_journal_has_are_in_the_segments_of_a_snapshot(
    filled: Filled, tmp_path: Path, fate: str, torn: int
) -> None:
    filled.kill()
    changed = lose_inline(filled.path, fate)
    assert changed
    if torn:
        for segment in changed:
            with segment.open("ab") as file:
                file.write(b"torn" * 20)  # of a flush that no frame tells of
        last = max((filled.path / "journal").iterdir())
        os.truncate(last, used_bytes(last) - torn)
    before = contents_of(filled.path)

    taken(filled.path, tmp_path / "snapshot")

    assert contents_of(filled.path) == before
    with Inspection(tmp_path / "snapshot", may_rebuild=False) as store:
        assert not any(store.has_redone(no) for no in store.folder.rdq_nos())
        if not torn:
            assert rows_of(store) == filled.durable
    assert taken(tmp_path / "snapshot", tmp_path / "again") == 0
    compare(filled.path, tmp_path / "snapshot")


def test_what_lies_behind_bad_bytes_stays(filled: Filled, tmp_path: Path) -> None:
    filled.kill()
    last = max((filled.path / "rdq").iterdir())
    with Inspection(filled.path) as store:
        places = [place for _, place in store.locations() if place[0] == int(last.stem, 16)]
    first = min(place[1] for place in places)
    with last.open("r+b") as file:
        file.seek(first + 40)
        file.write(b"?" * 8)

    torn = taken(filled.path, tmp_path / "snapshot")

    assert torn == 0
    with Inspection(tmp_path / "snapshot", may_rebuild=False) as store:
        assert len(store.report.dropped) + len(store.report.lost) == 1
        assert len(rows_of(store)) == len(filled.durable) - 1
    compare(filled.path, tmp_path / "snapshot")


def test_zeros_behind_the_last_record_are_left_out(filled: Filled, tmp_path: Path) -> None:
    filled.kill()
    last = max((filled.path / "rdq").iterdir())
    with last.open("ab") as file:
        file.write(bytes(5_000))

    assert taken(filled.path, tmp_path / "snapshot") == 5_000
    compare(filled.path, tmp_path / "snapshot")


def test_a_store_in_use_is_refused(filled: Filled, tmp_path: Path) -> None:
    filled.kill()
    folder = StoreFolder(Files(), filled.path, lambda: UUID, lambda: 1)

    with pytest.raises(StoreLocked):
        taken(filled.path, tmp_path / "snapshot")
    folder.close()


def index_lost(path: Path) -> None:
    shutil.rmtree(path / "store.lmdb")


def index_condemned(path: Path) -> None:
    (path / "store.lmdb" / "condemned").touch()


def index_cut(path: Path) -> None:
    os.truncate(path / "store.lmdb" / "data.mdb", 5_000)


def journal_lost(path: Path) -> None:
    index = sorted((path / "journal").iterdir())
    index[0].unlink()
    index[1].unlink()


@pytest.mark.parametrize("damage", [index_lost, index_condemned, index_cut, journal_lost])
def test_what_must_be_recovered_first_is_refused(
    filled: Filled, tmp_path: Path, damage: object
) -> None:
    filled.kill()
    damage(filled.path)  # type: ignore[operator]

    with pytest.raises(StoreError, match="must be recovered first"):
        taken(filled.path, tmp_path / "snapshot")
    assert not (tmp_path / "snapshot").exists()


@pytest.mark.parametrize("text", [None, b"", b"leveret-message-store 99\nuuid 00\n"])
def test_what_is_no_store_is_refused(filled: Filled, tmp_path: Path, text: bytes | None) -> None:
    filled.kill()
    if text is None:
        (filled.path / "FORMAT").unlink()
    else:
        (filled.path / "FORMAT").write_bytes(text)

    with pytest.raises(StoreError):
        taken(filled.path, tmp_path / "snapshot")


def test_of_processes_that_were_killed_under_load(tmp_path: Path, rng: random.Random) -> None:
    for epoch in range(1, 8, 2):
        killed_after(tmp_path, epoch, rng.getrandbits(32), rng.choice([20, 300, 2000]))
        target = tmp_path / f"snapshot-{epoch}"

        taken(tmp_path / "store", target)

        with Inspection(target, may_rebuild=False) as store:
            assert set(store.queues) <= set(QUEUES)
        compare_copies(tmp_path / "store", target, tmp_path / "copy")


def compare_copies(path: Path, target: Path, scratch: Path) -> None:
    """Do as ``compare``, and leave the store as the kill has left it but for the epoch."""
    shutil.copytree(path, scratch)
    compare(scratch, target)
    shutil.rmtree(scratch)
