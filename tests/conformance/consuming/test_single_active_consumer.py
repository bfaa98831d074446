"""Single active consumer: one gets all messages, and who takes over from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from conformance.conftest import Connect
from conformance.raw import Channel, soft
from rigs.nodes import BrokerUnderTest

SINGLE = {"x-single-active-consumer": True}


@pytest.fixture
def single(name: str, channel: Channel, litter: Callable[..., None]) -> str:
    channel.ok("queue.declare", queue=name, arguments=SINGLE)
    litter(name)
    return name


def consumer(channel: Channel, queue: str, tag: str, **options: Any) -> Channel:
    other = channel.connection.channel()
    other.ok("basic.consume", queue=queue, consumer_tag=tag, **options)
    return other


def test_only_the_first_gets_messages_and_no_priority_displaces_it(
    channel: Channel, single: str
) -> None:
    first = consumer(channel, single, "first", no_ack=True)
    others = [
        consumer(channel, single, "low", no_ack=True),
        consumer(channel, single, "high", no_ack=True, arguments={"x-priority": 10}),
    ]

    channel.fill(single, "abcd")

    assert first.bodies(4) == [b"a", b"b", b"c", b"d"]
    assert [other.settle(single) for other in others] == [[], []]


def test_the_highest_priority_takes_over_then_the_oldest(channel: Channel, single: str) -> None:
    tags = {"a": 0, "b": 1, "c": 5, "d": 5, "e": 0}
    channels = {
        tag: consumer(channel, single, tag, no_ack=True, arguments={"x-priority": priority})
        for tag, priority in tags.items()
    }

    order = ""
    while channels:
        channel.fill(single, "m")
        (tag,) = [tag for tag, each in channels.items() if each.settle(single)]
        channels.pop(tag).ok("basic.cancel", consumer_tag=tag)
        order += tag

    assert order == "acdbe"


@pytest.mark.parametrize("how", ["channel", "connection", "socket"])
def test_another_takes_over_with_what_was_unacked(
    connect: Connect, channel: Channel, single: str, how: str
) -> None:
    connection = connect()
    ended = connection.channel()
    ended.ok("basic.consume", queue=single, consumer_tag="a")
    own = connection.channel()
    own.ok("basic.consume", queue=single, consumer_tag="b", arguments={"x-priority": 0})
    waits = consumer(channel, single, "c", arguments={"x-priority": 0})
    channel.fill(single, "01")
    assert ended.bodies(2) == [b"0", b"1"]

    if how == "channel":
        ended.ok("channel.close")
        came = own.deliveries(2)
        assert waits.settle(single) == []
    else:
        if how == "connection":
            connection.close()
        connection.drop()
        came = waits.deliveries(2)

    assert [(event.body, event.redelivered) for event in came] == [(b"0", True), (b"1", True)]


def test_cancel_leaves_what_is_unacked_with_its_channel(channel: Channel, single: str) -> None:
    first = consumer(channel, single, "a")
    second = consumer(channel, single, "b")
    channel.fill(single, "0")
    first.deliveries(1)

    first.ok("basic.cancel", consumer_tag="a")

    channel.fill(single, "1")
    assert second.bodies(1) == [b"1"]
    first.send("basic.nack", delivery_tag=1, requeue=True)
    (again,) = second.deliveries(1)
    assert (again.body, again.redelivered) == (b"0", True)


def test_messages_that_wait_go_to_who_takes_over(
    broker: BrokerUnderTest, channel: Channel, single: str
) -> None:
    """RabbitMQ's queue does not deliver them, and crashes when another is published."""
    first = channel.connection.channel()
    first.ok("basic.qos", prefetch_count=1)
    first.ok("basic.consume", queue=single, consumer_tag="a")
    second = consumer(channel, single, "b")
    channel.fill(single, "012")
    first.deliveries(1)
    assert second.settle(single) == [], "the active one has no room, and no other gets any"

    first.ok("basic.cancel", consumer_tag="a")

    came = [event.body for event in second.settle(single)]
    assert came == broker.expected(rabbitmq=[], leveret=[b"1", b"2"])
    if came:
        channel.fill(single, "3")
        assert second.bodies(1) == [b"3"]


@pytest.mark.parametrize("others", [0, 1])
def test_no_consumer_may_be_exclusive(channel: Channel, single: str, others: int) -> None:
    for number in range(others):
        consumer(channel, single, str(number))

    error = channel.error("basic.consume", queue=single, exclusive=True)

    text = f"ACCESS_REFUSED - queue '{single}' in vhost '/' in exclusive use"
    assert error == soft(403, text, "basic.consume")


def test_get_beside_the_active_consumer(channel: Channel, single: str) -> None:
    first = channel.connection.channel()
    first.ok("basic.qos", prefetch_count=1)
    first.ok("basic.consume", queue=single)
    channel.fill(single, "ab")

    assert channel.get(single).body == b"b"


def test_all_consumers_count(channel: Channel, single: str) -> None:
    for tag in "abc":
        consumer(channel, single, tag)

    reply = channel.ok("queue.declare", queue=single, arguments=SINGLE)

    assert reply.consumer_count == 3


@pytest.mark.parametrize("cancelled", ["active", "waiting"])
def test_an_auto_delete_queue_ends_with_its_last_consumer(
    channel: Channel, name: str, cancelled: str
) -> None:
    channel.ok("queue.declare", queue=name, arguments=SINGLE, auto_delete=True)
    tags = ["active", "waiting"]
    channels = {tag: consumer(channel, name, tag) for tag in tags}

    channels[cancelled].ok("basic.cancel", consumer_tag=cancelled)
    channel.ok("queue.declare", queue=name, passive=True)
    (left,) = [tag for tag in tags if tag != cancelled]
    channels[left].ok("basic.cancel", consumer_tag=left)

    text = f"NOT_FOUND - no queue '{name}' in vhost '/'"
    assert channel.error("queue.declare", queue=name, passive=True) == soft(
        404, text, "queue.declare"
    )
