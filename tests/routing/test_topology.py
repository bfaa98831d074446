"""Exchanges, bindings, and the bindings that a deletion removes.

Tests: routing/direct.py, routing/exchange.py, routing/fanout.py
"""

from __future__ import annotations

import time

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from leveret.amqp.errors import NotFound, PreconditionFailed
from leveret.amqp.tables import Table
from leveret.core.limits import TOPIC_STATES_MAX
from leveret.routing import exchange as exchange_types
from leveret.routing.bindings import EXCHANGE, QUEUE
from leveret.routing.direct import DirectMatcher
from leveret.routing.exchange import Exchange
from leveret.routing.router import route
from leveret.routing.topology import Removal, Topology


class Entry:
    def __init__(self, name: str, durable: bool = False) -> None:
        self.name = name
        self.durable = durable


@pytest.fixture
def topology() -> Topology:
    topology = Topology("v")
    for name in ("x", "y"):
        topology.add_exchange(Exchange(name, "direct", durable=name == "x"))
    for name in ("q", "d"):
        topology.add_queue(name, Entry(name, durable=name == "d"))
    return topology


def test_the_same_binding_is_made_once(topology: Topology) -> None:
    assert topology.bind("x", QUEUE, "q", b"k", {"a": ("I", 1), "b": ("I", 2)}) is not None
    assert topology.bind("x", QUEUE, "q", b"k", {"b": ("I", 2), "a": ("I", 1)}) is None
    assert len(topology.bindings()) == 1


@pytest.mark.parametrize(
    "other",
    [
        ("y", QUEUE, "q", b"k", {}),
        ("x", EXCHANGE, "y", b"k", {}),
        ("x", QUEUE, "d", b"k", {}),
        ("x", QUEUE, "q", b"k2", {}),
        ("x", QUEUE, "q", b"k", {"a": ("I", 1)}),
    ],
)
def test_bindings_that_differ_in_one_part_are_distinct(topology: Topology, other: tuple) -> None:  # type: ignore[type-arg]
    topology.bind("x", QUEUE, "q", b"k", {})

    assert topology.bind(*other) is not None
    assert len(topology.bindings()) == 2


def test_arguments_that_differ_in_type_only_make_two_bindings(topology: Topology) -> None:
    topology.bind("x", QUEUE, "q", b"k", {"a": ("I", 1)})

    assert topology.bind("x", QUEUE, "q", b"k", {"a": ("l", 1)}) is not None
    assert topology.bind("x", QUEUE, "q", b"k", {"a": ("A", [("F", {"n": ("d", 1.0)})])})
    assert topology.bind("x", QUEUE, "q", b"k", {"a": ("A", [("F", {"n": ("d", 1.0)})])}) is None


def test_a_nan_among_the_arguments_is_the_same_nan_twice(topology: Topology) -> None:
    assert topology.bind("x", QUEUE, "q", b"k", {"a": ("d", float("nan"))}) is not None
    assert topology.bind("x", QUEUE, "q", b"k", {"a": ("d", float("nan"))}) is None


def test_missing_ends_are_reported_source_first(topology: Topology) -> None:
    with pytest.raises(NotFound, match=r"^NOT_FOUND - no exchange 'no x' in vhost 'v'$"):
        topology.bind("no x", QUEUE, "no q", b"", {})
    with pytest.raises(NotFound, match=r"^NOT_FOUND - no queue 'no q' in vhost 'v'$"):
        topology.bind("x", QUEUE, "no q", b"", {})
    with pytest.raises(NotFound, match=r"^NOT_FOUND - no exchange 'no x' in vhost 'v'$"):
        topology.bind("x", EXCHANGE, "no x", b"", {})


def test_a_binding_that_the_type_refuses_leaves_nothing_behind(topology: Topology) -> None:
    topology.add_exchange(Exchange("h", "headers"))
    epoch = topology.epoch

    with pytest.raises(PreconditionFailed):
        topology.bind("h", QUEUE, "q", b"", {"x-match": ("S", b"some")})

    assert topology.bindings() == []
    assert topology.epoch == epoch


