"""Every argument of queue.declare and basic.consume, whether its effect is there yet or not."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.raw import Channel, soft
from conformance.wire import Typed

TOO_LARGE = Typed("l", 315360000001)


def _not_for_classic(*keys: str) -> list[tuple[dict[str, Any], str]]:
    return [
        (
            {key: 5},
            f"invalid arg '{key}' for queue '{{}}' in vhost '/' of queue type rabbit_classic_queue",
        )
        for key in keys
    ]


def _invalid(key: str, value: Any, reason: str, **others: Any) -> tuple[dict[str, Any], str]:
    reason = reason.replace("{", "{{").replace("}", "}}")
    return {key: value} | others, f"invalid arg '{key}' for queue '{{}}' in vhost '/': {reason}"


INVALID = [
    _invalid("x-message-ttl", -1, "{value_negative,-1}"),
    _invalid("x-message-ttl", "abc", '"expected integer, got longstr"'),
    _invalid("x-message-ttl", 1.5, '"expected integer, got double"'),
    _invalid("x-message-ttl", Typed("f", 1.5), '"expected integer, got float"'),
    _invalid("x-message-ttl", TOO_LARGE, "{value_too_large,315360000001}"),
    _invalid("x-expires", 0, "{value_zero,0}"),
    _invalid("x-expires", -5, "{value_negative,-5}"),
    _invalid("x-expires", "10", '"expected integer, got longstr"'),
    _invalid("x-expires", TOO_LARGE, "{value_too_large,315360000001}"),
    _invalid("x-max-length", -1, "{value_negative,-1}"),
    _invalid("x-max-length", "5", '"expected integer, got longstr"'),
    _invalid("x-max-length-bytes", -1, "{value_negative,-1}"),
    _invalid("x-max-priority", 256, "{max_value_exceeded,256}"),
    _invalid("x-max-priority", -1, "{value_negative,-1}"),
    _invalid("x-max-priority", "a", '"expected integer, got longstr"'),
    _invalid("x-overflow", "bogus", "invalid_overflow"),
    _invalid("x-overflow", Typed("b", 5), "{unacceptable_type,byte}"),
    _invalid("x-queue-mode", "bogus", "\"unsupported queue mode 'bogus'\""),
    _invalid("x-queue-mode", True, "{unacceptable_type,bool}"),
    _invalid("x-queue-version", 3, "\"unsupported queue version '3'\""),
    _invalid("x-single-active-consumer", "yes", "{unacceptable_type,longstr}"),
    _invalid("x-dead-letter-routing-key", "k", "routing_key_but_no_dlx_defined"),
    (
        {"x-queue-type": "bogus"},
        "invalid arg 'x-queue-type' for queue '{}' in vhost '/': \"unsupported queue type 'bogus'\"",
    ),
    (
        {"x-queue-type": Typed("b", 1)},
        "invalid arg 'x-queue-type' for queue '{}' in vhost '/': {{unacceptable_type,byte}}",
    ),
    (
        {"x-dead-letter-exchange": Typed("b", 5)},
        "invalid type 'byte' for arg 'x-dead-letter-exchange' in queue '{}' in vhost '/'",
    ),
    (
        {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": Typed("b", 5)},
        "invalid arg 'x-dead-letter-routing-key' for queue '{}' in vhost '/': {{unacceptable_type,byte}}",
    ),
    *_not_for_classic(
        "x-delivery-limit",
        "x-max-age",
        "x-quorum-initial-group-size",
        "x-queue-leader-locator",
        "x-dead-letter-strategy",
        "x-max-in-memory-length",
        "x-max-in-memory-bytes",
    ),
]


@pytest.mark.parametrize(("arguments", "text"), INVALID)
def test_invalid_queue_arguments(
    channel: Channel, name: str, arguments: dict[str, Any], text: str
) -> None:
    error = channel.error("queue.declare", queue=name, exclusive=True, arguments=arguments)

    assert error == soft(406, "PRECONDITION_FAILED - " + text.format(name), "queue.declare")


@pytest.mark.parametrize(
    "arguments",
    [
        {"x-message-ttl": 0},
        {"x-message-ttl": Typed("l", 315360000000)},
        {"x-message-ttl": Typed("u", 5)},
        {"x-message-ttl": Typed("B", 5)},
        {"x-message-ttl": Typed("i", 5)},
        {"x-expires": 60000},
        {"x-max-length": 0},
        {"x-max-length-bytes": Typed("l", 1 << 40)},
        {"x-max-priority": 0},
        {"x-max-priority": 255},
        {"x-overflow": "drop-head"},
        {"x-overflow": "reject-publish"},
        {"x-queue-mode": "lazy"},
        {"x-queue-version": 2},
        {"x-single-active-consumer": False},
        {"x-queue-type": "classic"},
        {"x-queue-master-locator": "client-local"},
        {"x-dead-letter-exchange": "not-there"},
        {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "k"},
        {"x-anything": {"else": [1, "two", None, True]}},
    ],
)
def test_valid_queue_arguments(channel: Channel, name: str, arguments: dict[str, Any]) -> None:
    for _ in range(2):
        channel.ok("queue.declare", queue=name, exclusive=True, arguments=arguments)


def test_a_quorum_queue_must_be_durable(channel: Channel, name: str) -> None:
    error = channel.error("queue.declare", queue=name, arguments={"x-queue-type": "quorum"})

    text = f"PRECONDITION_FAILED - invalid property 'non-durable' for queue '{name}' in vhost '/'"
    assert error == soft(406, text, "queue.declare")


def test_a_quorum_queue_must_have_a_name(channel: Channel) -> None:
    error = channel.error("queue.declare", durable=True, arguments={"x-queue-type": "quorum"})

    text = "PRECONDITION_FAILED - Cannot declare a server-named queue for type rabbit_quorum_queue"
    assert error == soft(406, text, "queue.declare")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"x-priority": "high"}, "invalid arg 'x-priority' for queue '{}' in vhost '/': \"expected integer, got longstr\""),
        ({"x-cancel-on-ha-failover": "yes"}, "invalid arg 'x-cancel-on-ha-failover' for queue '{}' in vhost '/': {{unacceptable_type,longstr}}"),
        ({"x-stream-offset": 5}, "invalid arg 'x-stream-offset' for queue '{}' in vhost '/' of queue type rabbit_classic_queue"),
    ],
)  # fmt: skip
def test_invalid_consumer_arguments(
    channel: Channel, queue: str, arguments: dict[str, Any], reason: str
) -> None:
    error = channel.error("basic.consume", queue=queue, arguments=arguments)

    assert error == soft(406, "PRECONDITION_FAILED - " + reason.format(queue), "basic.consume")
