"""Publishing to queues of other nodes: confirms, returns, order, fan-out and flow control.

Tests: broker/channel/publishing/node_publish.py, broker/queue/calls.py
"""

from __future__ import annotations

from typing import Any

import pytest

from leveret.amqp import methods as m
from leveret.broker.remote.mail_between_nodes import NodePublish
from rigs.broker_rig import Client, durable, stored
from rigs.cluster.cluster_rig import Cluster


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def confirming(client: Client) -> Client:
    assert client.ask(1, m.ConfirmSelect()) == m.ConfirmSelectOk()
    return client


def ready(client: Client, name: str) -> int:
    count: int = client.ask(1, m.QueueDeclare(name, passive=True)).message_count
    return count


def sent_runs(cluster: Cluster, name: str) -> list[NodePublish]:
    """Record the runs that a node sends to others from now on."""
    runs: list[NodePublish] = []
    home = cluster[name].node.cluster_nodes
    assert home is not None
    runtime = cluster[name].runtime
    real = runtime.send

    def send(to: Any, message: Any, sender: Any = None) -> None:
        if type(message) is NodePublish:
            runs.append(message)
        real(to, message, sender)

    runtime.send = send  # type: ignore[method-assign]
    return runs


@pytest.mark.parametrize("is_durable", [True, False])
def test_messages_to_a_queue_of_another_node_are_stored_there_and_confirmed(
    cluster: Cluster, is_durable: bool
) -> None:
    there, here = cluster["a"].session(), confirming(cluster["b"].session())
    there.ask(1, m.QueueDeclare("q", durable=is_durable))
    here.publish(1, "q", b"1", b"2", b"3", delivery_mode=2)
    assert here.take() == [m.BasicAck(3, True)]
    assert ready(there, "q") == ready(here, "q") == 3
    there.send(1, m.BasicConsume("q", "t", no_ack=True))
    assert there.bodies() == [b"1", b"2", b"3"]


def test_a_fan_out_to_queues_of_one_node_crosses_once(cluster: Cluster) -> None:
    there, here = cluster["a"].session(), confirming(cluster["b"].session())
    there.ask(1, m.ExchangeDeclare("x", "fanout", durable=True))
    for number in range(10):
        there.ask(1, durable(f"q{number}"))
        there.ask(1, m.QueueBind(f"q{number}", "x"))
    here.ask(1, durable("own"))
    here.ask(1, m.QueueBind("own", "x"))
    runs = sent_runs(cluster, "b")
    here.publish(1, "", b"1", b"2", exchange="x")
    assert [(len(run.queues), len(run.messages)) for run in runs] == [(10, 2)]
    assert here.take() == [m.BasicAck(2, True)]
    assert [ready(here, f"q{number}") for number in range(10)] == [2] * 10
    assert ready(here, "own") == 2


def test_queues_of_three_nodes_get_one_run_each() -> None:
    cluster = Cluster("abc")
    clients = {name: cluster[name].session() for name in "abc"}
    clients["a"].ask(1, m.ExchangeDeclare("x", "fanout", durable=True))
    for name, client in clients.items():
        for number in range(2):
            client.ask(1, durable(f"{name}{number}"))
            client.ask(1, m.QueueBind(f"{name}{number}", "x"))
    runs = sent_runs(cluster, "b")
    confirming(clients["b"]).publish(1, "", b"1", exchange="x")
    assert [len(run.queues) for run in runs] == [2, 2]
    assert clients["b"].take() == [m.BasicAck(1, False)]
    counts = [ready(clients["c"], f"{name}{number}") for name in "abc" for number in range(2)]
    assert counts == [1] * 6


def test_a_mandatory_message_without_a_queue_is_returned_as_on_one_node(cluster: Cluster) -> None:
    here = confirming(cluster["b"].session())
    here.publish(1, "nowhere", b"1", mandatory=True)
    assert [type(each) for each in here.take()] == [m.BasicReturn, bytes, m.BasicAck]


