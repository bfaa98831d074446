"""The firehose: what is copied, what a copy says, and that nothing waits for it.

Tests: broker/node/own_messages.py, broker/node/own_publisher.py
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from leveret.actors.runtime.signals import KILL
from leveret.amqp import methods as m
from leveret.amqp.properties import Properties, decode_properties
from leveret.broker.channel.session import Session
from leveret.broker.node.own_publisher import OwnPublisher
from leveret.broker.vhost.trace import Firehose
from leveret.core.limits import CREDIT_MESSAGES, FIREHOSE_MESSAGES_MAX
from leveret.core.message import exchange_and_key, origin_of
from rigs.broker_rig import Client, Rig


@pytest.fixture
def client(rig: Rig) -> Client:
    """A client whose queue ``trace`` gets all copies; the firehose is on."""
    rig.runtime.spawn(OwnPublisher, rig.node, label="own_publisher")
    switch(rig)
    client = rig.session(channels=2)
    client.ask(1, m.QueueDeclare("trace"))
    client.ask(1, m.QueueBind("trace", "amq.rabbitmq.trace", "#"))
    client.ask(1, m.QueueDeclare("q"))
    return client


def switch(rig: Rig, rate: float = 1.0) -> Firehose:
    node, vhost = rig.node, rig.node.vhosts["/"]
    firehose = Firehose("/", "leveret@here", node.own_messages.wake, rate, Random(7))
    vhost.features.firehose = firehose
    node.own_messages.add(firehose)
    return firehose


def ready(rig: Rig, queue: str) -> int:
    return rig.session().ask(1, m.QueueDeclare(queue, passive=True)).message_count


def copies(client: Client) -> list[tuple[str, Properties, bytes]]:
    """Get all copies: routing key, properties and body."""
    found = []
    client.frames()
    while True:
        client.send(2, m.BasicGet("trace", no_ack=True))
        frames = client.frames()
        if len(frames) == 1:
            return found
        method = m.decode(int.from_bytes(frames[0].payload[:4], "big"), frames[0].payload[4:])
        assert method.exchange == "amq.rabbitmq.trace"
        body = b"".join(frame.payload for frame in frames[2:])
        found.append((method.routing_key, decode_properties(frames[1].payload), body))


def test_a_publish_is_copied_with_all_that_was_sent(client: Client) -> None:
    client.publish(
        1, "q", b"body", content_type="text/plain", priority=3, headers={"a": ("I", 1)},
        timestamp=2**40, delivery_mode=2,
    )  # fmt: skip

    [(key, properties, body)] = copies(client)

    assert (key, body) == ("publish.", b"body")
    assert properties.delivery_mode is None
    assert properties.headers == {
        "exchange_name": ("S", b""),
        "routing_keys": ("A", [("S", b"q")]),
        "properties": (
            "F",
            {
                "timestamp": ("l", 2**40),
                "priority": ("I", 3),
                "delivery_mode": ("I", 2),
                "headers": ("F", {"a": ("I", 1)}),
                "content_type": ("S", b"text/plain"),
            },
        ),
        "node": ("S", b"leveret@here"),
        "vhost": ("S", b"/"),
        "connection": ("S", properties.headers["connection"][1]),
        "channel": ("I", 1),
        "user": ("S", b"guest"),
        "routed_queues": ("A", [("S", b"q")]),
    }
    assert b" -> " in properties.headers["connection"][1]


def test_a_publish_in_a_transaction_is_copied_at_once_and_once(client: Client) -> None:
    client.ask(1, m.TxSelect())
    client.publish(1, "q", b"one", b"two")
    client.publish(1, "q", b"three")

    assert [body for _, _, body in copies(client)] == [b"one", b"two", b"three"]

    client.send(1, m.TxCommit())
    assert copies(client) == []


def test_a_publish_that_goes_nowhere_is_copied(client: Client) -> None:
    copied: dict[str, Any] = {"CC": ("A", [("S", b"cc")]), "BCC": ("A", [("S", b"bcc")])}
    client.publish(1, "k", b"body", exchange="amq.direct", headers=copied)

    [(key, properties, _)] = copies(client)

    assert key == "publish.amq.direct"
    assert properties.headers is not None
    assert properties.headers["routed_queues"] == ("A", [])
    keys = [b"k", b"cc", b"bcc"]
    assert properties.headers["routing_keys"] == ("A", [("S", key) for key in keys])


@pytest.mark.parametrize("by", ["get", "consume"])
def test_a_delivery_is_copied(client: Client, by: str) -> None:
    client.publish(1, "q", b"one")
    copies(client)
    if by == "get":
        client.send(1, m.BasicGet("q"))
    else:
        client.send(1, m.BasicConsume("q", "tag"))
    client.send(1, m.BasicRecover(True))
    if by == "get":
        client.send(1, m.BasicGet("q"))
    client.frames()

    (key, first, body), (_, second, _) = [
        each for each in copies(client) if each[0].startswith("deliver")
    ]

    assert (key, body) == ("deliver.q", b"one")
    assert first.headers is not None
    assert second.headers is not None
    assert list(first.headers) == [
        "exchange_name", "routing_keys", "properties", "node",
        "redelivered", "vhost", "connection", "channel", "user",
    ]  # fmt: skip
    assert first.headers["redelivered"] == ("I", 0)
    assert second.headers["redelivered"] == ("I", 1)


@pytest.mark.parametrize("by", ["get", "consume"])
@pytest.mark.parametrize(
    ("settle", "outcome"),
    [
        (m.BasicAck(1), b"ack"),
        (m.BasicAck(0, multiple=True), b"ack"),
        (m.BasicNack(0, multiple=True, requeue=True), b"requeue"),
        (m.BasicReject(1, requeue=False), b"reject"),
    ],
)
def test_a_settlement_is_told(client: Client, by: str, settle: m.Method, outcome: bytes) -> None:
    count = 2 if getattr(settle, "multiple", False) else 1
    client.publish(1, "q", b"one", b"two")
    if by == "get":
        client.send(1, m.BasicGet("q"), m.BasicGet("q"))
    else:
        client.send(1, m.BasicQos(0, 2, False), m.BasicConsume("q", "tag"))
    copies(client)

    client.send(1, settle)

    client.frames()
    [(key, properties, body), *_] = [each for each in copies(client) if each[0] == "settle.q"]
    assert (key, body) == ("settle.q", b"")
    assert properties.headers == {
        "outcome": ("S", outcome),
        "count": ("I", count),
        "node": ("S", b"leveret@here"),
        "vhost": ("S", b"/"),
        "connection": ("S", properties.headers["connection"][1]),
        "channel": ("I", 1),
        "user": ("S", b"guest"),
    }


def test_dead_letters_are_told(client: Client, rig: Rig) -> None:
    arguments: Any = {
        "x-dead-letter-exchange": ("S", b""),
        "x-dead-letter-routing-key": ("S", b"q"),
    }
    client.ask(1, m.QueueDeclare("dies", arguments={**arguments, "x-max-length": ("I", 1)}))
    client.publish(1, "dies", b"one", b"two", b"three")
    rig.settle()

    told = [each for each in copies(client) if each[0] == "settle.dies"]

    assert told
    assert sum(each[1].headers["count"][1] for each in told) == 2
    assert told[0][2] == b""
    assert told[0][1].headers == {
        "outcome": ("S", b"dead-letter"),
        "count": told[0][1].headers["count"],
        "node": ("S", b"leveret@here"),
        "vhost": ("S", b"/"),
        "reason": ("S", b"maxlen"),
    }


def test_messages_that_expire_are_told(client: Client, rig: Rig) -> None:
    client.ask(1, m.QueueDeclare("dies", arguments={"x-message-ttl": ("I", 100)}))
    client.publish(1, "dies", b"one", b"two")
    rig.jump(1)

    told = [each for each in copies(client) if each[0] == "settle.dies"]

    assert [each[1].headers for each in told] == [
        {
            "outcome": ("S", b"drop"),
            "count": ("I", 2),
            "node": ("S", b"leveret@here"),
            "vhost": ("S", b"/"),
            "reason": ("S", b"expired"),
        }
    ]
    assert ready(rig, "dies") == 0


def test_copies_that_expire_are_not_told(client: Client, rig: Rig) -> None:
    client.ask(1, m.QueueDeclare("short", arguments={"x-message-ttl": ("I", 100)}))
    client.ask(1, m.QueueBind("short", "amq.rabbitmq.trace", "#"))
    client.publish(1, "q", b"one")
    rig.jump(1)

    assert ready(rig, "short") == 0
    assert not [each for each in copies(client) if each[0].startswith("settle.")]


def test_dead_letters_of_copies_are_not_told(client: Client, rig: Rig) -> None:
    arguments: Any = {"x-dead-letter-exchange": ("S", b"amq.fanout"), "x-max-length": ("I", 1)}
    client.ask(1, m.QueueDeclare("short", arguments=arguments))
    client.ask(1, m.QueueBind("short", "amq.rabbitmq.trace", "#"))

    client.publish(1, "q", b"one", b"two", b"three")
    rig.settle()

    assert ready(rig, "trace") == 3


@pytest.mark.parametrize("by", ["get", "consume"])
def test_the_settlement_of_copies_is_not_told(client: Client, rig: Rig, by: str) -> None:
    client.publish(1, "q", b"one")
    if by == "get":
        client.send(2, m.BasicGet("trace"))
    else:
        client.send(2, m.BasicConsume("trace", "tag"))
    client.send(2, m.BasicAck(1))
    rig.settle()

    assert ready(rig, "trace") == 0


def test_deliveries_that_a_client_has_not_got_are_not_settled(client: Client, rig: Rig) -> None:
    client.publish(1, "q", b"one")
    copies(client)
    other = rig.session()
    other.send(1, m.BasicConsume("q", "tag"))
    copies(client)

    other.hang_up()

    assert copies(client) == []


def test_copies_are_not_copied_again(client: Client) -> None:
    client.publish(1, "q", b"one")
    assert len(copies(client)) == 1  # its get is not copied

    client.send(2, m.BasicConsume("trace", "tag", no_ack=True))
    client.publish(1, "q", b"two")

    assert client.bodies() == [b"two"]


def test_off_is_off(rig: Rig, client: Client) -> None:
    vhost = rig.node.vhosts["/"]
    assert vhost.features.firehose is not None
    rig.node.own_messages.remove(vhost.features.firehose)
    vhost.features.firehose = None

    client.publish(1, "q", b"one")

    assert not copies(client)


def test_a_share_of_the_messages_is_copied(rig: Rig, client: Client) -> None:
    assert rig.node.vhosts["/"].features.firehose is not None
    rig.node.own_messages.remove(rig.node.vhosts["/"].features.firehose)
    switch(rig, rate=0.25)

    for number in range(200):
        client.publish(1, "q", b"%d" % number)

    assert 30 < ready(rig, "trace") < 70


def test_a_queue_that_withholds_credit_is_left_out_and_counted(
    rig: Rig, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    rig.runtime.suspend(rig.queues["trace"].ref)

    for _ in range(CREDIT_MESSAGES[0] + 50):
        client.publish(1, "q", b"")
    rig.jump(10)
    rig.runtime.resume(rig.queues["trace"].ref)
    rig.settle()

    assert ready(rig, "trace") == CREDIT_MESSAGES[0]
    assert "messages of the firehose or the log left out count=50" in caplog.text
    client.publish(1, "q", b"again")
    assert ready(rig, "trace") == CREDIT_MESSAGES[0] + 1


def test_a_publisher_that_crashed_goes_on_with_what_waits(rig: Rig, client: Client) -> None:
    publisher = rig.node.own_messages.publisher
    assert publisher is not None
    rig.runtime.suspend(publisher)
    client.publish(1, "q", b"one")
    rig.runtime.exit(publisher, KILL)
    rig.settle()

    rig.runtime.spawn(OwnPublisher, rig.node, label="own_publisher")
    rig.settle()

    assert [body for _, _, body in copies(client)] == [b"one"]


class TestBounds:
    """What waits for the publisher."""

    def wait(self, counts: list[int], rate: float = 1.0) -> Firehose:
        firehose = Firehose("/", "node", lambda: None, rate, Random(1))
        messages = [(origin_of(b"", b"q"), b"\0" * 14, b"")]
        for count in counts:
            firehose.published(client_of(), 1, "", [], messages * count)
        return firehose

    def test_messages_beyond_the_limit_are_counted(self) -> None:
        firehose = self.wait([FIREHOSE_MESSAGES_MAX, 5, 7])

        assert firehose.dropped == 12
        assert sum(1 for _ in iter(firehose.next, None)) == FIREHOSE_MESSAGES_MAX
        firehose.published(client_of(), 1, "", [], [(origin_of(b"", b"q"), b"\0" * 14, b"")])
        assert firehose.next() is not None

    def test_bytes_beyond_the_limit_are_counted(self) -> None:
        firehose = Firehose("/", "node", lambda: None)
        large = [(origin_of(b"", b"q"), b"\0" * 14, bytes(20 << 20))]

        firehose.published(client_of(), 1, "", [], large)
        firehose.published(client_of(), 1, "", [], large)

        assert firehose.dropped == 1

    def test_nothing_is_copied_while_memory_is_short(self) -> None:
        short = [True]
        firehose = Firehose("/", "node", lambda: None, is_short=lambda: short[0])
        message = (origin_of(b"", b"q"), b"\0" * 14, b"")

        firehose.published(client_of(), 1, "", [], [message, message])
        firehose.died("q", b"expired", [message])
        assert (firehose.next(), firehose.dropped) == (None, 3)
        short[0] = False
        firehose.published(client_of(), 1, "", [], [message])
        assert firehose.next() is not None

    def test_sampled_batches_keep_the_redelivered_first(self) -> None:
        firehose = Firehose("/", "node", lambda: None, 0.5, Random(3))
        messages = [(origin_of(b"", b"%d" % n), b"\0" * 14, b"%d" % n) for n in range(100)]

        firehose.delivered(client_of(), 1, "q", messages, redelivered=50)

        found = list(iter(firehose.next, None))
        assert 30 < len(found) < 70
        for copy in found:
            headers = decode_properties(copy.head).headers
            assert headers is not None
            assert headers["redelivered"] == ("I", int(int(copy.body) < 50))

    def test_long_names_are_cut_to_the_length_of_a_key(self) -> None:
        firehose = Firehose("/", "node", lambda: None)

        firehose.delivered(client_of(), 1, "q" * 255, [(origin_of(b"", b"q"), b"\0" * 14, b"")], 0)

        copy = firehose.next()
        assert copy is not None
        assert copy.routing_key == b"deliver." + b"q" * 247
        assert exchange_and_key(origin_of(b"x", copy.routing_key))[1] == copy.routing_key


def client_of() -> Session:
    class User:
        name = "guest"

    class Of:
        name = "here -> there"
        user = User()

    found: Any = Of()
    return found
