"""A cluster of two brokers over real sockets, with messages on disk."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aio_pika
import pytest
from aio_pika.abc import AbstractIncomingMessage
from aio_pika.exceptions import ChannelNotFoundEntity

from rigs.socket_cluster import is_up, start_cluster

COUNT = 500


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

    await there.stop()
    with pytest.raises(ChannelNotFoundEntity, match="home node 'a' of durable queue 'q' in vhost"):
        await (await connection.channel()).declare_queue("q", durable=True)

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
