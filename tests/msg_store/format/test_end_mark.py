"""The end mark: two halves that take turns, and the last good one counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from leveret.core.system.files import Files
from leveret.msg_store.format.end_mark import NAME, SLOT_BYTES, EndMark, EndMarkFile, read_mark
from leveret.msg_store.format.errors import Corrupt, ForeignFile
from leveret.msg_store.format.file_header import Identity
from leveret.msg_store.format.folder import StorePaths
from leveret.msg_store.format.journal_frames import DurablePosition
from rigs.store.offline.offline_rig import flip

UUID = bytes(range(16))
FIRST, SECOND, THIRD = (DurablePosition(lsn, 2, 100 * lsn) for lsn in (5, 6, 7))


@pytest.fixture
def folder(tmp_path: Path) -> StorePaths:
    return StorePaths(Files(), tmp_path, UUID)


@pytest.fixture
def mark(folder: StorePaths) -> EndMarkFile:
    mark = EndMarkFile(folder, Identity(UUID, 3), 9)
    mark.begin(FIRST)
    return mark


def test_a_store_without_one_has_none(folder: StorePaths) -> None:
    assert read_mark(folder) is None


def test_the_last_one_written_counts(folder: StorePaths, mark: EndMarkFile) -> None:
    assert read_mark(folder) == EndMark(3, FIRST, 0)
    for durable in (SECOND, THIRD):
        mark.write(durable)
        assert read_mark(folder) == EndMark(3, durable, 0)
    assert (folder.path / NAME).stat().st_size == 2 * SLOT_BYTES


def test_a_write_that_was_cut_off_leaves_the_one_before(
    folder: StorePaths, mark: EndMarkFile
) -> None:
    mark.write(SECOND)
    mark.write(THIRD)
    for at in range(88):
        flip(folder.path / NAME, at)
        assert read_mark(folder) == EndMark(3, SECOND, 0)
        flip(folder.path / NAME, at)


@pytest.mark.parametrize("size", [0, 1, 64, 87])
def test_one_without_a_whole_half_is_damaged(
    folder: StorePaths, mark: EndMarkFile, size: int
) -> None:
    data = (folder.path / NAME).read_bytes()[:size]
    (folder.path / NAME).write_bytes(data)
    with pytest.raises(Corrupt):
        read_mark(folder)


def test_another_stores_is_refused(folder: StorePaths, mark: EndMarkFile) -> None:
    folder.uuid = bytes(16)
    with pytest.raises(ForeignFile):
        read_mark(folder)


def test_it_says_which_files_are_there(folder: StorePaths, mark: EndMarkFile) -> None:
    names = {"archive.json", "delivery_counts"}
    for name in names:
        (folder.path / name).touch()
    mark.write(SECOND)

    found = read_mark(folder)
    assert found is not None
    assert set(found.missing([])) == names
    assert found.missing(names) == []
    mark.forget("archive.json")
    found = read_mark(folder)
    assert found is not None
    assert (found.durable, found.missing([])) == (SECOND, ["delivery_counts"])


def test_a_missing_file_is_missed_until_it_is_forgotten(folder: StorePaths) -> None:
    mark = EndMarkFile(folder, Identity(UUID, 3), 9)
    mark.begin(FIRST, ["archive.json"])
    mark.write(SECOND)
    found = read_mark(folder)
    assert found is not None
    assert found.missing([]) == ["archive.json"]
    mark.forget("archive.json")
    mark.write(THIRD)
    found = read_mark(folder)
    assert found is not None
    assert found.missing([]) == []


def test_one_that_was_removed_stays_away(folder: StorePaths, mark: EndMarkFile) -> None:
    (folder.path / NAME).unlink()
    mark.write(SECOND)
    assert read_mark(folder) is None
