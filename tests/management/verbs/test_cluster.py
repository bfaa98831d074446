"""Commands and lists of a cluster, asked on one of its nodes; brokers over real sockets, metadata in memory.

Tests: management/definitions/placing.py, management/operator_server.py, management/other_nodes.py,
    management/verbs/cluster_verbs.py, management/verbs/health.py, management/verbs/membership.py,
    management/verbs/queues.py
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aio_pika
import pytest

from leveret.broker.registry.cluster_nodes import RemoteEntry
from leveret.broker.vhost.vhost import VHost
from leveret.management import other_nodes
from leveret.management.operator_server import (
    ROWS_AT_ONCE,
    Answered,
    NextRows,
    OperatorServer,
)
from rigs.cluster.operated_cluster import Operators
from rigs.cluster.socket_cluster import SocketBroker, start_cluster
from rigs.waiting import eventually


@asynccontextmanager
async def cluster(
    folder: Path, names: str = "ab"
) -> AsyncIterator[tuple[dict[str, SocketBroker], Operators]]:
    brokers = await start_cluster(folder, names)
    try:
        yield brokers, Operators(brokers)
    finally:
        for broker in brokers.values():
            if broker.root.is_alive:
                await broker.stop()


@asynccontextmanager
async def client(
    broker: SocketBroker, vhost: str = ""
) -> AsyncIterator[aio_pika.abc.AbstractChannel]:
    connection = await aio_pika.connect(broker.url + vhost)
    try:
        yield await connection.channel()
    finally:
        await connection.close()


async def ignored(message: aio_pika.abc.AbstractIncomingMessage) -> None:
    """It stays unacknowledged."""


def names(rows: list[dict[str, Any]], column: str = "name") -> list[Any]:
    return sorted(row[column] for row in rows)


@pytest.mark.asyncio
async def test_lists_have_the_rows_of_all_nodes(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path) as (brokers, operators),
        client(brokers["a"]) as on_a,
        client(brokers["b"]) as on_b,
    ):
        await on_a.declare_queue("qa", durable=True)
        await on_b.declare_queue("qb")
        await on_b.default_exchange.publish(aio_pika.Message(b"1"), "qb")
        queue = await on_b.get_queue("qa")
        await queue.consume(ignored, consumer_tag="t")

        for node in "ab":
            found, warnings = await operators.ask(node, "list_queues", vhost="/")
            assert (names(found), warnings) == (["qa", "qb"], [])
            stats = {row["name"]: (row["messages"], row["consumers"]) for row in found}
            assert stats == {"qa": (0, 1), "qb": (1, 0)}
            found, _ = await operators.ask(node, "list_queues", vhost="/", local=True)
            assert names(found) == [f"q{node}"]
            for verb in ("list_connections", "list_channels"):
                found, _ = await operators.ask(node, verb)
                assert len({row["pid"] for row in found}) == 2
            found, _ = await operators.ask(node, "list_consumers", vhost="/")
            assert names(found, "queue_name") == ["qa"]
            found, _ = await operators.ask(
                node, "list_unresponsive_queues", vhost="/", queue_timeout_s=5.0
            )
            assert found == []


@pytest.mark.asyncio
async def test_a_long_list_of_another_node_comes_in_parts(tmp_path: Path) -> None:
    count = 2 * ROWS_AT_ONCE + 1
    async with cluster(tmp_path) as (brokers, operators):
        async with client(brokers["a"]) as on_a:
            await asyncio.gather(*[on_a.declare_queue(f"q{each:03}") for each in range(count)])
        found, warnings = await operators.ask("b", "list_queues", vhost="/")
        assert (names(found), warnings) == ([f"q{each:03}" for each in range(count)], [])


@pytest.mark.asyncio
async def test_a_command_on_a_queue_is_carried_out_where_it_lives(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (brokers, operators), client(brokers["a"]) as on_a:
        queue = await on_a.declare_queue("q", durable=True)
        for _ in range(3):
            await on_a.default_exchange.publish(aio_pika.Message(b"1"), "q")
        named = {"vhost": "/", "name": "q"}
        assert await operators.ask("b", "purge_queue", **named) == (3, [])
        await queue.consume(ignored)
        unless = named | {"if_unused": True, "if_empty": False}
        assert await operators.ask("b", "delete_queue", **unless) == ("Queue is in use", [])
        assert await operators.ask("b", "list_producers", **named) == ([], [])
        forced = named | {"if_unused": False, "if_empty": False}
        assert await operators.ask("b", "delete_queue", **forced) == (0, [])
        await eventually(lambda: "q" not in brokers["b"].node.vhosts["/"].topology.queues)
        assert await operators.ask("b", "purge_queue", **named) == ("not_found", [])


@pytest.mark.asyncio
async def test_connections_are_closed_on_whatever_node_they_are(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (brokers, operators):
        ends = [await aio_pika.connect(brokers[name].url) for name in "aab"]
        rows, _ = await operators.ask("b", "list_connections")
        pid = next(row["pid"] for row in rows if row["pid"].startswith("(a/"))
        assert await operators.ask("b", "close_connection", pid=pid, reason="x") == (None, [])
        await eventually(lambda: len(brokers["a"].node.connections) == 1)
        text = f"there is no connection {pid}"
        assert await operators.ask("b", "close_connection", pid=pid, reason="x") == (text, [])
        everywhere = {"vhost": None, "reason": "x"}
        assert await operators.ask("b", "close_all_connections", **everywhere) == (2, [])
        for each in ends:
            await each.close()


@pytest.mark.asyncio
async def test_a_node_that_does_not_answer_is_named_and_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hangs() -> list[Any]:
        return await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(other_nodes.OtherNodes.ask, "__defaults__", (0.05,))
    async with cluster(tmp_path) as (brokers, operators):
        brokers["a"].runtime.exit(operators.servers["a"], "kill")
        await eventually(lambda: not operators.servers["a"].is_alive)
        closed = {"user": "guest", "reason": "x"}
        text = "what node a has is missing: node a is being started"
        assert await operators.ask("b", "list_connections") == ([], [text])
        assert await operators.ask("b", "close_all_user_connections", **closed) == (0, [text])

        verbs = operators.admins["a"].node_verbs() | {"about": hangs}
        operators.servers["a"] = brokers["a"].runtime.spawn(OperatorServer, verbs)
        found, warnings = await operators.ask("b", "cluster_status")
        assert list(found["nodes"]) == ["b"]
        assert warnings == ["what node a has is missing: node a has not answered within 0.05 s"]

        await brokers["a"].stop()
        await eventually(lambda: not brokers["b"].links.nodes)
        text = "what node a has is missing: node a is not linked with this one"
        assert await operators.ask("b", "list_channels") == ([], [text])
        operators.lost("a")
        assert await operators.ask("b", "list_channels") == ([], [])


@pytest.mark.asyncio
async def test_the_rest_of_a_list_that_was_forgotten_is_refused(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (brokers, operators):
        answered = await brokers["b"].runtime.call(operators.servers["b"], NextRows(7))
    assert b"was not read for too long" in answered.answer
    assert isinstance(answered, Answered)


@pytest.mark.asyncio
async def test_a_forgotten_node_takes_its_durable_queues_with_it(tmp_path: Path) -> None:
    async with cluster(tmp_path, "abc") as (brokers, operators):
        async with client(brokers["a"]) as on_a, client(brokers["b"]) as on_b:
            gone = await on_a.declare_queue("gone", durable=True)
            once = await on_a.declare_exchange("once", "direct", durable=True, auto_delete=True)
            await gone.bind(once, "key")
            delays = {"x-delayed-type": "direct"}
            await on_a.declare_exchange("late", "x-delayed-message", durable=True, arguments=delays)
            await on_b.declare_queue("stays", durable=True)

        running = "node a is running: it must be stopped with 'leveret ctl shutdown' before the cluster forgets it"
        assert await operators.ask("b", "forget_cluster_node", node="a") == (running, [])
        assert "b is running" in (await operators.ask("b", "forget_cluster_node", node="b"))[0]
        unknown = "{:not_a_cluster_node, 'The node selected is not in the cluster.'}"
        assert await operators.ask("b", "forget_cluster_node", node="z") == (unknown, [])

        await brokers["a"].stop()
        operators.lost("a")
        await eventually(lambda: "a" not in brokers["b"].links.nodes)
        named = {"vhost": "/", "name": "gone", "if_unused": False, "if_empty": False}
        refusal, _ = await operators.ask("b", "delete_queue", **named)
        assert "forget_cluster_node a" in refusal
        found, _ = await operators.ask("b", "list_queues", vhost="/")
        states = {row["name"]: row["state"] for row in found}
        assert states == {"gone": "down", "amq.delayed.late": "down", "stays": "running"}

        queues = [{"vhost": "/", "name": each} for each in ("gone", "amq.delayed.late")]
        expected = ({"queues": queues}, [])
        assert await operators.ask("b", "forget_cluster_node", node="a", dry_run=True) == expected
        assert await operators.ask("b", "forget_cluster_node", node="a") == expected
        left = {"stays", "amq.delayed.late"}
        for name in "bc":
            topology = brokers[name].node.vhosts["/"].topology
            await eventually(lambda queues=topology.queues: queues.keys() == left)
            await eventually(lambda exchanges=topology.exchanges: "once" not in exchanges)
            rows = brokers[name].rows.load()
            assert {row.name for row in rows.queues} == left
            assert rows.bindings == []
            assert "once" not in {row.name for row in rows.exchanges}
        found, _ = await operators.ask("c", "list_queues", vhost="/")
        assert {row["state"] for row in found} == {"running"}
        assert await operators.ask("b", "forget_cluster_node", node="a") == (unknown, [])


def queues(vhost: str, prefix: str, count: int, **more: Any) -> list[dict[str, Any]]:
    return [
        {"vhost": vhost, "name": f"{prefix}{number}", "durable": number % 3 > 0, **more}
        for number in range(count)
    ]


def cluster_nodes(broker: SocketBroker, vhost: str, prefix: str) -> Counter[str]:
    """Return how many queues of a name live on each node, as one of them knows it."""
    found = broker.node.vhosts[vhost].topology.queues.values()
    return Counter(
        entry.home.name if isinstance(entry, RemoteEntry) else broker.name
        for entry in found
        if entry.name.startswith(prefix)
    )


@pytest.mark.asyncio
async def test_imported_queues_are_made_where_their_locators_say(tmp_path: Path) -> None:
    spread = {"x-queue-master-locator": "min-masters"}
    document = {
        "vhosts": [{"name": "new"}],
        "permissions": [
            {"user": "guest", "vhost": "new", "configure": ".*", "write": ".*", "read": ".*"}
        ],
        "policies": [
            {
                "vhost": "new", "name": "p", "pattern": "^p",
                "definition": {"queue-master-locator": "min-masters"},
            }
        ],
        "exchanges": [{"vhost": "new", "name": "e", "type": "fanout", "durable": True}],
        "queues": [
            *queues("/", "here", 9),
            *queues("/", "spread", 30, arguments=spread),
            *queues("new", "p", 30),
            *queues("new", "r", 60, arguments={"x-queue-master-locator": "random"}),
        ],
        "bindings": [
            {
                "vhost": "new", "source": "e", "destination": f"p{number}",
                "destination_type": "queue", "routing_key": "",
            }
            for number in range(30)
        ],
    }  # fmt: skip
    async with cluster(tmp_path, "abc") as (brokers, operators):
        for _ in range(2):  # the second time nothing changes
            _, warnings = await operators.ask("b", "import_definitions", document=document)
            assert warnings == []
            for broker in brokers.values():
                assert cluster_nodes(broker, "/", "here") == {"b": 9}
                assert cluster_nodes(broker, "/", "spread") == {"a": 13, "b": 4, "c": 13}
                assert cluster_nodes(broker, "new", "p") == {"a": 10, "b": 10, "c": 10}
                assert cluster_nodes(broker, "new", "r").keys() == {"a", "b", "c"}
        async with client(brokers["c"], "new") as on_c:
            exchange = await on_c.get_exchange("e")
            await exchange.publish(aio_pika.Message(b"1"), "")
            for number in range(30):
                queue = await on_c.get_queue(f"p{number}")
                assert queue.declaration_result.message_count == 1


@pytest.mark.asyncio
async def test_imported_queues_whose_node_cannot_make_them_are_made_on_the_node_that_imports(
    tmp_path: Path,
) -> None:
    spread = {"x-queue-master-locator": "min-masters"}
    document = {"queues": queues("/", "q", 20, arguments=spread)}
    async with cluster(tmp_path) as (brokers, operators):
        delegate = brokers["b"].node.vhosts["/"].local_queues.delegate
        brokers["b"].runtime.exit(delegate, "kill")
        await operators.ask("a", "import_definitions", document=document)
        assert cluster_nodes(brokers["a"], "/", "q").total() == 20
        await eventually(
            lambda: cluster_nodes(brokers["b"], "/", "q") == cluster_nodes(brokers["a"], "/", "q")
        )


@pytest.mark.asyncio
async def test_operators_of_two_nodes_delete_a_vhost_at_once(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (brokers, operators):
        for _ in range(3):
            await operators.ask("a", "add_vhost", name="v")
            await eventually(lambda: "v" in brokers["b"].node.vhosts)
            vhosts = [brokers[name].node.vhosts["v"] for name in "ab"]

            asked = [operators.ask(name, "delete_vhost", name="v") for name in "ab"]
            assert await asyncio.gather(*asked) == [(None, [])] * 2

            assert all("v" not in brokers[name].node.vhosts for name in "ab")
            await eventually(lambda vhosts=vhosts: not any(map(is_running, vhosts)))


def is_running(vhost: VHost) -> bool:
    return vhost.supervisor is not None and vhost.supervisor.is_alive
