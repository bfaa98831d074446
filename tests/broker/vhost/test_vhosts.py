"""Vhosts: rows written for a declaration, clients that wait for them, and rows deleted together.

Tests: broker/vhost/queue_declare.py, broker/vhost/store_state.py
"""

from __future__ import annotations

from typing import Any

import pytest

from leveret.actors.gen_server import GenServer
from leveret.actors.runtime.ref import Ref
from leveret.amqp import methods as m
from leveret.broker.node.node import VHOSTS
from leveret.broker.queue.supervisor import RESTARTS_MAX
from leveret.broker.vhost.metadata.metadata_writer import METADATA_SERVER
from leveret.broker.vhost.states import Event, State
from leveret.supervisors.requests import StartChild
from rigs.broker_rig import Client, FullDisk, Rig, durable, stored


@pytest.fixture
def client(rig: Rig) -> Client:
    return rig.session(channels=2)


def test_only_what_lasts_is_written_down(rig: Rig, client: Client) -> None:
    client.ask(1, m.ExchangeDeclare("lasting", "direct", durable=True))
    client.ask(1, m.ExchangeDeclare("passing", "direct"))
    client.ask(1, durable("q"))
    client.ask(1, m.QueueDeclare("transient"))
    client.ask(1, durable("exclusive", exclusive=True))
    for source in ("lasting", "passing"):
        for destination in ("q", "transient"):
            client.ask(1, m.QueueBind(destination, source, "k"))
    client.ask(1, m.ExchangeBind("lasting", "amq.fanout", ""))

    assert stored(rig.store) == {"exchange lasting", "queue q", "lasting->q", "amq.fanout->lasting"}


def test_a_queue_takes_its_bindings_and_auto_delete_exchanges_along(
    rig: Rig, client: Client
) -> None:
    client.ask(1, m.ExchangeDeclare("auto", "fanout", durable=True, auto_delete=True))
    client.ask(1, durable("q"))
    client.ask(1, m.QueueBind("q", "auto", ""))
    client.ask(1, m.QueueBind("q", "amq.direct", "k"))
    assert len(stored(rig.store)) == 4
    client.ask(1, m.QueueDelete("q"))

    assert stored(rig.store) == set()


@pytest.mark.parametrize(
    "method",
    [
        durable("q"),
        m.ExchangeDeclare("e", "direct", durable=True),
        m.QueueBind("there", "amq.direct", "k"),
    ],
    ids=lambda method: method.NAME,
)
def test_nothing_is_answered_before_it_is_written(
    rig: Rig, client: Client, monkeypatch: pytest.MonkeyPatch, method: m.Method
) -> None:
    client.ask(1, durable("there"))
    told: list[Any] = []
    monkeypatch.setattr(rig.store, "_deliver", told.append)
    client.send(1, method)
    assert client.take() == []
    assert len(told) == 1
    told.pop()()
    rig.settle()

    assert type(client.take()[0]).__name__ == type(method).__name__ + "Ok"


def test_a_declare_outlives_the_death_of_the_stores_actor(rig: Rig, client: Client) -> None:
    server = rig.runtime.whereis(METADATA_SERVER)
    assert server is not None
    rig.runtime.suspend(server)
    client.send(1, durable("q"))
    assert client.take() == []
    rig.runtime.exit(server, "kill")
    rig.jump(1)

    assert client.take() == [m.QueueDeclareOk("q", 0, 0)]
    assert stored(rig.store) == {"queue q"}


