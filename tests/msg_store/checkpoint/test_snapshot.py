"""A snapshot of a running store, step by step: its contents, its pins, and its end.

Tests: msg_store/format/pins.py
"""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from leveret.core.errors import StoreError
from leveret.msg_store.checkpoint.snapshot import OPS_PER_FLUSH, ArchiveAtCut, Snapshot
from leveret.msg_store.format.pins import Pins
from leveret.msg_store.format.rows import IndexFull
from rigs.disk.faulty_files import FaultyCalls
from rigs.queues.stored_rig import STORE, StoreBench
from rigs.queues.variable_rig import message
from rigs.store.memory_index import MemoryIndex
from rigs.store.offline.snapshot_load import Oracle, Rows

TARGET = Path("/data/snapshots/one.draft/store")
NO_ROOM = OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture
def bench(rng: random.Random) -> Iterator[StoreBench]:
    made = StoreBench(rng, rdq_file_bytes=600)
    yield made
    made.close()


class Taking:
    """One snapshot."""

    def __init__(self, bench: StoreBench, target: Path = TARGET) -> None:
        self.outcomes: list[Exception | None] = []
        self.target = target
        self.index = bench.location.index
        bench.store.snapshot(target, self.outcomes.append)

    @property
    def rows(self) -> Rows:
        by_queue = self.index.copies[self.target / "store.lmdb"][0]
        return {(no, seq): row[1] for no, rows in by_queue.items() for seq, row in rows.items()}

    @property
    def lsn(self) -> int:
        return self.index.copies[self.target / "store.lmdb"][4].lsn

    @property
    def files(self) -> set[int]:
        """The segments that the index needs."""
        files = self.index.copies[self.target / "store.lmdb"][2]
        return {no for no, row in files.items() if row.valid_bytes}


def linked(bench: StoreBench, target: Path = TARGET) -> dict[str, bytes]:
    paths = [path for path in bench.disk.paths() if path.parent == target / "rdq"]
    return {path.name: bench.disk.image(path) for path in paths}


def publish(
    bench: StoreBench, queue_nos: tuple[int, ...], first_seq: int, length: int
) -> list[int]:
    first = bench.store.write([message(40, n) for n in range(length)], queue_nos)
    rows = [(first + n, 0) for n in range(length)]
    for queue_no in queue_nos:
        bench.store.core.publish(queue_no, first_seq, rows)
    return [row[0] for row in rows]


def test_what_was_issued_before_is_in_it_and_nothing_that_came_later(bench: StoreBench) -> None:
    msg_nos = publish(bench, (1, 2), 0, 5)
    bench.store.core.ack(2, [(0, msg_nos[0])])

    taking = Taking(bench)
    bench.run()
    later = publish(bench, (1,), 5, 5)
    bench.run()

    assert taking.outcomes == [None]
    expected = {(no, seq): msg_no for no in (1, 2) for seq, msg_no in enumerate(msg_nos)}
    del expected[2, 0]
    assert taking.rows == expected
    assert not set(later) & set(taking.rows.values())
    assert {f"{no:08x}.rdq" for no in taking.files} == set(linked(bench))


def test_a_generation_that_is_about_to_end_is_not_its_own(bench: StoreBench) -> None:
    msg_nos = publish(bench, (1,), 0, 5)
    bench.store.core.is_rotating = True

    taking = Taking(bench)
    bench.run()

    assert taking.outcomes == [None]
    assert set(taking.rows.values()) == set(msg_nos)


def test_it_comes_although_work_never_ends(bench: StoreBench) -> None:
    publish(bench, (1,), 0, 5)
    taking, seqs = Taking(bench), count()
    for number in range(100):
        publish(bench, (1,), 5 + number, 1)
        bench.loop.turn()
        for _ in range(10):
            bench.loop.step()
            if not bench.store.core.pending_ops:
                publish(bench, (2,), next(seqs), 1)
            bench.loop.turn()

    assert taking.outcomes == [None]


def test_so_many_flushes_are_waited_for_and_no_more() -> None:
    core: Any = SimpleNamespace(pending_ops=5 * OPS_PER_FLUSH, durable=SimpleNamespace(lsn=0))
    nothing_archived = ArchiveAtCut(frozenset(), None)
    snapshot = Snapshot(TARGET, Pins(), print, lambda: nothing_archived)
    for _ in range(7):
        assert not snapshot.is_ready(core)
        assert not snapshot.is_ready(core)  # no flush has ended since
        core.durable.lsn += 1

    assert snapshot.is_ready(core)


def test_nobody_writes_a_linked_segment_any_more(bench: StoreBench) -> None:
    publish(bench, (1,), 0, 3)
    Taking(bench)
    bench.run()
    before = linked(bench)

    publish(bench, (1,), 3, 3)
    bench.idle_disk()

    assert before
    assert linked(bench) == before
    assert {path.name for path in bench.disk.paths() if path.parent == STORE / "rdq"} > set(before)


def test_a_flush_that_the_full_disk_refused_does_not_write_it_either(bench: StoreBench) -> None:
    publish(bench, (1,), 0, 3)
    Taking(bench)
    bench.run()
    before = linked(bench)

    bench.disk.fail("writev", NO_ROOM, "*.rdq", times=2)
    publish(bench, (1,), 3, 3)
    bench.idle_disk()

    assert not bench.disk.has_faults

    assert linked(bench) == before


def test_segments_are_kept_until_it_is_made_and_not_longer(bench: StoreBench) -> None:
    publish(bench, (1,), 0, 20)
    taking = Taking(bench)
    pinned: list[set[int]] = []
    copy_to = taking.index.copy_to

    def noted(folder: Path) -> None:
        pinned.append(set(bench.store.pins))
        copy_to(folder)

    taking.index.copy_to = noted  # type: ignore[method-assign]
    bench.run()

    assert pinned[0] >= taking.files
    assert not len(bench.store.pins)


