"""Nodes that change the same rows at the same moment, and rows of settings, over a simulated etcd.

Tests: broker/cluster/cluster_rows.py
"""

from __future__ import annotations

from typing import Any

import pytest

from leveret.amqp import methods as m
from leveret.broker.cluster.cluster_rows import LOST_CLUSTER
from leveret.broker.vhost.states import State
from leveret.metadata.tables import (
    ParameterRow,
    PermissionRow,
    PolicyRow,
    Row,
    UserRow,
    VhostRow,
)
from leveret.routing.delayed import queue_of
from rigs.broker_rig import Client
from rigs.cluster.etcd_cluster import EtcdCluster


@pytest.fixture
def cluster() -> EtcdCluster:
    return EtcdCluster("ab")


def send_at_once(cluster: EtcdCluster, *asked: tuple[Client, m.Method]) -> list[Any]:
    """Send methods of clients of different nodes at the same moment; return the last answer of each."""
    for client, method in asked:
        client.protocol.data_received(m.method_frame(1, m.encode(method)))
    for _ in range(500):
        cluster.clock.jump(0.01)
    return [client.take()[-1] for client, _ in asked]


def cluster_nodes(cluster: EtcdCluster, name: str) -> list[str]:
    found = []
    for member in cluster.members.values():
        entry = member.queues[name]
        found.append(entry.home.name if entry.is_remote else member.name)
    return found


@pytest.mark.parametrize("durable", [True, False])
def test_two_nodes_that_declare_an_equal_queue_at_once_have_one_queue(
    cluster: EtcdCluster, durable: bool
) -> None:
    a, b = cluster["a"].session(), cluster["b"].session()
    method = m.QueueDeclare("q", durable=durable)
    assert send_at_once(cluster, (a, method), (b, method)) == [m.QueueDeclareOk("q", 0, 0)] * 2
    first, second = cluster_nodes(cluster, "q")
    assert first == second
    a.publish(1, "q", b"from a")
    b.publish(1, "q", b"from b")
    cluster.settle()
    assert b.ask(1, m.QueueDeclare("q", passive=True)).message_count == 2


def test_two_nodes_that_declare_different_queues_at_once_answer_ok_and_406(
    cluster: EtcdCluster,
) -> None:
    a, b = cluster["a"].session(), cluster["b"].session()
    answers = send_at_once(
        cluster, (a, m.QueueDeclare("q", durable=True)), (b, m.QueueDeclare("q"))
    )
    refused = [each for each in answers if isinstance(each, m.ChannelClose)]
    assert len(refused) == 1
    assert refused[0].reply_code == 406
    first, second = cluster_nodes(cluster, "q")
    assert first == second


def test_after_a_declaration_was_taken_back_the_other_queue_is_deleted_by_its_name_only_once(
    cluster: EtcdCluster,
) -> None:
    a, b = cluster["a"].session(), cluster["b"].session()
    send_at_once(cluster, (a, m.QueueDeclare("q")), (b, m.QueueDeclare("q")))
    cluster.clock.jump(20)
    rows = [row.name for store in cluster.stores.values() for row in store.load().queues]
    assert rows == ["q", "q"]
    assert type(a.ask(1, m.QueueDelete("q"))) is m.QueueDeleteOk
    cluster.settle()
    assert [list(member.queues) for member in cluster.members.values()] == [[], []]


@pytest.mark.parametrize("kind", ["fanout", "direct"])
def test_two_nodes_that_declare_an_exchange_at_once_have_one(
    cluster: EtcdCluster, kind: str
) -> None:
    a, b = cluster["a"].session(), cluster["b"].session()
    answers = send_at_once(
        cluster, (a, m.ExchangeDeclare("e", "fanout")), (b, m.ExchangeDeclare("e", kind))
    )
    names = sorted(type(each).__name__ for each in answers)
    expected = {
        "fanout": ["ExchangeDeclareOk"] * 2,
        "direct": ["ChannelClose", "ExchangeDeclareOk"],
    }
    assert names == expected[kind]
    found = {
        member.node.vhosts["/"].topology.exchanges["e"].type for member in cluster.members.values()
    }
    assert len(found) == 1


