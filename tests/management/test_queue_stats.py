"""Statistics of queues and stores, asked of a running broker.

Tests: queue_backing/variable/info.py
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aio_pika
import pytest

from leveret.core.addresses import Address
from leveret.management.node_admin import NodeAdmin
from leveret.queue_backing.variable.info import ENTRY_BYTES, MESSAGE_BYTES, PAIR_BYTES
from leveret.server.broker import Broker
from leveret.server.cli import commands
from leveret.server.config.config import Config
from leveret.server.output import formats

BODY = b"x" * 100


@pytest.fixture
async def admin(tmp_path: Path) -> AsyncIterator[NodeAdmin]:
    config = Config(listen=(Address("127.0.0.1", 0),), data_dir=tmp_path)
    async with Broker(config) as broker:
        yield NodeAdmin(broker)


@pytest.fixture
async def channel(admin: NodeAdmin) -> AsyncIterator[Any]:
    connection = await aio_pika.connect(admin._broker.url)
    async with connection:
        yield await connection.channel()


async def publish(channel: Any, queue: str, count: int, **options: Any) -> None:
    options.setdefault("delivery_mode", 2)
    for _ in range(count):
        await channel.default_exchange.publish(aio_pika.Message(BODY, **options), queue)


async def row(admin: NodeAdmin, queue: str) -> dict[str, Any]:
    return next(row for row in await admin.vhosts.list_queues("/") if row["name"] == queue)


async def test_a_queue_in_ram_and_one_on_disk(admin: NodeAdmin, channel: Any) -> None:
    await channel.declare_queue("ram", durable=True)
    lazy = {"x-queue-mode": "lazy"}
    queue = await channel.declare_queue("disk", durable=True, arguments=lazy)
    for name in ("ram", "disk"):
        await publish(channel, name, 4)
        await publish(channel, name, 3, delivery_mode=1)
    got = await queue.get()

    ram, disk = await row(admin, "ram"), await row(admin, "disk")

    def of(found: dict[str, Any], *names: str) -> list[Any]:
        return [found[name] for name in names]

    counts = ("messages", "messages_ram", "messages_paged_out", "messages_persistent")
    sizes = ("message_bytes", "message_bytes_ram", "message_bytes_persistent")
    assert of(ram, *counts) == [7, 7, 0, 4]
    assert of(ram, *sizes) == [700, 700, 400]
    assert of(disk, *counts) == [7, 0, 6, 4]
    assert of(disk, *sizes) == [700, 0, 400]
    assert ram["memory"] == PAIR_BYTES + 700 + 7 * (MESSAGE_BYTES + ENTRY_BYTES)
    assert disk["memory"] <= PAIR_BYTES + 7 * ENTRY_BYTES
    assert disk["disk_reads"] > 0
    parts = json.loads(ram["backing_queue_status"])
    assert [parts[name] for name in ("mode", "q1", "q2", "delta", "q3", "q4")] == [
        "default", 0, 0, 0, 0, 7,
    ]  # fmt: skip
    parts = json.loads(disk["backing_queue_status"])
    assert (parts["mode"], parts["q3"] + parts["delta"]) == ("lazy", 6)
    await got.ack()


@pytest.mark.parametrize(
    ("durable", "arguments"), [(False, {}), (True, {}), (True, {"x-max-priority": 2})]
)
async def test_the_timestamp_of_the_head(
    admin: NodeAdmin, channel: Any, durable: bool, arguments: dict[str, Any]
) -> None:
    queue = await channel.declare_queue("q", durable=durable, arguments=arguments)
    assert (await row(admin, "q"))["head_message_timestamp"] is None
    for second in (7, 5, 9):
        await publish(channel, "q", 1, timestamp=datetime.fromtimestamp(second, UTC))
    assert (await row(admin, "q"))["head_message_timestamp"] == 7

    got = await queue.get()
    assert (await row(admin, "q"))["head_message_timestamp"] == 5
    await got.ack()
    await queue.purge()
    await publish(channel, "q", 1)
    assert (await row(admin, "q"))["head_message_timestamp"] is None


@pytest.mark.parametrize("durable", [False, True])
async def test_no_column_of_a_queue_is_unknown_or_empty_without_reason(
    admin: NodeAdmin, channel: Any, durable: bool
) -> None:
    await channel.declare_queue("q", durable=durable)

    found = await row(admin, "q")

    assert {name for name in commands.QUEUE_COLUMNS if found.get(name) is None} == {
        "head_message_timestamp", "leader", "members", "online", "slave_pids",
        "synchronised_slave_pids",
    }  # fmt: skip
    assert (found["consumer_capacity"], found["consumer_utilisation"]) == (0, 0)


async def test_status_has_the_store_of_every_vhost_and_the_parts_of_the_largest_queues(
    admin: NodeAdmin, channel: Any
) -> None:
    await admin.vhosts.add_vhost("other")
    await channel.declare_queue("q", durable=True)
    await publish(channel, "q", 5)

    status = await admin.status()

    stores = {store["vhost"]: store for store in status["stores"]}
    assert stores.keys() == {"/", "other"}
    assert (stores["/"]["messages"], stores["other"]["messages"]) == (5, 0)
    store = stores["/"]
    assert store["live_bytes"] + store["garbage_bytes"] == store["segment_bytes"] > 500
    assert store["syncs"] > 0
    assert store["sync_longest_s"] >= store["sync_mean_s"] > 0
    assert status["queues"]["largest"][0]["q4"] == 5
    assert json.loads(formats.json_line(status))["stores"] == status["stores"]
    assert "store of other\n" in formats.status(status)


async def test_without_a_data_directory_there_are_no_stores() -> None:
    config = Config(listen=(Address("127.0.0.1", 0),), data_dir=None)
    async with Broker(config) as broker:
        assert (await NodeAdmin(broker).status())["stores"] == []
