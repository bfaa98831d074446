"""Publishers that number their messages: a queue takes each in once (Leveret's own; RabbitMQ ignores the headers)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from conformance.conftest import Connect
from conformance.raw import Channel
from rigs.nodes import BrokerUnderTest


@pytest.fixture(autouse=True)
def of_leveret(broker: BrokerUnderTest) -> None:
    if broker.kind != "leveret":
        pytest.skip("RabbitMQ ignores these headers")


def send(channel: Channel, queue: str, seq: Any, epoch: Any = None, **options: Any) -> None:
    headers: dict[str, Any] = {"x-producer-id": options.pop("producer", "p"), "x-producer-seq": seq}
    if epoch is not None:
        headers["x-producer-epoch"] = epoch
    channel.publish(queue, str(seq), headers=headers, **options)


def answers(channel: Channel, count: int, first: int = 1) -> dict[int, str]:
    """Read confirms until the publishes from the first to this one are answered."""
    found: dict[int, str] = {}
    while len(found) < count - first + 1:
        event = channel.read()
        assert event.name in {"basic.ack", "basic.nack"}, event
        tags = range(first, event.delivery_tag + 1) if event.multiple else [event.delivery_tag]
        found.update({tag: event.name for tag in tags if tag not in found})
    return found


def bodies(channel: Channel, queue: str) -> list[str]:
    got = []
    while (event := channel.call("basic.get", queue=queue, no_ack=True)).name == "basic.get-ok":
        got.append(event.body.decode())
    return got


@pytest.fixture
def confirming(channel: Channel) -> Channel:
    channel.ok("confirm.select")
    return channel


@pytest.mark.parametrize("mode", [1, 2])
@pytest.mark.parametrize(
    "arguments", [{}, {"x-max-priority": 3}, {"x-queue-type": "quorum"}, {"x-queue-mode": "lazy"}]
)
def test_a_duplicate_is_confirmed_and_not_enqueued(
    confirming: Channel,
    name: str,
    litter: Callable[..., None],
    mode: int,
    arguments: dict[str, Any],
) -> None:
    confirming.ok("queue.declare", queue=name, durable=True, arguments=arguments)
    litter(name)
    for seq in (1, 2, 2, 5, 1, 5, 6):
        send(confirming, name, seq, delivery_mode=mode)

    assert set(answers(confirming, 7).values()) == {"basic.ack"}
    assert bodies(confirming, name) == ["1", "2", "5", "6"]


def test_a_mandatory_duplicate_is_routed(confirming: Channel, queue: str) -> None:
    send(confirming, queue, 1)
    send(confirming, queue, 1, mandatory=True)

    assert answers(confirming, 2) == {1: "basic.ack", 2: "basic.ack"}


def test_each_queue_of_a_fanout_filters_by_itself(
    confirming: Channel,
    name: str,
    queue: str,
    exchange: Callable[..., str],
    litter: Callable[..., None],
) -> None:
    fanout, other = exchange("fanout"), f"{name}-other"
    confirming.ok("queue.bind", queue=queue, exchange=fanout)
    send(confirming, "", 1, exchange=fanout)
    confirming.ok("queue.declare", queue=other)
    litter(other)
    confirming.ok("queue.bind", queue=other, exchange=fanout)
    send(confirming, "", 1, exchange=fanout)

    assert set(answers(confirming, 2).values()) == {"basic.ack"}
    assert (bodies(confirming, queue), bodies(confirming, other)) == (["1"], ["1"])


def test_a_higher_epoch_begins_anew_and_fences_the_lower(
    connect: Connect, confirming: Channel, queue: str
) -> None:
    send(confirming, queue, 5, 1)
    send(confirming, queue, 0, 2)
    assert set(answers(confirming, 2).values()) == {"basic.ack"}
    zombie = connect().channel()
    zombie.ok("confirm.select")

    send(zombie, queue, 6, 1)

    closed = zombie.read()
    assert (closed.name, closed.reply_code) == ("channel.close", 406)
    assert "x-producer-epoch 1 is lower than 2" in closed.reply_text
    assert bodies(confirming, queue) == ["5", "0"]


@pytest.mark.parametrize(
    ("headers", "named"),
    [
        ({"x-producer-id": "p"}, "x-producer-seq"),
        ({"x-producer-seq": 1}, "x-producer-id"),
        ({"x-producer-epoch": 1}, "x-producer-id"),
        ({"x-producer-id": "", "x-producer-seq": 1}, "x-producer-id"),
        ({"x-producer-id": "p" * 256, "x-producer-seq": 1}, "x-producer-id"),
        ({"x-producer-id": 7, "x-producer-seq": 1}, "x-producer-id"),
        ({"x-producer-id": "p", "x-producer-seq": "1"}, "x-producer-seq"),
        ({"x-producer-id": "p", "x-producer-seq": -1}, "x-producer-seq"),
        ({"x-producer-id": "p", "x-producer-seq": 1, "x-producer-epoch": "1"}, "x-producer-epoch"),
    ],
)
def test_malformed_headers_close_the_channel_and_are_named(
    channel: Channel, queue: str, headers: dict[str, Any], named: str
) -> None:
    channel.publish(queue, "x", headers=headers)

    closed = channel.read()
    assert (closed.name, closed.reply_code) == ("channel.close", 406)
    assert f"header '{named}'" in closed.reply_text


def test_a_refused_publish_can_be_sent_again_and_keeps_later_ones_out(
    confirming: Channel, name: str, litter: Callable[..., None]
) -> None:
    arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
    confirming.ok("queue.declare", queue=name, durable=True, arguments=arguments)
    litter(name)
    send(confirming, name, 1, delivery_mode=2)
    send(confirming, name, 2, delivery_mode=2)  # the queue is full
    send(confirming, name, 1, delivery_mode=2)  # a duplicate, whatever the limit
    assert answers(confirming, 3) == {1: "basic.ack", 2: "basic.nack", 3: "basic.ack"}
    assert bodies(confirming, name) == ["1"]

    send(confirming, name, 3, delivery_mode=2)  # 2 was never taken in
    send(confirming, name, 2, delivery_mode=2)

    assert answers(confirming, 5, 4) == {4: "basic.nack", 5: "basic.ack"}
    assert bodies(confirming, name) == ["2"]


def test_a_message_that_drop_head_removes_counts_as_taken_in(
    confirming: Channel, name: str, litter: Callable[..., None]
) -> None:
    confirming.ok("queue.declare", queue=name, arguments={"x-max-length": 1})
    litter(name)
    for seq in (1, 2, 1):
        send(confirming, name, seq)

    assert set(answers(confirming, 3).values()) == {"basic.ack"}
    assert bodies(confirming, name) == ["2"]


def test_a_transaction_is_filtered_when_it_is_committed(channel: Channel, queue: str) -> None:
    channel.ok("tx.select")
    for seq in (1, 2, 2):
        send(channel, queue, seq, delivery_mode=2)
    channel.ok("tx.commit")
    send(channel, queue, 2)
    send(channel, queue, 3)
    channel.ok("tx.commit")

    assert bodies(channel, queue) == ["1", "2", "3"]


def test_a_transaction_of_an_older_epoch_fails(channel: Channel, queue: str) -> None:
    channel.ok("tx.select")
    send(channel, queue, 1, 2)
    channel.ok("tx.commit")
    send(channel, queue, 2, 1)

    closed = channel.call("tx.commit")
    assert (closed.name, closed.reply_code) == ("channel.close", 406)


def test_a_transaction_that_was_refused_in_part_can_be_sent_again(
    connect: Connect, channel: Channel, name: str, litter: Callable[..., None]
) -> None:
    arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
    channel.ok("queue.declare", queue=name, durable=True, arguments=arguments)
    litter(name)
    channel.ok("tx.select")
    for seq in (1, 2, 3):
        send(channel, name, seq, delivery_mode=2)
    assert channel.call("tx.commit").reply_code == 406
    again = connect().channel()
    assert bodies(again, name) == ["1"]
    again.ok("tx.select")
    for seq in (1, 2):
        send(again, name, seq, delivery_mode=2)
    again.ok("tx.commit")

    assert bodies(again, name) == ["2"]


def test_a_dead_letter_is_not_filtered(
    confirming: Channel, queue: str, litter: Callable[..., None]
) -> None:
    name = f"{queue}-source"
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue}
    confirming.ok("queue.declare", queue=name, arguments=arguments)
    litter(name)
    send(confirming, queue, 9)  # the dead-letter queue knows the producer, with a higher sequence
    send(confirming, name, 1)
    answers(confirming, 2)
    event = confirming.call("basic.get", queue=name)
    confirming.send("basic.reject", delivery_tag=event.delivery_tag, requeue=False)
    confirming.ok("queue.declare", queue=queue, passive=True)

    assert bodies(confirming, queue) == ["9", "1"]


def test_a_purge_keeps_the_producers_and_a_deletion_does_not(
    confirming: Channel, name: str, litter: Callable[..., None]
) -> None:
    confirming.ok("queue.declare", queue=name, durable=True)
    litter(name)
    send(confirming, name, 1, delivery_mode=2)
    answers(confirming, 1)
    confirming.ok("queue.purge", queue=name)
    send(confirming, name, 1, delivery_mode=2)
    assert confirming.read().name == "basic.ack"
    assert bodies(confirming, name) == []
    confirming.ok("queue.delete", queue=name)
    confirming.ok("queue.declare", queue=name, durable=True)

    send(confirming, name, 1, delivery_mode=2)

    assert confirming.read().name == "basic.ack"
    assert bodies(confirming, name) == ["1"]


@pytest.mark.parametrize("no_ack", [True, False])
def test_messages_that_go_straight_to_a_consumer_are_filtered(
    connect: Connect, confirming: Channel, name: str, litter: Callable[..., None], no_ack: bool
) -> None:
    confirming.ok("queue.declare", queue=name, durable=True)
    litter(name)
    consumer = connect().channel()
    consumer.ok("basic.consume", queue=name, consumer_tag="c", no_ack=no_ack)
    for seq in (1, 1, 2, 1, 2, 3):
        send(confirming, name, seq, delivery_mode=2)

    assert set(answers(confirming, 6).values()) == {"basic.ack"}
    assert [consumer.read().body for _ in range(3)] == [b"1", b"2", b"3"]
    assert consumer.connection.channel(2).ok("queue.declare", queue=name, passive=True)
