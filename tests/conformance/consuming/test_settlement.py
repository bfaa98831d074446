"""ack, nack, reject and recover."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.conftest import Connect
from conformance.raw import Channel, hard, soft

UNKNOWN = "PRECONDITION_FAILED - unknown delivery tag {}"


def _drain(channel: Channel, queue: str) -> list[tuple[bytes, bool]]:
    came = []
    while (got := channel.get(queue)).name == "basic.get-ok":
        came.append((got.body, got.redelivered))
    return came


@pytest.mark.parametrize(
    ("method", "fields"),
    [
        ("basic.ack", {"delivery_tag": 7}),
        ("basic.nack", {"delivery_tag": 7}),
        ("basic.reject", {"delivery_tag": 7}),
        ("basic.ack", {"delivery_tag": 0}),
        ("basic.reject", {"delivery_tag": 0}),
        ("basic.ack", {"delivery_tag": 5, "multiple": True}),
        ("basic.nack", {"delivery_tag": 5, "multiple": True}),
    ],
)
def test_tags_that_nobody_has(channel: Channel, method: str, fields: dict[str, Any]) -> None:
    channel.send(method, **fields)

    text = UNKNOWN.format(fields["delivery_tag"])
    assert channel.read_error() == soft(406, text, method)


@pytest.mark.parametrize("method", ["basic.ack", "basic.nack"])
def test_all_of_nothing_is_fine(channel: Channel, method: str) -> None:
    channel.send(method, delivery_tag=0, multiple=True)

    assert channel.settle() == []


def test_all_means_all(channel: Channel, queue: str) -> None:
    channel.fill(queue, "abc")
    for _ in range(2):
        channel.get(queue, no_ack=False)

    channel.send("basic.ack", delivery_tag=0, multiple=True)

    channel.send("basic.ack", delivery_tag=1)
    assert channel.read_error()[2] == UNKNOWN.format(1)
    channel.send("channel.close-ok")
    channel.ok("channel.open")
    assert _drain(channel, queue) == [(b"c", False)]


def test_a_delivery_without_ack_has_no_tag_to_settle(channel: Channel, queue: str) -> None:
    channel.fill(queue, "a")
    channel.get(queue, no_ack=True)

    channel.send("basic.ack", delivery_tag=1)

    assert channel.read_error() == soft(406, UNKNOWN.format(1), "basic.ack")


def test_a_settled_tag_is_unknown_even_with_multiple(channel: Channel, queue: str) -> None:
    channel.fill(queue, "ab")
    for _ in range(2):
        channel.get(queue, no_ack=False)
    channel.send("basic.ack", delivery_tag=2)

    channel.send("basic.ack", delivery_tag=2, multiple=True)

    assert channel.read_error() == soft(406, UNKNOWN.format(2), "basic.ack")


def test_tags_are_the_channels_own(channel: Channel, queue: str) -> None:
    channel.fill(queue, "a")
    channel.get(queue, no_ack=False)
    other = channel.connection.channel()

    other.send("basic.ack", delivery_tag=1)

    assert other.read_error() == soft(406, UNKNOWN.format(1), "basic.ack")


@pytest.mark.parametrize("method", ["basic.nack", "basic.reject"])
def test_requeued_messages_go_back_to_their_place(
    channel: Channel, queue: str, method: str
) -> None:
    channel.fill(queue, "abcd")
    for _ in range(3):
        channel.get(queue, no_ack=False)

    for tag in (2, 1):
        channel.send(method, delivery_tag=tag, requeue=True)

    channel.settle(queue)
    assert _drain(channel, queue) == [(b"a", True), (b"b", True), (b"d", False)]


def test_nack_multiple(channel: Channel, queue: str) -> None:
    channel.fill(queue, "abcd")
    for _ in range(4):
        channel.get(queue, no_ack=False)

    channel.send("basic.nack", delivery_tag=3, multiple=True, requeue=True)

    channel.settle(queue)
    assert _drain(channel, queue) == [(b"a", True), (b"b", True), (b"c", True)]


@pytest.mark.parametrize("method", ["basic.nack", "basic.reject"])
def test_refused_messages_are_gone(channel: Channel, queue: str, method: str) -> None:
    channel.fill(queue, "ab")
    channel.get(queue, no_ack=False)

    channel.send(method, delivery_tag=1, requeue=False)

    channel.settle(queue)
    assert _drain(channel, queue) == [(b"b", False)]


def test_the_end_of_a_channel_requeues_all_in_order(channel: Channel, queue: str) -> None:
    channel.fill(queue, "abcde")
    other = channel.connection.channel()
    for _ in range(4):
        other.get(queue, no_ack=False)
    other.send("basic.ack", delivery_tag=2)

    other.ok("channel.close", reply_code=200)

    channel.settle(queue)
    assert _drain(channel, queue) == [(b"a", True), (b"c", True), (b"d", True), (b"e", False)]


def test_the_end_of_a_socket_requeues_too(connect: Connect, channel: Channel, queue: str) -> None:
    channel.fill(queue, "ab")
    channel.ok("basic.qos", prefetch_count=2)
    lost = connect()
    lost.channel().get(queue, no_ack=False)

    lost.drop()

    channel.ok("basic.consume", queue=queue)
    assert sorted(channel.bodies(2)) == [b"a", b"b"]


def test_recover(channel: Channel, queue: str) -> None:
    channel.fill(queue, "ab")
    channel.ok("basic.consume", queue=queue)
    channel.deliveries(2)

    channel.send("basic.recover", requeue=True)

    came = [channel.read() for _ in range(3)]
    assert [event.name for event in came] == ["basic.recover-ok", "basic.deliver", "basic.deliver"]
    assert [(event.body, event.delivery_tag, event.redelivered) for event in came[1:]] == [
        (b"a", 3, True),
        (b"b", 4, True),
    ]


def test_recover_async(channel: Channel, queue: str) -> None:
    channel.fill(queue, "a")
    channel.get(queue, no_ack=False)

    channel.send("basic.recover-async", requeue=True)

    assert channel.settle(queue) == []
    assert _drain(channel, queue) == [(b"a", True)]


@pytest.mark.parametrize("method", ["basic.recover", "basic.recover-async"])
def test_recover_without_requeue(channel: Channel, method: str) -> None:
    channel.send(method, requeue=False)

    assert channel.read_error() == hard(540, "NOT_IMPLEMENTED - requeue=false", method)


def test_settling_for_a_deleted_queue_is_fine(channel: Channel, queue: str) -> None:
    channel.fill(queue, "abc")
    for _ in range(3):
        channel.get(queue, no_ack=False)
    channel.ok("queue.delete", queue=queue)

    channel.send("basic.ack", delivery_tag=1)
    channel.send("basic.nack", delivery_tag=2, requeue=True)
    channel.send("basic.reject", delivery_tag=3)

    assert channel.settle() == []


def test_a_nacked_message_comes_again_to_its_only_consumer(channel: Channel, queue: str) -> None:
    channel.ok("basic.qos", prefetch_count=1)
    channel.ok("basic.consume", queue=queue)
    channel.publish(queue, "a")
    seen = []

    for _ in range(4):
        (delivery,) = channel.deliveries(1)
        seen.append((delivery.delivery_tag, delivery.redelivered))
        channel.send("basic.nack", delivery_tag=delivery.delivery_tag, requeue=True)

    assert seen == [(1, False), (2, True), (3, True), (4, True)]


def test_thousands_of_single_acks(channel: Channel, queue: str) -> None:
    publisher = channel.connection.channel()
    channel.ok("basic.qos", prefetch_count=50)
    channel.ok("basic.consume", queue=queue)
    for number in range(3000):
        publisher.publish(queue, b"%d" % number)

    for number in range(3000):
        (delivery,) = channel.deliveries(1)
        assert delivery.body == b"%d" % number
        channel.send("basic.ack", delivery_tag=delivery.delivery_tag)

    channel.settle(queue)
    channel.ok("channel.close", reply_code=200)
    assert publisher.ready(queue) == 0
