"""Policies of a running broker: what lasts, and what clients notice while many queues are told."""

from __future__ import annotations

import asyncio
from itertools import count
from pathlib import Path
from typing import Any

import aio_pika
import pytest

from leveret.broker.vhost.policies.policies import TRIED_AT_ONCE
from leveret.broker.vhost.settings_rows import SettingsRows
from leveret.core.addresses import Address
from leveret.core.slices import SLICE_ITEMS
from leveret.management.errors import RefusedError
from leveret.management.node_admin import NodeAdmin
from leveret.metadata.tables import PermissionRow, PolicyRow, UserRow
from leveret.server.broker import Broker
from leveret.server.config.config import Config
from rigs.waiting import eventually

LAZY = '{"queue-mode":"lazy"}'


def config(folder: Path | None) -> Config:
    return Config(listen=(Address("127.0.0.1", 0),), data_dir=folder)


async def modes(admin: NodeAdmin) -> dict[str, tuple[str, str]]:
    rows = await admin.vhosts.list_queues("/")
    return {row["name"]: (row["policy"], row["mode"]) for row in rows}


async def declare(broker: Broker, *names: str, **options: Any) -> None:
    connection = await aio_pika.connect(broker.url)
    async with connection:
        channel = await connection.channel()
        for name in names:
            await channel.declare_queue(name, **options)


async def test_policies_last_and_are_applied_again(tmp_path: Path) -> None:
    async with Broker(config(tmp_path)) as broker:
        admin = NodeAdmin(broker)
        await declare(broker, "a", "b", durable=True)
        await admin.policies.set_policy("/", "p", "^a", LAZY, 3, "queues")
        await admin.operator_policies.set_policy("/", "p", "^b", '{"expires":900000}', 0, "all")
        await admin.policies.set_policy("/", "gone", "", '{"queue-mode":"default"}', 9, "queues")
        await admin.policies.clear_policy("/", "gone")
        before = await admin.definitions.export_definitions()
        assert await modes(admin) == {"a": ("p", "default"), "b": ("", "default")}

    async with Broker(config(tmp_path)) as broker:
        admin = NodeAdmin(broker)
        assert await modes(admin) == {"a": ("p", "lazy"), "b": ("", "default")}
        rows = {row["name"]: row for row in await admin.vhosts.list_queues("/")}
        assert rows["b"]["operator_policy"] == "p"
        assert await admin.definitions.export_definitions() == before
        assert [row["name"] for row in await admin.policies.list_policies("/")] == ["p"]


async def test_the_alternate_of_a_default_exchange_lasts(tmp_path: Path) -> None:
    async with Broker(config(tmp_path)) as broker:
        definition = '{"alternate-exchange":"amq.fanout"}'
        await NodeAdmin(broker).policies.set_policy(
            "/", "p", "^amq.direct", definition, 0, "exchanges"
        )

    async with Broker(config(tmp_path)) as broker:
        exchanges = broker.node.vhosts["/"].topology.exchanges
        assert exchanges["amq.direct"].alternate == "amq.fanout"
        assert exchanges["amq.topic"].alternate is None


async def test_a_policy_of_one_vhost_is_not_the_others(broker: Broker, admin: NodeAdmin) -> None:
    await admin.vhosts.add_vhost("other")
    await admin.policies.set_policy("other", "p", "", LAZY, 0, "all")
    await declare(broker, "q")

    assert await modes(admin) == {"q": ("", "default")}
    assert await admin.policies.list_policies("/") == []
    await admin.vhosts.delete_vhost("other")
    await admin.vhosts.add_vhost("other")
    assert await admin.policies.list_policies("other") == []
    assert not broker.node.vhosts["other"].policies


async def test_what_is_declared_while_many_queues_are_told_has_the_policy(
    broker: Broker, admin: NodeAdmin
) -> None:
    names = [f"q{number}" for number in range(2 * SLICE_ITEMS)]
    await admin.definitions.import_definitions(
        {"queues": [{"vhost": "/", "name": name, "durable": False} for name in names]}
    )
    told = asyncio.create_task(admin.policies.set_policy("/", "p", "", LAZY, 0, "all"))
    policies = broker.node.vhosts["/"].policies
    await eventually(lambda: policies)

    await declare(broker, "late", auto_delete=True)
    await told

    assert {policy for policy, _ in (await modes(admin)).values()} == {"p"}


