"""Exchanges of the type ``x-delayed-message`` and their delay queues, which no client can use.

Tests: broker/vhost/exchange_declare.py
"""

from __future__ import annotations

from typing import Any

import pytest

from leveret.amqp import methods as m
from leveret.amqp.tables import Table
from leveret.routing.delayed import DELAYED, queue_of
from rigs.broker_rig import Client, FullDisk, Rig, stored

DIRECT: Table = {"x-delayed-type": ("S", b"direct")}
NAME = queue_of("x")


def delayed(name: str = "x", **more: Any) -> m.ExchangeDeclare:
    return m.ExchangeDeclare(name, DELAYED, arguments=DIRECT, **more)


@pytest.fixture
def client(rig: Rig) -> Client:
    return rig.session(channels=2)


def publish(client: Client, delay_ms: int, body: bytes = b"m", exchange: str = "x") -> None:
    headers: Table = {"x-delay": ("l", delay_ms)}
    client.publish(1, "k", body, exchange=exchange, headers=headers)


def consume(client: Client) -> None:
    client.ask(1, m.QueueDeclare("q"))
    client.ask(1, m.QueueBind("q", "x", "k"))
    client.ask(1, m.BasicConsume("q", "c", no_ack=True))


def test_messages_wait_in_a_queue_of_the_exchange(rig: Rig, client: Client) -> None:
    client.ask(1, delayed())
    consume(client)

    publish(client, 2_000)
    publish(client, 1_000, b"first")
    rig.jump(0.9)
    assert client.bodies() == []
    rig.jump(0.2)
    assert client.bodies() == [b"first"]
    rig.jump(1)
    assert client.bodies() == [b"m"]


def test_a_mandatory_message_that_is_delayed_is_not_returned(client: Client, rig: Rig) -> None:
    client.ask(1, delayed())
    client.ask(1, m.ConfirmSelect())

    headers: Table = {"x-delay": ("I", 10)}
    client.publish(1, "k", b"m", exchange="x", mandatory=True, headers=headers)

    assert client.take() == [m.BasicAck(1)]
    rig.jump(1)
    assert client.take() == []


@pytest.mark.parametrize(
    "method",
    [
        m.BasicConsume(NAME, "c"),
        m.BasicGet(NAME),
        m.QueueDelete(NAME),
        m.QueuePurge(NAME),
        m.QueueBind(NAME, "amq.fanout", ""),
        m.QueueUnbind(NAME, "amq.fanout", ""),
        m.QueueDeclare(NAME, passive=True),
    ],
    ids=lambda method: method.NAME,
)
def test_no_client_can_use_a_delay_queue(client: Client, method: m.Method) -> None:
    client.ask(1, delayed())
    client.ask(1, m.ExchangeDeclare("other", "fanout"))

    client.send(1, method)
    (answer,) = client.take()

    if isinstance(method, m.QueueUnbind):
        assert isinstance(answer, m.QueueUnbindOk)  # there is no such binding
    else:
        assert (answer.reply_code, answer.reply_text.partition(" -")[0]) == (405, "RESOURCE_LOCKED")


def test_no_client_can_declare_one_or_publish_to_it(client: Client, rig: Rig) -> None:
    client.ask(1, delayed())
    consume(client)

    client.publish(1, NAME, b"m")
    client.publish(1, "q", b"seen", headers={"CC": ("A", [("S", NAME.encode())])})
    rig.jump(1)
    assert client.bodies() == [b"seen"]
    client.send(1, m.QueueDeclare(NAME, durable=True))
    assert client.take()[0].reply_code == 403


def test_the_rows_of_exchange_and_queue_go_together(rig: Rig, client: Client) -> None:
    client.ask(1, delayed(durable=True))
    assert stored(rig.store) == {"exchange x", f"queue {NAME}"}

    client.ask(1, m.ExchangeDelete("x"))
    rig.settle()
    assert stored(rig.store) == set()
    assert rig.queues == {}


def test_an_auto_delete_exchange_takes_its_queue_along(rig: Rig, client: Client) -> None:
    client.ask(1, delayed(auto_delete=True))
    client.ask(1, m.QueueDeclare("q"))
    client.ask(1, m.QueueBind("q", "x", "k"))
    client.ask(1, m.QueueDelete("q"))
    rig.settle()

    assert rig.queues == {}


def test_an_exchange_that_is_declared_again_gets_what_waits(rig: Rig, client: Client) -> None:
    client.ask(1, delayed())
    publish(client, 1_000)
    client.ask(1, m.ExchangeDelete("x"))
    assert set(rig.queues) == {NAME}

    client.ask(1, delayed(durable=True))
    consume(client)
    publish(client, 500, b"new")
    assert client.bodies() == []
    rig.jump(2)

    assert client.bodies() == [b"new", b"m"]
    client.ask(1, m.ExchangeDelete("x"))
    rig.settle()
    assert set(rig.queues) == {"q"}


def test_what_waits_for_a_deleted_exchange_is_dropped_when_it_is_due(
    rig: Rig, client: Client
) -> None:
    client.ask(1, delayed())
    publish(client, 1_000)
    client.ask(1, m.ExchangeDelete("x"))

    rig.jump(2)

    assert rig.queues == {}
    assert stored(rig.store) == set()


def test_an_exchange_whose_queue_cannot_be_written_is_not_declared(rig: Rig) -> None:
    store = FullDisk(lambda run: rig.clock.call_later(0, run))
    rig.node.metadata.store = store
    client = rig.session()
    store.is_full = True

    client.send(1, delayed())

    assert client.take()[0].reply_code == 541
    rig.settle()
    assert rig.queues == {}
    assert "x" not in rig.node.vhosts["/"].topology.exchanges


def test_two_clients_declare_the_same(rig: Rig, client: Client) -> None:
    other = rig.session()
    client.send(1, delayed(durable=True))
    other.send(1, delayed(durable=True))
    rig.settle()

    assert client.take() == other.take() == [m.ExchangeDeclareOk()]
    assert set(rig.queues) == {NAME}


def test_transient_messages_are_kept_like_persistent_ones(rig: Rig, client: Client) -> None:
    vhost = rig.node.vhosts["/"]
    client.ask(1, delayed())

    assert vhost.features.persisting_queues == 1
    client.ask(1, m.ExchangeDelete("x"))
    rig.settle()
    assert vhost.features.persisting_queues == 0


def test_policies_do_not_apply_to_delay_queues(rig: Rig, client: Client) -> None:
    client.ask(1, delayed())

    assert rig.queues[NAME].applied.policy is None


def test_a_client_that_ends_amid_a_declaration_leaves_no_exchange_without_its_queue(
    rig: Rig, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []
    monkeypatch.setattr(rig.store, "_deliver", told.append)
    client.send(1, delayed())
    client.hang_up()
    for tell in told:
        tell()
    rig.settle()

    assert "x" not in rig.node.vhosts["/"].topology.exchanges
    assert rig.queues == {}
