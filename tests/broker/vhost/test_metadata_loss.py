"""Disks that refuse for a while, and clients that end while their change waits to be written.

Tests: broker/vhost/metadata/metadata_server.py, broker/vhost/metadata/metadata_writer.py,
    broker/vhost/metadata/pending_writes.py, broker/vhost/vhost.py
"""

from __future__ import annotations

from typing import Any

import pytest

from leveret.amqp import methods as m
from leveret.broker.vhost.metadata.metadata_writer import METADATA_SERVER
from rigs.broker_rig import Client, FullDisk, Rig, durable, stored


@pytest.fixture
def store(rig: Rig) -> FullDisk:
    rig.node.metadata.store = FullDisk(lambda run: rig.clock.call_later(0, run))
    return rig.node.metadata.store


@pytest.fixture
def client(rig: Rig, store: FullDisk) -> Client:
    return rig.session(channels=2)


def server(rig: Rig) -> Any:
    found = rig.runtime.whereis(METADATA_SERVER)
    assert found is not None
    return found


def test_a_declaration_that_its_client_did_not_live_to_see_written_leaves_nothing(
    rig: Rig, client: Client, store: FullDisk
) -> None:
    other = rig.session()
    actors = rig.runtime.actor_count
    client.send(2, m.ChannelClose(200, "", 0, 0))
    rig.runtime.suspend(server(rig))
    client.send(1, durable("ghost"))
    other.send(1, durable("real"))
    client.hang_up()
    assert set(rig.queues) == {"real"}
    rig.runtime.resume(server(rig))
    rig.settle()

    assert other.take() == [m.QueueDeclareOk("real", 0, 0)]
    assert stored(store) == {"queue real"}
    # reader, connection and two channels went; a queue's three came
    assert rig.runtime.actor_count == actors - 4 + 3


def lose_last_consumer_on_a_full_disk(client: Client, store: FullDisk) -> None:
    client.ask(1, durable("q", auto_delete=True))
    client.ask(1, m.QueueBind("q", "amq.direct", "k"))
    client.ask(1, m.BasicConsume("q", "c"))
    store.is_full = True
    client.ask(1, m.BasicCancel("c"))


def test_a_deletion_that_the_disk_refuses_is_written_when_it_takes_it(
    rig: Rig, client: Client, store: FullDisk, caplog: pytest.LogCaptureFixture
) -> None:
    lose_last_consumer_on_a_full_disk(client, store)
    rig.jump(60)
    assert stored(store) == {"queue q", "amq.direct->q"}
    assert "no space left on device" in caplog.text
    store.is_full = False
    rig.jump(10)

    assert stored(store) == set()
    assert not rig.node.metadata.pending.deletes


def test_a_queue_declared_again_outlives_the_deletion_of_the_one_before(
    rig: Rig, client: Client, store: FullDisk
) -> None:
    lose_last_consumer_on_a_full_disk(client, store)
    store.is_full = False
    client.ask(1, durable("q", auto_delete=True))
    rig.jump(60)

    assert stored(store) == {"queue q"}


def test_a_deletion_outlives_the_death_of_the_stores_actor(
    rig: Rig, client: Client, store: FullDisk
) -> None:
    client.ask(1, durable("q", auto_delete=True))
    client.ask(1, m.BasicConsume("q", "c"))
    old = server(rig)
    rig.runtime.suspend(old)
    client.ask(1, m.BasicCancel("c"))
    rig.runtime.exit(old, "kill")
    rig.jump(1)

    assert server(rig) is not old
    assert stored(store) == set()


