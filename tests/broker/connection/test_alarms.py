"""Blocked connections step by step: which runs are held, which pass, and how connections end.

Tests: broker/connection/reading/throttle.py
"""

from __future__ import annotations

import struct
from typing import Any

import pytest

from leveret.amqp import methods as m
from leveret.amqp import spec
from leveret.broker.connection.channel_table import CHANNELS_PER_TURN
from leveret.broker.connection.reading import throttle
from leveret.core import limits
from rigs.broker_rig import BODY, HEADER, Client, Rig


def raised(rig: Rig, what: str = "memory") -> None:
    rig.node.resources.alarms.set(what, True, "")


def cleared(rig: Rig, what: str = "memory") -> None:
    rig.node.resources.alarms.set(what, False, "")
    rig.settle()


def publisher(rig: Rig, heartbeat_s: int = 0, channels: int = 1) -> Client:
    client = rig.session(heartbeat_s, channels)
    client.ask(1, m.QueueDeclare("q"))
    return client


def depth(rig: Rig) -> int:
    """Ask on a connection of its own, which is not blocked."""
    answer: Any = rig.session().ask(1, m.QueueDeclare("q", passive=True))
    return int(answer.message_count)


def test_what_comes_before_the_publish_in_one_read_is_done_and_what_follows_is_held(
    rig: Rig,
) -> None:
    client = publisher(rig)
    raised(rig)

    declare = m.method_frame(1, m.encode(m.QueueDeclare("before")))
    message = client.contents(1, ("", "q", b"body", {}))
    after = m.method_frame(1, m.encode(m.QueueDeclare("after")))
    client.feed(declare + message + after)

    assert [type(each) for each in client.take()] == [m.QueueDeclareOk]
    assert not client.wire.is_reading
    assert set(rig.queues) == {"q", "before"}
    cleared(rig)
    assert client.wire.is_reading
    assert set(rig.queues) == {"q", "before", "after"}
    assert depth(rig) == 1


def test_what_is_held_stays_behind_a_long_read_that_is_not_handled_when_the_alarm_is_over(
    rig: Rig,
) -> None:
    last = 5 * CHANNELS_PER_TURN
    client = rig.session(channels=last)
    raised(rig)

    sent = [(number, m.BasicQos(0, 1, False)) for number in range(1, last)]
    sent.append((last, m.QueueDeclare("q", nowait=True)))
    methods = b"".join(m.method_frame(number, m.encode(each)) for number, each in sent)
    client.protocol.data_received(methods + client.contents(last, ("", "q", b"body", {})))
    cleared(rig)

    assert depth(rig) == 1
    assert client.wire.is_reading


def test_one_channel_that_publishes_blocks_all_of_its_connection(rig: Rig) -> None:
    client = publisher(rig, channels=2)
    raised(rig)
    client.publish(1, "q", b"1")

    assert not client.wire.is_reading
    cleared(rig)
    client.send(2, m.BasicGet("q", no_ack=True))
    assert client.bodies() == [b"1"]


def test_a_connection_opened_while_an_alarm_is_raised_is_blocked_with_its_first_publish(
    rig: Rig,
) -> None:
    publisher(rig)
    raised(rig)
    late = rig.session()
    assert late.wire.is_reading

    late.publish(1, "q", b"1")

    assert not late.wire.is_reading
    assert depth(rig) == 0


def test_a_publish_that_was_sent_along_with_the_opening_waits_too(rig: Rig) -> None:
    publisher(rig)
    raised(rig)
    late = rig.client()
    late.feed(HEADER)
    late.send(0, m.ConnectionStartOk({}, "PLAIN", b"\0guest\0guest"))
    late.send(0, m.ConnectionTuneOk(2047, 131_072, 0))
    opens = m.method_frame(0, m.encode(m.ConnectionOpen("/")))
    opens += m.method_frame(1, m.encode(m.ChannelOpen()))
    late.feed(opens + late.contents(1, ("", "q", b"1", {})))

    assert [type(each) for each in late.take()[-2:]] == [m.ConnectionOpenOk, m.ChannelOpenOk]
    assert depth(rig) == 0
    cleared(rig)
    assert depth(rig) == 1