@pytest.mark.parametrize(
    ("source", "queue", "is_durable"),
    [("x", "d", True), ("x", "q", False), ("y", "d", False), ("y", "q", False)],
)
def test_a_binding_is_durable_when_both_ends_are(
    topology: Topology, source: str, queue: str, is_durable: bool
) -> None:
    binding = topology.bind(source, QUEUE, queue, b"", {})

    assert binding is not None
    assert binding.is_durable is is_durable


def test_unbinding_what_is_not_there_changes_nothing(topology: Topology) -> None:
    epoch = topology.epoch

    for source, queue in (("x", "q"), ("no x", "q"), ("x", "no q")):
        assert topology.step(topology.unbind(source, QUEUE, queue, b"k", {})).bindings == []

    assert topology.epoch == epoch


def test_every_change_moves_the_epoch(topology: Topology) -> None:
    seen = [topology.epoch]
    changes = [
        lambda: topology.add_exchange(Exchange("z")),
        lambda: topology.bind("z", QUEUE, "q", b"k", {}),
        lambda: topology.unbind("z", QUEUE, "q", b"k", {}),
        lambda: topology.remove_queue("q"),
        lambda: topology.remove_exchange("z"),
        topology.touch,
    ]
    for change in changes:
        change()
        seen.append(topology.epoch)

    assert seen == sorted(set(seen))


def auto_delete(topology: Topology, *names: str) -> None:
    for name in names:
        topology.add_exchange(Exchange(name, "fanout", auto_delete=True))


def test_an_auto_delete_exchange_goes_with_its_last_unbind(topology: Topology) -> None:
    auto_delete(topology, "a")
    topology.bind("a", QUEUE, "q", b"1", {})
    topology.bind("a", QUEUE, "q", b"2", {})

    assert topology.step(topology.unbind("a", QUEUE, "q", b"1", {})).exchanges == []
    removed = topology.step(topology.unbind("a", QUEUE, "q", b"2", {}))

    assert [each.name for each in removed.exchanges] == ["a"]
    assert "a" not in topology.exchanges


def test_auto_delete_exchanges_go_in_a_chain_with_the_last_queue(topology: Topology) -> None:
    auto_delete(topology, "a", "b")
    topology.bind("a", EXCHANGE, "b", b"", {})
    topology.bind("b", QUEUE, "q", b"", {})

    removed = topology.step(topology.remove_queue("q"))

    assert [each.name for each in removed.exchanges] == ["b", "a"]
    assert len(removed.bindings) == 2
    assert topology.bindings() == []


def test_an_auto_delete_exchange_that_is_only_a_destination_stays(topology: Topology) -> None:
    auto_delete(topology, "a")
    topology.bind("x", EXCHANGE, "a", b"", {})

    topology.step(topology.unbind("x", EXCHANGE, "a", b"", {}))

    assert "a" in topology.exchanges


def test_two_auto_delete_exchanges_bound_in_a_circle_can_be_deleted(topology: Topology) -> None:
    auto_delete(topology, "a", "b")
    topology.bind("a", EXCHANGE, "b", b"", {})
    topology.bind("b", EXCHANGE, "a", b"", {})
    topology.bind("a", EXCHANGE, "a", b"", {})

    removed = topology.step(topology.remove_exchange("a"))

    assert [each.name for each in removed.exchanges] == ["a", "b"]
    assert len(removed.bindings) == 3


def test_removing_an_exchange_takes_bindings_from_and_to_it(topology: Topology) -> None:
    topology.bind("x", EXCHANGE, "y", b"", {})
    topology.bind("y", QUEUE, "q", b"k", {})
    topology.bind("x", QUEUE, "q", b"k", {})

    removed = topology.step(topology.remove_exchange("y"))

    assert len(removed.bindings) == 2
    assert [each.destination for each in topology.bindings()] == ["q"]
    assert topology.exchanges["x"].exchange_bindings == 0
    topology.add_exchange(Exchange("y"))
    assert route(topology, topology.exchange("y"), [b"k"], None).queues == []


