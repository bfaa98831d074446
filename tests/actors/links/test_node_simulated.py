"""Mail, monitors, links, exits and calls between nodes, on a simulated network.

Tests: actors/links/peer.py, actors/links/server.py, actors/links/signals.py,
    actors/runtime/remote.py
"""

from __future__ import annotations

from typing import Any

import msgpack
import pytest

from leveret.actors.gen_server import NOREPLY, CallFailed, From, GenServer
from leveret.actors.links.codec import Unreadable
from leveret.actors.links.frames import Kind, frame
from leveret.actors.links.limits import LinkLimits
from leveret.actors.links.node import NodeDown, NodeUp
from leveret.actors.links.peer import ANSWERS
from leveret.actors.links.sendable import WireError, register
from leveret.actors.links.server import WhereIs
from leveret.actors.links.signals import DOWN, EXIT, LINK, LINK_EXIT, MONITOR, UNLINK
from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.signals import Crash, Down, Exit
from leveret.core.errors import ActorError
from rigs.links.linked_nodes import Client, LinkedNodes, Noting


class Server(GenServer):
    def init(self) -> None:
        self.held: list[From | None] = []

    def handle_call(self, request: Any, frm: From | None) -> Any:
        if request == "hold":
            self.held.append(frm)
            return NOREPLY
        if request == "reply and end":
            self.reply(frm, "last word")
            self.stop("done")
        return request


@pytest.fixture
def nodes(seed: int) -> LinkedNodes:
    return LinkedNodes(seed)


def _do(nodes: LinkedNodes, node: str, ref: Ref, function: Any) -> None:
    """Run code as an actor's."""
    nodes.runtimes[node].send(ref, function)
    nodes.run()


def test_mail_arrives_in_order_with_its_senders_address(nodes: LinkedNodes) -> None:
    a, actor_a = nodes.spawn("a")
    b, actor_b = nodes.spawn("b")
    to = nodes.ref("a", b)
    values = [1, "text", b"bytes", (1, (2,)), {"k": [None, True]}, b"x" * 3_000_000, a, to, 2.5]

    for value in values:
        nodes.runtimes["a"].send(to, value, a)
    nodes.run()

    sender = actor_b.senders[0]
    assert sender is not None
    assert actor_b.seen == [*values[:6], sender, b, 2.5]
    assert set(actor_b.senders) == {sender}
    nodes.runtimes["b"].send(sender, "back", b)
    nodes.run()
    assert (actor_a.seen, actor_a.senders) == (["back"], [to])


def test_a_name_is_looked_up_by_name_and_node(nodes: LinkedNodes) -> None:
    b, _ = nodes.spawn("b", name="known")
    client = nodes.runtimes["a"].spawn(Client)
    server = nodes.nodes["a"].server_of("b")
    for name in ("known", "unknown"):
        nodes.runtimes["a"].send(client, (server, WhereIs(name)))
    nodes.run()

    assert client.cell.actor.answers == [nodes.ref("a", b), None]


def test_calls_are_answered_across_nodes_and_fail_with_the_reason_of_their_end(
    nodes: LinkedNodes,
) -> None:
    server = nodes.ref("a", nodes.runtimes["b"].spawn(Server))
    client = nodes.runtimes["a"].spawn(Client)
    for request in ("one", "hold", "reply and end", "too late"):
        nodes.runtimes["a"].send(client, (server, request))
    nodes.run()

    assert client.cell.actor.answers == [
        "one",
        "last word",
        CallFailed("done"),
        CallFailed("done"),
    ]


def test_a_call_to_a_dead_actor_fails_with_noproc(nodes: LinkedNodes) -> None:
    b, _ = nodes.spawn("b")
    client = nodes.runtimes["a"].spawn(Client)
    nodes.runtimes["b"].exit(b, "kill")
    nodes.run()
    nodes.runtimes["a"].send(client, (nodes.ref("a", b), "?"))
    nodes.run()

    assert client.cell.actor.answers == [CallFailed("noproc")]
    assert nodes.runtimes["b"].dead_letters == 1


