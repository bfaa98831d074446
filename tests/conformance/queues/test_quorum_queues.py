"""Queues of type quorum: which declarations are taken, and what differs from classic queues."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from conformance.conftest import Connect
from conformance.raw import Channel, hard, soft
from conformance.wire import Typed
from rigs.nodes import BrokerUnderTest

QUORUM = {"x-queue-type": "quorum"}
FAILED = "PRECONDITION_FAILED - "


@pytest.fixture
def declared(name: str, channel: Channel, litter: Callable[..., None]) -> Callable[..., str]:
    """Declare a quorum queue with arguments; return its name."""

    def declare(**arguments: Any) -> str:
        named = {key.replace("_", "-"): value for key, value in arguments.items()}
        channel.ok("queue.declare", queue=name, durable=True, arguments=QUORUM | named)
        litter(name)
        return name

    return declare


@pytest.fixture
def quorum(declared: Callable[..., str]) -> str:
    return declared()


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"x-expires": 60_000},
        {"x-message-ttl": 60_000},
        {"x-max-length": 0},
        {"x-max-length-bytes": 5},
        {"x-max-in-memory-length": 0},
        {"x-max-in-memory-bytes": 5},
        {"x-overflow": "drop-head"},
        {"x-overflow": "reject-publish"},
        {"x-overflow": "reject-publish-dlx"},
        {"x-single-active-consumer": True},
        {"x-quorum-initial-group-size": 1},
        {"x-quorum-initial-group-size": 5},
        {"x-delivery-limit": 0},
        {"x-delivery-limit": -1},
        {"x-delivery-limit": "a"},
        {"x-queue-leader-locator": "client-local"},
        {"x-queue-leader-locator": "balanced"},
        {"x-queue-leader-locator": "random"},
        {"x-queue-leader-locator": "least-leaders"},
        {"x-dead-letter-exchange": "not-there"},
        {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "k"},
        {"x-dead-letter-exchange": "", "x-dead-letter-strategy": "at-most-once"},
        {"x-dead-letter-exchange": "", "x-dead-letter-strategy": "at-least-once"},
        {"x-dead-letter-strategy": "at-least-once"},
        {"x-anything": "else"},
    ],
)
def test_arguments_that_are_taken(
    channel: Channel, declared: Callable[..., str], arguments: dict[str, Any]
) -> None:
    name = declared(**arguments)

    reply = channel.ok("queue.declare", queue=name, durable=True, arguments=QUORUM | arguments)

    assert (reply.queue, reply.message_count, reply.consumer_count) == (name, 0, 0)


@pytest.mark.parametrize(
    ("options", "arguments", "text"),
    [
        ({"durable": False}, {}, "invalid property 'non-durable' for {}"),
        ({"exclusive": True}, {}, "invalid property 'exclusive-owner' for {}"),
        ({"auto_delete": True}, {}, "invalid property 'auto-delete' for {}"),
        (
            {"auto_delete": True, "exclusive": True, "durable": False},
            {},
            "invalid property 'auto-delete' for {}",
        ),
        ({}, {"x-max-priority": 5}, "invalid arg 'x-max-priority' for {} of queue type rabbit_quorum_queue"),
        ({}, {"x-queue-mode": "lazy"}, "invalid arg 'x-queue-mode' for {} of queue type rabbit_quorum_queue"),
        ({}, {"x-queue-version": 1}, "invalid arg 'x-queue-version' for {} of queue type rabbit_quorum_queue"),
        ({}, {"x-queue-master-locator": "random"}, "invalid arg 'x-queue-master-locator' for {} of queue type rabbit_quorum_queue"),
        ({}, {"x-max-age": "1D"}, "invalid arg 'x-max-age' for {} of queue type rabbit_quorum_queue"),
        ({}, {"x-initial-cluster-size": 1}, "invalid arg 'x-initial-cluster-size' for {} of queue type rabbit_quorum_queue"),
        ({}, {"x-quorum-initial-group-size": 0}, "invalid arg 'x-quorum-initial-group-size' for {}: {{value_zero,0}}"),
        ({}, {"x-quorum-initial-group-size": -1}, "invalid arg 'x-quorum-initial-group-size' for {}: {{value_negative,-1}}"),
        ({}, {"x-queue-leader-locator": "min-masters"}, "invalid arg 'x-queue-leader-locator' for {}: invalid_queue_locator_arg"),
        ({}, {"x-queue-leader-locator": Typed("b", 1)}, "invalid arg 'x-queue-leader-locator' for {}: {{unacceptable_type,byte}}"),
        ({}, {"x-dead-letter-strategy": "twice"}, "invalid arg 'x-dead-letter-strategy' for {}: invalid_dlx_strategy"),
        ({}, {"x-message-ttl": -1}, "invalid arg 'x-message-ttl' for {}: {{value_negative,-1}}"),
        ({}, {"x-max-in-memory-length": -1}, "invalid arg 'x-max-in-memory-length' for {}: {{value_negative,-1}}"),
        ({}, {"x-overflow": "bogus"}, "invalid arg 'x-overflow' for {}: invalid_overflow"),
        # A wrong argument is told before a wrong property.
        ({"durable": False}, {"x-overflow": "bogus"}, "invalid arg 'x-overflow' for {}: invalid_overflow"),
    ],
)  # fmt: skip
def test_declarations_that_are_refused(
    channel: Channel, name: str, options: dict[str, Any], arguments: dict[str, Any], text: str
) -> None:
    fields: dict[str, Any] = {"durable": True} | options
    error = channel.error("queue.declare", queue=name, arguments=QUORUM | arguments, **fields)

    assert error == soft(406, FAILED + text.format(f"queue '{name}' in vhost '/'"), "queue.declare")


@pytest.mark.parametrize(
    ("first", "second", "difference"),
    [
        ({}, None, "'x-queue-type' for {}: received none but current is the value 'quorum' of type 'longstr'"),
        ({}, {"x-queue-type": "classic"}, "'x-queue-type' for {}: received 'classic' but current is 'quorum'"),
        ({"x-delivery-limit": 3}, {}, "'x-delivery-limit' for {}: received none but current is the value '3' of type 'signedint'"),
        ({"x-delivery-limit": 3}, {"x-delivery-limit": 4}, "'x-delivery-limit' for {}: received '4' but current is '3'"),
        ({}, {"x-max-in-memory-length": 3}, "'x-max-in-memory-length' for {}: received the value '3' of type 'signedint' but current is none"),
        ({}, {"x-queue-leader-locator": "balanced"}, "'x-queue-leader-locator' for {}: received the value 'balanced' of type 'longstr' but current is none"),
        ({"x-quorum-initial-group-size": 1}, {"x-quorum-initial-group-size": 2}, "'x-quorum-initial-group-size' for {}: received '2' but current is '1'"),
        ({}, {"x-message-ttl": 5, "x-expires": 5000}, "'x-expires' for {}: received the value '5000' of type 'signedint' but current is none"),
        ({}, {"x-message-ttl": 5, "x-delivery-limit": 5}, "'x-delivery-limit' for {}: received the value '5' of type 'signedint' but current is none"),
    ],
)  # fmt: skip
def test_a_second_declaration_must_be_equal(
    channel: Channel,
    declared: Callable[..., str],
    first: dict[str, Any],
    second: dict[str, Any] | None,
    difference: str,
) -> None:
    name = declared(**first)
    arguments = {} if second is None else QUORUM | second

    error = channel.error("queue.declare", queue=name, durable=True, arguments=arguments)

    text = f"{FAILED}inequivalent arg " + difference.format(f"queue '{name}' in vhost '/'")
    assert error == soft(406, text, "queue.declare")


def test_a_classic_queue_is_not_a_quorum_queue(
    channel: Channel, name: str, litter: Callable[..., None]
) -> None:
    channel.ok("queue.declare", queue=name, durable=True)
    litter(name)

    error = channel.error("queue.declare", queue=name, durable=True, arguments=QUORUM)

    assert error == soft(
        406,
        f"{FAILED}inequivalent arg 'x-queue-type' for queue '{name}' in vhost '/': received the"
        " value 'quorum' of type 'longstr' but current is none",
        "queue.declare",
    )


def test_an_argument_of_another_type_is_not_compared(
    channel: Channel, declared: Callable[..., str]
) -> None:
    name = declared()

    arguments = QUORUM | {"x-max-priority": 5, "x-queue-mode": "lazy"}
    channel.ok("queue.declare", queue=name, durable=True, arguments=arguments)


@pytest.mark.parametrize("flag", ["if_unused", "if_empty"])
def test_delete_takes_no_condition(
    connect: Connect, channel: Channel, quorum: str, flag: str
) -> None:
    error = connect().channel().error("queue.delete", queue=quorum, **{flag: True})

    flagged = flag.replace("_", "-")
    text = (
        f"NOT_IMPLEMENTED - cannot delete queue '{quorum}' in vhost '/'. queue.delete operations"
        f" with {flagged} flag set are not supported by quorum queues"
    )
    assert error == hard(540, text, "queue.delete")


def test_delete_tells_the_ready_messages(channel: Channel, quorum: str) -> None:
    channel.fill(quorum, "abc")

    assert channel.ok("queue.delete", queue=quorum).message_count == 3


def test_purge(channel: Channel, quorum: str) -> None:
    channel.fill(quorum, "abc")

    assert channel.ok("queue.purge", queue=quorum).message_count == 3
    assert channel.ready(quorum) == 0


def test_a_prefetch_for_the_whole_channel_is_refused(connect: Connect, quorum: str) -> None:
    consumer = connect().channel()
    consumer.ok("basic.qos", prefetch_count=5, global_=True)

    error = consumer.error("basic.consume", queue=quorum)

    text = f"NOT_IMPLEMENTED - queue '{quorum}' in vhost '/' does not support global qos"
    assert error == hard(540, text, "basic.consume")


def test_a_prefetch_of_the_consumer(channel: Channel, quorum: str) -> None:
    channel.ok("basic.qos", prefetch_count=2)
    channel.ok("basic.consume", queue=quorum)
    channel.connection.channel().fill(quorum, "abc")

    assert channel.bodies(2) == [b"a", b"b"]
    assert channel.settle(quorum) == []
    channel.send("basic.ack", delivery_tag=1)
    assert channel.bodies(1) == [b"c"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"x-priority": "high"}, ": \"expected integer, got longstr\""),
        ({"x-cancel-on-ha-failover": True}, " of queue type rabbit_quorum_queue"),
        ({"x-cancel-on-ha-failover": "yes"}, " of queue type rabbit_quorum_queue"),
        ({"x-stream-offset": 5}, " of queue type rabbit_quorum_queue"),
    ],
)  # fmt: skip
def test_invalid_consumer_arguments(
    channel: Channel, quorum: str, arguments: dict[str, Any], reason: str
) -> None:
    error = channel.error("basic.consume", queue=quorum, arguments=arguments)

    text = (
        f"{FAILED}invalid arg '{next(iter(arguments))}' for queue '{quorum}' in vhost '/'{reason}"
    )
    assert error == soft(406, text, "basic.consume")


def test_higher_priority_first(channel: Channel, quorum: str) -> None:
    low, high = channel.connection.channel(), channel.connection.channel()
    low.ok("basic.consume", queue=quorum, no_ack=True)
    high.ok("basic.qos", prefetch_count=1)
    high.ok("basic.consume", queue=quorum, arguments={"x-priority": 5})

    channel.fill(quorum, "ab")

    assert high.bodies(1) == [b"a"]
    assert low.bodies(1) == [b"b"]


def test_no_consumer_is_exclusive(channel: Channel, quorum: str) -> None:
    for tag in "ab":
        channel.ok("basic.consume", queue=quorum, consumer_tag=tag, exclusive=True)
    channel.ok("basic.consume", queue=quorum, consumer_tag="c")


def test_a_single_active_consumer(channel: Channel, declared: Callable[..., str]) -> None:
    name = declared(x_single_active_consumer=True)
    first, second = channel.connection.channel(), channel.connection.channel()
    first.ok("basic.consume", queue=name, consumer_tag="a", no_ack=True)
    second.ok("basic.consume", queue=name, consumer_tag="b", no_ack=True)
    channel.fill(name, "01")
    assert first.bodies(2) == [b"0", b"1"]
    assert second.settle(name) == []

    first.ok("basic.cancel", consumer_tag="a")

    channel.fill(name, "2")
    assert second.bodies(1) == [b"2"]


def test_priorities_of_consumers_that_wait(
    broker: BrokerUnderTest, channel: Channel, declared: Callable[..., str]
) -> None:
    """RabbitMQ's quorum queues take the oldest, whatever its priority; its classic queues the highest."""
    name = declared(x_single_active_consumer=True)
    consumers = {}
    for tag, priority in (("a", 0), ("b", 1), ("c", 5)):
        consumers[tag] = channel.connection.channel()
        arguments = {"x-priority": priority}
        consumers[tag].ok(
            "basic.consume", queue=name, consumer_tag=tag, no_ack=True, arguments=arguments
        )

    consumers["a"].ok("basic.cancel", consumer_tag="a")
    channel.fill(name, "0")

    assert consumers[broker.expected(rabbitmq="b", leveret="c")].bodies(1) == [b"0"]