def test_what_a_transport_reads_although_it_was_paused_is_held_in_order(rig: Rig) -> None:
    client = publisher(rig)
    raised(rig)
    client.publish(1, "q", b"1")

    client.protocol.data_received(client.contents(1, ("", "q", b"2", {}), ("", "q", b"3", {})))
    rig.settle()
    cleared(rig)
    client.send(1, *[m.BasicGet("q", no_ack=True)] * 3)

    assert client.bodies() == [b"1", b"2", b"3"]


def test_deliveries_and_acks_of_others_go_on(rig: Rig) -> None:
    client = publisher(rig)
    client.publish(1, "q", b"1", b"2")
    raised(rig)
    client.publish(1, "q", b"3")
    consumer = rig.session()

    consumer.send(1, m.BasicConsume("q", "c"))
    assert consumer.bodies() == [b"1", b"2"]
    consumer.send(1, m.BasicAck(2, multiple=True))
    cleared(rig)

    assert consumer.bodies() == [b"3"]


def test_a_blocked_connection_hears_heartbeats_and_need_not_send_any(rig: Rig) -> None:
    client = publisher(rig, heartbeat_s=4)
    raised(rig)
    client.publish(1, "q", b"1")
    client.take()

    for _ in range(20):
        rig.jump(2.0)

    assert client.take().count("heartbeat") >= 19
    assert client.is_up
    cleared(rig)
    for _ in range(7):
        rig.jump(2.0)
    assert not client.is_up, "from now on silence counts again"


def test_a_blocked_connection_that_loses_its_socket_is_forgotten(rig: Rig) -> None:
    client = publisher(rig)
    raised(rig)
    client.publish(1, "q", b"1")

    client.hang_up()
    cleared(rig)

    assert depth(rig) == 0
    assert len(rig.node.connections.readers) == 1, "only the one that has asked"


def test_an_alarm_that_is_over_and_comes_back_blocks_again(rig: Rig) -> None:
    client = publisher(rig)
    for number in range(3):
        raised(rig)
        client.publish(1, "q", b"%d" % number)
        assert not client.wire.is_reading
        cleared(rig)
        assert client.wire.is_reading

    assert depth(rig) == 3


def test_acks_of_a_blocked_connection_wait_with_its_publishes(rig: Rig) -> None:
    client = publisher(rig)
    client.publish(1, "q", b"1")
    client.send(1, m.BasicGet("q"))
    client.take()
    raised(rig)

    publish = client.contents(1, ("", "q", b"2", {}))
    client.feed(publish + m.method_frame(1, m.encode(m.BasicAck(1))))
    cleared(rig)
    client.send(1, m.BasicRecover(requeue=True))

    assert depth(rig) == 1, "the first one was acked"


# What the broker must remember takes memory as well.


@pytest.mark.parametrize(
    "method",
    [
        m.QueueDeclare("new", arguments={"text": ("S", bytes(5_000))}),
        m.ExchangeDeclare("new", "direct", arguments={"text": ("S", bytes(5_000))}),
        m.QueueBind("q", "amq.direct", "k", False, {"text": ("S", bytes(5_000))}),
        m.ExchangeBind("amq.topic", "amq.direct", "k", False, {"text": ("S", bytes(5_000))}),
        m.BasicConsume("q", "t", arguments={"text": ("S", bytes(5_000))}),
    ],
    ids=lambda method: type(method).__name__,
)
def test_large_arguments_wait_while_memory_is_short_and_only_then(
    rig: Rig, method: m.Method
) -> None:
    client = publisher(rig)
    raised(rig, "disk")
    client.send(1, method)
    assert len(client.take()) == 1, "that takes no room on the disk that is worth it"
    raised(rig)
    client.send(1, method)
    assert client.take() == []
    assert not client.wire.is_reading

    cleared(rig)
    cleared(rig, "disk")

    assert len(client.take()) == 1
    assert client.wire.is_reading


