"""Everything that a connection, channel or queue does because time has passed; on virtual time.

Tests: broker/channel/settlement_timeout.py
"""

from __future__ import annotations

import pytest

from leveret.amqp import methods as m
from leveret.broker.channel.session import Block
from leveret.core import limits
from rigs.broker_rig import HEADER, Client, Rig

HEARTBEAT = b"\x08\x00\x00\x00\x00\x00\x00\xce"
HALF_HOUR_S = 30 * 60.0


# Heartbeats.


def test_heartbeats_go_out_every_half_interval(rig: Rig) -> None:
    client = rig.session(heartbeat_s=1)
    sent = []
    for _ in range(10):
        rig.jump(0.5)
        sent.append(client.take())
        client.feed(HEARTBEAT)

    assert sent[1:] == [["heartbeat"]] * 9  # the first half had the handshake's own frames


def test_who_is_written_to_needs_no_heartbeat(rig: Rig) -> None:
    client = rig.session(heartbeat_s=2)
    rig.jump(1)
    client.take()
    for _ in range(5):
        rig.jump(0.5)
        assert client.ask(1, m.BasicQos(0, 1, False)) == m.BasicQosOk()
        rig.jump(0.5)
        assert client.take() == []


def test_a_silent_client_is_cut_off_between_two_and_three_intervals(rig: Rig) -> None:
    client = rig.session(heartbeat_s=1)
    rig.jump(1.99)
    assert client.is_up
    rig.jump(1.01)

    assert client.wire.state == "aborted"
    assert not rig.node.connections.readers


@pytest.mark.parametrize("heartbeat_s", [1, 7, 60, 600])
def test_any_bytes_keep_a_connection(rig: Rig, heartbeat_s: int) -> None:
    client = rig.session(heartbeat_s=heartbeat_s)
    for _ in range(20):
        rig.jump(heartbeat_s)
        client.feed(HEARTBEAT)
    assert client.is_up


def test_no_heartbeat_is_no_end(rig: Rig) -> None:
    client = rig.session(heartbeat_s=0)
    rig.jump(1_000_000)

    assert client.is_up
    assert client.take() == []


def test_a_client_that_we_do_not_read_from_is_not_cut_off(rig: Rig) -> None:
    client = rig.session(heartbeat_s=1)
    rig.node.connections.readers[client.reader].read_control.block(Block.CREDIT)
    rig.jump(60)

    assert client.is_up


# Before connection.open.


def _nothing(client: Client) -> None:
    """Send nothing."""


def _part_of_header(client: Client) -> None:
    client.feed(HEADER[:5])


def _header(client: Client) -> None:
    client.feed(HEADER)


def _start_ok(client: Client) -> None:
    client.feed(HEADER)
    client.send(0, m.ConnectionStartOk({}, "PLAIN", b"\0guest\0guest"))


def _tune_ok(client: Client) -> None:
    _start_ok(client)
    client.send(0, m.ConnectionTuneOk(10, 131_072, 0))


@pytest.mark.parametrize(
    "stage",
    [_nothing, _part_of_header, _header, _start_ok, _tune_ok],
    ids=["nothing", "part of the header", "header", "start-ok", "tune-ok"],
)
def test_a_handshake_has_ten_seconds(rig: Rig, stage: object) -> None:
    client = rig.client()
    stage(client)  # type: ignore[operator]
    client.take()
    rig.jump(9.9)
    assert client.is_up
    rig.jump(0.2)

    assert not client.is_up
    assert client.take() == []
    assert not client.reader.is_alive


def test_ten_seconds_are_for_all_of_it(rig: Rig) -> None:
    client = rig.client()
    client.feed(HEADER)
    rig.jump(9)
    client.send(0, m.ConnectionStartOk({}, "PLAIN", b"\0guest\0guest"))
    rig.jump(1.1)

    assert not client.is_up


def test_an_open_connection_has_all_the_time(rig: Rig) -> None:
    client = rig.session()
    rig.jump(86_400)

    assert client.is_up


def test_a_refused_client_is_left_without_a_word_for_three_seconds(rig: Rig) -> None:
    client = rig.client()
    client.feed(HEADER)
    client.take()
    client.send(0, m.ConnectionStartOk({}, "PLAIN", b"\0guest\0wrong"))
    rig.jump(2.9)
    assert client.is_up
    rig.jump(0.2)

    assert not client.is_up
    assert client.take() == []


# Closing.


def test_close_ok_is_waited_for_thirty_seconds(rig: Rig) -> None:
    client = rig.session()
    client.send(1, m.ChannelOpen())  # a second one is a connection error
    assert client.take()[0].reply_code == 504
    rig.jump(29.9)
    assert client.is_up
    rig.jump(0.2)

    assert not client.is_up


def test_close_ok_is_not_waited_for_longer_than_a_heartbeat(rig: Rig) -> None:
    client = rig.session(heartbeat_s=10)
    client.send(1, m.ChannelOpen())
    for _ in range(9):
        rig.jump(1)
        client.feed(HEARTBEAT)
    assert client.is_up
    rig.jump(1.1)

    assert not client.is_up


def test_close_ok_ends_the_wait(rig: Rig) -> None:
    client = rig.session()
    client.send(1, m.ChannelOpen())
    client.send(0, m.ConnectionCloseOk())

    assert client.wire.state == "closed"
    assert rig.clock.pending_count == 0


