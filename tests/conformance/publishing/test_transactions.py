"""tx.select, tx.commit, tx.rollback."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.conftest import Connect
from conformance.raw import Channel, hard, soft
from rigs.nodes import BrokerUnderTest
from rigs.waiting import wait_until

UNKNOWN = "PRECONDITION_FAILED - unknown delivery tag {}"


@pytest.fixture
def tx(connect: Connect) -> Channel:
    """A channel with a transaction."""
    channel = connect().channel()
    assert channel.ok("tx.select").name == "tx.select-ok"
    return channel


def _drain(channel: Channel, queue: str) -> list[tuple[bytes, bool]]:
    came = []
    while (got := channel.get(queue)).name == "basic.get-ok":
        came.append((got.body, got.redelivered))
    return came


# -- modes --------------------------------------------------------------------------------------------


def test_select_twice(tx: Channel) -> None:
    assert tx.ok("tx.select").name == "tx.select-ok"


def test_select_again_keeps_what_was_published(tx: Channel, channel: Channel, queue: str) -> None:
    tx.publish(queue, "m")
    tx.ok("tx.select")

    assert channel.ready(queue) == 0
    tx.ok("tx.commit")
    assert channel.ready(queue) == 1


def test_confirms_after_a_transaction(tx: Channel) -> None:
    text = "PRECONDITION_FAILED - cannot switch from tx to confirm mode"
    assert tx.error("confirm.select") == soft(406, text, "confirm.select")


def test_a_transaction_after_confirms(channel: Channel) -> None:
    channel.ok("confirm.select")

    text = "PRECONDITION_FAILED - cannot switch from confirm to tx mode"
    assert channel.error("tx.select") == soft(406, text, "tx.select")


@pytest.mark.parametrize("method", ["tx.commit", "tx.rollback"])
def test_without_select(channel: Channel, method: str) -> None:
    text = "PRECONDITION_FAILED - channel is not transactional"
    assert channel.error(method) == soft(406, text, method)


def test_a_reopened_channel_is_not_transactional(tx: Channel) -> None:
    tx.ok("channel.close")
    tx.ok("channel.open")

    assert tx.error("tx.commit")[1] == 406


@pytest.mark.parametrize("method", ["tx.commit", "tx.rollback"])
def test_an_empty_transaction(tx: Channel, method: str) -> None:
    for _ in range(2):
        assert tx.ok(method).name == f"{method}-ok"


# -- publishes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("mode", [1, 2])
def test_publishes_come_with_the_commit(
    tx: Channel, channel: Channel, litter: Any, name: str, durable: bool, mode: int
) -> None:
    channel.ok("queue.declare", queue=name, durable=durable)
    litter(name)
    for body in "abc":
        tx.publish(name, body, delivery_mode=mode)
    tx.settle()
    assert channel.ready(name) == 0

    assert tx.ok("tx.commit").name == "tx.commit-ok"

    assert _drain(channel, name) == [(b"a", False), (b"b", False), (b"c", False)]


def test_the_next_transaction_begins_with_the_commit(
    tx: Channel, channel: Channel, queue: str
) -> None:
    tx.publish(queue, "a")
    tx.ok("tx.commit")

    tx.publish(queue, "b")
    tx.settle()

    assert _drain(channel, queue) == [(b"a", False)]
    tx.ok("tx.commit")
    assert _drain(channel, queue) == [(b"b", False)]


def test_a_rollback_drops_publishes(tx: Channel, channel: Channel, queue: str) -> None:
    tx.publish(queue, "a")

    assert tx.ok("tx.rollback").name == "tx.rollback-ok"

    tx.publish(queue, "b")
    tx.ok("tx.commit")
    assert _drain(channel, queue) == [(b"b", False)]


@pytest.mark.parametrize("end", ["channel", "connection", "socket", "error"])
def test_the_end_of_the_channel_drops_publishes(
    tx: Channel, channel: Channel, queue: str, end: str
) -> None:
    tx.publish(queue, "a")
    tx.settle()

    if end == "channel":
        tx.ok("channel.close")
    elif end == "connection":
        tx.connection.close()
    elif end == "socket":
        tx.connection.drop()
    else:
        assert tx.error("basic.get", queue=f"{queue}-missing")[1] == 404

    assert channel.ready(queue) == 0


def test_publishes_of_a_commit_keep_their_order_over_queues_and_keys(
    tx: Channel, channel: Channel, exchange: Any, litter: Any, name: str
) -> None:
    topic = exchange("topic")
    queues = [f"{name}-{number}" for number in range(3)]
    litter(*queues)
    for number, queue in enumerate(queues):
        channel.ok("queue.declare", queue=queue)
        channel.ok("queue.bind", queue=queue, exchange=topic, routing_key=f"#.{number}.#")
    keys = ["0", "0.1", "1.2", "0.1.2", "2", "0"]
    for number, key in enumerate(keys):
        tx.publish(key, f"{number}", topic)

    tx.ok("tx.commit")

    assert [[body for body, _ in _drain(channel, queue)] for queue in queues] == [
        [b"0", b"1", b"3", b"5"],
        [b"1", b"2", b"3"],
        [b"2", b"3", b"4"],
    ]


def test_properties_of_publishes(tx: Channel, channel: Channel, queue: str) -> None:
    tx.publish(queue, "a", headers={"k": 1}, correlation_id="c", expiration="60000")
    tx.publish(queue, "b", expiration="0")
    tx.publish(queue, "c", headers={"CC": [queue], "BCC": ["x"]})

    tx.ok("tx.commit")

    first, second = channel.get(queue), channel.get(queue)
    assert first.properties == {
        "headers": {"k": 1},
        "correlation_id": "c",
        "expiration": "60000",
    }
    assert (second.body, second.properties) == (b"c", {"headers": {"CC": [queue]}})


def test_returns_come_with_the_commit(tx: Channel, name: str) -> None:
    for body in "ab":
        tx.publish(name, body, mandatory=True)
    assert tx.settle() == []

    tx.send("tx.commit")

    came = [tx.read() for _ in range(3)]
    assert [event.name for event in came] == ["basic.return", "basic.return", "tx.commit-ok"]
    assert [event.body for event in came[:2]] == [b"a", b"b"]


def test_a_rollback_returns_nothing(tx: Channel, name: str) -> None:
    tx.publish(name, "a", mandatory=True)
    tx.ok("tx.rollback")

    assert tx.settle() == []
    tx.ok("tx.commit")
    assert tx.settle() == []


def test_queues_are_those_of_the_time_of_the_publish(
    tx: Channel, channel: Channel, exchange: Any, litter: Any, name: str
) -> None:
    """A binding that is made later leads nowhere; one that has gone still leads to its queue."""
    direct, early, late = exchange("direct"), f"{name}-early", f"{name}-late"
    litter(early, late)
    for queue in (early, late):
        channel.ok("queue.declare", queue=queue)
    channel.ok("queue.bind", queue=early, exchange=direct, routing_key="k")
    tx.publish("k", "m", direct)
    tx.settle()

    channel.ok("queue.unbind", queue=early, exchange=direct, routing_key="k")
    channel.ok("queue.bind", queue=late, exchange=direct, routing_key="k")
    tx.ok("tx.commit")

    assert (channel.ready(early), channel.ready(late)) == (1, 0)


def test_a_queue_that_is_deleted_before_the_commit(
    tx: Channel, channel: Channel, queue: str
) -> None:
    tx.publish(queue, "m", mandatory=True)
    tx.publish(queue, "m")
    tx.settle()

    channel.ok("queue.delete", queue=queue)

    tx.send("tx.commit")
    assert [tx.read().name for _ in range(2)] == ["basic.return", "tx.commit-ok"]


def test_a_queue_that_is_declared_anew_before_the_commit(
    tx: Channel, channel: Channel, queue: str
) -> None:
    tx.publish(queue, "m")
    tx.settle()
    channel.ok("queue.delete", queue=queue)
    channel.ok("queue.declare", queue=queue)

    tx.ok("tx.commit")

    assert channel.ready(queue) == 1


@pytest.mark.parametrize("durable", [False, True])
def test_a_publish_that_a_queue_refuses(
    tx: Channel, channel: Channel, litter: Any, name: str, durable: bool
) -> None:
    arguments = {"x-max-length": 2, "x-overflow": "reject-publish"}
    channel.ok("queue.declare", queue=name, durable=durable, arguments=arguments)
    litter(name)
    for number in range(5):
        tx.publish(name, f"{number}", delivery_mode=2)

    error = tx.error("tx.commit")

    assert error == soft(406, "PRECONDITION_FAILED - partial tx completion", "tx.commit")
    assert [body for body, _ in _drain(channel, name)] == [b"0", b"1"]


def test_a_missing_exchange_is_an_error_at_once(tx: Channel, name: str) -> None:
    tx.publish("", "m", name)

    text = f"NOT_FOUND - no exchange '{name}' in vhost '/'"
    assert tx.read_error() == soft(404, text, "basic.publish")


def test_a_wrong_property_is_an_error_at_once(tx: Channel, queue: str) -> None:
    tx.publish(queue, "m", user_id="nobody")

    assert tx.read_error()[1] == 406


def test_many_publishes(tx: Channel, channel: Channel, queue: str) -> None:
    for _ in range(2):
        for number in range(3_000):
            tx.publish(queue, f"{number}", delivery_mode=1 + number % 2)
        tx.ok("tx.commit")

    assert channel.ready(queue) == 6_000
    bodies = [body for body, _ in _drain(channel, queue)]
    assert bodies == [b"%d" % number for number in range(3_000)] * 2


def test_publishes_are_delivered_by_the_commit(tx: Channel, channel: Channel, queue: str) -> None:
    channel.ok("basic.consume", queue=queue, consumer_tag="c", no_ack=True)
    tx.publish(queue, "m")
    tx.settle()
    assert channel.settle() == []

    tx.ok("tx.commit")

    assert channel.bodies(1) == [b"m"]


def test_a_reply_is_published_like_others(
    tx: Channel, channel: Channel, queue: str, broker: BrokerUnderTest
) -> None:
    """RabbitMQ delivers a direct reply at once, whatever becomes of the transaction."""
    channel.ok("basic.consume", queue="amq.rabbitmq.reply-to", no_ack=True)
    channel.publish(queue, "request", reply_to="amq.rabbitmq.reply-to")
    channel.settle(queue)
    key = channel.get(queue).properties["reply_to"]
    tx.publish(key, "rolled back")
    tx.ok("tx.rollback")
    tx.publish(key, "committed")
    tx.ok("tx.commit")

    expected = broker.expected(rabbitmq=[b"rolled back", b"committed"], leveret=[b"committed"])
    assert channel.bodies(len(expected)) == expected


# -- settlements --------------------------------------------------------------------------------------


def _taken(tx: Channel, queue: str, bodies: str) -> list[int]:
    """Publish messages, get them, and return their tags."""
    for body in bodies:
        tx.publish(queue, body)
    tx.ok("tx.commit")
    return [tx.get(queue, no_ack=False).delivery_tag for _ in bodies]


@pytest.mark.parametrize(
    ("method", "fields", "left"),
    [
        ("basic.ack", {}, []),
        ("basic.reject", {"requeue": False}, []),
        ("basic.reject", {"requeue": True}, [(b"a", True)]),
        ("basic.nack", {"requeue": False}, []),
        ("basic.nack", {"requeue": True}, [(b"a", True)]),
    ],
)
def test_settlements_count_from_the_commit_on(
    tx: Channel, channel: Channel, queue: str, method: str, fields: dict[str, Any], left: Any
) -> None:
    (tag,) = _taken(tx, queue, "a")

    tx.send(method, delivery_tag=tag, **fields)
    tx.settle()
    assert channel.ready(queue) == 0
    tx.ok("tx.commit")

    channel.settle(queue)
    assert _drain(channel, queue) == left
    tx.ok("channel.close")
    assert _drain(channel, queue) == []


def test_the_end_of_the_channel_undoes_settlements(
    tx: Channel, channel: Channel, queue: str
) -> None:
    first, second, _ = _taken(tx, queue, "abc")
    tx.send("basic.ack", delivery_tag=first)
    tx.send("basic.reject", delivery_tag=second, requeue=False)

    tx.ok("channel.close")

    assert _drain(channel, queue) == [(b"a", True), (b"b", True), (b"c", True)]


def test_a_rollback_makes_tags_known_again_and_delivers_nothing(
    tx: Channel, channel: Channel, queue: str
) -> None:
    tags = _taken(tx, queue, "abc")
    tx.send("basic.ack", delivery_tag=tags[1])
    tx.send("basic.nack", delivery_tag=tags[2], multiple=True, requeue=True)

    tx.ok("tx.rollback")

    assert channel.ready(queue) == 0
    for tag in tags:
        tx.send("basic.ack", delivery_tag=tag)
    tx.ok("tx.commit")
    tx.ok("channel.close")
    assert channel.ready(queue) == 0


@pytest.mark.parametrize(
    ("first", "second", "unknown"),
    [
        (("basic.ack", 1, False), ("basic.ack", 1, False), 1),
        (("basic.ack", 1, False), ("basic.nack", 1, True), 1),
        (("basic.ack", 2, True), ("basic.ack", 1, False), 1),
        (("basic.ack", 2, True), ("basic.ack", 2, True), 2),
        (("basic.nack", 0, True), ("basic.ack", 3, False), 3),
        (("basic.nack", 2, True), ("basic.reject", 2, None), 2),
        (("basic.reject", 2, None), ("basic.nack", 2, True), 2),
        (("basic.ack", 1, False), ("basic.ack", 4, True), 4),
    ],
)
def test_a_tag_is_settled_once(
    tx: Channel, channel: Channel, queue: str, first: Any, second: Any, unknown: int
) -> None:
    _taken(tx, queue, "abc")
    for method, tag, multiple in (first, second):
        more = {} if multiple is None else {"multiple": multiple}
        tx.send(method, delivery_tag=tag, **more)

    text = UNKNOWN.format(unknown)
    assert tx.read_error() == soft(406, text, second[0])
    tx.send("channel.close-ok")
    tx.ok("channel.open")
    assert _drain(channel, queue) == [(b"a", True), (b"b", True), (b"c", True)]


def test_all_of_nothing_is_fine(tx: Channel, queue: str) -> None:
    _taken(tx, queue, "a")
    for _ in range(2):
        tx.send("basic.ack", delivery_tag=0, multiple=True)

    tx.ok("tx.commit")


def test_an_ack_with_multiple_leaves_younger_deliveries(
    tx: Channel, channel: Channel, queue: str
) -> None:
    tags = _taken(tx, queue, "abcd")
    tx.send("basic.reject", delivery_tag=tags[1], requeue=True)
    tx.send("basic.ack", delivery_tag=tags[2], multiple=True)
    tx.ok("tx.commit")

    channel.settle(queue)
    assert _drain(channel, queue) == [(b"b", True)]
    tx.ok("channel.close")
    assert _drain(channel, queue) == [(b"d", True)]


def test_what_is_delivered_later_is_not_meant(tx: Channel, channel: Channel, queue: str) -> None:
    _taken(tx, queue, "a")
    tx.send("basic.ack", delivery_tag=0, multiple=True)
    channel.publish(queue, "b")
    channel.settle(queue)
    assert tx.get(queue, no_ack=False).body == b"b"

    tx.ok("tx.commit")

    tx.ok("channel.close")
    assert _drain(channel, queue) == [(b"b", True)]


def test_what_comes_back_stands_before_what_is_published(
    tx: Channel, channel: Channel, queue: str
) -> None:
    (tag,) = _taken(tx, queue, "a")
    tx.send("basic.reject", delivery_tag=tag, requeue=True)
    tx.publish(queue, "b")

    tx.ok("tx.commit")

    channel.settle(queue)
    assert _drain(channel, queue) == [(b"a", True), (b"b", False)]


def test_the_prefetch_counts_deliveries_until_the_commit(
    tx: Channel, channel: Channel, queue: str
) -> None:
    channel.fill(queue, "abc")
    tx.ok("basic.qos", prefetch_count=1)
    tx.ok("basic.consume", queue=queue, consumer_tag="c")
    (first,) = tx.deliveries(1)

    tx.send("basic.ack", delivery_tag=first.delivery_tag)
    assert tx.settle() == []
    tx.ok("tx.commit")

    assert tx.bodies(1) == [b"b"]


def test_recover_returns_what_the_transaction_does_not_settle(
    tx: Channel, channel: Channel, queue: str
) -> None:
    tags = _taken(tx, queue, "abc")
    tx.send("basic.ack", delivery_tag=tags[1])

    tx.ok("basic.recover", requeue=True)

    channel.settle(queue)
    assert _drain(channel, queue) == [(b"a", True), (b"c", True)]
    tx.ok("tx.commit")
    tx.ok("channel.close")
    assert channel.ready(queue) == 0


def test_get_and_consume_are_no_part_of_it(tx: Channel, channel: Channel, queue: str) -> None:
    channel.fill(queue, "ab")
    assert tx.get(queue).body == b"a"
    tx.ok("basic.consume", queue=queue, no_ack=True)
    assert tx.bodies(1) == [b"b"]

    tx.ok("tx.rollback")

    assert channel.ready(queue) == 0


# -- the answer ---------------------------------------------------------------------------------------


def test_a_method_that_does_not_wait_for_the_answer(
    tx: Channel, litter: Any, channel: Channel, name: str
) -> None:
    channel.ok("queue.declare", queue=name, durable=True)
    litter(name)
    tx.publish(name, "m", delivery_mode=2)
    tx.settle()

    tx.connection.hold()
    tx.send("tx.commit")
    tx.publish(name, "too early")
    tx.connection.release()

    text = "CHANNEL_ERROR - unexpected command while processing 'tx.commit'"
    assert tx.read_error() == hard(504, text, "basic.publish")
    wait_until(lambda: channel.ready(name) == 1)  # the queue may be on another node
    assert [body for body, _ in _drain(channel, name)] == [b"m"]


def test_a_close_that_does_not_wait_for_the_answer(
    tx: Channel, litter: Any, channel: Channel, name: str
) -> None:
    channel.ok("queue.declare", queue=name, durable=True)
    litter(name)
    tx.publish(name, "m", delivery_mode=2)
    tx.connection.hold()
    tx.send("tx.commit")
    tx.send("channel.close")
    tx.connection.release()

    while (event := tx.read()).name != "channel.close-ok":
        assert event.name == "tx.commit-ok", event

    assert channel.ready(name) == 1


def test_settlements_alone_are_committed_at_once(tx: Channel, queue: str) -> None:
    (tag,) = _taken(tx, queue, "a")
    tx.connection.hold()
    tx.send("basic.ack", delivery_tag=tag)
    tx.send("tx.commit")
    tx.send("tx.commit")
    tx.connection.release()

    assert [tx.read().name for _ in range(2)] == ["tx.commit-ok"] * 2
