"""Every method with every combination of the permissions it needs; what is not granted is refused and has no effect.

The cases are generated from the tables in ``permission_cases.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from conformance import wire
from conformance.access.permission_cases import (
    CASES,
    GRANTS,
    NEED_NONE,
    PATTERNS,
    PUBLISHED_KEYS,
    TOPIC_PATTERNS,
    USER,
    Case,
    named,
)
from conformance.raw import Channel, Connection, error_of, soft
from rigs.nodes import BrokerUnderTest

NOBODY = "perm-nobody"  # has an entry in the vhost, of empty patterns
DEFAULT_WRITER = "perm-default"  # may write the default exchange and nothing else
EXCHANGES = {"x": "direct", "f": "fanout", "i": "direct", "t": "topic", "u": "topic"}
WITNESS = "perm-witness"

Error = tuple[str, int, str, str]


def _definitions() -> dict[str, Any]:
    patterns = {
        USER: PATTERNS,
        NOBODY: dict.fromkeys(PATTERNS, ""),
        DEFAULT_WRITER: dict.fromkeys(PATTERNS, "") | {"write": r"^amq\.default$"},
    }
    topics = [{"exchange": named("t", grants)} | TOPIC_PATTERNS for grants in GRANTS]
    return {
        "users": [{"name": user, "password": "secret", "tags": ""} for user in patterns],
        "permissions": [{"user": user, "vhost": "/"} | each for user, each in patterns.items()],
        "topic_permissions": [{"user": USER, "vhost": "/"} | each for each in topics],
    }


@pytest.fixture(scope="module")
def users(broker: BrokerUnderTest) -> Iterator[None]:
    broker.import_definitions(_definitions())
    yield
    for user in (USER, NOBODY, DEFAULT_WRITER):
        broker.control("delete_user", user)


class Matrix:
    """The connections of the users, and of guest, who makes what the cases need and sees their effects."""

    def __init__(self, broker: BrokerUnderTest) -> None:
        self._address = (broker.host, broker.port)
        self._connections: dict[str, Connection] = {}
        self.guest = self.channel("guest", "guest")

    def channel(self, user: str, password: str = "secret") -> Channel:
        if user not in self._connections:
            connection = self._connections[user] = Connection(self._address)
            reply = connection.open(user=user, password=password)
            assert reply.name == "connection.open-ok", reply
            connection.channel()
        return self._connections[user].channels[1]

    def make(self) -> None:
        """Make what the cases use; ``WITNESS`` gets what is published to the exchanges."""
        owner = Connection(self._address)
        owner.open()
        self._connections["owner"] = owner
        self.guest.ok("queue.declare", queue=WITNESS)
        for grants in GRANTS:
            self.guest.ok("queue.declare", queue=named("q", grants))
            owner.channel().ok("queue.declare", queue=named("l", grants), exclusive=True)
            for role, kind in EXCHANGES.items():
                fields = {"exchange": named(role, grants), "type": kind}
                self.guest.ok("exchange.declare", **fields, internal=role == "i")
                for key in PUBLISHED_KEYS:
                    fields = {"exchange": named(role, grants), "routing_key": key}
                    self.guest.ok("queue.bind", queue=WITNESS, **fields)

    def remove(self) -> None:
        for case in CASES:
            if case.method == "queue.declare" and not case.fields.get("exclusive"):
                self._call(self.guest, "queue.delete", {"queue": case.fields["queue"]})
            elif case.method == "exchange.declare":
                self.guest.ok("exchange.delete", exchange=case.fields["exchange"])
        self.guest.ok("queue.delete", queue=WITNESS)
        for grants in GRANTS:
            self.guest.ok("queue.delete", queue=named("q", grants))
            for role in EXCHANGES:
                self.guest.ok("exchange.delete", exchange=named(role, grants))
        for connection in self._connections.values():
            connection.close()

    def run(self, case: Case, user: str = USER) -> Error | None:
        """Return the error that the user gets."""
        for method, fields in case.before:
            self.guest.ok(method, **fields)
        return self._call(self.channel(user), case.method, case.fields)

    def _call(self, channel: Channel, method: str, fields: dict[str, Any]) -> Error | None:
        """Call, and open the channel again if it was closed."""
        if method == "basic.publish":
            channel.publish(body="m", **fields)
            method, fields = "channel.flow", {"active": True}
        reply = channel.call(method, **fields)
        if reply.name == "basic.consume-ok":
            channel.ok("basic.cancel", consumer_tag=reply.consumer_tag)
        if not reply.name.endswith(".close"):
            return None
        error = error_of(reply)
        channel.send("channel.close-ok")
        channel.ok("channel.open")
        return error

    def sees(self, kind: str, *names: str) -> bool:
        """Return what a probe says (``Case.probe``)."""
        if kind == "published":
            self.guest.ready(WITNESS)
            return bool(self.guest.ok("queue.purge", queue=WITNESS).message_count)
        if kind == "routes":
            exchange, key = names
            self.guest.publish(key, exchange=exchange, mandatory=True)
            returned = [event for event in self.guest.settle() if event.name == "basic.return"]
            self.guest.ok("queue.purge", queue=WITNESS)
            return not returned
        fields = {kind: names[0], "passive": True}
        error = self._call(self.guest, f"{kind}.declare", fields)
        assert error is None or error[1] in {404, 405}, error
        return error is None or error[1] == 405  # locked: exclusive to the user


@pytest.fixture(scope="module")
def matrix(broker: BrokerUnderTest, users: None) -> Iterator[Matrix]:
    ready = Matrix(broker)
    ready.make()
    yield ready
    ready.remove()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_method_is_refused_unless_all_that_it_needs_is_granted(
    matrix: Matrix, case: Case
) -> None:
    refusal = case.refusal()

    assert matrix.run(case) == (refusal or case.otherwise)

    if case.probe:
        has_effect = refusal is None and case.otherwise is None
        assert matrix.sees(*case.probe) == (case.becomes == has_effect)


@pytest.mark.parametrize("method", sorted({case.method for case in CASES}))
def test_an_entry_of_empty_patterns_grants_nothing(matrix: Matrix, method: str) -> None:
    case = next(each for each in CASES if each.method == method and each.needs and not each.before)

    assert matrix.run(case, NOBODY) == case.refusal(NOBODY)


def test_the_default_exchange_is_named_in_patterns(matrix: Matrix) -> None:
    case = next(each for each in CASES if each.needs[:1] == (("exchange", "amq.default", "write"),))
    other = Case("basic.publish", {"exchange": named("x", "cwr")})

    assert matrix.run(case, DEFAULT_WRITER) is None
    text = (
        f"access to exchange '{named('x', 'cwr')}' in vhost '/' refused for user '{DEFAULT_WRITER}'"
    )
    error = soft(403, f"ACCESS_REFUSED - {text}", "basic.publish")
    assert matrix.run(other, DEFAULT_WRITER) == error


def test_every_method_has_cases_unless_it_needs_no_permission() -> None:
    of_brokers = {"basic.return", "basic.deliver", "basic.get-ok", "basic.get-empty"}
    of_clients = {
        name
        for name in wire.FIELDS
        if not name.endswith("-ok")
        and not name.startswith("connection.")
        and name not in of_brokers
    }

    assert of_clients - NEED_NONE == {case.method for case in CASES}