def test_what_is_published_is_found_by_the_call_behind_it(cluster: Cluster) -> None:
    cluster["a"].session().ask(1, durable("q"))
    here = cluster["b"].session()
    publish = here.contents(1, *[("", "q", bytes(200_000), {}) for _ in range(20)])
    passive = m.QueueDeclare("q", passive=True)
    here.feed(publish + m.method_frame(1, m.encode(passive)))
    assert here.take() == [m.QueueDeclareOk("q", 20, 0)]


def test_a_transaction_spans_nodes(cluster: Cluster) -> None:
    there, here = cluster["a"].session(), cluster["b"].session()
    there.ask(1, durable("q"))
    here.ask(1, durable("own"))
    here.ask(1, m.TxSelect())
    here.publish(1, "q", b"1", b"2")
    here.publish(1, "own", b"3")
    assert here.take() == []
    assert ready(there, "q") == 0
    assert here.ask(1, m.TxCommit()) == m.TxCommitOk()
    assert (ready(there, "q"), ready(there, "own")) == (2, 1)


def test_messages_that_a_deleted_queue_never_got_are_nacked(cluster: Cluster) -> None:
    there, here = cluster["a"].session(), confirming(cluster["b"].session())
    there.ask(1, durable("q"))
    cluster.settle_s = 0.0
    here.publish(1, "q", b"1")
    there.send(1, m.QueueDelete("q"))
    cluster.settle_s = 0.5
    cluster.settle()
    assert here.take() == [m.BasicNack(1, False, True)]


def test_a_publisher_is_not_read_while_a_queue_elsewhere_does_not_take_its_messages(
    cluster: Cluster,
) -> None:
    cluster["a"].session().ask(1, durable("q"))
    here = cluster["b"].session()
    cluster.network.silence("a", "b")
    cluster.settle_s = 0.0
    for _ in range(12):
        if here.wire.is_reading:
            here.publish(1, "q", *[bytes(100_000)] * 10)
    assert not here.wire.is_reading
    cluster.network.heal()
    cluster.settle_s = 0.5
    cluster.settle()
    assert here.wire.is_reading
    assert ready(here, "q") in range(80, 121)


def test_messages_with_an_expiration_expire_elsewhere(cluster: Cluster) -> None:
    there, here = cluster["a"].session(), cluster["b"].session()
    there.ask(1, durable("q"))
    here.publish(1, "q", b"1", expiration="5000")
    assert ready(there, "q") == 1
    cluster.clock.jump(6.0)
    assert ready(there, "q") == 0


def test_dead_letters_go_to_a_queue_of_another_node(cluster: Cluster) -> None:
    there, here = cluster["a"].session(), cluster["b"].session()
    there.ask(1, durable("dead"))
    arguments = {
        "x-dead-letter-exchange": ("S", b""),
        "x-dead-letter-routing-key": ("S", b"dead"),
        "x-message-ttl": ("l", 100),
    }
    here.ask(1, durable("q", arguments=arguments))
    here.publish(1, "q", b"1", b"2")
    cluster.clock.jump(1.0)
    assert (ready(here, "q"), ready(here, "dead")) == (0, 2)


