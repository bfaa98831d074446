"""Waits end with the revision that they are for, at the moment at which it is applied; no client waits for a timer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest

from leveret.amqp import methods as m
from leveret.broker.vhost import exchange_declare
from leveret.broker.vhost.delegate import Delegate
from leveret.broker.vhost.metadata.metadata_writer import MetadataWriter, OvertakenError, retried
from leveret.broker.vhost.queue_declare import DelegatedDeclare
from leveret.metadata.tables import Row
from rigs.broker_rig import Client
from rigs.cluster.etcd_cluster import EtcdCluster

STEP_S = 0.0001
ANSWERED_S = 20.0
LATE_S = 0.6  # for which a node hears of no write; others do not take it for dead so soon

EXCHANGE = m.ExchangeDeclare("e", "direct")
LOCATOR = {"x-queue-master-locator": ("S", b"min-masters")}


@pytest.fixture
def cluster() -> EtcdCluster:
    return EtcdCluster("abc")


def send(client: Client, method: m.Method) -> None:
    client.protocol.data_received(m.method_frame(1, m.encode(method)))


def answered_at_s(cluster: EtcdCluster, *clients: Client) -> list[float]:
    """Return when each of the clients is answered."""
    found: dict[Client, float] = {}

    def are_answered() -> bool:
        for client in clients:
            if client.wire.out:
                found.setdefault(client, cluster.clock.monotonic_s())
        return len(found) == len(clients)

    cluster.until(are_answered, ANSWERED_S, STEP_S)
    return [found[client] for client in clients]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    "methods",
    [
        [EXCHANGE, EXCHANGE],
        [EXCHANGE, m.ExchangeDelete("e"), EXCHANGE],
        [m.QueueBind("q", "amq.direct", "k"), m.QueueUnbind("q", "amq.direct", "k")],
    ],
    ids=["declare and declare", "delete and declare", "bind and unbind"],
)
def test_clients_of_a_node_that_wait_for_one_row_are_answered_at_one_moment(
    methods: Sequence[m.Method], seed: int
) -> None:
    cluster = EtcdCluster("abc", seed)
    clients = [cluster["a"].session() for _ in methods]
    clients[0].ask(1, m.QueueDeclare("q"))
    cluster.clock.jump(1.0 + Random(seed).random())
    for client, method in zip(clients, methods, strict=True):
        send(client, method)

    first, *others = answered_at_s(cluster, *clients)

    assert max(others) - first < 0.012, "a transaction of etcd, and its news"


def test_who_was_overtaken_begins_anew_in_the_turn_in_which_it_hears_of_that(
    cluster: EtcdCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    overtaken: list[float] = []
    begun: list[float] = []
    commit = MetadataWriter.commit

    def noted_commit(self: MetadataWriter, puts: Sequence[Row], deletes: Sequence[Row]) -> Any:
        try:
            yield from commit(self, puts, deletes)
        except OvertakenError:
            overtaken.append(cluster.clock.monotonic_s())
            raise

    def noted_retried(attempt: Callable[[], Any]) -> Any:
        def noted() -> Any:
            begun.append(cluster.clock.monotonic_s())
            return attempt()

        return retried(noted)

    monkeypatch.setattr(MetadataWriter, "commit", noted_commit)
    monkeypatch.setattr(exchange_declare, "retried", noted_retried)
    clients = [cluster[name].session() for name in "abc"]
    for client in clients:
        send(client, EXCHANGE)
    cluster.clock.jump(ANSWERED_S)

    assert [client.take() for client in clients] == [[m.ExchangeDeclareOk()]] * 3
    assert len(overtaken) == 2
    assert begun[3:] == overtaken


@pytest.mark.parametrize("method", [m.QueueBind("q", "e", "k"), m.ExchangeDelete("e")])
def test_a_client_is_refused_where_memory_never_agrees_with_etcd(
    cluster: EtcdCluster, method: m.Method, caplog: pytest.LogCaptureFixture
) -> None:
    client = cluster["a"].session()
    client.ask(1, m.QueueDeclare("q"))
    client.ask(1, EXCHANGE)
    replica = cluster.stores["a"].session.replica
    (key,) = (key for key in replica.entries if key.endswith("/e"))
    if isinstance(method, m.ExchangeDelete):
        replica.entries[key] = replica.entries[key]._replace(revision=1)
    else:
        del replica.entries[key]
    send(client, method)
    answered_at_s(cluster, client)

    (refused,) = client.take()
    assert (refused.reply_code, refused.reply_text) == (541, "INTERNAL_ERROR")
    (line,) = (each for each in caplog.messages if "differ" in each)
    assert "exchanges/%2F/e" in line


@pytest.fixture
def asked(cluster: EtcdCluster, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What delegates are asked to declare; that of a is, since the other nodes have a queue each."""
    asked: list[str] = []
    handle_call = Delegate.handle_call

    def noted(self: Delegate, request: Any, frm: Any) -> Any:
        if isinstance(request, DelegatedDeclare):
            asked.append(request.name)
        return handle_call(self, request, frm)

    monkeypatch.setattr(Delegate, "handle_call", noted)
    for name in "bc":
        cluster[name].session().ask(1, m.QueueDeclare(f"of {name}"))
    cluster.settle()
    return asked


