"""A client that does not read: whatever would be written to it waits, wherever it comes from."""

from __future__ import annotations

from typing import Any

import pytest

from leveret.actors.runtime import scheduler
from leveret.amqp import methods as m
from leveret.broker.channel import channel
from leveret.broker.channel.consuming import unacked
from leveret.broker.connection.reading import resume_queue
from leveret.broker.mail import Deliver
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


WIDE = 100
BODIES: list[Any] = [("amq.fanout", f"{number}", bytes(1_000), {}) for number in range(20)]


def wide(rig: Rig, channels: int) -> Client:
    """A client that consumes from many queues of its own, and fans messages out to them."""
    client = rig.session(channels=channels + 1)
    for number in range(WIDE):
        client.ask(1, m.QueueDeclare(f"q{number}", exclusive=True))
        client.ask(1, m.QueueBind(f"q{number}", "amq.fanout", ""))
        client.ask(number % channels + 1, m.BasicConsume(f"q{number}", no_ack=number % 2 == 0))
    client.protocol.data_received(client.contents(1, *BODIES))
    return client


@pytest.mark.parametrize("channels", [1, 3])
def test_a_busy_channel_has_few_deliveries_in_its_mailbox(
    rig: Rig, channels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would write them all in one turn, and what the socket does not take waits in the transport."""
    monkeypatch.setattr(channel, "PUBLISH_TURN_WORK", 2_000)
    monkeypatch.setattr(scheduler, "DRAIN_MAILS", 50)
    monkeypatch.setattr(resume_queue, "WAITING_BYTES_MAX", 20_000)
    found = list[int]()
    client = wide(rig, channels)
    slots = rig.node.connections.readers[client.reader].channels._slots
    while not rig.runtime.is_idle:
        rig.runtime.drain()
        waiting = [
            message
            for slot in slots.values()
            for message, _ in slot.ref.cell.inbox or ()
            if type(message) is Deliver
        ]
        found.append(sum(len(each[2]) for mail in waiting for each in mail.messages))
    rig.settle()

    assert max(found) <= 20_000 + len(BODIES) * 1_000, "one delivery more"
    assert len(client.bodies()) == len(BODIES) * WIDE


def test_a_transport_that_is_full_stays_closed_when_the_mailboxes_are_empty(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "PUBLISH_TURN_WORK", 2_000)
    monkeypatch.setattr(scheduler, "DRAIN_MAILS", 50)
    monkeypatch.setattr(resume_queue, "WAITING_BYTES_MAX", 20_000)
    client = wide(rig, 1)
    line = rig.node.connections.readers[client.reader].channels._resume_queue
    while not line.is_overfull:
        rig.runtime.drain()
    client.protocol.pause_writing()
    rig.settle()
    assert not line.is_overfull
    assert not line.is_open
    assert len(client.bodies()) < len(BODIES) * WIDE

    client.protocol.resume_writing()
    rig.settle()
    assert line.is_open
    client.send(1, m.QueueDeclare("q0", passive=True))
    assert client.take()[-1] == m.QueueDeclareOk("q0", 0, 1)


def test_the_gate_of_a_channel_that_ends_with_an_error_stays_closed(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A delivery would go back to its queue, and come again, as long as the channel ends."""
    monkeypatch.setattr(unacked, "SETTLED_MAX", 1)
    client, other = rig.session(), rig.session()
    client.ask(1, m.QueueDeclare("q"))
    client.send(1, m.BasicConsume("q", "c"))
    client.publish(1, "q", b"1", b"2", b"3")
    assert len(client.bodies()) == 3

    client.protocol.data_received(m.method_frame(1, m.encode(m.BasicAck(99))))
    client.protocol.pause_writing()
    client.protocol.resume_writing()
    (slot,) = rig.node.connections.readers[client.reader].channels._slots.values()
    assert not slot.gate.is_open

    other.publish(1, "q", b"4")
    other.send(1, m.BasicConsume("q", "d"))
    assert not [each for each in client.take() if type(each) is bytes]
    assert other.bodies() == [b"1", b"2", b"3", b"4"]
