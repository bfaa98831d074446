"""Rows and nodes as keys and values of etcd.

::

    PREFIX/metadata/format                                       1; written last when an empty prefix is filled
    PREFIX/metadata/counters/boot_epoch                          the last number that a start of a node has taken
    PREFIX/metadata/counters/queue_no                            the end of the last block of numbers that was taken
    PREFIX/metadata/nodes/NODE                                   a node (``NodeState``); on its lease
    PREFIX/metadata/rows/TABLE/NAME/...                          incarnation, incarnations of its parents, fields
    PREFIX/metadata/rows/bindings/VHOST/KIND/DESTINATION/DIGEST  the same; DIGEST is blake2b-160 of all its names
    PREFIX/metadata/rows/deleted_queues/NODE/NUMBER              the same; of one node, for its message store
    PREFIX/metadata/rows/members/UUID                            the same; a node that has joined, also while it is down

Names are percent-encoded in UTF-8, so that ``/`` separates them. Values are ``crc32:u32 msgpack``, as in LMDB
(``leveret.metadata.environment``).

A row has *parents*: a queue its vhost, a binding its exchange and its queue. A row that others may have as a parent
gets an *incarnation* when it is created, a number that is never used again; a row has the incarnations of its parents
at the time it was written. It is *live* as long as its parents are live and have these incarnations. So a deletion of
one key deletes all that hangs on it, in the same revision and for every node alike, also what another node adds at that
moment; the keys that are left are garbage, never read as rows again.

Turned down: deleting the keys of all bindings with their queue. A transaction has at most 128 operations, and a
binding that another node adds meanwhile would be left, to be found again by the next queue of that name.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final, NamedTuple
from urllib.parse import quote_from_bytes, unquote

import msgpack

from leveret.core.errors import ConfigError, StoreError
from leveret.etcd.gateway import KEY_BYTES_MAX, VALUE_BYTES_MAX
from leveret.etcd.key_values import Row as Stored
from leveret.metadata.definitions import is_default
from leveret.metadata.environment import packed, unpacked
from leveret.metadata.tables import (
    ROWS,
    BindingKey,
    BindingRow,
    DeletedQueueRow,
    ExchangeRow,
    GlobalParameterRow,
    MemberRow,
    ParameterRow,
    PermissionRow,
    PolicyRow,
    QueueRow,
    Row,
    TopicPermissionRow,
    UserRow,
    VhostRow,
)

FORMAT: Final = 1
PREFIX: Final = "/leveret"
PREFIX_BYTES_MAX: Final = 256

TABLES: Final[dict[type[Row], str]] = {
    VhostRow: "vhosts",
    UserRow: "users",
    PermissionRow: "permissions",
    TopicPermissionRow: "topic_permissions",
    ExchangeRow: "exchanges",
    QueueRow: "queues",
    BindingRow: "bindings",
    PolicyRow: "policies",
    ParameterRow: "parameters",
    GlobalParameterRow: "global_parameters",
    DeletedQueueRow: "deleted_queues",
    MemberRow: "members",
}
_KINDS: Final = {name: kind for kind, name in TABLES.items()}
PARENTS: Final = (VhostRow, UserRow, ExchangeRow, QueueRow)  # rows that have incarnations

Parents = tuple[tuple[str, int], ...]


class Entry(NamedTuple):
    """A row as etcd has it.

    Attributes:
        row: its fields.
        incarnation: what its children know it by; 0: it has none.
        parents: key and incarnation of each row without which it is not live.
        revision: of its last write.
        lease: of the node with which it ends; 0: it stays.
    """

    row: Row
    incarnation: int
    parents: Parents
    revision: int
    lease: int


class NodeState(NamedTuple):
    """What a node says of itself.

    Attributes:
        uuid: of its data directory; distinguishes two nodes of one name.
        seq: the number of its last transaction.
        applied: the revision up to which its clients see all rows.
        has_left: it has ended in order, and serves nobody any more.
        address: where other nodes dial it; "": nowhere.
        valid_s: how long it serves after it has found its key; all nodes have the same.
        directory: the data directory that it has locked, as ``DataDirectory.place``; a copy has the same UUID and
            another place.
    """

    uuid: str
    seq: int
    applied: int
    has_left: bool = False
    address: str = ""
    valid_s: float = 0.0
    directory: str = ""


class Keys:
    """The keys of one cluster, as one node writes them.

    Args:
        prefix: of all keys; other clusters on the same etcd have other ones.
        node: the name of the node.

    Raises:
        ConfigError: the prefix is not usable, or the name empty or too long.
    """

    def __init__(self, prefix: str, node: str) -> None:
        if (
            not prefix.startswith("/")
            or prefix.endswith("/")
            or len(_bytes(prefix)) > PREFIX_BYTES_MAX
        ):
            raise ConfigError(
                f"prefix {prefix[:80]!r} of keys must begin with / and not end with it, and have at most "
                f"{PREFIX_BYTES_MAX} bytes"
            )
        if not 0 < len(_bytes(node)) <= PREFIX_BYTES_MAX:
            raise ConfigError(
                f"name of a node {node[:80]!r} must have 1 to {PREFIX_BYTES_MAX} bytes"
            )
        self.all = f"{prefix}/metadata/"
        self.format = self.all + "format"
        self.boot_epoch = self.all + "counters/boot_epoch"
        self.queue_no = self.all + "counters/queue_no"
        self.nodes = self.all + "nodes/"
        self.rows = self.all + "rows/"
        self.own = self.node(node)
        self._own_deleted_queues = f"deleted_queues/{_quoted(node)}/"

    def node(self, name: str) -> str:
        return self.nodes + _quoted(name)

    def node_name(self, key: str) -> str:
        """Return the name of the node with this key."""
        return unquote(key.removeprefix(self.nodes), "utf-8", "surrogateescape")

    def row(self, row: Row) -> str:
        """Return the key of a row; of a row to delete only the key fields count.

        Raises:
            StoreError: its names are too long.
        """
        if isinstance(row, BindingRow | BindingKey):
            names: list[Any] = [row.vhost, row.kind, row.destination, _digest(row)]
        else:
            names = list(row.key)
        if row.TABLE == DeletedQueueRow.TABLE:
            place = self._own_deleted_queues
        else:
            place = f"{TABLES[ROWS[row.TABLE]]}/"
        key = self.rows + place + "/".join(map(_quoted, names))
        if len(key) > KEY_BYTES_MAX:
            raise StoreError(
                f"names of {len(key)} bytes are too long for etcd, limit {KEY_BYTES_MAX}: {key[:120]}..."
            )
        return key

    def parents(self, row: Row) -> list[str]:
        """Return the keys of the rows that a row hangs on; default exchanges have none."""
        found: list[Row] = []
        if isinstance(row, PermissionRow | TopicPermissionRow):
            found = [UserRow(row.user), VhostRow(row.vhost)]
        elif isinstance(row, ExchangeRow | QueueRow | PolicyRow | ParameterRow):
            found = [VhostRow(row.vhost)]
        elif isinstance(row, BindingRow):
            found = [VhostRow(row.vhost)]
            if not is_default(row.source):
                found.append(ExchangeRow(row.vhost, row.source, ""))
            if row.kind == "queue":
                found.append(QueueRow(row.vhost, row.destination))
            elif not is_default(row.destination):
                found.append(ExchangeRow(row.vhost, row.destination, ""))
        return [self.row(each) for each in found]

    def is_row(self, key: str) -> bool:
        """Return whether a key is that of a row, and not of another node only."""
        place = key.removeprefix(self.rows)
        if place == key:
            return False
        return not place.startswith("deleted_queues/") or place.startswith(self._own_deleted_queues)

    def is_node(self, key: str) -> bool:
        return key.startswith(self.nodes)

    def rank(self, key: str) -> int:
        """Return the table of a row's key: parents have lower ones than their children."""
        return _KINDS[key[len(self.rows) :].partition("/")[0]].TABLE

    def entry(self, stored: Stored) -> Entry:
        """Return a row as it is stored.

        Raises:
            StoreError: it is damaged, was written under another key, or by a later version; the text names the key.
        """
        kind = _KINDS.get(stored.key[len(self.rows) :].partition("/")[0])
        if kind is None:
            raise StoreError(f"{stored.key} is of a table that this version does not know")
        try:
            incarnation, incarnations, fields = unpacked(stored.value)
            row = kind.from_fields(fields)
            keys = self.parents(row)
            parents = tuple(zip(keys, incarnations, strict=True))
            is_sound = self.row(row) == stored.key and isinstance(incarnation, int)
        except (StoreError, TypeError, ValueError, AttributeError) as error:
            raise StoreError(f"{stored.key} is damaged: {error}; repair or delete it") from error
        if not is_sound:
            raise StoreError(
                f"{stored.key} is damaged: it is the row of {self.row(row)}; delete it"
            )
        return Entry(row, incarnation, parents, stored.revision, stored.lease)


