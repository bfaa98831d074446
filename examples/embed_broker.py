"""A service with an embedded broker in one event loop: no second process to install and monitor.

The service takes orders, a line each, on a TCP port and puts them into a queue of its own broker. The
worker may be any AMQP client, here or on another machine.

    pip install leveret aio-pika
    python examples/embed_broker.py                     # Ctrl-C stops it
    printf 'tea\\ncoffee\\n' | nc 127.0.0.1 PORT           # the port it has printed
"""

from __future__ import annotations

import asyncio
import signal

import aio_pika

from leveret.server import Address, Broker, Config


class Orders:
    """The service's own part: lines from sockets become messages."""

    def __init__(self, channel: aio_pika.abc.AbstractChannel) -> None:
        self.channel = channel

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        count = 0
        while line := await reader.readline():
            message = aio_pika.Message(line.strip())
            await self.channel.default_exchange.publish(message, "orders")  # waits for the confirm
            count += 1
        writer.write(b"%d taken\n" % count)
        await writer.drain()
        writer.close()


async def serve(broker: Broker, stop: asyncio.Event) -> None:
    connection = await aio_pika.connect(broker.url)
    async with connection:
        channel = await connection.channel()
        await channel.declare_queue("orders")
        server = await asyncio.start_server(Orders(channel).take, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            print(f"orders: 127.0.0.1:{port} broker: {broker.url}", flush=True)
            await stop.wait()


async def main() -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    # Without a data directory everything is in memory; with one durable queues survive a restart.
    config = Config(listen=(Address("127.0.0.1", 0),), data_dir=None)
    async with Broker(config) as broker:
        await serve(broker, stop)
    print("stopped")


if __name__ == "__main__":
    asyncio.run(main())
