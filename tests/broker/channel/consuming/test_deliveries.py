"""The consumers of a channel: deliveries after a cancel, and after a restart of their queue."""

from __future__ import annotations

import pytest

from leveret.amqp import methods as m
from leveret.broker.mail import Deliver
from rigs.broker_rig import Rig


def test_what_comes_for_a_consumer_that_is_gone_does_not_use_up_the_channels_prefetch(
    rig: Rig,
) -> None:
    client = rig.session()
    client.ask(1, m.QueueDeclare("q"))
    client.ask(1, m.BasicQos(0, 1, True))
    client.ask(1, m.BasicConsume("q", "there"))
    queue = rig.queues["q"].ref
    channel = next(c for c in rig.runtime.cells() if c.describe() == "channel:1")
    channel.actor.deliveries.limiter.in_flight += 1  # as the queue does when it delivers
    rig.runtime.send(channel.ref, Deliver(queue, b"gone", [(b"", b"", b"lost")], [77], 0), queue)
    rig.settle()

    client.publish(1, "q", b"0")

    assert client.bodies() == [b"0"]


def test_a_restarted_queue_finds_the_consumers_that_are_left_and_no_other(rig: Rig) -> None:
    client = rig.session()
    for name in ("q", "other"):
        client.ask(1, m.QueueDeclare(name))
    for tag in ("one", "two", "three"):
        client.ask(1, m.BasicConsume("q", tag))
    client.ask(1, m.BasicConsume("other", "elsewhere"))
    entry = rig.queues["q"]

    for left, gone in ((3, "two"), (2, "one"), (1, "three"), (0, "elsewhere")):
        rig.runtime.exit(entry.ref, "crashed")
        rig.settle()
        assert client.ask(1, m.QueueDeclare("q", passive=True)).consumer_count == left
        client.ask(1, m.BasicCancel(gone))
    assert not entry._watchers
    assert not rig.queues["other"]._watchers


@pytest.mark.parametrize("is_capable", [True, False])
def test_a_consumer_that_asks_for_it_is_cancelled_when_its_queue_restarts(
    rig: Rig, is_capable: bool
) -> None:
    client = rig.session()
    client.ask(1, m.QueueDeclare("q"))
    for tag, wish in (("stays", ("t", False)), ("goes", ("t", True))):
        arguments = {"x-cancel-on-ha-failover": wish}
        client.ask(1, m.BasicConsume("q", tag, no_ack=True, arguments=arguments))
    channel = next(c for c in rig.runtime.cells() if c.describe() == "channel:1")
    channel.actor.session.cancel_notify = is_capable

    rig.runtime.exit(rig.queues["q"].ref, "crashed")
    rig.settle()

    assert client.take() == ([m.BasicCancel("goes", True)] if is_capable else [])
    assert client.ask(1, m.QueueDeclare("q", passive=True)).consumer_count == 1
    client.publish(1, "q", b"0", b"1")
    assert client.bodies() == [b"0", b"1"]


def test_one_of_the_consumers_that_return_is_active_and_no_other(rig: Rig) -> None:
    clients = [rig.session() for _ in range(3)]
    single = {"x-single-active-consumer": ("t", True)}
    clients[0].ask(1, m.QueueDeclare("q", arguments=single))
    for client in clients:
        client.ask(1, m.BasicConsume("q", "c", no_ack=True))

    for _ in range(3):
        rig.runtime.exit(rig.queues["q"].ref, "crashed")
        rig.settle()
        clients[0].publish(1, "q", b"0", b"1")
        assert sorted(len(client.bodies()) for client in clients) == [0, 0, 2]