@pytest.mark.parametrize("deleted", ["exchange", "both"])
def test_the_words_of_a_deleted_topic_exchange_go_with_its_bindings(
    topology: Topology, deleted: str
) -> None:
    words = Exchange("words", "topic")
    topology.add_exchange(words)
    for number in range(100):
        topology.bind("words", QUEUE, "q", b"%d.#" % number, {})
    removal = topology.remove_exchange("words")
    if deleted == "both":
        other = topology.remove_queue("q")
        topology.step(other)
    else:
        topology.step(removal, work=40)
        assert len(words.matcher.trie.root.children) == 60
        topology.step(removal)

    assert words.matcher.trie.root.is_bare


def test_a_deleted_topic_exchange_holds_no_room_for_states(topology: Topology) -> None:
    topology.add_exchange(Exchange("topics", "topic"))
    topology.bind("topics", QUEUE, "q", b"#.a", {})
    exchange, room = topology.exchange("topics"), topology._states_room
    assert route(topology, exchange, [b"b.a"], None).queues
    assert room.left < TOPIC_STATES_MAX

    topology.step(topology.remove_exchange("topics"))
    assert room.left == TOPIC_STATES_MAX
    route(topology, exchange, [b"c.a"], None)  # by a channel that has found it before

    assert room.left == TOPIC_STATES_MAX
    assert not room._holders, "its matcher would be kept alive"


def test_fifty_thousand_queues_are_deleted_in_linear_time() -> None:
    def seconds_each(count: int) -> float:
        topology = Topology("/")
        for kind in ("fanout", "topic", "direct", "headers"):
            topology.add_exchange(Exchange(kind, kind))
        for number in range(count):
            name = f"q{number}"
            topology.add_queue(name, Entry(name))
            for kind in ("fanout", "topic", "direct", "headers"):
                topology.bind(kind, QUEUE, name, b"key.%d" % (number % 7), {})
        start = time.process_time()
        for number in range(count):
            topology.step(topology.remove_queue(f"q{number}"))
        assert topology.bindings() == []
        return (time.process_time() - start) / count

    few = min(seconds_each(2_000) for _ in range(3))
    assert seconds_each(50_000) < 8 * few  # quadratic would be 25 times as much per queue


@pytest.mark.parametrize("kind", ["direct", "fanout", "topic", "headers"])
def test_a_step_drops_no_more_bindings_than_it_is_given_work(kind: str) -> None:
    topology = Topology("v")
    topology.add_exchange(Exchange("x", kind))
    topology.add_queue("q", Entry("q"))
    for number in range(1_000):
        topology.bind("x", QUEUE, "q", b"k%d" % number, {})

    removal = topology.remove_queue("q")
    steps = []
    while not removal.is_done:
        steps.append(len(topology.step(removal, 100).bindings))

    assert max(steps) == 100
    assert sum(steps) == 1_000
    assert not topology.leaving


def test_a_step_charges_for_large_arguments_and_keys() -> None:
    topology = Topology("v")
    topology.add_exchange(Exchange("x", "headers"))
    topology.add_queue("q", Entry("q"))
    wide: Table = {f"h{number}": ("V", None) for number in range(4_000)}
    for number in range(10):
        topology.bind("x", QUEUE, "q", b"%d" % number, {"in": ("F", wide), "at": ("D", (1, 5))})

    removal = topology.remove_queue("q")

    assert len(topology.step(removal, 100).bindings) == 1