def test_get_beside_a_single_active_consumer_is_refused(
    channel: Channel, declared: Callable[..., str]
) -> None:
    name = declared(x_single_active_consumer=True)

    error = channel.error("basic.get", queue=name)

    text = (
        f"RESOURCE_LOCKED - cannot obtain access to locked queue '{name}' in vhost '/'. basic.get"
        " operations are not supported by quorum queues with single active consumer"
    )
    assert error == soft(405, text, "basic.get")


@pytest.mark.parametrize("mode", [1, 2, None])
def test_messages_of_every_delivery_mode_are_confirmed(
    channel: Channel, quorum: str, mode: int | None
) -> None:
    channel.ok("confirm.select")
    properties = {} if mode is None else {"delivery_mode": mode}

    channel.publish(quorum, "m", **properties)

    channel.read_confirms({1})
    got = channel.get(quorum)
    assert got.properties.get("delivery_mode") == mode


def counts(events: list[Any]) -> list[Any]:
    return [event.properties.get("headers", {}).get("x-delivery-count") for event in events]


def test_deliveries_tell_how_often_a_message_came_back(channel: Channel, quorum: str) -> None:
    channel.publish(quorum, "m", headers={"z": 1, "a": 2})
    channel.ok("basic.consume", queue=quorum)

    came = []
    for tag in (1, 2, 3):
        (event,) = channel.deliveries(1)
        came.append((event.redelivered, event.properties["headers"]))
        channel.send("basic.nack", delivery_tag=tag, requeue=True)

    assert came == [
        (False, {"z": 1, "a": 2}),
        (True, {"a": 2, "x-delivery-count": 1, "z": 1}),
        (True, {"a": 2, "x-delivery-count": 2, "z": 1}),
    ]
    assert list(came[2][1]) == ["a", "x-delivery-count", "z"]


