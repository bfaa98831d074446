"""Read every key and value of indexes with LMDB, in a process of its own: a damaged page may end it.

``walk`` starts the process, which prints LMDB's errors.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import lmdb

TABLES = (b"qidx", b"loc", b"files", b"queues", b"meta")


def walk(folders: Iterable[Path]) -> subprocess.CompletedProcess[str]:
    """Read indexes; the return code is that of the process, its output names what LMDB refused."""
    command = [sys.executable, "-P", __file__, *map(str, folders)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def read(folder: str) -> None:
    size_bytes = Path(folder, "data.mdb").stat().st_size
    with lmdb.open(
        folder, map_size=size_bytes, max_dbs=8, readonly=True, lock=False, readahead=False
    ) as environment:
        for name in TABLES:
            table = environment.open_db(name, create=False)
            with environment.begin(db=table, buffers=False) as transaction:
                keys = [key for key, _ in transaction.cursor()]
                for key in keys[:: max(1, len(keys) // 50)]:
                    transaction.get(key)


if __name__ == "__main__":
    for each in sys.argv[1:]:
        try:
            read(each)
        except lmdb.Error as error:
            print(f"{each}: {error}")  # noqa: T201 - for the process that asked
