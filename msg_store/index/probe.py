"""Whether an index can be read at all, tried out by a process of its own.

LMDB has no checksums, and where a page is not what it should be it may end the process instead of
reporting an error. So before a tool reads an index as a whole, ``probe`` has another process do it:
``python -P -m leveret.msg_store.index.probe FOLDER`` goes over every entry and prints what is wrong.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import lmdb

from leveret.core.errors import StoreError
from leveret.msg_store.index.lmdb_index import DATA

ENDS: Final = frozenset({signal.SIGABRT, signal.SIGBUS, signal.SIGSEGV})  # of who reads garbage
TABLES: Final = (b"qidx", b"loc", b"files", b"queues", b"meta")


def probe(path: Path) -> str:
    """Return what is wrong with an index; nothing if it can be read, or is not there.

    Raises:
        OSError: the file cannot be opened.
        StoreError: it could not be tried out, so that nothing is known.
    """
    try:
        (path / DATA).open("rb").close()
    except FileNotFoundError:
        return ""
    command = [sys.executable, "-P", "-m", "leveret.msg_store.index.probe", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    said = "".join(done.stderr.strip().splitlines()[-1:])
    if -done.returncode in ENDS:
        return f"reading it ends a process with signal {-done.returncode}: {said}"
    if done.returncode:
        raise StoreError(f"{path} could not be tried out, exit code {done.returncode}: {said}")
    return done.stdout.strip()


def walk(path: Path) -> str:
    """Go over all entries; return what was wrong."""
    size_bytes = (path / DATA).stat().st_size
    try:
        environment = lmdb.open(
            str(path), map_size=size_bytes, max_dbs=8, readonly=True, lock=False, readahead=False
        )
        with environment:
            used = (environment.info()["last_pgno"] + 1) * environment.stat()["psize"]
            if not environment.info()["last_txnid"]:
                return ""  # it was never written
            if size_bytes < used:
                return f"it has {size_bytes} bytes, {used} expected"
            for name in TABLES:
                _walk_table(environment, name)
    except lmdb.Error as error:
        return str(error)
    return ""


def _walk_table(environment: lmdb.Environment, name: bytes) -> None:
    table = environment.open_db(name, create=False)
    with environment.begin(db=table) as transaction, transaction.cursor() as cursor:
        for _ in cursor.iternext(values=False):
            pass


if __name__ == "__main__":
    print(walk(Path(sys.argv[1])))  # noqa: T201 - for the process that asked
