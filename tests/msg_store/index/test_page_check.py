"""Pages of an index: damage is seen before LMDB meets it, and good pages are never called bad."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from leveret.msg_store.format.rows import Batch, Checkpoint, FileRow, IndexDamaged, QueueTerms
from leveret.msg_store.index.files import LmdbFiles
from leveret.msg_store.index.lmdb_index import DATA, LmdbIndex
from leveret.msg_store.index.page_check import fault_of
from rigs.store.offline.store_damage import PAGE_BYTES, zero_a_leaf
from rigs.store.offline.walk_index import walk

UUID = bytes(range(16))


class Rows:
    """Writes batches as checkpoints do, and remembers the index's contents."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._there: dict[tuple[int, int], int] = {}
        self._msg_no = self._lsn = 0

    def batch(self, added: int, acked: int) -> Batch:
        rng, there = self._rng, self._there
        gone = rng.sample(sorted(there), min(acked, len(there)))
        acks: dict[int, set[int]] = {}
        locations: list = []
        for key in gone:
            acks.setdefault(key[0], set()).add(key[1])
            locations.append((there.pop(key), None))
        rows: dict[int, dict] = {}
        for _ in range(added):
            self._msg_no += 1
            queue_no, seq = rng.randrange(1, 30), self._msg_no << rng.choice([0, 20])
            there[queue_no, seq] = self._msg_no
            rows.setdefault(queue_no, {})[seq] = (seq, self._msg_no, 9, 0, 1)
            locations.append((self._msg_no, (1, 2, 3, 9, 1)))
        self._lsn += 1
        queue_nos = rng.sample(range(1, 300), 50)
        return Batch(
            rows,
            acks,
            locations,
            {no: FileRow(1, 2) if rng.random() < 0.5 else None for no in queue_nos},
            [(no, QueueTerms(1, 1, 1, 1, False)) for no in queue_nos],
            Checkpoint(self._lsn, 1, 1, 1),
        )


def written(path: Path, rng: random.Random, rounds: int, most: int = 2_000) -> LmdbIndex:
    index, rows = LmdbIndex(path, UUID, 1 << 22), Rows(rng)
    for _ in range(rounds):
        index.write(rows.batch(rng.randrange(most), rng.randrange(most)))
    return index


def test_pages_as_lmdb_writes_them_are_good(tmp_path: Path, rng: random.Random) -> None:
    index, rows = LmdbIndex(tmp_path, UUID, 1 << 20), Rows(rng)
    for most in [10] * 20 + [300] * 20 + [4_000] * 12 + [30_000] * 3:
        index.write(rows.batch(rng.randrange(most), rng.randrange(most)))
        assert fault_of(tmp_path / DATA) == ""
    index.write(rows.batch(0, 1 << 30))  # a list of free pages too long for a page
    assert fault_of(tmp_path / DATA) == ""
    index.write(rows.batch(100, 0))
    index.close()
    assert fault_of(tmp_path / DATA) == ""


def test_what_is_missing_or_was_never_written_is_no_damage(tmp_path: Path) -> None:
    assert fault_of(tmp_path / DATA) == ""
    (tmp_path / DATA).write_bytes(b"")
    assert fault_of(tmp_path / DATA) == ""


@pytest.mark.parametrize("kind", ["zeros", "noise", "other"])
def test_whatever_page_is_damaged_lmdb_never_meets_it(
    tmp_path: Path, rng: random.Random, kind: str
) -> None:
    """Every page in turn: either it is seen, or LMDB can go over all there is."""
    index = written(tmp_path / "good", rng, 5, 600)
    pages, live = index.size_bytes // PAGE_BYTES, index.live_bytes // PAGE_BYTES
    index.close()
    image = (tmp_path / "good" / DATA).read_bytes()
    believed = []
    for page in range(2, pages):
        damaged = bytearray(image)
        at = page * PAGE_BYTES
        other = rng.choice([each for each in range(2, pages) if each != page]) * PAGE_BYTES
        damaged[at : at + PAGE_BYTES] = {
            "zeros": bytes(PAGE_BYTES),
            "noise": rng.randbytes(PAGE_BYTES),
            "other": image[other : other + PAGE_BYTES],
        }[kind]
        folder = tmp_path / str(page)
        folder.mkdir()
        (folder / DATA).write_bytes(damaged)
        if fault_of(folder / DATA):
            shutil.rmtree(folder)
        else:
            believed.append(folder)
    assert pages - 2 - len(believed) >= live, "a page that is in use was not looked at"
    done = walk(believed)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ""


def test_flipped_bits_of_live_pages_end_no_process(tmp_path: Path, rng: random.Random) -> None:
    index = written(tmp_path / "good", rng, 3, 600)
    pages = index.size_bytes // PAGE_BYTES
    index.close()
    image = (tmp_path / "good" / DATA).read_bytes()
    believed = []
    for number in range(200):
        damaged = bytearray(image)
        at = rng.randrange(2, pages) * PAGE_BYTES + rng.randrange(rng.choice([64, PAGE_BYTES]))
        damaged[at] ^= 1 << rng.randrange(8)
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / DATA).write_bytes(damaged)
        if fault_of(folder / DATA):
            shutil.rmtree(folder)
        else:
            believed.append(folder)
    done = walk(believed)
    assert done.returncode == 0, done.stderr


def location(tmp_path: Path) -> LmdbFiles:
    return LmdbFiles(tmp_path / "store.lmdb", UUID, 1 << 22, leaves_bytes_max=0)


def test_all_pages_are_looked_at_after_a_process_that_did_not_close_its_index(
    tmp_path: Path, rng: random.Random
) -> None:
    index = location(tmp_path).open()
    index.write(Rows(rng).batch(2_000, 0))
    shutil.copytree(tmp_path / "store.lmdb", tmp_path / "killed" / "store.lmdb")
    index.close()

    zero_a_leaf(tmp_path / "killed" / "store.lmdb" / DATA)

    with pytest.raises(IndexDamaged, match="page"):
        location(tmp_path / "killed").open()


def test_after_an_orderly_end_the_leaves_of_a_large_index_are_not_read(
    tmp_path: Path, rng: random.Random
) -> None:
    index = location(tmp_path).open()
    index.write(Rows(rng).batch(2_000, 0))
    index.close()

    zero_a_leaf(tmp_path / "store.lmdb" / DATA)

    location(tmp_path).open().close()

    with pytest.raises(IndexDamaged, match="page"):
        LmdbFiles(tmp_path / "store.lmdb", UUID, 1 << 22).open()
