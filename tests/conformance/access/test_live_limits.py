"""Limits of vhosts and users, and topic permissions: set while connections are open."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conformance.conftest import Connect, Dial
from conformance.raw import error_of, hard, soft
from rigs.nodes import BrokerUnderTest


@pytest.fixture
def vhost(broker: BrokerUnderTest, name: str) -> Iterator[str]:
    """A vhost of the test's own, which guest may use."""
    broker.control("add_vhost", name)
    broker.control("set_permissions", "-p", name, "guest", ".*", ".*", ".*")
    yield name
    broker.control("delete_vhost", name)


@pytest.fixture
def user(broker: BrokerUnderTest, name: str) -> Iterator[str]:
    """A user of the test's own with all permissions on /, and its name as password."""
    broker.control("add_user", name, name)
    broker.control("set_permissions", name, ".*", ".*", ".*")
    yield name
    broker.control("delete_user", name)


def test_connections_to_a_vhost_above_its_limit_are_refused(
    broker: BrokerUnderTest, connect: Connect, dial: Dial, vhost: str
) -> None:
    first = connect(vhost=vhost)
    broker.control("set_vhost_limits", "-p", vhost, '{"max-connections": 1}')

    text = (
        f"NOT_ALLOWED - access to vhost '{vhost}' refused for user 'guest': "
        "connection limit (1) is reached"
    )
    assert error_of(dial().open(vhost=vhost)) == hard(530, text, "connection.open")
    first.close()
    connect(vhost=vhost)


def test_queues_of_a_vhost_above_its_limit_are_refused(
    broker: BrokerUnderTest, connect: Connect, vhost: str
) -> None:
    connection = connect(vhost=vhost)
    channel = connection.channel()
    channel.ok("queue.declare", queue="a")
    broker.control("set_vhost_limits", "-p", vhost, '{"max-queues": 1}')

    text = (
        f"PRECONDITION_FAILED - cannot declare queue 'b': queue limit in vhost '{vhost}' "
        "(1) is reached"
    )
    assert channel.error("queue.declare", queue="b") == soft(406, text, "queue.declare")
    channel = connection.channel()
    channel.ok("queue.declare", queue="a")
    broker.control("clear_vhost_limits", "-p", vhost)
    channel.ok("queue.declare", queue="b")


def test_connections_of_a_user_above_its_limit_are_refused(
    broker: BrokerUnderTest, connect: Connect, dial: Dial, user: str
) -> None:
    connect(user=user, password=user)
    broker.control("set_user_limits", user, '{"max-connections": 1}')

    text = (
        f"NOT_ALLOWED - connection refused for user '{user}': user connection limit (1) is reached"
    )
    reply = dial().open(user=user, password=user)
    assert error_of(reply) == hard(530, text, "connection.open")
    broker.control("clear_user_limits", user, "max-connections")
    connect(user=user, password=user)


def test_channels_of_a_user_above_its_limit_are_refused(
    broker: BrokerUnderTest, connect: Connect, user: str
) -> None:
    connection = connect(user=user, password=user)
    connection.channel()
    broker.control("set_user_limits", user, '{"max-channels": 1}')

    text = (
        f"NOT_ALLOWED - number of channels opened for user '{user}' has reached the maximum "
        "allowed user limit of (1)"
    )
    assert error_of(connection.call("channel.open", 2)) == hard(530, text)
    broker.control("clear_user_limits", user, "all")
    connection = connect(user=user, password=user)
    connection.channel()
    connection.channel()


def test_topic_permissions_act_on_open_channels(
    broker: BrokerUnderTest, connect: Connect, user: str, queue: str
) -> None:
    connection = connect(user=user, password=user)
    channel, witness = connection.channel(), connection.channel()
    channel.ok("queue.bind", queue=queue, exchange="amq.topic", routing_key="#")
    channel.publish("b", "m", exchange="amq.topic")
    assert channel.settle() == []

    broker.control("set_topic_permissions", user, "amq.topic", "^{username}", "^r")

    channel.publish(user, "m", exchange="amq.topic")
    assert channel.settle() == []
    channel.publish(
        "c", "m", exchange="amq.topic"
    )  # RabbitMQ remembers for a while that "b" was granted
    text = (
        "ACCESS_REFUSED - access to topic '{}' in exchange 'amq.topic' in vhost '/' "
        f"refused for user '{user}'"
    )
    assert channel.read_error() == soft(403, text.format("c"), "basic.publish")
    fields = {"queue": queue, "exchange": "amq.topic", "routing_key": "w"}
    assert witness.error("queue.bind", **fields) == soft(403, text.format("w"), "queue.bind")
    broker.control("clear_topic_permissions", user, "amq.topic")
    again = connection.channel()
    again.publish("c", "m", exchange="amq.topic")
    assert again.settle() == []