@pytest.mark.parametrize("size", [1, 100_000])
def test_a_down_comes_behind_everything_that_the_actor_had_sent(
    nodes: LinkedNodes, size: int
) -> None:
    a, actor_a = nodes.spawn("a")
    b, _ = nodes.spawn("b")
    _do(nodes, "a", a, lambda self: self.monitor(nodes.ref("a", b)))
    to = nodes.ref("b", a)

    for _ in range(200):
        nodes.runtimes["b"].send(to, b"." * size, b)
    nodes.runtimes["b"].send(b, lambda self: self.stop(("why", 1)))
    nodes.run(10)

    assert [type(mail) for mail in actor_a.seen] == [bytes] * 200 + [Down]
    assert actor_a.seen[-1].reason == ("why", 1)


def test_a_monitor_that_comes_after_the_end_hears_of_it_behind_the_mail_that_waits(
    seed: int,
) -> None:
    nodes = LinkedNodes(seed, bytes_per_s=1e6)
    a, actor_a = nodes.spawn("a")
    b, _ = nodes.spawn("b")
    to = nodes.ref("b", a)
    for _ in range(30):
        nodes.runtimes["b"].send(to, bytes(100_000), b)
    nodes.runtimes["b"].exit(b, "kill")
    nodes.run(1.0)
    _do(nodes, "a", a, lambda self: self.monitor(nodes.ref("a", b)))
    came = len(actor_a.seen)
    nodes.run(10)

    assert 0 < came < 30
    assert [type(mail) for mail in actor_a.seen] == [bytes] * 30 + [Down]


def test_links_work_both_ways_and_either_side_removes_them(nodes: LinkedNodes) -> None:
    a, actor_a = nodes.spawn("a")
    for end_at in "ab":
        b, actor_b = nodes.spawn("b")
        _do(nodes, "a", a, lambda self, b=b: self.link(nodes.ref("a", b)))
        if end_at == "b":
            nodes.runtimes["b"].exit(b, "kill")
            nodes.run()
            assert [(each.sender, each.reason) for each in actor_a.seen] == [
                (actor_a.seen[0].sender, "killed")
            ]
        else:
            other, _ = nodes.spawn("a")
            _do(nodes, "a", other, lambda self, b=b: self.link(nodes.ref("a", b)))
            nodes.runtimes["a"].exit(other, "kill")
            nodes.run()
            assert [each.reason for each in actor_b.seen] == ["killed"]
            _do(nodes, "b", b, lambda self: self.unlink(nodes.ref("b", a)))
            nodes.runtimes["b"].exit(b, "kill")
            nodes.run()
            assert actor_a.seen == [], "b has removed the link"


def test_an_unlink_overtaken_by_the_end_hears_nothing_of_it(nodes: LinkedNodes) -> None:
    a, actor_a = nodes.spawn("a")
    b, _ = nodes.spawn("b")
    _do(nodes, "a", a, lambda self: self.link(nodes.ref("a", b)))
    nodes.runtimes["b"].exit(b, "kill")
    nodes.runtimes["b"].run_until_idle()
    _do(nodes, "a", a, lambda self: self.unlink(nodes.ref("a", b)))

    assert actor_a.seen == []


def test_a_link_to_a_dead_actor_is_an_exit_with_noproc(nodes: LinkedNodes) -> None:
    a, actor_a = nodes.spawn("a")
    b, _ = nodes.spawn("b")
    nodes.runtimes["b"].exit(b, "kill")
    nodes.run()
    to = nodes.ref("a", b)
    _do(nodes, "a", a, lambda self: self.link(to))

    assert actor_a.seen == [Exit(to, "noproc")]


