"""kombu over py-amqp: what Celery and many services stand on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import kombu
import pytest

from rigs.nodes import BrokerUnderTest


@pytest.fixture
def connection(broker: BrokerUnderTest) -> Iterator[kombu.Connection]:
    with kombu.Connection(broker.url, heartbeat=10) as opened:
        opened.ensure_connection(max_retries=1)
        yield opened


def _drain(connection: kombu.Connection, wanted: list[Any], count: int) -> list[Any]:
    while len(wanted) < count:
        connection.drain_events(timeout=10)
    return wanted


def test_the_transport_is_our_peers_amqp(connection: kombu.Connection) -> None:
    """Not the root folder ``amqp``: the C of py-amqp is asked for its version."""
    import amqp

    assert amqp.__version__ >= "5"
    assert connection.connection.server_properties["product"] == "RabbitMQ"


def test_producer_and_consumer(connection: kombu.Connection, name: str) -> None:
    exchange = kombu.Exchange(name, "direct", durable=False, auto_delete=True)
    queue = kombu.Queue(name, exchange, routing_key="k", durable=False, auto_delete=True)
    got: list[Any] = []

    def take(body: Any, message: kombu.Message) -> None:
        got.append((body, message.headers))
        message.ack()

    with connection.Consumer(queue, callbacks=[take], accept=["json"]):
        producer = connection.Producer()
        for number in range(5):
            producer.publish(
                {"n": number},
                exchange=exchange,
                routing_key="k",
                declare=[queue],
                headers={"n": number},
            )
        _drain(connection, got, 5)

    assert got == [({"n": n}, {"n": n}) for n in range(5)]


def test_requests_and_direct_replies(connection: kombu.Connection, name: str) -> None:
    requests = kombu.Queue(name, durable=False, auto_delete=True)
    replies = kombu.Queue("amq.rabbitmq.reply-to", no_declare=True, no_ack=True)
    got: list[Any] = []
    with (
        connection.channel() as asking,
        connection.channel() as answering,
        kombu.Consumer(asking, replies, callbacks=[lambda body, _: got.append(body)], no_ack=True),
    ):
        answers = kombu.Producer(answering)

        def serve(body: Any, message: kombu.Message) -> None:
            to = message.properties["reply_to"]
            answers.publish({"answer": body["n"] + 1}, routing_key=to)
            message.ack()

        with kombu.Consumer(answering, requests, callbacks=[serve]):
            producer = kombu.Producer(asking)
            for number in range(3):
                producer.publish({"n": number}, routing_key=name, reply_to=replies.name)
            _drain(connection, got, 3)

    # A publish of py-amqp calls back for deliveries that have come, so the answers are nested.
    assert sorted(each["answer"] for each in got) == [1, 2, 3]


def test_compression_and_a_dead_quiet_queue(connection: kombu.Connection, name: str) -> None:
    queue = connection.SimpleBuffer(name)

    queue.put({"text": "x" * 10_000}, compression="zlib")
    message = queue.get(timeout=5)
    message.ack()

    assert message.payload == {"text": "x" * 10_000}
    with pytest.raises(queue.Empty):
        queue.get(timeout=0.2)
    queue.close()


def test_prefetch_grows_on_the_way(connection: kombu.Connection, name: str) -> None:
    """What Celery does for tasks with an ETA: unacked messages pile up, basic.qos follows."""
    queue = kombu.Queue(name, durable=False, auto_delete=True)
    got: list[kombu.Message] = []
    channel = connection.channel()
    queue(channel).declare()
    producer = connection.Producer()
    consumer = kombu.Consumer(channel, queue, on_message=got.append, accept=["json"])
    consumer.qos(prefetch_count=1, apply_global=True)
    with consumer:
        for number in range(5):
            producer.publish({"n": number}, routing_key=name)
        for prefetch in range(1, 6):
            consumer.qos(prefetch_count=prefetch, apply_global=True)
            _drain(connection, got, prefetch)
            assert len(got) == prefetch
        for message in got:
            message.ack()

    assert [message.payload["n"] for message in got] == [0, 1, 2, 3, 4]


def test_connections_out_of_a_pool(connection: kombu.Connection, name: str) -> None:
    pool = connection.Pool(2)
    options = {"durable": False, "auto_delete": True}

    with pool.acquire() as pooled, pooled.SimpleQueue(name, queue_opts=options) as queue:
        queue.put("one")
        assert queue.get(timeout=5).payload == "one"

    pool.force_close_all()


def test_an_error_of_the_channel(connection: kombu.Connection, name: str) -> None:
    with pytest.raises(connection.channel_errors, match="NOT_FOUND"):
        kombu.Queue(name, channel=connection.channel()).queue_declare(passive=True)

    assert connection.connected


def test_heartbeats(connection: kombu.Connection) -> None:
    assert connection.get_heartbeat_interval() == 10
    connection.heartbeat_check()


def test_delayed_declaration_with_arguments(connection: kombu.Connection, name: str) -> None:
    queue = kombu.Queue(
        name, durable=True, expires=30.0, message_ttl=5.0, queue_arguments={"x-queue-mode": "lazy"}
    )(connection.channel())

    queue.declare()
    queue.declare()

    assert queue.purge() == 0
    queue.delete()
