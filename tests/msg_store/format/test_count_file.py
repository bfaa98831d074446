"""The file of delivery counts: what is written is read, wherever the file ends and whatever is damaged.

Tests: msg_store/format/file_header.py, msg_store/format/folder.py
"""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest

from leveret.core.system.files import Files
from leveret.msg_store.format import count_file
from leveret.msg_store.format.count_file import ALL, Count, CountFile, Counts
from leveret.msg_store.format.file_header import CRC32, CRC32C, HEADER_BYTES, Identity
from leveret.msg_store.format.folder import StoreFolder
from rigs.disk.faulty_files import FaultyCalls
from rigs.disk.memory_disk import MemoryDisk

FOLDER = Path("/data/store")
RECORD_BYTES = 20


class Bench:
    """A store's folder on a disk in memory, opened again and again."""

    def __init__(self) -> None:
        self.disk = FaultyCalls(MemoryDisk(), random.Random(1))
        self.files = Files(self.disk)
        self.files.mkdir(FOLDER.parent)
        self.uuid = bytes(range(16))
        self.kind = CRC32
        self.open()

    def open(self) -> Counts:
        folder = StoreFolder(self.files, FOLDER, lambda: self.uuid, lambda: 1)
        folder.close()
        self.file = CountFile(folder, Identity(folder.uuid, 1, self.kind), lambda: 1)
        return self.file.read()

    def again(self) -> Counts:
        self.file.close()
        return self.open()

    @property
    def size_bytes(self) -> int:
        with self.files.open_read(FOLDER / count_file.NAME) as file:
            return file.size_bytes()

    def cut(self, size_bytes: int) -> None:
        with self.files.open_write(FOLDER / count_file.NAME) as file:
            file.truncate(size_bytes)

    def damage(self, at: int) -> None:
        with self.files.open_write(FOLDER / count_file.NAME) as file:
            byte = file.pread(1, at)
            file.write_at(bytes([byte[0] ^ 0x55]), at)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_there_is_no_file_before_the_first_count(bench: Bench) -> None:
    assert bench.again() == {}
    assert count_file.NAME not in bench.files.names(FOLDER)


def test_the_last_count_of_a_message_holds(bench: Bench) -> None:
    bench.file.write([(1, 5, 1), (1, 6, 1), (2, 5, 1)])
    assert bench.again() == {1: {5: 1, 6: 1}, 2: {5: 1}}
    bench.file.write([(1, 5, 2), (1, 6, 0), (2, 5, 0), (2, 9, 0)])
    assert bench.again() == {1: {5: 2}}
    bench.file.write([(1, 5, 3), (1, ALL, 0), (3, ALL, 0)])
    bench.file.write([(1, 7, 1)])
    assert bench.again() == {1: {7: 1}}
    assert bench.size_bytes == HEADER_BYTES + 11 * RECORD_BYTES


def test_a_file_that_ends_anywhere_has_the_counts_before(bench: Bench) -> None:
    changes: list[Count] = [(1, seq, 1) for seq in range(5)]
    bench.file.write(changes)
    for size_bytes in reversed(range(HEADER_BYTES, HEADER_BYTES + 5 * RECORD_BYTES + 1)):
        bench.file.close()
        bench.cut(size_bytes)

        left = (size_bytes - HEADER_BYTES) // RECORD_BYTES
        assert bench.open() == ({1: dict.fromkeys(range(left), 1)} if left else {})


@pytest.mark.parametrize("at", [HEADER_BYTES + 45, HEADER_BYTES + 20, 3])
def test_behind_damage_the_file_is_made_anew(bench: Bench, at: int) -> None:
    bench.file.write([(1, seq, 1) for seq in range(5)])
    bench.file.close()
    bench.damage(at)

    whole = max(0, (at - HEADER_BYTES) // RECORD_BYTES)
    assert bench.open() == ({1: dict.fromkeys(range(whole), 1)} if whole else {})
    bench.file.write([(2, 9, 4)])
    expected = {1: dict.fromkeys(range(whole), 1)} if whole else {}
    assert bench.again() == {**expected, 2: {9: 4}}


def test_the_file_of_another_store_is_not_read(bench: Bench) -> None:
    bench.file.write([(1, 1, 1)])
    data = bench.files.read(FOLDER / count_file.NAME)
    other = Bench.__new__(Bench)
    other.__dict__.update(bench.__dict__)
    bench.files.unlink(FOLDER / "FORMAT")
    other.uuid = bytes(16)

    assert other.open() == {}
    other.file.write([(2, 2, 2)])
    assert other.again() == {2: {2: 2}}
    assert bench.files.read(FOLDER / count_file.NAME) != data


@pytest.mark.parametrize("kind", [CRC32, CRC32C])
def test_a_file_of_another_checksum_is_read_and_rewritten(bench: Bench, kind: int) -> None:
    bench.file.write([(1, 1, 1)])
    bench.kind = kind

    assert bench.again() == {1: {1: 1}}
    bench.file.write([(1, 2, 1)])
    assert bench.again() == {1: {1: 1, 2: 1}}


def test_an_outdated_file_is_rewritten(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(count_file, "REWRITE_BYTES", 1000)
    for number in range(1, 1000):
        bench.file.write([(1, 5, number), (1, 6, number % 2)])

    assert bench.size_bytes < 1100
    assert bench.again() == {1: {5: 999, 6: 1}}


def test_after_an_error_of_the_disk_everything_is_written(bench: Bench) -> None:
    bench.file.write([(1, 1, 1)])
    bench.disk.fail("writev", OSError(errno.EIO, "broken"))
    with pytest.raises(OSError, match="broken"):
        bench.file.write([(1, 2, 1)])

    bench.file.write([])

    assert bench.again() == {1: {1: 1, 2: 1}}
