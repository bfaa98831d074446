"""A vhost that one node has made: a client of another node may come before it has been started there.

Tests: broker/cluster/other_settings.py
"""

from __future__ import annotations

from leveret.actors.runtime.ref import Ref
from leveret.amqp import methods as m
from leveret.broker.cluster.other_settings import SETTINGS_UPDATER, VhostAdded
from leveret.broker.vhost.states import Event
from leveret.metadata.tables import PermissionRow
from rigs.cluster.etcd_cluster import EtcdCluster


def test_a_client_waits_until_a_new_vhost_has_been_started() -> None:
    cluster = EtcdCluster("ab")
    b = cluster["b"]
    vhost = b.node.vhosts["v"] = b.node.new_vhost("v")
    b.node.access.put(PermissionRow("guest", "v", ".*", ".*", ".*"))
    client = b.client()
    client.log_in(vhost="v")
    assert m.ConnectionOpenOk not in map(type, client.take())
    cluster.clock.jump(2)
    assert client.take() == []

    updater = b.runtime.whereis(SETTINGS_UPDATER)
    assert isinstance(updater, Ref)
    b.runtime.send(updater, VhostAdded(vhost))
    cluster.clock.jump(1)

    assert [type(each) for each in client.take()] == [m.ConnectionOpenOk]


def test_a_vhost_that_was_stopped_is_down_at_once() -> None:
    b = EtcdCluster("ab")["b"]
    b.node.vhosts["/"].state.enter(Event.RESTARTS_USED_UP)

    client = b.client()
    client.log_in()

    assert [each.reply_code for each in client.take() if isinstance(each, m.ConnectionClose)] == [
        541
    ]