def test_exit_signals_cross_nodes_and_kill_cannot_be_trapped(nodes: LinkedNodes) -> None:
    a, _ = nodes.spawn("a")
    b, actor_b = nodes.spawn("b")
    plain = nodes.runtimes["b"].spawn(Server)
    nodes.runtimes["a"].exit(nodes.ref("a", b), "normal", a)
    nodes.runtimes["a"].exit(nodes.ref("a", plain), "normal", a)
    nodes.run()
    assert actor_b.seen == [Exit(nodes.ref("b", a), "normal")]
    assert plain.is_alive
    nodes.runtimes["a"].exit(nodes.ref("a", plain), "shutdown", a)
    nodes.runtimes["a"].exit(nodes.ref("a", b), "kill", a)
    nodes.run()

    assert not plain.is_alive
    assert not b.is_alive


def test_an_exit_signal_keeps_its_place_behind_mail_that_waits_for_credit(seed: int) -> None:
    nodes = LinkedNodes(seed, limits=LinkLimits(credit_messages=10))
    a, _ = nodes.spawn("a")
    b, actor_b = nodes.spawn("b")
    to = nodes.ref("a", b)
    nodes.runtimes["b"].suspend(b)
    for number in range(100):
        nodes.runtimes["a"].send(to, b"%d" % number * 10_000, a)
    nodes.runtimes["a"].exit(to, "bye", a)
    nodes.runtimes["a"].send(to, "last", a)
    nodes.run(3.0)
    nodes.runtimes["b"].resume(b)
    nodes.run(5.0)

    assert actor_b.seen == [
        *(b"%d" % number * 10_000 for number in range(100)),
        Exit(nodes.ref("b", a), "bye"),
        "last",
    ]


def test_mail_beyond_the_credit_waits_at_the_sender(seed: int) -> None:
    nodes = LinkedNodes(seed, limits=LinkLimits(credit_messages=100))
    a, _ = nodes.spawn("a")
    b, actor_b = nodes.spawn("b")
    nodes.runtimes["b"].suspend(b)
    to = nodes.ref("a", b)
    for number in range(1_000):
        nodes.runtimes["a"].send(to, b"%d" % number * 1_000, a)
    nodes.run(5.0)
    waiting = b.cell.mail_count()
    assert 100 <= waiting < 200
    other, actor_other = nodes.spawn("b")
    nodes.runtimes["a"].send(nodes.ref("a", other), "not held up", a)
    nodes.run()
    assert actor_other.seen == ["not held up"]
    nodes.runtimes["b"].resume(b)
    nodes.run(5.0)

    assert actor_b.seen == [b"%d" % number * 1_000 for number in range(1_000)]


def test_mail_of_other_pairs_does_not_wait_behind_a_large_body(seed: int) -> None:
    nodes = LinkedNodes(seed, bytes_per_s=10e6)
    a, _ = nodes.spawn("a")
    b, actor_b = nodes.spawn("b")
    other, actor_other = nodes.spawn("b")
    nodes.runtimes["a"].send(nodes.ref("a", b), bytes(50_000_000), a)
    nodes.run(0.5)
    nodes.runtimes["a"].send(nodes.ref("a", other), "small", a)
    nodes.runtimes["a"].send(nodes.ref("a", other), b"." * 1_000_000, a)
    nodes.run(1.0)

    assert [len(each) for each in actor_other.seen] == [5, 1_000_000]
    assert actor_b.seen == []
    nodes.run(5.0)
    assert [len(each) for each in actor_b.seen] == [50_000_000]


