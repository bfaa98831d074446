"""A node that is lost, and comes back: what clients of the other nodes see.

Tests: broker/registry/cluster_nodes.py
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from leveret.amqp import methods as m
from rigs.broker_rig import Client, durable
from rigs.cluster.cluster_rig import Cluster

# Recorded from two nodes of RabbitMQ 3.10.8, one of which was halted.
DOWN = "NOT_FOUND - home node 'a' of durable queue 'q' in vhost '/' is down or inaccessible"


@pytest.fixture
def cluster() -> Cluster:
    """Queue q lives on node a, and has one message."""
    cluster = Cluster()
    there = cluster["a"].session()
    there.ask(1, durable("q"))
    there.ask(1, m.QueueBind("q", "amq.fanout"))
    there.publish(1, "q", b"kept", delivery_mode=2)
    return cluster


def lose(cluster: Cluster) -> None:
    """Let the nodes lose each other; both live."""
    cluster.network.silence("a", "b")
    cluster.clock.jump(5.0)


def find_again(cluster: Cluster) -> None:
    cluster.network.heal()
    cluster.clock.jump(12.0)


def find_each_other(cluster: Cluster) -> float:
    """Return how many seconds two nodes take to know the queues of each other."""
    began_s = cluster.clock.monotonic_s()
    while not all(cluster[one].node.cluster_nodes.home(other).is_up for one, other in ("ab", "ba")):
        assert cluster.clock.monotonic_s() < began_s + 60
        cluster.clock.jump(0.05)
    return cluster.clock.monotonic_s() - began_s


def crash(cluster: Cluster) -> None:
    cluster["a"].crash()
    cluster.settle()


@pytest.fixture(params=[lose, crash], ids=["link broken", "node killed"])
def down(request: Any) -> Callable[[Cluster], None]:
    how: Callable[[Cluster], None] = request.param
    return how


ASKED = [
    m.QueueDeclare("q", durable=True),
    m.QueueDeclare("q", passive=True),
    m.QueueDelete("q"),
    m.QueuePurge("q"),
    m.BasicConsume("q", "t"),
    m.BasicGet("q"),
    m.QueueBind("q", "amq.direct", "k"),
    m.QueueUnbind("q", "amq.fanout"),
]


@pytest.mark.parametrize("method", ASKED, ids=lambda each: type(each).__name__)
def test_a_durable_queue_of_a_node_that_is_down_answers_404(
    cluster: Cluster, down: Callable[[Cluster], None], method: m.Method
) -> None:
    here = cluster["b"].session()
    down(cluster)
    closed = here.ask(1, method)
    assert (closed.reply_code, closed.reply_text) == (404, DOWN)


def test_a_queue_that_is_not_durable_is_gone_and_may_be_declared_again(
    cluster: Cluster, down: Callable[[Cluster], None]
) -> None:
    cluster["a"].session().ask(1, m.QueueDeclare("brief"))
    here = cluster["b"].session()
    down(cluster)
    closed = here.ask(1, m.QueueDeclare("brief", passive=True))
    assert (closed.reply_code, closed.reply_text) == (
        404,
        "NOT_FOUND - no queue 'brief' in vhost '/'",
    )
    here.send(1, m.ChannelCloseOk())
    here.ask(1, m.ChannelOpen())
    assert here.ask(1, m.QueueDeclare("brief")) == m.QueueDeclareOk("brief", 0, 0)
    here.publish(1, "brief", b"1")
    assert here.ask(1, m.QueueDeclare("brief", passive=True)).message_count == 1


def test_consumers_are_cancelled(cluster: Cluster, down: Callable[[Cluster], None]) -> None:
    here = cluster["b"].session()
    here.send(1, m.BasicConsume("q", "t"))
    here.take()
    down(cluster)
    assert here.take() == [m.BasicCancel("t", True)]


def test_unconfirmed_publishes_are_nacked(cluster: Cluster) -> None:
    here = cluster["b"].session()
    here.ask(1, m.ConfirmSelect())
    cluster.network.silence("a", "b")
    here.publish(1, "q", b"1", b"2")
    assert here.take() == []
    cluster.clock.jump(5.0)
    assert here.take() == [m.BasicNack(2, True, True)]
    here.publish(1, "q", b"3")
    assert here.take() == [m.BasicNack(3, False, True)]


def test_a_call_under_way_is_answered_when_the_node_is_lost(cluster: Cluster) -> None:
    here = cluster["b"].session()
    cluster.network.silence("a", "b")
    here.send(1, m.BasicGet("q"))
    assert here.take() == []
    cluster.clock.jump(5.0)
    (closed,) = here.take()
    assert (closed.reply_code, closed.reply_text) == (404, DOWN)


def test_after_a_broken_link_everything_is_there_again_without_a_new_connection(
    cluster: Cluster,
) -> None:
    cluster["a"].session().ask(1, m.QueueDeclare("brief"))
    here = cluster["b"].session()
    here.ask(1, m.ConfirmSelect())
    lose(cluster)
    find_again(cluster)
    here.publish(1, "q", b"more", delivery_mode=2)
    here.publish(1, "brief", b"1")
    assert here.take() == [m.BasicAck(1, False), m.BasicAck(2, False)]
    here.send(1, m.BasicConsume("q", "t"))
    assert here.bodies() == [b"kept", b"more"]


@pytest.mark.parametrize("cut_s", [0.9, 1.5, 3.0, 5.7, 7.0, 8.6, 14.6, 61.7])
def test_two_nodes_find_each_other_within_3_seconds_after_a_cut(cut_s: float) -> None:
    cluster = Cluster()
    cluster.network.silence("a", "b")
    cluster.clock.jump(cut_s)
    cluster.network.heal()
    assert find_each_other(cluster) < 3.1


@pytest.mark.parametrize("away_s", [0.1, 1.0, 7.0, 61.7])
def test_a_node_that_starts_again_is_found_within_2_seconds(away_s: float) -> None:
    cluster = Cluster()
    cluster["a"].crash()
    cluster.clock.jump(away_s)
    cluster.start("a")
    assert find_each_other(cluster) < 2.0


def test_what_was_unacked_over_a_broken_link_comes_again(cluster: Cluster) -> None:
    here = cluster["b"].session()
    here.send(1, m.BasicConsume("q", "t"))
    here.take()
    lose(cluster)
    find_again(cluster)
    assert here.take() == [m.BasicCancel("t", True)]
    here.send(1, m.BasicAck(1))
    here.send(1, m.BasicConsume("q", "t"))
    taken = here.take()
    assert (taken[1].delivery_tag, taken[1].redelivered, taken[2]) == (2, True, b"kept")
    here.send(1, m.BasicAck(2))
    assert here.ask(1, m.QueueDeclare("q", passive=True)).message_count == 0


def test_a_node_that_starts_again_brings_its_queues_back(cluster: Cluster) -> None:
    here = cluster["b"].session()
    crash(cluster)
    cluster.start("a")
    cluster.clock.jump(12.0)
    assert here.ask(1, m.QueueDeclare("q", passive=True)) == m.QueueDeclareOk("q", 0, 0)
    here.publish(1, "q", b"new")
    assert cluster["a"].session().ask(1, m.QueueDeclare("q", passive=True)).message_count == 1


def test_a_transient_queue_of_a_node_that_starts_again_stays_away(cluster: Cluster) -> None:
    cluster["a"].session().ask(1, m.QueueDeclare("brief"))
    crash(cluster)
    cluster.start("a")
    cluster.clock.jump(12.0)
    assert "brief" not in cluster["a"].queues
    assert "brief" not in cluster["b"].queues


def test_a_fan_out_reaches_the_queues_that_are_there_and_is_nacked(
    cluster: Cluster, down: Callable[[Cluster], None]
) -> None:
    here = cluster["b"].session()
    here.ask(1, m.ExchangeDeclare("x", "fanout", durable=True))
    here.ask(1, durable("own"))
    for name in ("q", "own"):
        here.ask(1, m.QueueBind(name, "x"))
    here.ask(1, m.ConfirmSelect())
    down(cluster)
    here.publish(1, "", b"1", exchange="x")
    assert here.take() == [m.BasicNack(1, False, True)]
    assert here.ask(1, m.QueueDeclare("own", passive=True)).message_count == 1


def test_a_mandatory_message_for_a_node_that_is_down_is_returned_and_nacked(
    cluster: Cluster, down: Callable[[Cluster], None]
) -> None:
    here = cluster["b"].session()
    here.ask(1, m.ConfirmSelect())
    down(cluster)
    here.publish(1, "q", b"1", mandatory=True)
    assert [type(each) for each in here.take()] == [m.BasicReturn, bytes, m.BasicNack]


def test_an_alarm_of_any_node_blocks_publishers_of_all(cluster: Cluster) -> None:
    here = cluster["b"].session()
    alarms = cluster["a"].node.resources.alarms
    alarms.set("disk", True, "")
    cluster.settle()
    here.publish(1, "q", b"1")
    assert not here.wire.is_reading
    alarms.set("disk", False, "")
    cluster.settle()
    assert here.wire.is_reading
    assert here.ask(1, m.QueueDeclare("q", passive=True)).message_count == 2


def test_the_alarms_of_a_node_that_is_down_count_no_more(
    cluster: Cluster, down: Callable[[Cluster], None]
) -> None:
    cluster["a"].node.resources.alarms.set("memory", True, "")
    cluster.settle()
    here: Client = cluster["b"].session()
    down(cluster)
    assert cluster["b"].node.resources.alarms.raised == ()
    here.publish(1, "nowhere", b"1")
    assert here.wire.is_reading


def test_messages_for_a_queue_that_is_being_restarted_are_not_lost_unnoticed(
    cluster: Cluster,
) -> None:
    here = cluster["b"].session()
    here.ask(1, m.ConfirmSelect())
    here.publish(1, "q", b"0")
    here.take()
    cluster.settle_s = 0.0
    cluster["a"].runtime.exit(cluster["a"].queues["q"].ref, "kill")
    for number in range(40):
        here.publish(1, "q", b"%d" % number)
        cluster.clock.jump(0.0005)
    cluster.settle_s = 0.5
    cluster.settle()
    answers = here.take()
    refused = {n for each in answers for n in tags(each, answers) if type(each) is m.BasicNack}
    there = cluster["a"].session()
    there.send(1, m.BasicConsume("q", "t", no_ack=True))
    kept = {int(body) + 2 for body in there.bodies() if body != b"kept"}
    assert kept | refused >= set(range(2, 42))
    assert refused
    assert kept


def tags(answer: Any, answers: list[Any]) -> range:
    """Return the numbers that an answer is for."""
    if not answer.multiple:
        return range(answer.delivery_tag, answer.delivery_tag + 1)
    before = [each.delivery_tag for each in answers if each.delivery_tag < answer.delivery_tag]
    return range(max(before, default=0) + 1, answer.delivery_tag + 1)


def test_a_queue_that_is_stopped_on_its_node_says_so_on_the_others(cluster: Cluster) -> None:
    here = cluster["b"].session()
    here.send(1, m.BasicConsume("q", "t"))
    here.take()
    cluster["a"].queues["q"].stopped()  # as its supervisor does
    cluster.settle()
    assert here.take() == [m.BasicCancel("t", True)]
    closed = here.ask(1, m.BasicGet("q"))
    assert (closed.reply_code, closed.reply_text) == (
        404,
        "NOT_FOUND - queue 'q' in vhost '/' process is stopped by supervisor",
    )


def test_a_queue_that_was_declared_again_elsewhere_ends_where_it_was(cluster: Cluster) -> None:
    there, here = cluster["a"].session(channels=2), cluster["b"].session()
    there.ask(1, m.QueueDeclare("brief"))
    there.ask(1, m.BasicConsume("brief", "t"))
    lose(cluster)
    here.ask(1, m.QueueDeclare("brief"))
    assert there.take() == [m.BasicCancel("t", True)]
    find_again(cluster)
    assert [type(cluster[name].queues["brief"]).__name__ for name in "ab"] == [
        "RemoteEntry",
        "QueueEntry",
    ]
    there.publish(1, "brief", b"1")
    assert here.ask(1, m.QueueDeclare("brief", passive=True)).message_count == 1
    assert there.ask(2, m.QueueDeclare("brief", passive=True)).message_count == 1


def test_a_client_waits_for_a_queue_whose_node_is_back_and_recovers(cluster: Cluster) -> None:
    here = cluster["b"].session()
    cluster["a"].queues["q"].stopped()
    cluster.settle()
    entry = cluster["b"].queues["q"]
    assert entry.state == "stopped"
    lose(cluster)
    assert entry.state == "down"
    ref, cluster["a"].queues["q"].ref = cluster["a"].queues["q"].ref, None
    cluster["a"].queues["q"].supervised(cluster["a"].queues["q"].supervisor)
    find_again(cluster)
    here.send(1, m.BasicGet("q"))
    assert here.take() == []
    cluster["a"].queues["q"].up(ref)
    cluster.settle()
    assert here.take()[1:] == [b"kept"]


def test_messages_for_a_queue_that_is_not_known_to_run_are_refused(cluster: Cluster) -> None:
    here = cluster["b"].session()
    here.ask(1, m.ConfirmSelect())
    entry = cluster["b"].queues["q"]
    entry.forget_incarnation()
    assert entry.state == "starting"
    here.publish(1, "q", b"1")
    assert here.take() == [m.BasicNack(1, False, True)]
