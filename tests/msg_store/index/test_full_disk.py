"""LMDB writes its lock file through a memory map: on a full disk that would end the process (SIGBUS).

Tests: msg_store/format/errors.py
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rigs.nodes import clean_environment
from rigs.store.small_disk import fill, small_disk

PROGRAM = """
import sys
from pathlib import Path
from leveret.core.errors import StoreError
from leveret.metadata.environment import Environment
from leveret.msg_store.index.lmdb_errors import open_lmdb

path = Path(sys.argv[2])
try:
    if sys.argv[1] == "metadata":
        Environment(path, 1 << 20)
    else:
        open_lmdb(path, subdir=sys.argv[1] == "index", map_size=1 << 20)
except (OSError, StoreError) as error:
    print(error)
"""


@pytest.mark.parametrize("kind", ["metadata", "index", "transient"])
def test_a_process_that_opens_lmdb_on_a_full_disk_does_not_die(tmp_path: Path, kind: str) -> None:
    with small_disk(tmp_path / "disk", 256 * 1024) as disk:
        folder = disk / "folder"
        folder.mkdir()
        fill(disk)
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, kind, str(folder / "x")],
            env=clean_environment(),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )

    assert done.returncode == 0, done
    assert "No space left on device" in done.stdout
