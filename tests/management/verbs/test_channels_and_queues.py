"""Channels, consumers and single queues, as an operator sees and changes them.

Tests: broker/channel/stats.py, management/verbs/connections.py
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aio_pika
import pytest

from leveret.core.slices import SLICE_ITEMS
from leveret.management.errors import RefusedError
from leveret.management.node_admin import NodeAdmin
from leveret.server.broker import Broker
from leveret.server.cli.commands import CHANNEL_COLUMNS, CONSUMER_COLUMNS, UNRESPONSIVE_COLUMNS
from rigs.waiting import eventually


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[Any]:
    connection = await aio_pika.connect(broker.url)
    async with connection:
        yield connection


async def refusal(coroutine: Any) -> tuple[int, str]:
    with pytest.raises(RefusedError) as caught:
        await coroutine
    return caught.value.exit_code, str(caught.value)


async def ignore(message: object) -> None:
    """Leave a message unacked."""


async def test_channels_are_listed_with_all_columns(admin: NodeAdmin, client: Any) -> None:
    plain = await client.channel(publisher_confirms=False)
    busy = await client.channel()
    await busy.set_qos(3)
    queue = await busy.declare_queue("q")
    for _ in range(5):
        await busy.default_exchange.publish(aio_pika.Message(b"x"), "q")
    await queue.consume(ignore)
    await eventually(lambda: len(unacked(admin)) == 3)

    first, second = await admin.connections.list_channels()

    assert set(first) == set(CHANNEL_COLUMNS)
    (connection,) = await admin.connections.list_connections()
    assert first["connection"] == second["connection"] == connection["pid"]
    assert first["name"] == f"{connection['name']} (1)"
    assert (first["number"], first["user"], first["vhost"]) == (1, "guest", "/")
    assert (first["confirm"], second["confirm"]) == (False, True)
    assert (second["consumer_count"], second["messages_unacknowledged"]) == (1, 3)
    assert (first["prefetch_count"], second["prefetch_count"]) == (0, 3)
    assert (second["messages_unconfirmed"], second["global_prefetch_count"]) == (0, 0)
    assert not any(first[name] for name in ("transactional", "messages_uncommitted"))
    await plain.close()
    await busy.close()
    assert await admin.connections.list_channels() == []


def unacked(admin: NodeAdmin) -> range:
    readers = admin._node.connections.readers.values()
    channels = [channel for reader in readers for channel in reader.channels.running()]
    return range(sum(len(channel.deliveries.unacked) for channel in channels))


async def test_consumers_are_listed_by_vhost_with_their_arguments(
    admin: NodeAdmin, client: Any
) -> None:
    channel = await client.channel()
    await channel.set_qos(7)
    queue = await channel.declare_queue("q")
    await queue.consume(ignore, no_ack=True, consumer_tag="a")
    await queue.consume(ignore, consumer_tag="b", arguments={"x-priority": 5})

    first, second = await admin.connections.list_consumers("/")

    assert list(first) == list(CONSUMER_COLUMNS)
    (row,) = await admin.connections.list_channels()
    assert first == {
        "queue_name": "q",
        "channel_pid": row["pid"],
        "consumer_tag": "a",
        "ack_required": False,
        "prefetch_count": 7,
        "active": True,
        "activity_status": "up",
        "arguments": [],
    }
    assert (second["consumer_tag"], second["ack_required"]) == ("b", True)
    ((name, _, priority),) = second["arguments"]
    assert (name, priority) == ("x-priority", 5)
    assert await admin.connections.list_consumers("other") == []
    await queue.cancel("a")
    assert [row["consumer_tag"] for row in await admin.connections.list_consumers("/")] == ["b"]


async def test_one_consumer_is_active_where_a_queue_says_so(admin: NodeAdmin, client: Any) -> None:
    channel = await client.channel()
    single = await channel.declare_queue("s", arguments={"x-single-active-consumer": True})
    plain = await channel.declare_queue("q")
    for tag in ("first", "second"):
        await single.consume(ignore, consumer_tag=tag)
    await plain.consume(ignore, consumer_tag="plain")

    async def states() -> list[tuple[str, bool, str]]:
        rows = await admin.connections.list_consumers("/")
        return [(row["consumer_tag"], row["active"], row["activity_status"]) for row in rows]

    assert await states() == [
        ("first", True, "single_active"),
        ("second", False, "waiting"),
        ("plain", True, "up"),
    ]
    await single.cancel("first")
    assert await states() == [("second", True, "single_active"), ("plain", True, "up")]


async def test_a_transaction_shows_what_it_has_collected(admin: NodeAdmin, client: Any) -> None:
    channel = await client.channel(publisher_confirms=False)
    queue = await channel.declare_queue("q")
    await channel.default_exchange.publish(aio_pika.Message(b"x"), "q")
    message = await queue.get()
    transaction = channel.transaction()
    await transaction.select()
    await message.ack()
    for _ in range(2):
        await channel.default_exchange.publish(aio_pika.Message(b"y"), "q")
    await channel.declare_queue("q")

    (row,) = await admin.connections.list_channels()
    assert (row["transactional"], row["confirm"]) == (True, False)
    assert (row["messages_uncommitted"], row["acks_uncommitted"]) == (2, 1)
    assert row["messages_unacknowledged"] == 1
    await transaction.commit()
    (row,) = await admin.connections.list_channels()
    assert (row["messages_uncommitted"], row["acks_uncommitted"]) == (0, 0)
    assert row["messages_unacknowledged"] == 0


async def test_others_have_their_turn_while_many_consumers_are_listed(
    admin: NodeAdmin, client: Any
) -> None:
    count = 4 * SLICE_ITEMS
    channel = await client.channel()
    queue = await channel.declare_queue("q")
    for number in range(count):
        await queue.consume(ignore, consumer_tag=str(number), no_ack=True)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    running = asyncio.create_task(others())
    rows = await admin.connections.list_consumers("/")
    running.cancel()

    assert len(rows) == count
    assert turns >= count / SLICE_ITEMS


async def test_the_connections_of_a_user_are_closed(
    admin: NodeAdmin, broker: Broker, client: Any
) -> None:
    assert await admin.connections.close_all_user_connections("nobody", "bye") == 0
    assert await admin.connections.close_all_user_connections("guest", "bye") == 1
    await eventually(lambda: not broker.node.connections.readers)


async def test_queues_tell_how_busy_their_consumers_are(admin: NodeAdmin, client: Any) -> None:
    channel = await client.channel()
    await channel.set_qos(1)
    queue = await channel.declare_queue("q")
    await queue.consume(ignore)
    (row,) = await admin.vhosts.list_queues("/")
    assert (row["consumer_capacity"], row["consumer_utilisation"]) == (1.0, 1.0)
    for _ in range(3):
        await channel.default_exchange.publish(aio_pika.Message(b"x"), "q")

    (row,) = await admin.vhosts.list_queues("/")

    assert 0.0 < row["consumer_capacity"] < 1.0


async def test_the_exclusive_consumer_of_a_queue_is_told(admin: NodeAdmin, client: Any) -> None:
    channel = await client.channel()
    queue = await channel.declare_queue("q")
    await queue.consume(ignore, exclusive=True, consumer_tag="mine")

    (row,) = await admin.vhosts.list_queues("/")
    (listed,) = await admin.connections.list_channels()
    assert row["exclusive_consumer_pid"] == listed["pid"]
    assert row["exclusive_consumer_tag"] == "mine"


async def test_a_queue_is_purged_but_for_its_unacked_messages(
    admin: NodeAdmin, client: Any
) -> None:
    channel = await client.channel()
    queue = await channel.declare_queue("q")
    for _ in range(3):
        await channel.default_exchange.publish(aio_pika.Message(b"x"), "q")
    await queue.get()

    assert await admin.queues.purge_queue("/", "q") == 2
    (row,) = await admin.vhosts.list_queues("/")
    assert (row["messages"], row["messages_unacknowledged"]) == (1, 1)
    assert await refusal(admin.queues.purge_queue("/", "nope")) == (69, "not_found")
    assert await refusal(admin.queues.purge_queue("nope", "q")) == (69, "not_found")


async def test_a_queue_is_deleted_on_conditions(admin: NodeAdmin, client: Any) -> None:
    channel = await client.channel()
    queue = await channel.declare_queue("q", durable=True)
    await channel.default_exchange.publish(aio_pika.Message(b"x"), "q")

    assert await refusal(admin.queues.delete_queue("/", "q", True, False)) == (
        64,
        "Queue is not empty",
    )
    await queue.consume(ignore, no_ack=False, consumer_tag="c")
    assert await refusal(admin.queues.delete_queue("/", "q", False, True)) == (
        64,
        "Queue is in use",
    )
    await queue.cancel("c")
    await channel.close()
    assert await admin.queues.delete_queue("/", "q", False, True) == 1
    assert await refusal(admin.queues.delete_queue("/", "q", False, False)) == (
        64,
        "Queue not found",
    )
    assert await admin.vhosts.list_queues("/") == []


async def test_an_exclusive_queue_of_another_is_deleted(admin: NodeAdmin, client: Any) -> None:
    channel = await client.channel()
    await channel.declare_queue("mine", exclusive=True)

    assert await admin.queues.delete_queue("/", "mine", False, False) == 0


async def test_queues_that_do_not_answer_are_listed(
    admin: NodeAdmin, broker: Broker, client: Any
) -> None:
    channel = await client.channel()
    await channel.declare_queue("good")
    await channel.declare_queue("bad")
    bad = broker.node.vhosts["/"].topology.queues["bad"]
    assert bad.ref is not None
    broker.runtime.suspend(bad.ref)

    (row,) = await admin.queues.list_unresponsive_queues("/", 0.05)

    assert row["name"] == "bad"
    assert set(UNRESPONSIVE_COLUMNS) <= set(row)
    broker.runtime.resume(bad.ref)
    assert await admin.queues.list_unresponsive_queues("/", 5.0) == []
    assert (await refusal(admin.queues.unresponsive_rows("nope", 1.0)))[0] == 65


async def test_changes_of_queues_are_lines_of_the_log(
    admin: NodeAdmin, caplog: pytest.LogCaptureFixture
) -> None:
    queue = {"vhost": "/", "name": "a\x1b[31m b"}
    await admin.definitions.import_definitions({"queues": [queue]})
    caplog.clear()
    caplog.set_level("INFO", "leveret.management.audit_log")

    await admin.queues.purge_queue("/", "a\x1b[31m b")
    await admin.queues.delete_queue("/", "a\x1b[31m b", False, False)

    by = 'messages=0 by="the service"'
    assert [record.getMessage() for record in caplog.records] == [
        f'queue purged vhost=/ queue="a\\x1b[31m b" {by}',
        f'queue deleted vhost=/ queue="a\\x1b[31m b" {by}',
    ]


async def test_the_producers_of_a_queue_are_listed_and_forgotten(
    admin: NodeAdmin, client: Any
) -> None:
    channel = await client.channel()
    await channel.declare_queue("q", durable=True)

    async def publish(producer: Any, seq: int) -> None:
        headers = {"x-producer-id": producer, "x-producer-seq": seq, "x-producer-epoch": 2}
        await channel.default_exchange.publish(aio_pika.Message(b"x", headers=headers), "q")

    await publish("first", 4)
    await publish("a b", 9)
    await publish("first", 4)

    listed = await admin.queues.list_producers("/", "q")
    assert [(row["producer"], row["epoch"], row["sequence"]) for row in listed] == [
        ("a b", 2, 9),
        ("first", 2, 4),
    ]
    (row,) = await admin.vhosts.list_queues("/")
    assert (row["producers"], row["messages"]) == (2, 2)

    await admin.queues.forget_producer("/", "q", "a b")
    await publish("a b", 1)

    (row,) = await admin.vhosts.list_queues("/")
    assert (row["producers"], row["messages"]) == (2, 3)
    assert await refusal(admin.queues.forget_producer("/", "q", "c")) == (
        69,
        "There is no producer 'c' in queue 'q' of vhost '/'",
    )
    assert await refusal(admin.queues.list_producers("/", "nope")) == (69, "Queue not found")
    await channel.close()