def test_a_get_tells_it_also_the_first_time(channel: Channel, quorum: str) -> None:
    channel.publish(quorum, "m")
    channel.ready(quorum)

    came = []
    for tag in (1, 2):
        event = channel.get(quorum, no_ack=False)
        came.append((event.redelivered, event.properties["headers"]))
        channel.send("basic.reject", delivery_tag=tag, requeue=True)
        channel.ready(quorum)
    came.append((True, channel.get(quorum).properties["headers"]))

    assert came == [(bool(n), {"x-delivery-count": n}) for n in range(3)]


def test_the_end_of_a_channel_counts(connect: Connect, channel: Channel, quorum: str) -> None:
    channel.publish(quorum, "m")
    for how in ("channel", "socket"):
        connection = connect()
        consumer = connection.channel()
        consumer.ok("basic.consume", queue=quorum)
        consumer.deliveries(1)
        if how == "channel":
            consumer.ok("channel.close")
        connection.drop()

    channel.ok("basic.consume", queue=quorum)
    assert counts(channel.deliveries(1)) == [2]


def test_what_was_never_settled_is_not_counted(channel: Channel, quorum: str) -> None:
    channel.fill(quorum, "ab")
    channel.ok("basic.consume", queue=quorum)
    assert counts(channel.deliveries(2)) == [None, None]

    channel.send("basic.nack", delivery_tag=2, requeue=True)
    assert counts(channel.deliveries(1)) == [1]


