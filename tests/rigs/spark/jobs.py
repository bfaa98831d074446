"""Snapshots for tests of jobs, and the broker that a job publishes to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aio_pika
import pika

from leveret.amqp.properties import Properties, head_of
from leveret.core.message import Message, origin_of
from leveret.testing.vhost import FreshVhost
from rigs.spark.snapshots import DataRig, channel_of_broker, snapshot_of


def message(number: int, exchange: str = "orders", key: str | None = None) -> Message:
    """Return a message whose body is its number; every third has headers, every fourth expires."""
    properties = Properties(
        headers={"n": ("I", number), "d": ("D", (2, number))} if number % 3 == 0 else None,
        expiration="60000" if number % 4 == 0 else None,
        delivery_mode=2,
        message_id=f"m{number}",
    )
    body = b"%d" % number
    key = f"key.{number % 5}" if key is None else key
    return origin_of(exchange.encode(), key.encode()), head_of(properties, len(body)), body


def stored(data: Path, count: int = 60, levels: int = 1) -> DataRig:
    """Fill queues ``east`` and ``west`` in turns, a second for each ten messages; bodies are numbers.

    ``east`` has the even numbers, ``west`` the odd ones. With more levels each message of ``east`` goes to one of two
    priorities in turn.
    """
    rig = DataRig(data, {"east": 1, "west": 11}, rdq_file_bytes=2_000, levels=levels)
    for number in range(count):
        east = 1 + (number // 2 % 2 if levels > 1 else 0)
        rig.publish([message(number)], (11 if number % 2 else east,))
        if number % 10 == 9:
            rig.now_ms += 1_000
    rig.stop()
    return rig


def stored_snapshot(data: Path, count: int = 60, levels: int = 1) -> Path:
    return snapshot_of(stored(data, count, levels).data)


def retained(path: Path, *names: str) -> Path:
    """Have a snapshot's manifest say that queues have an archive."""
    file = path / "MANIFEST.json"
    fields = json.loads(file.read_text())
    for store in fields["stores"]:
        for queue in store["queues"]:
            if queue["name"] in names:
                queue["retention_ms"] = 86_400_000
    file.write_text(json.dumps(fields))
    return path


def declare(broker: FreshVhost, *queues: str, **bound: Sequence[str]) -> None:
    """Declare queues, and topic exchanges with queues bound by ``#``."""
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    for name in queues:
        channel.queue_declare(name)
    for exchange, names in bound.items():
        channel.exchange_declare(exchange, "topic")
        for name in names:
            channel.queue_declare(name)
            channel.queue_bind(name, exchange, "#")
    connection.close()


def dead_letters(data: Path) -> Path:
    """A snapshot of a broker whose queue ``dead`` has letters of several kinds, by their bodies.

    ``once`` was rejected; ``cycle`` was rejected, waited in ``retry`` and was rejected again; ``copied`` was published
    with a key of ``CC`` and rejected; ``alive`` was published to ``dead`` directly.
    """

    async def fill() -> Path:
        async with channel_of_broker(data) as channel:
            orders = await channel.declare_exchange("orders", "topic", durable=True)
            dlx = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
            work = await channel.declare_queue("work", durable=True, arguments=dlx)
            back = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "work"}
            await channel.declare_queue(
                "retry", durable=True, arguments=back | {"x-message-ttl": 1}
            )
            await channel.declare_queue("dead", durable=True)
            await work.bind(orders, "eu.*")

            async def publish(body: bytes, exchange: Any, key: str, **headers: Any) -> None:
                made = aio_pika.Message(body, delivery_mode=2, headers=headers)
                await exchange.publish(made, key)

            async def reject(body: bytes) -> None:
                (found,) = await _taken(work, 1)
                assert found.body == body
                await found.reject(requeue=False)

            await publish(b"once", orders, "eu.1")
            await reject(b"once")
            await publish(b"copied", orders, "eu.3", CC=["eu.4"])
            await reject(b"copied")
            await publish(b"cycle", orders, "eu.2")
            await reject(b"cycle")
            dead = await channel.get_queue("dead")
            await publish(b"alive", channel.default_exchange, "dead")
            for each in await _taken(dead, 4):
                if (
                    each.body == b"cycle"
                ):  # it comes back to ``work`` by way of ``retry``, and is rejected again
                    await publish(b"cycle", channel.default_exchange, "retry", **each.headers)
                    await each.ack()
                else:
                    await each.reject(requeue=True)
            await reject(b"cycle")
            await _taken(dead, 4)
            return await asyncio.to_thread(snapshot_of, data)

    return asyncio.run(fill())


def letters_under_way(data: Path) -> Path:
    """A snapshot in which two letters are in ``dead`` while the queues that they died in still have them.

    ``once`` died in ``first``; ``again``, which had died in ``first``, died in ``second``; ``alive`` waits there.
    """
    rig = DataRig(data, {"first": 1, "second": 2, "dead": 3})

    def put(queue: str, body: bytes, *died_in: str) -> None:
        deaths = [
            ("F", {
                "count": ("l", 1), "reason": ("S", b"rejected"), "queue": ("S", name.encode()),
                "exchange": ("S", b"x"), "routing-keys": ("A", [("S", b"k")]), "time": ("T", 1_700_000_000),
            })
            for name in died_in
        ]  # fmt: skip
        headers = {"x-death": ("A", deaths)} if deaths else None
        properties = Properties(headers=headers, delivery_mode=2, message_id=f"m-{body.decode()}")
        made = origin_of(b"x", b"k"), head_of(properties, len(body)), body
        rig.publish([made], (rig.queue_nos[queue],))

    put("first", b"once")
    put("second", b"again", "first")
    put("second", b"alive")
    put("dead", b"once", "first")
    put("dead", b"again", "second", "first")
    rig.stop()
    return snapshot_of(data)


async def _taken(queue: Any, count: int) -> list[Any]:
    """Wait for so many messages, and return them unacknowledged."""
    found = []
    async with queue.iterator() as messages:
        async for each in messages:
            found.append(each)
            if len(found) == count:
                break
    return found
