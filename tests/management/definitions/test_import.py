"""Definitions files: taken in as a whole or not at all, by a running broker or at its start.

Tests: management/definitions/file.py, management/definitions/plan.py, management/json_text.py
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aio_pika
import pytest

from conformance.raw import Connection
from conformance.wire import Typed
from leveret.broker.registry.registry import QueueEntry
from leveret.broker.vhost.deletions import BINDINGS_PER_TURN
from leveret.core.addresses import Address
from leveret.core.errors import ConfigError
from leveret.management import json_text
from leveret.management.errors import RefusedError
from leveret.management.node_admin import NodeAdmin
from leveret.routing.exchange import Exchange
from leveret.server.broker import Broker
from leveret.server.config.config import Config

RECORDED = Path(__file__).parents[2] / "metadata" / "data" / "definitions-3.10.8.json"


def config(folder: Path | None, **more: Any) -> Config:
    return Config(listen=(Address("127.0.0.1", 0),), data_dir=folder, **more)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with Broker(config(tmp_path / "data")) as running:
        yield running


@pytest.fixture
def admin(broker: Broker) -> NodeAdmin:
    return NodeAdmin(broker)


def binding(source: str, destination: str, kind: str = "queue", **more: Any) -> dict[str, Any]:
    ends = {"vhost": "/", "source": source, "destination": destination}
    return ends | {"destination_type": kind, "routing_key": "k"} | more


def user(**more: Any) -> dict[str, Any]:
    return {"name": "u", "password_hash": "", "tags": ""} | more


def policy(**more: Any) -> dict[str, Any]:
    return {"vhost": "/", "name": "p", "pattern": "", "definition": {"max-length": 1}} | more


def permission(**more: Any) -> dict[str, Any]:
    patterns = {"configure": "", "write": "", "read": ""}
    return {"user": "guest", "vhost": "/"} | patterns | more


GOOD: dict[str, Any] = {
    "users": [user(name="fine")],
    "vhosts": [{"name": "fine"}],
    "exchanges": [{"name": "fine", "vhost": "/", "type": "fanout"}],
    "queues": [{"name": "fine", "vhost": "/"}],
}

BAD = [
    ("users", user(name=""), "users[1]: name is empty"),
    ("users", {"password_hash": ""}, "users[1] has no 'name'"),
    ("users", user(tags=[1]), "users[1]: tags are [1], not texts"),
    ("users", user(password_hash="!"), "users[1]: "),
    ("users", user(limits={"max-channels": "x"}), "users[1]: max-channels is 'x', not an integer"),
    ("users", user(limits={"queues": 1}), "users[1]: 'queues' is none of the limits max-conn"),
    ("vhosts", {"name": 5}, "vhosts[1]: name is 5, not a text"),
    ("permissions", permission(user="nobody"), "permissions of user 'nobody' in vhost '/': user "),
    (
        "permissions",
        permission(vhost="v"),
        "permissions of user 'guest' in vhost 'v': virtual host",
    ),
    ("permissions", permission(read="("), "permissions of user 'guest' in vhost '/': invalid reg"),
    ("permissions", {"user": "guest"}, "permissions[0] has no 'vhost'"),
    (
        "topic_permissions",
        {"user": "guest", "vhost": "/", "exchange": "t", "write": "", "read": "["},
        "topic permissions of user 'guest' in vhost '/': invalid regular expression",
    ),
    (
        "parameters",
        {"vhost": "/", "component": "vhost-limits", "name": "limits", "value": 1},
        "parameters[0]: 1 is not an object",
    ),
    (
        "parameters",
        {"vhost": "/", "component": "other", "name": "n", "value": 1 << 70},
        "parameter 'n' of component 'other' in vhost '/': Integer value out of range",
    ),
    (
        "policies",
        policy(pattern="("),
        "policy 'p' in vhost '/': pattern should be regular expression but is invalid",
    ),
    (
        "policies",
        policy(definition={"queue-mode": 5}),
        "policy 'p' in vhost '/': 5 is not a valid queue-mode value",
    ),
    ("policies", policy(definition={}), "policies[0]: definition is empty"),
    ("policies", policy(**{"apply-to": "all of it"}), "policies[0]: apply-to 'all of it' is none"),
    ("policies", policy(vhost="v"), "policy 'p' in vhost 'v': virtual host 'v' does not exist"),
    (
        "exchanges",
        {"name": "x", "vhost": "/", "type": "nope"},
        "exchange 'x' in vhost '/': unknown exchange type 'nope'",
    ),
    (
        "exchanges",
        {"name": "x", "vhost": "/", "type": "direct", "arguments": {"alternate-exchange": 1}},
        "exchange 'x' in vhost '/': argument alternate-exchange is not a text",
    ),
    ("exchanges", {"name": "x", "vhost": "v", "type": "topic"}, "exchange 'x' in vhost 'v': virt"),
    (
        "queues",
        {"name": "q", "vhost": "/", "arguments": {"x-expires": 0}},
        "queue 'q' in vhost '/': PRECONDITION_FAILED - invalid arg 'x-expires' for queue 'q'",
    ),
    (
        "queues",
        {"name": "q", "vhost": "/", "arguments": {"n": 1 << 70}},
        "queue 'q' in vhost '/': SYNTAX_ERROR - table cannot be written",
    ),
    ("queues", {"name": "q" * 256, "vhost": "/"}, "queue '" + "q" * 256 + "' in vhost '/': its na"),
    ("queues", {"name": "q\ud800", "vhost": "/"}, "queues[1]: 'utf-8' codec can't encode"),
    ("queues", {"name": "q", "vhost": "v"}, "queue 'q' in vhost 'v': virtual host 'v' does not "),
    ("queues", {"name": "q", "vhost": "/", "durable": "yes"}, "queues[1]: durable is 'yes', not"),
    ("queues", {"name": "q", "vhost": "/", "type": "stream"}, "queue 'q' in vhost '/': PRECONDI"),
    ("queues", "q", "queues[1]: 'q' is not an object"),
    (
        "bindings",
        binding("amq.headers", "fine", arguments={"x-match": "some"}),
        "binding from 'amq.headers' to queue 'fine' with key 'k' in vhost '/': PRECONDITION_FAILED",
    ),
    ("bindings", binding("fine", "fine", "person"), "bindings[0]: destination_type 'person' is"),
    ("bindings", binding("fine", "fine", routing_key="k" * 256), "binding from 'fine' to queue "),
    ("bindings", {"vhost": "/", "source": "fine"}, "bindings[0] has no 'destination_type'"),
]


@pytest.mark.parametrize(("section", "entry", "said"), BAD)
async def test_a_file_with_one_bad_entry_changes_nothing(
    broker: Broker, admin: NodeAdmin, section: str, entry: Any, said: str
) -> None:
    before = await admin.definitions.export_definitions()
    stored = broker.node.metadata.store.load().rows()
    document = GOOD | {section: [*GOOD.get(section, []), entry]}

    with pytest.raises(RefusedError) as refused:
        await admin.definitions.import_definitions(document)

    assert str(refused.value).startswith(said)
    assert await admin.definitions.export_definitions() == before
    assert broker.node.metadata.store.load().rows() == stored
    assert await admin.definitions.import_definitions(GOOD) == []


async def test_a_section_that_is_no_list_is_refused(admin: NodeAdmin) -> None:
    with pytest.raises(RefusedError, match="queues is no list"):
        await admin.definitions.import_definitions({"queues": {"name": "q"}})


STREAM = {
    "name": "s",
    "vhost": "/",
    "type": "stream",
    "arguments": {"x-queue-type": "stream", "x-max-age": "1h", "x-own": 1},
}


async def test_queues_of_types_that_do_not_exist_are_mapped_or_left_out_by_option(
    admin: NodeAdmin,
) -> None:
    many = [STREAM | {"name": f"s{number}"} for number in range(60)]
    document = {"queues": [STREAM, *many], "bindings": [binding("amq.topic", "s")]}

    left_out = await admin.definitions.import_definitions(document, "leave-out")
    assert await admin.vhosts.list_queues("/") == []
    assert left_out[0] == "queue 's' in vhost '/' is left out: there are no stream queues"
    assert left_out[-1].endswith("is left out: there is no queue 's'")
    assert len(left_out) == 62

    mapped = await admin.definitions.import_definitions(document, "map")
    assert mapped[0] == (
        "queue 's' in vhost '/' becomes a classic queue: it was stream, without x-max-age"
    )
    assert len(mapped) == 61
    (row,) = [row for row in await admin.vhosts.list_queues("/") if row["name"] == "s"]
    assert (row["type"], [name for name, *_ in row["arguments"]]) == (
        "classic",
        ["x-own"],
    )
    assert len(await admin.definitions.import_definitions(document, "map")) == 0
    with pytest.raises(RefusedError, match="unsupported queues: 'x' is none of refuse, map"):
        await admin.definitions.import_definitions(document, "x")


async def test_the_file_of_a_start_follows_the_same_option(tmp_path: Path) -> None:
    file = tmp_path / "d.json"
    vhost = {"name": "/"}
    file.write_text(json.dumps({"vhosts": [vhost], "queues": [STREAM]}))
    with pytest.raises(ConfigError, match="unsupported queue type 'stream'"):
        await Broker(config(tmp_path / "a", load_definitions=file)).start()
    with pytest.raises(ConfigError, match="allowed: refuse, map, leave-out"):
        config(tmp_path / "b", unsupported_queues="x")
    for option, names in (("map", ["s"]), ("leave-out", [])):
        options = {"load_definitions": file, "unsupported_queues": option}
        async with Broker(config(tmp_path / option, **options)) as broker:
            rows = await NodeAdmin(broker).vhosts.list_queues("/")
            assert [row["name"] for row in rows] == names


async def test_what_cannot_be_bound_or_is_reserved_is_left_out_and_told(admin: NodeAdmin) -> None:
    document = GOOD | {
        "exchanges": [*GOOD["exchanges"], {"name": "amq.mine", "vhost": "/", "type": "topic"}],
        "queues": [*GOOD["queues"], {"name": "amq.gen-1", "vhost": "/"}],
        "bindings": [
            binding("gone", "fine"),
            binding("fine", "amq.gen-1"),
            binding("fine", "gone", "exchange"),
            binding("", "fine"),
            binding("fine", "fine"),
        ],
    }

    assert await admin.definitions.import_definitions(document) == [
        "exchange 'amq.mine' in vhost '/' is left out: its name begins with amq.",
        "queue 'amq.gen-1' in vhost '/' is left out: its name begins with amq.",
        "binding from 'gone' to queue 'fine' with key 'k' in vhost '/' is left out: "
        "there is no exchange 'gone'",
        "binding from 'fine' to queue 'amq.gen-1' with key 'k' in vhost '/' is left out: "
        "there is no queue 'amq.gen-1'",
        "binding from 'fine' to exchange 'gone' with key 'k' in vhost '/' is left out: "
        "there is no exchange 'gone'",
    ]
    bindings = await admin.vhosts.list_bindings("/")
    assert [row["destination_name"] for row in bindings if row["source_name"]] == ["fine"]


async def test_what_has_no_effect_is_kept_and_told(admin: NodeAdmin) -> None:
    upstream = {"vhost": "/", "component": "federation-upstream", "name": "up", "value": {"a": [1]}}
    policies = [policy(definition={"max-length": 1, "queue-version": 1})]
    document = {"policies": policies, "parameters": [upstream]}

    assert await admin.definitions.import_definitions(document) == [
        "parameter 'up' of component 'federation-upstream' in vhost '/' is kept and has no effect",
        "policy 'p' in vhost '/': queue-version without effect so far",
    ]
    after = await admin.definitions.export_definitions()
    assert after["parameters"] == [upstream]
    assert [each["name"] for each in after["policies"]] == ["p"]


async def test_a_long_list_of_notices_is_cut(admin: NodeAdmin) -> None:
    document = {"bindings": [binding("gone", str(number)) for number in range(60)]}

    notices = await admin.definitions.import_definitions(document)

    assert len(notices) == 51
    assert notices[-1] == "and 10 more like these"


async def test_a_real_nodes_export_is_taken_twice_and_lasts(
    broker: Broker, admin: NodeAdmin
) -> None:
    document = json.loads(RECORDED.read_text())

    notices = await admin.definitions.import_definitions(document)
    once = await admin.definitions.export_definitions()
    assert await admin.definitions.import_definitions(document) == notices
    assert await admin.definitions.export_definitions() == once
    await admin.users.authenticate_user("bob", "bob secret")
    running = [await admin.vhosts.list_queues(name) for name in ("/", "orders")]
    assert all(row["state"] == "running" for rows in running for row in rows)
    assert [notice for notice in notices if "'lost'" in notice] == [
        # An internal exchange, which RabbitMQ does not export.
        "binding from 'lost' to queue 'lazy.all' with key 'lazy.all' in vhost 'orders' is left "
        "out: there is no exchange 'lost'"
    ]
    folder = broker.config.data_dir
    await broker.stop()
    async with Broker(config(folder)) as again:
        assert set(again.node.vhosts["orders"].topology.queues) >= {"lazy.all", "bob-é"}
        assert len(again.node.vhosts["orders"].topology.bindings()) == 5 - 1  # one queue transient
        assert again.node.vhosts["orders"].limits == {"max-connections": 50, "max-queues": 100}


async def test_a_real_nodes_export_with_loose_ends_is_taken(admin: NodeAdmin) -> None:
    document = json.loads(RECORDED.with_name("definitions-3.10.8-hashes.json").read_text())

    notices = await admin.definitions.import_definitions(document)

    for name in ("u256", "u512", "umd5"):
        await admin.users.authenticate_user(name, name.replace("u", "pw"))
    assert [notice.split(":")[1] for notice in notices if notice.startswith("binding")] == [
        " there is no exchange 'int'",
        " there is no exchange 'int'",
        " there is no queue 'amq.gen-DGrGOTrppuU8CZhwHVtS0Q'",
        " there is no queue 'e'",
    ]
    again = await admin.definitions.export_definitions()
    assert [each["name"] for each in again["policies"]] == ["pol"]
    assert {each["name"] for each in again["parameters"]} == {"op", "limits"}
    assert {each["destination"] for each in again["bindings"]} == {"d", "t"}


async def test_more_queues_than_the_vhosts_limit_are_refused(admin: NodeAdmin) -> None:
    limits = {"vhost": "/", "component": "vhost-limits", "name": "limits"}
    await admin.definitions.import_definitions(
        {"parameters": [limits | {"value": {"max-queues": 1}}]}
    )
    queues = [{"name": name, "vhost": "/"} for name in ("a", "b")]

    with pytest.raises(RefusedError, match="vhost '/': 2 queues would exceed its limit of 1"):
        await admin.definitions.import_definitions({"queues": queues})


@pytest.mark.parametrize(
    ("algorithm", "stored"),
    [  # rabbitmqctl's and the HTTP API's hashes of "pw" with the salt "salt"
        ("rabbit_password_hashing_md5", "md5"),
        ("rabbit_password_hashing_sha256", "sha256"),
        ("rabbit_password_hashing_sha512", "sha512"),
        (None, "sha256"),
    ],
)
async def test_hashes_of_all_algorithms_log_in(
    admin: NodeAdmin, algorithm: str | None, stored: str
) -> None:
    entry = user(password_hash=hash_of(stored))
    if algorithm is not None:
        entry["hashing_algorithm"] = algorithm

    await admin.definitions.import_definitions({"users": [entry]})

    await admin.users.authenticate_user("u", "pw")


def hash_of(algorithm: str) -> str:
    return b64encode(b"salt" + hashlib.new(algorithm, b"saltpw").digest()).decode()


async def test_hashes_of_versions_before_3_6_are_md5(admin: NodeAdmin) -> None:
    document = {"rabbit_version": "3.5.7", "users": [user(password_hash=hash_of("md5"))]}

    await admin.definitions.import_definitions(document)

    await admin.users.authenticate_user("u", "pw")


# At the start.


def definitions(folder: Path, **more: Any) -> Path:
    file = folder / "definitions.json"
    file.write_text(
        json.dumps(
            {
                "vhosts": [{"name": "shop"}],
                "users": [user(name="hare", password="pw")],
                "permissions": [permission(user="hare", vhost="shop", read=".*", write=".*")],
                "queues": [
                    {"name": "lasting", "vhost": "shop"},
                    {"name": "passing", "vhost": "shop", "durable": False},
                ],
                "bindings": [binding("amq.topic", "lasting", vhost="shop")],
            }
            | more
        )
    )
    return file


@pytest.mark.parametrize("place", ["on disk", "in memory"])
async def test_an_embedded_broker_starts_with_its_definitions(tmp_path: Path, place: str) -> None:
    folder = tmp_path / "data" if place == "on disk" else None
    given = config(folder, load_definitions=definitions(tmp_path))

    for _ in range(2):
        async with Broker(given) as broker:
            port = broker.addresses[0].port
            connection = await aio_pika.connect(f"amqp://hare:pw@127.0.0.1:{port}/shop")
            async with connection:
                channel = await connection.channel()
                exchange = await channel.get_exchange("amq.topic")
                await exchange.publish(aio_pika.Message(b"hello"), "k")
                queue = await channel.get_queue("lasting")
                message = await queue.get()
                await message.ack()
                assert message.body == b"hello"
            rows = await NodeAdmin(broker).vhosts.list_queues("shop")
            assert {row["name"]: row["state"] for row in rows} == {
                "lasting": "running",
                "passing": "running",
            }
            # As RabbitMQ: a node with definitions gets no default user and no default vhost.
            assert list(broker.node.vhosts) == ["shop"]
            assert list(broker.node.access.users) == ["hare"]


async def test_definitions_that_cannot_be_keep_the_broker_from_starting(tmp_path: Path) -> None:
    file = definitions(tmp_path, queues=[{"name": "q", "vhost": "gone"}])

    with pytest.raises(ConfigError, match=r"definitions\.json: queue 'q' in vhost 'gone': virtual"):
        await Broker(config(tmp_path / "data", load_definitions=file)).start()
    with pytest.raises(ConfigError, match=r"none\.json does not exist"):
        await Broker(config(tmp_path / "data", load_definitions=Path("none.json"))).start()
    async with Broker(config(tmp_path / "data")) as broker:
        assert list(broker.node.vhosts) == ["/"]


async def test_definitions_come_over_what_is_there(tmp_path: Path) -> None:
    async with Broker(config(tmp_path / "data")) as broker:
        await NodeAdmin(broker).users.add_user("hare", "old")

    given = config(tmp_path / "data", load_definitions=definitions(tmp_path))
    async with Broker(given) as broker:
        assert sorted(broker.node.vhosts) == ["/", "shop"]
        await NodeAdmin(broker).users.authenticate_user("hare", "pw")
        await NodeAdmin(broker).users.authenticate_user("guest", "guest")


async def test_policies_of_a_file_apply_to_what_is_there_and_what_it_brings(
    admin: NodeAdmin,
) -> None:
    await admin.definitions.import_definitions({"queues": [{"vhost": "/", "name": "old"}]})
    lazy = policy(definition={"queue-mode": "lazy"})
    value = {"pattern": "new", "definition": {"expires": 5_000_000}, "apply-to": "queues"}
    operator = {"vhost": "/", "component": "operator_policy", "name": "o", "value": value}

    notices = await admin.definitions.import_definitions(
        {
            "policies": [lazy],
            "parameters": [operator],
            "queues": [{"vhost": "/", "name": "new"}],
            "exchanges": [{"vhost": "/", "name": "x", "type": "fanout"}],
        }
    )

    rows = {row["name"]: row for row in await admin.vhosts.list_queues("/")}
    assert notices == []
    assert (rows["old"]["policy"], rows["old"]["operator_policy"]) == ("p", "")
    assert rows["new"]["effective_policy_definition"] == ('{"expires":5000000,"queue-mode":"lazy"}')
    assert {row["mode"] for row in rows.values()} == {"lazy"}
    assert {row["policy"] for row in await admin.vhosts.list_exchanges("/")} == {"p"}
    exported = await admin.definitions.export_definitions()
    assert exported["policies"] == [lazy | {"priority": 0, "apply-to": "all"}]
    assert exported["parameters"] == [operator | {"value": value | {"priority": 0}}]


EVERY_TYPE: dict[str, Any] = {
    "t": True,
    **{letter: Typed(letter, 5) for letter in "bBsuIilL"},
    "T": Typed("T", (1 << 64) - 1),
    "f": Typed("f", 0.5),
    "d": Typed("d", float("inf")),
    "D": Typed("D", (2, 314)),
    "S": b"\xff\x00",
    "x": Typed("x", b"\xff"),
    "V": None,
    "A": [Typed("T", 1), [None], {"deep": Typed("b", -1)}],
    "F": {"deep": {"deeper": Typed("x", b"\\xff")}},
}


def declare_with_every_type(broker: Broker) -> None:
    """Declare and bind; an answer other than ok fails."""
    (address,) = broker.addresses
    client = Connection((address.host, address.port))
    client.open()
    channel = client.channel()
    known = {"x-expires": Typed("I", 900_000), "x-max-priority": Typed("b", 3)}
    channel.ok("exchange.declare", exchange="e", type="headers", durable=True, arguments=EVERY_TYPE)
    channel.ok("queue.declare", queue="q", durable=True, arguments=EVERY_TYPE | known)
    for key in ("", "b"):
        arguments = EVERY_TYPE | {"x-match": "any"}
        channel.ok("queue.bind", queue="q", exchange="e", routing_key=key, arguments=arguments)
    client.close()


async def test_arguments_of_every_type_are_imported_as_they_were_declared(tmp_path: Path) -> None:
    async with Broker(config(tmp_path / "first")) as broker:
        await asyncio.to_thread(declare_with_every_type, broker)
        exported = await NodeAdmin(broker).definitions.export_definitions()
    document = json_text.decode(json_text.encode(exported))

    async with Broker(config(tmp_path / "second")) as broker:
        admin = NodeAdmin(broker)
        assert await admin.definitions.import_definitions(document) == []
        await asyncio.to_thread(declare_with_every_type, broker)
        assert await admin.definitions.import_definitions(document) == []

        assert len(broker.node.vhosts["/"].topology.bindings()) == 2
        assert await admin.definitions.export_definitions() == exported


@pytest.mark.parametrize("kind", ["queue", "exchange"])
async def test_what_a_client_declares_and_deletes_meanwhile_is_not_imported(
    broker: Broker, admin: NodeAdmin, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    node = broker.node
    vhost, write = node.vhosts["/"], node.metadata.write
    topology = vhost.topology

    async def write_then_delete(*rows: Any) -> None:
        await write(*rows)
        monkeypatch.undo()
        exchange = Exchange("n", "fanout")
        entry = QueueEntry("/", "n", durable=False, on_deleted=vhost.queue_deleted)
        if kind == "queue":
            vhost.register(entry)
        else:
            vhost.add_exchange(exchange)
        for number in range(3 * BINDINGS_PER_TURN):
            topology.bind("amq.topic", kind, "n", b"%d" % number, {})
        if kind == "queue":
            entry.deleted()
        else:
            vhost.deletions.begin(exchange, topology.remove_exchange("n"))
        assert topology.is_leaving(kind, "n")

    monkeypatch.setattr(node.metadata, "write", write_then_delete)
    named = {"vhost": "/", "name": "n", "durable": True}
    named |= {"type": "fanout"} if kind == "exchange" else {}
    await admin.definitions.import_definitions({f"{kind}s": [named]})
    await admin.definitions.import_definitions({})  # until the deletion is complete

    assert not topology.queues
    assert "n" not in topology.exchanges
    contents = node.metadata.store.load()
    assert not contents.queues
    assert not [each for each in contents.exchanges if each.name == "n"]