@pytest.mark.parametrize(("limit", "times"), [(0, 1), (1, 2), (3, 4), (-1, 1)])
def test_a_message_that_came_back_too_often_is_dropped(
    channel: Channel, declared: Callable[..., str], limit: int, times: int
) -> None:
    name = declared(x_delivery_limit=limit)
    channel.fill(name, "m")
    channel.ok("basic.consume", queue=name)

    for tag in range(1, times + 1):
        channel.deliveries(1)
        channel.send("basic.nack", delivery_tag=tag, requeue=True)

    assert channel.settle(name) == []
    channel.ok("basic.cancel", consumer_tag="")
    assert channel.ready(name) == 0


def test_what_came_back_too_often_is_dead_lettered(
    channel: Channel, declared: Callable[..., str], litter: Callable[..., None]
) -> None:
    channel.ok("queue.declare", queue=(dead := "dead-letters-of-quorum"), durable=True)
    litter(dead)
    name = declared(x_delivery_limit=1, x_dead_letter_exchange="", x_dead_letter_routing_key=dead)
    channel.publish(name, "m", headers={"own": 1})
    channel.ok("basic.consume", queue=name)
    for tag in (1, 2):
        channel.deliveries(1)
        channel.send("basic.nack", delivery_tag=tag, requeue=True)
    channel.settle(name)
    while not channel.ready(dead):
        pass

    got = channel.get(dead)

    headers = got.properties["headers"]
    (death,) = headers["x-death"]
    assert (death["reason"], death["queue"], death["count"]) == ("delivery_limit", name, 1)
    assert headers["x-first-death-reason"] == "delivery_limit"
    assert (headers["own"], "x-delivery-count" in headers) == (1, False)