def test_nothing_is_routed_to_a_queue_whose_bindings_are_not_dropped_yet() -> None:
    topology = Topology("v")
    topology.add_exchange(Exchange("x", "topic", arguments={"alternate-exchange": ("S", b"y")}))
    topology.add_exchange(Exchange("y", "fanout"))
    for name in ("q", "other"):
        topology.add_queue(name, Entry(name))
    topology.bind("x", QUEUE, "q", b"#", {})
    topology.bind("y", QUEUE, "other", b"", {})

    topology.remove_queue("q")

    routed = route(topology, topology.exchanges["x"], [b"k"], None)
    assert [each.name for each in routed.queues] == ["other"]
    assert [each.source for each in topology.bindings()] == ["y"]
    assert topology.is_leaving(QUEUE, "q")
    assert topology.binding("x", QUEUE, "q", b"#", {}) is None


def test_nothing_is_routed_through_an_exchange_whose_bindings_are_not_dropped_yet() -> None:
    topology = Topology("v")
    for name in ("x", "y"):
        topology.add_exchange(Exchange(name, "fanout"))
    topology.add_queue("q", Entry("q"))
    topology.bind("x", EXCHANGE, "y", b"", {})
    topology.bind("y", QUEUE, "q", b"", {})

    removal = topology.remove_exchange("y")

    assert route(topology, topology.exchanges["x"], [b""], None).queues == []
    topology.step(removal)
    assert topology.bindings() == []


def test_two_removals_of_both_ends_drop_each_binding_once() -> None:
    topology = Topology("v")
    topology.add_exchange(Exchange("x"))
    topology.add_queue("q", Entry("q"))
    for number in range(10):
        topology.bind("x", QUEUE, "q", b"%d" % number, {})

    removals = [topology.remove_exchange("x"), topology.remove_queue("q")]
    dropped = []
    while not all(each.is_done for each in removals):
        for each in removals:
            dropped += [binding.key for binding in topology.step(each, 3).bindings]

    assert sorted(dropped) == [b"%d" % number for number in range(10)]
    assert not topology.leaving


def test_a_plug_ins_type_is_registered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange_types, "_TYPES", dict(exchange_types._TYPES))

    exchange_types.register_type("x-mine", DirectMatcher)

    assert exchange_types.is_type("x-mine")
    assert Exchange("e", "x-mine").type == "x-mine"
    with pytest.raises(ValueError, match="registered already"):
        exchange_types.register_type("direct", DirectMatcher)


NAMES = st.sampled_from(["a", "b", "c"])
KEYS = st.sampled_from([b"", b"k", b"k.l", b"#"])
TYPES = st.sampled_from(["direct", "fanout", "topic", "headers"])


