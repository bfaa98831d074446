"""Consuming from queues of other nodes: delivery, settlement, prefetch, slow readers, get, purge, delete, errors.

Tests: broker/channel/consuming/remote_deliveries.py, broker/queue/consumers/remote_channels.py,
    broker/remote/remote_gate.py
"""

from __future__ import annotations

from typing import Any

import pytest

from leveret.amqp import methods as m
from leveret.broker.remote.remote_gate import WINDOW_BYTES
from rigs.broker_rig import Client, durable
from rigs.cluster.cluster_rig import Cluster


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def there(cluster: Cluster) -> Client:
    """A client of the node where queue q lives."""
    client = cluster["a"].session(channels=2)
    client.ask(1, durable("q"))
    return client


@pytest.fixture
def here(cluster: Cluster, there: Client) -> Client:
    """A client of another node."""
    return cluster["b"].session(channels=2)


def counts(client: Client, name: str = "q") -> tuple[int, int]:
    answer = client.ask(2, m.QueueDeclare(name, passive=True))
    return answer.message_count, answer.consumer_count


def deliveries(client: Client) -> list[tuple[int, bool, bytes]]:
    """Take deliveries: tag, redelivered, body."""
    taken = client.take()
    return [
        (each.delivery_tag, each.redelivered, taken[place + 1])
        for place, each in enumerate(taken)
        if isinstance(each, m.BasicDeliver)
    ]


def test_consume_ok_comes_before_the_first_delivery(there: Client, here: Client) -> None:
    there.publish(1, "q", b"1", b"2")
    here.send(1, m.BasicConsume("q", "t"))
    kinds = [type(each) for each in here.take()]
    assert kinds == [m.BasicConsumeOk, m.BasicDeliver, bytes, m.BasicDeliver, bytes]
    assert counts(there) == counts(here) == (0, 1)


def test_acks_rejects_and_requeues_reach_the_queue(there: Client, here: Client) -> None:
    there.publish(1, "q", b"1", b"2", b"3", b"4")
    here.send(1, m.BasicConsume("q", "t"))
    assert [body for _, _, body in deliveries(here)] == [b"1", b"2", b"3", b"4"]
    here.send(1, m.BasicAck(1))
    here.send(1, m.BasicReject(2, False))
    here.send(1, m.BasicNack(4, True, True))
    assert deliveries(here) == [(5, True, b"3"), (6, True, b"4")]
    here.send(1, m.BasicAck(6, True))
    here.hang_up()
    assert counts(there) == (0, 0)


def test_a_prefetch_holds_across_nodes(there: Client, here: Client) -> None:
    here.ask(1, m.BasicQos(prefetch_count=2))
    here.send(1, m.BasicConsume("q", "t"))
    there.publish(1, "q", *[b"%d" % n for n in range(5)])
    assert len(deliveries(here)) == 2
    here.send(1, m.BasicAck(1))
    assert [tag for tag, _, _ in deliveries(here)] == [3]
    here.send(1, m.BasicAck(3, True))
    assert [tag for tag, _, _ in deliveries(here)] == [4, 5]


def test_a_prefetch_that_consumers_share_holds_across_nodes(
    cluster: Cluster, there: Client, here: Client
) -> None:
    here.ask(1, durable("own"))
    here.ask(1, m.BasicQos(prefetch_count=3, global_=True))
    here.ask(1, m.BasicConsume("q", "t"))
    here.ask(1, m.BasicConsume("own", "o"))
    there.publish(1, "q", *[b"q%d" % n for n in range(5)])
    assert [body for _, _, body in deliveries(here)] == [b"q0", b"q1", b"q2"]
    here.publish(2, "own", b"o1", b"o2")
    assert deliveries(here) == []
    here.send(1, m.BasicAck(1, True))
    assert len(deliveries(here)) == 1
    here.send(1, m.BasicAck(4, True))
    assert len(deliveries(here)) == 3
    assert (counts(there)[0], counts(here, "own")[0]) == (0, 0)


def test_a_shared_prefetch_that_begins_and_ends_later_is_told(there: Client, here: Client) -> None:
    here.ask(1, m.BasicConsume("q", "t"))
    here.ask(1, m.BasicQos(prefetch_count=1, global_=True))
    there.publish(1, "q", b"1", b"2", b"3")
    assert len(deliveries(here)) == 1
    here.send(1, m.BasicQos(prefetch_count=0, global_=True))
    assert len(deliveries(here)) == 2


