"""The operator's side against a real broker in this process.

Tests: core/slices.py, management/audit_log.py, management/definitions/node_definitions.py,
    management/errors.py, management/rows.py, management/verbs/users.py, management/verbs/vhosts.py
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aio_pika
import pytest

from leveret.amqp import methods
from leveret.client.asynchronous import AsyncConnection, connect
from leveret.client.target import Target
from leveret.core.addresses import Address
from leveret.core.slices import SLICE_ITEMS
from leveret.management.errors import RefusedError
from leveret.management.node_admin import NodeAdmin
from leveret.management.rows import socket_counts
from leveret.server.broker import Broker
from leveret.server.config.config import Config
from leveret.server.output import formats
from leveret.server.perf import args
from leveret.server.perf.report import Reporter
from leveret.server.perf.run import Run
from rigs.waiting import eventually


def config(folder: Path, **more: Any) -> Config:
    return Config(listen=(Address("127.0.0.1", 0),), data_dir=folder, **more)


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[aio_pika.abc.AbstractConnection]:
    connection = await aio_pika.connect(broker.url)
    async with connection:
        yield connection


async def raw(
    broker: Broker, user: str = "guest", password: str = "guest", vhost: str = "/"
) -> AsyncConnection:
    return await connect(Target(*broker.addresses[0], user, password, vhost))


async def end_of(connection: AsyncConnection) -> str:
    await asyncio.wait_for(connection.ended, 5)
    return str(connection.error)


async def refusal(coroutine: Any) -> str:
    with pytest.raises(RefusedError) as caught:
        await coroutine
    return str(caught.value)


async def test_users_are_made_changed_and_deleted(admin: NodeAdmin) -> None:
    await admin.users.add_user("hare", "pw")
    await admin.users.set_user_tags("hare", ["monitoring"])
    await admin.users.change_password("hare", "other")

    assert await admin.users.list_users() == [
        {"user": "guest", "tags": ["administrator"]},
        {"user": "hare", "tags": ["monitoring"]},
    ]
    await admin.users.authenticate_user("hare", "other")
    assert await refusal(admin.users.authenticate_user("hare", "pw")) == (
        "Error: failed to authenticate user \"hare\"\nuser 'hare' - invalid credentials"
    )
    await admin.users.delete_user("hare")
    assert [row["user"] for row in await admin.users.list_users()] == ["guest"]


async def test_a_user_without_password_never_logs_in(admin: NodeAdmin) -> None:
    await admin.users.add_user("hare", "")

    assert "invalid credentials" in await refusal(admin.users.authenticate_user("hare", ""))


# Texts recorded from rabbitmqctl 3.10.8.
async def test_refusals_have_rabbitmqs_texts(admin: NodeAdmin) -> None:
    assert await refusal(admin.users.add_user("guest", "x")) == 'User "guest" already exists'
    assert await refusal(admin.users.change_password("nope", "x")) == 'User "nope" does not exist'
    assert await refusal(admin.users.delete_user("nope")) == 'User "nope" does not exist'
    assert await refusal(admin.users.set_user_tags("nope", [])) == 'User "nope" does not exist'
    assert await refusal(admin.vhosts.delete_vhost("nope")) == "Virtual host 'nope' does not exist"
    assert (
        await refusal(admin.users.list_permissions("nope")) == "Virtual host 'nope' does not exist"
    )
    everything = (".*", ".*", ".*")
    assert await refusal(admin.users.set_permissions("/", "nope", *everything)) == (
        "User nope does not exist"
    )
    assert await refusal(admin.users.set_permissions("/v", "guest", *everything)) == (
        "Virtual host /v does not exist"
    )


async def test_permissions_are_given_and_taken(admin: NodeAdmin) -> None:
    await admin.users.add_user("hare", "pw")
    await admin.users.set_permissions("/", "hare", ".*", "^a", "")

    assert await admin.users.list_permissions("/") == [
        {"user": "guest", "configure": ".*", "write": ".*", "read": ".*"},
        {"user": "hare", "configure": ".*", "write": "^a", "read": ""},
    ]
    assert await admin.users.list_user_permissions("hare") == [
        {"vhost": "/", "configure": ".*", "write": "^a", "read": ""}
    ]
    assert "invalid regular expression" in await refusal(
        admin.users.set_permissions("/", "hare", "(", "", "")
    )
    await admin.users.clear_permissions("/", "hare")
    assert await admin.users.list_user_permissions("hare") == []


async def test_a_vhost_comes_and_goes_with_its_connections(
    admin: NodeAdmin, broker: Broker
) -> None:
    await admin.vhosts.add_vhost("v")
    await admin.vhosts.add_vhost("v")
    await admin.users.set_permissions("v", "guest", ".*", ".*", ".*")
    connection = await raw(broker, vhost="v")
    await connection.channel(1)
    await connection.call(1, methods.QueueDeclare("q", False, True))
    assert [row["name"] for row in await admin.vhosts.list_vhosts()] == ["/", "v"]

    await admin.vhosts.delete_vhost("v")

    assert (await end_of(connection)).endswith("320 CONNECTION_FORCED - vhost 'v' is deleted")
    assert [row["name"] for row in await admin.vhosts.list_vhosts()] == ["/"]
    assert not any("vhost:v" in row["name"] for row in await admin.tree())
    await admin.vhosts.add_vhost("v")
    assert await admin.vhosts.list_queues("v") == []


async def test_what_clients_declare_in_a_vhost_that_is_deleted_does_not_come_back(
    admin: NodeAdmin, broker: Broker
) -> None:
    await admin.vhosts.add_vhost("v")
    await admin.users.set_permissions("v", "guest", ".*", ".*", ".*")
    connection = await raw(broker, vhost="v")
    await connection.channel(1)
    deleting = asyncio.create_task(admin.vhosts.delete_vhost("v"))
    number = 0
    while not deleting.done():
        number += 1
        method = methods.QueueDeclare(f"q{number}", durable=True, nowait=True)
        connection.transport.write(methods.method_frame(1, methods.encode(method)))
        await asyncio.sleep(0)
    await deleting
    await end_of(connection)

    assert {row.name for row in broker.node.metadata.store.load().vhosts} == {"/"}
    assert broker.node.metadata.store.load().queues == []


async def test_a_deleted_users_connections_are_closed(admin: NodeAdmin, broker: Broker) -> None:
    await admin.users.add_user("hare", "pw")
    await admin.users.set_permissions("/", "hare", ".*", ".*", ".*")
    connection = await raw(broker, "hare", "pw")

    await admin.users.delete_user("hare")

    assert (await end_of(connection)).endswith("320 CONNECTION_FORCED - user 'hare' is deleted")


async def test_queues_exchanges_and_bindings_are_listed(admin: NodeAdmin, client: Any) -> None:
    channel = await client.channel()
    arguments = {"x-message-ttl": 60000, "x-l": [1, "a", True]}
    queue = await channel.declare_queue("lev.a", durable=True, arguments=arguments)
    exchange = await channel.declare_exchange("lev.x", "topic")
    await queue.bind(exchange, "a.#")
    await exchange.publish(aio_pika.Message(b"hello"), "a.b")

    row, *others = await admin.vhosts.list_queues("/")
    assert others == []
    assert (row["name"], row["durable"], row["exclusive"]) == ("lev.a", True, False)
    assert (row["messages"], row["messages_ready"], row["consumers"]) == (1, 1, 0)
    assert (row["state"], row["type"]) == ("running", "classic")
    assert [[name, kind] for name, kind, _ in row["arguments"]] == [
        ["x-l", "array"],
        ["x-message-ttl", "unsignedshort"],
    ]
    exchanges = {each["name"]: each for each in await admin.vhosts.list_exchanges("/")}
    assert exchanges["lev.x"]["type"] == "topic"
    assert exchanges["amq.rabbitmq.trace"]["internal"] is True
    bindings = await admin.vhosts.list_bindings("/")
    assert [(each["source_name"], each["routing_key"]) for each in bindings] == [
        ("", "lev.a"),
        ("lev.x", "a.#"),
    ]
    assert await admin.vhosts.list_queues("/nope") == []


async def test_connections_are_listed_and_closed(admin: NodeAdmin, broker: Broker) -> None:
    connection = await raw(broker)
    (row,) = await admin.connections.list_connections()
    properties = {name: value for name, _, value in row["client_properties"]}

    assert (row["user"], row["vhost"], row["state"]) == ("guest", "/", "running")
    assert (row["protocol"], row["ssl"]) == ([0, 9, 1], False)
    assert (row["auth_mechanism"], row["send_pend"]) == ("PLAIN", 0)
    assert (row["host"], row["peer_host"], row["channels"]) == ("127.0.0.1", "127.0.0.1", 0)
    assert (row["channel_max"], row["frame_max"], row["timeout"]) == (2047, 131072, 0)
    assert properties["product"] == "leveret"
    assert ["authentication_failure_close", "bool", True] in properties["capabilities"]
    assert (
        await refusal(admin.connections.close_connection("nope", "x"))
        == "there is no connection nope"
    )
    await admin.connections.close_connection(row["pid"], "maintenance!")
    assert (await end_of(connection)).endswith("320 CONNECTION_FORCED - maintenance!")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts what a socket carries")
async def test_what_a_connection_sent_and_received_is_counted(
    admin: NodeAdmin, broker: Broker
) -> None:
    connection = await raw(broker)
    await connection.channel(1)
    (before,) = await admin.connections.list_connections()
    method = methods.QueueDeclare("q" * 200)

    await connection.call(1, method)

    (after,) = await admin.connections.list_connections()
    frame = methods.method_frame(1, methods.encode(method))
    answer = methods.method_frame(1, methods.encode(methods.QueueDeclareOk("q" * 200, 0, 0)))
    assert after["recv_oct"] - before["recv_oct"] == len(frame)
    assert after["send_oct"] - before["send_oct"] == len(answer)
    assert after["recv_cnt"] == before["recv_cnt"] + 1
    assert after["send_cnt"] == before["send_cnt"] + 1
    assert socket_counts(-1) == {}


async def test_all_connections_of_a_vhost_are_closed(admin: NodeAdmin, broker: Broker) -> None:
    connection = await raw(broker)
    assert await admin.connections.close_all_connections("other", "bye") == 0
    assert await admin.connections.close_all_connections(None, "bye") == 1
    assert (await end_of(connection)).endswith("320 CONNECTION_FORCED - bye")


async def test_the_default_queue_type_of_a_vhost_is_kept_exported_and_imported(
    admin: NodeAdmin, broker: Broker
) -> None:
    for wrong in ("stream", "bogus"):
        with pytest.raises(RefusedError, match=f"unsupported default queue type '{wrong}'"):
            await admin.vhosts.add_vhost("v", default_queue_type=wrong)
    await admin.vhosts.add_vhost("v", default_queue_type="quorum")

    listed = {row["name"]: row["default_queue_type"] for row in await admin.vhosts.list_vhosts()}
    assert listed == {"/": "", "v": "quorum"}
    document = await admin.definitions.export_definitions()
    metadata = {each["name"]: each["metadata"] for each in document["vhosts"]}
    assert metadata["v"]["default_queue_type"] == "quorum"
    assert "default_queue_type" not in metadata["/"]

    await admin.vhosts.delete_vhost("v")
    (entry,) = [each for each in document["vhosts"] if each["name"] == "v"]
    for kind in ("quorum", "classic"):
        entry["metadata"]["default_queue_type"] = kind
        assert await admin.definitions.import_definitions({"vhosts": [entry]}) == []
        assert broker.node.vhosts["v"].default_queue_type == kind
        stored = {
            row.name: row.default_queue_type for row in broker.node.metadata.store.load().vhosts
        }
        assert stored == {"/": "", "v": kind}
    entry["metadata"]["default_queue_type"] = "stream"
    with pytest.raises(RefusedError, match="unsupported default queue type 'stream'"):
        await admin.definitions.import_definitions({"vhosts": [entry]})


async def test_quorum_queues_are_named_everywhere(
    admin: NodeAdmin, client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "leveret")
    channel = await client.channel()
    arguments = {"x-queue-type": "quorum"}
    for _ in range(2):
        await channel.declare_queue("q", durable=True, arguments=arguments)

    (row,) = await admin.vhosts.list_queues("/")
    document = await admin.definitions.export_definitions()
    assert (row["type"], document["queues"][0]["type"]) == ("quorum", "quorum")
    status = await admin.status()
    assert status["queues"]["quorum"] == 1
    assert "\n             1 quorum queues, one replica each\n" in formats.status(status)
    lines = [each.getMessage() for each in caplog.records if "quorum" in each.getMessage()]
    assert lines == ["quorum queue has one replica queue=q vhost=/"]

    await channel.queue_delete("q")
    assert (await admin.status())["queues"]["quorum"] == 0
    assert await admin.definitions.import_definitions(document) == []
    assert (await admin.status())["queues"]["quorum"] == 1


async def test_status_counts(admin: NodeAdmin, broker: Broker, client: Any) -> None:
    channel = await client.channel()
    queue = await channel.declare_queue("q")
    for _ in range(3):
        await channel.default_exchange.publish(aio_pika.Message(b"x"), "q")
    await queue.get()

    status = await admin.status()

    assert (status["connections"], status["channels"], status["vhosts"]) == (1, 1, 1)
    assert status["queues"] == {
        "count": 1,
        "quorum": 0,
        "messages_ready": 2,
        "messages_unacknowledged": 1,
        "largest": [
            {
                "vhost": "/",
                "name": "q",
                "messages_ready": 2,
                "messages_unacknowledged": 1,
                "consumers": 0,
                "messages_ram": 3,
                "messages_paged_out": 0,
                "messages_persistent": 0,
            }
        ],
    }
    assert status["listeners"] == [str(broker.addresses[0])]
    assert status["actors"] == broker.runtime.actor_count == len(await admin.tree())


@pytest.mark.parametrize(
    "ask",
    [
        lambda admin: admin.status(),
        lambda admin: admin.tree(),
        lambda admin: admin.vhosts.list_queues("/"),
        lambda admin: admin.vhosts.list_bindings("/"),
        lambda admin: admin.definitions.export_definitions(),
    ],
    ids=["status", "tree", "list_queues", "list_bindings", "export_definitions"],
)
async def test_others_have_their_turn_while_many_queues_are_asked(
    admin: NodeAdmin, ask: Any
) -> None:
    count = 4 * SLICE_ITEMS
    queues = [{"name": f"q{number}", "vhost": "/"} for number in range(count)]
    await admin.definitions.import_definitions({"queues": queues})
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    running = asyncio.create_task(others())
    await ask(admin)
    running.cancel()

    assert turns >= count / SLICE_ITEMS


async def test_definitions_go_into_another_broker_and_stay_there(
    admin: NodeAdmin, client: Any, tmp_path: Path
) -> None:
    await admin.users.add_user("hare", "pw")
    await admin.vhosts.add_vhost("v")
    await admin.users.set_permissions("v", "hare", "a", "b", "c")
    channel = await client.channel()
    queue = await channel.declare_queue("q", durable=True, arguments={"x-max-priority": 5})
    exchange = await channel.declare_exchange("x", "headers", durable=True)
    await queue.bind(exchange, "k", arguments={"h": 1})
    await channel.declare_queue("mine", exclusive=True)
    document = await admin.definitions.export_definitions()

    async with Broker(config(tmp_path / "other")) as other:
        await NodeAdmin(other).definitions.import_definitions(document)
        await NodeAdmin(other).definitions.import_definitions(document)
        again = await NodeAdmin(other).definitions.export_definitions()
    async with Broker(config(tmp_path / "other")) as other:
        restarted = await NodeAdmin(other).definitions.export_definitions()
        await NodeAdmin(other).users.authenticate_user("hare", "pw")

    assert [each["name"] for each in document["queues"]] == ["q"]
    assert [each["routing_key"] for each in document["bindings"]] == ["k"]
    assert _sorted(again) == _sorted(document)
    assert _sorted(restarted) == _sorted(document)


def _sorted(document: dict[str, Any]) -> dict[str, Any]:
    return {
        key: sorted(value, key=str) if isinstance(value, list) else value
        for key, value in document.items()
    }


@pytest.mark.parametrize(
    "options",
    [
        ["-C", "2000", "-s", "1024", "-q", "50", "-u", "q"],
        ["-C", "300", "-s", "64", "-c", "10", "-f", "persistent", "-ad", "false", "-u", "q"],
        ["-C", "300", "-t", "fanout", "-a", "-u", "a,b,c", "-y", "3"],
        ["-C", "300", "-t", "topic", "-e", "t", "-u", "a,b", "-y", "2", "--bindings", "20"],
        ["-C", "300", "-a", "--consume-after", "-u", "q"],
        ["-C", "300", "-y", "0", "-u", "q"],
        ["-C", "20", "-x", "5", "-y", "5", "-c", "1", "-qp", "q%d", "-qpt", "5"],
        ["-C", "200", "--vary", "-A", "9", "-u", "q"],
        ["-C", "5", "-s", "500000", "-u", "q"],
    ],
)
async def test_what_goes_through_the_broker_comes_out_right(
    broker: Broker, options: list[str]
) -> None:
    scenario = args.parse(["-h", broker.url, "--stall", "5", *options])

    result = await Run(scenario, Reporter("test", is_quiet=True))()

    assert result["ok"], result["violation_texts"]
    assert await NodeAdmin(broker).vhosts.list_queues("/") == []


async def test_each_change_has_one_line_without_passwords(
    admin: NodeAdmin, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "leveret.management.audit_log")

    await admin.users.add_user("hare", "secret")
    await admin.users.change_password("hare", "secret")
    await admin.users.set_user_tags("hare", ["a", "b"])
    await admin.vhosts.add_vhost("v")
    await admin.users.set_permissions("v", "hare", "^c", "", ".*")
    await admin.users.clear_permissions("v", "hare")
    await admin.users.delete_user("hare")
    await admin.definitions.import_definitions({"users": [{"name": "u", "password": "secret"}]})
    await admin.vhosts.delete_vhost("v")
    await admin.connections.close_all_connections(None, "over")

    by = ' by="the service"'
    assert [record.getMessage() for record in caplog.records] == [
        "user added user=hare" + by,
        "password changed user=hare" + by,
        "user tags set user=hare tags=a,b" + by,
        "vhost added vhost=v" + by,
        'permissions set vhost=v user=hare configure=^c write="" read=.*' + by,
        "permissions cleared vhost=v user=hare" + by,
        "user deleted user=hare" + by,
        "definitions imported access=1 settings=0 exchanges=0 queues=0 bindings=0" + by,
        "vhost deleted vhost=v" + by,
        "connections closed vhost=all count=0 reason=over" + by,
    ]


async def test_a_limit_that_raises_an_alarm_at_once_is_warned_of(
    admin: NodeAdmin, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        found = await admin.set_vm_memory_high_watermark(0, None)
        (text,) = found.warnings
        assert text.endswith("of memory are in use, the limit is 0: all publishers are blocked")
        assert (await admin.set_vm_memory_high_watermark(0, 0.9)).warnings == []
        await eventually(lambda: admin._node.resources.disk_free_bytes is not None)
        found = await admin.set_disk_free_limit(2**60, None)
        (text,) = found.warnings
        assert text.endswith(f"are free, the limit is {2**60}: all publishers are blocked")
        assert (await admin.set_disk_free_limit(1, None)).warnings == []

    told = [line for line in caplog.messages if " limit set " in line]
    assert told == [
        'memory limit set limit=0 by="the service"',
        'memory limit set limit=0.9 by="the service"',
        f'disk limit set limit={2**60} by="the service"',
        'disk limit set limit=1 by="the service"',
    ]


async def test_a_new_store_is_told_from_one_that_has_crashed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            async with Broker(config(tmp_path)):
                pass

    opened = [line for line in caplog.messages if line.startswith("message store opened")]
    assert [line.split()[4] for line in opened] == ["clean=new", "clean=True"]
