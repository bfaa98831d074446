"""The ballast takes real room when there is plenty, and gives it back once."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest

from leveret.core.system.files import Files
from leveret.msg_store.format.ballast import Ballast
from rigs.disk.faulty_files import FaultyCalls
from rigs.disk.memory_disk import MemoryDisk

DATA = Path("/data")
SIZE = 3_000_000


@pytest.fixture
def disk() -> FaultyCalls:
    return FaultyCalls(MemoryDisk(10_000_000), random.Random(1))


@pytest.fixture
def files(disk: FaultyCalls) -> Files:
    files = Files(disk)
    files.mkdir(DATA)
    return files


def test_it_is_made_once_and_given_up_once(files: Files) -> None:
    ballast = Ballast(files, DATA, SIZE)

    assert ballast.restore()
    assert ballast.restore()
    assert files.free_bytes(DATA) == 10_000_000 - SIZE
    assert ballast.release()
    assert not ballast.release()
    assert files.free_bytes(DATA) == 10_000_000


def test_it_is_not_taken_where_room_is_short(files: Files) -> None:
    assert not Ballast(files, DATA, 6_000_000).restore()
    assert files.names(DATA) == []


def test_a_half_written_one_is_made_anew(files: Files) -> None:
    with files.create(DATA / "ballast") as file:
        file.append([b"half"])

    assert Ballast(files, DATA, SIZE).restore()
    assert files.free_bytes(DATA) == 10_000_000 - SIZE


def test_a_disk_that_fills_meanwhile_gets_its_room_back(disk: FaultyCalls, files: Files) -> None:
    disk.fail("allocate", OSError(errno.ENOSPC, "full"))

    assert not Ballast(files, DATA, SIZE).restore()
    assert files.names(DATA) == []


def test_another_error_is_the_callers(disk: FaultyCalls, files: Files) -> None:
    disk.fail("allocate", OSError(errno.EIO, "gone"))

    with pytest.raises(OSError, match="gone"):
        Ballast(files, DATA, SIZE).restore()
