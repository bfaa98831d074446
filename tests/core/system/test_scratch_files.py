"""Copy on write: the view behaves like a writable disk, and the disk below it does not change."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from leveret.core.system.files import Files
from leveret.core.system.scratch_files import ScratchCalls
from rigs.disk.memory_disk import MemoryDisk

FOLDER = Path("/store")
NAMES = [FOLDER / name for name in ("a", "b", "c", "d")]


def disk() -> MemoryDisk:
    below = MemoryDisk()
    files = Files(below)
    files.mkdir(FOLDER)
    for path in NAMES[:3]:
        with files.create(path) as file:
            file.append([path.name.encode() * 50])
    return below


def change(files: Files, rng: random.Random) -> object:
    """Do something to a file; return what came of it."""
    path, other = rng.sample(NAMES, 2)
    what = rng.choice(
        ["create", "append", "over", "truncate", "read", "rename", "unlink", "open", "new"]
    )
    size = rng.randrange(60)
    try:
        match what:
            case "create" | "open":
                {"create": files.create, "open": files.open_lock}[what](path).close()
            case "append" | "truncate":
                with files.open_append(path) as file:
                    if what == "append":
                        file.append([b"x" * size, b"y"])
                    else:
                        file.truncate(size)
                    file.fdatasync()
                    return file.size_bytes(), file.pread(99, size // 2)
            case "over":
                with files.open_write(path) as file:
                    file.write_at(b"z" * size, 2 * size)
                    return file.size_bytes()
            case "read":
                return files.read(path)
            case "rename":
                files.rename(path, other)
            case "unlink":
                files.unlink(path)
            case "new":
                files.write_new(path, b"new" * size)
    except OSError as error:
        return type(error)
    return files.names(FOLDER)


def image(files: Files) -> dict[str, bytes]:
    return {name: files.read(FOLDER / name) for name in files.names(FOLDER)}


def test_it_shows_what_a_disk_would_that_was_written(rng: random.Random) -> None:
    for _ in range(300):
        below, written = disk(), Files(disk())
        scratch, before = Files(ScratchCalls(below)), image(Files(below))
        for _ in range(rng.randrange(25)):
            seed = rng.getrandbits(32)
            here, there = (change(each, random.Random(seed)) for each in (scratch, written))
            assert here == there

        assert image(scratch) == image(written)
        assert image(Files(below)) == before
        assert below.open_files == 0


def test_a_file_that_is_open_stays_readable_when_its_name_goes() -> None:
    files = Files(ScratchCalls(disk()))

    with files.open_read(NAMES[0]) as file:
        files.unlink(NAMES[0])

        assert file.pread(2, 0) == b"aa"


def test_locks_are_those_of_the_disk(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with Files().open_lock(path) as held:
        held.lock()

        with Files(ScratchCalls()).open_lock(path) as other, pytest.raises(BlockingIOError):
            other.lock()

    with Files(ScratchCalls()).open_lock(tmp_path / "none") as free:
        free.lock()
    assert os.listdir(tmp_path) == ["lock"]


def test_folders_need_not_be_there(tmp_path: Path) -> None:
    files = Files(ScratchCalls())
    with pytest.raises(FileNotFoundError):
        files.names(tmp_path / "new")

    files.mkdir(tmp_path / "new")
    files.write_new(tmp_path / "new" / "x", b"1")
    files.fsync_dir(tmp_path / "new")

    assert files.names(tmp_path / "new") == ["x"]
    assert os.listdir(tmp_path) == []


def test_a_copy_inside_the_kernel_is_made_in_memory() -> None:
    files = Files(ScratchCalls(disk()))

    with files.create_copy(NAMES[3]) as target, files.open_read(NAMES[1]) as source:
        target.append_from(source, 10, 5)

    assert files.read(NAMES[3]) == b"bbbbb"


def test_links_are_refused() -> None:
    with pytest.raises(OSError, match="links are not made"):
        Files(ScratchCalls(disk())).link(NAMES[0], NAMES[3])
