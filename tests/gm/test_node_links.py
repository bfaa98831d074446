"""Rings over links between nodes, on a simulated network: cuts, crashes, and what members make of them.

Tests: gm/links.py, gm/node.py, gm/store_server.py
"""

from __future__ import annotations

from typing import Any

import pytest

from leveret.actors.runtime.ref import Ref
from leveret.gm.actor import GmActor
from leveret.gm.callbacks import Callbacks
from leveret.gm.node import RingNode
from leveret.gm.node_links import node_links
from leveret.gm.records.group import MemberId
from leveret.gm.requests import Broadcast
from leveret.gm.store_server import GroupStoreServer, LinkedGroupStore
from rigs.links.linked_nodes import LinkedNodes


class Log(Callbacks):
    def __init__(self) -> None:
        self.members: frozenset[MemberId] = frozenset()
        self.messages: list[bytes] = []
        self.deaths: list[MemberId] = []
        self.end: object = None

    def joined(self, me: MemberId, members: frozenset[MemberId]) -> None:
        self.members = members

    def members_changed(self, births: frozenset[MemberId], deaths: frozenset[MemberId]) -> None:
        self.members = (self.members | births) - deaths
        self.deaths += deaths

    def handle_msg(self, publisher: MemberId, message: bytes) -> None:
        self.messages.append(message)

    def handle_terminate(self, reason: object) -> None:
        self.end = reason


class Ring:
    """A member on each of three nodes; a fourth keeps the record."""

    def __init__(self, seed: int) -> None:
        self.nodes = nodes = LinkedNodes(seed, "sabc")
        nodes.runtimes["s"].spawn(GroupStoreServer, name="records")
        self.logs: dict[str, Log] = {}
        self.members: dict[str, Ref] = {}
        for name in "abc":
            self.join(name)

    def join(self, name: str) -> None:
        nodes = self.nodes
        node = nodes.nodes[name]
        ring_node = RingNode(
            nodes.runtimes[name], LinkedGroupStore(node, "records", "s"), node_links(node)
        )
        log = self.logs[name] = Log()
        self.members[name] = nodes.runtimes[name].spawn(GmActor, ring_node, "g", log)
        nodes.run(3.0)

    def broadcast(self, name: str, *messages: bytes) -> None:
        self.nodes.runtimes[name].send(self.members[name], Broadcast(list(messages)))


@pytest.fixture
def ring(seed: int) -> Ring:
    return Ring(seed)


def _kill(ring: Ring, name: str) -> None:
    ring.nodes.network.crash(name)
    for cell in ring.nodes.runtimes[name].cells():
        ring.nodes.runtimes[name].exit(cell.ref, "kill")
    ring.nodes.run(0.0)


def test_a_ring_of_three_nodes_carries_everything_to_everybody(ring: Ring) -> None:
    expected: list[Any] = []
    for number in range(30):
        for name in "abc":
            body = b"%s %d " % (name.encode(), number) + b"." * (number * 3_000)
            ring.broadcast(name, body)
            expected.append(body)
        ring.nodes.run(0.01)
    ring.nodes.run(10.0)

    for name in "abc":
        assert len(ring.logs[name].members) == 3
        assert sorted(ring.logs[name].messages) == sorted(expected)


def test_a_node_that_crashes_is_reported_and_the_ring_goes_on(ring: Ring) -> None:
    for number in range(20):
        ring.broadcast("b", b"b %d" % number)
    ring.nodes.run(0.005)
    _kill(ring, "b")
    ring.broadcast("a", b"a")
    ring.broadcast("c", b"c")
    ring.nodes.run(10.0)
    ring.nodes.start("b")
    ring.nodes.run(10.0)
    ring.join("b")
    ring.broadcast("a", b"to all three")
    ring.nodes.run(5.0)

    assert ring.logs["a"].messages[-1] == ring.logs["c"].messages[-1] == b"to all three"
    assert sorted(ring.logs["a"].messages) == sorted(ring.logs["c"].messages)
    assert len(ring.logs["a"].deaths) == len(ring.logs["c"].deaths) == 1
    assert ring.logs["b"].messages == [b"to all three"]
    assert len(ring.logs["b"].members) == 3


@pytest.mark.parametrize("way", ["reset", "silence"])
def test_a_cut_between_two_members_ends_one_of_them_and_it_can_join_again(
    ring: Ring, way: str
) -> None:
    if way == "reset":
        ring.nodes.network.reset("a", "b")
    else:
        ring.nodes.network.silence("a", "b")
    ring.nodes.run(5.0)
    ring.nodes.network.heal()
    ring.nodes.run(20.0)
    ended = [name for name in "abc" if not ring.members[name].is_alive]
    assert len(ended) == 1, "one of the two is declared dead"
    for name in ended:
        ring.join(name)
    for name in "abc":
        ring.broadcast(name, name.encode())
    ring.nodes.run(5.0)

    for name in "abc":
        assert set(ring.logs[name].messages) == {b"a", b"b", b"c"}
        assert len(ring.logs[name].members) == 3


def test_the_ring_goes_on_while_the_store_cannot_be_reached(ring: Ring) -> None:
    for name in "abc":
        ring.nodes.network.silence(name, "s")
    ring.nodes.run(5.0)
    ring.broadcast("a", b"without the store")
    ring.nodes.run(5.0)
    for name in "abc":
        assert ring.logs[name].messages == [b"without the store"]
    _kill(ring, "c")
    ring.nodes.run(5.0)
    assert ring.logs["a"].deaths == []
    ring.nodes.network.heal()
    ring.nodes.run(30.0)

    assert len(ring.logs["a"].deaths) == len(ring.logs["b"].deaths) == 1


def test_a_group_whose_nodes_were_all_killed_goes_on_when_they_are_started_again(
    ring: Ring,
) -> None:
    ring.broadcast("a", b"lost with its holders")
    ring.nodes.run(1.0)
    for name in "abc":
        _kill(ring, name)
    for name in "abc":
        ring.nodes.start(name)
    ring.nodes.run(10.0)
    for name in "abc":
        ring.join(name)
    ring.broadcast("a", b"again")
    ring.nodes.run(5.0)

    for name in "abc":
        assert len(ring.logs[name].members) == 3
        assert ring.logs[name].messages == [b"again"]


def test_a_node_that_comes_back_alone_waits_for_the_others_that_may_be_a_ring(ring: Ring) -> None:
    for name in "abc":
        _kill(ring, name)
    ring.nodes.start("a")
    ring.nodes.run(10.0)
    ring.join("a")
    assert not ring.members["a"].is_alive, "b and c may work without it"
    ring.nodes.start("b")
    ring.nodes.start("c")
    ring.nodes.run(10.0)
    ring.join("a")

    assert len(ring.logs["a"].members) == 1
