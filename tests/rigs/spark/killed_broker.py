"""A broker that kills its process while a client publishes: ``killed_broker.py DATA``."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import aio_pika

from leveret.core.addresses import Address
from leveret.server.broker import Broker
from leveret.server.config.config import Config


async def main(data: Path) -> None:
    """Publish until 500 messages are confirmed, with more in flight; then end."""
    config = Config(listen=(Address("127.0.0.1", 0),), data_dir=data)
    async with Broker(config) as broker, await aio_pika.connect(broker.url) as connection:
        channel = await connection.channel()
        await channel.declare_queue("plain", durable=True)
        for start in range(0, 500, 50):
            await asyncio.gather(*_published(channel, start))
        more = [asyncio.ensure_future(each) for each in _published(channel, 500)]
        await asyncio.sleep(0)
        os.kill(os.getpid(), signal.SIGKILL)
        await asyncio.gather(*more)


def _published(channel: Any, start: int) -> list[Coroutine[Any, Any, Any]]:
    return [
        channel.default_exchange.publish(
            aio_pika.Message(b"%d" % number * 20, delivery_mode=2), "plain"
        )
        for number in range(start, start + 50)
    ]


asyncio.run(main(Path(sys.argv[1])))
