"""A client that does not read: whatever would be written to it waits, wherever it comes from."""

from __future__ import annotations

from leveret.amqp import methods as m
from rigs.broker_rig import Client, Rig


def with_messages(rig: Rig, count: int) -> Client:
    client = rig.session()
    client.ask(1, m.QueueDeclare("q"))
    client.publish(1, "q", *(b"%d" % number for number in range(count)))
    return client


def test_gets_wait_until_the_client_has_read(rig: Rig) -> None:
    client = with_messages(rig, 3)
    client.protocol.pause_writing()
    client.send(1, *[m.BasicGet("q", no_ack=True)] * 3)
    assert client.take() == []
    assert not client.wire.is_reading, "what else it sends can wait as well"

    client.protocol.resume_writing()
    rig.settle()

    assert client.bodies() == [b"0", b"1", b"2"]
    assert client.wire.is_reading


def test_a_get_that_waits_ends_with_its_connection(rig: Rig) -> None:
    client = with_messages(rig, 1)
    client.protocol.pause_writing()
    client.send(1, m.BasicGet("q"))

    client.hang_up()

    other = rig.session()
    other.send(1, m.BasicGet("q", no_ack=True))
    assert other.bodies() == [b"0"]


def test_a_get_that_waits_is_answered_before_the_close_that_came_with_it(rig: Rig) -> None:
    client = with_messages(rig, 1)
    client.protocol.pause_writing()
    client.send(1, m.BasicGet("q", no_ack=True), m.ChannelClose(200, "", 0, 0))

    client.protocol.resume_writing()
    rig.settle()

    got, body, closed = client.take()
    assert (type(got), body, closed) == (m.BasicGetOk, b"0", m.ChannelCloseOk())
    assert client.wire.is_reading


def test_a_channel_opened_meanwhile_waits_too_and_then_gets_its_messages(rig: Rig) -> None:
    client = with_messages(rig, 2)
    client.protocol.pause_writing()
    client.send(2, m.ChannelOpen(), m.BasicConsume("q", "c"))
    assert client.bodies() == []

    client.protocol.resume_writing()
    rig.settle()

    assert client.bodies() == [b"0", b"1"]


def test_replies_that_nobody_reads_stop_the_reading(rig: Rig) -> None:
    client = rig.session()
    client.protocol.pause_writing()
    client.wire.unread_bytes = 17 << 20
    client.publish(1, "nowhere", b"body", mandatory=True)
    assert not client.wire.is_reading

    client.wire.unread_bytes = 0
    client.protocol.resume_writing()
    client.rig.settle()

    assert client.wire.is_reading