@pytest.mark.parametrize("pause_s", [0, 0.001, 0.002, 0.003, 0.004, 0.005, 0.01])
@pytest.mark.parametrize("kind", ["x-delayed-message", "fanout"])
def test_a_delayed_exchange_takes_no_other_exchange_of_its_name_away(
    cluster: EtcdCluster, kind: str, pause_s: float
) -> None:
    a, b = cluster["a"].session(), cluster["b"].session()
    of_direct = {"x-delayed-type": ("S", b"direct")}
    delayed = m.ExchangeDeclare("x", "x-delayed-message", durable=True, arguments=of_direct)
    a.protocol.data_received(m.method_frame(1, m.encode(delayed)))
    cluster.clock.jump(pause_s)
    other = m.ExchangeDeclare("x", kind, durable=kind != "fanout", arguments=of_direct)
    [answer] = send_at_once(cluster, (b, other))
    answers = [type(a.take()[-1]), type(answer)]

    refused = [m.ChannelClose, m.ExchangeDeclareOk]
    found = {
        member.node.vhosts["/"].topology.exchanges["x"].type for member in cluster.members.values()
    }
    assert len(found) == 1
    rows = [row.type for store in cluster.stores.values() for row in store.load().exchanges]
    assert rows == [*found] * 2
    if kind == "fanout":
        assert sorted(answers, key=str) == refused
        assert (answers[0] is m.ExchangeDeclareOk) == (found == {"x-delayed-message"})
    else:
        assert answers == [m.ExchangeDeclareOk] * 2
        first, second = cluster_nodes(cluster, queue_of("x"))
        assert first == second


def test_who_was_told_that_a_queue_is_there_may_publish_to_it_on_any_node(
    cluster: EtcdCluster,
) -> None:
    a, b = cluster["a"].session(), cluster["b"].session()
    b.send(1, m.ConfirmSelect())
    b.take()
    for number in range(20):
        name = f"q{number}"
        a.protocol.data_received(m.method_frame(1, m.encode(m.QueueDeclare(name))))
        while not a.wire.out:
            cluster.clock.jump(0.0005)
        a.take()
        b.publish(1, name, b"1", mandatory=True)
        assert b.take() == [m.BasicAck(number + 1, False)]


def test_what_was_deleted_does_not_come_back_with_the_news_of_its_own_row(
    cluster: EtcdCluster,
) -> None:
    declares, deletes = cluster["a"].session(), cluster["a"].session()
    exchanges = cluster["a"].node.vhosts["/"].topology.exchanges
    declare, delete = m.ExchangeDeclare("e", "fanout"), m.ExchangeDelete("e")
    declares.protocol.data_received(m.method_frame(1, m.encode(declare)))
    cluster.clock.jump(0)
    assert "e" in exchanges
    deletes.protocol.data_received(m.method_frame(1, m.encode(delete)))
    for _ in range(400):
        cluster.clock.jump(0.0005)
        assert "e" not in exchanges
    assert declares.take() == [m.ExchangeDeclareOk()]
    assert deletes.take() == [m.ExchangeDeleteOk()]
    assert cluster.stores["b"].load().exchanges == []


def test_two_nodes_that_bind_alike_at_once_are_both_answered(cluster: EtcdCluster) -> None:
    a, b = cluster["a"].session(), cluster["b"].session()
    assert type(a.ask(1, m.QueueDeclare("q", durable=True))) is m.QueueDeclareOk
    cluster.settle()
    method = m.QueueBind("q", "amq.fanout", "key")
    assert send_at_once(cluster, (a, method), (b, method)) == [m.QueueBindOk()] * 2
    for member in cluster.members.values():
        assert len(member.node.vhosts["/"].topology.bindings()) == 1
    b.publish(1, "key", b"once", exchange="amq.fanout")
    cluster.settle()
    assert a.ask(1, m.QueueDeclare("q", passive=True)).message_count == 1