def test_a_client_that_does_not_hang_up_after_our_last_word_is_cut_off(rig: Rig) -> None:
    client = rig.session()
    client.send(0, m.ConnectionClose(200, "bye"))
    assert client.take() == [m.ConnectionCloseOk()]
    rig.jump(limits.CLOSING_WAIT_S - 0.1)
    assert client.wire.state == "open"
    rig.jump(0.2)

    assert client.wire.state == "closed"
    assert not client.reader.is_alive


def test_a_client_of_another_protocol_has_three_seconds_to_hang_up(rig: Rig) -> None:
    client = rig.client()
    client.feed(b"GET / HTTP/1.1\r\n\r\n")
    rig.jump(limits.PART_WAIT_S - 0.1)
    assert client.wire.state == "finished"
    rig.jump(0.2)

    assert client.wire.state == "aborted"
    assert not client.reader.is_alive


# Consumers.


def _unacked(rig: Rig) -> Client:
    client = rig.session()
    client.send(1, m.QueueDeclare("q"), m.BasicConsume("q", "c"))
    client.publish(1, "q", b"a", b"b")
    assert client.bodies() == [b"a", b"b"]
    return client


def test_a_delivery_may_stay_unacknowledged_for_half_an_hour(rig: Rig) -> None:
    client = _unacked(rig)
    rig.jump(HALF_HOUR_S - 1)
    assert client.take() == []
    rig.jump(121)  # it is looked at once a minute
    closed = client.take()[0]

    assert (closed.reply_code, closed.class_id, closed.method_id) == (406, 0, 0)
    assert closed.reply_text == (
        "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out. Timeout value used:"
        " 1800000 ms. This timeout value can be configured, see consumers doc guide to learn more"
    )
    client.send(1, m.ChannelCloseOk())
    client.send(2, m.ChannelOpen(), m.BasicGet("q"))
    assert client.take()[1].redelivered


def test_an_acknowledgement_in_time_starts_the_half_hour_of_the_next(rig: Rig) -> None:
    client = _unacked(rig)
    rig.jump(HALF_HOUR_S - 61)
    client.send(1, m.BasicAck(1, False))
    rig.jump(HALF_HOUR_S - 61)
    assert client.take() == []
    client.send(1, m.BasicAck(2, False))
    rig.jump(10 * HALF_HOUR_S)

    assert client.take() == []
    assert rig.clock.pending_count == 0


def test_no_time_out_when_it_is_switched_off() -> None:
    rig = Rig(consumer_timeout_ms=0)
    client = _unacked(rig)
    rig.jump(100 * HALF_HOUR_S)

    assert client.take() == []


# Queues and messages.


def test_an_unused_queue_expires(rig: Rig) -> None:
    client = rig.session()
    client.ask(1, m.QueueDeclare("q", arguments={"x-expires": ("l", 10_000)}))
    rig.jump(9)
    client.ask(1, m.QueueDeclare("q", passive=True))  # a use
    rig.jump(9)
    assert client.ask(1, m.BasicGet("q")) == m.BasicGetEmpty()  # and another
    rig.jump(9.9)
    assert "q" in rig.queues
    rig.jump(0.2)

    assert "q" not in rig.queues
    assert client.ask(1, m.QueueDeclare("q", passive=True)).reply_code == 404


def test_a_queue_with_consumers_does_not_expire(rig: Rig) -> None:
    client = rig.session()
    client.ask(1, m.QueueDeclare("q", arguments={"x-expires": ("l", 1_000)}))
    client.ask(1, m.BasicConsume("q", "c"))
    rig.jump(60)
    assert "q" in rig.queues
    client.ask(1, m.BasicCancel("c"))
    rig.jump(0.9)
    assert "q" in rig.queues
    rig.jump(0.2)

    assert "q" not in rig.queues


@pytest.mark.parametrize(
    ("queue_ms", "own", "lives_ms"),
    [(1_000, None, 1_000), (None, "1000", 1_000), (500, "1000", 500), (1_000, "500", 500)],
)
def test_messages_live_for_the_shorter_of_their_times(
    rig: Rig, queue_ms: int | None, own: str | None, lives_ms: int
) -> None:
    client = rig.session()
    arguments = {} if queue_ms is None else {"x-message-ttl": ("l", queue_ms)}
    client.ask(1, m.QueueDeclare("q", arguments=arguments))
    client.publish(1, "q", b"a", b"b", expiration=own)
    rig.jump(lives_ms / 1000 - 0.05)
    assert client.ask(1, m.QueueDeclare("q", passive=True)).message_count == 2
    rig.jump(0.1)

    assert client.ask(1, m.QueueDeclare("q", passive=True)).message_count == 0


def test_the_wall_clock_may_jump_without_ending_connections(rig: Rig) -> None:
    client = rig.session(heartbeat_s=1)
    rig.clock.set_wall_s(rig.clock.wall_s() + 86_400)
    rig.jump(0.6)

    assert client.is_up


def test_a_closed_connection_leaves_no_timer(rig: Rig) -> None:
    for _ in range(3):
        client = rig.session(heartbeat_s=1, channels=3)
        client.send(0, m.ConnectionClose(200, "bye"))
        assert client.take() == [m.ConnectionCloseOk()]
        client.protocol.connection_lost(None)

    assert rig.clock.pending_count == 0
    assert not rig.node.connections.readers
    assert not rig.node.sockets.accepted
