"""Permissions: which of configure, write and read an operation needs, and what a refusal says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from conformance.conftest import Connect
from conformance.raw import Channel, Connection, soft
from rigs.nodes import BrokerUnderTest


@pytest.fixture(scope="module")
def user(broker: BrokerUnderTest) -> Iterator[str]:
    """A user that may configure ``ours-c*``, write ``ours-w*`` and read ``ours-r*``."""
    name = "ours-user"
    broker.control("add_user", name, "secret")
    broker.control("set_permissions", name, "^ours-c", "^ours-w", "^ours-r")
    yield name
    broker.control("delete_user", name)


@pytest.fixture(scope="module")
def things(broker: BrokerUnderTest) -> Iterator[list[str]]:
    """Exchanges and queues of these names, made by guest."""
    names = ["ours-c", "ours-w", "ours-r", "ours-none"]
    connection = Connection(broker.place, broker.tls)
    connection.open()
    channel = connection.channel()
    for name in names:
        channel.ok("exchange.declare", exchange=name, type="fanout")
        channel.ok("queue.declare", queue=name)
    yield names
    for name in names:
        channel.ok("exchange.delete", exchange=name)
        channel.ok("queue.delete", queue=name)
    connection.close()


@pytest.fixture
def limited(connect: Connect, user: str, things: list[str]) -> Channel:
    return connect(user=user, password="secret").channel()


def _refused(kind: str, name: str) -> str:
    return f"ACCESS_REFUSED - access to {kind} '{name}' in vhost '/' refused for user 'ours-user'"


@pytest.mark.parametrize(
    ("method", "fields", "kind", "resource"),
    [
        ("exchange.declare", {"exchange": "ours-new", "type": "direct"}, "exchange", "ours-new"),
        ("exchange.declare", {"exchange": "ours-w", "type": "fanout"}, "exchange", "ours-w"),
        ("exchange.delete", {"exchange": "ours-w"}, "exchange", "ours-w"),
        ("queue.declare", {"queue": "ours-new"}, "queue", "ours-new"),
        ("queue.declare", {"queue": "ours-r"}, "queue", "ours-r"),
        ("queue.delete", {"queue": "ours-r"}, "queue", "ours-r"),
        ("queue.bind", {"queue": "ours-none", "exchange": "ours-r"}, "queue", "ours-none"),
        ("queue.bind", {"queue": "ours-w", "exchange": "ours-none"}, "exchange", "ours-none"),
        ("queue.unbind", {"queue": "ours-none", "exchange": "ours-r"}, "queue", "ours-none"),
        ("queue.unbind", {"queue": "ours-w", "exchange": "ours-none"}, "exchange", "ours-none"),
        (
            "exchange.bind",
            {"destination": "ours-none", "source": "ours-r"},
            "exchange",
            "ours-none",
        ),
        (
            "exchange.bind",
            {"destination": "ours-w", "source": "ours-none"},
            "exchange",
            "ours-none",
        ),
        ("queue.purge", {"queue": "ours-w"}, "queue", "ours-w"),
        ("basic.get", {"queue": "ours-w"}, "queue", "ours-w"),
        ("basic.consume", {"queue": "ours-w"}, "queue", "ours-w"),
        (
            "queue.declare",
            {"queue": "ours-c2", "arguments": {"x-dead-letter-exchange": "ours-w"}},
            "queue",
            "ours-c2",
        ),
        (
            "exchange.declare",
            {
                "exchange": "ours-c2",
                "type": "direct",
                "arguments": {"alternate-exchange": "ours-w"},
            },
            "exchange",
            "ours-c2",
        ),
    ],
)
def test_a_method_without_permission_closes_the_channel(
    limited: Channel, method: str, fields: dict[str, Any], kind: str, resource: str
) -> None:
    assert limited.error(method, **fields) == soft(403, _refused(kind, resource), method)


@pytest.mark.parametrize(("exchange", "shown"), [("ours-r", "ours-r"), ("", "amq.default")])
def test_a_publish_without_permission_closes_the_channel(
    limited: Channel, exchange: str, shown: str
) -> None:
    limited.publish("k", "m", exchange=exchange)

    assert limited.read_error() == soft(403, _refused("exchange", shown), "basic.publish")


@pytest.mark.parametrize(
    ("method", "fields"),
    [
        ("exchange.declare", {"exchange": "ours-c", "type": "fanout"}),
        ("exchange.declare", {"exchange": "ours-none", "type": "fanout", "passive": True}),
        ("queue.declare", {"queue": "ours-c"}),
        ("queue.declare", {"queue": "ours-none", "passive": True}),
        ("queue.bind", {"queue": "ours-w", "exchange": "ours-r"}),
        ("queue.unbind", {"queue": "ours-w", "exchange": "ours-r"}),
        ("exchange.bind", {"destination": "ours-w", "source": "ours-r"}),
        ("exchange.unbind", {"destination": "ours-w", "source": "ours-r"}),
        ("queue.purge", {"queue": "ours-r"}),
        ("basic.get", {"queue": "ours-r"}),
        ("basic.consume", {"queue": "ours-r"}),
    ],
)
def test_a_method_with_permission_is_answered(
    limited: Channel, method: str, fields: dict[str, Any]
) -> None:
    limited.ok(method, **fields)


def test_a_publish_with_permission_is_taken(limited: Channel) -> None:
    limited.publish("k", "m", exchange="ours-w")

    assert limited.settle() == []


def test_a_permission_that_is_taken_away_is_missed_at_the_next_new_thing(
    connect: Connect, broker: BrokerUnderTest, name: str, things: list[str]
) -> None:
    broker.control("add_user", name, "secret")
    broker.control("set_permissions", name, ".*", ".*", ".*")
    channel = connect(user=name, password="secret").channel()
    channel.publish("k", "m", exchange="ours-w")
    channel.settle("ours-w")

    broker.control("set_permissions", name, "^$", "^$", "^$")

    error = channel.error("queue.purge", queue="ours-r")
    broker.control("delete_user", name)
    assert error[1] == 403


def test_a_vhost_keeps_its_things_apart(
    connect: Connect, broker: BrokerUnderTest, name: str
) -> None:
    broker.control("add_vhost", name)
    broker.control("set_permissions", "-p", name, "guest", ".*", ".*", ".*")
    try:
        here, there = connect().channel(), connect(vhost=name).channel()
        here.ok("queue.declare", queue=name, exclusive=True)

        error = there.error("queue.declare", queue=name, passive=True)

        text = f"NOT_FOUND - no queue '{name}' in vhost '{name}'"
        assert error == soft(404, text, "queue.declare")
        there.send("channel.close-ok")
        there.ok("channel.open")
        for exchange in ("amq.direct", "amq.fanout", "amq.topic", "amq.headers", "amq.match"):
            there.ok("exchange.declare", exchange=exchange, type="direct", passive=True)
    finally:
        broker.control("delete_vhost", name)
