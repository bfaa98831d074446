"""Channel numbers: opened, closed, opened again; also within one read."""

from __future__ import annotations

import pytest

from leveret.amqp import methods as m
from leveret.amqp.kernel import Run
from leveret.broker.connection import channel_table
from leveret.broker.connection.channel_table import FORGOTTEN_AT_ONCE, ChannelTable
from leveret.metadata.tables import UserRow
from rigs.broker_rig import Client, Rig


def frames(channel: int, *methods: m.Method) -> bytes:
    return b"".join(m.method_frame(channel, m.encode(each)) for each in methods)


def slots(rig: Rig, client: Client) -> object:
    return rig.node.connections.readers[client.reader].channels


@pytest.fixture
def client(rig: Rig) -> Client:
    return rig.session(channels=0)


def test_open_use_and_close_may_come_in_one_read(rig: Rig, client: Client) -> None:
    client.feed(frames(1, m.ChannelOpen(), m.QueueDeclare("q"), m.ChannelClose(200, "done")))

    assert client.take() == [m.ChannelOpenOk(), m.QueueDeclareOk("q", 0, 0), m.ChannelCloseOk()]
    assert len(rig.node.connections.readers[client.reader].channels) == 0


def test_a_number_may_be_closed_and_opened_again_in_one_read(rig: Rig, client: Client) -> None:
    again = [m.ChannelOpen(), m.ChannelClose(200, "again")]
    client.feed(frames(1, *again * 5, m.ChannelOpen(), m.BasicQos(0, 1, False)))

    expected = [m.ChannelOpenOk(), m.ChannelCloseOk()] * 5 + [m.ChannelOpenOk(), m.BasicQosOk()]
    assert client.take() == expected
    assert len(rig.node.connections.readers[client.reader].channels) == 1


def test_channels_of_one_read_keep_their_order(client: Client) -> None:
    client.feed(
        frames(1, m.ChannelOpen())
        + frames(2, m.ChannelOpen())
        + frames(1, m.QueueDeclare("a"))
        + frames(2, m.QueueDeclare("b"))
        + frames(1, m.ChannelClose(200, ""))
        + frames(2, m.QueueDelete("b"))
    )
    said = client.take()

    assert said.count(m.ChannelOpenOk()) == 2
    assert said.index(m.QueueDeclareOk("a", 0, 0)) < said.index(m.ChannelCloseOk())
    assert said.index(m.QueueDeclareOk("b", 0, 0)) < said.index(m.QueueDeleteOk(0))


def test_after_a_channel_error_the_number_is_free_with_close_ok(client: Client) -> None:
    client.feed(frames(1, m.ChannelOpen(), m.QueueDeclare("none", passive=True)))
    opened, closed = client.take()
    assert (opened, closed.reply_code) == (m.ChannelOpenOk(), 404)
    client.feed(frames(1, m.QueueDeclare("ignored"), m.ChannelCloseOk(), m.ChannelOpen()))

    assert client.take() == [m.ChannelOpenOk()]


def test_closes_that_cross_are_both_answered(client: Client) -> None:
    client.feed(frames(1, m.ChannelOpen(), m.QueueDeclare("none", passive=True)))
    client.take()
    client.feed(frames(1, m.ChannelClose(200, "crossing")))
    assert client.take() == [m.ChannelCloseOk()]
    client.feed(frames(1, m.ChannelCloseOk(), m.ChannelOpen()))

    assert client.take() == [m.ChannelOpenOk()]


CROSSING = m.ChannelClose(200, "crossing")
OPEN_WAS_DUE = "CHANNEL_ERROR - expected 'channel.open'"


@pytest.mark.parametrize("is_one_read", [True, False])
@pytest.mark.parametrize("closes_as_well", [True, False])
@pytest.mark.parametrize(
    "behind", [m.BasicAck(1, False), m.QueueDeclare("q"), CROSSING, m.ChannelCloseOk()]
)
def test_behind_close_ok_the_number_must_be_opened_again(
    client: Client, behind: m.Method, closes_as_well: bool, is_one_read: bool
) -> None:
    client.feed(frames(1, m.ChannelOpen(), m.QueueDeclare("none", passive=True)))
    client.take()
    sent = [CROSSING] * closes_as_well + [m.ChannelCloseOk(), behind]
    for part in [sent] if is_one_read else [[each] for each in sent]:
        client.feed(frames(1, *part))
    *answers, closed = client.take()

    assert answers == [m.ChannelCloseOk()] * closes_as_well
    assert (closed.reply_code, closed.reply_text) == (504, OPEN_WAS_DUE)
    assert closed.class_id << 16 | closed.method_id == behind.IDS


@pytest.mark.parametrize("closes_as_well", [True, False])
def test_connection_close_behind_close_ok_is_answered(client: Client, closes_as_well: bool) -> None:
    client.feed(frames(1, m.ChannelOpen(), m.QueueDeclare("none", passive=True)))
    client.take()
    sent = frames(1, *[CROSSING] * closes_as_well, m.ChannelCloseOk())
    client.feed(sent + frames(0, m.ConnectionClose(200, "bye")))

    assert client.take() == [m.ChannelCloseOk()] * closes_as_well + [m.ConnectionCloseOk()]


def test_close_ok_behind_close_frees_the_number(client: Client) -> None:
    client.feed(frames(1, m.ChannelOpen(), CROSSING, m.QueueDeclare("lost"), m.ChannelCloseOk()))
    assert client.take() == [m.ChannelOpenOk(), m.ChannelCloseOk()]

    client.feed(frames(1, m.ChannelOpen(), CROSSING, m.ChannelCloseOk(), m.QueueDeclare("late")))
    *_, closed = client.take()

    assert (closed.reply_code, closed.reply_text) == (504, OPEN_WAS_DUE)


