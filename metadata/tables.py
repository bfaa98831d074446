"""Rows of durable metadata, one class per table.

``key`` identifies a row within its table; writing a row replaces the row with the same key.
``fields`` and ``from_fields`` are its stored form (see ``leveret.metadata.store``): plain values for
msgpack, in the order of the class's fields. New fields go to the end and have a default, so
that rows of an older format can be read.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar, Final, TypeAlias, TypeVar

from msgspec import Struct, field

from leveret.amqp.tables import Table, decode_table, encode_table

Key: TypeAlias = tuple[str | bytes | int, ...]
R = TypeVar("R", bound="Row")
_EMPTY_TABLE: Final = encode_table({})


class Row(Struct):
    """One row.

    Attributes:
        TABLE: number of the table in the store; never used again for another.
        KEY: the fields that are the identity of the row within its table.
    """

    TABLE: ClassVar[int] = 0
    KEY: ClassVar[tuple[str, ...]] = ()

    @property
    def key(self) -> Key:
        return tuple([getattr(self, name) for name in self.KEY])

    def to_fields(self) -> list[Any]:
        """Return the stored form; field tables are stored as their wire bytes."""
        return [
            encode_table(value) if name == "arguments" else value
            for name, value in ((name, getattr(self, name)) for name in self.__struct_fields__)
        ]

    @classmethod
    def from_fields(cls: type[R], values: list[Any]) -> R:
        """Return the row; absent fields get their defaults, TypeError if there are too many."""
        names = cls.__struct_fields__
        if "arguments" in names[: len(values)]:
            at = names.index("arguments")
            values[at] = decode_table(values[at], 0)[0]
        return cls(*values)


class VhostRow(Row):
    """A virtual host.

    Attributes:
        default_queue_type: of queues that are declared without a type; "": classic.
    """

    TABLE: ClassVar[int] = 1
    KEY: ClassVar[tuple[str, ...]] = ("name",)

    name: str
    description: str = ""
    tags: list[str] = field(default_factory=list)
    default_queue_type: str = ""


class UserRow(Row):
    """A user.

    Attributes:
        password_hash: salt and digest; empty: the user cannot log in with a password.
        hashing_algorithm: one of ``leveret.metadata.passwords.ALGORITHMS``.
        tags: ``administrator``, ``impersonator``, ...
        limits: ``max-connections``, ``max-channels``.
    """

    TABLE: ClassVar[int] = 2
    KEY: ClassVar[tuple[str, ...]] = ("name",)

    name: str
    password_hash: bytes = b""
    hashing_algorithm: str = "rabbit_password_hashing_sha256"
    tags: list[str] = field(default_factory=list)
    limits: dict[str, int] = field(default_factory=dict)


class PermissionRow(Row):
    """A user's permissions in a vhost: three regular expressions."""

    TABLE: ClassVar[int] = 3
    KEY: ClassVar[tuple[str, ...]] = ("user", "vhost")

    user: str
    vhost: str
    configure: str
    write: str
    read: str


class TopicPermissionRow(Row):
    """A user's permissions for routing keys of a topic exchange."""

    TABLE: ClassVar[int] = 4
    KEY: ClassVar[tuple[str, ...]] = ("user", "vhost", "exchange")

    user: str
    vhost: str
    exchange: str
    write: str
    read: str


class ExchangeRow(Row):
    """An exchange."""

    TABLE: ClassVar[int] = 5
    KEY: ClassVar[tuple[str, ...]] = ("vhost", "name")

    vhost: str
    name: str
    type: str
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    arguments: Table = field(default_factory=dict)


class QueueRow(Row):
    """A queue.

    Attributes:
        queue_no: its number in the message store, never used twice (``next_queue_no``).
        user: that declared it.
        node: the node of a cluster that it lives on; "" outside of a cluster.
        exclusive: it belongs to a connection of that node.
    """

    TABLE: ClassVar[int] = 6
    KEY: ClassVar[tuple[str, ...]] = ("vhost", "name")

    vhost: str
    name: str
    durable: bool = True
    auto_delete: bool = False
    arguments: Table = field(default_factory=dict)
    queue_no: int = 0
    user: str = ""
    node: str = ""
    exclusive: bool = False


