"""Tools read and copy offline metadata without a trace.

Tests: metadata/environment.py, metadata/tables.py
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from leveret.core.errors import StoreError
from leveret.metadata.environment import FORMAT_KEY, Environment, packed
from leveret.metadata.reader import copy_metadata, read_contents
from leveret.metadata.store import MetadataStore
from leveret.metadata.tables import QueueRow, VhostRow

ROWS = [VhostRow("v"), QueueRow("v", "q", queue_no=3), QueueRow("v", "ä\udcff", queue_no=4)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    store = MetadataStore(tmp_path / "metadata", lambda told: told())
    store.next_boot_epoch()
    store.write(ROWS, [], lambda error: None)
    store.close()
    return tmp_path / "metadata"


def test_all_rows_are_read_and_nothing_is_changed(folder: Path) -> None:
    (folder / "lock.mdb").unlink()
    before = (folder / "data.mdb").stat()

    contents = read_contents(folder)

    assert set(map(str, contents.rows())) == set(map(str, ROWS))
    assert os.listdir(folder) == ["data.mdb"]
    assert (folder / "data.mdb").stat().st_mtime_ns == before.st_mtime_ns


def test_a_copy_is_as_good(folder: Path, tmp_path: Path) -> None:
    copy_metadata(folder, tmp_path / "copy")

    store = MetadataStore(tmp_path / "copy", lambda told: told())
    assert set(map(str, store.load().rows())) == set(map(str, ROWS))
    assert store.next_boot_epoch() == 2
    store.close()


@pytest.mark.parametrize("what", ["none", "cut off", "zeroed", "newer", "foreign"])
def test_what_cannot_be_read_is_refused(folder: Path, what: str) -> None:
    data = folder / "data.mdb"
    match what:
        case "none":
            data.unlink()
        case "cut off":
            os.truncate(data, 8192)
        case "zeroed":
            data.write_bytes(bytes(1 << 16))
        case _:
            environment = Environment(folder, 1 << 20)
            change = packed(99) if what == "newer" else None
            environment.commit([(FORMAT_KEY, change)])
            environment.close()

    with pytest.raises(StoreError):
        read_contents(folder)


def test_metadata_that_is_no_directory_is_an_error_of_the_system(tmp_path: Path) -> None:
    (tmp_path / "metadata").touch()

    with pytest.raises(NotADirectoryError):
        read_contents(tmp_path / "metadata")