def packed_entry(row: Row, incarnation: int, parents: Parents) -> bytes:
    """Return the value of a row.

    Raises:
        StoreError: it is too large, or has a value that cannot be stored.
    """
    try:
        value = packed([incarnation, [each for _, each in parents], row.to_fields()])
    except (TypeError, ValueError, OverflowError) as error:
        raise StoreError(f"metadata cannot be written: {error}") from error
    if len(value) > VALUE_BYTES_MAX:
        raise StoreError(
            f"{TABLES[type(row)]} row {row.key!r:.120} has {len(value)} bytes, limit of one in etcd {VALUE_BYTES_MAX}"
        )
    return value


def packed_node(state: NodeState) -> bytes:
    """Return the value of a node."""
    return packed(list(state))


def unpacked_node(stored: Stored) -> NodeState:
    """Return the state in a node's key; StoreError: it is damaged."""
    try:
        return NodeState(*unpacked(stored.value))
    except (StoreError, TypeError) as error:
        raise StoreError(f"{stored.key} is damaged: {error}; delete it") from error


def refusal_of_key(key: str, own: NodeState, other: NodeState) -> str:
    """Return why a process may not take the key that another process wrote; "": the other process has ended."""
    if other.uuid != own.uuid:
        return f"{key} is another node, of the data directory {other.uuid}: give each node a name of its own"
    if other.directory != own.directory and not other.has_left:
        return (
            f"{key} runs already, with another copy of this data directory ({other.uuid}), from {other.address}: run one "
            "of them; a further node needs a new data directory and a name of its own"
        )
    return ""


