"""Who is told that something is there, or gone, finds it so on any node, at that very moment."""

from __future__ import annotations

from typing import Any

import pytest

from leveret.amqp import methods as m
from leveret.core.errors import StoreError
from leveret.metadata.interface import Then
from leveret.metadata.tables import QueueRow
from rigs.broker_rig import Client
from rigs.cluster.etcd_cluster import EtcdCluster

STEP_S = 0.0002  # of virtual time; a message to another node takes longer
ANSWERED_S = 5.0

QUEUE = m.QueueDeclare("q", passive=True)
EXCHANGE = m.ExchangeDeclare("e", passive=True)
TEMPORARY = m.QueueDeclare("q", auto_delete=True)
CONSUME = m.BasicConsume("q", "c")
GONE = {"a": 404, "b": 404, "c": 404}


@pytest.fixture
def cluster() -> EtcdCluster:
    return EtcdCluster("abc")


def send(client: Client, channel: int, method: m.Method) -> None:
    client.protocol.data_received(m.method_frame(channel, m.encode(method)))


def answer(cluster: EtcdCluster, client: Client, method: m.Method, channel: int = 1) -> Any:
    """Send a method; return its answer at the moment at which it comes."""
    send(client, channel, method)
    cluster.until(lambda: bool(client.wire.out), ANSWERED_S, STEP_S)
    return client.take()[0]


def codes(clients: dict[str, Client], look: m.Method) -> dict[str, int]:
    """Return with which code each node refuses a method at this moment."""
    found = {}
    for name, client in clients.items():
        send(client, 2, m.ChannelOpen())
        send(client, 2, look)
        client.rig.clock.jump(0)
        last = client.take()[-1]
        found[name] = last.reply_code if isinstance(last, m.ChannelClose) else 0
    return found


def close_channels(clients: dict[str, Client]) -> None:
    for client in clients.values():
        client.send(2, m.ChannelCloseOk())
        client.take()


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("by", ["a", "b"])
def test_a_deleted_queue_is_gone_on_all_nodes_when_delete_ok_comes(
    cluster: EtcdCluster, durable: bool, by: str
) -> None:
    witnesses = {name: cluster[name].session() for name in "abc"}
    asked = {name: cluster[name].session() for name in "ab"}
    for _ in range(5):
        answer(cluster, asked["a"], m.QueueDeclare("q", durable=durable))
        told = answer(cluster, asked[by], m.QueueDelete("q"))

        assert type(told) is m.QueueDeleteOk
        assert codes(witnesses, QUEUE) == GONE
        close_channels(witnesses)


