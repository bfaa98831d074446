"""Delayed messages, as an operator lists and cancels them; and definitions with exchanges that delay."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aio_pika
import pytest

from leveret.core.addresses import Address
from leveret.management.errors import RefusedError
from leveret.management.node_admin import NodeAdmin
from leveret.management.verbs import delayed_messages
from leveret.routing.delayed import queue_of
from leveret.server.broker import Broker
from leveret.server.config.config import Config

ARGUMENTS = {"x-delayed-type": "direct"}


@pytest.fixture
async def exchange(broker: Broker) -> AsyncIterator[Any]:
    connection = await aio_pika.connect(broker.url)
    async with connection:
        channel = await connection.channel()
        yield await channel.declare_exchange(
            "x", "x-delayed-message", durable=True, arguments=ARGUMENTS
        )


async def publish(exchange: Any, delay_ms: int, key: str, body: bytes = b"x") -> None:
    await exchange.publish(aio_pika.Message(body, headers={"x-delay": delay_ms}), key)


async def refusal(coroutine: Any) -> str:
    with pytest.raises(RefusedError) as caught:
        await coroutine
    return str(caught.value)


async def test_messages_are_listed_in_the_order_in_which_they_are_due(
    admin: NodeAdmin, exchange: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delayed_messages, "DESCRIBED_AT_ONCE", 2)
    monkeypatch.setattr(delayed_messages, "SORTED_AT_ONCE", 2)
    for delay_s, key in ((500, "c"), (300, "a"), (400, "b"), (700, "e"), (600, "d")):
        await publish(exchange, delay_s * 1000, key, key.encode() * delay_s)

    rows = await admin.delayed_messages.list_delayed_messages("/", "x")

    assert [row["routing_key"] for row in rows] == ["a", "b", "c", "d", "e"]
    assert [row["message_bytes"] for row in rows] == [300, 400, 500, 600, 700]
    first = min(row["id"] for row in rows)
    assert [row["id"] - first for row in rows] == [1, 2, 0, 4, 3]
    assert {row["published_to"] for row in rows} == {"x"}
    assert sorted(row["due"] for row in rows) == [row["due"] for row in rows]
    (queue,) = await admin.vhosts.list_queues("/")
    assert (queue["name"], queue["messages"]) == (queue_of("x"), 5)


async def test_a_time_beyond_the_calendar_is_shown_in_ms(admin: NodeAdmin, exchange: Any) -> None:
    await publish(exchange, 2**62, "k")

    (row,) = await admin.delayed_messages.list_delayed_messages("/", "x")
    assert row["due"] == f"{2**62} ms after 1970"


async def test_messages_are_cancelled_by_their_ids(admin: NodeAdmin, exchange: Any) -> None:
    for number in range(4):
        await publish(exchange, 1_000_000, str(number))
    cancel = admin.delayed_messages.cancel_delayed_messages
    rows = await admin.delayed_messages.list_delayed_messages("/", "x")
    ids = [str(row["id"]) for row in rows]

    assert await cancel("/", "x", [ids[1], ids[3], ids[3], "77"]) == 2
    assert await cancel("/", "x", [ids[1]]) == 0

    rows = await admin.delayed_messages.list_delayed_messages("/", "x")
    assert [row["routing_key"] for row in rows] == ["0", "2"]
    for bad in ([], ["x"], ["-1"], ["1", ""]):
        assert "list_delayed_messages" in await refusal(cancel("/", "x", bad))


async def test_a_purge_cancels_all_and_the_queue_is_not_deleted(
    admin: NodeAdmin, exchange: Any
) -> None:
    await publish(exchange, 1_000_000, "k")

    assert await admin.queues.purge_queue("/", queue_of("x")) == 1
    assert await admin.delayed_messages.list_delayed_messages("/", "x") == []
    text = await refusal(admin.queues.delete_queue("/", queue_of("x"), False, False))
    assert "goes with it" in text


async def test_other_exchanges_have_no_delayed_messages(admin: NodeAdmin, exchange: Any) -> None:
    listed = admin.delayed_messages.list_delayed_messages

    for vhost, name in (("/", "nope"), ("/", "amq.direct")):
        assert "no exchange" in await refusal(listed(vhost, name))
    assert "does not exist" in await refusal(listed("nope", "x"))


async def test_definitions_have_the_exchange_and_not_its_queue(
    broker: Broker, admin: NodeAdmin, exchange: Any, tmp_path: Path
) -> None:
    document = await admin.definitions.export_definitions()
    assert [each["name"] for each in document["exchanges"]] == ["x"]
    assert document["queues"] == []

    config = Config(listen=(Address("127.0.0.1", 0),), data_dir=tmp_path / "other")
    async with Broker(config) as other:
        await NodeAdmin(other).definitions.import_definitions(document)
        connection = await aio_pika.connect(other.url)
        async with connection:
            channel = await connection.channel()
            queue = await channel.declare_queue("q")
            await queue.bind("x", "k")
            imported = await channel.get_exchange("x")
            await publish(imported, 20, "k", b"delayed")
            message = await queue.get(timeout=5, fail=False)
            while message is None:
                message = await queue.get(timeout=5, fail=False)
            assert message.body == b"delayed"
            assert message.headers["x-delay"] == 20
