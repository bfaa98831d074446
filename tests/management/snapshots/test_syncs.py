"""Before a snapshot, its copy or a restored directory gets its name, all of it is on the disk.

Tests: management/snapshots/copying.py, management/snapshots/making.py
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from leveret.core.addresses import Address
from leveret.core.system.files import Files, OsCalls
from leveret.management.snapshots import copying
from leveret.management.snapshots.making import Wanted
from leveret.server.broker import Broker
from leveret.server.cli.snapshot_command import create
from leveret.server.config.config import Config


class Syncs(OsCalls):
    """Records the synced files, and the files that were not synced when their folder was renamed."""

    def __init__(self) -> None:
        self.open_files: dict[int, Path] = {}
        self.synced: set[Path] = set()
        self.renamed: list[str] = []
        self.missing: list[Path] = []

    def open(self, path: Path, flags: int) -> int:
        descriptor = super().open(path, flags)
        self.open_files[descriptor] = path
        return descriptor

    def fsync(self, descriptor: int) -> None:
        super().fsync(descriptor)
        self.synced.add(self.open_files[descriptor])

    def writev(self, descriptor: int, buffers: object) -> int:
        self.synced.discard(self.open_files[descriptor])
        return super().writev(descriptor, buffers)  # type: ignore[arg-type]

    def copy_range(self, source: int, offset: int, target: int, count: int) -> int:
        self.synced.discard(self.open_files[target])
        return super().copy_range(source, offset, target, count)

    def link(self, path: Path, new: Path) -> None:
        super().link(path, new)
        self.synced.discard(new.parent)
        self.synced.add(new)  # its contents were synced under the other name

    def rename(self, old: Path, new: Path) -> None:
        if old.is_dir():
            self.renamed.append(new.name)
            for folder, _, names in os.walk(old):
                paths = [Path(folder), *(Path(folder, name) for name in names)]
                self.missing += [path for path in paths if path not in self.synced]
        elif old in self.synced:
            self.synced.add(new)
        super().rename(old, new)
        self.synced.discard(new.parent)


@pytest.fixture
async def data(tmp_path: Path) -> Path:
    """A data directory with a message store, and no broker."""
    async with Broker(Config(listen=(Address("127.0.0.1", 0),), data_dir=tmp_path / "data")):
        pass
    return tmp_path / "data"


@pytest.mark.parametrize("is_copy", [False, True])
async def test_all_is_synced_before_it_counts(data: Path, is_copy: bool) -> None:
    calls = Syncs()
    copy_to = data.parent / "copies" if is_copy else None

    path, made = create(Files(calls), data, Wanted("one"), copy_to, 1.0)

    assert calls.renamed == ["one"]
    assert calls.missing == []
    assert path.parent in calls.synced

    calls = Syncs()
    copying.restore(Files(calls), path, made, data.parent / "new")

    assert calls.renamed == ["new"]
    assert calls.missing == []
    assert data.parent in calls.synced
