"""Limits of vhosts and users, given by an import of definitions: at the limit the next one is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from conformance.conftest import Connect, Dial
from conformance.raw import error_of, hard, soft
from rigs.nodes import BrokerUnderTest

Limited = Callable[..., None]


@pytest.fixture
def limited(broker: BrokerUnderTest, name: str) -> Iterator[Limited]:
    """Make a user and a vhost, both called ``name``, with limits."""

    def make(user: dict[str, int] | None = None, vhost: dict[str, int] | None = None) -> None:
        broker.import_definitions(
            {
                "users": [{"name": name, "password": "secret", "tags": "", "limits": user or {}}],
                "vhosts": [{"name": name}],
                "permissions": [_all_of("guest", name), _all_of(name, name), _all_of(name, "/")],
                "parameters": [
                    {"component": "vhost-limits", "vhost": name, "name": "limits", "value": vhost}
                ]
                if vhost
                else [],
            }
        )

    yield make
    broker.control("delete_vhost", name)
    broker.control("delete_user", name)


def _all_of(user: str, vhost: str) -> dict[str, Any]:
    return {"user": user, "vhost": vhost, "configure": ".*", "write": ".*", "read": ".*"}


def test_connections_of_a_vhost(limited: Limited, connect: Connect, dial: Dial, name: str) -> None:
    limited(vhost={"max-connections": 1})
    first = connect(vhost=name)

    refused = f"NOT_ALLOWED - access to vhost '{name}' refused for user 'guest': connection limit (1) is reached"
    assert error_of(dial().open(vhost=name)) == hard(530, refused, "connection.open")
    assert error_of(dial().open(vhost=name, user=name, password="secret"))[1] == 530
    first.close()
    connect(vhost=name).close()


def test_connections_of_a_user(limited: Limited, connect: Connect, dial: Dial, name: str) -> None:
    limited(user={"max-connections": 1})
    login = {"user": name, "password": "secret"}
    first = connect(**login)

    refused = (
        f"NOT_ALLOWED - connection refused for user '{name}': user connection limit (1) is reached"
    )
    assert error_of(dial().open(**login)) == hard(530, refused, "connection.open")
    assert error_of(dial().open(vhost=name, **login)) == hard(530, refused, "connection.open")
    first.close()
    connect(vhost=name, **login).close()


def test_channels_of_a_user_over_all_its_connections(
    limited: Limited, connect: Connect, name: str
) -> None:
    limited(user={"max-channels": 1})
    first, second = (connect(user=name, password="secret") for _ in range(2))
    first.channel()

    second.send("channel.open", 1)

    reached = f"NOT_ALLOWED - number of channels opened for user '{name}' has reached the maximum allowed user limit of (1)"
    assert error_of(second.read(1)) == hard(530, reached)


def test_queues_of_a_vhost(limited: Limited, connect: Connect, name: str) -> None:
    limited(vhost={"max-queues": 1})
    channel = connect(vhost=name).channel()
    channel.ok("queue.declare", queue="first")
    channel.ok("queue.declare", queue="first")

    error = channel.error("queue.declare", queue="second")

    text = f"PRECONDITION_FAILED - cannot declare queue 'second': queue limit in vhost '{name}' (1) is reached"
    assert error == soft(406, text, "queue.declare")
