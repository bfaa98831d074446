"""Snapshots of stores that work, under full load: real loop, threads, disk and LMDB."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from leveret.msg_store.offline.audit import audited
from leveret.msg_store.reading.verify import Segment
from rigs.store.offline.offline_rig import quiet
from rigs.store.offline.snapshot_load import LoadedStore, Rows, body_of, rows_of
from rigs.waiting import eventually

LONG_S = 60.0  # for what depends on how fast the disk takes the load


@contextlib.asynccontextmanager
async def under_load(path: Path, seed: int, boot_epoch: int = 1) -> AsyncIterator[LoadedStore]:
    loaded = LoadedStore(path, boot_epoch, seed)
    work = asyncio.create_task(loaded.work())
    try:
        yield loaded
        assert not loaded.errors
        assert not work.done()
    finally:
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work
        await loaded.stop()


def compare(path: Path, oracle: dict[int, Rows]) -> int:
    """Compare a snapshot with the durable state at its LSN; return how many messages it has."""
    with audited(path, quiet, may_rebuild=False) as audit:
        assert audit.is_sound, audit
        store = audit.store
        found = rows_of(store)
        assert found == oracle[store.recovered.next_lsn]
        assert sum(terms.messages for terms in audit.queues.values()) == len(found)
        assert sum(terms.messages for terms in store.queues.values()) == len(found)
        locations = dict(store.locations())
        assert locations.keys() == set(found.values())
        for msg_no, (file_no, offset, length, _, _) in locations.items():
            with Segment(store.folder, file_no) as segment:
                assert segment.read(offset, length).body == body_of(msg_no)
    assert sorted(os.listdir(path / "journal")) == []
    return len(found)


def digests(path: Path) -> dict[str, str]:
    return {
        str(file): hashlib.blake2b(file.read_bytes()).hexdigest()
        for file in path.rglob("*")
        if file.is_file()
    }


async def snapshots_under_load(path: Path, seed: int, count: int) -> None:
    async with under_load(path / "store", seed) as loaded:
        await eventually(lambda: loaded.store.stats().merges, within_s=LONG_S)
        for number in range(count):
            target = path / "snapshots" / str(number)
            target.parent.mkdir(exist_ok=True)
            await loaded.snapshot(target)
            oracle = dict(loaded.oracle.at)
            before = digests(target)
            await asyncio.to_thread(compare, target, oracle)
            assert digests(target) == before, "a file of a snapshot has changed"
            if number >= 3:
                shutil.rmtree(target.with_name(str(number - 3)))
        await eventually(lambda: loaded.store.stats().removed, within_s=LONG_S)


@pytest.mark.sources
async def test_snapshots_under_load_are_what_was_durable(tmp_path: Path) -> None:
    await snapshots_under_load(tmp_path, 1, 12)


@pytest.mark.slow
@pytest.mark.sources
@pytest.mark.parametrize("seed", range(2, 6))
async def test_many_snapshots_under_load_are_what_was_durable(tmp_path: Path, seed: int) -> None:
    await snapshots_under_load(tmp_path, seed, 100)