def test_an_idle_queue_keeps_no_place_of_a_shared_prefetch(there: Client, here: Client) -> None:
    there.ask(1, durable("idle"))
    here.ask(1, m.BasicQos(prefetch_count=1, global_=True))
    here.ask(1, m.BasicConsume("idle", "i"))
    here.ask(1, m.BasicConsume("q", "t"))
    for number in range(1, 6):
        there.publish(1, "q" if number % 2 else "idle", b"%d" % number)
        assert [body for _, _, body in deliveries(here)] == [b"%d" % number]
        here.send(1, m.BasicAck(0, True))


def test_a_client_that_does_not_read_gets_no_more_than_a_window(
    cluster: Cluster, there: Client, here: Client
) -> None:
    body = bytes(50_000)
    here.ask(1, m.BasicConsume("q", "t", no_ack=True))
    here.protocol.pause_writing()
    for _ in range(10):
        there.publish(1, "q", *[body] * 10)
    left = counts(there)[0]
    assert 100 - left <= WINDOW_BYTES // len(body) + 6
    here.wire.out.clear()
    here.protocol.resume_writing()
    cluster.settle()
    assert counts(there)[0] == 0


def test_basic_get_takes_one_message_and_says_how_many_are_left(
    there: Client, here: Client
) -> None:
    there.publish(1, "q", b"1", bytes(300_000))
    assert [type(each) for each in here_get(here)] == [m.BasicGetOk, bytes]
    got = here_get(here, no_ack=True)
    assert (got[0].message_count, sum(map(len, got[1:]))) == (0, 300_000)
    assert here_get(here) == [m.BasicGetEmpty()]
    here.send(1, m.BasicReject(1, True))
    assert counts(there) == (1, 0)


def here_get(client: Client, no_ack: bool = False) -> list[Any]:
    client.send(1, m.BasicGet("q", no_ack))
    return client.take()


def test_queues_are_purged_and_deleted_from_another_node(
    cluster: Cluster, there: Client, here: Client
) -> None:
    there.publish(1, "q", b"1", b"2")
    assert here.ask(1, m.QueuePurge("q")) == m.QueuePurgeOk(2)
    there.publish(1, "q", b"3")
    assert here.ask(1, m.QueueDelete("q")) == m.QueueDeleteOk(1)
    assert (cluster["a"].queues, cluster["b"].queues) == ({}, {})
    assert here.ask(1, durable("q")).message_count == 0
    assert counts(there) == (0, 0)


def test_conditions_of_a_deletion_are_the_queues_own(there: Client, here: Client) -> None:
    there.publish(1, "q", b"1")
    closed = here.ask(1, m.QueueDelete("q", if_empty=True))
    assert (closed.reply_code, closed.reply_text) == (
        406,
        "PRECONDITION_FAILED - queue 'q' in vhost '/' not empty",
    )


def test_a_deletion_cancels_the_consumers_of_all_nodes(there: Client, here: Client) -> None:
    here.ask(1, m.BasicConsume("q", "t"))
    there.ask(1, m.QueueDelete("q"))
    assert here.take() == [m.BasicCancel("t", True)]


def test_no_delivery_follows_cancel_ok(there: Client, here: Client) -> None:
    here.ask(1, m.BasicConsume("q", "t"))
    assert here.ask(1, m.BasicCancel("t")) == m.BasicCancelOk("t")
    there.publish(1, "q", b"1")
    assert here.take() == []
    assert counts(there) == (1, 0)


def test_a_connection_that_ends_gives_its_messages_back(there: Client, here: Client) -> None:
    there.publish(1, "q", b"1", b"2")
    here.send(1, m.BasicConsume("q", "t"))
    here.hang_up()
    assert counts(there) == (2, 0)
    there.send(1, m.BasicConsume("q", "t"))
    assert [again for _, again, _ in deliveries(there)] == [True, True]


def test_an_exclusive_consumer_excludes_those_of_other_nodes(there: Client, here: Client) -> None:
    there.ask(1, m.BasicConsume("q", "t", exclusive=True))
    closed = here.ask(1, m.BasicConsume("q", "t"))
    assert (closed.reply_code, closed.reply_text) == (
        403,
        "ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use",
    )


