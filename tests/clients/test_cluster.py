"""Clients that know one address, behind which are three nodes: every connection is made with another."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import aio_pika
import pika
import pytest
from pika.exceptions import AMQPConnectionError, ChannelClosedByBroker

from rigs.cluster.balanced_cluster import balanced
from rigs.cluster.etcd import Etcd
from rigs.nodes import BrokerUnderTest


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, etcd: Etcd) -> Iterator[BrokerUnderTest]:
    with balanced(tmp_path_factory.mktemp("cluster"), etcd, "test-clients", 3) as broker:
        yield broker


def opened(cluster: BrokerUnderTest) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.URLParameters(cluster.url))


def test_what_one_connection_of_pika_is_told_holds_for_all_others(
    cluster: BrokerUnderTest, name: str
) -> None:
    channels = [opened(cluster).channel() for _ in range(3)]
    for channel in channels:
        channel.confirm_delivery()
    for number, channel in enumerate(channels):
        queue, exchange = f"{name}-{number}", f"{name}-x{number}"
        channel.queue_declare(queue, durable=number > 0)
        channel.exchange_declare(exchange, "topic")
        channel.queue_bind(queue, exchange, "a.*")
        for each in channels:
            each.basic_publish(exchange, "a.b", b"1", mandatory=True)
        channels[number - 1].queue_delete(queue)
        channel.exchange_delete(exchange)
        for each in channels:
            with pytest.raises(ChannelClosedByBroker, match="no queue"):
                each.connection.channel().queue_declare(queue, passive=True)
            with pytest.raises(ChannelClosedByBroker, match="no exchange"):
                each.connection.channel().exchange_declare(exchange, passive=True)
    for channel in channels:
        channel.connection.close()


def test_exclusive_queues_are_free_on_all_nodes_when_their_connection_is_closed(
    cluster: BrokerUnderTest, name: str
) -> None:
    for _ in range(3):
        owner = opened(cluster)
        owner.channel().queue_declare(name, exclusive=True)
        owner.close()


def test_a_vhost_that_is_imported_by_one_node_serves_on_all_within_its_limit(
    cluster: BrokerUnderTest, name: str
) -> None:
    everything = dict.fromkeys(("configure", "write", "read"), ".*")
    limits = {"component": "vhost-limits", "vhost": name, "name": "limits"}
    cluster.import_definitions(
        {
            "vhosts": [{"name": name}],
            "permissions": [{"user": "guest", "vhost": name} | everything],
            "parameters": [limits | {"value": {"max-connections": 3}}],
        }
    )
    url = pika.URLParameters(cluster.url + name)
    connections = [pika.BlockingConnection(url) for _ in range(3)]
    for _ in connections:
        with pytest.raises(AMQPConnectionError, match="limit"):
            pika.BlockingConnection(url)
    connections.pop().close()
    connections.append(pika.BlockingConnection(url))
    for connection in connections:
        connection.close()
    cluster.control("delete_vhost", name)


async def test_consumers_of_aio_pika_on_all_nodes_share_the_messages_of_all(
    cluster: BrokerUnderTest, name: str
) -> None:
    connections = [await aio_pika.connect(cluster.url) for _ in range(3)]
    channels = [await connection.channel() for connection in connections]
    await channels[0].declare_queue(name, auto_delete=True)
    got: list[bytes] = []
    done = asyncio.Event()
    expected = {b"%d" % number for number in range(60)}

    async def take(message: aio_pika.abc.AbstractIncomingMessage) -> None:
        await message.ack()
        got.append(message.body)
        if len(got) == len(expected):
            done.set()

    for channel in channels:
        await channel.set_qos(prefetch_count=2)
        await (await channel.get_queue(name)).consume(take)
    for number in range(60):
        message = aio_pika.Message(b"%d" % number)
        await channels[number % 3].default_exchange.publish(message, routing_key=name)
    async with asyncio.timeout(30):
        await done.wait()

    assert (len(got), set(got)) == (len(expected), expected)
    for connection in connections:
        await connection.close()
