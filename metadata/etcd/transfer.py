"""Metadata of a data directory moved into etcd, and back: each checked by reading it again.

The format's key is written last. So a move into etcd that was cut short is known by its rows without it: no node joins
there, and a repeated move begins by deleting them. The move back replaces the rows in LMDB in one transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING, NamedTuple

from leveret.core.errors import StoreError
from leveret.etcd.key_values import Delete, Expect, Put, Txn
from leveret.etcd.key_values import Row as Stored
from leveret.metadata.environment import BOOT_KEY, QUEUE_KEY, Environment, packed
from leveret.metadata.etcd.codec import (
    FORMAT,
    PARENTS,
    Keys,
    NodeState,
    check_format,
    packed_entry,
    packed_number,
    unpacked_node,
    unpacked_number,
)
from leveret.metadata.etcd.replica import Replica
from leveret.metadata.etcd.writes import WRITES_MAX, in_parts
from leveret.metadata.reader import read_contents
from leveret.metadata.store import MAP_BYTES, row_at, row_changes
from leveret.metadata.tables import Contents, ExchangeRow, MemberRow, QueueRow, Row

if TYPE_CHECKING:
    from leveret.etcd.client import EtcdClient


class Metadata(NamedTuple):
    """What is moved.

    Attributes:
        contents: the rows.
        boot_epoch: the highest that was used.
        queue_no: the highest that may have been used.
    """

    contents: Contents
    boot_epoch: int
    queue_no: int


class Held(NamedTuple):
    """What etcd has under a prefix.

    Attributes:
        replica: the rows.
        nodes: the nodes that have keys, by key.
        boot_epoch: the highest that was used.
        queue_no: the highest that may have been used.
    """

    replica: Replica
    nodes: dict[str, NodeState]
    boot_epoch: int
    queue_no: int


async def read_etcd(client: EtcdClient, keys: Keys) -> Held:
    """Return what etcd has, as of one revision.

    Raises:
        StoreError: there is no metadata, it is damaged or of a later version, or a move was cut short.
        ClusterError: etcd has not answered.
    """
    scan = await client.scan_at(keys.all)
    found = {row.key: row for row in scan.rows}
    if not check_format(keys, found):
        raise StoreError(f"there is no metadata under {keys.all}")
    replica = Replica(keys)
    replica.load(scan.rows, scan.revision)
    nodes = {row.key: unpacked_node(row) for row in scan.rows if keys.is_node(row.key)}
    return Held(replica, nodes, _number(found, keys.boot_epoch), _number(found, keys.queue_no))


async def move_into_etcd(client: EtcdClient, keys: Keys, moved: Metadata) -> list[Row]:
    """Write all rows into etcd, and read them again; return the rows left out, whose parents are missing.

    Raises:
        StoreError: there is metadata already, a node is there, a row is too large, or etcd has other rows afterwards.
        ClusterError: etcd has not answered; the move is to be repeated.
    """
    await _make_empty(client, keys)
    puts, rows, left_out = _puts(keys, moved.contents.rows())
    for part in in_parts(puts, lambda put: put):
        txn = Txn([Expect(put.key, 0) for put in part], part, keys.nodes)
        answer = await client.transact(txn)
        if not answer.is_done:
            key = next(key for key, revision in answer.found.items() if revision)
            raise StoreError(
                f"somebody else writes to {keys.all}: {key} is there; end that, and repeat the move"
            )
    scan = await client.scan_at(keys.all)
    replica = Replica(keys)
    replica.load(scan.rows, scan.revision)
    if {key: entry.row for key, entry in replica.live.items()} != rows:
        raise StoreError(f"etcd has other rows under {keys.all} than were written; repeat the move")
    last = [
        Put(keys.boot_epoch, packed_number(moved.boot_epoch)),
        Put(keys.queue_no, packed_number(moved.queue_no)),
        Put(keys.format, packed_number(FORMAT)),
    ]
    answer = await client.transact(Txn([Expect(put.key, 0) for put in last], last, keys.nodes))
    if not answer.is_done or answer.rows:
        raise StoreError(
            f"a node has begun to use {keys.all} meanwhile; stop it, and repeat the move"
        )
    return left_out


def is_durable(row: Row) -> bool:
    """Return whether a row outlives the nodes."""
    if isinstance(row, ExchangeRow | QueueRow):
        return row.durable
    return not isinstance(row, MemberRow)


def durable_rows(replica: Replica) -> list[Row]:
    """Return the rows that outlive the nodes, and hang on such rows only; parents before their children."""
    found, live = Contents(), dict(replica.live)  # copied at once: this may run on another thread
    for entry in live.values():
        parents = [live[parent].row for parent, _ in entry.parents]
        if is_durable(entry.row) and all(map(is_durable, parents)):
            found.add(entry.row)
    return found.rows()


def write_directory(directory: Path, rows: Sequence[Row], boot_epoch: int, queue_no: int) -> None:
    """Put rows in the place of all that a metadata directory has, in one transaction; it is made if it is missing.

    Raises:
        StoreError: it cannot be written, or is in use.
    """
    environment = Environment(directory, MAP_BYTES)
    try:
        before = Contents()
        for key, value in environment.rows():
            before.add(row_at(key, value))
        epoch = max(boot_epoch, environment.own(BOOT_KEY))
        counters = [(BOOT_KEY, packed(epoch)), (QUEUE_KEY, packed(queue_no))]
        environment.commit([*row_changes(rows, before.rows()), *counters])
    finally:
        environment.close()


def move_into_directory(directory: Path, held: Held) -> int:
    """Replace the rows of a directory by the durable rows of etcd, and read them again; return how many.

    Raises:
        StoreError: it cannot be written, or has other rows afterwards.
    """
    rows = durable_rows(held.replica)
    write_directory(directory, rows, held.boot_epoch, held.queue_no)
    if sorted(map(repr, read_contents(directory).rows())) != sorted(map(repr, rows)):
        raise StoreError(f"{directory} has other rows than were written; the disk is damaged")
    return len(rows)


async def _make_empty(client: EtcdClient, keys: Keys) -> None:
    """Delete the rows that an interrupted move has left; StoreError: the prefix has other contents."""
    rows = await client.scan(keys.all)
    for row in rows:
        if keys.is_node(row.key):
            raise StoreError(f"{row.key} is there: stop the nodes that use {keys.all} first")
        if row.key == keys.format:
            raise StoreError(
                f"there is metadata under {keys.all} already; choose another prefix, "
                f"or delete it with: etcdctl del --prefix {keys.all}"
            )
    for start in range(0, len(rows), WRITES_MAX):
        part = rows[start : start + WRITES_MAX]
        expects = [Expect(row.key, row.revision) for row in part]
        await client.transact(Txn(expects, [Delete(row.key) for row in part], keys.nodes))


def _puts(keys: Keys, rows: Sequence[Row]) -> tuple[list[Put], dict[str, Row], list[Row]]:
    """Return the puts of rows, the rows by key, and the rows whose parents are missing."""
    random = SystemRandom()
    incarnations: dict[str, int] = {}
    puts, found, left_out = [], {}, []
    for row in rows:
        parents = keys.parents(row)
        if any(parent not in found for parent in parents):
            left_out.append(row)
            continue
        key = keys.row(row)
        incarnations[key] = random.getrandbits(63) if isinstance(row, PARENTS) else 0
        hangs_on = tuple((parent, incarnations[parent]) for parent in parents)
        puts.append(Put(key, packed_entry(row, incarnations[key], hangs_on)))
        found[key] = row
    return puts, found, left_out


def _number(found: dict[str, Stored], key: str) -> int:
    row = found.get(key)
    return 0 if row is None else unpacked_number(key, row.value)