def test_an_exclusive_queue_is_locked_for_all_nodes_and_ends_with_its_connection(
    cluster: Cluster, there: Client, here: Client
) -> None:
    there.ask(1, m.QueueDeclare("mine", exclusive=True))
    for method in (m.QueueDeclare("mine", passive=True), m.BasicConsume("mine", "t")):
        closed = here.ask(1, method)
        assert (closed.reply_code, closed.reply_text[:60]) == (
            405,
            "RESOURCE_LOCKED - cannot obtain exclusive access to locked q",
        )
        here.send(1, m.ChannelCloseOk())
        here.ask(1, m.ChannelOpen())
    there.hang_up()
    assert set(cluster["a"].queues) == set(cluster["b"].queues) == {"q"}


def test_an_auto_delete_queue_ends_with_its_last_consumer_anywhere(
    cluster: Cluster, there: Client, here: Client
) -> None:
    there.ask(1, m.QueueDeclare("auto", auto_delete=True))
    there.ask(1, m.BasicConsume("auto", "t"))
    here.ask(1, m.BasicConsume("auto", "t"))
    there.ask(1, m.BasicCancel("t"))
    assert "auto" in cluster["a"].queues
    here.ask(1, m.BasicCancel("t"))
    assert "auto" not in cluster["a"].queues
    assert "auto" not in cluster["b"].queues


def test_the_use_of_a_queue_from_another_node_keeps_it_from_expiring(
    cluster: Cluster, there: Client, here: Client
) -> None:
    there.ask(1, durable("short", arguments={"x-expires": ("l", 10_000)}))
    cluster.clock.jump(8.0)
    here.ask(1, durable("short", arguments={"x-expires": ("l", 10_000)}))
    cluster.clock.jump(8.0)
    assert "short" in cluster["b"].queues
    cluster.clock.jump(4.0)
    assert "short" not in cluster["a"].queues
    assert "short" not in cluster["b"].queues


def test_a_queue_that_crashes_gets_its_consumers_of_other_nodes_back(
    cluster: Cluster, there: Client, here: Client
) -> None:
    there.publish(1, "q", b"1", delivery_mode=2)
    here.send(1, m.BasicConsume("q", "t"))
    assert len(deliveries(here)) == 1
    cluster["a"].runtime.exit(cluster["a"].queues["q"].ref, "kill")
    cluster.settle()
    there.publish(1, "q", b"2")
    assert [body for _, _, body in deliveries(here)][-1:] == [b"2"]
    assert counts(there)[1] == 1


def test_a_declaration_is_compared_with_that_of_the_other_node(there: Client, here: Client) -> None:
    closed = here.ask(1, m.QueueDeclare("q", durable=False))
    assert closed.reply_code == 406
    assert "inequivalent arg 'durable' for queue 'q' in vhost '/'" in closed.reply_text


def test_an_auto_delete_queue_that_crashes_waits_for_consumers_of_other_nodes(
    cluster: Cluster, there: Client, here: Client
) -> None:
    there.ask(1, m.QueueDeclare("auto", auto_delete=True))
    there.ask(1, m.BasicConsume("auto", "t"))
    here.ask(1, m.BasicConsume("auto", "t"))
    there.ask(1, m.BasicCancel("t"))
    cluster["a"].runtime.exit(cluster["a"].queues["auto"].ref, "kill")
    cluster.settle()
    there.publish(1, "auto", b"1")
    assert [body for _, _, body in deliveries(here)] == [b"1"]
    here.hang_up()
    assert "auto" not in cluster["a"].queues
    assert "auto" not in cluster["b"].queues


def test_places_of_a_shared_prefetch_that_a_queue_cannot_use_go_to_others(
    there: Client, here: Client
) -> None:
    there.ask(1, durable("other"))
    here.ask(1, m.BasicQos(prefetch_count=3, global_=True))
    here.ask(1, m.BasicConsume("q", "t"))
    here.ask(1, m.BasicConsume("other", "o"))
    there.publish(1, "q", b"1")
    there.publish(1, "other", b"2", b"3", b"4")
    assert [body for _, _, body in deliveries(here)] == [b"1", b"2", b"3"]
    here.send(1, m.BasicAck(1))
    assert [body for _, _, body in deliveries(here)] == [b"4"]
