"""pika as its users use it: the blocking connection and the asyncio adapter."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pika
import pytest
from pika.adapters.asyncio_connection import AsyncioConnection
from pika.adapters.blocking_connection import BlockingChannel

from rigs.nodes import BrokerUnderTest
from rigs.waiting import wait_until


@pytest.fixture
def connection(broker: BrokerUnderTest) -> Iterator[pika.BlockingConnection]:
    opened = pika.BlockingConnection(pika.URLParameters(broker.url))
    yield opened
    if opened.is_open:
        opened.close()


@pytest.fixture
def channel(connection: pika.BlockingConnection) -> BlockingChannel:
    return connection.channel()


def test_publish_get_ack(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name, exclusive=True)
    properties = pika.BasicProperties(
        content_type="text/plain", headers={"a": 1, "b": {"c": [1, "x", None]}}, delivery_mode=2
    )

    channel.basic_publish("", name, b"hello", properties)
    method, got, body = channel.basic_get(name)
    channel.basic_ack(method.delivery_tag)

    assert (body, got.content_type, got.headers) == (b"hello", "text/plain", properties.headers)
    assert channel.basic_get(name) == (None, None, None)


def test_requests_and_direct_replies(
    connection: pika.BlockingConnection, channel: BlockingChannel, name: str
) -> None:
    server = connection.channel()
    server.queue_declare(name, exclusive=True)

    def serve(_: object, method: Any, properties: pika.BasicProperties, body: bytes) -> None:
        answer = pika.BasicProperties(correlation_id=properties.correlation_id)
        server.basic_publish("", properties.reply_to, body.upper(), answer)
        server.basic_ack(method.delivery_tag)

    server.basic_consume(name, serve)
    replies: list[tuple[str, bytes]] = []
    channel.basic_consume(
        "amq.rabbitmq.reply-to",
        lambda _, __, properties, body: replies.append((properties.correlation_id, body)),
        auto_ack=True,
    )
    for number, word in enumerate((b"ping", b"pong")):
        asked = pika.BasicProperties(reply_to="amq.rabbitmq.reply-to", correlation_id=f"{number}")
        channel.basic_publish("", name, word, asked)
    while len(replies) < 2:
        connection.process_data_events(time_limit=10)

    assert replies == [("0", b"PING"), ("1", b"PONG")]


def test_transactions(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name, exclusive=True)
    channel.tx_select()
    for body in (b"a", b"b"):
        channel.basic_publish("", name, body)
    channel.tx_commit()
    taken = [channel.basic_get(name) for _ in range(2)]
    assert [body for _, _, body in taken] == [b"a", b"b"]

    channel.basic_publish("", name, b"c")
    channel.basic_ack(taken[0][0].delivery_tag)
    channel.tx_rollback()
    channel.basic_ack(taken[1][0].delivery_tag, multiple=True)
    channel.tx_commit()

    assert channel.basic_get(name) == (None, None, None)


def test_consume_with_a_prefetch(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name, exclusive=True)
    for number in range(50):
        channel.basic_publish("", name, str(number).encode())
    channel.basic_qos(prefetch_count=7)
    bodies = []

    for method, _, body in channel.consume(name, inactivity_timeout=10):
        assert method is not None, "no delivery for ten seconds"
        bodies.append(int(body))
        channel.basic_ack(method.delivery_tag)
        if len(bodies) == 50:
            break

    assert channel.cancel() == 0
    assert bodies == list(range(50))


def test_confirms_and_returns(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name, exclusive=True)
    channel.confirm_delivery()

    channel.basic_publish("", name, b"m", mandatory=True)
    with pytest.raises(pika.exceptions.UnroutableError):
        channel.basic_publish("", name + "-nowhere", b"m", mandatory=True)

    assert channel.queue_declare(name, passive=True).method.message_count == 1


def test_a_channel_error_leaves_the_connection(
    connection: pika.BlockingConnection, channel: BlockingChannel, name: str
) -> None:
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match=r"404, .*no queue"):
        channel.queue_declare(name, passive=True)

    assert connection.channel().queue_declare("", exclusive=True).method.queue


def test_nack_brings_it_back_redelivered(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name, exclusive=True)
    channel.basic_publish("", name, b"m")
    first, _, _ = channel.basic_get(name)

    channel.basic_nack(first.delivery_tag)
    second, _, _ = channel.basic_get(name, auto_ack=True)

    assert (first.redelivered, second.redelivered) == (False, True)


def test_a_blocked_connection_calls_back(
    broker: BrokerUnderTest, connection: pika.BlockingConnection, name: str
) -> None:
    channel = connection.channel()
    channel.queue_declare(name, exclusive=True)
    heard: list[str] = []

    def blocked(_: Any, frame: Any) -> None:
        heard.append(frame.method.reason)

    def unblocked(*_: Any) -> None:
        heard.append("over")

    connection.add_on_connection_blocked_callback(blocked)
    connection.add_on_connection_unblocked_callback(unblocked)
    broker.control("set_vm_memory_high_watermark", "0.0000001")
    wait_until(lambda: "Memory alarm on node" in broker.control("status"))
    try:
        channel.basic_publish("", name, b"waits")
        while not heard:
            connection.process_data_events(time_limit=1)
    finally:
        broker.control("set_vm_memory_high_watermark", "0.4")

    _, _, body = channel.basic_get(name, auto_ack=True)
    connection.process_data_events(time_limit=0)

    assert body == b"waits"
    assert heard == ["low on memory", "over"]


def test_a_large_body(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name, exclusive=True)
    body = bytes(range(256)) * 40_000

    channel.basic_publish("", name, body)

    assert channel.basic_get(name, auto_ack=True)[2] == body


def test_wrong_password(broker: BrokerUnderTest) -> None:
    parameters = pika.URLParameters(broker.url.replace("guest:guest", "guest:wrong"))

    with pytest.raises(pika.exceptions.ProbableAuthenticationError, match="ACCESS_REFUSED"):
        pika.BlockingConnection(parameters)


def test_the_server_says_it_is_rabbitmq(connection: pika.BlockingConnection) -> None:
    properties: dict[str, Any] = connection._impl.server_properties

    assert (properties["product"], properties["version"]) == ("RabbitMQ", "3.10.8")
    assert connection.consumer_cancel_notify_supported
    assert connection.exchange_exchange_bindings_supported


class Session:
    """Publishes ten messages over the asyncio adapter, confirmed, and consumes them."""

    def __init__(self, url: str, queue: str) -> None:
        self.queue = queue
        self.done: asyncio.Future[tuple[int, list[bytes]]] = (
            asyncio.get_running_loop().create_future()
        )
        self.bodies: list[bytes] = []
        self.confirmed = 0
        self.connection = AsyncioConnection(
            pika.URLParameters(url),
            on_open_callback=lambda connection: connection.channel(on_open_callback=self.opened),
            on_open_error_callback=lambda _, error: self.done.set_exception(error),
        )

    def opened(self, channel: Any) -> None:
        channel.confirm_delivery(self.on_confirm, callback=lambda _: self.declare(channel))

    def declare(self, channel: Any) -> None:
        channel.queue_declare(self.queue, exclusive=True, callback=lambda _: self.go(channel))

    def go(self, channel: Any) -> None:
        channel.basic_consume(self.queue, self.on_message)
        for number in range(10):
            channel.basic_publish("", self.queue, b"%d" % number)

    def on_confirm(self, frame: Any) -> None:
        tag = frame.method.delivery_tag
        self.confirmed = tag if frame.method.multiple else self.confirmed + 1
        self.check()

    def on_message(self, channel: Any, method: Any, _: Any, body: bytes) -> None:
        channel.basic_ack(method.delivery_tag)
        self.bodies.append(body)
        self.check()

    def check(self) -> None:
        if len(self.bodies) == self.confirmed == 10 and not self.done.done():
            self.done.set_result((self.confirmed, self.bodies))


async def test_the_asyncio_adapter(broker: BrokerUnderTest, name: str) -> None:
    session = Session(broker.url, name)

    confirmed, bodies = await asyncio.wait_for(session.done, 20)

    closed = asyncio.Event()
    session.connection.add_on_close_callback(lambda *_: closed.set())
    session.connection.close()
    await asyncio.wait_for(closed.wait(), 10)
    assert (confirmed, bodies) == (10, [b"%d" % number for number in range(10)])
