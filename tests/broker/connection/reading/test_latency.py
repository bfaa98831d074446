"""``latency``: with ``low`` no ack and no publish waits to be read; ``balanced``, the default, has them wait."""

from __future__ import annotations

from typing import Any

import pytest

from leveret.amqp import methods as m
from rigs.broker_rig import Client, Rig

GAP_S = 0.0005
READS = 200  # a tenth of a second


def session(latency: dict[str, Any]) -> tuple[Rig, Client, Client]:
    """Return a broker, a publisher and a consumer of a queue."""
    rig = Rig(**latency)
    publisher, consumer = rig.session(), rig.session()
    publisher.ask(1, m.QueueDeclare("q"))
    consumer.ask(1, m.BasicConsume("q", "c"))
    return rig, publisher, consumer


def acks_wait(latency: dict[str, Any]) -> bool:
    """Ack messages one by one; return whether the consumer is left unread behind one of them."""
    rig, publisher, consumer = session(latency)
    for tag in range(1, READS + 1):
        publisher.publish(1, "q", b"%d" % tag)
        consumer.send(1, m.BasicAck(tag))
        if not consumer.wire.is_reading:
            return True
        rig.jump(GAP_S)
    return False


def publishes_wait(latency: dict[str, Any], queue: str = "q", messages: int = 8) -> bool:
    """Stream publishes in; return whether the publisher is left unread behind a read of them."""
    rig, publisher, _ = session(latency)
    publisher.ask(1, m.QueueDeclare("backlog"))
    for _ in range(READS):
        publisher.feed(publisher.contents(1, *[("", queue, b"m", {})] * messages))
        if not publisher.wire.is_reading:
            return True
        rig.jump(GAP_S / 4)
    return False


LOW = {"latency": "low"}
BALANCED = {"latency": "balanced"}


@pytest.mark.parametrize(("latency", "waits"), [(LOW, False), (BALANCED, True), ({}, True)])
def test_whether_acks_and_publishes_wait_to_be_read(latency: dict[str, Any], waits: bool) -> None:
    assert acks_wait(latency) is waits
    assert publishes_wait(latency) is waits
    assert publishes_wait(latency, "backlog", 1) is waits


def test_with_low_latency_a_publish_is_delivered_and_confirmed_without_time() -> None:
    rig, publisher, consumer = session(LOW)
    publisher.ask(1, m.ConfirmSelect(False))
    began_s = rig.clock.monotonic_s()

    for tag in range(1, READS + 1):
        publisher.publish(1, "q", b"%d" % tag)
        assert consumer.bodies() == [b"%d" % tag]
        assert publisher.take() == [m.BasicAck(tag)]
        consumer.send(1, m.BasicAck(tag))

    assert rig.clock.monotonic_s() == began_s