@pytest.mark.parametrize("is_there", [True, False])
def test_a_queue_that_another_node_declares_is_known_when_that_node_answers(
    cluster: EtcdCluster, asked: list[str], is_there: bool
) -> None:
    other, client = cluster["a"].session(), cluster["b"].session()
    cluster.stores["b"].client.faults.is_silent = True
    method = m.QueueDeclare("q", arguments=LOCATOR)
    if is_there:
        send(other, method)
        cluster.clock.jump(0.03)
    send(client, method)
    cluster.clock.jump(LATE_S)
    cluster.stores["b"].client.faults.is_silent = False
    cluster.until(lambda: bool(client.wire.out), ANSWERED_S, STEP_S)

    assert client.take() == [m.QueueDeclareOk("q", 0, 0)]
    assert asked == ["q"]


def test_a_queue_that_is_deleted_before_its_node_answers_is_declared_once(
    cluster: EtcdCluster, asked: list[str]
) -> None:
    other, client = cluster["a"].session(), cluster["b"].session()
    cluster.stores["b"].client.faults.is_silent = True
    send(client, m.QueueDeclare("q", arguments=LOCATOR))
    cluster.clock.jump(0.03)
    send(other, m.QueueDelete("q"))
    cluster.clock.jump(LATE_S)
    cluster.stores["b"].client.faults.is_silent = False
    cluster.until(lambda: bool(client.wire.out and other.wire.out), ANSWERED_S, STEP_S)
    cluster.settle()

    assert client.take() == [m.QueueDeclareOk("q", 0, 0)]
    assert other.take() == [m.QueueDeleteOk(0)]
    assert asked == ["q"]
    assert all("q" not in cluster[name].queues for name in "abc")


def test_a_queue_that_differs_from_the_one_on_its_node_is_refused_by_that_node(
    cluster: EtcdCluster, asked: list[str]
) -> None:
    other, client = cluster["a"].session(), cluster["b"].session()
    cluster.stores["b"].client.faults.is_silent = True
    send(other, m.QueueDeclare("q", arguments=LOCATOR))
    cluster.clock.jump(0.03)
    send(client, m.QueueDeclare("q", arguments=LOCATOR | {"x-max-length": ("I", 1)}))
    cluster.clock.jump(LATE_S)
    cluster.stores["b"].client.faults.is_silent = False
    cluster.until(lambda: bool(client.wire.out), ANSWERED_S, STEP_S)

    (refused,) = client.take()
    assert (refused.reply_code, refused.class_id, refused.method_id) == (406, 50, 10)
    assert "inequivalent arg 'x-max-length' for queue 'q' in vhost '/'" in refused.reply_text
    assert asked == ["q"]


def test_a_queue_that_the_broker_names_is_declared_once_on_another_node(
    cluster: EtcdCluster,
) -> None:
    for name in "bc":
        cluster[name].session().ask(1, m.QueueDeclare(f"of {name}"))
    client = cluster["b"].session()

    told = client.ask(1, m.QueueDeclare("", arguments=LOCATOR))

    assert set(cluster["a"].queues) == {"of b", "of c", told.queue}
    assert not cluster["a"].queues[told.queue].is_remote


@pytest.mark.parametrize("method", [EXCHANGE, m.QueueDeclare("q", durable=True)])
def test_what_a_client_declares_that_leaves_meanwhile_is_told_to_others_when_all_nodes_have_it(
    cluster: EtcdCluster, method: m.Method
) -> None:
    maker, other = cluster["a"].session(), cluster["a"].session()
    cluster.stores["c"].client.faults.is_silent = True
    send(maker, method)
    cluster.clock.jump(0)
    maker.wire.state = "aborted"
    maker.protocol.connection_lost(None)
    cluster.clock.jump(0)
    send(other, method)
    cluster.clock.jump(LATE_S)
    assert not other.wire.out
    cluster.stores["c"].client.faults.is_silent = False
    cluster.until(lambda: bool(other.wire.out), ANSWERED_S, STEP_S)
    topology = cluster["c"].node.vhosts["/"].topology
    assert "e" in topology.exchanges or "q" in topology.queues
