"""Direct reply-to on a whole broker without sockets: who waits for whom, and what is kept.

Tests: broker/channel/reply_consumers.py
"""

from __future__ import annotations

import gc
from typing import Any

import pytest

from leveret.amqp import methods as m
from leveret.broker.channel.publishing.replies import STALLED_S
from leveret.broker.channel.reply_consumers import REPLY_TO
from leveret.broker.mail import PEER_ENDED
from leveret.core.limits import UNSENT_BYTES_MAX
from rigs.broker_rig import Client, Rig


def requester(rig: Rig, channels: int = 1) -> tuple[Client, str]:
    """Return a client that consumes replies on its channel 1, and their key."""
    client = rig.session(channels=channels)
    client.ask(1, m.BasicConsume(REPLY_TO, "r", no_ack=True))
    return client, key_of(rig, client)


def key_of(rig: Rig, client: Client) -> str:
    channels = rig.node.connections.readers[client.reader].channels
    key = channels._slots[1].ref.cell.actor.publisher.reply_key
    assert key is not None
    return str(key.decode())


def test_who_does_not_read_stops_those_who_answer_him(rig: Rig) -> None:
    slow, key = requester(rig)
    server = rig.session()
    slow.reads_nothing()

    server.publish(1, key, b"1")
    assert not server.wire.is_reading

    slow.reads_all()
    assert server.wire.is_reading
    server.publish(1, key, b"2")
    assert slow.bodies() == [b"1", b"2"]


def test_what_fits_stops_nobody(rig: Rig) -> None:
    slow, key = requester(rig)
    server = rig.session()
    slow.protocol.pause_writing()
    slow.wire.unread_bytes = UNSENT_BYTES_MAX

    server.publish(1, key, b"1")

    assert server.wire.is_reading


def test_after_a_while_his_replies_are_dropped(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    slow, key = requester(rig)
    quick, other_key = requester(rig)
    server = rig.session()
    slow.reads_nothing()
    server.publish(1, key, b"1")

    rig.jump(STALLED_S + 0.1)

    assert server.wire.is_reading
    server.publish(1, key, b"2")
    server.publish(1, other_key, b"3")
    assert server.wire.is_reading
    assert quick.bodies() == [b"3"]
    said = [each.getMessage() for each in caplog.records]
    assert [each for each in said if each.startswith("replies are dropped")]
    slow.reads_all()
    server.publish(1, key, b"4")
    assert slow.bodies() == [b"1", b"4"]
    slow.reads_nothing()
    server.publish(1, key, b"5")
    assert not server.wire.is_reading


@pytest.mark.parametrize("end", ["hang up", "close channel", "cancel"])
def test_the_end_of_who_does_not_read_ends_the_wait(rig: Rig, end: str) -> None:
    slow, key = requester(rig)
    server = rig.session()
    slow.reads_nothing()
    server.publish(1, key, b"1")
    assert not server.wire.is_reading

    if end == "hang up":
        slow.hang_up()
    elif end == "close channel":
        slow.send(1, m.ChannelClose(200, "", 0, 0))
    else:
        slow.send(1, m.BasicCancel("r"))
        slow.reads_all()

    assert server.wire.is_reading
    server.publish(1, key, b"2")
    assert server.wire.is_reading


def test_one_who_waits_for_several_waits_for_all(rig: Rig) -> None:
    slow = [requester(rig) for _ in range(2)]
    server = rig.session(channels=2)
    for client, _ in slow:
        client.reads_nothing()
    server.feed(
        b"".join(
            server.contents(channel, ("", key, b"%d" % channel, {}))
            for channel, (_, key) in enumerate(slow, 1)
        )
    )
    for client, _ in slow:
        assert not server.wire.is_reading
        client.reads_all()

    assert server.wire.is_reading


def test_the_end_of_one_who_waits(rig: Rig) -> None:
    slow, key = requester(rig)
    server = rig.session(channels=2)
    slow.reads_nothing()
    server.publish(1, key, b"1")

    server.hang_up()
    slow.reads_all()

    assert slow.bodies() == [b"1"]


def test_a_channel_that_answers_itself_may_wait_for_itself(rig: Rig) -> None:
    client, key = requester(rig)
    client.reads_nothing()
    client.publish(1, key, b"1")
    assert not client.wire.is_reading

    client.reads_all()

    assert client.wire.is_reading
    assert client.bodies() == [b"1"]


def test_replies_to_a_busy_channel_count_as_its_deliveries(rig: Rig) -> None:
    client, key = requester(rig)
    server = rig.session()
    gate = rig.node.connections.reply_consumers.find(key.encode()).gate  # type: ignore[union-attr]
    rig.runtime.suspend(gate.channel)  # type: ignore[arg-type]
    size = 100_000
    for _ in range(11):
        server.publish(1, key, bytes(size))
    assert not gate.is_open

    rig.runtime.resume(gate.channel)  # type: ignore[arg-type]
    rig.settle()

    assert gate.is_open
    assert gate.waiting_bytes == 0
    assert sum(len(body) for body in client.bodies()) == 11 * size


def test_a_busy_channel_that_has_much_to_write_stops_the_others(rig: Rig) -> None:
    _, key = requester(rig)
    server = rig.session()
    gate = rig.node.connections.reply_consumers.find(key.encode()).gate  # type: ignore[union-attr]
    rig.runtime.suspend(gate.channel)  # type: ignore[arg-type]
    published = 0
    while server.wire.is_reading and published < 2 * UNSENT_BYTES_MAX:
        server.publish(1, key, bytes(1_000_000))
        published += 1_000_000
    assert UNSENT_BYTES_MAX < published < UNSENT_BYTES_MAX + 3_000_000

    rig.runtime.resume(gate.channel)  # type: ignore[arg-type]
    rig.settle()

    assert server.wire.is_reading


def test_a_reply_that_comes_behind_a_cancel_is_dropped(rig: Rig) -> None:
    """Also if there is another consumer by then, of the same tag."""
    client, key = requester(rig)
    server = rig.session()
    channel = rig.node.connections.readers[client.reader].channels._slots[1].ref
    rig.runtime.suspend(channel)
    client.send(1, m.BasicCancel("r"), m.BasicConsume(REPLY_TO, "r", no_ack=True))
    server.publish(1, key, b"late")

    rig.runtime.resume(channel)
    rig.settle()

    assert client.take() == [m.BasicCancelOk("r"), m.BasicConsumeOk("r")]


def test_a_consumer_is_forgotten_with_its_channel(rig: Rig) -> None:
    found: Any = rig.node.connections.reply_consumers._by_key
    for end in ("close", "cancel", "hang up"):
        client, _ = requester(rig)
        assert len(found) == 1
        if end == "close":
            client.send(1, m.ChannelClose(200, "", 0, 0))
        elif end == "cancel":
            client.send(1, m.BasicCancel("r"))
        else:
            client.hang_up()
        assert len(found) == 0, (end, gc.get_referrers(*found.values()))


def test_requests_of_a_client_that_has_ended_are_published(rig: Rig) -> None:
    """What a client has sent before its end goes on; its replies have nobody."""
    other = rig.session()
    other.ask(1, m.QueueDeclare("q"))
    client, key = requester(rig)
    consumer = rig.node.connections.reply_consumers.find(key.encode())
    assert consumer is not None
    rig.runtime.send(consumer.channel, PEER_ENDED)

    client.publish(1, "q", b"request", reply_to=REPLY_TO)
    other.publish(1, key, b"reply")

    assert client.take() == []
    assert other.ask(1, m.QueueDeclare("q", passive=True)).message_count == 1
