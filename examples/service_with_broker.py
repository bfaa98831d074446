"""A service that is one supervision tree: the broker, a publisher and a consumer.

``rest_for_one``, the broker first: when it ends, publisher and consumer are stopped, and restarted
when clients can connect again. When the consumer fails, the others are not affected; its message is redelivered.

    pip install leveret aio-pika
    python examples/service_with_broker.py              # Ctrl-C stops it
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
import tempfile
from pathlib import Path

import aio_pika

from leveret.server import Address, Config, child_spec
from leveret.supervisors import Tree, run

QUEUE = "orders"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


async def publish(url: str) -> None:
    connection = await aio_pika.connect(url)
    async with connection:
        channel = await connection.channel()
        await channel.declare_queue(QUEUE, durable=True)
        for number in itertools.count(1):
            order = aio_pika.Message(b"order %d" % number, delivery_mode=2)
            await channel.default_exchange.publish(order, QUEUE)  # waits for the confirm
            await asyncio.sleep(0.05)


async def consume(url: str) -> None:
    connection = await aio_pika.connect(url)
    async with connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=1)
        queue = await channel.declare_queue(QUEUE, durable=True)
        async with queue.iterator() as orders:
            async for order in orders:
                again = " again" if order.redelivered else ""
                print(order.body.decode() + again, flush=True)
                if order.body == b"order 3" and not order.redelivered:
                    raise ValueError("nobody has thought of this")
                await order.ack()


def service(folder: Path) -> Tree:
    config = Config(listen=(Address("127.0.0.1", free_port()),), data_dir=folder)
    url = f"amqp://guest:guest@127.0.0.1:{config.listen[0].port}/"
    tree = Tree("service", strategy="rest_for_one", intensity=5, period_s=60.0)
    tree.add(child_spec(config))
    tree.service(args=(url,))(publish)
    tree.service(args=(url,))(consume)
    return tree


if __name__ == "__main__":
    logging.basicConfig(level=logging.CRITICAL)  # the failure is deliberate here
    with tempfile.TemporaryDirectory() as place:
        run(service(Path(place) / "data"))
    print("stopped")
