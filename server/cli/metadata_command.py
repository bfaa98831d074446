"""``leveret metadata show|to-etcd|from-etcd``: metadata in etcd, and moves between a data directory and etcd.

Both moves hold the lock of the data directory, so no broker runs there, and each reads its result back.

Exit codes: 0 done; 65 refused, or etcd refuses the login; 69 etcd is not available; 70 the disk failed; 78 the
endpoints, files or the data directory cannot be used, or the extra ``cluster`` is not installed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from leveret.core.errors import ConfigError, StoreError
from leveret.core.printable import printable
from leveret.etcd.errors import ClusterError, GatewayError, LoginRefusedError
from leveret.metadata.etcd.codec import TABLES, Keys
from leveret.metadata.etcd.transfer import (
    Metadata,
    move_into_directory,
    move_into_etcd,
    read_etcd,
)
from leveret.metadata.reader import copy_metadata, read_contents, read_counters
from leveret.metadata.tables import QueueRow, Row
from leveret.server.cli.etcd_arguments import MISSING, settings
from leveret.server.output import formats
from leveret.server.output.terminal import show
from leveret.server.process import METADATA, DataDirectory, DataDirectoryError

if TYPE_CHECKING:
    from leveret.etcd.client import EtcdClient

OLD: Final = "metadata.old"
CODES: Final[dict[type[Exception], int]] = {
    LoginRefusedError: os.EX_DATAERR,
    GatewayError: os.EX_CONFIG,
    ClusterError: os.EX_UNAVAILABLE,
    DataDirectoryError: os.EX_CONFIG,
    StoreError: os.EX_DATAERR,
}


def run(options: argparse.Namespace) -> int:
    """Carry out the parsed command; return the exit code."""
    keys = Keys(options.prefix, getattr(options, "node", None) or "-")
    try:
        return asyncio.run(_with_client(options, keys))
    except (ClusterError, StoreError) as error:
        code = next(code for kind, code in CODES.items() if isinstance(error, kind))
        return _fail(code, str(error))
    except OSError as error:
        place = f": {error.filename}" if error.filename else ""
        return _fail(os.EX_SOFTWARE, f"{(error.strerror or str(error)).lower()}{place}")


async def _with_client(options: argparse.Namespace, keys: Keys) -> int:
    try:
        from leveret.etcd.client import EtcdClient  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise ConfigError(MISSING) from error
    async with EtcdClient(settings(options)) as client:
        return await VERBS[options.verb](options, keys, client)


async def _show(options: argparse.Namespace, keys: Keys, client: EtcdClient) -> int:
    held = await read_etcd(client, keys)
    counts = dict.fromkeys(TABLES.values(), 0)
    for entry in held.replica.live.values():
        counts[TABLES[type(entry.row)]] += 1
    nodes = {key.removeprefix(keys.nodes): state for key, state in held.nodes.items()}
    found = {
        "revision": held.replica.applied,
        "rows": counts,
        "garbage": len(held.replica.dead),
        "nodes": [
            {"name": name, "applied": state.applied, "has_left": state.has_left}
            for name, state in nodes.items()
        ],
    }
    if options.json:
        show(formats.json_line(found), end="")
        return 0
    lines = [f"revision {held.replica.applied}, {len(held.replica.dead)} keys of deleted rows"]
    lines += [f"    {count} {table}" for table, count in counts.items() if count]
    lines += [
        f"node {printable(name)}: applied {state.applied}{', has left' if state.has_left else ''}"
        for name, state in nodes.items()
    ]
    show("".join(f"{line}\n" for line in lines), end="")
    return 0


async def _to_etcd(options: argparse.Namespace, keys: Keys, client: EtcdClient) -> int:
    if not (options.data / METADATA).is_dir():
        raise DataDirectoryError(f"{options.data} has no metadata: no broker has run there")
    with DataDirectory(options.data) as directory:
        folder = directory.path / METADATA
        contents = read_contents(folder)
        for queue in contents.queues:
            queue.node = options.node  # where their messages are
        moved = Metadata(contents, *read_counters(folder))
        left_out = await move_into_etcd(client, keys, moved)
    for row in left_out:
        show(f"left out, what it hangs on is missing: {_named(row)}", file=sys.stderr)
    count = len(moved.contents.rows()) - len(left_out)
    show(f"{count} rows of {options.data} are in etcd under {keys.all}, and were read again")
    return 0


async def _from_etcd(options: argparse.Namespace, keys: Keys, client: EtcdClient) -> int:
    held = await read_etcd(client, keys)
    running = [key for key, state in held.nodes.items() if not state.has_left]
    if running:
        raise StoreError(f"stop the nodes that use {keys.all} first: {', '.join(running)}")
    with DataDirectory(options.data) as directory:
        folder = directory.path / METADATA
        if folder.is_dir() and read_contents(folder):
            if not options.replace:
                raise StoreError(f"{folder} has metadata already: give --replace")
            old = directory.path / OLD
            if old.exists():
                raise StoreError(
                    f"{old} exists: move it away, it has the metadata of an earlier --replace"
                )
            copy_metadata(folder, old)
        empty = 0
        for entry in held.replica.live.values():
            if isinstance(entry.row, QueueRow):
                empty += entry.row.node not in ("", options.node)
                entry.row.node = ""
        count = move_into_directory(folder, held)
        directory.leave_cluster()
        directory.note_transaction(0)  # of other metadata
    if empty:
        show(f"{empty} queues of other nodes are empty here: messages stay there", file=sys.stderr)
    show(f"{count} rows under {keys.all} are in {options.data}, and were read again")
    return 0


VERBS: Final[
    dict[str, Callable[[argparse.Namespace, Keys, EtcdClient], Coroutine[Any, Any, int]]]
] = {"show": _show, "to-etcd": _to_etcd, "from-etcd": _from_etcd}


def _named(row: Row) -> str:
    return printable(f"{TABLES[type(row)]} {row.key!r}")


def _fail(code: int, text: str) -> int:
    show(f"leveret: {text}", file=sys.stderr)
    return code
