"""Both drivers against a broker, and against peers that do what a broker does not.

Tests: client/asynchronous.py, client/blocking.py, client/errors.py
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from leveret.amqp import kernel, methods
from leveret.amqp.properties import Properties, head_of
from leveret.client import asynchronous, blocking
from leveret.client.blocking import CHANNEL, BlockingConnection
from leveret.client.errors import BrokerError, ChannelClosed
from leveret.client.events import Cancelled, Confirmed, Delivered, Event, Returned
from leveret.client.protocol import acks
from leveret.client.target import Target, parse_uri
from leveret.testing.vhost import FreshVhost
from rigs.nodes import start_leveret_with_tls, stop_leveret
from rigs.wire.scripted_broker import Peer, scripted

TIMEOUT_S = 20.0


def frame(method: methods.Method, channel: int = CHANNEL) -> bytes:
    return methods.method_frame(channel, methods.encode(method))


def publish(queue: str, body: bytes, channel: int = CHANNEL) -> bytes:
    method = methods.encode(methods.BasicPublish("", queue, True))
    return kernel.content(channel, method, 131_072, head_of(Properties(), len(body)), body)


class Agent:
    """Keeps the events of its channel."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.changed = asyncio.Event()

    def on_event(self, event: Event) -> None:
        self.events.append(event)

    def on_writable(self) -> None: ...

    def on_read(self) -> None:
        self.changed.set()

    async def next(self, kind: type[Any], count: int) -> list[Any]:
        """Wait for so many events of a kind and take them."""
        while len(found := [event for event in self.events if isinstance(event, kind)]) < count:
            self.changed.clear()
            await asyncio.wait_for(self.changed.wait(), TIMEOUT_S)
        self.events = [event for event in self.events if event not in found]
        return found


def stepped(connection: BlockingConnection, kind: type[Any], count: int) -> list[Any]:
    """Return the next events of a kind; the others are dropped."""
    found: list[Event] = []
    deadline_s = time.monotonic() + TIMEOUT_S
    while len(found) < count:
        assert time.monotonic() < deadline_s, found
        found += [event for event in connection.step(1.0) if isinstance(event, kind)]
    return found


# Against Leveret.


async def test_channels_of_a_loop_publish_consume_and_declare(amqp_broker: FreshVhost) -> None:
    connection = await asynchronous.connect(parse_uri(amqp_broker.url, "test"))
    sender, receiver = Agent(), Agent()
    await connection.channel(1, sender)
    await connection.channel(2, receiver)
    await connection.call(1, methods.ConfirmSelect())
    assert (await connection.call(1, methods.QueueDeclare("q"))).queue == "q"
    tag = (await connection.call(2, methods.BasicConsume("q"))).consumer_tag.encode()
    bodies = [b"1", b"", b"x" * 300_000]

    connection.transport.write(b"".join(publish("q", body, 1) for body in bodies))
    deliveries = await receiver.next(Delivered, 3)
    connection.transport.write(acks(2, [event.tag for event in deliveries], True))
    connection.transport.write(publish("nowhere", b"3", 1))
    (returned,) = await sender.next(Returned, 1)

    assert [(event.consumer_tag, event.redelivered, event.body) for event in deliveries] == [(tag, False, body) for body in bodies]  # fmt: skip
    assert (returned.reply, returned.origin, returned.body) == ("312 NO_ROUTE", b"\0\7nowhere", b"3")  # fmt: skip
    while (confirmed := sender.events[-1].tag) < 4:
        await sender.next(Confirmed, len(sender.events) + 1)
    assert (confirmed, {event.accepted for event in sender.events}) == (4, {True})
    assert (await connection.call(1, methods.QueueDelete("q"))).message_count == 0
    assert await receiver.next(Cancelled, 1) == [Cancelled(2, tag.decode())]
    with pytest.raises(ChannelClosed, match="404 NOT_FOUND"):
        await connection.call(1, methods.QueueDeclare("q", True))
    await connection.channel(1)
    await connection.close()
    await connection.close()


