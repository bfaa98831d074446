"""The faulty disk loses exactly the bytes that were not synced, and fails exactly at the requested calls."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest

from leveret.core.system.files import Files, OsCalls
from rigs.disk.faulty_files import Crash, Fate, FaultyCalls
from rigs.disk.memory_disk import MemoryDisk

A = "a.rdq"


@pytest.fixture(params=["memory", "folder"])
def disk(request: pytest.FixtureRequest) -> FaultyCalls:
    calls = MemoryDisk() if request.param == "memory" else OsCalls()
    return FaultyCalls(calls, random.Random(3))


def half_synced(disk: FaultyCalls, folder: Path) -> Files:
    """A durable file of 1000 ones and, not durable, 2000 twos behind them."""
    files = Files(disk)
    files.mkdir(folder)
    with files.create(folder / A) as file:
        file.append([b"1" * 1000])
        file.fdatasync()
        files.fsync_dir(folder)
        file.append([b"2" * 2000])
    return files


@pytest.mark.parametrize("fate", Fate)
def test_synced_bytes_survive_every_fate(disk: FaultyCalls, tmp_path: Path, fate: Fate) -> None:
    files = half_synced(disk, tmp_path)

    disk.power_cut(fate)

    left = files.read(tmp_path / A)
    assert left[:1000] == b"1" * 1000
    assert len(left) <= 3000
    assert set(left[1000:]) <= {0, ord("2")}
    lengths = {Fate.KEPT: 3000, Fate.LOST: 1000, Fate.ZEROED: 3000}
    assert len(left) == lengths.get(fate, len(left))
    assert (fate is not Fate.ZEROED) or not any(left[1000:])


@pytest.mark.parametrize("fate", Fate)
def test_only_what_was_written_over_is_at_risk(
    disk: FaultyCalls, tmp_path: Path, fate: Fate
) -> None:
    files = Files(disk)
    files.mkdir(tmp_path)
    with files.create(tmp_path / A) as file:
        file.append([b"1" * 4096])
        file.fdatasync()
        files.fsync_dir(tmp_path)
    with files.open_write(tmp_path / A) as file:
        file.write_at(b"2" * 1024, 1024)

    disk.power_cut(fate)

    left = files.read(tmp_path / A)
    assert left[:1024] == b"1" * 1024
    assert left[2048:] == b"1" * 2048
    for start in (1024, 1536):  # a sector is torn nowhere
        assert left[start : start + 512] in {b"1" * 512, b"2" * 512}
    assert fate is not Fate.LOST or left == b"1" * 4096
    assert fate is not Fate.KEPT or left[1024:2048] == b"2" * 1024


def test_truncation_that_was_not_synced_may_come_back(disk: FaultyCalls, tmp_path: Path) -> None:
    files = half_synced(disk, tmp_path)
    with files.open_append(tmp_path / A) as file:
        file.truncate(500)

    disk.power_cut(Fate.LOST)

    assert files.read(tmp_path / A) == b"1" * 1000


def test_names_that_were_not_synced_are_lost_and_removed_ones_come_back(
    disk: FaultyCalls, tmp_path: Path
) -> None:
    files = half_synced(disk, tmp_path)
    files.create(tmp_path / "new").close()
    files.unlink(tmp_path / A)

    disk.power_cut(Fate.LOST, names=0.0)

    assert files.names(tmp_path) == [A]
    assert files.read(tmp_path / A) == b"1" * 1000


def test_names_that_were_synced_stay(disk: FaultyCalls, tmp_path: Path) -> None:
    files = half_synced(disk, tmp_path)
    files.write_new(tmp_path / "new", b"whole")
    files.unlink(tmp_path / A)
    files.fsync_dir(tmp_path)

    disk.power_cut(Fate.LOST, names=0.0)

    assert files.names(tmp_path) == ["new"]
    assert files.read(tmp_path / "new") == b"whole"


def test_a_kill_loses_nothing_that_was_written(disk: FaultyCalls, tmp_path: Path) -> None:
    files = half_synced(disk, tmp_path)
    file = files.open_append(tmp_path / A)

    disk.kill()

    assert disk.open_files == []
    file.close()
    assert files.read(tmp_path / A) == b"1" * 1000 + b"2" * 2000


def test_faults_come_where_and_as_often_as_they_were_asked_for(
    disk: FaultyCalls, tmp_path: Path
) -> None:
    files = half_synced(disk, tmp_path)
    disk.fail("fdatasync", OSError(errno.EIO, "gone"), "*.rdq", after=1, times=2)
    disk.fail("writev", Crash("here"), "*.jnl")

    outcomes = []
    with files.open_append(tmp_path / A) as file:
        for _ in range(4):
            try:
                file.fdatasync()
                outcomes.append(0)
            except OSError as error:
                outcomes.append(error.errno)
    with files.create(tmp_path / "1.jnl") as file, pytest.raises(Crash):
        file.append([b"x"])

    assert outcomes == [0, errno.EIO, errno.EIO, 0]


def test_a_delay_is_the_tests_own_time(tmp_path: Path) -> None:
    slept: list[float] = []
    disk = FaultyCalls(MemoryDisk(), random.Random(1), slept.append)
    files = half_synced(disk, tmp_path)
    disk.delay("fdatasync", 0.5)

    with files.open_append(tmp_path / A) as file:
        file.fdatasync()

    assert slept == [0.5]


def test_a_full_disk_takes_what_fits_and_space_comes_back(tmp_path: Path) -> None:
    files = Files(MemoryDisk(size_bytes=100))
    files.mkdir(tmp_path)
    with files.create(tmp_path / "ballast") as file:
        file.append([b"b" * 60])

    with files.create(tmp_path / "a") as file:
        with pytest.raises(OSError, match="no space") as caught:
            file.append([b"x" * 50])
        assert caught.value.errno == errno.ENOSPC
        assert file.size_bytes() == 40
        files.unlink(tmp_path / "ballast")
        file.append([b"y" * 50])


def test_damage_changes_durable_bytes(disk: FaultyCalls, tmp_path: Path) -> None:
    files = half_synced(disk, tmp_path)

    disk.damage(tmp_path / A, lambda image: image.__setitem__(5, 0))

    assert files.read(tmp_path / A)[5] == 0
    disk.power_cut(Fate.LOST)
    assert files.read(tmp_path / A)[5] == 0