def test_a_reset_is_one_down_for_each_monitor_and_link_and_fails_calls(nodes: LinkedNodes) -> None:
    a, actor_a = nodes.spawn("a")
    b, _ = nodes.spawn("b")
    server = nodes.ref("a", nodes.runtimes["b"].spawn(Server))
    client = nodes.runtimes["a"].spawn(Client)
    to = nodes.ref("a", b)

    def relate(self: Noting) -> None:
        self.monitor(to)
        self.monitor(to)
        self.link(to)

    _do(nodes, "a", a, relate)
    nodes.nodes["a"].watch_nodes(a)
    nodes.runtimes["a"].send(client, (server, "hold"))
    nodes.run()
    nodes.network.reset("a", "b")
    nodes.run(5.0)

    kinds = [type(mail).__name__ for mail in actor_a.seen]
    assert sorted(kinds) == ["Down", "Down", "Exit", "NodeDown", "NodeUp"]
    assert kinds[-2:] == ["NodeDown", "NodeUp"]
    assert {mail.reason for mail in actor_a.seen[:3]} == {"noconnection"}
    assert client.cell.actor.answers == [CallFailed("noconnection")]
    assert not to.is_alive
    assert nodes.ref("a", b) is not to, "the next connection has another incarnation"


def test_addresses_of_an_older_incarnation_stay_dead(nodes: LinkedNodes) -> None:
    a, actor_a = nodes.spawn("a")
    b, actor_b = nodes.spawn("b")
    old = nodes.ref("a", b)
    nodes.network.reset("a", "b")
    nodes.run(5.0)
    _do(nodes, "a", a, lambda self: self.monitor(old))
    _do(nodes, "a", a, lambda self: self.link(old))
    nodes.runtimes["a"].send(old, "lost", a)
    nodes.runtimes["a"].send(nodes.ref("a", b), "found", a)
    nodes.run()

    assert [mail.reason for mail in actor_a.seen] == ["noconnection", "noconnection"]
    assert actor_b.seen == ["found"]


def test_a_reply_to_a_call_of_an_older_incarnation_is_dropped(nodes: LinkedNodes) -> None:
    server = nodes.runtimes["b"].spawn(Server)
    client = nodes.runtimes["a"].spawn(Client)
    nodes.runtimes["a"].send(client, (nodes.ref("a", server), "hold"))
    nodes.run()
    nodes.network.reset("a", "b")
    nodes.run(3.0)
    nodes.runtimes["b"].reply(server.cell.actor.held[0], "late")
    nodes.run()

    assert client.cell.actor.answers == [CallFailed("noconnection")]


@pytest.mark.parametrize("is_one_way", [True, False])
def test_silence_is_noticed_by_both_sides(nodes: LinkedNodes, is_one_way: bool) -> None:
    a, actor_a = nodes.spawn("a")
    b, actor_b = nodes.spawn("b")
    nodes.nodes["a"].watch_nodes(a)
    nodes.nodes["b"].watch_nodes(b)
    nodes.network.silence("a", "b", is_one_way)
    nodes.run(2.5)
    assert [mail.reason for mail in actor_b.seen] == ["silent"]
    assert [type(mail) for mail in actor_a.seen] == [NodeDown]
    nodes.network.heal()
    nodes.run(20.0)

    assert [type(mail) for mail in actor_a.seen] == [NodeDown, NodeUp]
    assert nodes.nodes["a"].nodes == ["b"]


def test_an_idle_link_stays(nodes: LinkedNodes) -> None:
    a, actor_a = nodes.spawn("a")
    nodes.nodes["a"].watch_nodes(a)
    nodes.run(600.0)

    assert actor_a.seen == []


def test_a_node_that_starts_again_is_another_one(nodes: LinkedNodes) -> None:
    a, actor_a = nodes.spawn("a")
    b, _ = nodes.spawn("b", name="it")
    old = nodes.ref("a", b)
    _do(nodes, "a", a, lambda self: self.monitor(old))
    nodes.network.crash("b")
    for cell in nodes.runtimes["b"].cells():
        nodes.runtimes["b"].exit(cell.ref, "kill")
    nodes.run()
    assert [mail.reason for mail in actor_a.seen] == ["noconnection"]
    nodes.start("b")
    b2, actor_b2 = nodes.spawn("b")
    nodes.run(10.0)
    nodes.runtimes["a"].send(nodes.ref("a", b2), "new", a)
    nodes.run()

    assert actor_b2.seen == ["new"]
    assert not nodes.ref("a", b).is_alive


