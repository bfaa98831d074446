"""Rows as keys and values of etcd."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.core.errors import ConfigError, StoreError
from leveret.etcd.gateway import VALUE_BYTES_MAX
from leveret.etcd.key_values import Row as Stored
from leveret.metadata.environment import packed
from leveret.metadata.etcd.codec import (
    FORMAT,
    TABLES,
    Keys,
    NodeState,
    check_format,
    packed_entry,
    packed_node,
    packed_number,
    unpacked_node,
    unpacked_number,
)
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

KEYS = Keys("/leveret", "here")

PLACES: list[tuple[Row, str, list[str]]] = [
    (VhostRow("/"), "vhosts/%2F", []),
    (UserRow("guest"), "users/guest", []),
    (
        PermissionRow("guest", "/", "", "", ""),
        "permissions/guest/%2F",
        ["users/guest", "vhosts/%2F"],
    ),
    (
        TopicPermissionRow("guest", "/", "amq.topic", "", ""),
        "topic_permissions/guest/%2F/amq.topic",
        ["users/guest", "vhosts/%2F"],
    ),
    (ExchangeRow("/", "x", "topic"), "exchanges/%2F/x", ["vhosts/%2F"]),
    (
        QueueRow("/", "q\udcff /", arguments={"a": ("s", 5)}),
        "queues/%2F/q%FF%20%2F",
        ["vhosts/%2F"],
    ),
    (
        BindingRow("/", "x", "queue", "q", b"\xff", {"a": ("A", [("V", None)])}),
        "bindings/%2F/queue/q/0123456789abcdef",
        ["vhosts/%2F", "exchanges/%2F/x", "queues/%2F/q"],
    ),
    (
        BindingRow("/", "amq.topic", "exchange", "x"),
        "bindings/%2F/exchange/x/0123456789abcdef",
        ["vhosts/%2F", "exchanges/%2F/x"],
    ),
    (PolicyRow("/", "p", "^q", {"max-length": 1}), "policies/%2F/p/user", ["vhosts/%2F"]),
    (
        ParameterRow("/", "vhost-limits", "limits", {"max-queues": 5}),
        "parameters/%2F/vhost-limits/limits",
        ["vhosts/%2F"],
    ),
    (GlobalParameterRow("cluster_name", "here"), "global_parameters/cluster_name", []),
    (DeletedQueueRow(7), "deleted_queues/here/7", []),
    (MemberRow("6c0e", "here"), "members/6c0e", []),
]


def stored(row: Row, incarnation: int = 0, lease: int = 0) -> Stored:
    parents = tuple((key, at) for at, key in enumerate(KEYS.parents(row), 1))
    return Stored(KEYS.row(row), packed_entry(row, incarnation, parents), 9, lease)


@pytest.mark.parametrize(("row", "place", "parents"), PLACES)
def test_a_row_comes_back_from_its_readable_key(row: Row, place: str, parents: list[str]) -> None:
    key = KEYS.row(row)
    assert re.sub("[0-9a-f]{40}$", "0123456789abcdef", key) == f"/leveret/metadata/rows/{place}"
    assert KEYS.parents(row) == [f"/leveret/metadata/rows/{each}" for each in parents]
    assert KEYS.is_row(key)
    assert KEYS.rank(key) == row.TABLE

    entry = KEYS.entry(stored(row, 5, 3))
    assert (entry.row, entry.incarnation, entry.revision, entry.lease) == (row, 5, 9, 3)
    assert entry.parents == tuple((parent, at) for at, parent in enumerate(KEYS.parents(row), 1))


def test_every_table_has_its_place() -> None:
    assert set(TABLES) == set(ROWS.values()) == {type(row) for row, _, _ in PLACES}


def test_parents_come_in_tables_before_their_children() -> None:
    for row, _, _ in PLACES:
        assert all(KEYS.rank(parent) < row.TABLE for parent in KEYS.parents(row))


names = st.text(max_size=60).filter(lambda text: not re.search("[\ud800-\udfff]", text))


@given(
    st.tuples(names, names, names, st.binary(max_size=60)),
    st.tuples(names, names, names, st.binary(max_size=60)),
)
def test_different_names_have_different_keys(
    one: tuple[str, str, str, bytes], two: tuple[str, str, str, bytes]
) -> None:
    def keys(vhost: str, name: str, other: str, key: bytes) -> list[str]:
        return [
            KEYS.row(QueueRow(vhost, name)),
            KEYS.row(ParameterRow(vhost, name, other, None)),
            KEYS.row(BindingRow(vhost, name, "queue", other, key)),
            KEYS.row(PermissionRow(vhost, name, "", "", "")),
        ]

    found = list(zip(keys(*one), keys(*two), strict=True))
    assert (found[0][0] == found[0][1]) == (one[:2] == two[:2])
    assert (found[1][0] == found[1][1]) == (one[:3] == two[:3])
    assert (found[2][0] == found[2][1]) == (one == two)
    assert (found[3][0] == found[3][1]) == (one[:2] == two[:2])


def test_the_key_of_a_binding_to_delete_is_that_of_the_binding() -> None:
    from leveret.amqp.tables import encode_table

    arguments = {"a": ("I", 1), "b": ("I", 2)}
    row = BindingRow("/", "x", "queue", "q", b"k", {"b": ("I", 2), "a": ("I", 1)})

    assert KEYS.row(BindingKey("/", "x", "queue", "q", b"k", encode_table(arguments))) == KEYS.row(
        row
    )


def test_deleted_queues_of_other_nodes_are_none_of_a_nodes_rows() -> None:
    other = Keys("/leveret", "there")

    assert not other.is_row(KEYS.row(DeletedQueueRow(7)))
    assert other.is_row(other.row(DeletedQueueRow(7)))


def test_a_row_that_is_too_large_is_refused_with_its_name_and_the_limit() -> None:
    row = QueueRow("/", "big", arguments={"a": ("S", bytes(VALUE_BYTES_MAX))})
    with pytest.raises(
        StoreError, match=rf"queues row \('/', 'big'\) has \d+ bytes.*{VALUE_BYTES_MAX}"
    ):
        packed_entry(row, 0, ())
    with pytest.raises(StoreError, match="too long for etcd"):
        KEYS.row(ParameterRow("/", "c", "n" * 5000, None))
    with pytest.raises(StoreError, match="cannot be written"):
        packed_entry(ParameterRow("/", "c", "n", 1 << 70), 0, ())


@pytest.mark.parametrize(
    "value",
    [
        b"",
        packed_entry(QueueRow("/", "q"), 1, ())[:-1],
        packed(None),
        packed([1, []]),
        packed([1, [], QueueRow("/", "q").to_fields()]),  # a parent is missing
        packed(["x", [1], QueueRow("/", "q").to_fields()]),
        packed([1, [1], QueueRow("/", "other").to_fields()]),
        packed([1, [1], [*QueueRow("/", "q").to_fields(), 1]]),
    ],
)
def test_a_damaged_value_is_an_error_that_names_the_key(value: bytes) -> None:
    with pytest.raises(StoreError, match="rows/queues/%2F/q is damaged"):
        KEYS.entry(Stored(KEYS.row(QueueRow("/", "q")), value, 1))


def test_a_table_of_a_later_version_is_an_error() -> None:
    with pytest.raises(StoreError, match="this version does not know"):
        KEYS.entry(Stored(f"{KEYS.rows}shovels/x", b"", 1))


def test_nodes_and_numbers_come_back() -> None:
    state = NodeState("uuid", 3, 1 << 60, True)

    assert unpacked_node(Stored(KEYS.own, packed_node(state), 1)) == state
    assert unpacked_number("k", packed_number(1 << 40)) == 1 << 40
    for value in (b"x", packed("x"), packed(-1)):
        with pytest.raises(StoreError, match="k is damaged"):
            unpacked_number("k", value)
    with pytest.raises(StoreError, match="nodes/here is damaged"):
        unpacked_node(Stored(KEYS.own, packed([1]), 1))


def test_the_format_says_whether_there_is_metadata() -> None:
    row = stored(VhostRow("/"))
    now, later = (Stored(KEYS.format, packed_number(FORMAT + more), 1) for more in (0, 1))

    assert not check_format(KEYS, {})
    assert check_format(KEYS, {KEYS.format: now, row.key: row})
    with pytest.raises(
        StoreError, match=f"format {FORMAT + 1}, this version of Leveret reads up to"
    ):
        check_format(KEYS, {KEYS.format: later})
    with pytest.raises(StoreError, match="cut short; repeat it"):
        check_format(KEYS, {row.key: row})


@pytest.mark.parametrize(
    ("prefix", "node", "words"),
    [
        ("", "n", "must begin with /"),
        ("/x/", "n", "not end with it"),
        ("/" + "x" * 300, "n", "at most 256 bytes"),
        ("/x", "", "1 to 256 bytes"),
    ],
)
def test_a_prefix_or_a_name_that_cannot_be_used_is_refused(
    prefix: str, node: str, words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        Keys(prefix, node)