async def test_a_channel_that_nobody_waits_on_ends_the_connection(amqp_broker: FreshVhost) -> None:
    connection = await asynchronous.connect(parse_uri(amqp_broker.url, "test"))
    await connection.channel(1)

    connection.transport.write(frame(methods.BasicAck(99), 1))
    await asyncio.wait_for(connection.ended, TIMEOUT_S)

    assert isinstance(connection.error, ChannelClosed)
    assert connection.error.reply_code == 406
    with pytest.raises(ChannelClosed):
        await connection.call(1, methods.QueueDeclare())
    await connection.close()


async def test_a_loops_heartbeats_keep_the_connection(amqp_broker: FreshVhost) -> None:
    connection = await asynchronous.connect(parse_uri(amqp_broker.url, "test"), heartbeat_s=1)

    await asyncio.wait({connection.ended}, timeout=3.5)  # the broker gives up after 3 s at most

    assert connection.error is None
    await connection.close()


def test_a_thread_publishes_consumes_and_declares(amqp_broker: FreshVhost) -> None:
    with closing(blocking.connect(parse_uri(amqp_broker.url, "test"), TIMEOUT_S)) as connection:
        assert connection.call(methods.QueueDeclare("q")).queue == "q"
        connection.send(publish("q", b"1") + publish("nowhere", b"2"))
        assert connection.call(methods.QueueDeclare("q", True)).consumer_count == 0
        returned, first, *others = stepped(connection, Confirmed | Returned, 3)  # type: ignore[arg-type]
        confirmed = {event.tag for event in (first, *others)}
        connection.send(frame(methods.BasicConsume("q", "c", no_ack=True, nowait=True)))
        (delivered,) = stepped(connection, Delivered, 1)
        with pytest.raises(ChannelClosed, match="404 NOT_FOUND"):
            connection.call(methods.QueueDeclare("other", True))
        connection.open_channel()
        assert connection.call(methods.QueueDelete("q")).message_count == 0

    assert (delivered.consumer_tag, delivered.body, confirmed) == (b"c", b"1", {1, 2})
    assert isinstance(returned, Returned) or Returned in map(type, others)


def test_a_thread_is_told_that_the_channel_was_closed_behind_the_confirms(
    amqp_broker: FreshVhost,
) -> None:
    with closing(blocking.connect(parse_uri(amqp_broker.url, "test"), TIMEOUT_S)) as connection:
        connection.call(methods.QueueDeclare("q"))
        connection.send(publish("q", b"1"))
        stepped(connection, Confirmed, 1)

        connection.send(frame(methods.BasicAck(99)))

        with pytest.raises(BrokerError, match="the broker closed the channel: 406"):
            stepped(connection, Confirmed, 1)
        with pytest.raises(BrokerError, match="406"):
            connection.step(0)


def test_both_drivers_pass_over_tls(tmp_path: Path) -> None:
    node = start_leveret_with_tls(tmp_path)
    target = parse_uri(f"amqps://localhost:{node.tls_port}", "test")
    context = ssl.create_default_context(cafile=str(tmp_path / "Test" / "ca.pem"))

    async def declared() -> Any:
        connection = await asynchronous.connect(target, context=context)
        await connection.channel(1)
        found = await connection.call(1, methods.QueueDeclare("q" * 200))
        await connection.close()
        return found.queue

    try:
        assert asyncio.run(declared()) == "q" * 200
        with closing(blocking.connect(target, TIMEOUT_S, context)) as connection:
            assert connection.call(methods.QueueDelete("q" * 200)).message_count == 0
        with pytest.raises(BrokerError, match="certificate verify failed"):
            blocking.connect(target, TIMEOUT_S)
        with pytest.raises(BrokerError, match="cannot connect"):
            asyncio.run(asynchronous.connect(target))  # type: ignore[arg-type]
    finally:
        stop_leveret(node)


async def connect_async(target: Target) -> None:
    connection = await asynchronous.connect(target)
    await connection.close()


