"""aio-pika: robust connections, topologies, RPC pattern, iterators."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aio_pika
import pytest
from aio_pika.abc import AbstractIncomingMessage, AbstractRobustChannel, AbstractRobustConnection
from aio_pika.patterns import RPC, Master

from rigs.nodes import BrokerUnderTest


@pytest.fixture
async def connection(broker: BrokerUnderTest) -> AsyncIterator[AbstractRobustConnection]:
    opened = await aio_pika.connect_robust(broker.url, timeout=10)
    async with opened:
        yield opened


@pytest.fixture
async def channel(connection: AbstractRobustConnection) -> AbstractRobustChannel:
    return await connection.channel()


async def test_publish_and_iterate(channel: AbstractRobustChannel, name: str) -> None:
    queue = await channel.declare_queue(name, exclusive=True)
    for number in range(20):
        message = aio_pika.Message(b"%d" % number, headers={"n": number}, message_id=str(number))
        await channel.default_exchange.publish(message, routing_key=name)
    seen = []

    async with asyncio.timeout(20), queue.iterator() as messages:
        async for message in messages:
            async with message.process():
                seen.append((message.body, message.headers["n"], message.message_id))
            if len(seen) == 20:
                break

    assert seen == [(b"%d" % n, n, str(n)) for n in range(20)]


async def test_a_hundred_publishes_at_once_are_confirmed(
    channel: AbstractRobustChannel, name: str
) -> None:
    queue = await channel.declare_queue(name, exclusive=True)
    exchange = channel.default_exchange

    confirmed = await asyncio.gather(
        *(exchange.publish(aio_pika.Message(b"m"), routing_key=name) for _ in range(100))
    )

    assert len(confirmed) == 100
    assert (await queue.purge()).message_count == 100


async def test_unroutable_is_returned(connection: AbstractRobustConnection, name: str) -> None:
    channel = await connection.channel(on_return_raises=True)

    with pytest.raises(aio_pika.exceptions.DeliveryError):
        await channel.default_exchange.publish(aio_pika.Message(b"m"), routing_key=name)


async def test_exchanges_and_bindings(channel: AbstractRobustChannel, name: str) -> None:
    topic = await channel.declare_exchange(
        f"{name}-t", aio_pika.ExchangeType.TOPIC, auto_delete=True
    )
    fanout = await channel.declare_exchange(
        f"{name}-f", aio_pika.ExchangeType.FANOUT, auto_delete=True
    )
    queue = await channel.declare_queue(exclusive=True)
    await fanout.bind(topic, "a.#")
    await queue.bind(fanout)

    for key in ("a.b", "b.a", "a"):
        await topic.publish(aio_pika.Message(key.encode()), routing_key=key, mandatory=False)

    bodies = [(await queue.get(timeout=5)).body for _ in range(2)]
    assert bodies == [b"a.b", b"a"]
    assert await queue.get(fail=False) is None


async def test_reject_and_redelivery(channel: AbstractRobustChannel, name: str) -> None:
    queue = await channel.declare_queue(name, exclusive=True)
    await channel.default_exchange.publish(aio_pika.Message(b"m"), routing_key=name)

    first: AbstractIncomingMessage = await queue.get(timeout=5)
    await first.reject(requeue=True)
    second: AbstractIncomingMessage = await queue.get(timeout=5)
    await second.ack()

    assert (first.redelivered, second.redelivered) == (False, True)


async def test_a_cancelled_consumer_gets_no_more(channel: AbstractRobustChannel, name: str) -> None:
    queue = await channel.declare_queue(name, exclusive=True)
    received: asyncio.Queue[bytes] = asyncio.Queue()

    async def take(message: AbstractIncomingMessage) -> None:
        received.put_nowait(message.body)

    tag = await queue.consume(take, no_ack=True)
    await channel.default_exchange.publish(aio_pika.Message(b"first"), routing_key=name)
    assert await asyncio.wait_for(received.get(), 10) == b"first"

    await queue.cancel(tag)
    await channel.default_exchange.publish(aio_pika.Message(b"second"), routing_key=name)

    assert (await queue.get(timeout=5)).body == b"second"
    assert received.empty()


async def test_master_and_worker(channel: AbstractRobustChannel, name: str) -> None:
    master = Master(channel)
    done: list[int] = []
    finished = asyncio.Event()

    async def work(*, number: int) -> None:
        done.append(number)
        if len(done) == 5:
            finished.set()

    worker = await master.create_worker(name, work, auto_delete=True)
    for number in range(5):
        await master.create_task(name, {"number": number})

    await asyncio.wait_for(finished.wait(), 10)
    await worker.close()
    assert done == [0, 1, 2, 3, 4]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_rpc_over_a_headers_exchange(channel: AbstractRobustChannel, name: str) -> None:
    """The pattern binds a dead-letter headers exchange; calls do not need it."""
    rpc = await RPC.create(channel)

    async def double(*, number: int) -> int:
        return 2 * number

    await rpc.register(name, double, auto_delete=True)

    results = await asyncio.gather(*(rpc.call(name, {"number": n}) for n in range(5)))
    await rpc.close()
    assert results == [0, 2, 4, 6, 8]