def test_an_address_of_a_third_node_is_as_good_as_its_own(seed: int) -> None:
    nodes = LinkedNodes(seed, "abc")
    b, _ = nodes.spawn("b")
    c, actor_c = nodes.spawn("c")
    nodes.runtimes["a"].send(nodes.ref("a", b), nodes.ref("a", c))
    nodes.run()
    (at_b,) = b.cell.actor.seen
    assert at_b is nodes.ref("b", c)
    nodes.runtimes["b"].send(at_b, "hello", b)
    nodes.run()

    assert actor_c.seen == ["hello"]


def test_messages_that_cannot_be_sent_are_the_senders_error(seed: int) -> None:
    nodes = LinkedNodes(seed, limits=LinkLimits(mail_bytes_max=200_000, unsent_bytes_max=200_000))
    b, actor_b = nodes.spawn("b")
    to = nodes.ref("a", b)
    send = nodes.runtimes["a"].send
    for value in (object(), {1}, 2**64, len):
        with pytest.raises(WireError, match="cannot go to another process"):
            send(to, value)
    with pytest.raises(WireError, match="limit 200000"):
        send(to, bytes(200_001))
    for refused in (
        lambda: nodes.runtimes["a"].call_inline(to, 1),
        lambda: nodes.runtimes["a"].suspend(to),
        lambda: nodes.runtimes["a"].register("name", to),
        lambda: nodes.runtimes["a"].start_link(to, Noting, (), lambda _: None),
        lambda: nodes.runtimes["a"].link(to, nodes.nodes["a"].server_of("b")),
    ):
        with pytest.raises(ActorError, match=r"node"):
            refused()
    send(to, "fine")
    nodes.run()
    assert actor_b.seen == ["fine"]


class Fragile:
    """Can be sent, and not be read."""


def _refuse(_: list[Any]) -> Any:
    raise ValueError("of another version")


def test_a_message_that_is_not_readable_comes_as_that_and_the_link_stays(
    nodes: LinkedNodes, caplog: pytest.LogCaptureFixture
) -> None:
    register(Fragile, lambda _: [], _refuse)
    b, actor_b = nodes.spawn("b")
    to = nodes.ref("a", b)
    for value in ("before", Fragile(), (1, [Fragile()]), "after"):
        nodes.runtimes["a"].send(to, value)
    nodes.runtimes["a"].send(to, (Fragile(), bytes(100_000)))
    nodes.run()

    assert [type(mail) for mail in actor_b.seen] == [str, Unreadable, Unreadable, str, Unreadable]
    assert "of another version" in actor_b.seen[1].error
    assert sum("message is not readable" in line for line in caplog.messages) == 3


def test_a_reason_that_cannot_be_sent_goes_as_text(nodes: LinkedNodes) -> None:
    a, actor_a = nodes.spawn("a")
    for reason in (object(), Crash(ValueError("bad")), "x" * 1_000_000):
        b, _ = nodes.spawn("b")
        _do(nodes, "a", a, lambda self, b=b: self.monitor(nodes.ref("a", b)))
        nodes.runtimes["b"].exit(b, reason)
        _do(nodes, "b", b, lambda self: self.stop(self.seen[-1].reason))

    texts = [mail.reason for mail in actor_a.seen]
    assert texts[0].startswith("<object object")
    assert texts[1] == Crash(ValueError("bad"))
    assert texts[2] == "x" * 10_000