def test_a_run_that_is_too_long_for_one_mail_goes_message_by_message(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leveret.broker.channel.publishing.node_publish.MAIL_BYTES", 1_000)
    cluster["a"].session().ask(1, durable("q"))
    here = confirming(cluster["b"].session())
    runs = sent_runs(cluster, "b")
    here.publish(1, "q", *[bytes([n]) * 400 for n in range(4)], expiration="60000")
    assert [len(run.messages) for run in runs] == [1, 1, 1, 1]
    assert here.take() == [m.BasicAck(number) for number in range(1, 5)]
    here.send(1, m.BasicConsume("q", "t", no_ack=True))
    assert here.bodies() == [bytes([n]) * 400 for n in range(4)]


def test_publishers_wait_for_a_link_that_does_not_take_what_is_sent(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leveret.broker.registry.cluster_nodes.LAGGING_BYTES", 10_000)
    there, here = cluster["a"].session(), cluster["b"].session()
    there.ask(1, durable("q"))
    cluster.network.bytes_per_s = 200_000
    cluster.settle_s = 0.0
    here.publish(1, "q", bytes(300_000))
    assert not here.wire.is_reading
    cluster.settle_s = 3.0
    cluster.settle()
    assert here.wire.is_reading
    assert ready(here, "q") == 1


def test_a_name_is_used_again_while_its_many_bindings_are_being_dropped(cluster: Cluster) -> None:
    there, here = cluster["a"].session(), confirming(cluster["b"].session())
    there.ask(1, m.QueueDeclare("q"))
    keys = [f"k{number}" for number in range(1_500)]
    there.send(1, *[m.QueueBind("q", "amq.direct", key, nowait=True) for key in keys])
    cluster.settle()
    assert len(cluster["b"].node.vhosts["/"].topology.bindings()) == 1_500
    there.send(1, m.QueueDelete("q"), m.QueueDeclare("q"), m.QueueBind("q", "amq.direct", "k"))
    assert len(there.take()) == 3
    cluster.settle()
    assert [each.key for each in cluster["b"].node.vhosts["/"].topology.bindings()] == [b"k"]
    for name in "ab":
        assert {"queue q", "amq.direct->q"} <= stored(cluster[name].store)
    here.publish(1, "k", b"1", exchange="amq.direct")
    assert here.take() == [m.BasicAck(1, False)]
    assert ready(there, "q") == 1


def numbers(seq: int, epoch: int = 0) -> dict[str, Any]:
    headers = {"x-producer-id": ("S", b"p"), "x-producer-seq": ("l", seq)}
    return {"headers": {**headers, "x-producer-epoch": ("l", epoch)}}


def test_duplicates_of_a_producer_are_dropped_by_queues_of_other_nodes(cluster: Cluster) -> None:
    there, here = cluster["a"].session(), confirming(cluster["b"].session())
    there.ask(1, m.ExchangeDeclare("x", "fanout", durable=True))
    for name in ("q1", "q2"):
        there.ask(1, durable(name))
        there.ask(1, m.QueueBind(name, "x"))
    here.publish(1, "", b"1", exchange="x", **numbers(1))
    here.publish(1, "", b"1", exchange="x", **numbers(1))
    here.publish(1, "", b"2", exchange="x", **numbers(2))
    assert here.take() == [m.BasicAck(number) for number in (1, 2, 3)]
    assert (ready(there, "q1"), ready(there, "q2")) == (2, 2)
    there.publish(1, "q1", b"3", **numbers(1, epoch=1))
    here.publish(1, "q1", b"4", **numbers(3))
    closed = here.take()[-1]
    assert (closed.reply_code, "lower than 1" in closed.reply_text) == (406, True)


def test_messages_with_blind_copies_reach_queues_of_other_nodes(cluster: Cluster) -> None:
    there, here = cluster["a"].session(), cluster["b"].session()
    for name in ("q1", "q2", "q3"):
        there.ask(1, durable(name))
    copies = {"CC": ("A", [("S", b"q2")]), "BCC": ("A", [("S", b"q3")])}
    here.publish(1, "q1", b"1", headers=copies)
    assert [ready(there, name) for name in ("q1", "q2", "q3")] == [1, 1, 1]


def test_delayed_messages_wait_on_the_node_of_their_exchange_and_go_on_from_there(
    cluster: Cluster,
) -> None:
    there, here = cluster["a"].session(), cluster["b"].session()
    kind = {"x-delayed-type": ("S", b"direct")}
    there.ask(1, m.ExchangeDeclare("later", "x-delayed-message", durable=True, arguments=kind))
    here.ask(1, durable("q"))
    here.ask(1, m.QueueBind("q", "later", "k"))
    here.publish(1, "k", b"1", exchange="later", headers={"x-delay": ("l", 5_000)})
    cluster.clock.jump(3.0)
    assert ready(here, "q") == 0
    cluster.clock.jump(3.0)
    assert ready(here, "q") == 1


def test_a_vhost_with_local_queues_alone_looks_for_no_others(cluster: Cluster) -> None:
    here = cluster["b"].session()
    here.ask(1, durable("own"))
    assert cluster["b"].node.vhosts["/"].features.remote_queues == 0
    cluster["a"].session().ask(1, durable("q"))
    assert cluster["b"].node.vhosts["/"].features.remote_queues == 1
    here.ask(1, m.QueueDelete("q"))
    assert cluster["b"].node.vhosts["/"].features.remote_queues == 0