def connect_blocking(target: Target) -> None:
    blocking.connect(target, TIMEOUT_S).close()


def drive(driver: Callable[[Target], Any], target: Target) -> None:
    made = driver(target)
    if made is not None:
        asyncio.run(made)


BOTH = pytest.mark.parametrize("driver", [connect_async, connect_blocking])


@BOTH
@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"user": "nobody", "password": "hunter2"}, "403 ACCESS_REFUSED"),
        ({"vhost": "nowhere"}, "530 NOT_ALLOWED"),
        ({"vhost": "v" * 256}, "longer than 255 bytes"),
        ({"port": 1}, "cannot connect"),
    ],
)
def test_a_login_that_is_refused_says_why(
    amqp_broker: FreshVhost, driver: Any, change: dict[str, Any], text: str
) -> None:
    target = replace(parse_uri(amqp_broker.url, "test"), **change)

    with pytest.raises(BrokerError, match=text) as caught:
        drive(driver, target)

    assert "hunter2" not in str(caught.value)


# Against others.


@contextmanager
def peer(answer: bytes) -> Iterator[Target]:
    """A peer that answers the greeting with these bytes and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            sock, _ = listener.accept()
            with sock:
                sock.recv(8)
                sock.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield Target("127.0.0.1", listener.getsockname()[1], "u", "p")
        thread.join(TIMEOUT_S)


@BOTH
@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"", "the connection is lost: the broker closed it"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak AMQP"),
        (frame(methods.ConnectionStart(), 0), "the connection is lost"),
        (frame(methods.ConnectionClose(541, "INTERNAL_ERROR"), 0), "541 INTERNAL_ERROR"),
        (frame(methods.ConnectionCloseOk(), 0), "connection.close-ok"),
    ],
)
def test_a_peer_that_lets_nobody_in_is_named(driver: Any, answer: bytes, text: str) -> None:
    with peer(answer) as target, pytest.raises(BrokerError, match=text):
        drive(driver, target)


def test_an_answer_that_does_not_come_is_not_waited_for_forever() -> None:
    async def call(target: Target) -> None:
        connection = await asynchronous.connect(target)
        try:
            await connection.call(0, methods.BasicQos(), timeout_s=0.05)
        finally:
            connection.transport.abort()

    with scripted() as broker:
        target = parse_uri(broker.uri, "test")
        with pytest.raises(BrokerError, match=r"no answer to basic\.qos within 0\.05 s"):
            asyncio.run(call(target))
        connection = blocking.connect(target, TIMEOUT_S)
        with pytest.raises(BrokerError, match=r"no answer to basic\.qos in time"):
            connection.call(methods.BasicQos(), 0.05)
        connection.abort()


def test_confirms_that_come_before_an_answer_are_kept() -> None:
    def script(peer: Peer, tag: int, _message: Any) -> None:
        peer.ack(tag)
        if tag == 2:
            peer.send(methods.QueueDeclareOk("q", 2, 0))

    with scripted(script) as broker:
        connection = blocking.connect(parse_uri(broker.uri, "test"), TIMEOUT_S)
        connection.send(publish("q", b"1") + publish("q", b"2"))

        assert connection.call(methods.QueueDeclare("q", True)).message_count == 2
        assert stepped(connection, Confirmed, 2) == [
            Confirmed(CHANNEL, tag, False, True) for tag in (1, 2)
        ]
        connection.close()


async def test_an_answer_without_a_request_ends_the_connection() -> None:
    def script(peer: Peer, _tag: int, _message: Any) -> None:
        peer.send(methods.BasicQosOk())

    with scripted(script) as broker:
        connection = await asynchronous.connect(parse_uri(broker.uri, "test"))
        await connection.channel(1)
        connection.transport.write(publish("q", b"1", 1))
        await asyncio.wait_for(connection.ended, TIMEOUT_S)

    assert str(connection.error) == "the broker sent basic.qos-ok without a request"
