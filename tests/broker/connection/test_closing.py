"""All that a client has sent before its connection.close is handled, whatever its channels are at."""

from __future__ import annotations

import pytest

from leveret.actors.runtime import scheduler
from leveret.actors.runtime.scheduler import SIGNALS_MAX
from leveret.amqp import methods as m
from leveret.broker.channel.consuming import unacked
from leveret.broker.channel.session import Block
from leveret.broker.connection.channel_table import CHANNELS_PER_TURN
from rigs.broker_rig import Client, Rig, durable

UNACKED = 12


def frames(channel: int, *methods: m.Method) -> bytes:
    return b"".join(m.method_frame(channel, m.encode(each)) for each in methods)


CLOSE = frames(0, m.ConnectionClose(200, "", 0, 0))


def ready_of(rig: Rig, name: str) -> int:
    found = rig.session().ask(1, m.QueueDeclare(name, passive=True))
    assert isinstance(found, m.QueueDeclareOk)
    return found.message_count


def come(client: Client, *reads: bytes) -> list[object]:
    """Let reads come right behind one another; return what was answered."""
    for data in reads:
        client.protocol.data_received(data)
    client.rig.settle()
    return client.take()


@pytest.fixture
def consumer(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Client:
    """A client with unsettled deliveries; two of them are settled in a turn."""
    monkeypatch.setattr(unacked, "SETTLED_MAX", 2)
    client = rig.session()
    client.send(1, m.QueueDeclare("q"))
    client.publish(1, "q", *[b"%d" % number for number in range(UNACKED)])
    client.send(1, m.BasicConsume("q", "c"))
    assert len(client.bodies()) == UNACKED
    return client


LONG = [m.BasicAck(8, True), m.BasicNack(8, True, False)]
ACKS = frames(1, *[m.BasicAck(tag, False) for tag in range(9, UNACKED + 1)])


@pytest.mark.parametrize("first", LONG, ids=lambda each: type(each).__name__)
def test_acks_behind_a_settlement_in_slices(rig: Rig, consumer: Client, first: m.Method) -> None:
    assert come(consumer, frames(1, first) + ACKS + CLOSE) == [m.ConnectionCloseOk()]
    assert ready_of(rig, "q") == 0


@pytest.mark.parametrize("first", LONG, ids=lambda each: type(each).__name__)
def test_acks_that_are_read_while_a_settlement_goes_on(
    rig: Rig, consumer: Client, first: m.Method
) -> None:
    assert come(consumer, frames(1, first), ACKS + CLOSE) == [m.ConnectionCloseOk()]
    assert ready_of(rig, "q") == 0


def test_a_purge_behind_a_recover(rig: Rig, consumer: Client) -> None:
    sent = frames(1, m.BasicCancel("c", True), m.BasicRecover(True), m.QueuePurge("q", nowait=True))
    assert come(consumer, sent, CLOSE) == [m.BasicRecoverOk(), m.ConnectionCloseOk()]
    assert ready_of(rig, "q") == 0


def test_methods_without_an_answer(rig: Rig) -> None:
    client = rig.session()
    client.send(1, durable("gone"))
    client.take()
    methods = [
        durable("new", nowait=True),
        m.QueueBind("new", "amq.direct", "k", nowait=True),
        m.QueueDelete("gone", nowait=True),
        m.ExchangeDeclare("x", durable=True, nowait=True),
    ]
    sent = frames(1, *methods) + client.contents(1, ("amq.direct", "k", b"a", {}))

    assert come(client, sent + CLOSE) == [m.ConnectionCloseOk()]
    assert ready_of(rig, "new") == 1
    topology = rig.node.vhosts["/"].topology
    assert "gone" not in topology.queues
    assert "x" in topology.exchanges


def test_the_last_method_waits_for_nothing_but_its_own_end(rig: Rig) -> None:
    client = rig.session()

    assert come(client, frames(1, durable("new", nowait=True)) + CLOSE) == [m.ConnectionCloseOk()]
    assert "new" in rig.queues


def test_a_channel_that_was_only_just_opened(rig: Rig) -> None:
    client = rig.session(channels=0)
    sent = frames(1, m.ChannelOpen(), m.QueueDeclare("q")) + client.contents(1, ("", "q", b"a", {}))

    assert come(client, sent + CLOSE)[-1] == m.ConnectionCloseOk()
    assert ready_of(rig, "q") == 1


def test_a_channel_that_was_only_just_closed_and_opened_again(rig: Rig) -> None:
    client = rig.session()
    again = [m.ChannelClose(200, "", 0, 0), m.ChannelOpen(), m.QueueDeclare("q")]
    sent = frames(1, *again) + client.contents(1, ("", "q", b"a", {}))
    answers = come(client, sent + CLOSE)

    assert answers[0] == m.ChannelCloseOk()
    assert answers[-1] == m.ConnectionCloseOk()
    assert ready_of(rig, "q") == 1


def test_more_channels_than_a_turn_takes_are_all_waited_for(rig: Rig) -> None:
    count = 2 * CHANNELS_PER_TURN + 50
    client = rig.session(channels=count)
    last = [frames(n, m.QueueDeclare(f"q{n}", nowait=True)) for n in range(count, 0, -1)]
    ended = frames(3, m.ChannelClose(200, "", 0, 0))

    assert come(client, b"".join(last) + ended + CLOSE)[-1] == m.ConnectionCloseOk()
    assert len(rig.queues) == count


def test_channels_that_have_ended_or_failed_hold_nothing_up(rig: Rig) -> None:
    client = rig.session(channels=3)
    client.send(2, m.BasicAck(1, True))
    assert [type(each) for each in client.take()] == [m.ChannelClose]
    sent = frames(3, m.ChannelClose(200, "", 0, 0))

    assert come(client, sent + CLOSE) == [m.ChannelCloseOk(), m.ConnectionCloseOk()]


def test_an_error_before_the_close_closes_the_connection(rig: Rig, consumer: Client) -> None:
    bad = m.BasicPublish("", "q", immediate=True)
    sent = frames(1, m.BasicAck(8, True)) + consumer.contents(1, ("", "q", b"", {}))
    broken = sent.replace(m.encode(m.BasicPublish("", "q")), m.encode(bad))

    assert broken != sent
    (answer,) = come(consumer, broken + CLOSE)
    assert answer.reply_code == 540


def test_nothing_behind_the_close_counts_but_another_close(rig: Rig) -> None:
    client = rig.session()
    sent = frames(1, m.QueueDeclare("q", nowait=True))

    assert come(client, CLOSE + sent + CLOSE) == [m.ConnectionCloseOk()] * 2
    assert "q" not in rig.queues


def test_nothing_is_read_while_channels_come_to_the_close(rig: Rig, consumer: Client) -> None:
    blocks = rig.node.connections.readers[consumer.reader].read_control
    consumer.protocol.data_received(frames(1, LONG[0]) + CLOSE)

    assert not consumer.wire.is_reading
    assert Block.ENDING in blocks.blocks


def test_a_client_that_ends_meanwhile(rig: Rig, consumer: Client) -> None:
    consumer.protocol.data_received(frames(1, LONG[0]) + ACKS + CLOSE)
    consumer.hang_up()

    assert not consumer.reader.is_alive


def test_the_answer_comes_when_the_queues_of_very_many_consumers_have_been_told(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, other = rig.session(), rig.session()
    names = [f"q{number}" for number in range(2 * SIGNALS_MAX)]
    for name in names:
        client.send(1, m.QueueDeclare(name), m.BasicConsume(name, exclusive=True))
        client.publish(1, name, b"x")
    client.take()
    monkeypatch.setattr(scheduler, "DRAIN_S", -1.0)  # as if each turn were long

    client.protocol.data_received(CLOSE)
    while not client.wire.out:
        rig.runtime.drain()

    assert client.take() == [m.ConnectionCloseOk()]
    other.send(1, m.BasicConsume(names[-1], "c", exclusive=True))
    assert other.take()[::2] == [m.BasicConsumeOk("c"), b"x"]
