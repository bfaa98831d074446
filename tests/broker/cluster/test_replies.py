"""Direct reply-to between clients of different nodes."""

from __future__ import annotations

import pytest

from leveret.amqp import methods as m
from leveret.amqp.properties import examine
from leveret.broker.channel.publishing.replies import STALLED_S
from rigs.broker_rig import HEAD, Client, durable
from rigs.cluster.cluster_rig import Cluster

REPLY_TO = "amq.rabbitmq.reply-to"


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def requested_key(cluster: Cluster, requester: Client, server: Client) -> str:
    """Let a client send a request to a server of another node; return the key of the reply."""
    server.ask(1, durable("rpc"))
    requester.ask(1, m.BasicConsume(REPLY_TO, "t", no_ack=True))
    requester.publish(1, "rpc", b"request", reply_to=REPLY_TO)
    server.send(1, m.BasicGet("rpc", True))
    (head,) = [each.payload for each in server.frames() if each.kind == HEAD]
    key = examine(head).reply_to
    assert key is not None
    assert key.startswith(REPLY_TO + ".")
    return key


def test_a_reply_goes_to_the_requester_on_another_node(cluster: Cluster) -> None:
    requester, server = cluster["a"].session(), cluster["b"].session()
    key = requested_key(cluster, requester, server)
    server.publish(1, key, b"reply", b"more")
    assert requester.bodies() == [b"reply", b"more"]


def test_a_server_may_ask_whether_the_requester_is_there(cluster: Cluster) -> None:
    requester, server = cluster["a"].session(), cluster["b"].session()
    key = requested_key(cluster, requester, server)
    asked = m.QueueDeclare(key, passive=True)
    assert server.ask(1, asked) == m.QueueDeclareOk(key, 0, 1)
    requester.hang_up()
    closed = server.ask(1, asked)
    assert (closed.reply_code, closed.reply_text) == (
        404,
        f"NOT_FOUND - no queue '{key}' in vhost '/'",
    )


def test_a_reply_to_a_node_that_is_down_is_dropped(cluster: Cluster) -> None:
    requester, server = cluster["a"].session(), cluster["b"].session()
    key = requested_key(cluster, requester, server)
    cluster["a"].crash()
    cluster.settle()
    server.ask(1, m.ConfirmSelect())
    server.publish(1, key, b"reply")
    assert server.take() == [m.BasicAck(1, False)]
    closed = server.ask(1, m.QueueDeclare(key, passive=True))
    assert closed.reply_code == 404


def test_a_request_that_dies_unanswered_goes_to_its_requester(cluster: Cluster) -> None:
    requester, server = cluster["a"].session(), cluster["b"].session()
    key = requested_key(cluster, requester, server)
    arguments = {
        "x-dead-letter-exchange": ("S", b""),
        "x-dead-letter-routing-key": ("S", key.encode()),
        "x-message-ttl": ("l", 100),
    }
    server.ask(1, m.QueueDeclare("brief", arguments=arguments))
    server.publish(1, "brief", b"late")
    cluster.clock.jump(1.0)
    assert requester.bodies() == [b"late"]


def test_who_does_not_read_stops_those_who_answer_on_another_node(cluster: Cluster) -> None:
    requester, server = cluster["a"].session(), cluster["b"].session()
    key = requested_key(cluster, requester, server)
    requester.reads_nothing()
    server.publish(1, key, b"1")
    cluster.settle()
    assert not server.wire.is_reading

    requester.reads_all()
    cluster.settle()
    assert server.wire.is_reading
    server.publish(1, key, b"2")
    assert requester.bodies() == [b"1", b"2"]


def test_who_does_not_read_does_not_stop_a_channel_that_has_been_closed_meanwhile(
    cluster: Cluster,
) -> None:
    requester, server = cluster["a"].session(), cluster["b"].session()
    key = requested_key(cluster, requester, server)
    requester.reads_nothing()
    missing = m.method_frame(1, m.encode(m.QueueDeclare("none", passive=True)))
    server.feed(server.contents(1, ("", key, b"1", {})) + missing)
    cluster.settle()

    assert [each.reply_code for each in server.take()] == [404]
    assert server.wire.is_reading


def test_after_a_while_replies_of_another_node_are_dropped(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    requester, server = cluster["a"].session(), cluster["b"].session()
    key = requested_key(cluster, requester, server)
    requester.reads_nothing()
    server.publish(1, key, b"1")
    cluster.clock.jump(STALLED_S + 1.0)
    assert server.wire.is_reading
    server.publish(1, key, b"2")
    cluster.settle()
    assert server.wire.is_reading
    assert "replies are dropped, their consumer does not read" in caplog.text

    requester.reads_all()
    server.publish(1, key, b"3")
    assert requester.bodies() == [b"1", b"3"]
    requester.reads_nothing()
    server.publish(1, key, b"4")
    cluster.settle()
    assert not server.wire.is_reading


@pytest.mark.parametrize("end", ["hang up", "crash", "cut"])
def test_the_end_of_a_requester_or_its_node_ends_the_wait_of_another_node(
    cluster: Cluster, end: str
) -> None:
    requester, server = cluster["a"].session(), cluster["b"].session()
    key = requested_key(cluster, requester, server)
    requester.reads_nothing()
    server.publish(1, key, b"1")
    cluster.settle()
    assert not server.wire.is_reading

    if end == "hang up":
        requester.hang_up()
    elif end == "crash":
        cluster["a"].crash()
    else:
        cluster["a"].links.disconnect("b")
    cluster.clock.jump(2.0)
    assert server.wire.is_reading
