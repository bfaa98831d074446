"""Routing over exchange bindings, alternate exchanges and several keys."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.amqp.properties import Properties, examine, head_of
from leveret.amqp.tables import Table
from leveret.routing.bindings import EXCHANGE, QUEUE
from leveret.routing.exchange import Exchange
from leveret.routing.router import Routed, route
from leveret.routing.topology import Topology


class Entry:
    durable = False

    def __init__(self, name: str) -> None:
        self.name = name


def build(exchanges: dict[str, str], queues: list[str]) -> Topology:
    topology = Topology("/")
    for name, kind in exchanges.items():
        topology.add_exchange(Exchange(name, kind))
    for name in queues:
        topology.add_queue(name, Entry(name))
    return topology


def routed(
    topology: Topology, exchange: str, *keys: bytes, headers: Table | None = None
) -> list[str]:
    head = examine(head_of(Properties(headers=headers), 0)) if headers is not None else None
    answer = route(topology, topology.exchange(exchange), keys, head)
    return [entry.name for entry in answer.queues]


def with_alternate(name: str, kind: str, alternate: bytes) -> Exchange:
    return Exchange(name, kind, arguments={"alternate-exchange": ("S", alternate)})


def test_the_default_exchange_leads_to_the_queues_named_by_the_keys() -> None:
    topology = build({"": "direct"}, ["q1", "q2", "é"])

    assert routed(topology, "", b"q2") == ["q2"]
    assert routed(topology, "", b"q2", b"q1", b"q2", b"none") == ["q2", "q1"]
    assert routed(topology, "", "é".encode()) == ["é"]
    assert routed(topology, "", b"\xff") == []


def test_a_queue_bound_twice_by_one_key_gets_one_copy() -> None:
    topology = build({"x": "direct"}, ["q"])
    topology.bind("x", QUEUE, "q", b"k", {})
    topology.bind("x", QUEUE, "q", b"k", {"a": ("I", 1)})

    assert routed(topology, "x", b"k") == ["q"]
    assert routed(topology, "x", b"other") == []


def test_a_fanout_leads_everywhere_in_the_order_of_binding() -> None:
    topology = build({"x": "fanout"}, ["q1", "q2", "q3"])
    for name in ("q2", "q3", "q1"):
        topology.bind("x", QUEUE, name, b"ignored", {})

    assert routed(topology, "x", b"k") == ["q2", "q3", "q1"]


def test_a_cycle_of_three_with_two_ways_gives_one_copy() -> None:
    topology = build({"a": "fanout", "b": "fanout", "c": "fanout"}, ["q"])
    for source, destination in (("a", "b"), ("b", "c"), ("c", "a"), ("a", "c")):
        topology.bind(source, EXCHANGE, destination, b"", {})
    for source in ("b", "c"):
        topology.bind(source, QUEUE, "q", b"", {})

    assert routed(topology, "a", b"k") == ["q"]


def test_a_deleted_queue_whose_bindings_are_not_dropped_yet_gets_nothing() -> None:
    topology = build({"a": "fanout", "b": "fanout"}, ["q", "r"])
    topology.bind("a", EXCHANGE, "b", b"", {})
    for name in ("q", "r"):
        topology.bind("b", QUEUE, name, b"", {})

    topology.remove_queue("q")

    assert routed(topology, "a", b"k") == routed(topology, "b", b"k") == ["r"]


def test_an_exchange_bound_to_itself_is_visited_once() -> None:
    topology = build({"a": "fanout"}, ["q"])
    topology.bind("a", EXCHANGE, "a", b"", {})
    topology.bind("a", QUEUE, "q", b"", {})

    assert routed(topology, "a", b"k") == ["q"]


def test_the_alternate_exchange_takes_what_nothing_matched() -> None:
    topology = build({"ae": "fanout"}, ["q1", "q2"])
    topology.add_exchange(with_alternate("x", "direct", b"ae"))
    topology.bind("x", QUEUE, "q1", b"k", {})
    topology.bind("ae", QUEUE, "q2", b"", {})

    assert routed(topology, "x", b"k") == ["q1"]
    assert routed(topology, "x", b"other") == ["q2"]


def test_a_loop_of_alternate_exchanges_ends() -> None:
    topology = build({}, [])
    topology.add_exchange(with_alternate("x", "direct", b"y"))
    topology.add_exchange(with_alternate("y", "direct", b"x"))

    assert routed(topology, "x", b"k") == []


def test_a_missing_alternate_exchange_is_nothing() -> None:
    topology = build({}, [])
    topology.add_exchange(with_alternate("x", "direct", b"nope"))

    assert routed(topology, "x", b"k") == []


def test_the_default_exchange_as_an_alternate_leads_nowhere() -> None:
    topology = build({"": "direct"}, ["q"])
    topology.add_exchange(with_alternate("x", "direct", b""))

    assert routed(topology, "x", b"q") == []


def test_a_match_that_leads_nowhere_does_not_wake_the_alternate_exchange() -> None:
    topology = build({"dead end": "direct", "ae": "fanout"}, ["q"])
    topology.add_exchange(with_alternate("x", "fanout", b"ae"))
    topology.bind("x", EXCHANGE, "dead end", b"", {})
    topology.bind("ae", QUEUE, "q", b"", {})

    assert routed(topology, "x", b"k") == []


def test_the_alternate_exchange_of_an_argument_wins_over_the_policys() -> None:
    exchange = with_alternate("x", "direct", b"mine")
    exchange.policy_alternate = "policy"
    plain = Exchange("y")
    plain.policy_alternate = "policy"

    assert (exchange.alternate, plain.alternate) == ("mine", "policy")


@pytest.mark.parametrize(
    ("published", "needs_headers"),
    [("plain", False), ("h", True), ("to h", True), ("ae h", True), ("far from h", False)],
)
def test_a_headers_exchange_on_the_way_makes_the_route_depend_on_headers(
    published: str, needs_headers: bool
) -> None:
    topology = build(
        {"h": "headers", "plain": "fanout", "to h": "fanout", "far from h": "direct"}, ["q"]
    )
    topology.add_exchange(with_alternate("ae h", "direct", b"h"))
    topology.bind("plain", QUEUE, "q", b"", {})
    topology.bind("to h", EXCHANGE, "h", b"", {})
    topology.bind("far from h", EXCHANGE, "h", b"another key", {})
    topology.bind("h", QUEUE, "q", b"", {"a": ("I", 1)})

    answer = route(topology, topology.exchange(published), [b"k"], None)

    assert isinstance(answer, Routed)
    assert answer.needs_headers is needs_headers
    if needs_headers:
        assert routed(topology, published, b"k", headers={"a": ("I", 1)}) == ["q"]
        assert routed(topology, published, b"k", headers={"a": ("I", 2)}) == []


exchange_names = st.sampled_from(["e0", "e1", "e2", "e3", "missing"])
graphs = st.lists(
    st.tuples(
        st.sampled_from(["e0", "e1", "e2", "e3"]),
        st.sampled_from(["e0", "e1", "e2", "e3", "q0", "q1", "q2"]),
        st.sampled_from([b"a", b"b"]),
    ),
    max_size=16,
)


@given(
    st.lists(st.sampled_from(["direct", "fanout"]), min_size=4, max_size=4),
    st.lists(st.one_of(st.none(), exchange_names), min_size=4, max_size=4),
    graphs,
    st.lists(st.sampled_from([b"a", b"b", b"c"]), min_size=1, max_size=2),
)
def test_the_router_finds_what_following_every_edge_finds(
    types: list[str],
    alternates: list[str | None],
    edges: list[tuple[str, str, bytes]],
    keys: list[bytes],
) -> None:
    topology = build({}, ["q0", "q1", "q2"])
    for number, (kind, alternate) in enumerate(zip(types, alternates, strict=True)):
        exchange = Exchange(f"e{number}", kind)
        exchange.policy_alternate = alternate
        topology.add_exchange(exchange)
    for source, destination, key in edges:
        kind = QUEUE if destination[0] == "q" else EXCHANGE
        topology.bind(source, kind, destination, key, {})

    def nexts(name: str) -> set[str]:
        number = int(name[1])
        ways = {
            destination
            for source, destination, key in edges
            if source == name and (types[number] == "fanout" or key in keys)
        }
        alternate = alternates[number]
        return ways or ({alternate} if alternate not in (None, "missing") else set())  # type: ignore[arg-type]

    reached = {"e0"}
    while more := {n for e in reached if e[0] == "e" for n in nexts(e)} - reached:
        reached |= more

    names = routed(topology, "e0", *keys)
    assert len(names) == len(set(names))
    assert set(names) == {name for name in reached if name[0] == "q"}


def test_a_random_exchange_on_the_way_gives_each_message_its_own_route() -> None:
    topology = build({"x": "x-random", "to x": "fanout", "plain": "fanout"}, ["q1", "q2"])
    topology.bind("x", QUEUE, "q1", b"", {})
    topology.bind("x", QUEUE, "q2", b"", {})
    topology.bind("to x", EXCHANGE, "x", b"", {})
    topology.bind("plain", QUEUE, "q1", b"", {})

    for name, per_message in (("x", True), ("to x", True), ("plain", False)):
        answer = route(topology, topology.exchange(name), [b"k"], None)
        assert (answer.needs_headers, answer.per_message) == (per_message, per_message)
        assert len(answer.queues) == 1
    assert {tuple(routed(topology, "to x", b"k")) for _ in range(100)} == {("q1",), ("q2",)}


@pytest.mark.parametrize("kind", ["x-random", "x-consistent-hash", "x-modulus-hash"])
def test_a_deleted_queue_is_not_chosen_from_the_moment_of_its_deletion(kind: str) -> None:
    topology = build({"x": kind}, ["stays", "goes"])
    for name in ("stays", "goes"):
        topology.bind("x", QUEUE, name, b"1", {})

    removal = topology.remove_queue("goes")

    ways = {tuple(routed(topology, "x", b"%d" % number)) for number in range(100)}
    assert ways == {("stays",)}
    topology.step(removal)
    assert {tuple(routed(topology, "x", b"%d" % number)) for number in range(100)} == ways


def test_an_exchange_of_a_type_that_is_not_installed_leads_nowhere() -> None:
    topology = build({"x": "x-gone", "plain": "fanout"}, ["q"])
    topology.bind("plain", EXCHANGE, "x", b"", {})
    topology.bind("plain", QUEUE, "q", b"", {})
    bound = topology.bind("x", QUEUE, "q", b"k", {"a": ("I", 1)})

    assert not topology.exchange("x").is_usable
    assert routed(topology, "x", b"k") == []
    assert routed(topology, "plain", b"k") == ["q"]
    assert list(topology.exchange("x").bindings.values()) == [bound]
    topology.unbind("x", QUEUE, "q", b"k", {"a": ("I", 1)})
    assert not topology.exchange("x").bindings