def packed_number(number: int) -> bytes:
    """Return the value of a counter, or of the format."""
    return packed(number)


def unpacked_number(key: str, value: bytes) -> int:
    """Return a counter, or the format; StoreError: it is damaged."""
    try:
        number = unpacked(value)
    except StoreError as error:
        raise StoreError(f"{key} is damaged: {error}") from error
    if not isinstance(number, int) or number < 0:
        raise StoreError(f"{key} is damaged: {number!r:.40} is no number")
    return number


def check_format(keys: Keys, rows: Mapping[str, Stored]) -> bool:
    """Return whether there is metadata under the prefix.

    Raises:
        StoreError: it is of a later version, or the move into etcd was cut short.
    """
    stored = rows.get(keys.format)
    if stored is not None:
        found = unpacked_number(keys.format, stored.value)
        if found > FORMAT:
            raise StoreError(
                f"metadata under {keys.all} has format {found}, this version of Leveret reads up to {FORMAT}"
            )
        return True
    if any(key.startswith(keys.rows) for key in rows):
        raise StoreError(
            f"{keys.format} is missing, but there are rows: a move into etcd was cut short; repeat it"
        )
    return False


def _digest(row: BindingRow | BindingKey) -> str:
    name = msgpack.packb(row.key, unicode_errors="surrogateescape")
    return blake2b(name, digest_size=20).hexdigest()


def _quoted(name: str | bytes | int) -> str:
    return quote_from_bytes(_bytes(str(name)), safe="")


def _bytes(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")