def test_a_consumer_comes_declares_and_drains_while_memory_is_short(rig: Rig) -> None:
    publisher(rig).publish(1, "q", b"1", b"2")
    raised(rig)
    client = rig.session(channels=20)
    client.ask(1, m.QueueDeclare("q", passive=True))
    client.ask(1, m.QueueDeclare("mine", exclusive=True, arguments={"x-expires": ("l", 9_000)}))
    client.ask(1, m.QueueBind("mine", "amq.direct", "k"))
    client.send(1, m.BasicConsume("q", "t", no_ack=True))

    assert client.bodies() == [b"1", b"2"]
    assert client.wire.is_reading


def test_a_connection_that_defines_on_and_on_waits_while_memory_is_short(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(throttle, "ALARMED_DEFINITIONS_MAX", 10)
    client = publisher(rig)
    for _ in range(2):
        raised(rig)
        for _ in range(10):
            client.ask(1, m.QueueDeclare())
        client.ask(1, m.BasicQos())  # is not remembered
        assert client.wire.is_reading
        client.send(1, m.QueueDeclare())
        assert not client.wire.is_reading
        cleared(rig)
        assert len(client.take()) == 1
    assert len(rig.queues) == 1 + 2 * 11


def test_looking_and_draining_on_and_on_passes_while_memory_is_short(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(throttle, "ALARMED_DEFINITIONS_MAX", 10)
    publisher(rig).publish(1, "q", *[b"%d" % number for number in range(30)])
    raised(rig)
    client = rig.session(channels=1)
    for _ in range(30):
        client.ask(1, m.QueueDeclare("q", passive=True))
        client.ask(1, m.ExchangeDeclare("amq.direct", passive=True))
        client.ask(2, m.ChannelOpen())
        client.send(2, m.BasicGet("q"))
        assert len(client.bodies()) == 1
        client.send(2, m.BasicAck(1))
        client.ask(2, m.ChannelClose())

    assert client.wire.is_reading
    assert depth(rig) == 0


def test_what_a_connection_has_made_is_forgotten_bit_by_bit(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that consumes and cancels in a loop is not held up, one that declares in a flood is."""
    monkeypatch.setattr(throttle, "ALARMED_DEFINITIONS_MAX", 10)
    publisher(rig)
    raised(rig)
    client = rig.session()
    for _ in range(100):
        client.ask(1, m.BasicConsume("q", "t"))
        client.ask(1, m.BasicCancel("t"))
        rig.jump(0.002)
    assert client.wire.is_reading

    client.send(1, *[m.QueueDeclare("q")] * 20)
    assert not client.wire.is_reading


@pytest.mark.parametrize("ids", [spec.EXCHANGE_DECLARE, spec.QUEUE_DECLARE])
def test_a_declaration_that_is_cut_short_is_no_passive_one(rig: Rig, ids: int) -> None:
    client = publisher(rig)
    raised(rig)
    frame = struct.pack(">BHII", 1, 1, 4, ids) + b"\xce"

    client.feed(frame)

    assert type(client.take()[-1]) is m.ConnectionClose


def test_methods_are_counted_for_each_alarm(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttle, "ALARMED_DEFINITIONS_MAX", 10)
    client = publisher(rig)
    for _ in range(3):
        raised(rig)
        for _ in range(10):
            client.ask(1, m.QueueDeclare())
        cleared(rig)

    assert client.wire.is_reading


def test_a_content_behind_the_end_of_a_connection_is_dropped_while_an_alarm_is_raised(
    rig: Rig,
) -> None:
    """It is not held up as in a connection that runs, and would take memory until the time-out."""
    client = publisher(rig)
    (reader,) = rig.node.connections.readers.values()
    client.send(7, m.BasicGet("q"))  # a channel that is not open
    assert type(client.take()[-1]) is m.ConnectionClose
    part = struct.pack(">BHI", BODY, 1, 100_000) + bytes(100_000) + b"\xce"
    header, frame, _ = client.contents(1, ("", "q", bytes(1 << 20), {})).partition(part[:3])
    assert frame
    client.feed(header + 4 * part)
    assert reader.contents_bytes == 400_000
    raised(rig)

    client.feed(part)

    assert reader.contents_bytes == 0
    assert not client.wire.is_reading
    rig.jump(limits.CLOSING_WAIT_S)
    assert not client.is_up
    cleared(rig)
