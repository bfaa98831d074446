"""The effects of an actor's death on clients, as docs/architecture.md lists them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pika
import pika.exceptions
import pytest

from chaos.rig import Chaos
from conformance.raw import Channel, hard, soft
from leveret.actors.runtime.ref import Ref
from leveret.broker.queue.supervisor import RESTARTS_MAX
from leveret.broker.vhost.states import UP
from leveret.management.node_admin import NodeAdmin
from leveret.supervisors.requests import WhichChildren
from rigs.waiting import SOON_S, eventually

in_thread = asyncio.to_thread
INTERNAL = "INTERNAL_ERROR"


@pytest.fixture(params=["kill", "crash"])
def end(request: pytest.FixtureRequest, chaos: Chaos) -> Callable[[Ref], None]:
    """End an actor, one way or the other."""
    return chaos.kill if request.param == "kill" else chaos.crash


async def declared(chaos: Chaos, queue: str, **fields: Any) -> Channel:
    channel = await chaos.channel()
    await in_thread(lambda: channel.ok("queue.declare", queue=queue, **fields))
    return channel


async def confirming(chaos: Chaos, queue: str) -> Channel:
    channel = await declared(chaos, queue)
    await in_thread(channel.ok, "confirm.select")
    return channel


async def is_alive(channel: Channel) -> bool:
    """Whether the channel answers, with nothing before the answer."""
    return await in_thread(channel.settle) == []


async def publish(channel: Channel, queue: str, body: str) -> str:
    """Publish one message and return what the broker says to it."""

    def sent() -> str:
        channel.publish(queue, body)
        return channel.read().name

    return await in_thread(sent)


# A queue's pair.


@pytest.mark.parametrize("half", ["amqqueue", "backing"])
async def test_a_queue_that_dies_comes_back_empty_with_its_consumers(
    chaos: Chaos, end: Callable[[Ref], None], half: str
) -> None:
    publisher = await confirming(chaos, "orders")
    consumer = await declared(chaos, "orders")
    await in_thread(lambda: consumer.ok("basic.qos", prefetch_count=3))
    await in_thread(lambda: consumer.ok("basic.consume", queue="orders", consumer_tag="c"))
    for number in range(10):
        assert await publish(publisher, "orders", str(number)) == "basic.ack"
    assert await in_thread(consumer.bodies, 3) == [b"0", b"1", b"2"]
    old = chaos.find("queue:orders", "amqqueue")

    end(chaos.find("queue:orders", half))
    await eventually(lambda: chaos.find("queue:orders", "amqqueue") is not old)

    assert await publish(publisher, "orders", "new") == "basic.ack"
    (delivery,) = await in_thread(consumer.deliveries, 1)
    assert (delivery.body, delivery.consumer_tag, delivery.redelivered) == (b"new", "c", False)
    again = await in_thread(lambda: publisher.ok("queue.declare", queue="orders", passive=True))
    assert (again.message_count, again.consumer_count) == (0, 1)
    for tag in (1, 2, 3, 4):  # those of the dead incarnation settle silently
        await in_thread(lambda tag=tag: consumer.send("basic.ack", delivery_tag=tag))
    assert await is_alive(consumer)
    assert await is_alive(publisher)


async def test_publishes_that_a_dying_queue_has_not_seen_are_nacked(
    chaos: Chaos, end: Callable[[Ref], None]
) -> None:
    channel = await confirming(chaos, "orders")
    queue = chaos.find("queue:orders", "amqqueue")
    chaos.runtime.suspend(queue)
    for number in range(5):
        await in_thread(channel.publish, "orders", str(number))
    await eventually(queue.cell.has_mail)

    if end == chaos.crash:
        chaos.runtime.exit(queue, "boom")  # a poisoned mail would wait with the others
    else:
        end(queue)

    event = await in_thread(channel.read)
    assert (event.name, event.delivery_tag, event.multiple) == ("basic.nack", 5, True)
    assert await publish(channel, "orders", "new") == "basic.ack"
    assert await in_thread(channel.ready, "orders") == 1


async def test_a_publisher_that_a_dead_queue_held_back_goes_on(chaos: Chaos) -> None:
    channel = await declared(chaos, "orders")
    queue = chaos.find("queue:orders", "amqqueue")
    chaos.runtime.suspend(queue)
    reader = chaos.broker.node.connections.readers[chaos.reader_of(channel.connection)]
    for _ in range(500):  # beyond the credit
        await in_thread(channel.publish, "orders", "x")
    await eventually(lambda: reader.read_control.is_blocked)

    chaos.kill(queue)

    await eventually(lambda: not reader.read_control.is_blocked)
    assert await is_alive(channel)


async def test_a_consume_under_way_while_its_queue_dies_is_answered_once(chaos: Chaos) -> None:
    channel = await declared(chaos, "orders")
    queue = chaos.find("queue:orders", "amqqueue")
    chaos.runtime.suspend(queue)
    asked = asyncio.create_task(
        in_thread(lambda: channel.ok("basic.consume", queue="orders", consumer_tag="c"))
    )
    await eventually(queue.cell.has_mail)

    chaos.kill(queue)

    assert (await asked).consumer_tag == "c"
    again = await in_thread(lambda: channel.ok("queue.declare", queue="orders", passive=True))
    assert again.consumer_count == 1


@pytest.mark.parametrize("how_often", ["too often", "its supervisor"])
async def test_a_queue_that_crashes_too_often_stays_down_alone(
    chaos: Chaos, end: Callable[[Ref], None], how_often: str
) -> None:
    channel = await declared(chaos, "orders", durable=True)
    consumer = await declared(chaos, "orders", durable=True)
    await in_thread(lambda: consumer.ok("basic.consume", queue="orders", consumer_tag="c"))
    if how_often == "too often":
        for _ in range(RESTARTS_MAX + 1):
            queue = chaos.find("queue:orders", "amqqueue")
            end(queue)
            await eventually(lambda queue=queue: not queue.is_alive)
            await chaos.runtime.call(chaos.find("queues"), WhichChildren())  # restarted by now
    else:
        chaos.kill(chaos.find("queue:orders"))

    cancelled = await in_thread(consumer.read)
    assert (cancelled.name, cancelled.consumer_tag) == ("basic.cancel", "c")
    assert await is_alive(consumer)
    error = await in_thread(lambda: channel.error("queue.declare", queue="orders", passive=True))
    assert error == soft(
        404,
        "NOT_FOUND - queue 'orders' in vhost '/' has crashed and failed to restart",
        "queue.declare",
    )
    await chaos.round_trip("other")
    assert await publish(await confirming_only(chaos), "orders", "x") == "basic.nack"
    again = await chaos.channel()
    await in_thread(lambda: again.ok("queue.delete", queue="orders"))
    await chaos.round_trip("orders")


async def confirming_only(chaos: Chaos) -> Channel:
    channel = await chaos.channel()
    await in_thread(channel.ok, "confirm.select")
    return channel


async def test_pika_hears_nothing_of_a_restart_but_nacks(chaos: Chaos) -> None:
    """A blocking consumer and a blocking publisher, neither of which connects again."""
    url = chaos.broker.url
    seen: list[bytes] = []
    refused = 0

    def consume() -> None:
        with pika.BlockingConnection(pika.URLParameters(url)) as connection:
            channel = connection.channel()
            channel.queue_declare("orders")
            channel.basic_qos(prefetch_count=5)
            for method, _, body in channel.consume("orders", inactivity_timeout=SOON_S):
                if method is None or body == b"last":
                    return
                seen.append(body)
                channel.basic_ack(method.delivery_tag)

    def publish_some(bodies: list[str]) -> None:
        nonlocal refused
        for body in bodies:
            try:
                publisher.basic_publish("", "orders", body.encode())
            except pika.exceptions.NackError:
                refused += 1

    def dial() -> pika.BlockingConnection:
        return pika.BlockingConnection(pika.URLParameters(url))

    connection = await in_thread(dial)
    publisher = await in_thread(connection.channel)
    await in_thread(publisher.queue_declare, "orders")
    await in_thread(publisher.confirm_delivery)
    consuming = asyncio.create_task(in_thread(consume))
    for turn in range(10):
        publishing = asyncio.create_task(
            in_thread(publish_some, [f"{turn}.{number}" for number in range(20)])
        )
        before = len(seen)
        await eventually(lambda before=before: len(seen) > before)
        chaos.clock.skip(11)
        chaos.kill(chaos.find("queue:orders", "amqqueue" if turn % 2 else "backing"))
        await publishing
    await in_thread(publish_some, ["last"])

    await consuming
    await in_thread(connection.close)
    assert len(seen) + refused <= 200 + 5 * 10, "an unacked message was redelivered more than once"
    assert refused < 20


# Connections and channels.


async def with_unacked(chaos: Chaos) -> Channel:
    """A channel that has not settled the one message of ``orders``, and an exclusive queue."""
    channel = await confirming(chaos, "orders")
    await in_thread(lambda: channel.ok("queue.declare", queue="own", exclusive=True))
    assert await publish(channel, "orders", "precious") == "basic.ack"
    assert (await in_thread(lambda: channel.get("orders", no_ack=False))).body == b"precious"
    return channel


async def message_is_back(chaos: Chaos) -> None:
    other = await chaos.channel()
    event = await in_thread(other.get, "orders")
    while event.name == "basic.get-empty":
        event = await in_thread(other.get, "orders")
    assert (event.body, event.redelivered) == (b"precious", True)
    queues = chaos.broker.node.vhosts["/"].topology.queues
    await eventually(lambda: "own" not in queues)
    error = await in_thread(lambda: other.error("queue.declare", queue="own", passive=True))
    assert error[1] == 404


async def test_a_channel_that_dies_takes_its_connection_along(
    chaos: Chaos, end: Callable[[Ref], None]
) -> None:
    channel = await with_unacked(chaos)

    end(chaos.channel_of(channel.connection))

    assert await in_thread(channel.read_error) == hard(541, INTERNAL, "")
    await in_thread(channel.connection.send, "connection.close-ok")
    assert await in_thread(channel.connection.read_until_closed) == []
    await message_is_back(chaos)


async def test_a_channel_that_dies_with_its_connection_held_back_closes_it_at_once(
    chaos: Chaos,
) -> None:
    channel = await declared(chaos, "orders")
    queue = chaos.find("queue:orders", "amqqueue")
    chaos.runtime.suspend(queue)
    reader = chaos.broker.node.connections.readers[chaos.reader_of(channel.connection)]
    for _ in range(500):
        await in_thread(channel.publish, "orders", "x")
    await eventually(lambda: reader.read_control.is_blocked)

    chaos.kill(chaos.channel_of(channel.connection))
    chaos.runtime.resume(queue)

    assert await in_thread(channel.read_error) == hard(541, INTERNAL, "")
    await in_thread(channel.connection.send, "connection.close-ok")
    assert await in_thread(channel.connection.read_until_closed) == []


async def test_a_reader_that_dies_closes_its_socket(
    chaos: Chaos, end: Callable[[Ref], None]
) -> None:
    channel = await with_unacked(chaos)
    bystander = await declared(chaos, "orders")

    end(chaos.reader_of(channel.connection))

    assert await in_thread(channel.connection.read_until_closed) == []
    await message_is_back(chaos)
    assert await is_alive(bystander)
    assert len(chaos.broker.node.connections.readers) == 2  # of the bystander, and of who looked


async def test_exclusive_queues_that_had_crashed_go_with_their_connection(
    chaos: Chaos, end: Callable[[Ref], None]
) -> None:
    channel = await with_unacked(chaos)
    chaos.kill(chaos.find("queue:own"))

    end(chaos.reader_of(channel.connection))

    await message_is_back(chaos)


async def test_a_connection_supervisor_that_dies_closes_its_connection(chaos: Chaos) -> None:
    channel = await with_unacked(chaos)
    reader = chaos.broker.node.connections.readers[chaos.reader_of(channel.connection)]

    chaos.kill(chaos.find(f"connection:{reader.name}"))

    assert await in_thread(channel.read_error) == hard(541, INTERNAL, "")
    await in_thread(channel.connection.send, "connection.close-ok")
    await message_is_back(chaos)


async def test_a_reader_that_dies_before_login_closes_its_socket(
    chaos: Chaos, end: Callable[[Ref], None]
) -> None:
    connection = await chaos.dial()
    await in_thread(connection.send_bytes, b"AMQP\0\0\x09\x01")
    assert (await in_thread(connection.read)).name == "connection.start"

    end(chaos.find("readers", "reader"))

    assert await in_thread(connection.read_until_closed) == []


@pytest.mark.parametrize("label", ["listener", "readers", "connections"])
async def test_the_way_in_comes_back_and_its_connections_are_closed(
    chaos: Chaos, label: str
) -> None:
    channel = await with_unacked(chaos)
    old = chaos.find("listeners", label)

    chaos.kill(old)

    ended = await in_thread(channel.connection.read_until_closed)
    assert [event.name for event in ended] in ([], ["connection.close"])
    await eventually(lambda: chaos.broker.node.sockets.servers and not old.is_alive)
    assert len(chaos.broker.node.sockets.servers) == 1
    await message_is_back(chaos)
    await chaos.round_trip("orders")


# Below the connections.


async def test_declares_wait_for_a_dead_metadata_store_and_messages_do_not(
    chaos: Chaos, end: Callable[[Ref], None]
) -> None:
    channel = await confirming(chaos, "orders")
    names = {"first", "second", "third"}
    asked = [asyncio.create_task(declared(chaos, name, durable=True)) for name in names]
    for _ in range(5):
        end(chaos.find("metadata_store"))
        assert await publish(channel, "orders", "x") == "basic.ack"
        await eventually(lambda: chaos.runtime.whereis("metadata_store"))

    for task in asked:
        await task
    assert {row.name for row in chaos.broker.node.metadata.store.load().queues} == names


@pytest.mark.parametrize("label", ["queues_and_stores", "queues", "recovery"])
async def test_a_vhost_that_dies_is_recovered_twice_in_five_minutes(
    chaos: Chaos, label: str
) -> None:
    consumer = await declared(chaos, "orders")
    await in_thread(lambda: consumer.ok("basic.consume", queue="orders", consumer_tag="c"))
    publisher = await confirming(chaos, "orders")
    vhost = chaos.broker.node.vhosts["/"]
    for _ in range(2):
        old = chaos.find("vhost:/", "recovery")

        chaos.kill(chaos.find(label))
        await eventually(lambda old=old: not old.is_alive)
        await eventually(
            lambda: (
                vhost.state.now in UP
                and all(each.is_running for each in vhost.topology.queues.values())
            )
        )

        assert await publish(publisher, "orders", "x") == "basic.ack"
        assert await in_thread(consumer.bodies, 1) == [b"x"]
    chaos.kill(chaos.find(label))

    for channel in (consumer, publisher):
        assert await in_thread(channel.read_error) == hard(
            320, "CONNECTION_FORCED - vhost '/' is down", ""
        )
    await eventually(lambda: vhost.state.now not in UP)


async def test_a_vhost_that_stays_down_refuses_connections_and_others_serve(chaos: Chaos) -> None:
    admin = NodeAdmin(chaos.broker)
    await admin.vhosts.add_vhost("other")
    await admin.users.set_permissions("other", "guest", ".*", ".*", ".*")
    bystander = await chaos.channel(vhost="other")
    await in_thread(lambda: bystander.ok("queue.declare", queue="orders"))
    vhost = chaos.broker.node.vhosts["/"]
    for _ in range(3):
        old = chaos.find("vhost:/", "queues_and_stores")
        chaos.kill(old)
        await eventually(lambda old=old: not old.is_alive)
        await eventually(lambda: vhost.state.now in UP or "vhost:/" not in labels_of(chaos))

    connection = await chaos.dial()
    refused = await in_thread(connection.open)

    assert (refused.name, refused.reply_code) == ("connection.close", 541)
    assert refused.reply_text == (
        "INTERNAL_ERROR - access to vhost '/' refused for user 'guest': vhost '/' is down"
    )
    assert (refused.class_id, refused.method_id) == (10, 40)
    assert await is_alive(bystander)
    assert await in_thread(bystander.ready, "orders") == 0


def labels_of(chaos: Chaos) -> set[str]:
    return {node.label for node in chaos.nodes()}


async def test_a_broker_that_stops_says_so_to_clients_with_channels(chaos: Chaos) -> None:
    channel = await with_unacked(chaos)

    stopping = asyncio.create_task(chaos.broker.stop())

    assert await in_thread(channel.read_error) == hard(
        320, "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'", ""
    )
    await stopping
