"""The firehose: copies of messages on ``amq.rabbitmq.trace``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conformance.raw import Channel, Event
from rigs.nodes import BrokerUnderTest
from rigs.waiting import wait_until


@pytest.fixture(autouse=True)
def _on(broker: BrokerUnderTest) -> Iterator[None]:
    broker.control("trace_on")
    yield
    broker.control("trace_off")


@pytest.fixture
def traced(channel: Channel, queue: str) -> str:
    """A queue with copies of what goes to and from ``queue``."""
    copies: str = channel.ok("queue.declare", exclusive=True).queue
    for key in ("publish.#", f"deliver.{queue}"):
        channel.ok("queue.bind", queue=copies, exchange="amq.rabbitmq.trace", routing_key=key)
    return copies


def copy_of(channel: Channel, traced: str, key: str) -> Event:
    """Get copies until one has this key."""
    got: list[Event] = []

    def is_there() -> bool:
        event = channel.get(traced)
        if event.name == "basic.get-ok":
            got.append(event)
        return bool(got) and got[-1].routing_key == key

    wait_until(is_there, lambda: str(got))
    return got[-1]


def test_a_publish_to_the_default_exchange(channel: Channel, queue: str, traced: str) -> None:
    channel.publish(
        queue, "body", content_type="text/plain", priority=3, headers={"a": 1}, message_id="m"
    )

    copy = copy_of(channel, traced, "publish.")

    headers = copy.properties["headers"]
    assert copy.exchange == "amq.rabbitmq.trace"
    assert copy.body == b"body"
    assert set(copy.properties) == {"headers"}
    assert list(headers) == [
        "exchange_name", "routing_keys", "properties", "node",
        "vhost", "connection", "channel", "user", "routed_queues",
    ]  # fmt: skip
    assert headers["exchange_name"] == ""
    assert headers["routing_keys"] == [queue]
    assert list(headers["properties"].items()) == [
        ("message_id", "m"), ("priority", 3), ("headers", {"a": 1}), ("content_type", "text/plain"),
    ]  # fmt: skip
    assert (headers["vhost"], headers["channel"], headers["user"]) == ("/", 1, "guest")
    assert " -> " in headers["connection"]
    assert headers["routed_queues"] == [queue]


def test_a_publish_that_no_queue_gets(channel: Channel, traced: str, name: str) -> None:
    copied = {"CC": ["cc"], "BCC": ["bcc"]}
    channel.publish(name, "body", exchange="amq.direct", headers=copied)

    headers = copy_of(channel, traced, "publish.amq.direct").properties["headers"]

    assert headers["routed_queues"] == []
    assert headers["routing_keys"] == [name, "cc", "bcc"]
    assert headers["properties"] == {"headers": {"CC": ["cc"]}}


@pytest.mark.parametrize("by", ["get", "consume"])
def test_a_delivery(channel: Channel, queue: str, traced: str, by: str) -> None:
    channel.publish(queue, "body", delivery_mode=2)
    if by == "get":
        channel.get(queue, no_ack=False)
    else:
        channel.ok("basic.consume", queue=queue, consumer_tag="t")
        channel.read()
        channel.ok("basic.cancel", consumer_tag="t")

    first = copy_of(channel, traced, f"deliver.{queue}")
    channel.ok("basic.recover", requeue=True)
    channel.get(queue, no_ack=False)
    second = copy_of(channel, traced, f"deliver.{queue}")

    headers = first.properties["headers"]
    assert first.body == b"body"
    assert list(headers) == [
        "exchange_name", "routing_keys", "properties", "node",
        "redelivered", "vhost", "connection", "channel", "user",
    ]  # fmt: skip
    assert headers["properties"] == {"delivery_mode": 2}
    assert headers["redelivered"] == 0
    assert second.properties["headers"]["redelivered"] == 1
