"""Exchanges of the type ``x-delayed-message``: which messages they delay, and how they route the others."""

from __future__ import annotations

from typing import Any

import pytest

from leveret.amqp.errors import CommandInvalid, PreconditionFailed
from leveret.amqp.properties import Examined, Properties, examine, head_of
from leveret.amqp.tables import Field, Table
from leveret.routing.bindings import EXCHANGE, QUEUE
from leveret.routing.delayed import DELAYED, DELAYED_TYPE, delay_ms, exchange_of, queue_of
from leveret.routing.exchange import Exchange
from leveret.routing.router import route
from leveret.routing.topology import Topology


class Queue:
    """A queue's entry."""

    durable = True


def exchange(inner: str = "direct", name: str = "x", **more: Any) -> Exchange:
    arguments: Table = {DELAYED_TYPE: ("S", inner.encode()), **more.pop("arguments", {})}
    return Exchange(name, DELAYED, arguments=arguments, **more)


def head(**headers: Field) -> Examined:
    table: Table = {name.replace("_", "-"): field for name, field in headers.items()}
    return examine(head_of(Properties(headers=table), 0))


@pytest.fixture
def topology() -> Topology[Queue]:
    """An exchange with its delay queue, which leads to a queue by the key ``k``."""
    topology: Topology[Queue] = Topology()
    delayed = exchange()
    topology.add_exchange(delayed)
    delayed.matcher.queue = Queue()  # type: ignore[attr-defined]
    topology.add_queue(queue_of("x"), delayed.matcher.queue)  # type: ignore[attr-defined]
    topology.add_queue("q", Queue())
    topology.bind("x", QUEUE, "q", b"k", {})
    return topology


@pytest.mark.parametrize(
    ("field", "delay"),
    [
        (("I", 5), 5),
        (("b", 5), 5),
        (("B", 200), 200),
        (("s", 300), 300),
        (("u", 300), 300),
        (("i", 2**32 - 1), 2**32 - 1),
        (("l", 2**62), 2**62),
        (("L", 2**62), 2**62),
        (("d", 2.9), 2),
        (("f", 2.0), 2),
        (("S", b"7"), 7),
        (("S", b"+7"), 7),
        (("I", -5), -5),
        (("I", 0), 0),
        (("S", b"7.5"), 0),
        (("S", b""), 0),
        (("S", b"9" * 20), 0),
        (("S", b"soon"), 0),
        (("d", float("inf")), 0),
        (("d", float("nan")), 0),
        (("t", True), 0),
        (("T", 1), 0),
        (("V", None), 0),
        (("A", []), 0),
        (("F", {}), 0),
    ],
)
def test_the_delay_is_an_integer_a_float_or_digits(field: Field, delay: int) -> None:
    assert delay_ms({"x-delay": field}) == delay


def test_without_the_header_nothing_is_delayed() -> None:
    assert delay_ms(None) == delay_ms({}) == delay_ms({"x-delays": ("I", 5)}) == 0


def test_delayed_messages_go_to_the_delay_queue_only(topology: Topology[Queue]) -> None:
    x = topology.exchanges["x"]

    assert route(topology, x, [b"k"], head(x_delay=("I", 1))).queues == [
        topology.queues[queue_of("x")]
    ]
    for at_once in (head(), head(x_delay=("I", 0)), head(x_delay=("I", -1))):
        assert route(topology, x, [b"k"], at_once).queues == [topology.queues["q"]]
        assert route(topology, x, [b"other"], at_once).queues == []


def test_delayed_messages_do_not_go_to_the_alternate_exchange(topology: Topology[Queue]) -> None:
    topology.add_exchange(Exchange("alternate", "fanout"))
    topology.bind("alternate", QUEUE, "q", b"", {})
    topology.exchanges["x"].policy_alternate = "alternate"

    routed = route(topology, topology.exchanges["x"], [b"other"], head(x_delay=("I", 1)))
    assert routed.queues == [topology.queues[queue_of("x")]]
    routed = route(topology, topology.exchanges["x"], [b"other"], head(x_delay=("I", -1)))
    assert routed.queues == [topology.queues["q"]]


