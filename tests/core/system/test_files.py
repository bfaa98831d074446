"""The file layer's contract, on the machine's disk and on a faulty one that does as little as allowed."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from leveret.core.system.files import Files, OsCalls
from rigs.disk.faulty_files import FaultyCalls
from rigs.disk.memory_disk import MemoryDisk


def faulty_over(calls: MemoryDisk | OsCalls) -> FaultyCalls:
    """A disk with short reads and writes, and interrupted calls."""
    calls_ = FaultyCalls(calls, random.Random(7))
    calls_.short_writes = calls_.interrupts = 0.7
    return calls_


KINDS: dict[str, Callable[[], Files]] = {
    "os": Files,
    "memory": lambda: Files(MemoryDisk()),
    "faulty memory": lambda: Files(faulty_over(MemoryDisk())),
    "faulty folder": lambda: Files(faulty_over(OsCalls())),
}


@pytest.fixture(params=KINDS)
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    files = KINDS[request.param]()
    files.mkdir(tmp_path)
    return files


def test_what_is_appended_in_many_buffers_is_read_back_in_order(
    files: Files, tmp_path: Path
) -> None:
    buffers = [os.urandom(size) for size in (0, 1, 5000, 0, 70_000, 3)] + [b"x"] * 3000

    with files.create(tmp_path / "a") as file:
        file.append(buffers)
        file.append([b"more", memoryview(b"and more")[4:]])
        file.fdatasync()
        expected = b"".join(buffers) + b"moremore"

        assert file.size_bytes() == len(expected)
        assert file.pread(len(expected) + 9, 0) == expected
        assert file.pread(10, 4000) == expected[4000:4010]
        assert file.pread(10, len(expected)) == b""
        assert b"".join(file.blocks(7, 1000)) == expected[7:]


def test_a_file_is_appended_to_where_a_truncation_ended_it(files: Files, tmp_path: Path) -> None:
    with files.create(tmp_path / "a") as file:
        file.append([b"0123456789"])
        file.truncate(4)
        file.append([b"abc"])

    with files.open_append(tmp_path / "a") as file:
        file.append([b"!"])
    assert files.read(tmp_path / "a") == b"0123abc!"


def test_bytes_are_written_over_those_that_are_there(files: Files, tmp_path: Path) -> None:
    with files.create(tmp_path / "a") as file:
        file.append([b"0123456789"])

    with files.open_write(tmp_path / "a") as file:
        file.write_at(b"abc", 3)
        file.write_at(b"", 0)
        file.write_at(b"xyz", 12)

    assert files.read(tmp_path / "a") == b"012abc6789\0\0xyz"
    with pytest.raises(FileNotFoundError):
        files.open_write(tmp_path / "b")


def test_a_taken_name_is_refused_and_a_missing_one_too(files: Files, tmp_path: Path) -> None:
    files.create(tmp_path / "a").close()

    with pytest.raises(FileExistsError):
        files.create(tmp_path / "a")
    with pytest.raises(FileNotFoundError):
        files.open_append(tmp_path / "b")
    with pytest.raises(FileNotFoundError):
        files.open_read(tmp_path / "b")
    with pytest.raises(FileNotFoundError):
        files.unlink(tmp_path / "b")


def test_names_are_made_changed_linked_and_removed(files: Files, tmp_path: Path) -> None:
    files.write_new(tmp_path / "a", b"one")
    files.write_new(tmp_path / "a", b"two")
    files.link(tmp_path / "a", tmp_path / "c")
    files.rename(tmp_path / "a", tmp_path / "b")
    files.fsync_dir(tmp_path)

    assert files.names(tmp_path) == ["b", "c"]
    assert files.read(tmp_path / "b") == files.read(tmp_path / "c") == b"two"
    files.unlink(tmp_path / "b")
    assert files.names(tmp_path) == ["c"]


def test_a_draft_left_by_a_crash_does_not_stop_the_next_write(files: Files, tmp_path: Path) -> None:
    with files.create(tmp_path / "a.tmp") as file:
        file.append([b"half"])

    files.write_new(tmp_path / "a", b"whole")

    assert files.names(tmp_path) == ["a"]
    assert files.read(tmp_path / "a") == b"whole"


@pytest.mark.parametrize("kind", ["create_copy", "create"])
def test_ranges_of_one_file_are_appended_to_another(
    files: Files, tmp_path: Path, kind: str
) -> None:
    data = os.urandom(200_000)
    with files.create(tmp_path / "a") as source:
        source.append([data])
        with getattr(files, kind)(tmp_path / "b") as target:
            target.append([b"head"])
            target.append_from(source, 1000, 150_000)
            target.append_from(source, 0, 10)
            target.append([b"tail"])
            with pytest.raises(EOFError):
                target.append_from(source, 199_990, 11)

    expected = b"head" + data[1000:151_000] + data[:10] + b"tail" + data[-10:]
    assert files.read(tmp_path / "b") == expected


def test_room_is_taken_at_once(files: Files, tmp_path: Path) -> None:
    with files.create(tmp_path / "a") as file:
        file.allocate(3_000_000)

        assert file.size_bytes() == 3_000_000
        assert file.pread(10, 2_999_995) == bytes(5)


@pytest.mark.parametrize("answer", ["unknown", "refused"])
def test_a_system_that_cannot_take_room_writes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "not supported")

    if answer == "refused":
        monkeypatch.setattr(os, "posix_fallocate", refuse)
    else:
        monkeypatch.delattr(os, "posix_fallocate")

    with Files().create(tmp_path / "a") as file:
        file.allocate(3_000_000)

    assert (tmp_path / "a").stat().st_blocks * 512 >= 3_000_000


def test_a_lock_keeps_the_second_out_until_the_first_is_closed(
    files: Files, tmp_path: Path
) -> None:
    with files.open_lock(tmp_path / "lock") as first, files.open_lock(tmp_path / "lock") as second:
        first.lock()
        with pytest.raises(BlockingIOError):
            second.lock()
        first.close()
        second.lock()


def test_closing_twice_does_no_harm_and_there_is_room(files: Files, tmp_path: Path) -> None:
    file = files.create(tmp_path / "a")
    file.close()
    file.close()

    assert files.free_bytes(tmp_path) > 0
