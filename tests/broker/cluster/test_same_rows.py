"""Clients of three nodes declare, bind and delete a few names at random, while etcd or a node is cut off at times.

In the end all nodes must have what etcd has.

Tests: broker/cluster/other_changes.py, broker/vhost/rows.py
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from leveret.amqp import methods as m
from leveret.metadata.tables import BindingRow, ExchangeRow, QueueRow
from rigs.broker_rig import Client
from rigs.cluster.cluster_rig import Member
from rigs.cluster.etcd_cluster import EtcdCluster

STEPS = 60
QUEUES, EXCHANGES = ("q1", "q2"), ("e1", "e2")


def some_method(random: Random) -> m.Method:
    queue, exchange, other = (
        random.choice(QUEUES),
        random.choice(EXCHANGES),
        random.choice(EXCHANGES),
    )
    durable = random.random() < 0.5
    choices: list[m.Method] = [
        m.QueueDeclare(queue, durable=durable),
        m.QueueDeclare(queue, durable=durable),
        m.QueueDelete(queue),
        m.ExchangeDeclare(exchange, random.choice(["fanout", "direct"]), durable=durable),
        m.ExchangeDeclare(exchange, "fanout"),
        m.ExchangeDelete(exchange),
        m.QueueBind(queue, exchange, random.choice("ab")),
        m.QueueBind(queue, exchange, "a"),
        m.QueueUnbind(queue, exchange, "a"),
        m.ExchangeBind(exchange, other, "a"),
    ]
    return random.choice(choices)


def rows_of_node(member: Member) -> set[tuple[object, ...]]:
    topology = member.node.vhosts["/"].topology
    found: set[tuple[object, ...]] = {
        ("queue", each.name, each.durable, each.home.name if each.is_remote else member.name)
        for each in topology.queues.values()
    }
    found |= {
        ("exchange", each.name, each.type, each.durable)
        for each in topology.exchanges.values()
        if each.name in EXCHANGES
    }
    return found | {
        ("binding", each.source, each.kind, each.destination, each.key)
        for each in topology.bindings()
    }


def rows_of_etcd(cluster: EtcdCluster, name: str) -> set[tuple[object, ...]]:
    contents = cluster.stores[name].load()
    found: set[tuple[object, ...]] = set()
    for row in contents.rows():
        if isinstance(row, QueueRow):
            found.add(("queue", row.name, row.durable, row.node))
        elif isinstance(row, ExchangeRow):
            found.add(("exchange", row.name, row.type, row.durable))
        elif isinstance(row, BindingRow):
            found.add(("binding", row.source, row.kind, row.destination, row.routing_key))
    return found


class Clients:
    """A client of each node; one that was closed is replaced."""

    def __init__(self, cluster: EtcdCluster) -> None:
        self._cluster = cluster
        self._open: dict[str, Client] = {}

    def send(self, name: str, method: m.Method) -> None:
        client = self._open.get(name)
        if client is not None and client.is_up:
            for answer in client.take():
                if isinstance(answer, m.ChannelClose):
                    client.protocol.data_received(
                        m.method_frame(1, m.encode(m.ChannelCloseOk()))
                        + m.method_frame(1, m.encode(m.ChannelOpen()))
                    )
                elif isinstance(answer, m.ConnectionClose):
                    assert answer.reply_code in (320, 541), answer  # 541: etcd has not answered
                    client.hang_up()
        if client is None or not client.is_up:
            client = self._cluster[name].client()
            client.log_in()
            client.send(1, m.ChannelOpen())
            self._open[name] = client
        if client.is_up and client.wire.is_reading:
            client.protocol.data_received(m.method_frame(1, m.encode(method)))


# Of the others: what another node has deleted was owed here (56, 83); a binding was refused when its client had gone
# (61); an exchange was made and deleted while this node heard nothing, and its outcome was unknown (372); an exchange
# took the place of another whose deletion was owed (1462); a node that was taken for dead forgot a deletion it owed
# (1643, 2340, 3732); a binding came for a queue that this node was replacing (2968).
SEEDS = (*range(8), 56, 61, 83, 372, 1462, 1643, 2340, 2968, 3732)
MORE = [pytest.param(each, marks=pytest.mark.slow) for each in range(8, 150) if each not in SEEDS]


@pytest.mark.parametrize("seed", [*SEEDS, *MORE])
def test_all_nodes_end_with_the_rows_of_etcd(seed: int) -> None:
    play(Random(seed), some_method, cut_share=0.05)


def play(
    random: Random,
    method: Callable[[Random], m.Method],
    cut_share: float,
    compactions: bool = False,
) -> None:
    """Let clients of three nodes send methods, while nodes are cut from etcd; then check all rows."""
    cluster = EtcdCluster("abc")
    clients = Clients(cluster)
    for _ in range(STEPS):
        for name in "abc":
            if random.random() < 0.7:
                clients.send(name, method(random))
        cluster.clock.jump(random.choice([0.0, 0.001, 0.003, 0.01, 0.1]))
        if random.random() < cut_share:
            faults = cluster.stores[random.choice("abc")].client.faults
            faults.is_cut = True
            cluster.clock.jump(random.choice([0.5, 3.0, 15.0]))
            if compactions and random.random() < 0.5:
                cluster.etcd.compact()
            faults.is_cut = False
    check(cluster)


def check(cluster: EtcdCluster) -> None:
    cluster.clock.jump(60)
    expected = rows_of_etcd(cluster, "a")
    for name in "abc":
        assert rows_of_etcd(cluster, name) == expected
        assert rows_of_node(cluster[name]) == expected, name


def some_temporary_method(random: Random) -> m.Method:
    """As ``some_method``, with exchanges that go with their last binding, and exclusive queues."""
    if random.random() < 0.8:
        return some_method(random)
    queue, exchange = random.choice(QUEUES), random.choice(EXCHANGES)
    choices: list[m.Method] = [
        m.ExchangeDeclare(exchange, "fanout", auto_delete=True),
        m.ExchangeDeclare(exchange, "fanout", auto_delete=True),
        m.QueueDeclare(queue, exclusive=True),
    ]
    return random.choice(choices)


# Of the others: a queue was lost that was declared while this node heard of the deletion of an earlier one (1694).
TEMPORARY = (*range(8), 90, 1694)


@pytest.mark.parametrize(
    "seed",
    [*TEMPORARY, *(pytest.param(n, marks=pytest.mark.slow) for n in range(8, 150) if n != 90)],
)
def test_all_nodes_end_with_the_rows_of_etcd_with_temporary_objects_and_compactions(
    seed: int,
) -> None:
    play(Random(seed), some_temporary_method, cut_share=0.06, compactions=True)
