"""The exchange type x-delayed-message, RabbitMQ's plug-in ``rabbitmq_delayed_message_exchange``.

On a RabbitMQ the tests are skipped when the plug-in is not enabled.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from conformance.raw import Channel, Connection, arrived, hard, soft
from conformance.wire import Typed
from rigs.nodes import BrokerUnderTest

Declare = Callable[..., str]
Connect = Callable[..., Connection]
KIND = "x-delayed-message"
SOON_MS = 100


@pytest.fixture(autouse=True)
def _has_type(broker: BrokerUnderTest, connect: Connect, name: str) -> None:
    if broker.kind == "rabbitmq":
        channel, own = connect().channel(), {"x-delayed-type": "direct"}
        reply = channel.call("exchange.declare", exchange=name, type=KIND, arguments=own)
        if reply.name != "exchange.declare-ok":
            pytest.skip(f"the plug-in with {KIND} is not enabled")
        channel.ok("exchange.delete", exchange=name)


@pytest.fixture
def delayed(exchange: Declare) -> Declare:
    """Declare an exchange that delays: ``delayed("topic")``."""

    def declare(inner: str = "direct", **options: Any) -> str:
        return exchange(KIND, arguments={"x-delayed-type": inner}, **options)

    return declare


def bound(channel: Channel, exchange: str, key: str = "k", **arguments: Any) -> str:
    """Bind a new queue and consume it."""
    queue: str = channel.ok("queue.declare", exclusive=True).queue
    channel.ok("queue.bind", queue=queue, exchange=exchange, routing_key=key, arguments=arguments)
    channel.ok("basic.consume", queue=queue, no_ack=True)
    return queue


def publish(
    channel: Channel, exchange: str, delay: Any, body: str = "m", key: str = "k", **more: Any
) -> None:
    headers = {"x-delay": delay, **more.pop("headers", {})}
    channel.publish(key, body, exchange=exchange, headers=headers, **more)


def in_time(channel: Channel, act: Callable[[int], str]) -> None:
    """Act while a message waits for its delay; with a longer one again if the message was due before.

    Args:
        channel: of the consumer.
        act: publishes the message with the delay in ms, acts, and returns the queue that gets it.
    """
    delay_ms = SOON_MS
    while True:
        began_s = time.monotonic()
        queue = act(delay_ms)
        if time.monotonic() - began_s < delay_ms / 1000:
            return
        channel.ok("queue.delete", queue=queue)
        channel.settle()
        delay_ms *= 4


def test_a_message_comes_when_it_is_due_as_it_was(channel: Channel, delayed: Declare) -> None:
    x = delayed()
    bound(channel, x)

    began_s = time.monotonic()
    publish(channel, x, SOON_MS, headers={"b": "1", "a": "2"}, content_type="t/x", priority=3)
    (event,) = channel.deliveries(1)

    assert time.monotonic() - began_s >= SOON_MS / 1000
    assert (event.exchange, event.routing_key, event.redelivered) == (x, "k", False)
    properties = event.properties
    assert list(properties["headers"].items()) == [("x-delay", SOON_MS), ("b", "1"), ("a", "2")]
    assert (properties["content_type"], properties["priority"]) == ("t/x", 3)


def test_copies_and_blind_copies_come_when_it_is_due(channel: Channel, delayed: Declare) -> None:
    x = delayed()
    for key in ("k", "cc", "bcc"):
        bound(channel, x, key)

    publish(channel, x, SOON_MS, headers={"CC": ["cc"], "BCC": ["bcc"]})

    events = channel.deliveries(3)
    assert [event.routing_key for event in events] == ["k"] * 3
    assert [set(event.properties["headers"]) for event in events] == [{"x-delay", "CC"}] * 3


def test_messages_come_in_the_order_in_which_they_are_due(
    channel: Channel, delayed: Declare
) -> None:
    x = delayed()
    bound(channel, x)

    for delay_ms, body in ((300, "c"), (100, "a"), (200, "b")):
        publish(channel, x, delay_ms, body)
    channel.publish("k", "now", exchange=x)

    assert channel.bodies(4) == [b"now", b"a", b"b", b"c"]


@pytest.mark.parametrize(
    "delay",
    [0, -1, Typed("l", -SOON_MS), Typed("S", b"0"), True, None],
    ids=str,
)
def test_without_a_positive_delay_messages_come_at_once(
    channel: Channel, delayed: Declare, delay: Any
) -> None:
    x = delayed()
    bound(channel, x)

    publish(channel, x, delay)
    channel.publish("k", "none", exchange=x)

    assert channel.bodies(2) == [b"m", b"none"]


@pytest.mark.parametrize(
    "delay",
    [
        Typed("b", 100),
        Typed("B", 100),
        Typed("s", 100),
        Typed("u", 100),
        Typed("i", 100),
        Typed("l", 100),
        Typed("f", 100.0),
        Typed("d", 100.9),
        Typed("S", b"100"),
    ],
    ids=str,
)
def test_a_delay_may_have_any_type_of_number_and_be_text(
    channel: Channel, delayed: Declare, delay: Any
) -> None:
    x = delayed()
    bound(channel, x)

    began_s = time.monotonic()
    publish(channel, x, delay)

    (event,) = channel.deliveries(1)
    assert time.monotonic() - began_s >= 0.1
    assert set(event.properties["headers"]) == {"x-delay"}


@pytest.mark.parametrize(
    ("inner", "binding", "key", "arguments"),
    [("topic", "a.#", "a.b", {}), ("fanout", "", "any", {}), ("headers", "", "", {"h": "1"})],
)
def test_the_inner_type_routes_when_a_message_is_due(
    channel: Channel,
    delayed: Declare,
    inner: str,
    binding: str,
    key: str,
    arguments: dict[str, Any],
) -> None:
    def act(delay_ms: int) -> str:
        x = delayed(inner)
        publish(channel, x, delay_ms, key=key, headers=arguments)
        return bound(channel, x, binding, **arguments)

    in_time(channel, act)

    assert channel.bodies(1) == [b"m"]


def test_a_message_nobody_wants_when_it_is_due_is_dropped(
    channel: Channel, delayed: Declare
) -> None:
    def act(delay_ms: int) -> str:
        x = delayed()
        queue = bound(channel, x)
        publish(channel, x, delay_ms)
        publish(channel, x, 2 * delay_ms, "later", key="other")
        channel.ok("queue.unbind", queue=queue, exchange=x, routing_key="k")
        channel.ok("queue.bind", queue=queue, exchange=x, routing_key="other")
        return queue

    in_time(channel, act)

    assert channel.bodies(1) == [b"later"]


def test_exchanges_bound_to_each_other(
    channel: Channel, exchange: Declare, delayed: Declare
) -> None:
    first, x, last = exchange("fanout"), delayed("fanout"), exchange("fanout")
    channel.ok("exchange.bind", destination=x, source=first)
    channel.ok("exchange.bind", destination=last, source=x)
    bound(channel, last)
    bound(channel, first, "direct way")

    publish(channel, first, SOON_MS, "m")

    early, late = channel.deliveries(2)
    assert early.properties["headers"] == {"x-delay": SOON_MS}
    assert late.properties["headers"] == {"x-delay": SOON_MS}
    assert (late.exchange, late.routing_key) == (first, "k")


def test_the_ttl_begins_when_a_message_is_due(channel: Channel, delayed: Declare) -> None:
    x = delayed()
    bound(channel, x)

    publish(channel, x, 3 * SOON_MS, expiration=str(SOON_MS))

    assert channel.bodies(1) == [b"m"]


def test_publishes_are_confirmed_before_they_are_due(channel: Channel, delayed: Declare) -> None:
    x = delayed(durable=True)
    channel.ok("confirm.select")

    publish(channel, x, 10_000, delivery_mode=2)

    channel.read_confirms({1})


def test_messages_outlive_their_connection(
    channel: Channel, connect: Connect, delayed: Declare
) -> None:
    x = delayed()
    bound(channel, x)
    other = connect()
    publisher = other.channel()
    publisher.ok("confirm.select")
    publish(publisher, x, 2 * SOON_MS)
    publisher.read_confirms({1})
    other.close()

    assert channel.bodies(1) == [b"m"]


def test_an_exchange_that_is_declared_again_in_time_has_its_messages(
    channel: Channel, delayed: Declare
) -> None:
    def act(delay_ms: int) -> str:
        x = delayed()
        publish(channel, x, delay_ms)
        channel.settle()
        channel.ok("exchange.delete", exchange=x)
        kind = {"x-delayed-type": "direct"}
        channel.ok("exchange.declare", exchange=x, type=KIND, arguments=kind)
        return bound(channel, x)

    in_time(channel, act)

    assert channel.bodies(1) == [b"m"]


def test_dead_letters_may_be_delayed_and_come_round(channel: Channel, delayed: Declare) -> None:
    x = delayed("fanout")
    queue: str = channel.ok(
        "queue.declare", exclusive=True, arguments={"x-dead-letter-exchange": x}
    ).queue
    channel.ok("queue.bind", queue=queue, exchange=x)
    publish(channel, "", 2 * SOON_MS, key=queue, expiration="0")

    headers = arrived(channel, queue).properties["headers"]
    assert abs(headers["x-delay"]) == 2 * SOON_MS  # RabbitMQ negates that of a dead letter
    assert [each["reason"] for each in headers["x-death"]] == ["expired"]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({}, soft(406, "PRECONDITION_FAILED - Invalid argument, 'x-delayed-type' must be an existing exchange type", "exchange.declare")),
        ({"x-delayed-type": 1}, soft(406, "PRECONDITION_FAILED - Invalid argument, 'x-delayed-type' must be an existing exchange type", "exchange.declare")),
        ({"x-delayed-type": KIND}, soft(406, f"PRECONDITION_FAILED - Invalid argument, '{KIND}' can't be used for 'x-delayed-type'", "exchange.declare")),
        ({"x-delayed-type": "x-nothing"}, hard(503, "COMMAND_INVALID - unknown exchange type 'x-nothing'", "exchange.declare")),
    ],
)  # fmt: skip
def test_the_inner_type_must_be_given(
    channel: Channel, name: str, arguments: dict[str, Any], error: tuple[str, int, str, str]
) -> None:
    assert channel.error("exchange.declare", exchange=name, type=KIND, arguments=arguments) == error


def test_another_inner_type_is_the_same_exchange(channel: Channel, delayed: Declare) -> None:
    x = delayed("topic")

    channel.ok("exchange.declare", exchange=x, type=KIND, arguments={"x-delayed-type": "direct"})
    assert channel.error("exchange.declare", exchange=x, type="topic")[:2] == ("channel", 406)