def test_a_transient_queue_of_a_lost_node_is_declared_again_and_outlives_the_lease(
    cluster: EtcdCluster,
) -> None:
    a, b = cluster["a"].session(), cluster["b"].session()
    assert type(a.ask(1, m.QueueDeclare("q"))) is m.QueueDeclareOk
    assert type(a.ask(1, m.QueueBind("q", "amq.fanout"))) is m.QueueBindOk
    cluster.settle()
    cluster.stores["a"].session.abort()
    cluster["a"].crash()
    cluster.clock.jump(1.5)
    assert send_at_once(cluster, (b, m.QueueDeclare("q"))) == [m.QueueDeclareOk("q", 0, 0)]
    cluster.clock.jump(30)
    assert not cluster["b"].queues["q"].is_remote
    rows = cluster.stores["b"].load()
    assert [(row.name, row.node) for row in rows.queues] == [("q", "b")]
    assert rows.bindings == []
    assert cluster["b"].node.vhosts["/"].topology.bindings() == []


def write(cluster: EtcdCluster, name: str, puts: list[Row], deletes: list[Row]) -> None:
    errors: list[Any] = []
    cluster.stores[name].write(puts, deletes, errors.append)
    cluster.until(lambda: bool(errors))
    assert errors == [None]
    cluster.settle()


def test_settings_of_another_node_take_effect_on_open_connections(cluster: EtcdCluster) -> None:
    node = cluster["b"].node
    write(cluster, "a", [UserRow("u", b"x"), PermissionRow("u", "/", ".*", ".*", ".*")], [])
    user = node.access.users["u"]
    node.access.check_queue(user, "/", "q", "configure")
    write(cluster, "a", [PermissionRow("u", "/", "^$", "^$", "^$")], [])
    with pytest.raises(Exception, match="access to queue 'q' in vhost '/' refused"):
        node.access.check_queue(user, "/", "q", "configure")
    client = cluster["b"].session()
    write(cluster, "a", [], [UserRow("guest")])
    closes = [each for each in client.take() if isinstance(each, m.ConnectionClose)]
    assert [(each.reply_code, each.reply_text) for each in closes] == [
        (320, "CONNECTION_FORCED - user 'guest' is deleted")
    ]
    assert not [row for row in node.access.permissions.values() if row.user == "guest"]


def test_policies_and_limits_of_another_node_take_effect(cluster: EtcdCluster) -> None:
    client = cluster["b"].session()
    client.ask(1, m.QueueDeclare("q", durable=True))
    policy = PolicyRow("/", "short", ".*", {"max-length": 1})
    write(
        cluster, "a", [policy, ParameterRow("/", "vhost-limits", "limits", {"max-queues": 1})], []
    )
    entry = cluster["b"].queues["q"]
    assert entry.settings.max_length == 1
    client.publish(1, "q", b"1", b"2")
    cluster.settle()
    assert client.ask(1, m.QueueDeclare("q", passive=True)).message_count == 1
    refused = client.ask(1, m.QueueDeclare("other"))
    assert refused.reply_code == 406
    write(cluster, "a", [], [policy, ParameterRow("/", "vhost-limits", "limits", {})])
    assert entry.settings.max_length is None
    assert cluster["b"].node.vhosts["/"].limits == {}


def test_a_vhost_of_another_node_is_started_used_and_deleted(cluster: EtcdCluster) -> None:
    write(cluster, "a", [VhostRow("v"), PermissionRow("guest", "v", ".*", ".*", ".*")], [])
    assert {each.node.vhosts["v"].state.now for each in cluster.members.values()} == {State.RUNNING}
    client = cluster["b"].client()
    client.log_in(vhost="v")
    client.send(1, m.ChannelOpen())
    client.take()
    assert client.ask(1, m.QueueDeclare("q", durable=True)) == m.QueueDeclareOk("q", 0, 0)
    cluster.settle()
    assert "q" in cluster["a"].node.vhosts["v"].topology.queues
    write(cluster, "a", [], [VhostRow("v")])
    assert "v" not in cluster["b"].node.vhosts
    assert [type(each) for each in client.take()] == [m.ConnectionClose]


