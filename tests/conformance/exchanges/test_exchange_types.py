"""Exchange types that are plug-ins of RabbitMQ: x-consistent-hash, x-modulus-hash and x-random.

On a RabbitMQ the tests of a type are skipped when its plug-in is not enabled (``rabbitmq-plugins enable
rabbitmq_consistent_hash_exchange rabbitmq_random_exchange rabbitmq_sharding``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from conformance.raw import Channel, Connection, soft
from rigs.nodes import BrokerUnderTest

Declare = Callable[..., str]
Connect = Callable[..., Connection]
PRECONDITION = "PRECONDITION_FAILED - "
TYPES = ["x-consistent-hash", "x-modulus-hash", "x-random"]


@pytest.fixture(params=TYPES)
def each_type(request: pytest.FixtureRequest, installed: Callable[[str], str]) -> str:
    return installed(request.param)


@pytest.fixture
def installed(broker: BrokerUnderTest, connect: Connect, name: str) -> Callable[[str], str]:
    """Return the name of a type, or skip the test where RabbitMQ lacks the plug-in."""

    def check(kind: str) -> str:
        if broker.kind == "rabbitmq":
            channel = connect().channel()
            try:
                channel.ok("exchange.declare", exchange=name, type=kind, auto_delete=True)
            except AssertionError:
                pytest.skip(f"the plug-in with {kind} is not enabled")
            channel.ok("exchange.delete", exchange=name)
        return kind

    return check


def bound(channel: Channel, exchange: str, *keys: str) -> list[str]:
    """Declare a queue for each key and bind it."""
    queues = [channel.ok("queue.declare", exclusive=True).queue for _ in keys]
    for queue, key in zip(queues, keys, strict=True):
        channel.ok("queue.bind", queue=queue, exchange=exchange, routing_key=key)
    return queues


def counts(channel: Channel, queues: list[str]) -> list[int]:
    """Return how many messages the queues have got, and empty them."""
    return [channel.ok("queue.purge", queue=queue).message_count for queue in queues]


def test_each_message_goes_to_one_queue(
    channel: Channel, exchange: Declare, each_type: str
) -> None:
    x = exchange(each_type)
    queues = bound(channel, x, "1", "1", "1")

    for number in range(300):
        channel.publish(f"key {number}", "m", exchange=x)

    got = counts(channel, queues)
    assert sum(got) == 300
    assert min(got) > 40


@pytest.mark.parametrize("kind", ["x-consistent-hash", "x-modulus-hash"])
def test_equal_keys_meet_in_one_queue(
    channel: Channel, exchange: Declare, kind: str, installed: Callable[[str], str]
) -> None:
    x = exchange(installed(kind))
    queues = bound(channel, x, "5", "5", "5")

    for number in range(20):
        for _ in range(10):
            channel.publish(f"key {number}", "m", exchange=x)
        assert sorted(counts(channel, queues)) == [0, 0, 10]


def test_weights_are_shares(
    channel: Channel, exchange: Declare, installed: Callable[[str], str]
) -> None:
    x = exchange(installed("x-consistent-hash"))
    queues = bound(channel, x, "10", "30")

    for number in range(2_000):
        channel.publish(f"key {number}", "m", exchange=x)

    light, heavy = counts(channel, queues)
    assert light + heavy == 2_000
    assert 400 < light < 600


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("abc", 'The binding key must be an integer: <<"abc">>'),
        ("", "The binding key must be an integer: <<>>"),
        ("1.5", 'The binding key must be an integer: <<"1.5">>'),
        ("0", "The binding key must be greater than 0"),
        ("-1", "The binding key must be greater than 0"),
    ],
)
def test_a_bad_weight_is_refused(
    channel: Channel, exchange: Declare, name: str, litter: Callable[..., None], key: str, text: str,
    installed: Callable[[str], str],
) -> None:  # fmt: skip
    x = exchange(installed("x-consistent-hash"))
    channel.ok("queue.declare", queue=name)
    litter(name)

    refused = channel.error("queue.bind", queue=name, exchange=x, routing_key=key)

    assert refused == soft(406, PRECONDITION + text, "queue.bind")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"hash-property": "app_id"}, "Unsupported property: app_id"),
        (
            {"hash-property": "message_id", "hash-header": "h"},
            "hash-header and hash-property are mutually exclusive",
        ),
    ],
)
def test_bad_arguments_are_refused(
    channel: Channel, name: str, arguments: dict[str, Any], text: str,
    installed: Callable[[str], str],
) -> None:  # fmt: skip
    kind = installed("x-consistent-hash")

    refused = channel.error("exchange.declare", exchange=name, type=kind, arguments=arguments)

    assert refused == soft(406, PRECONDITION + text, "exchange.declare")


@pytest.mark.parametrize(
    ("arguments", "one", "other"),
    [
        ({"hash-header": "id"}, {"headers": {"id": "a"}}, {"headers": {"other": "b"}}),
        ({"hash-property": "correlation_id"}, {"correlation_id": "a"}, {"message_id": "b"}),
        ({"hash-property": "message_id"}, {"message_id": "a"}, {}),
        ({"hash-property": "timestamp"}, {"timestamp": 123}, {"message_id": "b"}),
    ],
)
def test_a_header_or_property_decides(
    channel: Channel, exchange: Declare, arguments: dict[str, Any], one: dict[str, Any],
    other: dict[str, Any], installed: Callable[[str], str],
) -> None:  # fmt: skip
    x = exchange(installed("x-consistent-hash"), arguments=arguments)
    queues = bound(channel, x, "5", "5", "5")

    for properties in (one, other):
        for number in range(10):
            channel.publish(f"key {number}", "m", exchange=x, **properties)
        assert sorted(counts(channel, queues)) == [0, 0, 10]


def test_values_of_a_header_are_shared_out(
    channel: Channel, exchange: Declare, installed: Callable[[str], str]
) -> None:
    x = exchange(installed("x-consistent-hash"), arguments={"hash-header": "id"})
    queues = bound(channel, x, "5", "5", "5")

    for number in range(300):
        channel.publish("key", "m", exchange=x, headers={"id": f"customer {number}"})

    assert min(counts(channel, queues)) > 40


def test_equal_messages_go_to_random_queues(
    channel: Channel, exchange: Declare, installed: Callable[[str], str]
) -> None:
    x = exchange(installed("x-random"))
    queues = bound(channel, x, "a", "b", "b")

    for _ in range(300):
        channel.publish("key", "m", exchange=x)

    assert min(counts(channel, queues)) > 40


def test_without_bindings_messages_are_returned(
    channel: Channel, exchange: Declare, each_type: str
) -> None:
    x = exchange(each_type)

    channel.publish("key", "m", exchange=x, mandatory=True)

    returned = channel.read()
    assert (returned.name, returned.reply_code) == ("basic.return", 312)


def test_a_deleted_queue_leaves_its_share(
    channel: Channel, exchange: Declare, each_type: str
) -> None:
    x = exchange(each_type)
    queues = bound(channel, x, "5", "5", "5")
    channel.ok("queue.delete", queue=queues.pop(1))

    for number in range(200):
        channel.publish(f"key {number}", "m", exchange=x)

    assert sum(counts(channel, queues)) == 200


def test_exchange_bindings_lead_through(
    channel: Channel, exchange: Declare, each_type: str
) -> None:
    x, outer, inner = exchange(each_type), exchange("fanout"), exchange("fanout")
    channel.ok("exchange.bind", destination=x, source=outer, routing_key="")
    channel.ok("exchange.bind", destination=inner, source=x, routing_key="1")
    queues = bound(channel, inner, "")

    for number in range(10):
        channel.publish(f"key {number}", "m", exchange=outer)

    assert counts(channel, queues) == [10]