@pytest.mark.parametrize("by", ["a", "b"])
def test_a_deletion_that_the_metadata_refuses_is_not_called_done(
    cluster: EtcdCluster, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, deleter = cluster["a"].session(), cluster[by].session()
    answer(cluster, owner, m.QueueDeclare("q", durable=True))

    def refuse(puts: object, deletes: object, then: Then) -> None:
        cluster.clock.call_later(0.0, then, StoreError("etcd does not answer"))

    monkeypatch.setattr(cluster["a"].node.metadata.store, "write", refuse)
    told = answer(cluster, deleter, m.QueueDelete("q"))

    assert (type(told), told.reply_code) == (m.ConnectionClose, 541)


@pytest.mark.parametrize("by", ["a", "b"])
@pytest.mark.parametrize(
    ("end", "channel", "ok"),
    [
        (m.BasicCancel("c"), 1, m.BasicCancelOk),
        (m.ChannelClose(200), 1, m.ChannelCloseOk),
        (m.ConnectionClose(200), 0, m.ConnectionCloseOk),
    ],
    ids=["cancelled", "channel", "connection"],
)
def test_an_auto_delete_queue_is_gone_on_all_nodes_when_the_end_of_its_last_consumer_is_answered(
    cluster: EtcdCluster, by: str, end: m.Method, channel: int, ok: type[m.Method]
) -> None:
    owner, consumer = cluster["a"].session(), cluster[by].session()
    witnesses = {name: cluster[name].session() for name in "abc"}
    answer(cluster, owner, TEMPORARY)
    answer(cluster, consumer, CONSUME)

    assert type(answer(cluster, consumer, end, channel)) is ok

    assert codes(witnesses, QUEUE) == GONE


@pytest.mark.parametrize("is_refused", [False, True])
def test_exclusive_queues_are_gone_on_all_nodes_when_the_end_of_their_connection_is_told(
    cluster: EtcdCluster, is_refused: bool
) -> None:
    owner = cluster["a"].session()
    witnesses = {name: cluster[name].session() for name in "abc"}
    for name in ("q", "q2", "q3"):
        answer(cluster, owner, m.QueueDeclare(name, exclusive=True))
    assert codes(witnesses, QUEUE) == {"a": 405, "b": 405, "c": 405}
    close_channels(witnesses)
    close = m.ConnectionOpen("/") if is_refused else m.ConnectionClose(200)

    told = answer(cluster, owner, close, 0)

    assert type(told) is (m.ConnectionClose if is_refused else m.ConnectionCloseOk)
    assert codes(witnesses, QUEUE) == GONE


@pytest.mark.parametrize("by", ["a", "b"])
def test_an_auto_delete_exchange_is_gone_on_all_nodes_when_the_end_of_its_last_binding_is_answered(
    cluster: EtcdCluster, by: str
) -> None:
    witnesses = {name: cluster[name].session() for name in "abc"}
    asked = {name: cluster[name].session() for name in "ab"}
    for ends in (m.QueueUnbind("q", "e", "k"), m.QueueDelete("q")):
        answer(cluster, asked["a"], m.ExchangeDeclare("e", "direct", auto_delete=True))
        answer(cluster, asked["a"], m.QueueDeclare("q"))
        answer(cluster, asked["a"], m.QueueBind("q", "e", "k"))

        answer(cluster, asked[by], ends)

        assert codes(witnesses, EXCHANGE) == GONE
        close_channels(witnesses)


def test_a_deleted_exchange_is_gone_on_all_nodes_when_delete_ok_comes(
    cluster: EtcdCluster,
) -> None:
    owner = cluster["a"].session()
    witnesses = {name: cluster[name].session() for name in "abc"}
    answer(cluster, owner, m.ExchangeDeclare("e", "direct"))

    answer(cluster, owner, m.ExchangeDelete("e"))

    assert codes(witnesses, EXCHANGE) == GONE


def test_a_client_that_leaves_while_etcd_is_away_is_not_kept_for_ever(
    cluster: EtcdCluster,
) -> None:
    owner = cluster["a"].session()
    answer(cluster, owner, m.QueueDeclare("q", exclusive=True))
    cluster.stores["a"].client.faults.is_cut = True
    cluster.clock.jump(0.5)

    send(owner, 0, m.ConnectionClose(200))
    cluster.clock.jump(15)

    assert type(owner.take()[-1]) is m.ConnectionCloseOk


def test_clients_of_a_node_that_loses_etcd_are_told_although_their_queues_cannot_be_deleted(
    cluster: EtcdCluster,
) -> None:
    owner = cluster["a"].session()
    answer(cluster, owner, m.QueueDeclare("q", exclusive=True))
    cluster.stores["a"].client.faults.is_cut = True

    cluster.clock.jump(3)

    assert owner.take()[-1].reply_code == 320


@pytest.mark.parametrize(
    ("made", "equal", "look"),
    [
        (m.QueueDeclare("q"), m.QueueDeclare("q"), QUEUE),
        (m.QueueDeclare("q"), QUEUE, QUEUE),
        (m.ExchangeDeclare("e", "direct"), m.ExchangeDeclare("e", "direct"), EXCHANGE),
        (m.ExchangeDeclare("e", "direct"), EXCHANGE, EXCHANGE),
    ],
)
def test_what_another_client_is_making_is_told_when_all_nodes_have_it(
    cluster: EtcdCluster, made: m.Method, equal: m.Method, look: Any
) -> None:
    maker, other = cluster["a"].session(), cluster["b"].session()
    witnesses = {name: cluster[name].session() for name in "abc"}
    cluster.stores["c"].client.faults.watch_delay_s = 0.3
    send(maker, 1, made)
    b = cluster["b"].node.vhosts["/"].topology
    cluster.until(lambda: "q" in b.queues or "e" in b.exchanges, ANSWERED_S, STEP_S)

    told = answer(cluster, other, equal)

    assert type(told) in (m.QueueDeclareOk, m.ExchangeDeclareOk)
    found = codes(witnesses, look)
    assert found == {"a": 0, "b": 0, "c": 0}


@pytest.mark.parametrize("durable", [True, False])
def test_a_queue_is_not_missing_while_its_row_is_there(cluster: EtcdCluster, durable: bool) -> None:
    owner, other = cluster["a"].session(), cluster["c"].session()
    answer(cluster, owner, m.QueueDeclare("q", durable=durable))
    send(owner, 1, m.QueueDelete("q"))
    queues = cluster["c"].node.vhosts["/"].topology.queues
    cluster.until(lambda: "q" not in queues, ANSWERED_S, STEP_S)

    assert type(answer(cluster, other, m.QueueDelete("q"))) is m.QueueDeleteOk
    assert cluster.stores["c"].find(QueueRow("/", "q")) is None


def limited(limit: int) -> m.QueueDeclare:
    return m.QueueDeclare("q", durable=True, arguments={"x-max-length": ("I", limit)})


def alternate(number: int) -> m.ExchangeDeclare:
    arguments = {"alternate-exchange": ("S", b"ae%d" % number)}
    return m.ExchangeDeclare("e", durable=True, arguments=arguments)


@pytest.mark.parametrize("declare", [limited, alternate])
@pytest.mark.parametrize("steps", range(0, 100, 4))
def test_a_refusal_tells_of_what_has_been_declared_not_of_what_is_overtaken(
    cluster: EtcdCluster, declare: Any, steps: int
) -> None:
    first, second, third, last = (cluster[name].session() for name in "abbc")
    send(first, 1, declare(1))
    send(second, 1, declare(2))
    cluster.clock.jump(steps * STEP_S)

    refusal = answer(cluster, third, declare(3)).reply_text
    cluster.clock.jump(ANSWERED_S)
    assert refusal == answer(cluster, last, declare(3)).reply_text


def test_a_queue_that_is_deleted_before_its_declaration_is_answered_is_declared_again(
    cluster: EtcdCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleter, declarer = cluster["a"].session(), cluster["b"].session()
    answer(cluster, declarer, m.QueueDeclare("other"))
    answer(cluster, cluster["c"].session(), m.QueueDeclare("another"))
    locator = {"x-queue-master-locator": ("S", b"min-masters")}
    send(declarer, 1, m.QueueDeclare("q", arguments=locator))
    queues = cluster["b"].queues
    while "q" not in queues or not queues["q"].is_running:
        cluster.clock.jump(STEP_S)
    due_s = cluster.network.due_s
    monkeypatch.setattr(cluster.network, "due_s", lambda: due_s() + 0.3)  # as a link that is busy
    assert type(answer(cluster, deleter, m.QueueDelete("q"))) is m.QueueDeleteOk
    assert not declarer.wire.out
    cluster.clock.jump(ANSWERED_S)

    assert declarer.take() == [m.QueueDeclareOk("q", 0, 0)]