@pytest.mark.parametrize(
    ("sent", "code", "text", "ids"),
    [
        ([m.QueueDeclare("q")], 504, "CHANNEL_ERROR - expected 'channel.open'", (50, 10)),
        ([m.ChannelClose(200, "")], 504, "CHANNEL_ERROR - expected 'channel.open'", (20, 40)),
        ([m.BasicAck(1, False)], 504, "CHANNEL_ERROR - expected 'channel.open'", (60, 80)),
        (
            [m.ChannelOpen(), m.ChannelOpen()],
            504,
            "CHANNEL_ERROR - second 'channel.open' seen",
            (20, 10),
        ),
    ],
)
def test_numbers_used_out_of_order_close_the_connection(
    client: Client, sent: list[m.Method], code: int, text: str, ids: tuple[int, int]
) -> None:
    client.feed(frames(7, *sent))
    closed = client.take()[-1]

    assert (closed.reply_code, closed.reply_text) == (code, text)
    assert (closed.class_id, closed.method_id) == ids


@pytest.mark.parametrize("sent_before", [0, 2])
def test_more_channels_than_agreed_close_the_connection(sent_before: int) -> None:
    rig = Rig(channel_max=2)
    client = rig.client()
    client.feed(b"AMQP\0\0\x09\x01")
    client.send(
        0,
        m.ConnectionStartOk({}, "PLAIN", b"\0guest\0guest"),
        m.ConnectionTuneOk(2, 131_072, 0),
        m.ConnectionOpen("/"),
    )
    for number in (1, 2):
        client.send(number, m.ChannelOpen())
    for _ in range(sent_before):  # a number that is free again counts no more
        client.send(2, m.ChannelClose(200, ""), m.ChannelOpen())
    client.take()
    client.send(3, m.ChannelOpen())
    (closed,) = client.take()

    assert closed.reply_code == 530
    assert closed.reply_text == (
        "NOT_ALLOWED - number of channels opened (2) has reached the negotiated channel_max (2)"
    )


def test_limits_of_the_node_and_of_the_user() -> None:
    rig = Rig(connection_channels_max=1)
    client = rig.session()
    client.send(2, m.ChannelOpen())
    assert "maximum allowed limit of (1)" in client.take()[0].reply_text

    rig = Rig()
    guest = rig.node.access.users["guest"].row
    rig.node.access.put(UserRow("guest", guest.password_hash, limits={"max-channels": 1}))
    client = rig.session()
    client.send(2, m.ChannelOpen())
    assert "maximum allowed user limit of (1)" in client.take()[0].reply_text


def test_a_channel_that_is_killed_takes_its_connection_along(rig: Rig, client: Client) -> None:
    client.send(1, m.ChannelOpen())
    client.take()
    channel = rig.node.connections.readers[client.reader].channels._slots[1].ref
    assert channel is not None
    rig.runtime.exit(channel, "kill")
    rig.settle()
    (closed,) = client.take()

    assert (closed.reply_code, closed.class_id, closed.method_id) == (541, 0, 0)
    client.send(0, m.ConnectionCloseOk())
    assert client.wire.state == "closed"


def test_queues_pause_while_the_transport_is_full(rig: Rig, client: Client) -> None:
    client.feed(frames(1, m.ChannelOpen(), m.QueueDeclare("q"), m.BasicConsume("q", "c")))
    client.take()
    client.protocol.pause_writing()
    client.publish(1, "q", b"a", b"b")
    assert client.bodies() == []
    client.protocol.resume_writing()
    rig.settle()

    assert client.bodies() == [b"a", b"b"]


def test_content_for_a_channel_that_is_not_open_is_not_waited_for(client: Client) -> None:
    client.feed(frames(9, m.BasicPublish("", "q")))
    (closed,) = client.take()

    assert (closed.reply_code, closed.class_id, closed.method_id) == (504, 60, 40)


def test_content_right_behind_close_ok_is_not_waited_for(client: Client) -> None:
    client.feed(frames(1, m.ChannelOpen(), m.QueueDeclare("none", passive=True)))
    client.take()
    client.feed(frames(1, m.ChannelCloseOk(), m.BasicPublish("", "q")))
    (closed,) = client.take()

    assert (closed.reply_code, closed.class_id, closed.method_id) == (504, 60, 40)


def test_costly_methods_of_many_channels_are_several_turns(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel_table, "HAND_OVER_S", 0.0)  # over at the second look at the clock
    left: list[int] = []
    hand_over_all = ChannelTable.hand_over_all

    def spied(self: ChannelTable, runs: list[Run]) -> list[Run]:
        rest = hand_over_all(self, runs)
        left.append(len(rest))
        return rest

    numbers = range(1, 61)
    client.feed(b"".join(frames(number, m.ChannelOpen()) for number in numbers))
    client.take()
    monkeypatch.setattr(ChannelTable, "hand_over_all", spied)
    client.feed(b"".join(frames(number, m.BasicQos(0, 1, False)) for number in numbers))

    assert client.take() == [m.BasicQosOk()] * 60
    assert len(left) > 3
    assert left == sorted(left, reverse=True)
    assert left[-1] == 0


def test_the_channels_of_a_dropped_connection_are_forgotten_in_turns(rig: Rig) -> None:
    client = rig.session(channels=FORGOTTEN_AT_ONCE + 50)
    table = rig.node.connections.readers[client.reader].channels
    client.protocol.connection_lost(None)

    assert len(table) == 50
    rig.settle()
    assert len(table) == 0
    assert rig.node.connections.channel_count == 0
