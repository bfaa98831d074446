"""The consumers of a channel: deliveries after a cancel, and after a restart of their queue."""

from __future__ import annotations

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
