"""A cluster in which nothing happens: after a restart of a node every operation is answered, and no node is lost."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from leveret.amqp import methods as m
from leveret.metadata.tables import ParameterRow, PolicyRow, Row, UserRow
from rigs.broker_rig import Client
from rigs.cluster.etcd_cluster import EtcdCluster

PAUSE_S = 20.0
METHODS: dict[str, list[m.Method]] = {
    "what is there": [
        m.QueueDeclare("q", durable=True),
        m.QueueDeclare("q", passive=True),
        m.ExchangeDeclare("e", "fanout", durable=True),
        m.ExchangeDeclare("e", "fanout", passive=True),
        m.QueueBind("q", "e", ""),
    ],
    "what is new": [
        m.QueueDeclare("new", durable=True),
        m.QueueDeclare("temporary", auto_delete=True),
        m.QueueDeclare("mine", exclusive=True),
        m.ExchangeDeclare("new", "topic"),
        m.QueueBind("new", "new", "k"),
        m.ExchangeBind("new", "e", "k"),
    ],
    "what is missing": [
        m.QueueDelete("missing"),
        m.ExchangeDelete("missing"),
        m.QueueUnbind("q", "e", "missing"),
    ],
    "what goes": [
        m.QueueUnbind("q", "e", ""),
        m.QueueDelete("q"),
        m.ExchangeDelete("e"),
    ],
}
ROWS: dict[str, list[Row]] = {
    "a policy": [PolicyRow("/", "p", "^q", "queues", {"max-length": 1}, 0)],
    "a user": [UserRow("ann", b"", "")],
    "a parameter": [ParameterRow("/", "vhost-limits", "limits", {"max-queues": 9})],
}


@pytest.fixture
def cluster() -> EtcdCluster:
    """Three nodes, of which one was started again; since then nothing has happened."""
    cluster = EtcdCluster("abc")
    client = cluster["b"].session()
    client.ask(1, m.QueueDeclare("q", durable=True))
    client.ask(1, m.ExchangeDeclare("e", "fanout", durable=True))
    client.ask(1, m.QueueBind("q", "e", ""))
    cluster.clock.jump(PAUSE_S)
    cluster.restart("a")
    return cluster


def leases(cluster: EtcdCluster) -> list[int]:
    rows = cluster.etcd.rows
    return [rows[store.session.keys.own].lease for store in cluster.stores.values()]


def answered(cluster: EtcdCluster, client: Client, method: m.Method) -> m.Method:
    client.protocol.data_received(m.method_frame(1, m.encode(method)))
    cluster.until(lambda: bool(client.wire.out), seconds=3.0)
    return client.take()[-1]  # type: ignore[no-any-return]


def written(cluster: EtcdCluster, name: str, puts: list[Row], deletes: list[Row]) -> object:
    answers: list[object] = []
    cluster.stores[name].write(puts, deletes, answers.append)
    cluster.until(lambda: bool(answers), seconds=3.0)
    return answers[0]


@pytest.mark.parametrize("pause_s", [0.0, PAUSE_S])
@pytest.mark.parametrize("name", ["a", "b"])
@pytest.mark.parametrize("methods", METHODS.values(), ids=METHODS)
def test_methods_are_answered_and_no_node_is_lost(
    cluster: EtcdCluster, name: str, methods: Sequence[m.Method], pause_s: float
) -> None:
    before = leases(cluster)
    for method in methods:
        cluster.clock.jump(pause_s)
        answer = answered(cluster, cluster[name].session(), method)
        assert type(answer).__name__ == f"{type(method).__name__}Ok", method
    cluster.clock.jump(5.0)
    assert leases(cluster) == before


@pytest.mark.parametrize("name", ["a", "b"])
@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
def test_settings_are_written_and_no_node_is_lost(
    cluster: EtcdCluster, name: str, rows: list[Row]
) -> None:
    before = leases(cluster)
    for puts, deletes in ((rows, []), (rows, []), ([], rows), ([], rows)):
        cluster.clock.jump(PAUSE_S)
        assert written(cluster, name, puts, deletes) is None
    cluster.clock.jump(5.0)
    assert leases(cluster) == before
