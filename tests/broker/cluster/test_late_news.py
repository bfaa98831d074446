"""What a node is told of another's queues over the link, after it has seen their rows."""

from __future__ import annotations

import pytest

from leveret.amqp import methods as m
from rigs.broker_rig import durable
from rigs.cluster.etcd_cluster import EtcdCluster


@pytest.mark.parametrize("seed", range(6))
def test_a_queue_is_known_that_was_declared_before_the_end_of_an_earlier_one_was_told(
    seed: int,
) -> None:
    cluster = EtcdCluster("ab", seed)
    cluster.network.delay_s = 0.2
    client = cluster["b"].session()
    client.ask(1, durable("q"))
    client.ask(1, m.QueueBind("q", "amq.direct", "k"))
    cluster.clock.jump(2.0)
    cluster.settle_s = 0.0
    client.send(1, m.QueueDelete("q"), durable("q"), m.QueueBind("q", "amq.direct", "new"))
    cluster.clock.jump(3.0)

    other = cluster["a"].session()
    cluster.clock.jump(1.0)
    other.publish(1, "new", b"1", exchange="amq.direct")
    cluster.clock.jump(1.0)
    cluster.settle_s = 2.0
    assert other.ask(1, durable("q", passive=True)) == m.QueueDeclareOk("q", 1, 0)


def test_an_exchange_stays_that_was_declared_again_while_a_node_heard_of_nothing() -> None:
    cluster = EtcdCluster("abc")
    client = cluster["b"].session()
    declare = m.ExchangeDeclare("e", "direct", durable=True)
    assert type(client.ask(1, declare)) is m.ExchangeDeclareOk
    cluster.stores["c"].client.faults.is_cut = True
    client.send(1, m.ExchangeDelete("e"))
    cluster.clock.jump(15.0)
    client.send(1, declare)
    cluster.clock.jump(1.0)
    cluster.etcd.compact()
    cluster.stores["c"].client.faults.is_cut = False
    cluster.clock.jump(15.0)

    for name in "abc":
        look = m.ExchangeDeclare("e", passive=True)
        assert type(cluster[name].session().ask(1, look)) is m.ExchangeDeclareOk, name
