"""basic.consume, cancel, qos, get, and in what order deliveries come."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from conformance.conftest import Connect
from conformance.raw import Channel, hard, soft
from rigs.nodes import BrokerUnderTest

IN_USE = "ACCESS_REFUSED - queue '{}' in vhost '/' in exclusive use"


def test_a_tag_in_use(channel: Channel, queue: str) -> None:
    channel.ok("basic.consume", queue=queue, consumer_tag="a")

    error = channel.error("basic.consume", queue=queue, consumer_tag="a")

    text = "NOT_ALLOWED - attempt to reuse consumer tag 'a'"
    assert error == hard(530, text, "basic.consume")


def test_a_tag_of_the_brokers_making(channel: Channel, queue: str) -> None:
    tag = channel.ok("basic.consume", queue=queue).consumer_tag

    assert re.fullmatch(r"amq\.ctag-[\w-]{22}", tag)


def test_a_tag_is_the_channels_own(channel: Channel, queue: str) -> None:
    channel.ok("basic.consume", queue=queue, consumer_tag="a")

    channel.connection.channel().ok("basic.consume", queue=queue, consumer_tag="a")


def test_consume_from_a_missing_queue(channel: Channel, name: str) -> None:
    text = f"NOT_FOUND - no queue '{name}' in vhost '/'"

    assert channel.error("basic.consume", queue=name) == soft(404, text, "basic.consume")


def test_cancel_an_unknown_tag(channel: Channel) -> None:
    assert channel.ok("basic.cancel", consumer_tag="none").consumer_tag == "none"


def test_an_exclusive_consumer_wants_to_be_alone(channel: Channel, queue: str) -> None:
    channel.ok("basic.consume", queue=queue)

    error = channel.error("basic.consume", queue=queue, exclusive=True)

    assert error == soft(403, IN_USE.format(queue), "basic.consume")


def test_an_exclusive_consumer_stays_alone(channel: Channel, queue: str) -> None:
    channel.ok("basic.consume", queue=queue, exclusive=True, consumer_tag="only")
    other = channel.connection.channel()

    error = other.error("basic.consume", queue=queue)
    assert error == soft(403, IN_USE.format(queue), "basic.consume")

    channel.ok("basic.cancel", consumer_tag="only")
    channel.ok("basic.consume", queue=queue)


def test_get_beside_an_exclusive_consumer(channel: Channel, queue: str) -> None:
    channel.ok("basic.qos", prefetch_count=1)
    channel.ok("basic.consume", queue=queue, exclusive=True)
    channel.fill(queue, "ab")

    assert channel.connection.channel().get(queue).body == b"b"


def test_no_local_is_ignored(channel: Channel, queue: str) -> None:
    channel.ok("basic.consume", queue=queue, no_local=True, no_ack=True)

    channel.publish(queue, "mine")

    assert channel.bodies(1) == [b"mine"]


def test_consume_ok_comes_before_the_first_delivery(channel: Channel, queue: str) -> None:
    channel.fill(queue, "ab")

    channel.send("basic.consume", queue=queue, consumer_tag="c", no_ack=True)

    came = [channel.read() for _ in range(3)]
    assert [event.name for event in came] == ["basic.consume-ok", "basic.deliver", "basic.deliver"]
    assert [(event.delivery_tag, event.body) for event in came[1:]] == [(1, b"a"), (2, b"b")]
    assert (came[1].consumer_tag, came[1].redelivered) == ("c", False)
    assert (came[1].exchange, came[1].routing_key) == ("", queue)


def test_higher_priority_first_as_far_as_its_prefetch_goes(channel: Channel, queue: str) -> None:
    low, high = channel.connection.channel(), channel.connection.channel()
    low.ok("basic.consume", queue=queue, consumer_tag="low")
    high.ok("basic.qos", prefetch_count=2)
    high.ok("basic.consume", queue=queue, consumer_tag="high", arguments={"x-priority": 10})

    channel.fill(queue, "abcd")

    assert high.bodies(2) == [b"a", b"b"]
    assert low.bodies(2) == [b"c", b"d"]
    high.send("basic.ack", delivery_tag=2, multiple=True)
    high.settle(queue)
    channel.fill(queue, "e")
    assert high.bodies(1) == [b"e"]


def test_round_robin(channel: Channel, queue: str) -> None:
    for tag in "abc":
        channel.ok("basic.consume", queue=queue, consumer_tag=tag, no_ack=True)

    for number in range(7):
        channel.publish(queue, str(number))

    assert "".join(event.consumer_tag for event in channel.deliveries(7)) == "abcabca"


def test_a_channel_gets_a_backlog_in_order_whichever_of_its_consumers_takes_it(
    channel: Channel, queue: str
) -> None:
    for number in range(50):
        channel.publish(queue, str(number))
    channel.settle(queue)
    channel.ok("basic.qos", prefetch_count=20)
    for tag in "abc":
        channel.send("basic.consume", queue=queue, consumer_tag=tag, nowait=True)

    bodies = channel.bodies(50)

    assert bodies == [b"%d" % number for number in range(50)]


def test_a_prefetch_for_the_whole_channel(channel: Channel, queue: str) -> None:
    second = channel.ok("queue.declare", exclusive=True).queue
    channel.ok("basic.qos", prefetch_count=3, global_=True)
    for name in (queue, second):
        channel.ok("basic.consume", queue=name)
    publisher = channel.connection.channel()
    for name in (queue, second):
        publisher.fill(name, "abc")

    first = channel.settle(queue, second)

    assert [event.name for event in first] == ["basic.deliver"] * 3
    channel.send("basic.ack", delivery_tag=first[-1].delivery_tag, multiple=True)
    assert len(channel.settle(queue, second)) == 3


def test_a_prefetch_for_consumers_started_later(channel: Channel, queue: str) -> None:
    channel.ok("basic.qos", prefetch_count=3)
    for tag in "ab":
        channel.ok("basic.consume", queue=queue, consumer_tag=tag)
    channel.ok("basic.qos", prefetch_count=1)
    channel.ok("basic.consume", queue=queue, consumer_tag="c")

    channel.connection.channel().fill(queue, "0123456789")

    tags = sorted(event.consumer_tag for event in channel.settle(queue))
    assert "".join(tags) == "aaabbbc"


def test_a_prefetch_for_the_channel_takes_effect_now(channel: Channel, queue: str) -> None:
    channel.ok("basic.consume", queue=queue)
    channel.ok("basic.qos", prefetch_count=2, global_=True)

    channel.connection.channel().fill(queue, "abcde")

    assert len(channel.settle(queue)) == 2
    channel.ok("basic.qos", prefetch_count=4, global_=True)
    assert len(channel.settle(queue)) == 2
    channel.ok("basic.qos", prefetch_count=0, global_=True)
    assert len(channel.settle(queue)) == 1


def test_a_prefetch_in_bytes(channel: Channel) -> None:
    error = channel.error("basic.qos", prefetch_size=10)

    assert error == hard(540, "NOT_IMPLEMENTED - prefetch_size!=0 (10)", "basic.qos")


def test_both_prefetches_hold(channel: Channel, queue: str) -> None:
    channel.ok("basic.qos", prefetch_count=2)
    channel.ok("basic.qos", prefetch_count=3, global_=True)
    for tag in "ab":
        channel.ok("basic.consume", queue=queue, consumer_tag=tag)

    channel.connection.channel().fill(queue, "abcdef")

    assert len(channel.settle(queue)) == 3


def test_a_message_that_was_got_is_not_part_of_the_channels_prefetch(
    broker: BrokerUnderTest, channel: Channel, queue: str
) -> None:
    """RabbitMQ counts it when the prefetch is set, and does not give its place back with the ack."""
    channel.fill(queue, "abcdef")
    channel.ready(queue)
    got = channel.get(queue, no_ack=False)
    channel.ok("basic.qos", prefetch_count=3, global_=True)

    channel.ok("basic.consume", queue=queue)

    came = len(channel.settle(queue))
    channel.send("basic.ack", delivery_tag=got.delivery_tag)
    assert (came, len(channel.settle(queue))) == broker.expected(rabbitmq=(2, 0), leveret=(3, 0))


def test_prefetch_goes_on_with_acks(channel: Channel, queue: str) -> None:
    channel.ok("basic.qos", prefetch_count=1)
    channel.ok("basic.consume", queue=queue)
    channel.connection.channel().fill(queue, "abc")

    bodies = []
    for _ in range(3):
        (delivery,) = channel.deliveries(1)
        assert channel.settle(queue) == []
        bodies.append(delivery.body)
        channel.send("basic.ack", delivery_tag=delivery.delivery_tag)
    assert bodies == [b"a", b"b", b"c"]


def test_no_ack_knows_no_prefetch(channel: Channel, queue: str) -> None:
    channel.ok("basic.qos", prefetch_count=1)
    channel.ok("basic.qos", prefetch_count=1, global_=True)
    channel.ok("basic.consume", queue=queue, no_ack=True)

    channel.connection.channel().fill(queue, "abc")

    assert channel.bodies(3) == [b"a", b"b", b"c"]


def test_no_ack_waits_while_the_channel_has_no_room(
    channel: Channel, name: str, litter: Callable[..., None]
) -> None:
    mine, other = name + "-1", name + "-2"
    litter(mine, other)
    for queue in (mine, other):
        channel.ok("queue.declare", queue=queue)
    channel.ok("basic.qos", prefetch_count=1, global_=True)
    channel.ok("basic.consume", queue=mine, consumer_tag="a")
    channel.publish(mine, "1")
    (first,) = channel.deliveries(1)
    channel.ok("basic.consume", queue=other, consumer_tag="n", no_ack=True)
    channel.publish(other, "2")
    assert channel.settle(mine, other) == []

    channel.send("basic.ack", delivery_tag=first.delivery_tag)

    assert channel.bodies(1) == [b"2"]


def test_queues_share_the_room_of_a_channel(
    channel: Channel, name: str, litter: Callable[..., None]
) -> None:
    queues = [f"{name}-{number}" for number in range(3)]
    litter(*queues)
    channel.ok("basic.qos", prefetch_count=1, global_=True)
    for queue in queues:
        channel.ok("queue.declare", queue=queue)
        for _ in range(40):
            channel.publish(queue, "m")
        assert channel.ready(queue) == 40
        channel.ok("basic.consume", queue=queue)

    for _ in range(39):
        (delivery,) = channel.deliveries(1)
        channel.send("basic.ack", delivery_tag=delivery.delivery_tag)

    assert all(channel.ready(queue) < 39 for queue in queues)


def test_get_knows_no_prefetch(channel: Channel, queue: str) -> None:
    channel.ok("basic.qos", prefetch_count=1, global_=True)
    channel.fill(queue, "abc")

    got = [channel.get(queue, no_ack=False) for _ in range(3)]

    assert [(event.body, event.message_count) for event in got] == [(b"a", 2), (b"b", 1), (b"c", 0)]
    assert channel.get(queue).name == "basic.get-empty"


def test_delivery_tags_count_for_the_channel(channel: Channel, queue: str) -> None:
    channel.fill(queue, "abc")

    tags = [channel.get(queue, no_ack=True).delivery_tag, channel.get(queue).delivery_tag]
    channel.ok("basic.consume", queue=queue, no_ack=True)
    tags += [event.delivery_tag for event in channel.deliveries(1)]

    assert tags == [1, 2, 3]


@pytest.mark.parametrize(("capable", "told"), [(True, ["basic.cancel"]), (False, [])])
def test_a_consumer_hears_that_its_queue_is_deleted(
    connect: Connect, channel: Channel, queue: str, capable: bool, told: list[str]
) -> None:
    consumer = connect(capabilities={"consumer_cancel_notify": capable}).channel()
    consumer.ok("basic.consume", queue=queue, consumer_tag="c")

    channel.ok("queue.delete", queue=queue)

    if capable:
        event = consumer.read()
        assert (event.name, event.consumer_tag, event.nowait) == ("basic.cancel", "c", True)
    assert [event.name for event in consumer.settle()] == []
    consumer.ok("basic.cancel", consumer_tag="c")


def test_who_deletes_the_queue_of_its_own_consumers_hears_delete_ok_first(
    channel: Channel, queue: str
) -> None:
    for tag in ("a", "b"):
        channel.ok("basic.consume", queue=queue, consumer_tag=tag)

    channel.send("queue.delete", queue=queue)

    events = [channel.read() for _ in range(3)]
    assert events[0].name == "queue.delete-ok"
    assert [event.consumer_tag for event in events[1:]] == ["a", "b"]


def test_a_client_that_answers_the_cancel(
    connect: Connect, channel: Channel, queue: str, broker: BrokerUnderTest
) -> None:
    """Differs from RabbitMQ: Leveret takes no notice, RabbitMQ closes the connection."""
    consumer = connect().channel()
    consumer.ok("basic.consume", queue=queue, consumer_tag="c")
    channel.ok("queue.delete", queue=queue)
    assert consumer.read().name == "basic.cancel"

    consumer.send("basic.cancel-ok", consumer_tag="c")
    came = consumer.call("channel.flow", active=True)

    assert came.name == broker.expected(rabbitmq="connection.close", leveret="channel.flow-ok")


def test_cancel_leaves_what_is_unacked(channel: Channel, queue: str) -> None:
    channel.fill(queue, "ab")
    channel.ok("basic.consume", queue=queue, consumer_tag="c")
    channel.deliveries(2)

    channel.ok("basic.cancel", consumer_tag="c")

    assert channel.ready(queue) == 0
    channel.send("basic.nack", delivery_tag=1, requeue=True)
    channel.send("basic.ack", delivery_tag=2)
    channel.settle(queue)
    got = channel.get(queue)
    assert (got.body, got.redelivered) == (b"a", True)


def test_nothing_is_delivered_after_cancel_ok(channel: Channel, queue: str) -> None:
    publisher = channel.connection.channel()
    channel.ok("basic.consume", queue=queue, consumer_tag="c", no_ack=True)
    for number in range(500):
        publisher.publish(queue, str(number))

    channel.send("basic.cancel", consumer_tag="c")
    names = []
    while not names or names[-1] != "basic.cancel-ok":
        names.append(channel.read().name)

    publisher.settle(queue)
    assert channel.settle(queue) == []
    assert channel.ready(queue) == 500 - (len(names) - 1)


def test_a_consumer_that_comes_back_gets_its_messages_in_order(
    connect: Connect, channel: Channel, queue: str
) -> None:
    channel.fill(queue, "abcdef")
    first = connect()
    one = first.channel()
    one.ok("basic.qos", prefetch_count=3)
    one.ok("basic.consume", queue=queue)
    one.deliveries(3)

    first.close()

    channel.ok("basic.consume", queue=queue, no_ack=True)
    came = channel.deliveries(6)
    assert b"".join(event.body for event in came) == b"abcdef"
    assert [event.redelivered for event in came] == [True] * 3 + [False] * 3


def test_a_consumer_that_does_not_read_does_not_hold_others_up(
    connect: Connect, channel: Channel, name: str, litter: Callable[..., None]
) -> None:
    slow, fast = name + "-slow", name + "-fast"
    litter(slow, fast)
    for queue in (slow, fast):
        channel.ok("queue.declare", queue=queue)
    sleeper = connect().channel()
    sleeper.ok("basic.consume", queue=slow, no_ack=True)
    for _ in range(60):
        channel.publish(slow, b"x" * 1_000_000)

    channel.publish(fast, "m")

    channel.ok("basic.consume", queue=fast, no_ack=True)
    assert channel.bodies(1) == [b"m"]
    assert all(len(body) == 1_000_000 for body in sleeper.bodies(60))