async def test_look_ups_that_pause_end_with_the_newest_policies(
    broker: Broker, admin: NodeAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    policies = broker.node.vhosts["/"].policies
    monkeypatch.setattr(policies, "_now_s", count().__next__)  # each slice is over at once
    await declare(broker, *(f"q{number}" for number in range(20)), durable=True)
    for number in range(3 * TRIED_AT_ONCE):
        await admin.policies.set_policy("/", f"p{number}", "^other", LAZY, 5, "all")

    told = asyncio.create_task(admin.policies.set_policy("/", "last", "", LAZY, 0, "all"))
    await declare(broker, *(f"late{number}" for number in range(20)), durable=True)
    await told

    shown = await modes(admin)
    assert len(shown) == 40
    assert {policy for policy, _ in shown.values()} == {"last"}


async def test_keys_without_effect_are_told_where_they_are_set(
    admin: NodeAdmin, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "leveret")
    definition = '{"queue-mode":"lazy","queue-version":2,"ha-mode":"all","max-length":5}'

    said = await admin.policies.set_policy("/", "p", "^q", definition, 1, "queues")
    assert await admin.operator_policies.set_policy("/", "o", "", '{"expires":9}', 0, "all") == []
    await admin.policies.clear_policy("/", "p")

    assert said == ["policy 'p' in vhost '/': ha-mode, queue-version without effect so far"]
    lines = [record.getMessage() for record in caplog.records if "policy" in record.getMessage()]
    assert [line.partition(" vhost=")[0] for line in lines] == [
        "policy set",
        "policy without effect so far",
        "operator policy set",
        "policy cleared",
    ]
    assert all("vhost=/ name=" in line for line in lines)
    assert 'by="the service"' in lines[0]
    assert "pattern=^q apply-to=queues priority=1" in lines[0]


async def test_a_number_that_cannot_be_stored_is_refused(admin: NodeAdmin) -> None:
    with pytest.raises(RefusedError, match="cannot be stored"):
        await admin.policies.set_policy("/", "p", "", f'{{"max-length":{1 << 70}}}', 0, "all")
    with pytest.raises(RefusedError, match="JSON decoding error"):
        await admin.policies.set_policy("/", "p", "", '{"max-length":NaN}', 0, "all")


async def test_a_stored_policy_that_would_be_refused_now_is_kept_without_effect(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = PolicyRow("/", "odd", "", {"queue-mode": 5, "message-ttl": "x"})
    async with Broker(config(tmp_path)) as broker:
        done = asyncio.get_running_loop().create_future()
        broker.node.metadata.store.write([row], [], done.set_result)
        assert await done is None

    async with Broker(config(tmp_path)) as broker:
        await declare(broker, "q")
        assert await modes(NodeAdmin(broker)) == {"q": ("", "default")}
        kept: SettingsRows = broker.node.settings_rows
        assert kept.policies("/", is_operator=False) == [row]
    assert "policy skipped vhost=/ name=odd" in caplog.text


async def test_stored_expressions_that_cannot_be_read_keep_no_node_from_starting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [
        PolicyRow("/", "odd", "(?R)", {"queue-mode": "lazy"}),
        UserRow("u"),
        PermissionRow("u", "/", "(?R)", ".*", ".*"),
    ]
    async with Broker(config(tmp_path)) as broker:
        done = asyncio.get_running_loop().create_future()
        broker.node.metadata.store.write(rows, [], done.set_result)
        assert await done is None

    async with Broker(config(tmp_path)) as broker:
        await declare(broker, "q")
        assert await modes(NodeAdmin(broker)) == {"q": ("", "default")}
        access = broker.node.access
        assert access.may(access.users["u"], "/", "queue", "q", "write")
        assert not access.may(access.users["u"], "/", "queue", "q", "configure")
    assert "policy skipped vhost=/ name=odd" in caplog.text
    assert "stored permission cannot be read, grants nothing; set it again user=u" in caplog.text


async def test_a_policy_makes_a_queue_lazy_that_is_not_durable_and_has_messages(
    broker: Broker, admin: NodeAdmin
) -> None:
    connection = await aio_pika.connect(broker.url)
    async with connection:
        channel = await connection.channel(publisher_confirms=False)
        queue = await channel.declare_queue("q")
        for number in range(1_200):
            body = aio_pika.Message(b"%d" % number, delivery_mode=2)
            await channel.default_exchange.publish(body, "q")
        got = [await queue.get() for _ in range(3)]

        await admin.policies.set_policy("/", "p", "", LAZY, 0, "queues")

        store = broker.node.vhosts["/"].store.msg_store
        assert store is not None
        await eventually(lambda: store.stats().transients.live >= 1_197)
        (row,) = await admin.vhosts.list_queues("/")
        assert (row["messages_ready"], row["messages_ready_ram"]) == (1_197, 0)
        assert (row["messages_unacknowledged"], row["mode"]) == (3, "lazy")
        await got[1].nack()
        bodies = [(await queue.get(no_ack=True)).body for _ in range(1_198)]
        assert [int(body) for body in bodies] == [1, *range(3, 1_200)]
        await queue.delete()
        await eventually(lambda: store.stats().transients.live == 0)


async def test_a_lazy_queue_that_is_not_durable_leaves_nothing_behind(tmp_path: Path) -> None:
    arguments = {"x-queue-mode": "lazy"}
    async with Broker(config(tmp_path)) as broker:
        admin = NodeAdmin(broker)
        connection = await aio_pika.connect(broker.url)
        async with connection:
            channel = await connection.channel()
            for name in ("deleted", "stopped"):
                await channel.declare_queue(name, arguments=arguments)
                for number in range(50):
                    body = aio_pika.Message(b"%d" % number, delivery_mode=2)
                    await channel.default_exchange.publish(body, name)
            rows = {row["name"]: row for row in await admin.vhosts.list_queues("/")}
            assert [rows[name]["messages_ram"] for name in rows] == [0, 0]
            store = broker.node.vhosts["/"].store.msg_store
            assert store is not None
            await eventually(lambda: store.stats().transients.live == 100)
            await channel.queue_delete("deleted")
            await eventually(lambda: store.stats().transients.live == 50)
        assert store.stats().messages == 0

    async with Broker(config(tmp_path)) as broker:
        assert broker.node.vhosts["/"].topology.queues == {}
        store = broker.node.vhosts["/"].store.msg_store
        assert store is not None
        assert (store.stats().messages, any(store.message_counts().values())) == (0, False)


@pytest.mark.parametrize("arguments", [{}, {"x-max-priority": 3}], ids=["plain", "priorities"])
async def test_a_lazy_queue_is_lazy_after_a_restart(
    tmp_path: Path, arguments: dict[str, Any]
) -> None:
    async with Broker(config(tmp_path)) as broker:
        await declare(broker, "q", durable=True, arguments={"x-queue-mode": "lazy", **arguments})
        assert await modes(NodeAdmin(broker)) == {"q": ("", "lazy")}

    async with Broker(config(tmp_path)) as broker:
        assert await modes(NodeAdmin(broker)) == {"q": ("", "lazy")}


async def test_without_a_data_directory_a_lazy_queue_stays_in_memory() -> None:
    async with Broker(config(None)) as broker:
        await declare(broker, "q", durable=True, arguments={"x-queue-mode": "lazy"})

        assert await modes(NodeAdmin(broker)) == {"q": ("", "lazy")}


async def test_transient_priorities_are_paged_out_and_come_in_their_order(
    broker: Broker, admin: NodeAdmin
) -> None:
    connection = await aio_pika.connect(broker.url)
    async with connection:
        channel = await connection.channel()
        options: dict[str, Any] = {"exclusive": True, "arguments": {"x-max-priority": 2}}
        queue = await channel.declare_queue("q", **options)
        for number in range(9):
            sent = aio_pika.Message(b"%d" % number, priority=number % 3)
            await channel.default_exchange.publish(sent, "q")

        await admin.policies.set_policy("/", "p", "q", LAZY, 0, "queues")

        async def paged_out() -> int:
            (row,) = await admin.vhosts.list_queues("/")
            assert row["messages"] == 9
            return int(row["messages_paged_out"])

        for _ in range(100):
            if await paged_out() == 9:
                break
            await asyncio.sleep(0)
        assert await paged_out() == 9
        got = [(await queue.get(no_ack=True)).body for _ in range(9)]

    assert got == [b"2", b"5", b"8", b"1", b"4", b"7", b"0", b"3", b"6"]
