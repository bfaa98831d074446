"""Deletions of queues and exchanges with many bindings go in steps, and no client sees a half of one.

Tests: broker/vhost/exchange_rules.py, broker/vhost/vhost.py
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from leveret.amqp import methods as m
from leveret.broker.vhost.deletions import BINDINGS_PER_TURN
from leveret.metadata.tables import BindingRow, ExchangeRow, QueueRow, Row
from leveret.routing.bindings import QUEUE
from leveret.routing.topology import Removed, Topology
from rigs.broker_rig import Client, Rig, durable, stored

MANY = 3 * BINDINGS_PER_TURN + 1


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the numbers of bindings dropped by each step."""
    found: list[int] = []
    step = Topology.step

    def counted(self: object, *arguments: object) -> Removed:
        removed: Removed = step(self, *arguments)  # type: ignore[arg-type]
        found.append(len(removed.bindings))
        return removed

    monkeypatch.setattr(Topology, "step", counted)
    return found


def bound(rig: Rig, *, is_durable: bool = True, auto_delete: bool = False) -> Client:
    """Return a client with the queue ``q``, bound many times to the exchange ``x``."""
    client = rig.session()
    client.ask(1, m.ExchangeDeclare("x", durable=is_durable, auto_delete=auto_delete))
    client.ask(1, m.QueueDeclare("q", durable=is_durable))
    client.send(1, *[m.QueueBind("q", "x", f"k{number}", True) for number in range(MANY)])
    rig.settle()
    assert len(rig.node.vhosts["/"].topology.bindings()) == MANY
    return client


@pytest.mark.parametrize("is_durable", [True, False])
@pytest.mark.parametrize(
    "delete",
    [
        lambda client: client.ask(1, m.QueueDelete("q")),
        lambda client: client.ask(1, m.ExchangeDelete("x")),
        lambda client: client.send(1, m.QueueDelete("q", nowait=True)),
    ],
)
def test_no_step_of_a_deletion_drops_more_bindings_than_a_turn_may(
    steps: list[int], delete: Callable[[Client], object], *, is_durable: bool
) -> None:
    rig = Rig()
    client = bound(rig, is_durable=is_durable)
    steps.clear()

    delete(client)
    rig.settle()

    assert max(steps) <= BINDINGS_PER_TURN
    assert sum(steps) == MANY
    assert rig.store.load().bindings == []


def begun(rig: Rig, client: Client, method: m.Method) -> Topology[Any]:
    """Let the broker take a deletion and its first step."""
    topology = rig.node.vhosts["/"].topology
    client.protocol.data_received(m.method_frame(1, m.encode(method)))
    while not topology.leaving:
        rig.runtime.drain()
    return topology


def test_between_two_steps_the_queue_is_gone_and_its_name_is_not_free() -> None:
    rig = Rig()
    client, other = bound(rig, auto_delete=True), rig.session()

    topology = begun(rig, client, m.QueueDelete("q"))
    publish = other.contents(1, ("x", "k1", b"", {})).replace(b"\x02k1\x00", b"\x02k1\x01")
    declare = m.method_frame(1, m.encode(durable("q")))
    other.protocol.data_received(publish + declare)
    rig.runtime.drain()

    assert topology.is_leaving(QUEUE, "q")
    assert [type(each) for each in other.take()] == [m.BasicReturn]
    assert client.take() == []
    rig.settle()
    assert other.take() == [m.QueueDeclareOk("q", 0, 0)]
    assert client.take() == [m.QueueDeleteOk(0)]
    assert topology.bindings() == []
    assert "x" not in topology.exchanges


def test_an_exchange_of_a_deleted_exchanges_name_waits_for_the_last_step() -> None:
    rig = Rig()
    client, other = bound(rig), rig.session()

    topology = begun(rig, client, m.ExchangeDelete("x"))
    declare = m.ExchangeDeclare("x", "fanout", durable=True)
    other.protocol.data_received(m.method_frame(1, m.encode(declare)))
    rig.runtime.drain()

    assert other.take() == []
    rig.settle()
    assert other.take() == [m.ExchangeDeclareOk()]
    assert client.take() == [m.ExchangeDeleteOk()]
    assert topology.exchanges["x"].type == "fanout"
    assert stored(rig.store) == {"queue q", "exchange x"}


