"""Limits of users and vhosts are those of the whole cluster.

Tests: broker/connection/open_counts.py
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from leveret.amqp import methods as m
from leveret.metadata.tables import ParameterRow, Row, UserRow
from rigs.broker_rig import Client
from rigs.cluster.etcd_cluster import EtcdCluster

STEP_S = 0.0002  # of virtual time; a message to another node takes longer


@pytest.fixture
def cluster() -> EtcdCluster:
    return EtcdCluster("abc")


def write(cluster: EtcdCluster, row: Row) -> None:
    """Have a third node write a row, which the other nodes apply."""
    answers: list[object] = []
    cluster.stores["c"].write([row], [], answers.append)
    cluster.until(lambda: bool(answers))
    assert answers == [None]


def limit_vhost(cluster: EtcdCluster) -> None:
    write(cluster, ParameterRow("/", "vhost-limits", "limits", {"max-connections": 2}))


def limit_user(cluster: EtcdCluster) -> None:
    guest = next(row for row in cluster.stores["c"].load().rows() if isinstance(row, UserRow))
    guest.limits = {"max-connections": 2, "max-channels": 3}
    write(cluster, guest)


def refusal(client: Client) -> str:
    client.log_in()
    (close,) = [each for each in client.take() if isinstance(each, m.ConnectionClose)]
    assert close.reply_code == 530
    return close.reply_text


@pytest.mark.parametrize("limit", [limit_vhost, limit_user])
@pytest.mark.parametrize("is_limited_first", [True, False])
def test_connections_of_all_nodes_count(
    cluster: EtcdCluster, limit: Callable[[EtcdCluster], None], is_limited_first: bool
) -> None:
    if is_limited_first:
        limit(cluster)
    one, two = cluster["a"].session(), cluster["b"].session()
    if not is_limited_first:
        limit(cluster)
    cluster.settle()

    for name in "ab":
        assert "connection limit (2) is reached" in refusal(cluster[name].client())

    one.send(0, m.ConnectionClose(200))
    cluster.settle()
    cluster["b"].session()
    cluster.settle()
    assert "connection limit (2) is reached" in refusal(cluster["a"].client())
    assert two.is_up


def test_who_is_told_that_a_connection_is_open_or_closed_finds_it_counted(
    cluster: EtcdCluster,
) -> None:
    limit_vhost(cluster)
    cluster["a"].session()
    first = cluster["b"].client()
    last = cluster["a"].client()
    first.log_in()
    cluster.until(lambda: m.ConnectionOpenOk in map(type, first.take()), step_s=STEP_S)
    assert "(2) is reached" in refusal(cluster["a"].client())
    first.protocol.data_received(m.method_frame(0, m.encode(m.ConnectionClose(200))))
    cluster.until(lambda: m.ConnectionCloseOk in map(type, first.take()), step_s=STEP_S)

    last.log_in()
    cluster.settle()

    assert m.ConnectionOpenOk in map(type, last.take())


def test_channels_of_all_nodes_count(cluster: EtcdCluster) -> None:
    limit_user(cluster)
    one, two = cluster["a"].session(channels=2), cluster["b"].session(channels=1)
    cluster.settle()
    one.ask(1, m.ChannelClose(200))
    cluster.settle()
    assert type(two.ask(2, m.ChannelOpen())) is m.ChannelOpenOk
    cluster.settle()

    assert "user limit of (3)" in one.ask(1, m.ChannelOpen()).reply_text


def test_who_is_told_that_a_channel_is_open_finds_it_counted(cluster: EtcdCluster) -> None:
    limit_user(cluster)
    one, two = cluster["a"].session(channels=2), cluster["b"].session(channels=0)
    two.protocol.data_received(m.method_frame(1, m.encode(m.ChannelOpen())))
    cluster.until(lambda: bool(two.wire.out), step_s=STEP_S)

    one.protocol.data_received(m.method_frame(3, m.encode(m.ChannelOpen())))
    cluster.settle()

    assert "user limit of (3)" in one.take()[-1].reply_text


def test_what_is_open_on_a_node_that_is_lost_counts_no_more(cluster: EtcdCluster) -> None:
    limit_vhost(cluster)
    cluster["a"].session()
    cluster["a"].session()
    cluster.settle()
    cluster["a"].crash()
    cluster.clock.jump(3)

    assert cluster["b"].session().is_up
