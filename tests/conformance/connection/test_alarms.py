"""Memory and disk alarms: who is blocked, who is told, and what happens when they are over."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from conformance import wire
from conformance.conftest import Connect
from conformance.raw import CAPABILITIES, Channel, Connection
from rigs.nodes import BrokerUnderTest
from rigs.waiting import wait_until

Alarm = Callable[[str, bool], None]

LIMITS = {
    "memory": ("set_vm_memory_high_watermark", "0.0000001", "0.4", "Memory alarm on node"),
    "disk": ("set_disk_free_limit", "999999GB", "1000", "Free disk space alarm on node"),
}


@pytest.fixture
def alarm(broker: BrokerUnderTest) -> Iterator[Alarm]:
    """Raise and clear an alarm; none is left behind."""

    raised: set[str] = set()

    def set_alarm(what: str, is_raised: bool) -> None:
        verb, raises, clears, shown = LIMITS[what]
        raised.add(what)
        broker.control(verb, raises if is_raised else clears)
        wait_until(lambda: (shown in broker.control("status")) is is_raised)
        if not is_raised:
            raised.remove(what)

    yield set_alarm
    for what in list(raised):
        set_alarm(what, False)


def confirming(connection: Connection) -> Channel:
    channel = connection.channel()
    channel.ok("confirm.select")
    return channel


def state_of(broker: BrokerUnderTest, connection: Connection) -> str:
    """Return the state that list_connections shows."""
    port = connection.socket.getsockname()[1]
    lines = broker.control("list_connections", "peer_port", "state").splitlines()
    return dict(line.split("\t") for line in lines if "\t" in line)[str(port)]


def test_a_connection_that_does_not_publish_is_not_touched(
    broker: BrokerUnderTest, connect: Connect, queue: str, alarm: Alarm
) -> None:
    channel = connect().channel()
    channel.publish(queue, "1")
    channel.publish(queue, "2")
    assert channel.ready(queue) == 2
    alarm("memory", True)
    consumer = connect()

    reads = consumer.channel()
    reads.ok("basic.consume", queue=queue)
    deliveries = reads.deliveries(2)
    reads.send("basic.ack", delivery_tag=2, multiple=True)
    reads.settle(queue)

    assert [each.body for each in deliveries] == [b"1", b"2"]
    assert state_of(broker, consumer) == "blocking"
    assert consumer.is_silent()


def test_a_publisher_is_blocked_told_and_confirmed_when_it_is_over(
    broker: BrokerUnderTest, connect: Connect, queue: str, alarm: Alarm
) -> None:
    witness = connect().channel()
    publisher = connect()
    channel = confirming(publisher)
    alarm("memory", True)

    channel.publish(queue, "1")
    blocked = publisher.read()
    channel.send("queue.declare", queue=queue, passive=True)

    assert (blocked.name, blocked.reason) == ("connection.blocked", "low on memory")
    assert state_of(broker, publisher) == "blocked"
    assert witness.ready(queue) == 0
    assert publisher.is_silent()
    alarm("memory", False)
    assert publisher.read().name == "connection.unblocked"
    came = [channel.read(), channel.read()]
    assert sorted(each.name for each in came) == ["basic.ack", "queue.declare-ok"]
    assert witness.ready(queue) == 1
    assert state_of(broker, publisher) == "running"


def test_a_blocked_connection_need_not_send_heartbeats(
    connect: Connect, queue: str, alarm: Alarm
) -> None:
    """In real time, as RabbitMQ has no other; another silent client is cut off within three seconds."""
    alarm("memory", True)
    publisher = connect(heartbeat=1)
    channel = confirming(publisher)
    channel.publish(queue, "1")
    assert publisher.read().name == "connection.blocked"

    with pytest.raises(TimeoutError):
        publisher.read(timeout_s=4)

    assert len(publisher.heartbeats) >= 4
    alarm("memory", False)
    assert publisher.read().name == "connection.unblocked"
    assert channel.read().name == "basic.ack"


def test_one_that_cannot_be_told_is_blocked_all_the_same(
    connect: Connect, queue: str, alarm: Alarm
) -> None:
    publisher = connect(capabilities=CAPABILITIES | {"connection.blocked": False})
    channel = confirming(publisher)
    witness = connect().channel()
    alarm("memory", True)

    channel.publish(queue, "1")

    assert witness.ready(queue) == 0
    alarm("memory", False)
    assert channel.read().name == "basic.ack"
    assert witness.ready(queue) == 1


def test_a_second_alarm_is_told_to_new_publishers_only_and_both_must_be_over(
    connect: Connect, queue: str, alarm: Alarm
) -> None:
    first, second = connect(), connect()
    one, two = confirming(first), confirming(second)
    alarm("memory", True)
    one.publish(queue, "1")
    assert first.read().reason == "low on memory"

    alarm("disk", True)
    two.publish(queue, "2")

    assert second.read().reason == "low on disk & memory"
    alarm("memory", False)
    assert first.is_silent()
    assert second.is_silent()
    alarm("disk", False)
    assert [each.read().name for each in (first, second)] == ["connection.unblocked"] * 2
    assert [each.read().name for each in (one, two)] == ["basic.ack"] * 2


def test_a_message_is_blocked_from_its_header_on(
    connect: Connect, queue: str, alarm: Alarm
) -> None:
    publisher = connect()
    channel = confirming(publisher)
    alarm("disk", True)

    publisher.send("basic.publish", channel.number, routing_key=queue)
    publisher.send_bytes(wire.frame(wire.HEADER, channel.number, wire.head(3, {})))
    blocked = publisher.read()
    publisher.send_bytes(wire.frame(wire.BODY, channel.number, b"abc"))

    assert (blocked.name, blocked.reason) == ("connection.blocked", "low on disk")
    assert publisher.is_silent()
    alarm("disk", False)
    assert publisher.read().name == "connection.unblocked"
    assert channel.read().name == "basic.ack"


def test_an_empty_message_is_complete_with_its_header_and_passes(
    connect: Connect, queue: str, alarm: Alarm
) -> None:
    publisher = connect()
    channel = confirming(publisher)
    alarm("memory", True)

    channel.publish(queue, "")
    channel.publish(queue, "")

    assert publisher.read().name == "connection.blocked"
    assert channel.read().delivery_tag == 1
    assert publisher.is_silent()
    alarm("memory", False)
    assert publisher.read().name == "connection.unblocked"
    assert channel.read().delivery_tag == 2


def test_a_blocked_connection_can_be_closed_by_an_operator(
    broker: BrokerUnderTest, connect: Connect, queue: str, alarm: Alarm
) -> None:
    publisher = connect()
    channel = publisher.channel()
    alarm("memory", True)
    channel.publish(queue, "1")
    publisher.read()
    port = publisher.socket.getsockname()[1]
    rows = broker.control("list_connections", "peer_port", "pid").splitlines()
    pid = next(line.split()[1] for line in rows if line.startswith(str(port)))

    broker.control("close_connection", pid, "maintenance!")

    closed = publisher.read()
    assert (closed.name, closed.reply_code) == ("connection.close", 320)
    publisher.send("connection.close-ok")
    assert publisher.read_until_closed() == []


def test_one_that_hangs_up_when_blocked_is_gone_when_it_is_over(
    broker: BrokerUnderTest, connect: Connect, queue: str, alarm: Alarm
) -> None:
    publisher, witness = connect(), connect().channel()
    channel = publisher.channel()
    alarm("memory", True)
    channel.publish(queue, "1")
    publisher.read()
    port = str(publisher.socket.getsockname()[1])

    publisher.drop()
    alarm("memory", False)

    def is_gone() -> bool:
        return port not in broker.control("list_connections", "peer_port").split()

    wait_until(is_gone)
    assert witness.ready(queue) <= 1