def test_after_a_gap_the_difference_is_applied(cluster: EtcdCluster) -> None:
    a = cluster["a"].session()
    a.ask(1, m.QueueDeclare("gone", durable=True))
    cluster.settle()
    cluster.stores["b"].client.faults.is_cut = True
    a.send(1, m.QueueDelete("gone"))
    cluster.clock.jump(15)
    a.send(1, m.QueueDeclare("new", durable=True), m.QueueBind("new", "amq.fanout"))
    cluster.clock.jump(1)
    assert a.take() == [m.QueueDeleteOk(0), m.QueueDeclareOk("new", 0, 0), m.QueueBindOk()]
    assert list(cluster["b"].queues) == ["gone"]  # of what b knows; it serves nobody meanwhile
    cluster.etcd.compact()
    cluster.stores["b"].client.faults.is_cut = False
    cluster.clock.jump(5)
    assert list(cluster["b"].queues) == ["new"]
    assert len(cluster["b"].node.vhosts["/"].topology.bindings()) == 1
    a.publish(1, "", b"1", exchange="amq.fanout")
    b = cluster["b"].session()
    assert b.ask(1, m.QueueDeclare("new", passive=True)) == m.QueueDeclareOk("new", 1, 0)


def test_a_node_without_etcd_closes_its_connections_refuses_new_ones_and_comes_back(
    cluster: EtcdCluster,
) -> None:
    client, other = cluster["a"].session(), cluster["b"].session()
    assert client.ask(1, m.QueueDeclare("durable", durable=True)).queue == "durable"
    assert client.ask(1, m.QueueDeclare("transient")).queue == "transient"
    client.send(1, m.ConfirmSelect())
    assert client.take() == [m.ConfirmSelectOk()]
    cluster.stores["a"].client.faults.is_cut = True
    cluster.clock.jump(1.0)
    client.publish(1, "durable", b"within the lease")
    assert client.take() == [m.BasicAck(1, False)]
    cluster.clock.jump(1.5)  # valid_s is over
    (close,) = client.take()
    assert close == m.ConnectionClose(320, f"CONNECTION_FORCED - {LOST_CLUSTER}", 0, 0)
    refused = cluster["a"].client()
    refused.log_in()
    (close,) = [each for each in refused.take() if isinstance(each, m.ConnectionClose)]
    assert (close.reply_code, close.reply_text) == (320, f"CONNECTION_FORCED - {LOST_CLUSTER}")
    assert other.is_up
    cluster.clock.jump(20)
    cluster.stores["a"].client.faults.is_cut = False
    cluster.clock.jump(5)
    again = cluster["a"].session()
    assert again.ask(1, m.QueueDeclare("durable", passive=True)).message_count == 1
    assert again.ask(1, m.QueueDeclare("transient", passive=True)).reply_code == 404
    cluster.settle()
    assert list(cluster["b"].queues) == ["durable"]


@pytest.mark.parametrize(
    "method", [m.ExchangeDeclare("e", "fanout"), m.QueueBind("q", "amq.direct", "k")]
)
def test_what_is_refused_after_its_client_has_gone_is_not_left_in_memory(
    cluster: EtcdCluster, method: m.Method
) -> None:
    client = cluster["b"].session()
    assert type(client.ask(1, m.QueueDeclare("q", durable=True))) is m.QueueDeclareOk
    cluster.clock.jump(1)
    topology = cluster["b"].node.vhosts["/"].topology
    bound, exchanges = len(topology.exchanges["amq.direct"].bindings), set(topology.exchanges)
    faults = cluster.stores["b"].client.faults
    faults.is_cut = True
    client.protocol.data_received(m.method_frame(1, m.encode(method)))
    cluster.clock.jump(0)
    assert ("e" in topology.exchanges) == isinstance(method, m.ExchangeDeclare)
    cluster.clock.jump(15)
    faults.is_cut = False
    cluster.clock.jump(30)
    assert len(topology.exchanges["amq.direct"].bindings) == bound
    assert set(topology.exchanges) == exchanges