@pytest.mark.sources
@pytest.mark.parametrize("seed", range(30))
def test_whatever_happens_meanwhile_it_is_what_was_durable_at_its_lsn(seed: int) -> None:
    rng = random.Random(seed)
    bench = StoreBench(rng, rdq_file_bytes=800, checkpoint_rows=rng.choice([5, 40, 1 << 30]))
    oracle = Oracle(bench.store.core)
    held: list[tuple[int, int, int]] = []
    next_seq = {1: 0, 2: 0}
    takings: list[Taking] = []
    for turn in range(60):
        queue_nos = rng.choice([(1,), (2,), (1, 2)])
        seq = max(next_seq[no] for no in queue_nos)
        msg_nos = publish(bench, queue_nos, seq, rng.randint(1, 4))
        for no in queue_nos:
            held += [(no, seq + n, msg_no) for n, msg_no in enumerate(msg_nos)]
            next_seq[no] = seq + len(msg_nos)
        rng.shuffle(held)
        for _ in range(rng.randrange(len(held))):
            queue_no, row_seq, msg_no = held.pop()
            bench.store.core.ack(queue_no, [(row_seq, msg_no)])
        if rng.random() < 0.3 and all(taking.outcomes for taking in takings):
            takings.append(Taking(bench, TARGET / str(turn)))
        bench.loop.turn()
        for _ in range(rng.randrange(30)):
            bench.loop.step()
        bench.loop.turn()
    bench.run()

    assert takings
    for taking in takings:
        assert taking.outcomes == [None]
        assert taking.rows == oracle.at[taking.lsn]
        assert {f"{no:08x}.rdq" for no in taking.files} == set(linked(bench, taking.target))
    bench.close()


def test_one_at_a_time(bench: StoreBench) -> None:
    first = Taking(bench)

    with pytest.raises(StoreError, match="another snapshot"):
        Taking(bench)
    bench.run()
    again = Taking(bench, TARGET / "again")
    bench.run()

    assert first.outcomes == again.outcomes == [None]


@pytest.mark.parametrize("steps", range(0, 12, 2))
def test_the_end_of_the_store_ends_it(bench: StoreBench, steps: int) -> None:
    publish(bench, (1,), 0, 5)
    taking = Taking(bench)
    bench.loop.turn()
    for _ in range(steps):
        bench.loop.step()
        bench.loop.turn()
    if steps % 4:
        bench.store.kill()
    else:
        bench.stop()
    bench.run()

    assert len(taking.outcomes) == 1
    with pytest.raises(StoreError):
        Taking(bench)


@pytest.mark.parametrize("is_foreseen", [True, False])
def test_a_full_disk_ends_it_and_the_store_goes_on(
    bench: StoreBench, is_foreseen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    msg_nos = publish(bench, (1,), 0, 5)
    bench.idle_disk()
    if is_foreseen:
        monkeypatch.setattr(MemoryIndex, "size_bytes", 1 << 60)
    else:
        bench.disk.fail("link", NO_ROOM)
    taking = Taking(bench)
    bench.run()
    publish(bench, (1,), 5, 5)
    bench.idle_disk()

    (error,) = taking.outcomes
    assert isinstance(error, OSError)
    assert error.errno == errno.ENOSPC
    assert not bench.errors
    assert not len(bench.store.pins)
    assert not linked(bench)
    assert [row[1] for row in bench.rows(1)][:5] == msg_nos
    assert len(bench.rows(1)) == 10


@pytest.mark.parametrize("number", [errno.EIO, errno.EXDEV, errno.EACCES])
def test_an_error_of_the_snapshot_ends_it_alone_and_the_store_goes_on(
    bench: StoreBench, number: int
) -> None:
    msg_nos = publish(bench, (1,), 0, 5)
    bench.idle_disk()
    bench.disk.fail("link", OSError(number, "refused"), "*.rdq")
    taking = Taking(bench)
    bench.run()
    publish(bench, (1,), 5, 5)
    bench.idle_disk()

    (error,) = taking.outcomes
    assert isinstance(error, OSError)
    assert error.errno == number
    assert not bench.errors
    assert bench.store.core.error is None
    assert not len(bench.store.pins)
    assert [row[1] for row in bench.rows(1)][:5] == msg_nos
    assert len(bench.rows(1)) == 10
    again = Taking(bench, TARGET / "again")
    bench.run()
    assert again.outcomes == [None]


def test_a_full_disk_that_keeps_the_index_back_ends_it(bench: StoreBench) -> None:
    publish(bench, (1,), 0, 5)
    bench.location.index.fail(IndexFull("no room"), times=2)
    taking = Taking(bench)
    bench.run()

    (error,) = taking.outcomes
    assert isinstance(error, OSError)
    assert error.errno == errno.ENOSPC


@pytest.mark.sources
@pytest.mark.parametrize("seed", range(10))
def test_a_crash_meanwhile_takes_nothing(seed: int) -> None:
    rng = random.Random(seed)
    bench = StoreBench(rng, rdq_file_bytes=600)
    oracle = Oracle(bench.store.core)
    publish(bench, (1,), 0, 5)
    bench.idle_disk()
    publish(bench, (1,), 5, 5)
    Taking(bench)
    bench.loop.turn()
    for _ in range(rng.randrange(25)):
        bench.loop.step()
        bench.loop.turn()
    durable = dict(oracle.durable)

    bench.crash(FaultyCalls.power_cut)

    found = {(1, row[0]): row[1] for row in bench.rows(1)}
    assert durable.items() <= found.items()
    assert not bench.opened.recovered.report.is_damage
    bench.close()