def test_a_node_that_takes_too_little_is_cut_off(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    limits = LinkLimits(mail_bytes_max=1_100_000, unsent_bytes_max=5_000_000)
    nodes = LinkedNodes(seed, limits=limits, bytes_per_s=1e5)
    a, actor_a = nodes.spawn("a")
    b, _ = nodes.spawn("b")
    nodes.nodes["a"].watch_nodes(a)
    to = nodes.ref("a", b)
    for _ in range(6):
        nodes.runtimes["a"].send(to, bytes(1_000_000), a)
    nodes.run()

    assert type(actor_a.seen[0]) is NodeDown
    assert "it takes its mail too slowly" in caplog.text


def test_nothing_is_kept_for_pairs_that_have_rested(nodes: LinkedNodes) -> None:
    receivers = [nodes.spawn("b")[0] for _ in range(50)]
    senders = [nodes.spawn("a")[0] for _ in range(50)]
    for sender in senders:
        for receiver in receivers:
            nodes.runtimes["a"].send(nodes.ref("a", receiver), 1, sender)
    nodes.run(0.1)
    peer = nodes.nodes["a"]._peers["b"]
    assert len(peer.connection._out) == 2_500
    nodes.run(5.0)

    assert not peer.connection._out
    assert not peer._streams
    assert not nodes.nodes["b"]._peers["a"].connection._in
    assert len(peer._refs) == 0
    nodes.runtimes["a"].send(nodes.ref("a", receivers[0]), 2, senders[0])
    nodes.run()
    assert receivers[0].cell.actor.seen == [1] * 50 + [2]


def test_two_nodes_that_dial_each_other_have_one_link(seed: int) -> None:
    for number in range(30):
        nodes = LinkedNodes(seed + number)
        watchers = {name: nodes.spawn(name) for name in "ab"}
        for name, (ref, _) in watchers.items():
            nodes.nodes[name].watch_nodes(ref)
        nodes.nodes["a"].dial("b")
        nodes.run(6.0)
        for _ in range(3):
            nodes.network.reset("a", "b")
            nodes.run(6.0)

        for _, noting in watchers.values():
            kinds = [type(mail) for mail in noting.seen]
            assert kinds == [NodeDown, NodeUp] * 3, "a link that is made is kept"
        b, actor_b = nodes.spawn("b")
        nodes.runtimes["a"].send(nodes.ref("a", b), "works")
        nodes.run()
        assert actor_b.seen == ["works"]


def test_an_unlink_is_known_to_both_nodes_when_their_link_breaks(nodes: LinkedNodes) -> None:
    a, actor_a = nodes.spawn("a")
    b, _ = nodes.spawn("b")
    _do(nodes, "a", a, lambda self: self.link(nodes.ref("a", b)))
    _do(nodes, "b", b, lambda self: self.unlink(nodes.ref("b", a)))
    nodes.network.reset("a", "b")
    nodes.run(5.0)

    assert actor_a.seen == []


def test_both_nodes_agree_which_actors_a_broken_link_has_parted(nodes: LinkedNodes) -> None:
    a1, _ = nodes.spawn("a")
    b1, _ = nodes.spawn("b")
    nodes.network.reset("a", "b")
    nodes.run(5.0)
    a2, _ = nodes.spawn("a")
    b2, _ = nodes.spawn("b")

    for a in (a1, a2):
        for b in (b1, b2):
            is_old = a is a1 and b is b1
            assert nodes.nodes["a"].were_parted(a.num, b.node, b.num) is is_old
            assert nodes.nodes["b"].were_parted(b.num, a.node, a.num) is is_old


def test_a_node_whose_name_another_process_has_is_past(nodes: LinkedNodes) -> None:
    a, b = nodes.nodes["a"], nodes.nodes["b"]
    before = b.runtime.node
    assert not a.is_past(before)
    nodes.network.crash("b")
    nodes.run(5.0)
    assert not a.is_past(before), "it may be out of reach only"
    nodes.start("b")
    nodes.run(10.0)

    assert a.is_past(before)
    assert nodes.nodes["b"].is_past(before)
    assert not any(each.is_past(nodes.runtimes["b"].node) for each in (a, nodes.nodes["b"]))
    assert not a.is_past("c/1")


def test_a_sender_is_told_when_what_it_has_sent_is_gone(seed: int) -> None:
    nodes = LinkedNodes(seed, limits=LinkLimits(credit_messages=10))
    a, actor_a = nodes.spawn("a")
    b, actor_b = nodes.spawn("b")
    node, to = nodes.nodes["a"], nodes.ref("a", b)
    node.when_written(a, to, "nothing waits")
    node.when_written(a, a, "of this node")
    nodes.run(0.0)
    assert actor_a.seen == ["nothing waits", "of this node"]
    nodes.runtimes["b"].suspend(b)
    for _ in range(50):
        nodes.runtimes["a"].send(to, b"." * 40_000, a)
    node.when_written(a, to, "all has gone")
    nodes.run(3.0)
    assert "all has gone" not in actor_a.seen
    nodes.runtimes["b"].resume(b)
    nodes.run(3.0)
    assert actor_a.seen[2:] == ["all has gone"]
    assert len(actor_b.seen) == 50

    nodes.runtimes["b"].suspend(b)
    for _ in range(50):
        nodes.runtimes["a"].send(to, b"." * 40_000, a)
    node.when_written(a, to, "is lost")
    nodes.network.reset("a", "b")
    nodes.run(3.0)
    assert actor_a.seen[3:] == ["is lost"]


NOBODY = msgpack.packb("reason")
MALFORMED_SIGNALS: dict[str, list[Any]] = {
    "no number": [],
    "an operation that is none": [99, 1],
    "an operation that is a list": [[1], 1],
    "an exit of a sender that is none": [EXIT, 1, NOBODY, 7],
    "the end of a linked actor that is nobody": [LINK_EXIT, 1, NOBODY, None],
    "the end of a linked actor that is a number": [LINK_EXIT, 1, NOBODY, 7],
    "a monitor of a list": [MONITOR, [1]],
    "a monitor of a text": [MONITOR, "1"],
    "an end with a reason that is a number": [DOWN, 1, 7, None],
    "a link with a text": [LINK, 1, "1"],
    "an unlink with nobody": [UNLINK, 1, None],
}


@pytest.mark.parametrize("parts", MALFORMED_SIGNALS.values(), ids=MALFORMED_SIGNALS)
@pytest.mark.parametrize("is_alive", [True, False])
def test_a_malformed_signal_breaks_the_link_and_nothing_else(
    nodes: LinkedNodes, parts: list[Any], is_alive: bool
) -> None:
    ref, actor = nodes.spawn("b")
    if len(parts) > 1 and parts[1] == 1:
        parts = [parts[0], ref.num if is_alive else 10_000, *parts[2:]]
    if parts[0:1] == [DOWN]:  # of an actor of theirs that is monitored
        other, _ = nodes.spawn("a")
        _do(nodes, "b", ref, lambda self: self.monitor(nodes.ref("b", other)))
        parts = [DOWN, other.num, *parts[2:]]
    peer = nodes.nodes["b"]._peers["a"]
    peer.received(frame(peer.theirs.incarnation, Kind.SIGNAL, 0, msgpack.packb(parts)))

    assert nodes.nodes["b"].nodes == []
    assert ref.is_alive
    assert [each for each in actor.seen if isinstance(each, Exit)] == []


@pytest.mark.parametrize("number", [[1], {"a": 1}, None, "1", 1.0])
def test_a_reply_without_a_number_breaks_the_link_and_nothing_else(
    nodes: LinkedNodes, number: Any
) -> None:
    peer = nodes.nodes["b"]._peers["a"]
    incarnation = peer.theirs.incarnation
    peer.received(frame(incarnation, Kind.OPEN, 900, msgpack.packb([None, ANSWERS])))
    assert nodes.nodes["b"].nodes == ["a"]
    peer.received(frame(incarnation, Kind.RUN, 900, msgpack.packb([number, "value"])))

    assert nodes.nodes["b"].nodes == []
