"""Definitions: a real node's export is read, and an export of ours is read back the same.

Tests: metadata/definitions_reader.py
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from leveret.amqp.tables import Table, encode_table
from leveret.core.errors import ConfigError
from leveret.management import json_text
from leveret.metadata.definitions import (
    EXACT_ARGUMENTS,
    export_settings,
    exported_binding,
    exported_exchange,
    exported_permission,
    exported_queue,
    exported_user,
    is_default,
)
from leveret.metadata.definitions_reader import parsed_rows
from leveret.metadata.passwords import verify_password
from leveret.metadata.tables import (
    BindingRow,
    Contents,
    ExchangeRow,
    GlobalParameterRow,
    ParameterRow,
    PermissionRow,
    PolicyRow,
    QueueRow,
    TopicPermissionRow,
    VhostRow,
)
from rigs.wire.field_tables import TABLES

RECORDED = Path(__file__).parent / "data" / "definitions-3.10.8.json"  # see README there


def salt() -> bytes:
    return b"salt"


def document_of(contents: Contents) -> dict[str, Any]:
    """Return the document of rows, as a node makes it of what it has."""
    return export_settings(contents) | {
        "users": [exported_user(each) for each in contents.users],
        "permissions": [exported_permission(each) for each in contents.permissions],
        "topic_permissions": [exported_permission(each) for each in contents.topic_permissions],
        "queues": [exported_queue(each) for each in contents.queues],
        "exchanges": [exported_exchange(each) for each in contents.exchanges],
        "bindings": [exported_binding(each) for each in contents.bindings],
    }


def parse_definitions(definitions: Any, new_salt: Callable[[], bytes]) -> Contents:
    contents = Contents()
    for row in parsed_rows(definitions, new_salt):
        contents.add(row)
    return contents


@pytest.fixture
def recorded() -> dict[str, Any]:
    definitions: dict[str, Any] = json.loads(RECORDED.read_text())
    return definitions


@pytest.fixture
def contents(recorded: dict[str, Any]) -> Contents:
    return parse_definitions(recorded, salt)


def test_users_of_a_real_export_can_log_in(contents: Contents) -> None:
    users = {each.name: each for each in contents.users}

    assert users["bob"].tags == ["monitoring", "impersonator"]
    assert users["bob"].limits == {"max-channels": 20}
    for name, password in (("guest", b"guest"), ("bob", b"bob secret")):
        assert verify_password(password, users[name].password_hash, users[name].hashing_algorithm)


def test_vhosts_and_rights_of_a_real_export_are_read(contents: Contents) -> None:
    assert contents.vhosts == [VhostRow("orders"), VhostRow("/", "Default virtual host")]
    assert (
        PermissionRow("bob", "orders", "^bob-.*", ".*", r"^(bob-|amq\.).*") in contents.permissions
    )
    assert contents.topic_permissions == [
        TopicPermissionRow("bob", "orders", "amq.topic", r"^{username}\..*", "^{vhost}.*")
    ]


def test_policies_and_parameters_of_a_real_export_are_read(contents: Contents) -> None:
    lazy = {"queue-mode": "lazy", "max-length": 1000}
    assert contents.policies == [
        PolicyRow("orders", "cap", ".*", {"message-ttl": 60000}, 0, "queues", True),
        PolicyRow("orders", "lazy", r"^lazy\.", lazy, 3, "queues"),
    ]
    limits = {"max-connections": 50, "max-queues": 100}
    assert contents.parameters == [ParameterRow("orders", "vhost-limits", "limits", limits)]
    assert contents.global_parameters == [GlobalParameterRow("maker", {"name": "recorded"})]


def test_exchanges_and_queues_of_a_real_export_are_read(contents: Contents) -> None:
    exchanges = {each.name: each for each in contents.exchanges}
    queues = {each.name: each for each in contents.queues}

    alternate = {"alternate-exchange": ("S", b"lost")}
    assert exchanges["in"] == ExchangeRow("orders", "in", "topic", arguments=alternate)
    assert exchanges["by-header"] == ExchangeRow("orders", "by-header", "headers", auto_delete=True)
    assert not exchanges["gone"].durable
    assert queues["bob-é"] == QueueRow("orders", "bob-é", auto_delete=True)
    assert queues["lazy.all"].arguments == {
        "x-dead-letter-exchange": ("S", b"lost"),
        "x-max-priority": ("l", 5),
        "x-message-ttl": ("l", 1000),
        "x-single-active-consumer": ("t", True),
    }


def test_bindings_of_a_real_export_are_read(contents: Contents) -> None:
    why = {"why": ("S", b"e2e")}
    assert BindingRow("orders", "in", "exchange", "by-header", b"order.#", why) in contents.bindings
    assert BindingRow("orders", "in", "queue", "lazy.all", b"order.*.eu") in contents.bindings
    by_key = {each.routing_key: each for each in contents.bindings if each.source == "by-header"}
    assert by_key[b"second"].arguments == {
        "half": ("d", 0.5), "small": ("l", -1), "whole": ("d", 2.0), "x-match": ("S", b"all"),
    }  # fmt: skip
    assert by_key[b""].arguments["deep"] == ("F", {"k": ("S", b"v")})
    assert by_key[b""].arguments["list"] == ("A", [("l", 1), ("S", b"two")])
    assert by_key[b""].arguments["big"] == ("l", 2**40)


def test_what_is_exported_reads_the_same_again(contents: Contents) -> None:
    contents.exchanges.append(ExchangeRow("orders", "lost", "fanout", internal=True))
    contents.bindings.append(BindingRow("/", "x", "queue", "q", b"\xff", {"none": ("V", None)}))
    contents.queues.append(QueueRow("/", "big", arguments={"x-queue-type": ("S", b"quorum")}))

    again = parse_definitions(json.loads(json.dumps(document_of(contents))), salt)

    key = repr
    assert sorted(again.rows(), key=key) == sorted(contents.rows(), key=key)


def test_an_export_looks_like_the_nodes_own(recorded: dict[str, Any], contents: Contents) -> None:
    exported = json.loads(json.dumps(document_of(contents)))

    assert exported.keys() == recorded.keys()
    for section in ("users", "permissions", "topic_permissions", "policies", "queues", "exchanges"):
        assert exported[section] == recorded[section], section
    for ours, theirs in zip(exported["bindings"], recorded["bindings"], strict=True):
        assert ours == theirs
    assert exported["vhosts"][0]["limits"] == dict(recorded["vhosts"][0]["limits"])


def test_default_exchanges_are_in_no_definitions() -> None:
    assert [name for name in ("", "amq.topic", "amqx", "x") if is_default(name)] == [
        "",
        "amq.topic",
    ]


def test_a_plain_password_is_hashed_and_tags_may_be_one_text() -> None:
    contents = parse_definitions(
        {"users": [
            {"name": "a", "password": "pw", "tags": "administrator, policymaker"},
            {"name": "b", "password_hash": "", "tags": ""},
        ]},
        salt,
    )  # fmt: skip

    with_password, without = contents.users
    assert verify_password(b"pw", with_password.password_hash)
    assert with_password.tags == ["administrator", "policymaker"]
    assert (without.password_hash, without.tags) == (b"", [])


def test_missing_and_empty_sections_are_fine() -> None:
    assert not parse_definitions({"queues": [], "bindings": None, "product_name": "x"}, salt)


@pytest.mark.parametrize(
    ("definitions", "text"),
    [
        ([], "definitions are a list, not an object"),
        ({"queues": [{"vhost": "/"}]}, r"queues\[0\] has no 'name'"),
        ({"queues": [{"vhost": "/", "name": 5}]}, r"queues\[0\]: name is 5, not a text"),
        ({"queues": ["q"]}, r"queues\[0\]: 'q' is not an object"),
        ({"users": [{"name": "a", "password_hash": "?"}]}, r"users\[0\]: "),
        (
            {"users": [{"name": "a", "password_hash": "", "hashing_algorithm": "rot13"}]},
            r"users\[0\]: hashing_algorithm 'rot13' is none of rabbit_password_hashing_sha256",
        ),
        (
            {"exchanges": [{"vhost": "/", "name": "x", "type": "direct", "durable": "yes"}]},
            r"exchanges\[0\]: durable is 'yes', not true or false",
        ),
        (
            {"bindings": [{"vhost": "/", "source": "x", "destination": "q",
                           "destination_type": "topic"}]},
            r"bindings\[0\]: destination_type 'topic' is neither queue nor exchange",
        ),
        (
            {"policies": [{"vhost": "/", "name": "p", "pattern": "", "definition": {},
                           "priority": "high"}]},
            r"policies\[0\]: priority is 'high', not an integer",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_named(definitions: object, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        parse_definitions(definitions, salt)


# Every type of field comes back.


def read_again(*rows: Any) -> Contents:
    contents = Contents()
    for row in rows:
        contents.add(row)
    document = json_text.encode(document_of(contents))
    return parse_definitions(json_text.decode(document), salt)


@given(TABLES)
def test_arguments_of_all_types_come_back_as_they_were(table: Table) -> None:
    again = read_again(
        ExchangeRow("/", "e", "headers", arguments=table),
        QueueRow("/", "q", arguments=table),
        BindingRow("/", "e", "queue", "q", b"", table),
    )

    for rows in (again.exchanges, again.queues, again.bindings):
        assert encode_table(rows[0].arguments) == encode_table(table)


def test_an_export_shows_the_types_only_where_json_loses_them() -> None:
    document = document_of(
        Contents(
            queues=[
                QueueRow("/", "plain", arguments={"x": ("S", b"t"), "n": ("l", 1)}),
                QueueRow("/", "typed", arguments={"x": ("T", 5)}),
            ]
        )
    )

    first, second = document["queues"]
    assert EXACT_ARGUMENTS not in first
    assert second["arguments"] == {"x": 5}
    assert second[EXACT_ARGUMENTS] == b64encode(encode_table({"x": ("T", 5)})).decode()


def test_arguments_that_an_operator_changed_are_taken_instead_of_the_exact_ones() -> None:
    contents = Contents(queues=[QueueRow("/", "q", arguments={"x-expires": ("I", 5)})])
    document = document_of(contents)

    document["queues"][0]["arguments"] = {"x-expires": 6}

    (row,) = parse_definitions(document, salt).queues
    assert row.arguments == {"x-expires": ("l", 6)}


@pytest.mark.parametrize("exact", ["AAAA", "?", "AAAAAw==", 5])
def test_exact_arguments_that_cannot_be_read_are_refused(exact: object) -> None:
    entry = {"vhost": "/", "name": "q", EXACT_ARGUMENTS: exact}

    with pytest.raises(ConfigError, match=r"queues\[0\]"):
        parse_definitions({"queues": [entry]}, salt)


def test_a_whole_number_of_64_bits_without_a_sign_is_read() -> None:
    """RabbitMQ exports timestamps as numbers."""
    document = {
        "queues": [{"vhost": "/", "name": "q", "arguments": {"x": 2**64 - 1, "y": 2**63 - 1}}]
    }

    (row,) = parse_definitions(document, salt).queues

    assert row.arguments == {"x": ("T", 2**64 - 1), "y": ("l", 2**63 - 1)}
    encode_table(row.arguments)