class TopologyAgainstSets(RuleBasedStateMachine):
    """Random changes, against plain sets that are searched from end to end.

    Removals go on in steps between the changes. Until a removal's end the sets may be ahead of the topology by
    auto-delete exchanges that are to go with their last bindings, and names that are leaving are not declared.
    """

    def __init__(self) -> None:
        super().__init__()
        self.topology = Topology("/")
        self.exchanges: dict[str, bool] = {}
        self.queues: set[str] = set()
        self.bindings: set[tuple[str, str, str, bytes]] = set()
        self.removals: list[Removal] = []

    @rule(name=NAMES, kind=TYPES, auto_delete=st.booleans())
    def declare_exchange(self, name: str, kind: str, auto_delete: bool) -> None:
        if name not in self.exchanges and not self.topology.is_leaving(EXCHANGE, name):
            self.exchanges[name] = auto_delete
            self.topology.add_exchange(Exchange(name, kind, auto_delete=auto_delete))

    @rule(name=NAMES)
    def declare_queue(self, name: str) -> None:
        if name not in self.queues and not self.topology.is_leaving(QUEUE, name):
            self.queues.add(name)
            self.topology.add_queue(name, Entry(name))

    @rule(source=NAMES, kind=st.sampled_from([QUEUE, EXCHANGE]), destination=NAMES, key=KEYS)
    def bind(self, source: str, kind: str, destination: str, key: bytes) -> None:
        ends = self.queues if kind == QUEUE else self.exchanges
        binding = (source, kind, destination, key)
        if source not in self.exchanges or destination not in ends:
            with pytest.raises(NotFound):
                self.topology.bind(*binding, {})
            return
        is_new = self.topology.bind(*binding, {}) is not None
        assert is_new is (binding not in self.bindings)
        self.bindings.add(binding)

    @rule(source=NAMES, kind=st.sampled_from([QUEUE, EXCHANGE]), destination=NAMES, key=KEYS)
    def unbind(self, source: str, kind: str, destination: str, key: bytes) -> None:
        gone = {(source, kind, destination, key)} & self.bindings
        self.removals.append(self.topology.unbind(source, kind, destination, key, {}))
        self.bindings -= gone

    @rule(name=NAMES)
    def delete_queue(self, name: str) -> None:
        if name in self.queues:
            self.queues.remove(name)
            self.bindings = {each for each in self.bindings if each[1:3] != (QUEUE, name)}
            self.removals.append(self.topology.remove_queue(name))

    @rule(name=NAMES)
    def delete_exchange(self, name: str) -> None:
        # One that was bound to itself may have gone with its binding, before a step says so.
        if name in self.exchanges and name in self.topology.exchanges:
            self.forget_exchange(name)
            self.removals.append(self.topology.remove_exchange(name))

    @rule(place=st.integers(0, 5), work=st.integers(1, 4))
    def step(self, place: int, work: int) -> None:
        if not self.removals:
            return
        place %= len(self.removals)
        removal = self.removals[place]
        removed = self.topology.step(removal, work)
        assert len(removed.bindings) <= work + 1  # and the one that an unbind has dropped
        for exchange in removed.exchanges:
            if exchange.name in self.exchanges and exchange.name not in self.topology.exchanges:
                assert self.exchanges[exchange.name], "only auto-delete exchanges go by themselves"
                assert not any(each[0] == exchange.name for each in self.bindings)
                self.forget_exchange(exchange.name)
        if removal.is_done:
            self.removals.pop(place)

    @rule()
    def finish(self) -> None:
        while self.removals:
            self.step(0, 3)
        assert not self.topology.leaving
        assert not self.topology._places
        for place, incoming in self.topology._incoming.items():
            assert {(b.source, *place, b.key) for b in incoming} == {
                each for each in self.bindings if each[1:3] == place
            }

    def forget_exchange(self, name: str) -> None:
        del self.exchanges[name]
        self.bindings = {
            each
            for each in self.bindings
            if each[0] != name and each[1:3] != (EXCHANGE, name)
        }  # fmt: skip

    @invariant()
    def both_hold_the_same(self) -> None:
        topology = self.topology
        unreported = {each.name for removal in self.removals for each in removal.removed.exchanges}
        assert set(topology.exchanges) == set(self.exchanges) - unreported
        assert set(topology.queues) == self.queues
        assert {(b.source, *b.identity[:3]) for b in topology.bindings()} == {
            each for each in self.bindings if each[0] not in unreported
            and (each[1] == QUEUE or each[2] not in unreported)
        }  # fmt: skip

    @invariant()
    def messages_reach_the_queues_that_are_bound(self) -> None:
        for name, exchange in self.topology.exchanges.items():
            routed = route(self.topology, exchange, [b"k"], None)
            seen, work = {name}, [name]
            reached: set[str] = set()
            for each in work:
                kind = self.topology.exchanges[each].type
                for source, what, destination, key in self.bindings:
                    if source != each or not matches(kind, key):
                        continue
                    if what == QUEUE:
                        reached.add(destination)
                    elif destination in self.topology.exchanges and destination not in seen:
                        seen.add(destination)
                        work.append(destination)
            assert {queue.name for queue in routed.queues} == reached


def matches(kind: str, key: bytes) -> bool:
    """Whether a binding without arguments passes a message of the routing key ``k``."""
    return kind in ("fanout", "headers") or key == b"k" or (kind == "topic" and key == b"#")


TestTopologyAgainstSets = TopologyAgainstSets.TestCase
TestTopologyAgainstSets.settings = settings(max_examples=60, stateful_step_count=30)