def test_what_is_written_when_the_stores_actor_has_ended_counts_as_settled(
    rig: Rig, client: Client, store: FullDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled: list[Any] = []
    rig.node.metadata.on_settled = settled.extend
    writes: list[Any] = []
    with monkeypatch.context() as slow:
        slow.setattr(store, "write", lambda *write: writes.append(write))
        client.send(1, durable("q"))
        rig.runtime.exit(server(rig), "kill")
        rig.settle()
    for write in writes:
        store.write(*write)
    rig.jump(1)

    assert settled[0].name == "q"
    assert stored(store) == {"queue q"}


@pytest.mark.parametrize("again", ["fanout", None])
def test_what_is_deleted_while_its_declaration_waits_for_a_new_actor_does_not_come_back(
    rig: Rig, client: Client, store: FullDisk, again: str | None
) -> None:
    other = rig.session()
    old = server(rig)
    rig.runtime.suspend(old)
    client.send(1, m.ExchangeDeclare("e", "direct", durable=True))
    rig.runtime.exit(old, "kill")
    rig.settle()
    other.ask(1, m.ExchangeDelete("e"))
    if again:
        other.ask(1, m.ExchangeDeclare("e", again, durable=True))
    rig.jump(1)

    assert client.take() == [m.ExchangeDeclareOk()]
    assert [row.type for row in store.load().exchanges] == ([again] if again else [])


def test_a_deletion_is_confirmed_only_when_it_is_written(
    rig: Rig, client: Client, store: FullDisk
) -> None:
    client.ask(1, durable("q"))
    store.is_full = True
    client.send(1, m.QueueDelete("q"))
    closed = client.take()[0]
    store.is_full = False
    rig.jump(10)

    assert (type(closed), closed.reply_code) == (m.ConnectionClose, 541)
    assert stored(store) == set()


@pytest.mark.parametrize(
    ("method", "row"),
    [
        (m.ExchangeDeclare("e", "direct", durable=True), "exchange e"),
        (m.QueueBind("there", "auto", "k"), "auto->there"),
        (m.ExchangeBind("amq.fanout", "auto", "k"), "auto->amq.fanout"),
    ],
    ids=lambda each: getattr(each, "NAME", each),
)
def test_what_was_refused_is_written_when_it_is_asked_again(
    rig: Rig, client: Client, store: FullDisk, method: m.Method, row: str
) -> None:
    client.ask(1, durable("there"))
    client.ask(1, m.ExchangeDeclare("auto", "topic", durable=True, auto_delete=True))
    before = stored(store)
    store.is_full = True
    client.send(1, method)
    assert client.take()[0].reply_code == 541
    store.is_full = False
    rig.jump(10)
    assert stored(store) == before
    again = rig.session()

    assert type(again.ask(1, method)).__name__ == type(method).__name__ + "Ok"
    assert stored(store) == before | {row}


@pytest.mark.parametrize(
    "method",
    [m.ExchangeDeclare("e", "direct", durable=True), m.QueueBind("there", "amq.direct", "k")],
    ids=lambda method: method.NAME,
)
def test_who_asks_for_what_another_has_not_got_written_waits_as_well(
    rig: Rig, client: Client, store: FullDisk, monkeypatch: pytest.MonkeyPatch, method: m.Method
) -> None:
    client.ask(1, durable("there"))
    other = rig.session()
    told: list[Any] = []
    monkeypatch.setattr(store, "_deliver", told.append)
    client.send(1, method)
    other.send(1, method)
    assert other.take() == []
    while told:
        told.pop(0)()
        rig.settle()

    for each in (client, other):
        assert type(each.take()[0]).__name__ == type(method).__name__ + "Ok"


def test_a_deletion_is_written_though_the_node_stops(
    rig: Rig, client: Client, store: FullDisk
) -> None:
    client.ask(1, durable("q", auto_delete=True))
    client.ask(1, m.BasicConsume("q", "c"))
    rig.runtime.suspend(server(rig))
    client.ask(1, m.BasicCancel("c"))
    assert stored(store) == {"queue q"}
    rig.runtime.exit(rig.root, "shutdown")
    rig.jump(1)

    assert not rig.root.is_alive
    assert stored(store) == set()