def test_what_cannot_be_written_closes_the_connection_with_541(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    store = FullDisk(lambda run: rig.clock.call_later(0, run))
    rig.node.metadata.store = store
    client = rig.session()
    store.is_full = True
    client.send(1, durable("q"))
    closed = client.take()[0]

    assert (closed.reply_code, closed.class_id, closed.method_id) == (541, 50, 10)
    assert "no space left on device" in caplog.text
    assert "q" not in rig.queues, "others may try again"


def test_exclusive_queues_go_before_the_close_is_answered(rig: Rig) -> None:
    owner = rig.session()
    owner.ask(1, m.QueueDeclare("mine", exclusive=True))
    owner.ask(1, m.QueueDeclare("ours"))
    owner.send(0, m.ConnectionClose(200, ""))

    assert owner.take() == [m.ConnectionCloseOk()]
    assert set(rig.queues) == {"ours"}


@pytest.mark.parametrize("how", ["lost", "killed"])
def test_exclusive_queues_go_with_a_connection_that_ends_badly(rig: Rig, how: str) -> None:
    owner = rig.session()
    owner.ask(1, m.QueueDeclare("mine", exclusive=True))
    if how == "lost":
        owner.hang_up()
    else:
        rig.runtime.exit(owner.reader, "kill")
        rig.settle()

    assert set(rig.queues) == set()
    other = rig.session()
    assert other.ask(1, m.QueueDeclare("mine")) == m.QueueDeclareOk("mine", 0, 0)


def test_a_queue_of_another_connection_is_locked(rig: Rig) -> None:
    owner, other = rig.session(), rig.session()
    owner.ask(1, m.QueueDeclare("mine", exclusive=True))
    closed = other.ask(1, m.QueueDeclare("mine", passive=True))

    assert (closed.reply_code, closed.class_id, closed.method_id) == (405, 50, 10)
    assert "cannot obtain exclusive access to locked queue 'mine' in vhost '/'" in closed.reply_text


def test_a_question_to_a_queue_that_dies_is_asked_its_successor(rig: Rig, client: Client) -> None:
    client.ask(1, m.QueueDeclare("q"))
    queue = rig.queues["q"].ref
    rig.runtime.suspend(queue)
    client.send(1, m.QueuePurge("q"))
    assert client.take() == []
    rig.runtime.exit(queue, "kill")
    rig.settle()

    assert client.take() == [m.QueuePurgeOk(0)]


def test_a_queue_that_crashes_too_often_stays_down_and_can_be_deleted(
    rig: Rig, client: Client
) -> None:
    client.ask(1, m.QueueDeclare("q"))
    for _ in range(RESTARTS_MAX + 1):
        rig.runtime.exit(rig.queues["q"].ref, "kill")
        rig.settle()
    assert rig.queues["q"].state == "crashed"
    closed = client.ask(1, m.BasicGet("q"))
    assert closed.reply_code == 404

    assert client.ask(2, m.QueueDelete("q")) == m.QueueDeleteOk(0)
    assert client.ask(2, m.QueueDeclare("q")) == m.QueueDeclareOk("q", 0, 0)


def test_a_vhost_that_is_down_takes_no_new_queues(rig: Rig, client: Client) -> None:
    rig.node.vhosts["/"].state.enter(Event.PART_ENDED)
    closed = client.ask(1, m.QueueDeclare("q"))

    assert closed.reply_code == 541
    assert "q" not in rig.queues


def test_a_queue_is_not_started_without_the_store_that_is_to_keep_its_messages(
    rig: Rig, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store ends while the row of the declaration is written, and is being opened again."""
    vhost = rig.node.vhosts["/"]
    told: list[Any] = []
    monkeypatch.setattr(rig.store, "_deliver", told.append)
    client.send(1, durable("q"))
    assert client.take() == []

    vhost.state.enter(Event.PART_ENDED)
    told.pop()()
    rig.settle()
    (closed,) = client.take()
    assert closed.reply_code == 541
    assert "q" not in rig.queues


def test_a_restarted_vhost_runs_the_queues_it_had(rig: Rig, client: Client) -> None:
    client.ask(1, durable("q"))
    client.ask(1, m.QueueBind("q", "amq.direct", "k"))
    sup = rig.node.vhosts["/"].queues_sup
    assert sup is not None
    rig.runtime.exit(sup, "kill")
    rig.settle()
    again = rig.session()
    again.publish(1, "k", b"after", exchange="amq.direct")
    again.send(1, m.BasicGet("q", True))

    assert b"after" in again.take()


class Caller(GenServer):
    """Calls a server and keeps the answer."""

    def init(self, to: Ref, request: object, answers: list[object]) -> None:
        self.call(to, request, answers.append)


def test_the_start_of_a_vhost_that_was_deleted_meanwhile_is_ignored(rig: Rig) -> None:
    vhosts = rig.runtime.whereis(VHOSTS)
    assert vhosts is not None
    vhost = rig.node.new_vhost("gone")
    rig.node.vhosts["gone"] = vhost
    rig.runtime.suspend(vhosts)
    answers: list[object] = []
    rig.runtime.spawn(Caller, vhosts, StartChild((vhost,)), answers)
    del rig.node.vhosts["gone"]
    rig.runtime.resume(vhosts)
    rig.settle()

    assert answers == [("ok", None)]
    assert vhost.state.now is State.NEW


def test_a_vhosts_queue_limit_counts(rig: Rig, client: Client) -> None:
    rig.node.vhosts["/"].limits = {"max-queues": 1}
    client.ask(1, m.QueueDeclare("one"))
    closed = client.ask(1, m.QueueDeclare("two"))

    assert closed.reply_text == (
        "PRECONDITION_FAILED - cannot declare queue 'two': queue limit in vhost '/' (1) is reached"
    )
    assert client.ask(2, m.QueueDeclare("one")) == m.QueueDeclareOk("one", 0, 0)


@pytest.mark.parametrize("how", ["lost", "killed"])
def test_a_declaration_whose_client_is_gone_before_the_commit_holds_nobody_up(
    rig: Rig, client: Client, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    told: list[Any] = []
    monkeypatch.setattr(rig.store, "_deliver", told.append)
    channel = [cell.ref for cell in rig.runtime.cells() if cell.describe() == "channel:1"][-1]
    client.send(1, durable("q"))
    other = rig.session()
    other.send(1, durable("q"))
    assert rig.queues["q"].state == "starting", "the store has not answered"
    if how == "lost":
        client.hang_up()
    else:
        rig.runtime.exit(channel, "kill")
        rig.settle()
    while told:
        told.pop(0)()
        rig.settle()

    assert other.take() == [m.QueueDeclareOk("q", 0, 0)]
    assert stored(rig.store) == {"queue q"}