@pytest.mark.parametrize("mode", [1, 2])
def test_dead_letters_are_confirmed_to_a_quorum_queue(
    channel: Channel, quorum: str, litter: Callable[..., None], mode: int
) -> None:
    source = f"{quorum}-source"
    litter(source)
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": quorum}
    channel.ok("queue.declare", queue=source, arguments=arguments)
    channel.publish(source, "m", delivery_mode=mode)
    channel.ready(source)
    tag = channel.get(source, no_ack=False).delivery_tag
    channel.send("basic.reject", delivery_tag=tag, requeue=False)
    channel.settle(source)
    while not channel.ready(quorum):
        pass

    got = channel.get(quorum)
    assert (got.body, got.properties["headers"]["x-death"][0]["reason"]) == (b"m", "rejected")


def test_a_limit_that_is_no_number_is_none(channel: Channel, declared: Callable[..., str]) -> None:
    name = declared(x_delivery_limit="a")
    channel.fill(name, "m")
    channel.ok("basic.consume", queue=name)

    for tag in range(1, 6):
        channel.deliveries(1)
        channel.send("basic.nack", delivery_tag=tag, requeue=True)

    assert counts(channel.deliveries(1)) == [5]


def test_a_policy_sets_the_limit(
    broker: BrokerUnderTest, channel: Channel, name: str, declared: Callable[..., str]
) -> None:
    pattern = f"^{name}$"
    broker.control("set_policy", name, pattern, '{"delivery-limit":1}', "--apply-to", "queues")
    try:
        declared(x_delivery_limit=5)
        channel.fill(name, "m")
        channel.ok("basic.consume", queue=name)
        for tag in (1, 2):
            channel.deliveries(1)
            channel.send("basic.nack", delivery_tag=tag, requeue=True)
        assert channel.settle(name) == []
    finally:
        broker.control("clear_policy", name)


def test_a_vhost_says_of_which_type_queues_are_without_one(
    broker: BrokerUnderTest, connect: Connect, name: str
) -> None:
    broker.control("add_vhost", name, "--default-queue-type", "quorum")
    try:
        broker.control("set_permissions", "-p", name, "guest", ".*", ".*", ".*")
        channel = connect(vhost=name).channel()
        channel.ok("queue.declare", queue="q", durable=True)
        channel.ok("queue.declare", queue="q", durable=True, arguments=QUORUM)
        others: list[dict[str, Any]] = [
            {"durable": False},
            {"durable": True, "auto_delete": True},
            {"durable": True, "exclusive": True},
            {"durable": True, "arguments": {"x-queue-type": "classic"}},
        ]
        for number, fields in enumerate(others):
            channel.ok("queue.declare", queue=f"c{number}", **fields)
        listed = broker.control("list_queues", "-q", "-p", name, "name", "type")
        rows = dict(line.split("\t") for line in listed.splitlines() if "\t" in line)
        assert {row: kind for row, kind in rows.items() if row != "name"} == {
            "q": "quorum", "c0": "classic", "c1": "classic", "c2": "classic", "c3": "classic",
        }  # fmt: skip

        arguments = {"x-queue-type": "classic"}
        error = channel.error("queue.declare", queue="q", durable=True, arguments=arguments)
        assert error == soft(
            406,
            f"{FAILED}inequivalent arg 'x-queue-type' for queue 'q' in vhost '{name}': received"
            " 'classic' but current is 'quorum'",
            "queue.declare",
        )
    finally:
        broker.control("delete_vhost", name)