def test_an_exchange_bound_to_another_delays_what_comes_from_there(
    topology: Topology[Queue],
) -> None:
    topology.add_exchange(Exchange("first", "fanout"))
    topology.bind("first", EXCHANGE, "x", b"", {})
    topology.bind("first", QUEUE, "q", b"", {})

    routed = route(topology, topology.exchanges["first"], [b"k"], head(x_delay=("I", 1)))

    assert routed.needs_headers
    assert set(routed.queues) == {topology.queues["q"], topology.queues[queue_of("x")]}


def test_the_default_exchange_leads_to_no_delay_queue(topology: Topology[Queue]) -> None:
    routed = route(topology, Exchange(""), [queue_of("x").encode(), b"q"], None)

    assert routed.queues == [topology.queues["q"]]


@pytest.mark.parametrize("inner", ["topic", "headers", "fanout", "x-consistent-hash"])
def test_other_types_route_as_they_do_alone(inner: str) -> None:
    topology: Topology[Queue] = Topology()
    alone = Exchange("alone", inner)
    topology.add_exchange(exchange(inner))
    topology.add_exchange(alone)
    topology.add_queue("q", Queue())
    arguments: Table = {"a": ("S", b"1")} if inner == "headers" else {}
    for name in ("x", "alone"):
        topology.bind(name, QUEUE, "q", b"1", arguments)

    for keys, seen in (([b"1"], head(a=("S", b"1"))), ([b"2"], head(a=("S", b"2")))):
        assert (
            route(topology, topology.exchanges["x"], keys, seen).queues
            == route(topology, alone, keys, seen).queues
        )
    topology.step(topology.remove_queue("q"))
    assert route(topology, topology.exchanges["x"], [b"1"], head(a=("S", b"1"))).queues == []
    topology.step(topology.remove_exchange("x"))
    assert "x" not in topology.exchanges


def test_bindings_and_arguments_are_checked_by_the_type_that_routes() -> None:
    with pytest.raises(PreconditionFailed, match="x-match"):
        exchange("headers").matcher.check(b"", {"x-match": ("S", b"some")})
    assert exchange("x-random").matcher.per_message
    assert not exchange("topic").matcher.per_message


@pytest.mark.parametrize(
    ("field", "error", "text"),
    [
        (None, PreconditionFailed, "Invalid argument, 'x-delayed-type' must be an existing exchange type"),
        (("I", 1), PreconditionFailed, "Invalid argument, 'x-delayed-type' must be an existing exchange type"),
        (("S", b"x-delayed-message"), PreconditionFailed, "Invalid argument, 'x-delayed-message' can't be used for 'x-delayed-type'"),
        (("S", b"x-nothing"), CommandInvalid, "unknown exchange type 'x-nothing'"),
    ],
)  # fmt: skip
def test_the_type_that_routes_must_be_named(
    field: Field | None, error: type[Exception], text: str
) -> None:
    with pytest.raises(error) as raised:
        Exchange("x", DELAYED, arguments={} if field is None else {DELAYED_TYPE: field})

    assert text in str(raised.value)


def test_the_names_of_delay_queues_lead_back() -> None:
    assert exchange_of(queue_of("x")) == "x"
    assert exchange_of(queue_of("")) == ""
    assert exchange_of("amq.delayed") is None
    assert exchange_of("x") is None


@pytest.mark.parametrize("inner", ["x-consistent-hash", "x-modulus-hash", "x-random"])
def test_types_that_choose_a_target_choose_none_that_is_leaving(inner: str) -> None:
    topology: Topology[Queue] = Topology()
    topology.add_exchange(exchange(inner))
    for name in ("stays", "leaves"):
        topology.add_queue(name, Queue())
        topology.bind("x", QUEUE, name, b"1", {})
    topology.remove_queue("leaves")  # its binding is there until the removal's next step

    for number in range(50):
        routed = route(topology, topology.exchanges["x"], [b"%d" % number], head())
        assert routed.queues == [topology.queues["stays"]]
