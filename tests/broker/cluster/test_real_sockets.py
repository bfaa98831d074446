"""A cluster of two brokers over real sockets, with messages on disk.

Tests: broker/cluster/queue_directory.py, broker/queue/storage/store_writes.py, broker/tree.py
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import aio_pika
import pytest
from aio_pika.abc import AbstractIncomingMessage

from conformance.raw import Connection
from leveret.broker.cluster.queue_directory import QUEUE_DIRECTORY
from leveret.broker.queue_requests import Info
from rigs.cluster.socket_cluster import is_up, start_cluster

COUNT = 500


def refusal(port: int) -> tuple[int, str]:
    """Declare a queue that cannot be; return code and text."""
    connection = Connection(("127.0.0.1", port))
    connection.open()
    closed = connection.channel().call("queue.declare", queue="q", durable=True)
    connection.drop()
    return closed.reply_code, closed.reply_text


@pytest.mark.asyncio
async def test_messages_cross_the_link_and_outlive_the_node_of_their_queue(tmp_path: Path) -> None:
    brokers = await start_cluster(tmp_path)
    there, here = brokers["a"], brokers["b"]
    other = await aio_pika.connect(there.url)
    await (await other.channel()).declare_queue("q", durable=True)
    await other.close()
    connection = await aio_pika.connect(here.url)
    channel = await connection.channel(publisher_confirms=True)
    queue = await channel.declare_queue("q", durable=True)

    def message(number: int) -> aio_pika.Message:
        body = b"%d" % number + bytes(100_000 if number % 100 == 0 else 10)
        return aio_pika.Message(body, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)

    publishes = [channel.default_exchange.publish(message(number), "q") for number in range(COUNT)]
    await asyncio.gather(*publishes)

    entry = here.node.vhosts["/"].topology.queues["q"]
    assert entry.ref is not None
    stats = await here.runtime.call(entry.ref, Info())
    assert stats["messages"] == COUNT

    await there.stop()
    text = "NOT_FOUND - home node 'a' of durable queue 'q' in vhost '/' is down or inaccessible"
    assert await asyncio.to_thread(refusal, here.port) == (404, text)

    await there.start()
    there.links.dial(here.link_address)
    await is_up(here, "a")
    seen: list[bytes] = []
    all_seen = asyncio.Event()

    async def take(incoming: AbstractIncomingMessage) -> None:
        seen.append(incoming.body)
        await incoming.ack()
        if len(seen) == COUNT:
            all_seen.set()

    await channel.set_qos(50)
    await queue.consume(take)
    await asyncio.wait_for(all_seen.wait(), 60)
    assert seen == [message(number).body for number in range(COUNT)]
    await connection.close()
    for broker in brokers.values():
        await broker.stop()


@pytest.mark.asyncio
async def test_a_delegate_holds_what_comes_while_the_disk_does_not_follow(tmp_path: Path) -> None:
    brokers = await start_cluster(tmp_path)
    connection = await aio_pika.connect(brokers["a"].url)
    await (await connection.channel()).declare_queue("q", durable=True)
    await connection.close()
    store = brokers["a"].node.vhosts["/"].store.msg_store
    assert store is not None
    store.backpressure.is_on = True  # until the next flush
    connection = await aio_pika.connect(brokers["b"].url)
    channel = await connection.channel(publisher_confirms=True)
    messages = [
        aio_pika.Message(b"%d" % number, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        for number in range(COUNT)
    ]
    publishes = [channel.default_exchange.publish(each, "q") for each in messages]
    *_, queue = await asyncio.gather(*publishes, channel.declare_queue("q", passive=True))
    assert queue.declaration_result.message_count == COUNT
    assert not store.backpressure.is_on
    assert [(await queue.get()).body for _ in range(COUNT)] == [each.body for each in messages]
    await connection.close()
    for broker in brokers.values():
        await broker.stop()


@pytest.mark.asyncio
async def test_directories_that_are_restarted_tell_each_other_all_again(tmp_path: Path) -> None:
    brokers = await start_cluster(tmp_path)
    runtime = brokers["a"].runtime
    first = runtime.whereis(QUEUE_DIRECTORY)
    assert first is not None
    runtime.exit(first, "kill")
    connections = {name: await aio_pika.connect(broker.url) for name, broker in brokers.items()}
    channels = {name: await connection.channel() for name, connection in connections.items()}
    for name, other in (("a", "b"), ("b", "a")):
        queue = await channels[name].declare_queue(f"of {name}", durable=True)
        seen = await channels[other].declare_queue(f"of {name}", durable=True)
        assert seen.declaration_result.message_count == 0
        await channels[other].default_exchange.publish(aio_pika.Message(b"1"), f"of {name}")
        assert (await queue.get()).body == b"1"
    assert runtime.whereis(QUEUE_DIRECTORY) is not first
    for connection in connections.values():
        await connection.close()
    for broker in brokers.values():
        await broker.stop()
