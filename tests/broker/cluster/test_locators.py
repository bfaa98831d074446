"""The node that a new queue lives on.

Tests: broker/vhost/delegate.py, broker/vhost/local_queues.py
"""

from __future__ import annotations

import pytest

from leveret.amqp import methods as m
from leveret.broker.vhost.states import Event
from leveret.metadata.tables import PolicyRow
from rigs.broker_rig import Client, durable
from rigs.cluster.cluster_rig import Cluster, Member


@pytest.fixture
def cluster() -> Cluster:
    return Cluster("abc")


def locator(name: str) -> dict[str, tuple[str, bytes]]:
    return {"x-queue-master-locator": ("S", name.encode())}


def home(member: Member, name: str) -> str:
    """Return where a queue lives, as a node knows it."""
    entry = member.queues[name]
    return entry.home.name if entry.is_remote else member.name


def declare(client: Client, name: str, how: str = "", **more: bool) -> None:
    method = m.QueueDeclare(name, arguments=locator(how) if how else {}, **more)
    assert client.ask(1, method) == m.QueueDeclareOk(name, 0, 0)


def test_by_default_a_queue_lives_on_its_clients_node(cluster: Cluster) -> None:
    declare(cluster["b"].session(), "q", durable=True)
    assert [home(cluster[name], "q") for name in "abc"] == ["b", "b", "b"]


@pytest.mark.parametrize("is_durable", [True, False])
def test_min_masters_chooses_the_node_with_the_fewest_queues(
    cluster: Cluster, is_durable: bool
) -> None:
    client = cluster["c"].session()
    declare(cluster["a"].session(), "one", durable=True)
    for name in ("q1", "q2", "q3", "q4", "q5"):
        declare(client, name, "min-masters", durable=is_durable)
        client.publish(1, name, b"1")
        assert client.ask(1, m.QueueDeclare(name, passive=True)).message_count == 1
    cluster_nodes = [home(cluster["a"], name) for name in ("q1", "q2", "q3", "q4", "q5")]
    assert cluster_nodes == ["b", "c", "a", "b", "c"]


def test_queues_that_are_being_declared_count_for_min_masters(cluster: Cluster) -> None:
    names = [f"q{number}" for number in range(6)]
    clients = [cluster["c"].session() for _ in names]
    cluster.settle_s = 0.0
    for client, name in zip(clients, names, strict=True):
        client.send(1, m.QueueDeclare(name, durable=True, arguments=locator("min-masters")))
    cluster.settle_s = 0.5
    cluster.settle()
    assert sorted(home(cluster["b"], name) for name in names) == list("aabbcc")


def test_random_uses_all_nodes(cluster: Cluster) -> None:
    client = cluster["a"].session()
    names = [f"q{number}" for number in range(40)]
    for name in names:
        declare(client, name, "random", durable=True)
    assert {home(cluster["b"], name) for name in names} == {"a", "b", "c"}


def test_a_policy_chooses_where_the_argument_does_not(cluster: Cluster) -> None:
    row = PolicyRow("/", "spread", "^p", {"queue-master-locator": "min-masters"})
    for member in cluster.members.values():
        member.node.vhosts["/"].policies.put(row)
    client = cluster["c"].session()
    declare(client, "p1", durable=True)
    declare(client, "p2", "client-local", durable=True)
    declare(client, "other", durable=True)
    assert [home(cluster["a"], name) for name in ("p1", "p2", "other")] == ["a", "c", "c"]


def test_an_exclusive_queue_stays_with_its_connection(cluster: Cluster) -> None:
    declare(cluster["a"].session(), "one", durable=True)
    client = cluster["a"].session()
    declare(client, "mine", "min-masters", exclusive=True)
    assert home(cluster["b"], "mine") == "a"


def test_a_node_that_is_down_is_not_chosen(cluster: Cluster) -> None:
    client = cluster["c"].session()
    declare(client, "one", durable=True)
    cluster["a"].crash()
    cluster.settle()
    for name in ("q1", "q2", "q3"):
        declare(client, name, "min-masters", durable=True)
    assert [home(cluster["c"], name) for name in ("q1", "q2", "q3")] == ["b", "b", "c"]


def test_a_node_that_is_lost_while_it_is_asked_is_not_waited_for(cluster: Cluster) -> None:
    client = cluster["c"].session()
    declare(client, "one", durable=True)
    for other in "bc":
        cluster.network.silence("a", other)
    client.send(1, m.QueueDeclare("q1", durable=True, arguments=locator("min-masters")))
    assert client.take() == []
    cluster.clock.jump(5.0)
    assert client.take() == [m.QueueDeclareOk("q1", 0, 0)]
    assert home(cluster["c"], "q1") == "b"


def test_a_node_whose_vhost_is_starting_declares_the_queue_when_it_has_started(
    cluster: Cluster,
) -> None:
    client = cluster["c"].session()
    declare(client, "one", durable=True)
    vhost = cluster["a"].node.vhosts["/"]
    vhost.state.enter(Event.PART_ENDED)
    client.send(1, m.QueueDeclare("q1", durable=True, arguments=locator("min-masters")))
    assert client.take() == []

    for event in (Event.STARTS, Event.STORE_OPENED, Event.QUEUES_STARTED):
        vhost.state.enter(event)
    cluster.settle()
    assert client.take() == [m.QueueDeclareOk("q1", 0, 0)]
    assert home(cluster["c"], "q1") == "a"


def test_a_name_that_two_nodes_declare_at_once_by_locator_is_one_queue(cluster: Cluster) -> None:
    declare(cluster["b"].session(), "one", durable=True)
    declare(cluster["c"].session(), "two", durable=True)
    first, second = cluster["b"].session(), cluster["c"].session()
    cluster.settle_s = 0.0
    method = m.QueueDeclare("q", durable=True, arguments=locator("min-masters"))
    first.send(1, method)
    second.send(1, method)
    cluster.settle_s = 0.5
    cluster.settle()
    assert first.take() == second.take() == [m.QueueDeclareOk("q", 0, 0)]
    assert home(cluster["b"], "q") == "a"


def test_a_durable_queue_of_a_locator_is_there_after_its_node_has_started_again(
    cluster: Cluster,
) -> None:
    client = cluster["c"].session()
    declare(client, "one", durable=True)
    declare(client, "q", "min-masters", durable=True)
    cluster["a"].crash()
    cluster.start("a")
    cluster.clock.jump(12.0)
    assert client.ask(1, durable("q", arguments=locator("min-masters"))) == m.QueueDeclareOk(
        "q", 0, 0
    )
