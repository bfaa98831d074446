"""Publishing: credit towards queues, returns, confirms; on a whole broker without sockets.

Tests: broker/channel/publishing/batch.py, broker/channel/publishing/credit_flow.py,
    broker/channel/publishing/message_route.py
"""

from __future__ import annotations

from typing import Any

import pytest

from leveret.actors.runtime.ref import Ref
from leveret.amqp import methods as m
from leveret.broker.mail import CreditGrant
from leveret.broker.queue.publishers.publishers import CROWD, CROWDED_S, IDLE_S
from leveret.broker.vhost.metadata.metadata_writer import METADATA_SERVER
from leveret.core.limits import CREDIT_BYTES, CREDIT_MESSAGES
from rigs.broker_rig import Client, Rig

CC = ("A", [("S", b"new")])


@pytest.fixture
def client(rig: Rig) -> Client:
    client = rig.session(channels=2)
    client.ask(1, m.QueueDeclare("q"))
    return client


def queue(rig: Rig, name: str = "q") -> Ref:
    ref: Ref = rig.queues[name].ref
    return ref


def test_a_queue_that_takes_nothing_in_stops_the_connection(rig: Rig, client: Client) -> None:
    rig.runtime.suspend(queue(rig))
    client.publish(1, "q", *[b""] * (CREDIT_MESSAGES[0] - 1))
    assert client.wire.is_reading
    client.publish(1, "q", b"")
    assert not client.wire.is_reading
    rig.runtime.resume(queue(rig))
    rig.settle()

    assert client.wire.is_reading
    assert client.ask(1, m.QueueDeclare("q", passive=True)).message_count == CREDIT_MESSAGES[0]


