"""Limits, parameters and topic permissions of a running broker, and what open connections notice of them.

Tests: broker/vhost/settings_rows.py, management/lookups.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import aio_pika
import pytest

from leveret.amqp import methods
from leveret.client.asynchronous import AsyncConnection, connect
from leveret.client.target import Target
from leveret.core.addresses import Address
from leveret.management.errors import RefusedError
from leveret.management.node_admin import NodeAdmin
from leveret.server.broker import Broker
from leveret.server.config.config import Config


def config(folder: Path | None) -> Config:
    return Config(listen=(Address("127.0.0.1", 0),), data_dir=folder)


async def opened(broker: Broker, vhost: str = "/") -> AsyncConnection:
    return await connect(Target(*broker.addresses[0], "guest", "guest", vhost))


async def refusal(coroutine: Any) -> tuple[int, str]:
    with pytest.raises(RefusedError) as caught:
        await coroutine
    return caught.value.exit_code, str(caught.value)


# -- limits ---------------------------------------------------------------------------------------


async def test_limits_of_a_vhost_hold_at_once_for_open_connections(
    admin: NodeAdmin, broker: Broker
) -> None:
    connection = await opened(broker)
    await connection.channel(1)
    await connection.call(1, methods.QueueDeclare("a"))

    await admin.parameters.set_vhost_limits("/", '{"max-queues": 1, "max-connections": 1}')

    with pytest.raises(Exception, match="connection limit \\(1\\) is reached"):
        await opened(broker)
    with pytest.raises(Exception, match="queue limit in vhost '/' \\(1\\) is reached"):
        await connection.call(1, methods.QueueDeclare("b"))
    await admin.parameters.clear_vhost_limits("/")
    other = await opened(broker)
    await other.channel(1)
    await other.call(1, methods.QueueDeclare("b"))


async def test_limits_of_a_user_hold_at_once_for_open_connections(
    admin: NodeAdmin, broker: Broker
) -> None:
    connection = await opened(broker)
    await connection.channel(1)

    await admin.users.set_user_limits("guest", '{"max-channels": 1}')

    with pytest.raises(Exception, match="maximum allowed user limit of \\(1\\)"):
        await connection.channel(2)
    await admin.users.set_user_limits("guest", '{"max-connections": 0}')
    with pytest.raises(Exception, match="user connection limit \\(0\\) is reached"):
        await opened(broker)
    assert await admin.users.list_user_limits("guest") == [
        {"user": "guest", "limits": '{"max-channels":1,"max-connections":0}'}
    ]
    await admin.users.clear_user_limits("guest", "max-connections")
    await opened(broker)
    await admin.users.clear_user_limits("guest", "all")
    assert await admin.users.list_user_limits(None) == []
    assert await admin.users.list_user_limits("guest") == [{"user": "guest", "limits": "{}"}]


# (definition, lines of RabbitMQ 3.10.8)
INVALID = [
    ('{"max-connections": "5"}', ['max-connections should be a number, actually was <<"5">>']),
    ('{"max-connections": 1.5}', ["max-connections should be a number, actually was 1.5"]),
    ('{"max-connections": true}', ["max-connections should be a number, actually was true"]),
    ('{"max-foo": 5, "a": []}', ['Unrecognised terms [{<<"a">>,[]},{<<"max-foo">>,5}] in {}']),
    ("5", ["{} not a list 5"]),
]  # fmt: skip


@pytest.mark.parametrize(("definition", "lines"), INVALID)
async def test_limits_that_are_none_are_refused(
    admin: NodeAdmin, definition: str, lines: list[str]
) -> None:
    of_vhost = "".join(f"{line.replace('{}', 'limits')}\n" for line in lines)
    assert await refusal(admin.parameters.set_vhost_limits("/", definition)) == (
        69,
        "Validation failed\n\n" + of_vhost,
    )
    assert await refusal(admin.users.set_user_limits("guest", definition)) == (
        69,
        lines[0].replace("{}", "user-limits"),
    )
    assert await admin.parameters.list_vhost_limits(None) == []


async def test_what_is_no_json_or_names_nobody_is_refused(admin: NodeAdmin) -> None:
    parameters, users = admin.parameters, admin.users
    no_json = (69, "JSON decoding error. Reason: badarg")
    assert await refusal(parameters.set_vhost_limits("/", "{")) == no_json
    assert await refusal(users.set_user_limits("guest", "NaN")) == no_json
    for text in ("nope", "Infinity", '{"a": 1e400}', '"\\ud800"'):
        assert await refusal(parameters.set_global_parameter("n", text)) == no_json
        assert await refusal(parameters.set_parameter("/", "c", "n", text)) == no_json
        assert await refusal(admin.policies.set_policy("/", "n", "", text, 0, "all")) == no_json
    no_vhost = (65, "Virtual host 'v' does not exist")
    assert await refusal(parameters.set_vhost_limits("v", "{}")) == no_vhost
    assert await refusal(parameters.list_parameters("v")) == no_vhost
    no_user = (69, '{:no_such_user, "u"}')
    assert await refusal(users.set_user_limits("u", "{}")) == no_user
    assert await refusal(users.clear_user_limits("u", "all")) == no_user
    assert await refusal(users.list_user_limits("u")) == no_user
    too_large = json.dumps({"max-queues": 2**70})
    assert "cannot be stored" in (await refusal(parameters.set_vhost_limits("/", too_large)))[1]
    assert (
        "cannot be stored"
        in (await refusal(users.set_user_limits("guest", json.dumps({"max-channels": 2**70}))))[1]
    )


# -- parameters -----------------------------------------------------------------------------------


async def test_limits_and_operator_policies_are_parameters(
    admin: NodeAdmin, broker: Broker
) -> None:
    parameters = admin.parameters
    await parameters.set_parameter("/", "vhost-limits", "limits", '{"max-queues":7}')
    policy = '{"pattern":"^a","definition":{"max-length":3},"apply-to":"queues","priority":2}'
    await parameters.set_parameter("/", "operator_policy", "op", policy)

    assert broker.node.vhosts["/"].limits == {"max-queues": 7}
    assert await parameters.list_parameters("/") == [
        {
            "component": "operator_policy",
            "name": "op",
            "value": '{"apply-to":"queues","definition":{"max-length":3},"pattern":"^a","priority":2}',
        },
        {"component": "vhost-limits", "name": "limits", "value": '{"max-queues":7}'},
    ]
    assert [row["name"] for row in await admin.operator_policies.list_policies("/")] == ["op"]
    await parameters.clear_parameter("/", "vhost-limits", "limits")
    await parameters.clear_parameter("/", "operator_policy", "op")
    assert await parameters.list_parameters("/") == []
    assert broker.node.vhosts["/"].limits == {}


async def test_parameters_of_other_components_are_refused(admin: NodeAdmin) -> None:
    parameters = admin.parameters
    assert await refusal(parameters.set_parameter("/", "federation", "f", "{}")) == (
        69,
        "Validation failed\n\ncomponent federation not found\n",
    )
    assert await refusal(parameters.set_parameter("/", "policy", "p", "{}")) == (
        69,
        "policies may not be set using this method",
    )
    assert await refusal(parameters.clear_parameter("/", "policy", "p")) == (
        69,
        "policies may not be cleared using this method",
    )
    missing = (69, "Parameter does not exist")
    assert await refusal(parameters.clear_parameter("/", "federation", "f")) == missing
    assert await refusal(parameters.clear_vhost_limits("/")) == missing
    assert await refusal(parameters.clear_global_parameter("f")) == missing
    for value in ('{"pattern":"a"}', '{"pattern":"a","definition":{},"x":1}', "5"):
        code, text = await refusal(parameters.set_parameter("/", "operator_policy", "p", value))
        assert (code, text.partition("\n")[0]) == (69, "Validation failed")


async def test_a_parameter_of_the_broker_is_kept_and_told_to_have_no_effect(
    admin: NodeAdmin,
) -> None:
    notices = await admin.parameters.set_global_parameter("n", '{"b": [1], "a": null}')

    assert notices == ["global parameter 'n' is kept and has no effect"]
    assert await admin.parameters.list_global_parameters() == [
        {"name": "n", "value": '{"a":null,"b":[1]}'}
    ]
    await admin.parameters.clear_global_parameter("n")
    assert await admin.parameters.list_global_parameters() == []


async def test_clients_are_told_the_name_of_the_cluster(tmp_path: Path) -> None:
    async def told(broker: Broker) -> Any:
        connection = await opened(broker)
        await connection.close()
        return connection.protocol.server_properties["cluster_name"][1].decode()

    async with Broker(config(tmp_path)) as broker:
        parameters, default = NodeAdmin(broker).parameters, await told(broker)
        await parameters.set_cluster_name("a@b")
        assert await told(broker) == "a@b"
        for value in ("5", '""', "null"):
            code, text = await refusal(parameters.set_global_parameter("cluster_name", value))
            assert (code, text.partition("\n")[0]) == (69, "Validation failed")
        assert await parameters.set_global_parameter("cluster_name", '"c"') == []
    async with Broker(config(tmp_path)) as broker:
        admin = NodeAdmin(broker)
        assert await told(broker) == (await admin.health.about())["cluster_name"] == "c"
        await admin.parameters.clear_global_parameter("cluster_name")
        assert await told(broker) == default


async def test_all_of_it_survives_restarts_and_goes_through_definitions(tmp_path: Path) -> None:
    async with Broker(config(tmp_path / "a")) as broker:
        admin = NodeAdmin(broker)
        await admin.parameters.set_vhost_limits("/", '{"max-queues":7}')
        await admin.parameters.set_global_parameter("n", "[1]")
        await admin.users.set_user_limits("guest", '{"max-channels":9}')
        await admin.users.set_topic_permissions("/", "guest", "amq.topic", "^a", "^b")
        document = await admin.definitions.export_definitions()
    async with Broker(config(tmp_path / "a")) as broker:
        restarted = await found(NodeAdmin(broker))
        assert broker.node.vhosts["/"].limits == {"max-queues": 7}
    async with Broker(config(tmp_path / "b")) as broker:
        await NodeAdmin(broker).definitions.import_definitions(document)
        imported = await found(NodeAdmin(broker))
        assert broker.node.vhosts["/"].limits == {"max-queues": 7}

    assert restarted == imported
    assert restarted == [
        [{"vhost": "/", "limits": '{"max-queues":7}'}],
        [{"name": "n", "value": "[1]"}],
        [{"user": "guest", "limits": '{"max-channels":9}'}],
        [{"user": "guest", "exchange": "amq.topic", "write": "^a", "read": "^b"}],
    ]


async def found(admin: NodeAdmin) -> list[list[dict[str, Any]]]:
    return [
        await admin.parameters.list_vhost_limits(None),
        await admin.parameters.list_global_parameters(),
        await admin.users.list_user_limits(None),
        await admin.users.list_topic_permissions("/"),
    ]


# -- topic permissions ----------------------------------------------------------------------------


async def test_topic_permissions_act_on_open_channels(admin: NodeAdmin, broker: Broker) -> None:
    connection = await aio_pika.connect(broker.url)
    async with connection:
        channel = await connection.channel()
        queue = await channel.declare_queue("q")
        exchange = await channel.get_exchange("amq.topic")
        await queue.bind(exchange, "#")
        await exchange.publish(aio_pika.Message(b"1"), "b")

        await admin.users.set_topic_permissions("/", "guest", "amq.topic", "^a", "^a")

        await exchange.publish(aio_pika.Message(b"2"), "a")
        text = (
            "ACCESS_REFUSED - access to topic 'b' in exchange 'amq.topic' in vhost '/' "
            "refused for user 'guest'"
        )
        with pytest.raises(Exception, match=text):
            await exchange.publish(aio_pika.Message(b"3"), "b")
        other = await connection.channel()
        with pytest.raises(Exception, match=text):
            await (await other.get_queue("q")).bind("amq.topic", "b")
        await admin.users.clear_topic_permissions("/", "guest", "amq.topic")
        third = await connection.channel()
        await (await third.get_exchange("amq.topic")).publish(aio_pika.Message(b"4"), "b")
        assert (await third.declare_queue("q")).declaration_result.message_count == 3


async def test_topic_permissions_are_listed_by_vhost_and_user(admin: NodeAdmin) -> None:
    users = admin.users
    await users.add_user("hare", "pw")
    await admin.vhosts.add_vhost("v")
    for vhost, exchange in (("/", "t"), ("/", "u"), ("v", "t")):
        await users.set_topic_permissions(vhost, "hare", exchange, "^w", "^r")

    assert await users.list_user_topic_permissions("hare") == [
        {"vhost": "/", "exchange": "t", "write": "^w", "read": "^r"},
        {"vhost": "/", "exchange": "u", "write": "^w", "read": "^r"},
        {"vhost": "v", "exchange": "t", "write": "^w", "read": "^r"},
    ]
    await users.clear_topic_permissions("/", "hare", "t")
    assert [row["exchange"] for row in await users.list_topic_permissions("/")] == ["u"]
    await users.clear_topic_permissions("/", "hare", None)
    await users.clear_topic_permissions("/", "hare", None)
    assert await users.list_topic_permissions("/") == []
    assert len(await users.list_topic_permissions("v")) == 1
    assert await refusal(users.set_topic_permissions("/", "nope", "t", "", "")) == (
        67,
        "User nope does not exist",
    )
    assert await refusal(users.clear_topic_permissions("nope", "hare", None)) == (
        69,
        "Virtual host nope does not exist",
    )
    assert (await refusal(users.set_topic_permissions("/", "hare", "t", "(", "")))[0] == 69


async def test_a_cleared_password_logs_nobody_in(admin: NodeAdmin) -> None:
    await admin.users.clear_password("guest")

    assert (await refusal(admin.users.authenticate_user("guest", "guest")))[0] == 65
    assert (await refusal(admin.users.authenticate_user("guest", "")))[0] == 65


async def test_descriptions_and_tags_of_a_vhost_are_kept(tmp_path: Path) -> None:
    async with Broker(config(tmp_path)) as broker:
        await NodeAdmin(broker).vhosts.add_vhost("v", "orders", ["a"])
        await NodeAdmin(broker).vhosts.set_vhost_tags("v", ["b", "c"])
        assert await refusal(NodeAdmin(broker).vhosts.set_vhost_tags("w", [])) == (
            65,
            'Virtual host "w" does not exist',
        )
    async with Broker(config(tmp_path)) as broker:
        rows = {row["name"]: row for row in await NodeAdmin(broker).vhosts.list_vhosts()}
        assert (rows["v"]["description"], rows["v"]["tags"]) == ("orders", ["b", "c"])
