"""The index's file becomes small again at a start, and an index can be read without a trace.

Tests: msg_store/index/files.py
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from leveret.msg_store.format.rows import Batch, IndexDamaged
from leveret.msg_store.index import files as index_files
from leveret.msg_store.index.files import LmdbFiles
from leveret.msg_store.index.lmdb_index import LmdbIndex

UUID = bytes(range(16))
MIN = 1 << 20


def home_of(path: Path, compact_bytes_min: int = MIN) -> LmdbFiles:
    return LmdbFiles(path / "store.lmdb", UUID, 1 << 20, compact_bytes_min)


def filled(path: Path, rows: int = 40_000, left: int = 50) -> None:
    """An index that was large, and of which little is left."""
    index = home_of(path).open()
    for first in range(0, rows, 10_000):
        seqs = range(first, first + 10_000)
        index.write(
            Batch(
                rows={1: {seq: (seq, seq, 5, 0, 1) for seq in seqs}},
                locations=[(seq, (1, seq, 36, 5, 1)) for seq in seqs],
            )
        )
    for first in range(left, rows, 10_000):
        seqs = range(first, min(rows, first + 10_000))
        index.write(Batch(acked={1: seqs}, locations=[(seq, None) for seq in seqs]))
    index.close()


def contents(index: LmdbIndex) -> tuple[object, ...]:
    return index.rows(1, 0, 1 << 63, 99_999), index.scan_locations(0, 99_999), index.queue_nos()


def blocks_bytes(path: Path) -> int:
    return (path / "store.lmdb" / "data.mdb").stat().st_blocks * 512


def test_an_emptied_index_is_small_after_the_next_start(tmp_path: Path) -> None:
    filled(tmp_path)
    before = blocks_bytes(tmp_path)
    with_free_pages = LmdbIndex(tmp_path / "store.lmdb", UUID, 1 << 20)
    expected = contents(with_free_pages)
    assert with_free_pages.size_bytes > MIN > 10 * with_free_pages.live_bytes
    with_free_pages.close()

    index = home_of(tmp_path).open()

    assert contents(index) == expected
    assert len(expected[0]) == 50  # type: ignore[arg-type]
    assert index.size_bytes < MIN // 10
    assert blocks_bytes(tmp_path) < before // 10
    index.write(Batch(rows={2: {1: (1, 1, 1, 1, 1)}}))
    index.close()
    again = home_of(tmp_path).open()
    assert again.queue_nos() == [1, 2]
    again.close()
    assert os.listdir(tmp_path) == ["store.lmdb"]


@pytest.mark.parametrize(("rows", "left"), [(40_000, 20_000), (10_000, 50)])
def test_nothing_is_done_where_little_is_to_be_gained(tmp_path: Path, rows: int, left: int) -> None:
    filled(tmp_path, rows, left)
    inode = (tmp_path / "store.lmdb" / "data.mdb").stat().st_ino

    home_of(tmp_path, MIN if rows > 10_000 else 1 << 30).open().close()

    assert (tmp_path / "store.lmdb" / "data.mdb").stat().st_ino == inode


def test_a_start_that_was_cut_off_while_copying_is_forgotten(tmp_path: Path) -> None:
    filled(tmp_path)
    draft = tmp_path / "store.lmdb.compact"
    draft.mkdir()
    (draft / "data.mdb").write_bytes(b"half of it")

    index = home_of(tmp_path).open()

    assert len(index.rows(1, 0, 1 << 63, 99)) == 50
    index.close()
    assert not draft.exists()


def test_a_start_that_was_cut_off_before_the_rename_is_begun_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path)

    def dies(old: Path, new: Path) -> None:
        raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr(index_files.os, "replace", dies)
        with pytest.raises(SystemExit):
            home_of(tmp_path).open()

    index = home_of(tmp_path).open()
    assert len(index.rows(1, 0, 1 << 63, 99)) == 50
    assert index.size_bytes < MIN // 10
    index.close()
    assert os.listdir(tmp_path) == ["store.lmdb"]


def test_a_full_disk_leaves_the_index_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path)
    monkeypatch.setattr(index_files, "free_bytes", lambda _: 1 << 20)

    index = home_of(tmp_path).open()

    assert index.size_bytes > MIN
    assert len(index.rows(1, 0, 1 << 63, 99)) == 50
    index.close()
    assert os.listdir(tmp_path) == ["store.lmdb"]


def test_an_operator_can_have_it_as_small_as_can_be(tmp_path: Path) -> None:
    filled(tmp_path, left=20_000)

    before, after = home_of(tmp_path).compact()

    assert after < before
    index = home_of(tmp_path).open()
    assert len(index.rows(1, 0, 1 << 63, 99_999)) == 20_000
    index.close()


READER = """
import sys, lmdb
environment = lmdb.open(sys.argv[1], readonly=True, max_dbs=8)
transaction = environment.begin()
transaction.stat()
print("reading", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("transactions", [0, 1])
def test_a_process_that_still_reads_the_old_file_does_no_harm(
    tmp_path: Path, transactions: int
) -> None:
    """It keeps LMDB's lock file in use, in which stands which transaction is the last."""
    filled(tmp_path)
    index = LmdbIndex(tmp_path / "store.lmdb", UUID, 1 << 20)
    for _ in range(transactions):
        index.write(Batch(rows={3: {1: (1, 1, 1, 1, 1)}}))
    index.close()
    command = [sys.executable, "-P", "-c", READER, str(tmp_path / "store.lmdb")]
    with subprocess.Popen(
        command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"reading\n"

        index = home_of(tmp_path).open()
        assert index.size_bytes < MIN // 10
        assert len(index.rows(1, 0, 1 << 63, 99)) == 50
        index.write(Batch(rows={2: {1: (1, 1, 1, 1, 1)}}))
        assert index.queue_nos() == sorted([1, 2, *[3] * transactions])
        index.close()
        process.communicate()
    again = home_of(tmp_path).open()
    assert again.queue_nos() == sorted([1, 2, *[3] * transactions])
    again.close()


# Reading only.


def test_reading_leaves_no_trace(tmp_path: Path) -> None:
    filled(tmp_path)
    folder = tmp_path / "store.lmdb"
    (folder / "lock.mdb").unlink()
    before = {path.name: path.stat() for path in [folder, *folder.iterdir()]}

    index = LmdbIndex(folder, UUID, is_readonly=True)
    assert len(index.rows(1, 0, 1 << 63, 99)) == 50
    index.close()

    after = {path.name: path.stat() for path in [folder, *folder.iterdir()]}
    assert [(name, each.st_mtime_ns, each.st_size) for name, each in before.items()] == [
        (name, each.st_mtime_ns, each.st_size) for name, each in after.items()
    ]


def test_nothing_is_made_to_read(tmp_path: Path) -> None:
    with pytest.raises(IndexDamaged, match="is missing"):
        LmdbIndex(tmp_path / "store.lmdb", UUID, is_readonly=True)

    assert os.listdir(tmp_path) == []
