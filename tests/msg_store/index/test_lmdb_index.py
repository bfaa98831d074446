"""The index: one contract for LMDB and for the one in memory, and LMDB's own troubles.

Tests: msg_store/index/lmdb_errors.py
"""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import lmdb
import pytest

from leveret.core.system.shortage import is_shortage
from leveret.msg_store.format.rows import (
    Batch,
    Checkpoint,
    FileRow,
    Index,
    IndexDamaged,
    IndexFull,
    QueueTerms,
)
from leveret.msg_store.index.files import LmdbFiles
from leveret.msg_store.index.lmdb_errors import store_error
from leveret.msg_store.index.lmdb_index import LAG_MAX, LmdbIndex
from leveret.msg_store.memtable.memtable import Memtable
from rigs.store.memory_index import MemoryIndexFiles

UUID = bytes(range(16))
MAX = (1 << 64) - 1


def home_of(kind: str, path: Path, map_bytes: int = 1 << 20) -> MemoryIndexFiles | LmdbFiles:
    return (
        MemoryIndexFiles() if kind == "memory" else LmdbFiles(path / "store.lmdb", UUID, map_bytes)
    )


@pytest.fixture(params=["memory", "lmdb"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> MemoryIndexFiles | LmdbFiles:
    return home_of(request.param, tmp_path)


@pytest.fixture
def index(location: MemoryIndexFiles | LmdbFiles) -> Iterator[Index]:
    opened = location.open()
    yield opened
    opened.close()


@pytest.fixture
def lmdb_index(tmp_path: Path) -> Iterator[LmdbIndex]:
    opened = LmdbIndex(tmp_path / "store.lmdb", UUID, 1 << 20)
    yield opened
    opened.close()


def row(seq: int, msg_no: int | None = None) -> tuple[int, int, int, int, int]:
    return (seq, seq + 1000 if msg_no is None else msg_no, 5, MAX, 1)


def rows_batch(queue_no: int, seqs: range) -> Batch:
    return Batch(
        rows={queue_no: {seq: row(seq) for seq in seqs}},
        locations=[(seq + 1000, (1, seq, 36, 5, 1)) for seq in seqs],
    )


def test_runs_of_rows_and_places_leave_and_nothing_else_does(
    location: MemoryIndexFiles | LmdbFiles, rng: random.Random
) -> None:
    index = location.open()
    present = {1: set(range(3_000)), 2: set(range(500, 3_500))}
    for queue_no, seqs in present.items():
        rows = {seq: row(seq, queue_no << 40 | seq) for seq in sorted(seqs)}
        places = [(each[1], (1, each[0], 36, 5, 1)) for each in rows.values()]
        index.write(Batch(rows={queue_no: rows}, locations=places))

    while any(present.values()):
        acked = {no: some_of(seqs, rng) for no, seqs in present.items()}
        gone = [(no << 40 | seq, None) for no, seqs in acked.items() for seq in seqs]
        rng.shuffle(gone)
        strangers = {seq + 10_000 for seq in acked[2]}
        index.write(Batch(acked={2: acked[2] | strangers, 1: acked[1]}, locations=gone))
        for queue_no, seqs in acked.items():
            present[queue_no] -= seqs
        for queue_no, left in present.items():
            assert [each[0] for each in index.rows(queue_no, 0, MAX, 9_999)] == sorted(left)
        left_nos = sorted(no << 40 | seq for no, seqs in present.items() for seq in seqs)
        assert [no for no, _ in index.scan_locations(0, 9_999)] == left_nos
    index.close()


def some_of(seqs: set[int], rng: random.Random) -> set[int]:
    """Return a stretch of them, or here and there one, or all that are few."""
    if len(seqs) < 100:
        return set(seqs)
    low, high = sorted(rng.sample(range(3_501), 2))
    every = rng.choice([1, 1, 1, 7])
    return {seq for seq in seqs if low <= seq <= high and not seq % every}


def test_places_and_rows_are_found_with_and_without_holes_between(
    index: Index, rng: random.Random
) -> None:
    seqs = sorted({*range(40), *rng.sample(range(40, 80), 20), *range(80, 99)})
    for queue_no in (1, 2, 3):
        rows = {seq: row(seq, queue_no << 40 | seq) for seq in seqs}
        places = [(each[1], (1, each[0], 36, 5, 1)) for each in rows.values()]
        index.write(Batch(rows={queue_no: rows}, locations=places))

    for _ in range(300):
        low, limit = rng.randint(0, 100), rng.randint(1, 30)
        high = rng.choice([low + rng.randint(0, 40), MAX])
        expected = [seq for seq in seqs if low <= seq < high][:limit]
        assert [each[:2] for each in index.rows(2, low, high, limit)] == [
            (seq, 2 << 40 | seq) for seq in expected
        ]
        wanted = [2 << 40 | rng.randint(low, low + 20) for _ in range(limit)]
        wanted = rng.choice([wanted, list(range(2 << 40 | low, 2 << 40 | low + limit))])
        assert index.locations(wanted) == {
            no: (1, no & 0xFFFF, 36, 5, 1) for no in wanted if no & 0xFFFF in seqs
        }


def test_a_new_index_is_empty(index: Index) -> None:
    assert index.rows(1, 0, MAX, 10) == []
    assert (index.locations([1]), index.queues(), index.files()) == ({}, {}, {})
    assert index.checkpoint() is None


def test_rows_are_read_by_queue_in_order(index: Index) -> None:
    seqs = [0, 3, 255, 256, 1 << 40, (1 << 40) + 1, MAX - 1]
    rows = {queue_no: {seq: row(seq, queue_no) for seq in seqs} for queue_no in (1, 2, 256)}
    index.write(Batch(rows=rows))

    assert [each[0] for each in index.rows(2, 0, MAX, 99)] == seqs
    assert {each[1] for each in index.rows(2, 0, MAX, 99)} == {2}
    assert index.rows(2, 3, 256, 99) == [row(3, 2), row(255, 2)]
    assert index.rows(2, 4, MAX, 2) == [row(255, 2), row(256, 2)]
    assert index.rows(2, MAX - 1, 1 << 64, 9) == [row(MAX - 1, 2)]
    assert index.rows(3, 0, MAX, 9) == []
    assert index.rows(2, 9, 9, 9) == []


def test_a_transaction_takes_away_and_adds(index: Index) -> None:
    index.write(rows_batch(1, range(10)))
    point = Checkpoint(7, 2, 3, 4, True)
    batch = Batch(
        rows={2: {1: row(1)}},
        acked={1: {0, 5, 77}, 9: {1}},
        locations=[(1000, None), (1003, (9, 1, 2, 3, 4)), (5000, None)],
        files={1: FileRow(1 << 40, 2), 2: FileRow(3, 4)},
        queues=[(1, QueueTerms(1, MAX, 3, 4, True)), (2, QueueTerms(5, 6, 7, 8, False))],
        checkpoint=point,
    )
    index.write(batch)
    index.write(batch)

    assert [each[0] for each in index.rows(1, 0, MAX, 99)] == [1, 2, 3, 4, 6, 7, 8, 9]
    assert index.rows(2, 0, MAX, 99) == [row(1)]
    assert index.locations([1000, 1003, 1004]) == {1003: (9, 1, 2, 3, 4), 1004: (1, 4, 36, 5, 1)}
    assert index.files() == batch.files
    assert index.queues() == dict(batch.queues)
    assert index.checkpoint() == point
    index.write(Batch(files={1: None}, queues=[(2, None), (9, None)]))
    assert (list(index.files()), list(index.queues())) == ([2], [1])


def test_places_and_queues_are_listed_in_order(index: Index) -> None:
    for queue_no in (7, 2, (1 << 32) - 1):
        index.write(Batch(rows={queue_no: {seq: row(seq, 1) for seq in (0, 5, MAX)}}))
    index.write(Batch(locations=[(msg_no, (1, 2, 3, 4, 5)) for msg_no in (9, 300, 1 << 40)]))
    index.write(Batch(queues=[(8, QueueTerms(0, 0, 0, 0, False))]))

    assert index.queue_nos() == [2, 7, (1 << 32) - 1]
    assert index.scan_locations(0, 2) == [(9, (1, 2, 3, 4, 5)), (300, (1, 2, 3, 4, 5))]
    assert [msg_no for msg_no, _ in index.scan_locations(10, 99)] == [300, 1 << 40]
    assert index.scan_locations((1 << 40) + 1, 99) == []


def test_it_is_there_again_after_closing(location: MemoryIndexFiles | LmdbFiles) -> None:
    index = location.open()
    index.write(rows_batch(1, range(5000)))
    index.close()

    again = location.open()
    assert len(again.rows(1, 0, MAX, 9999)) == 5000
    again.close()


def test_one_found_damaged_in_use_is_set_aside_at_the_next_start(
    location: MemoryIndexFiles | LmdbFiles, tmp_path: Path
) -> None:
    index = location.open()
    index.write(rows_batch(1, range(5)))
    index.close()
    location.condemn()

    with pytest.raises(IndexDamaged):
        location.open()
    (tmp_path / "quarantine").mkdir()
    location.set_aside(tmp_path / "quarantine", "index-1")

    again = location.open()
    assert again.rows(1, 0, MAX, 9) == []
    again.close()
    location.set_aside(tmp_path / "quarantine", "index-2")


# LMDB alone.


def test_a_full_map_grows_and_nothing_is_missing(lmdb_index: LmdbIndex) -> None:
    for first in range(0, 60_000, 20_000):
        lmdb_index.write(rows_batch(1, range(first, first + 20_000)))

    assert [each[0] for each in lmdb_index.rows(1, 0, MAX, 99_999)] == list(range(60_000))
    assert len(lmdb_index.locations(range(1000, 61_000))) == 60_000
    assert lmdb_index.size_bytes > 1 << 20


def test_a_generation_is_whole_in_an_index_that_had_to_grow_for_it(lmdb_index: LmdbIndex) -> None:
    seqs = range(40_000)
    memtable = Memtable(1)
    memtable.rows = {1: {seq: row(seq) for seq in seqs}}
    memtable.insert({seq + 1000: (1, seq, 36, 5, 1) for seq in seqs[1:]})
    memtable.change({1000: (1, 0, 36, 5, 2)})

    lmdb_index.write(memtable.batch())

    assert lmdb_index.size_bytes > 1 << 20
    assert len(lmdb_index.rows(1, 0, MAX, 99_999)) == len(seqs)
    assert lmdb_index.locations(range(1000, 41_000)).keys() == set(range(1000, 41_000))


def damaged(change: Callable[[bytearray], None], path: Path) -> None:
    image = bytearray(path.read_bytes())
    change(image)
    path.write_bytes(image)


@pytest.mark.parametrize("what", ["zeroed", "truncated", "short", "foreign", "newer"])
def test_a_damaged_file_is_refused(tmp_path: Path, what: str) -> None:
    index = LmdbIndex(tmp_path / "store.lmdb", UUID, 1 << 20)
    index.write(rows_batch(1, range(5000)))
    used = index.size_bytes
    index.close()
    path = tmp_path / "store.lmdb" / "data.mdb"
    uuid = UUID
    match what:
        case "zeroed":
            path.write_bytes(bytes(len(path.read_bytes())))
        case "truncated":
            os.truncate(path, used - 4096)
        case "short":
            os.truncate(path, 100)
        case "foreign":
            uuid = bytes(16)
        case "newer":
            path.write_bytes(path.read_bytes().replace(b"version", b"versiom"))

    with pytest.raises(IndexDamaged):
        LmdbIndex(tmp_path / "store.lmdb", uuid, 1 << 20)


def test_garbage_in_a_page_is_damage_and_no_other_error(tmp_path: Path, seed: int) -> None:
    """In processes of their own: a library that meets garbage may end the process."""
    path = tmp_path / "store.lmdb"
    index = LmdbIndex(path, UUID, 1 << 20)
    index.write(rows_batch(1, range(3000)))
    used = index.size_bytes
    index.close()
    good = (path / "data.mdb").read_bytes()
    rng = random.Random(seed)
    script = (
        "import sys; from pathlib import Path\n"
        "from leveret.msg_store.index.lmdb_index import LmdbIndex\n"
        "from leveret.msg_store.format.rows import IndexDamaged\n"
        "try:\n"
        "    index = LmdbIndex(Path(sys.argv[1]), bytes(range(16)), 1 << 20)\n"
        "    index.rows(1, 0, 1 << 40, 9999); index.locations(range(1000, 4000))\n"
        "except IndexDamaged: pass\n"
    )
    for _ in range(3):
        page = rng.randrange(2, used // 4096) * 4096
        image = bytearray(good)
        image[page : page + 4096] = rng.randbytes(4096)
        (path / "data.mdb").write_bytes(image)
        run = subprocess.run(
            [sys.executable, "-c", script, str(path)],
            cwd=tmp_path,
            env=os.environ | {"PYTHONSAFEPATH": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert "Traceback" not in run.stderr


def test_reads_see_a_whole_transaction_while_another_is_written(lmdb_index: LmdbIndex) -> None:
    script = Batch(rows={1: {seq: row(seq) for seq in range(1000)}})
    lmdb_index.write(script)
    before = lmdb_index.rows(1, 0, MAX, 9999)
    lmdb_index.write(Batch(acked={1: set(range(1000))}))

    assert len(before) == 1000
    assert lmdb_index.rows(1, 0, MAX, 9999) == []


@pytest.mark.parametrize(
    ("error", "free_bytes", "meant"),
    [
        (lmdb.DiskError("mdb_txn_commit: No space left on device"), 1 << 40, IndexFull),
        (lmdb.Error("mdb_txn_commit: No space left on device"), 1 << 40, IndexFull),
        (lmdb.Error("mdb_txn_commit: Input/output error"), 4096, IndexFull),  # a short write
        (lmdb.Error("mdb_txn_commit: Input/output error"), 1 << 40, OSError),
        (lmdb.PanicError("mdb_txn_begin: MDB_PANIC"), 1 << 40, OSError),
        (lmdb.Error("mdb_txn_commit: Disk quota exceeded"), 1 << 40, IndexFull),
        (lmdb.CorruptedError("mdb_get: MDB_CORRUPTED"), 4096, IndexDamaged),
        (lmdb.PageNotFoundError("mdb_get: MDB_PAGE_NOTFOUND"), 1 << 40, IndexDamaged),
    ],
)
def test_what_errors_of_lmdb_mean(error: lmdb.Error, free_bytes: int, meant: type) -> None:
    assert type(store_error(error, free_bytes)) is meant


@pytest.mark.parametrize(
    ("error", "number"),
    [
        (lmdb.MemoryError("/data/store.lmdb: Cannot allocate memory"), errno.ENOMEM),
        (lmdb.ReadersFullError("mdb_txn_begin: MDB_READERS_FULL"), errno.ENOMEM),
        (lmdb.Error("/data/store.lmdb: Too many open files"), errno.EMFILE),
        (lmdb.Error("/data/store.lmdb: Too many open files in system"), errno.ENFILE),
    ],
)
def test_a_shortage_that_lmdb_meets_is_no_damage(error: lmdb.Error, number: int) -> None:
    meant = store_error(error, 1 << 40)

    assert isinstance(meant, OSError)
    assert meant.errno == number
    assert is_shortage(meant)


@pytest.mark.parametrize(("number", "is_lost"), [(errno.EIO, True), (errno.ENOMEM, False)])
def test_an_index_that_has_lost_its_map_is_not_read(
    lmdb_index: LmdbIndex, monkeypatch: pytest.MonkeyPatch, number: int, *, is_lost: bool
) -> None:
    def fails(*_: object) -> None:
        raise OSError(number, "injected")

    monkeypatch.setattr("leveret.msg_store.index.lmdb_index.grow", fails)
    with pytest.raises(OSError, match="injected"):
        lmdb_index._grow()

    if is_lost:
        with pytest.raises(OSError, match="the map of the index is lost"):
            lmdb_index.rows(1, 0, MAX, 10)
    else:
        assert lmdb_index.rows(1, 0, MAX, 10) == []


LITTLE_MEMORY = """
import resource, sys
from pathlib import Path
from leveret.msg_store.index.lmdb_index import LmdbIndex
from leveret.msg_store.format.rows import Batch

index = LmdbIndex(Path(sys.argv[1]), bytes(range(16)), 1 << 22)
batches = [Batch(rows={1: {seq: (seq, seq, 5, 0, 1) for seq in range(first, first + 5_000)}})
    for first in range(0, 200_000, 5_000)]
mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (mapped + (7 << 20), resource.RLIM_INFINITY))
left = iter(batches)
try:
    for written, batch in enumerate(left):
        index.write(batch)
    print("it grew")
except OSError as error:
    print("error", error.errno)
print("rows", len(index.rows(1, 0, 1 << 60, 10)), written * 5_000 - index.rows(1, written * 5_000 - 1, 1 << 60, 9)[-1][0])
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
index.write(batch)
for batch in left:
    index.write(batch)
print("rows", len(index.rows(1, 199_990, 1 << 60, 100)))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_an_index_that_finds_no_addresses_to_grow_stays_as_it_is_and_grows_later(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-P", "-c", LITTLE_MEMORY, str(tmp_path / "store.lmdb")]

    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)

    assert run.stdout.splitlines() == [f"error {errno.ENOMEM}", "rows 10 1", "rows 10"]


READER = """
import signal, sys, lmdb
environment = lmdb.open(sys.argv[1], readonly=True, max_dbs=8)
transaction = environment.begin()
transaction.stat()
print("reading", flush=True)
signal.pause()
"""


def test_a_reader_that_was_killed_keeps_no_pages(lmdb_index: LmdbIndex, tmp_path: Path) -> None:
    def churn() -> int:
        for _ in range(20):
            lmdb_index.write(rows_batch(1, range(2000)))
            lmdb_index.write(Batch(acked={1: set(range(2000))}))
        return lmdb_index.size_bytes

    churn()
    command = [sys.executable, "-P", "-c", READER, str(tmp_path / "store.lmdb")]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"reading\n"
        held = churn()
        process.kill()
    once = churn()

    assert churn() <= max(once, held)


def test_a_reader_that_holds_pages_is_named_once_and_harms_nobody(
    lmdb_index: LmdbIndex, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def churn() -> None:
        for _ in range(LAG_MAX):
            lmdb_index.write(rows_batch(1, range(100)))
            lmdb_index.write(Batch(acked={1: set(range(100))}))

    command = [sys.executable, "-P", "-c", READER, str(tmp_path / "store.lmdb")]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"reading\n"
        churn()
        churn()
        process.kill()
    said = [record.getMessage() for record in caplog.records]
    churn()

    assert len(said) == 1
    assert f"process={process.pid}" in said[0]
    assert len(caplog.records) == 1
    lmdb_index.write(rows_batch(1, range(10)))
    assert len(lmdb_index.rows(1, 0, 100, 100)) == 10
