"""Queues with x-max-priority: the highest first, then the oldest."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conformance.raw import Channel

PRIORITIES = [None, 1, 9, 3, 0, 3, 255, 2, 1]
ORDER = [2, 3, 5, 6, 7, 1, 8, 0, 4]  # of a queue with priorities up to 3; a missing one is 0


@pytest.fixture(params=[False, True], ids=["transient", "durable"])
def queue(request: pytest.FixtureRequest, channel: Channel, name: str) -> Iterator[str]:
    arguments = {"x-max-priority": 3}
    channel.ok("queue.declare", queue=name, durable=request.param, arguments=arguments)
    yield name
    channel.call("queue.delete", queue=name)


def publish_all(channel: Channel, queue: str) -> None:
    for number, priority in enumerate(PRIORITIES):
        properties = {} if priority is None else {"priority": priority}
        channel.publish(queue, b"%d" % number, delivery_mode=2, **properties)


def got(channel: Channel, queue: str, count: int) -> list[int]:
    return [int(channel.get(queue).body) for _ in range(count)]


def test_the_highest_comes_first_and_the_oldest_of_it(channel: Channel, queue: str) -> None:
    publish_all(channel, queue)
    assert channel.ready(queue) == len(PRIORITIES)

    assert got(channel, queue, len(PRIORITIES)) == ORDER
    assert channel.get(queue).name == "basic.get-empty"


def test_a_consumer_gets_them_in_that_order(channel: Channel, queue: str) -> None:
    publish_all(channel, queue)
    channel.ready(queue)

    channel.ok("basic.consume", queue=queue, consumer_tag="c")

    events = channel.deliveries(len(PRIORITIES))
    assert [int(event.body) for event in events] == ORDER
    assert not any(event.redelivered for event in events)


def test_what_is_put_back_goes_to_its_place(channel: Channel, queue: str) -> None:
    publish_all(channel, queue)
    channel.ready(queue)
    tags = [channel.get(queue, no_ack=False).delivery_tag for _ in range(5)]

    for tag in (tags[3], tags[0], tags[4]):
        channel.send("basic.reject", delivery_tag=tag, requeue=True)
    channel.ready(queue)

    assert got(channel, queue, 7) == [ORDER[0], ORDER[3], ORDER[4], *ORDER[5:]]


def test_all_are_confirmed_purged_and_counted(channel: Channel, queue: str) -> None:
    channel.ok("confirm.select")
    publish_all(channel, queue)
    confirmed: set[int] = set()
    while len(confirmed) < len(PRIORITIES):
        event = channel.read()
        assert event.name == "basic.ack"
        first = 1 if event.multiple else event.delivery_tag
        confirmed.update(range(first, event.delivery_tag + 1))

    assert channel.ok("queue.purge", queue=queue).message_count == len(PRIORITIES)
    assert channel.get(queue).name == "basic.get-empty"
