"""Direct reply-to: requests and replies without a queue."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.conftest import Connect
from conformance.raw import Channel, Event, error_of, hard, soft
from conformance.wire import Typed
from rigs.nodes import BrokerUnderTest

REPLY_TO = "amq.rabbitmq.reply-to"
FAILED = "PRECONDITION_FAILED - "


@pytest.fixture
def requester(connect: Connect) -> Channel:
    """A channel with a reply consumer; its tag is ``r``."""
    channel = connect().channel()
    reply = channel.ok("basic.consume", queue=REPLY_TO, consumer_tag="r", no_ack=True)
    assert reply.consumer_tag == "r"
    return channel


def _key(requester: Channel, channel: Channel, queue: str) -> str:
    """Return the key that a request of this channel carries."""
    requester.publish(queue, "request", reply_to=REPLY_TO)
    requester.settle(queue)
    reply_to: str = channel.get(queue).properties["reply_to"]
    return reply_to


def _delivery(event: Event) -> tuple[Any, ...]:
    assert event.name == "basic.deliver", event
    return (event.consumer_tag, event.redelivered, event.exchange, event.routing_key, event.body)


def test_a_request_and_its_replies(requester: Channel, channel: Channel, queue: str) -> None:
    requester.publish(
        queue, "request", reply_to=REPLY_TO, correlation_id="7", content_type="text/plain"
    )
    requester.settle(queue)
    request = channel.get(queue)
    key = request.properties["reply_to"]
    assert request.properties == {
        "content_type": "text/plain",
        "correlation_id": "7",
        "reply_to": key,
    }
    assert key.startswith(f"{REPLY_TO}.")
    assert len(key) <= 255

    for body in ("one", "two"):
        channel.publish(key, body, correlation_id="7")

    replies = requester.deliveries(2)
    assert [_delivery(each) for each in replies] == [
        ("r", False, "", key, b"one"),
        ("r", False, "", key, b"two"),
    ]
    assert [each.properties for each in replies] == [{"correlation_id": "7"}] * 2


def test_replies_use_up_no_delivery_tag(requester: Channel, channel: Channel, queue: str) -> None:
    key = _key(requester, channel, queue)
    for _ in range(2):
        channel.publish(key, "reply")
    tags = [each.delivery_tag for each in requester.deliveries(2)]

    channel.publish(queue, "other")
    channel.settle(queue)
    tags.append(requester.get(queue, no_ack=False).delivery_tag)

    assert tags == [1, 1, 1]


def test_all_properties_but_the_reply_to_stay(
    requester: Channel, channel: Channel, queue: str
) -> None:
    properties = {
        "content_type": "a",
        "content_encoding": "b",
        "headers": {"k": 1, "l": "text"},
        "delivery_mode": 2,
        "priority": 3,
        "correlation_id": "c",
        "expiration": "60000",
        "message_id": "m",
        "timestamp": 1_700_000_000,
        "type": "t",
        "user_id": "guest",
        "app_id": "p",
    }
    requester.publish(queue, "request", reply_to=REPLY_TO, **properties)
    requester.settle(queue)

    got = channel.get(queue).properties
    key = got.pop("reply_to")

    assert key.startswith(f"{REPLY_TO}.")
    assert got == properties


def test_a_reply_to_of_another_name_is_the_clients(channel: Channel, queue: str) -> None:
    for name in ("amq.rabbitmq.reply-to.", "amq.rabbitmq.reply-tox", "other"):
        channel.publish(queue, reply_to=name)
    channel.settle(queue)

    assert [channel.get(queue).properties["reply_to"] for _ in range(3)] == [
        "amq.rabbitmq.reply-to.",
        "amq.rabbitmq.reply-tox",
        "other",
    ]


def test_a_consumer_with_acknowledgements_is_refused(channel: Channel) -> None:
    error = channel.error("basic.consume", queue=REPLY_TO)

    assert error == soft(406, f"{FAILED}reply consumer cannot acknowledge", "basic.consume")


@pytest.mark.parametrize("tag", ["", "r", "s"])
def test_a_second_consumer_is_refused(requester: Channel, tag: str) -> None:
    error = requester.error("basic.consume", queue=REPLY_TO, consumer_tag=tag, no_ack=True)

    assert error == soft(406, f"{FAILED}reply consumer already set", "basic.consume")


def test_a_second_consumer_that_acknowledges_is_refused_for_that(requester: Channel) -> None:
    error = requester.error("basic.consume", queue=REPLY_TO)

    assert error == soft(406, f"{FAILED}reply consumer cannot acknowledge", "basic.consume")


def test_a_tag_that_is_in_use(channel: Channel, queue: str) -> None:
    channel.ok("basic.consume", queue=queue, consumer_tag="r")

    error = channel.error("basic.consume", queue=REPLY_TO, consumer_tag="r", no_ack=True)

    assert error == hard(530, "NOT_ALLOWED - attempt to reuse consumer tag 'r'", "basic.consume")


def test_a_tag_is_made_where_none_is_given(channel: Channel) -> None:
    reply = channel.ok("basic.consume", queue=REPLY_TO, no_ack=True)

    assert reply.consumer_tag.startswith("amq.ctag-")


def test_a_consumer_without_an_answer(channel: Channel, queue: str) -> None:
    channel.send("basic.consume", queue=REPLY_TO, no_ack=True, nowait=True)
    assert channel.settle() == []

    channel.publish(queue, reply_to=REPLY_TO)

    channel.settle(queue)
    assert channel.get(queue).properties["reply_to"].startswith(f"{REPLY_TO}.")


def test_every_channel_has_a_consumer_of_its_own(
    connect: Connect, channel: Channel, queue: str
) -> None:
    connection = connect()
    channels = [connection.channel() for _ in range(2)]
    keys = []
    for each in channels:
        each.ok("basic.consume", queue=REPLY_TO, consumer_tag="r", no_ack=True)
        keys.append(_key(each, channel, queue))
    assert keys[0] != keys[1]

    for number, key in enumerate(keys):
        channel.publish(key, f"{number}")

    assert [each.bodies(1) for each in channels] == [[b"0"], [b"1"]]


def test_a_request_without_a_consumer_is_refused(channel: Channel, queue: str) -> None:
    channel.publish(queue, reply_to=REPLY_TO)

    text = f"{FAILED}fast reply consumer does not exist"
    assert channel.read_error() == soft(406, text, "basic.publish")


def test_the_consumer_is_looked_for_before_the_user_id(channel: Channel, queue: str) -> None:
    channel.publish(queue, reply_to=REPLY_TO, user_id="nobody")

    assert channel.read_error()[2] == f"{FAILED}fast reply consumer does not exist"


def test_a_cancelled_consumer(requester: Channel, channel: Channel, queue: str) -> None:
    key = _key(requester, channel, queue)

    assert requester.ok("basic.cancel", consumer_tag="r").consumer_tag == "r"

    channel.publish(key, "too late")
    assert channel.error("queue.declare", queue=key)[1] == 404
    assert requester.settle() == []
    requester.publish(queue, reply_to=REPLY_TO)
    assert requester.read_error()[2] == f"{FAILED}fast reply consumer does not exist"


def test_a_consumer_after_another_has_a_key_of_its_own(
    requester: Channel, channel: Channel, queue: str
) -> None:
    first = _key(requester, channel, queue)
    requester.ok("basic.cancel", consumer_tag="r")
    requester.ok("basic.consume", queue=REPLY_TO, consumer_tag="r", no_ack=True)

    second = _key(requester, channel, queue)

    assert first != second
    channel.publish(first, "old")
    channel.publish(second, "new")
    assert requester.bodies(1) == [b"new"]


@pytest.mark.parametrize("passive", [False, True])
def test_declaring_tells_whether_there_is_a_consumer(
    requester: Channel, channel: Channel, queue: str, passive: bool
) -> None:
    key = _key(requester, channel, queue)

    for name in (REPLY_TO, key):
        reply = channel.ok("queue.declare", queue=name, passive=passive)
        assert (reply.queue, reply.message_count, reply.consumer_count) == (name, 0, 1)

    requester.ok("channel.close")
    assert channel.error("queue.declare", queue=key, passive=passive) == soft(
        404, f"NOT_FOUND - no queue '{key}' in vhost '/'", "queue.declare"
    )


def test_the_name_can_be_that_declared_last(channel: Channel, queue: str) -> None:
    channel.ok("queue.declare", queue=f"{REPLY_TO}\r\n")

    channel.ok("basic.consume", no_ack=True)

    channel.publish(queue, reply_to=REPLY_TO)
    channel.settle(queue)
    assert channel.get(queue).properties["reply_to"].startswith(f"{REPLY_TO}.")


@pytest.mark.parametrize("name", ["amq.rabbitmq.reply-tox", "amq.rabbitmq.reply-to."])
def test_declaring_other_names_of_that_kind(channel: Channel, name: str) -> None:
    error = channel.error("queue.declare", queue=name)

    assert error == soft(404, f"NOT_FOUND - no queue '{name}' in vhost '/'", "queue.declare")


def test_a_line_break_before_the_name_makes_it_another(channel: Channel) -> None:
    error = channel.error("queue.declare", queue=f"\n{REPLY_TO}")

    text = f"ACCESS_REFUSED - queue name '{REPLY_TO}' contains reserved prefix 'amq.*'"
    assert error == soft(403, text, "queue.declare")


@pytest.mark.parametrize("method", ["basic.get", "queue.purge"])
def test_there_is_no_queue(channel: Channel, method: str) -> None:
    error = channel.error(method, queue=REPLY_TO)

    assert error == soft(404, f"NOT_FOUND - no queue '{REPLY_TO}' in vhost '/'", method)


def test_a_mandatory_reply_is_delivered_and_returned(
    requester: Channel, channel: Channel, queue: str
) -> None:
    key = _key(requester, channel, queue)

    channel.publish(key, "reply", mandatory=True)

    returned = channel.read()
    assert (returned.name, returned.reply_code, returned.reply_text) == (
        "basic.return",
        312,
        "NO_ROUTE",
    )
    assert requester.bodies(1) == [b"reply"]


def test_replies_are_confirmed(requester: Channel, channel: Channel, queue: str) -> None:
    key = _key(requester, channel, queue)
    channel.ok("confirm.select")

    channel.publish(key, "reply")

    ack = channel.read()
    assert (ack.name, ack.delivery_tag) == ("basic.ack", 1)
    assert requester.bodies(1) == [b"reply"]


def test_replies_to_a_channel_that_is_gone_are_dropped(
    requester: Channel, channel: Channel, queue: str
) -> None:
    key = _key(requester, channel, queue)
    requester.ok("channel.close")

    channel.publish(key, "reply")
    channel.publish(key, "reply", mandatory=True)

    assert channel.read().name == "basic.return"
    assert channel.settle() == []


def test_a_reply_key_in_cc_gets_a_copy(requester: Channel, channel: Channel, queue: str) -> None:
    key = _key(requester, channel, queue)

    channel.publish(queue, "both", headers={"CC": [key]})
    channel.publish("nowhere", "reply", headers={"BCC": [key], "k": "v"})
    channel.publish(key, "queue", headers={"CC": [queue]})

    replies = requester.deliveries(3)
    assert [(each.routing_key, each.body) for each in replies] == [
        (queue, b"both"),
        ("nowhere", b"reply"),
        (key, b"queue"),
    ]
    assert replies[1].properties["headers"] == {"k": "v"}
    channel.settle(queue)
    assert [channel.get(queue).body for _ in range(2)] == [b"both", b"queue"]


def test_dead_letters_may_be_replies(requester: Channel, channel: Channel, queue: str) -> None:
    key = _key(requester, channel, queue)
    own = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": key, "x-message-ttl": 0}
    source = channel.ok("queue.declare", exclusive=True, arguments=own).queue

    for body in ("one", "two"):
        channel.publish(source, body, headers={"a": body})

    replies = requester.deliveries(2)
    assert [(each.routing_key, each.body) for each in replies] == [(key, b"one"), (key, b"two")]
    (death,) = replies[1].properties["headers"]["x-death"]
    assert (death["queue"], death["reason"], death["count"]) == (source, "expired", 1)
    assert replies[1].properties["headers"]["a"] == "two"


def test_other_exchanges_do_not_lead_to_a_consumer(
    requester: Channel, channel: Channel, queue: str
) -> None:
    key = _key(requester, channel, queue)

    channel.publish(key, "reply", exchange="amq.direct", mandatory=True)

    assert channel.read().name == "basic.return"
    assert requester.settle() == []


def test_a_reply_of_many_frames(requester: Channel, channel: Channel, queue: str) -> None:
    key = _key(requester, channel, queue)

    body = bytes(range(256)) * 8_000

    channel.publish(key, body)
    channel.publish(key, b"")

    assert requester.bodies(2) == [body, b""]


def test_a_channel_may_reply_to_itself(requester: Channel, channel: Channel, queue: str) -> None:
    key = _key(requester, channel, queue)

    requester.publish(key, "reply")

    assert requester.bodies(1) == [b"reply"]


def test_requests_may_go_to_any_exchange(requester: Channel, channel: Channel, queue: str) -> None:
    channel.ok("queue.bind", queue=queue, exchange="amq.topic", routing_key=f"{queue}.#")

    requester.publish(f"{queue}.a", "request", exchange="amq.topic", reply_to=REPLY_TO)

    requester.settle(queue)
    channel.publish(channel.get(queue).properties["reply_to"], "reply")
    assert requester.bodies(1) == [b"reply"]


def test_a_reply_comes_from_any_vhost(
    requester: Channel,
    channel: Channel,
    queue: str,
    connect: Connect,
    broker: BrokerUnderTest,
    name: str,
) -> None:
    broker.control("add_vhost", name)
    try:
        broker.control("set_permissions", "-p", name, "guest", ".*", ".*", ".*")
        other = connect(vhost=name).channel()
        key = _key(requester, channel, queue)
        assert other.ok("queue.declare", queue=key).consumer_count == 1

        other.publish(key, "reply")

        assert requester.bodies(1) == [b"reply"]
    finally:
        broker.control("delete_vhost", name)


def test_permissions(connect: Connect, broker: BrokerUnderTest, name: str) -> None:
    """A reply consumer needs none; a reply needs the permission to write to the default exchange."""
    broker.control("add_user", name, name)
    try:
        broker.control("set_permissions", name, "", "", "")
        poor = connect(user=name, password=name)
        channel = poor.channel()
        channel.ok("basic.consume", queue=REPLY_TO, no_ack=True)
        channel.ok("queue.declare", queue=REPLY_TO)

        channel.publish(f"{REPLY_TO}.x", "reply")

        text = (
            "ACCESS_REFUSED - access to exchange 'amq.default' in vhost '/' refused for user"
            f" '{name}'"
        )
        assert channel.read_error() == soft(403, text, "basic.publish")
    finally:
        broker.control("delete_user", name)


@pytest.mark.parametrize(
    "key", [f"{REPLY_TO}.", f"{REPLY_TO}.x", f"{REPLY_TO}.eHg=.x", f"{REPLY_TO}.\u00e9"]
)
def test_a_malformed_key_leads_nowhere(channel: Channel, broker: BrokerUnderTest, key: str) -> None:
    channel.publish(key, "reply", mandatory=True)

    end = channel.read()

    assert end.name == broker.expected(rabbitmq=end.name, leveret="basic.return")
    assert end.name in {"basic.return", "connection.close"}


def test_the_tag_of_the_reply_consumer(
    requester: Channel, queue: str, broker: BrokerUnderTest
) -> None:
    """RabbitMQ gives it to a second consumer."""
    end = requester.call("basic.consume", queue=queue, consumer_tag="r")

    assert end.name == broker.expected(rabbitmq="basic.consume-ok", leveret="connection.close")
    if broker.kind == "leveret":
        text = "NOT_ALLOWED - attempt to reuse consumer tag 'r'"
        assert error_of(end) == hard(530, text, "basic.consume")


def test_headers_keep_their_types(requester: Channel, channel: Channel, queue: str) -> None:
    headers = {"a": Typed("s", 3), "b": Typed("T", 5)}
    requester.publish(queue, reply_to=REPLY_TO, headers=headers)
    requester.settle(queue)

    got = channel.get(queue)

    assert b"\x01as\x00\x03\x01bT" in got.head