class BindingRow(Row, dict=True):
    """A binding; ``kind`` is what ``destination`` names, ``"queue"`` or ``"exchange"``."""

    TABLE: ClassVar[int] = 7

    vhost: str
    source: str
    kind: str
    destination: str
    routing_key: bytes = b""
    arguments: Table = field(default_factory=dict)

    @cached_property
    def key(self) -> Key:
        """All fields: the arguments are part of a binding's identity, their order is not.

        It is asked for several times while the row is written, and arguments may be large.
        """
        arguments = encode_table(dict(sorted(self.arguments.items())))
        return (
            self.vhost, self.source, self.kind, self.destination, self.routing_key, arguments,
        )  # fmt: skip


class BindingKey(Row):
    """The row of a binding to delete; ``arguments`` as ``tables.pack`` encodes them, sorted by name."""

    TABLE: ClassVar[int] = BindingRow.TABLE

    vhost: str
    source: str
    kind: str
    destination: str
    routing_key: bytes
    arguments: bytes

    @property
    def key(self) -> Key:
        return (
            self.vhost, self.source, self.kind, self.destination, self.routing_key,
            self.arguments or _EMPTY_TABLE,
        )  # fmt: skip


class PolicyRow(Row):
    """A policy, or an operator policy."""

    TABLE: ClassVar[int] = 8

    vhost: str
    name: str
    pattern: str
    definition: dict[str, Any]
    priority: int = 0
    apply_to: str = "all"
    is_operator: bool = False

    @property
    def key(self) -> Key:
        return (self.vhost, self.name, "operator" if self.is_operator else "user")


class ParameterRow(Row):
    """A runtime parameter of a vhost; ``vhost-limits`` is one."""

    TABLE: ClassVar[int] = 9
    KEY: ClassVar[tuple[str, ...]] = ("vhost", "component", "name")

    vhost: str
    component: str
    name: str
    value: Any


class GlobalParameterRow(Row):
    """A parameter of the whole broker."""

    TABLE: ClassVar[int] = 10
    KEY: ClassVar[tuple[str, ...]] = ("name",)

    name: str
    value: Any


class DeletedQueueRow(Row):
    """The number of a deleted queue whose messages may not be removed yet; nobody wants them.

    Without this row a start would keep the messages for a while: their queue's definition may have been lost.
    """

    TABLE: ClassVar[int] = 11
    KEY: ClassVar[tuple[str, ...]] = ("queue_no",)

    queue_no: int


class MemberRow(Row):
    """A node that has joined the cluster, whether it runs or not.

    Attributes:
        uuid: of its data directory.
        node: its name.
        is_forgotten: an operator has removed it: the directory may not join again, and the name is free.
    """

    TABLE: ClassVar[int] = 12
    KEY: ClassVar[tuple[str, ...]] = ("uuid",)

    uuid: str
    node: str = ""
    is_forgotten: bool = False


ROWS: Final[dict[int, type[Row]]] = {
    row.TABLE: row
    for row in (
        VhostRow, UserRow, PermissionRow, TopicPermissionRow, ExchangeRow, QueueRow, BindingRow,
        PolicyRow, ParameterRow, GlobalParameterRow, DeletedQueueRow, MemberRow,
    )
}  # fmt: skip


class Contents(Struct):
    """All rows, by table."""

    vhosts: list[VhostRow] = field(default_factory=list)
    users: list[UserRow] = field(default_factory=list)
    permissions: list[PermissionRow] = field(default_factory=list)
    topic_permissions: list[TopicPermissionRow] = field(default_factory=list)
    exchanges: list[ExchangeRow] = field(default_factory=list)
    queues: list[QueueRow] = field(default_factory=list)
    bindings: list[BindingRow] = field(default_factory=list)
    policies: list[PolicyRow] = field(default_factory=list)
    parameters: list[ParameterRow] = field(default_factory=list)
    global_parameters: list[GlobalParameterRow] = field(default_factory=list)
    deleted_queues: list[DeletedQueueRow] = field(default_factory=list)
    members: list[MemberRow] = field(default_factory=list)

    def table(self, row: type[Row]) -> list[Any]:
        rows: list[Any] = getattr(self, _LISTS[row])
        return rows

    def add(self, row: Row) -> None:
        self.table(type(row)).append(row)

    def rows(self) -> list[Row]:
        """Return all rows, in an order in which they can be created."""
        return [row for each in _LISTS for row in self.table(each)]

    def __bool__(self) -> bool:
        return any(self.table(each) for each in _LISTS)


_LISTS: Final[dict[type[Row], str]] = dict(
    zip(ROWS.values(), Contents.__struct_fields__, strict=True)
)