def test_a_deletion_is_answered_behind_its_last_step() -> None:
    rig = Rig()
    client = bound(rig, is_durable=False)

    topology = begun(rig, client, m.QueueDelete("q"))
    while topology.leaving:
        assert client.take() == []
        rig.runtime.drain()
    rig.settle()

    assert client.take() == [m.QueueDeleteOk(0)]


def test_an_exchange_whose_only_bindings_are_those_of_a_deleted_queue_is_unused() -> None:
    rig = Rig()
    client, other = bound(rig), rig.session()

    begun(rig, client, m.QueueDelete("q"))

    assert other.ask(1, m.ExchangeDelete("x", if_unused=True)) == m.ExchangeDeleteOk()


def test_a_deletion_goes_on_when_its_client_is_gone() -> None:
    rig = Rig()
    client = bound(rig, auto_delete=True)

    begun(rig, client, m.QueueDelete("q"))
    client.hang_up()

    assert stored(rig.store) == set()
    assert not rig.node.vhosts["/"].topology.leaving


@pytest.mark.parametrize("method", [m.QueueDelete("q"), m.ExchangeDelete("x")])
def test_whatever_step_a_crash_falls_behind_all_is_there_or_nothing(
    monkeypatch: pytest.MonkeyPatch, method: m.Method
) -> None:
    rig = Rig()
    client = bound(rig, auto_delete=True)
    client.ask(1, durable("other"))
    crashes: list[list[Row]] = []
    write = rig.store.write

    def written(*arguments: Any) -> None:
        write(*arguments)
        crashes.append(rig.store.load().rows())

    monkeypatch.setattr(rig.store, "write", written)
    client.ask(1, method)
    rig.settle()
    assert len(crashes) >= MANY / BINDINGS_PER_TURN

    for rows in crashes:
        again = Rig(rows)
        left = {"queue other"} if isinstance(method, m.QueueDelete) else {"queue other", "queue q"}
        assert stored(again.store) == left
        assert not again.node.vhosts["/"].topology.bindings()
        assert "x" not in again.node.vhosts["/"].topology.exchanges


def test_bindings_of_no_exchange_and_of_no_vhost_are_deleted_at_the_start() -> None:
    rows: list[Row] = [
        QueueRow("/", "q"),
        ExchangeRow("/", "x", "fanout"),
        ExchangeRow("/", "before", "fanout", auto_delete=True),
        ExchangeRow("/", "bare", "fanout", auto_delete=True),
        BindingRow("/", "before", "exchange", "bare"),
        BindingRow("/", "bare", "queue", "gone"),
        BindingRow("/", "x", "queue", "gone", b"k", {"a": ("l", 1)}),
        BindingRow("/", "gone", "queue", "q"),
        BindingRow("no vhost", "x", "queue", "q"),
        BindingRow("/", "x", "queue", "q"),
    ]

    assert stored(Rig(rows).store) == {"queue q", "exchange x", "x->q"}


def test_a_queue_that_is_deleted_behind_its_lookup_is_declared_anew_as_in_rabbitmq(
    rig: Rig,
) -> None:
    deleting, declaring = rig.session(), rig.session()
    deleting.ask(1, durable("q"))
    deleting.publish(1, "q", b"lost")
    new = {"x-note": ("S", b"of the new queue")}
    # Both are handled before the queue answers the deletion.
    deleting.wire.received(m.method_frame(1, m.encode(m.QueueDelete("q"))))
    declaring.wire.received(m.method_frame(1, m.encode(durable("q", arguments=new))))
    rig.settle()

    assert deleting.take() == [m.QueueDeleteOk(1)]
    assert declaring.take() == [m.QueueDeclareOk("q", 0, 0)]
    assert rig.queues["q"].arguments == new
    assert stored(rig.store) == {"queue q"}
