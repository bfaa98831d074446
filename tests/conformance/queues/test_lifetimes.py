"""How long queues and messages live: auto-delete, x-expires, TTL, lost connections."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from conformance.conftest import Connect
from conformance.raw import Channel, is_there
from rigs.waiting import wait_until


def _wait_until_gone(connect: Connect, queue: str) -> None:
    witness = connect()
    wait_until(lambda: not is_there(witness, queue))


def test_auto_delete_with_the_last_consumer(channel: Channel, name: str) -> None:
    channel.ok("queue.declare", queue=name, auto_delete=True)
    for tag in "ab":
        channel.ok("basic.consume", queue=name, consumer_tag=tag)

    channel.ok("basic.cancel", consumer_tag="a")
    channel.ok("queue.declare", queue=name, passive=True)
    channel.ok("basic.cancel", consumer_tag="b")

    assert channel.error("queue.declare", queue=name, passive=True)[1] == 404


def test_auto_delete_with_the_channel(connect: Connect, channel: Channel, name: str) -> None:
    channel.ok("queue.declare", queue=name, auto_delete=True)
    channel.ok("basic.consume", queue=name)

    channel.ok("channel.close", reply_code=200)

    _wait_until_gone(connect, name)


def test_auto_delete_with_a_channel_that_fails(channel: Channel, name: str) -> None:
    """The consumers are gone when the client sees channel.close."""
    channel.ok("queue.declare", queue=name, auto_delete=True)
    channel.ok("basic.consume", queue=name)
    witness = channel.connection.channel()

    channel.error("queue.declare", queue=name + "-no", passive=True)

    assert witness.error("queue.declare", queue=name, passive=True)[1] == 404


def test_auto_delete_with_the_socket(connect: Connect, name: str) -> None:
    lost = connect()
    consumer = lost.channel()
    consumer.ok("queue.declare", queue=name, auto_delete=True)
    consumer.ok("basic.consume", queue=name)

    lost.drop()

    _wait_until_gone(connect, name)


def test_auto_delete_without_consumers_ever_stays(
    connect: Connect, name: str, litter: Callable[..., None]
) -> None:
    litter(name)
    first = connect()
    first.channel().ok("queue.declare", queue=name, auto_delete=True)
    first.channel().get(name)

    first.close()

    connect().channel().ok("queue.declare", queue=name, passive=True)


def _is_reached(channel: Channel, routing_key: str, exchange: str = "") -> bool:
    """Tell whether a message gets to a queue, which is no use of the queue as x-expires has it."""
    channel.publish(routing_key, exchange=exchange, mandatory=True)
    return not any(event.name == "basic.return" for event in channel.settle())


def test_a_queue_expires_unless_it_has_a_consumer(
    connect: Connect, channel: Channel, name: str
) -> None:
    arguments, consumed = {"x-expires": 300}, f"{name}-consumed"
    channel.ok("queue.declare", queue=consumed, arguments=arguments)
    channel.ok("basic.consume", queue=consumed)
    channel.ok("queue.declare", queue=name, arguments=arguments)

    witness = connect().channel()
    wait_until(lambda: not _is_reached(witness, name))

    witness.ok("queue.delete", queue=consumed)
    assert witness.error("queue.declare", queue=name, passive=True)[1] == 404


@pytest.mark.parametrize("method", ["queue.declare", "basic.get"])
def test_expires_starts_again_with_use(channel: Channel, name: str, method: str) -> None:
    fields = {"arguments": {"x-expires": 500}} if method == "queue.declare" else {}
    channel.ok("queue.declare", queue=name, arguments={"x-expires": 500})
    channel.ok("queue.bind", queue=name, exchange="amq.direct", routing_key=name)

    until_s = time.monotonic() + 0.6
    while time.monotonic() < until_s:
        channel.ok(method, queue=name, **fields)

    # A queue that had gone and was declared anew would have lost its binding.
    assert _is_reached(channel, name, "amq.direct")
    wait_until(lambda: not _is_reached(channel, name))
    assert channel.error("queue.declare", queue=name, passive=True)[1] == 404


def test_message_ttl_of_the_queue(channel: Channel, name: str) -> None:
    arguments = {"x-message-ttl": 500}
    channel.ok("queue.declare", queue=name, exclusive=True, arguments=arguments)
    channel.publish(name, "m")
    assert channel.ready(name) == 1

    wait_until(lambda: channel.ready(name) == 0)


def test_message_ttl_of_zero_wants_a_consumer_that_is_ready(channel: Channel, name: str) -> None:
    channel.ok("queue.declare", queue=name, exclusive=True, arguments={"x-message-ttl": 0})
    channel.publish(name, "dropped")
    assert channel.ready(name) == 0

    channel.ok("basic.consume", queue=name, no_ack=True)
    channel.publish(name, "delivered")

    assert channel.bodies(1) == [b"delivered"]


def test_message_ttl_is_the_smaller_of_the_queues_and_its_own(channel: Channel, name: str) -> None:
    arguments = {"x-message-ttl": 60000}
    channel.ok("queue.declare", queue=name, exclusive=True, arguments=arguments)
    channel.publish(name, "short", expiration="500")
    channel.publish(name, "long", expiration="100000")
    assert channel.ready(name) == 2

    wait_until(lambda: channel.ready(name) == 1)

    assert channel.get(name).body == b"long"


def test_only_the_head_expires(channel: Channel, name: str) -> None:
    beside = f"{name}-beside"
    for queue in (name, beside):
        channel.ok("queue.declare", queue=queue, exclusive=True)
    channel.publish(name, "stays")
    for queue in (name, beside):
        channel.publish(queue, "expires", expiration="100")
    assert channel.ready(name) == 2

    wait_until(lambda: channel.ready(beside) == 0)

    assert channel.ready(name) == 2
    assert channel.get(name).body == b"stays"
    assert channel.get(name).name == "basic.get-empty"


def test_an_exclusive_queue_of_a_lost_connection_can_be_declared_again(
    connect: Connect, name: str
) -> None:
    first = connect()
    first.channel().ok("queue.declare", queue=name, exclusive=True)
    first.drop()

    _wait_until_gone(connect, name)

    connect().channel().ok("queue.declare", queue=name, exclusive=True)