def test_bytes_are_counted_as_messages_are(rig: Rig, client: Client) -> None:
    rig.runtime.suspend(queue(rig))
    piece = b"x" * 100_000
    for _ in range(CREDIT_BYTES[0] // len(piece)):
        assert client.wire.is_reading
        client.publish(1, "q", piece)
    client.publish(1, "q", piece)
    assert not client.wire.is_reading
    rig.runtime.resume(queue(rig))
    rig.settle()

    assert client.wire.is_reading


def test_headers_count_as_bodies_do(rig: Rig, client: Client) -> None:
    rig.runtime.suspend(queue(rig))
    headers = {"wide": ("S", b"x" * 100_000)}
    for _ in range(CREDIT_BYTES[0] // 100_100):
        assert client.wire.is_reading
        client.publish(1, "q", b"", headers=headers)
    client.publish(1, "q", b"", headers=headers)
    assert not client.wire.is_reading
    rig.runtime.resume(queue(rig))
    rig.settle()

    assert client.wire.is_reading


def test_every_queue_that_lags_must_catch_up(rig: Rig, client: Client) -> None:
    client.ask(1, m.QueueDeclare("other"))
    for name in ("q", "other"):
        client.ask(1, m.QueueBind(name, "amq.fanout", ""))
        rig.runtime.suspend(queue(rig, name))
    client.publish(1, "", *[b""] * CREDIT_MESSAGES[0], exchange="amq.fanout")
    assert not client.wire.is_reading
    for name, reads in (("q", False), ("other", True)):
        rig.runtime.resume(queue(rig, name))
        rig.settle()
        assert client.wire.is_reading is reads


@pytest.mark.parametrize("reason", ["kill", "crashed"])
def test_a_queue_that_dies_takes_its_credit_along(rig: Rig, client: Client, reason: str) -> None:
    before = queue(rig)
    rig.runtime.suspend(before)
    client.publish(1, "q", *[b""] * CREDIT_MESSAGES[0])
    assert not client.wire.is_reading
    rig.runtime.exit(before, reason)
    rig.settle()

    assert client.wire.is_reading
    assert queue(rig) is not before
    client.publish(1, "q", b"goes on")
    assert client.ask(1, m.QueueDeclare("q", passive=True)).message_count == 1


def test_a_channel_that_is_killed_does_not_block_its_connections_end(
    rig: Rig, client: Client
) -> None:
    rig.runtime.suspend(queue(rig))
    client.publish(1, "q", *[b""] * CREDIT_MESSAGES[0])
    reader = rig.node.connections.readers[client.reader]
    assert reader.read_control.is_blocked
    channel = reader.channels._slots[1].ref
    assert channel is not None
    rig.runtime.exit(channel, "kill")
    rig.settle()

    assert client.take()[0].reply_code == 541
    assert client.wire.is_reading
    client.send(0, m.ConnectionCloseOk())
    assert client.wire.state == "closed"


def test_a_grant_of_a_queue_that_was_not_published_to_is_harmless(rig: Rig, client: Client) -> None:
    reader = rig.node.connections.readers[client.reader]
    channel = reader.channels._slots[1].ref
    assert channel is not None
    rig.runtime.send(channel, CreditGrant(queue(rig), 5, 5))
    rig.settle()

    assert client.ask(1, m.BasicQos(0, 0, False)) == m.BasicQosOk()


def test_one_channels_lag_is_not_anothers_credit(rig: Rig, client: Client) -> None:
    rig.runtime.suspend(queue(rig))
    client.publish(1, "q", *[b""] * (CREDIT_MESSAGES[0] - 1))
    client.publish(2, "q", *[b""] * (CREDIT_MESSAGES[0] - 1))
    assert client.wire.is_reading
    client.publish(2, "q", b"")

    assert not client.wire.is_reading


def publisher_of(rig: Rig, client: Client, number: int = 1) -> Any:
    ref = rig.node.connections.readers[client.reader].channels._slots[number].ref
    assert ref is not None
    return ref.cell.actor


def accounts(rig: Rig, *names: str) -> list[int]:
    """How many channels each queue keeps an account for."""
    publishers = [queue(rig, name).cell.actor.publishers for name in names]
    return [0 if each is None else each.account_count() for each in publishers]


@pytest.mark.parametrize("has_confirms", [False, True])
def test_channels_and_queues_forget_each_other_when_nothing_was_published_for_a_while(
    rig: Rig, client: Client, has_confirms: bool
) -> None:
    names = [f"q{number}" for number in range(20)]
    for name in names:
        client.ask(1, m.QueueDeclare(name))
        client.ask(1, m.QueueBind(name, "amq.fanout", ""))
    for number in (1, 2):
        if has_confirms:
            client.send(number, m.ConfirmSelect())
        client.publish(number, "", b"x", exchange="amq.fanout")
    assert accounts(rig, *names) == [2] * 20

    rig.jump(2 * IDLE_S + 1)

    assert accounts(rig, *names) == [0] * 20
    for number in (1, 2):
        channel = publisher_of(rig, client, number)
        assert not channel.publisher.credit.accounts
        assert not channel._watched
        assert channel.ref.cell.monitors is None
        assert not has_confirms or not channel.publisher.confirms._owed
    assert all(queue(rig, name).cell.timers is None for name in names)


def test_an_account_in_use_stays_and_one_beside_it_is_closed(rig: Rig, client: Client) -> None:
    client.publish(1, "q", b"x")
    client.publish(2, "q", b"x")
    for _ in range(5):
        client.publish(1, "q", b"x")
        rig.jump(IDLE_S - 1)

    assert accounts(rig, "q") == [1]
    assert publisher_of(rig, client, 1).publisher.credit.accounts
    assert not publisher_of(rig, client, 2).publisher.credit.accounts


def test_a_queue_with_many_accounts_closes_them_soon(rig: Rig) -> None:
    client = rig.session(channels=200)
    client.ask(1, m.QueueDeclare("q"))
    most = 0
    for number in range(1, 201):
        client.publish(number, "q", b"x")
        rig.jump(0.1)
        most = max(most, *accounts(rig, "q"))

    assert most <= CROWD + 2 * CROWDED_S / 0.1 + 1
    rig.jump(2 * IDLE_S + 2 * CROWDED_S)
    assert accounts(rig, "q") == [0]
    assert not any(publisher_of(rig, client, n)._watched for n in range(1, 201))


def test_what_was_under_way_when_an_account_was_closed_still_counts(
    rig: Rig, client: Client
) -> None:
    channel = publisher_of(rig, client)
    client.publish(1, "q", b"x")
    rig.runtime.suspend(channel.ref)  # the grant waits in its mailbox
    rig.jump(2 * IDLE_S + 1)
    rig.runtime.suspend(queue(rig))
    rig.runtime.resume(channel.ref)
    rig.settle()
    client.publish(1, "q", *[b"x"] * CREDIT_MESSAGES[0])
    assert not client.wire.is_reading

    rig.runtime.resume(queue(rig))
    rig.settle()
    assert client.wire.is_reading


def test_a_channel_waits_for_confirms_of_a_queue_that_ends_however_long_it_takes(
    rig: Rig, client: Client
) -> None:
    client.ask(1, m.ConfirmSelect())
    before = queue(rig)
    rig.runtime.suspend(before)
    client.publish(1, "q", b"x")
    rig.jump(3 * IDLE_S)
    rig.runtime.exit(before, "kill")
    rig.settle()

    assert [type(each) for each in client.take()] == [m.BasicNack]


def test_accounts_of_channels_that_have_ended_are_dropped(rig: Rig, client: Client) -> None:
    for number in (1, 2):
        client.publish(number, "q", b"x")
    client.hang_up()
    assert accounts(rig, "q") == [2]
    rig.jump(IDLE_S)

    assert accounts(rig, "q") == [0]


# Confirms and returns.


def test_confirms_of_a_batch_come_as_one(client: Client) -> None:
    client.ask(1, m.ConfirmSelect())
    client.publish(1, "q", *[b"x"] * 100)
    client.publish(1, "q", b"y")

    assert sum(_confirmed(client)) == 101
    client.publish(1, "nowhere", b"z")
    assert client.take() == [m.BasicAck(102, False)]


def _confirmed(client: Client) -> list[int]:
    last, counts = 0, []
    for ack in client.take():
        counts.append(ack.delivery_tag - last if ack.multiple else 1)
        last = ack.delivery_tag
    return counts


def test_a_return_comes_before_its_confirm(client: Client) -> None:
    client.ask(1, m.ConfirmSelect())
    client.publish(1, "nowhere", b"body", mandatory=True)
    returned, body, ack = client.take()

    assert (returned.reply_code, returned.reply_text) == (312, "NO_ROUTE")
    assert (returned.exchange, returned.routing_key) == ("", "nowhere")
    assert (body, ack) == (b"body", m.BasicAck(1, False))


def test_what_a_queue_has_not_confirmed_when_it_dies_is_refused(rig: Rig, client: Client) -> None:
    client.ask(1, m.ConfirmSelect())
    rig.runtime.suspend(queue(rig))
    client.publish(1, "q", b"a", b"b")
    assert client.take() == []
    rig.runtime.exit(queue(rig), "kill")
    rig.settle()
    refused = client.take()

    assert [type(each) for each in refused] in ([m.BasicNack], [m.BasicNack] * 2)
    assert refused[-1].delivery_tag == 2


def test_what_a_deleted_queue_has_not_taken_in_is_confirmed(rig: Rig, client: Client) -> None:
    client.ask(1, m.ConfirmSelect())
    rig.runtime.suspend(queue(rig))
    client.send(2, m.QueueDelete("q"))
    client.publish(1, "q", b"a", b"b")
    rig.runtime.resume(queue(rig))
    rig.settle()
    said = client.take()

    assert m.QueueDeleteOk(0) in said
    acks = [each for each in said if isinstance(each, m.BasicAck)]
    assert acks[-1].delivery_tag == 2


def test_the_messages_before_an_offender_are_published(client: Client) -> None:
    client.publish(1, "q", b"a", expiration="1000000")
    client.publish(1, "q", b"b", expiration="no number")
    closed = client.take()[0]

    assert (closed.reply_code, closed.class_id, closed.method_id) == (406, 60, 40)
    assert client.ask(2, m.QueueDeclare("q", passive=True)).message_count == 1


def test_a_queue_that_is_being_declared_is_not_there_yet(rig: Rig, client: Client) -> None:
    client.ask(2, m.ConfirmSelect())
    other = rig.session()
    server = rig.runtime.whereis(METADATA_SERVER)
    assert server is not None
    rig.runtime.suspend(server)
    other.send(1, m.QueueDeclare("new", durable=True))
    client.publish(2, "new", b"dropped")
    client.publish(2, "new", b"back", mandatory=True)
    client.publish(2, "q", b"one of two queues", headers={"CC": CC})
    answers = [each for each in client.take() if type(each) is not bytes]
    rig.runtime.resume(server)
    rig.settle()

    assert [type(each) for each in answers] == [m.BasicAck, m.BasicReturn, m.BasicAck, m.BasicAck]
    assert other.take() == [m.QueueDeclareOk("new", 0, 0)]
    assert rig.session().ask(1, m.QueueDeclare("q", passive=True)).message_count == 1


def test_a_mail_that_waits_takes_in_no_messages_with_a_time_to_live(
    rig: Rig, client: Client
) -> None:
    rig.runtime.suspend(queue(rig))
    for body, properties in ((b"a", {}), (b"gone", {"expiration": "1000"}), (b"b", {}), (b"c", {})):
        client.publish(1, "q", body, **properties)
    rig.runtime.resume(queue(rig))
    rig.settle()
    rig.jump(2)
    client.send(1, m.BasicConsume("q", "c", no_ack=True))

    assert client.bodies() == [b"a", b"b", b"c"]


def test_a_queue_that_is_being_declared_is_bound_when_it_is_there(rig: Rig, client: Client) -> None:
    other = rig.session()
    server = rig.runtime.whereis(METADATA_SERVER)
    assert server is not None
    rig.runtime.suspend(server)
    other.send(1, m.QueueDeclare("new", durable=True))
    client.ask(2, m.ExchangeDeclare("x", "fanout"))
    client.send(1, m.QueueBind("new", "x", ""))
    assert client.take() == []
    rig.runtime.resume(server)
    rig.settle()

    assert client.take() == [m.QueueBindOk()]
