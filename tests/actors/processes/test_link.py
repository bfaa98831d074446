"""A process and its parent, and two processes that know each other only through it, on a simulated network."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from leveret.actors.gen_server import NOREPLY, GenServer
from leveret.actors.links import signals
from leveret.actors.links.codec import Unreadable
from leveret.actors.links.limits import LinkLimits
from leveret.actors.links.sendable import Pieces, register
from leveret.actors.processes import link
from leveret.actors.processes.link import ProcessLink
from leveret.actors.runtime.calls import Answer, From, Request
from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.runtime import Runtime
from leveret.actors.runtime.signals import CallFailed, Down, Exit
from leveret.core.errors import ActorError
from leveret.testing.virtual_clock import VirtualClock
from rigs.links.linked_nodes import Client, LinkedNodes
from rigs.links.linked_processes import LinkedProcess, LinkedProcesses

LONG = bytes(20_000)  # travels by itself


class Server(GenServer):
    def handle_call(self, request: Any, frm: From | None) -> Any:
        if isinstance(request, tuple):
            to, request = request
            self.post(to, Request(frm, request))  # it answers in this one's place
            return NOREPLY
        return request


@pytest.fixture
def tree(seed: int) -> LinkedProcesses:
    return LinkedProcesses(seed)


@pytest.fixture
def one(tree: LinkedProcesses) -> LinkedProcess:
    return tree.start()


@pytest.fixture
def other(tree: LinkedProcesses) -> LinkedProcess:
    return tree.start()


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop whose futures tasks would wait for; it does not run."""
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def do(tree: LinkedProcesses, runtime: Runtime, ref: Ref, function: Any) -> None:
    """Run code as an actor's."""
    runtime.run_as(ref, function, ref.cell.actor)
    tree.run()


# A process and its parent.


def test_mail_waits_for_the_connection_and_then_comes_in_order(tree: LinkedProcesses) -> None:
    process = tree.start(is_connected=False)
    mails = [b"small", bytes(1_000_000), "last"]
    for mail in mails:
        tree.runtime.send(process.host, mail)
    ref, noting = tree.spawn()
    process.runtime.send(tree.address(process, ref), "from there", process.root)
    tree.run()
    assert process.noting.seen == []
    process.connect()
    tree.run()

    assert process.noting.seen == mails
    assert (noting.seen, noting.senders) == (["from there"], [process.host])


def test_a_process_may_compute_for_as_long_as_it_likes(
    tree: LinkedProcesses, one: LinkedProcess
) -> None:
    tree.network.silence("process", one.name)
    tree.runtime.send(one.host, "hello")
    tree.run(10_000)
    tree.network.heal()
    tree.run()

    assert one.noting.seen == ["hello"]
    assert one.lost == []


def test_a_link_on_which_nothing_moves_has_no_timer(
    tree: LinkedProcesses, one: LinkedProcess
) -> None:
    for number in range(100):
        tree.runtime.send(one.host, number)
    tree.run()
    sent = one.host_link.peer.connection.sent_messages

    assert tree.clock.pending_count == 0
    tree.runtime.send(one.host, "again")
    tree.run()
    assert tree.clock.pending_count == 0
    assert not one.host_link.peer.connection.needs_ticks, "its streams are closed"
    assert one.host_link.peer.connection.sent_messages == sent + 1
    assert one.noting.seen == [*range(100), "again"]


def test_a_slow_process_has_credit_and_its_mail_waits_here(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "LIMITS", LinkLimits(credit_messages=10))
    tree = LinkedProcesses(seed)
    process = tree.start()
    process.runtime.suspend(process.root)
    ref, noting = tree.spawn()
    for number in range(100):
        tree.runtime.send(process.host, (number, LONG), ref)
    tree.runtime.when_written(ref, process.host, "all has left")
    tree.run()
    assert process.root.cell.mail_count() == 10
    assert noting.seen == []
    process.runtime.resume(process.root)
    tree.run()

    assert process.noting.seen == [(number, LONG) for number in range(100)]
    assert noting.seen == ["all has left"]


def test_a_process_that_ends_writes_what_waits_also_without_credit(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "LIMITS", LinkLimits(credit_messages=10))
    tree = LinkedProcesses(seed, bytes_per_s=1e6)
    process = tree.start()
    ref, noting = tree.spawn()
    tree.runtime.suspend(ref)
    to = tree.address(process, ref)
    sent = [*range(100), bytes(2_000_000), "last"]
    for mail in sent:
        process.runtime.send(to, mail, process.root)
    process.link.close()
    tree.run(60)
    tree.runtime.resume(ref)
    tree.run()

    assert noting.seen == sent
    assert sorted(process.lost) == ["host", "process"]


def test_the_end_of_the_root_is_told_behind_its_mail_with_its_reason(
    tree: LinkedProcesses, one: LinkedProcess
) -> None:
    ref, noting = tree.spawn()
    to = tree.address(one, ref)
    one.runtime.send(to, bytes(1_000_000), one.root)
    do(tree, one.runtime, one.root, lambda self: self.stop(("why", 1)))

    assert noting.seen == [bytes(1_000_000)]
    assert one.ends == [("why", 1)]


def test_a_link_that_either_side_has_made_is_removed_by_either(
    tree: LinkedProcesses, one: LinkedProcess
) -> None:
    for made_there in (True, False):
        for removed_there in (True, False):
            ref, _ = tree.spawn()
            there = tree.address(one, ref)
            if made_there:
                do(tree, one.runtime, one.root, lambda self, there=there: self.link(there))
            else:
                do(tree, tree.runtime, ref, lambda self: self.link(one.host))
            if removed_there:
                do(tree, one.runtime, one.root, lambda self, there=there: self.unlink(there))
            else:
                do(tree, tree.runtime, ref, lambda self: self.unlink(one.host))
            tree.runtime.exit(ref, "kill")
            tree.run()
    assert one.noting.seen == []

    ref, _ = tree.spawn()
    do(tree, tree.runtime, ref, lambda self: self.link(one.host))
    tree.runtime.exit(ref, "kill")
    tree.run()
    assert [mail.reason for mail in one.noting.seen] == ["killed"]


def test_when_the_link_is_lost_all_its_addresses_are_dead(
    tree: LinkedProcesses, one: LinkedProcess
) -> None:
    beside, _ = one.spawn()
    there = tree.runtime.routes.ref(beside.node, beside.num)
    watcher, noting = tree.spawn()
    do(tree, tree.runtime, watcher, lambda self: self.monitor(there))
    tree.network.reset("process", one.name)
    tree.run()

    assert [type(mail) for mail in noting.seen] == [Down]
    assert noting.seen[0].reason == "noconnection"
    assert not tree.runtime.routes.ref(beside.node, beside.num).is_alive
    assert sorted(one.lost) == ["host", "process"]
    assert one.host.is_alive, "it ends with its process"
    tree.runtime.send(one.host, "to nobody")
    tree.runtime.link(watcher, one.host)
    tree.run()


def test_a_link_that_is_lost_before_it_is_connected_is_given_up(tree: LinkedProcesses) -> None:
    process = tree.start(is_connected=False)
    process.host_link.peer.cut("killed")
    process.connect()
    tree.run()

    assert sorted(process.lost) == ["host", "process"]


def test_a_link_that_was_discarded_leaves_nothing(tree: LinkedProcesses) -> None:
    node = f"{tree.runtime.routes.new_child()}/{tree.runtime.node.rpartition('/')[2]}"
    discarded = ProcessLink(tree.runtime, node, lambda: None)
    assert tree.runtime.routes.ref(node, 2).is_alive
    discarded.discard()

    assert not tree.runtime.routes.ref(node, 2).is_alive
    assert tree.clock.pending_count == 0


def test_nothing_is_kept_of_a_process_that_is_gone(tree: LinkedProcesses) -> None:
    process = tree.start()
    watcher, _ = tree.spawn()
    there = tree.runtime.routes.ref(process.spawn()[0].node, 3)
    do(tree, tree.runtime, watcher, lambda self: self.monitor(there))
    other_side = weakref.ref(process.host_link.peer)
    tree.network.reset("process", process.name)
    tree.network.stop_listening(process.name)
    tree.run()
    tree.runtime.exit(process.host, "kill")
    tree.run()
    del process
    tree.start()  # the network forgets connections that are over
    gc.collect()

    assert other_side() is None


# Two processes, through their parent.


def test_mail_between_processes_keeps_its_order_and_the_senders_address(
    tree: LinkedProcesses, one: LinkedProcess, other: LinkedProcess
) -> None:
    sender, asked = one.spawn()
    receiver, noting = other.spawn()
    to = tree.address(one, receiver)
    sent = [1, bytes(300_000), "small", bytes(20_000), sender, to, 2]
    for mail in sent:
        one.runtime.send(to, mail, sender)
    tree.run()

    address = noting.senders[0]
    assert address is not None
    assert noting.seen == [*sent[:4], address, receiver, 2]
    assert set(noting.senders) == {address}
    other.runtime.send(address, "back", receiver)
    tree.run()
    assert (asked.seen, asked.senders) == (["back"], [to])


def test_a_root_has_the_address_of_its_host_everywhere(
    tree: LinkedProcesses, one: LinkedProcess, other: LinkedProcess
) -> None:
    ref, noting = tree.spawn()
    of_one = tree.address(other, one.host)
    one.runtime.send(tree.address(one, ref), one.root)
    other.runtime.send(tree.address(other, ref), of_one)
    tree.runtime.send(other.host, one.host)
    tree.runtime.send(one.host, one.host)
    tree.run()

    assert noting.seen == [one.host, one.host]
    assert other.noting.seen == [of_one]
    assert one.noting.seen == [one.root]
    other.runtime.send(of_one, "hello", other.root)
    tree.run()
    assert one.noting.seen[1:] == ["hello"]
    assert one.noting.senders[1:] == [tree.address(one, other.host)]


def test_a_down_between_processes_comes_behind_all_mail(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "LIMITS", LinkLimits(credit_messages=10))
    tree = LinkedProcesses(seed)
    one, other = tree.start(), tree.start()
    ending, _ = one.spawn()
    watcher, noting = other.spawn()
    there = tree.address(other, ending)
    do(tree, other.runtime, watcher, lambda self: self.monitor(there))
    to = tree.address(one, watcher)
    for number in range(200):
        one.runtime.send(to, (number, bytes(number * 200)), ending)
    do(tree, one.runtime, ending, lambda self: self.stop("done"))

    assert [type(mail) for mail in noting.seen] == [tuple] * 200 + [Down]
    assert (noting.seen[-1].reason, noting.seen[-1].ref) == ("done", there)
    assert not there.is_alive


def test_credit_is_passed_on(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "LIMITS", LinkLimits(credit_messages=10))
    tree = LinkedProcesses(seed)
    one, other = tree.start(), tree.start()
    sender, _ = one.spawn()
    receiver, noting = other.spawn()
    to = tree.address(one, receiver)
    other.runtime.suspend(receiver)
    for number in range(60):
        one.runtime.send(to, (number, LONG), sender)
    tree.run()
    passing = other.host_link.peer.connection.unsent_bytes
    other.runtime.resume(receiver)
    tree.run()

    assert 0 < passing <= 10 * (len(LONG) + 300), (
        "the credit of one, which the other's does not cover"
    )
    assert noting.seen == [(number, LONG) for number in range(60)]
    assert one.lost == other.lost == []


def test_links_exits_and_kills_work_between_processes(
    tree: LinkedProcesses, one: LinkedProcess, other: LinkedProcess
) -> None:
    linked, first = one.spawn()
    watcher, noting = other.spawn()
    there = tree.address(other, linked)
    do(tree, other.runtime, watcher, lambda self: self.link(there))
    other.runtime.exit(there, "please", watcher)
    tree.run()
    assert first.seen == [Exit(tree.address(one, watcher), "please")]
    other.runtime.exit(there, "kill", watcher)
    tree.run()

    assert not linked.is_alive
    assert noting.seen == [Exit(there, "killed")]
    do(tree, other.runtime, watcher, lambda self: self.link(there))
    assert noting.seen[1:] == [Exit(there, "noproc")]


def test_either_end_of_a_link_between_processes_is_told_once(
    tree: LinkedProcesses, one: LinkedProcess, other: LinkedProcess
) -> None:
    do(tree, other.runtime, other.root, lambda self: self.link(tree.address(other, one.host)))
    do(tree, one.runtime, one.root, lambda self: self.link(tree.address(one, other.host)))
    do(tree, other.runtime, other.root, lambda self: self.stop("tired"))
    tree.runtime.exit(other.host, "kill")
    tree.run()

    assert [(mail.sender.node, mail.reason) for mail in one.noting.seen] == [
        (tree.runtime.node, "tired")
    ]


def test_a_link_between_processes_is_removed_by_either(
    tree: LinkedProcesses, one: LinkedProcess, other: LinkedProcess
) -> None:
    for removes_first in (True, False):
        first, heard_first = one.spawn()
        second, heard_second = other.spawn()
        there, here = tree.address(one, second), tree.address(other, first)
        do(tree, one.runtime, first, lambda self, there=there: self.link(there))
        if removes_first:
            do(tree, one.runtime, first, lambda self, there=there: self.unlink(there))
            one.runtime.exit(first, "kill")
        else:
            do(tree, other.runtime, second, lambda self, here=here: self.unlink(here))
            other.runtime.exit(second, "kill")
        tree.run()
        assert (heard_second if removes_first else heard_first).seen == []


def test_calls_between_processes_are_answered_and_fail_with_the_callee(
    tree: LinkedProcesses, one: LinkedProcess, other: LinkedProcess
) -> None:
    client = one.runtime.spawn(Client)
    server = other.runtime.spawn(Server)
    there = tree.address(one, server)
    one.runtime.send(client, (there, "question"))
    tree.run()
    other.runtime.exit(server, "kill")
    tree.run()
    one.runtime.send(client, (there, "too late"))
    tree.run()

    assert client.cell.actor.answers == ["question", CallFailed("noproc")]


def test_the_call_of_a_task_is_answered_by_any_actor_of_any_process(
    tree: LinkedProcesses,
    one: LinkedProcess,
    other: LinkedProcess,
    loop: asyncio.AbstractEventLoop,
) -> None:
    far = tree.start(under=other.runtime)
    server, last = other.runtime.spawn(Server), far.runtime.spawn(Server)
    for asks, to in ((one, server), (one, last), (far, server)):
        asked = (tree.address(asks, last), "through all") if to is server else "direct"
        answer: asyncio.Future[Any] = loop.create_future()
        asks.runtime.send(tree.address(asks, to), Request(From(Answer(answer)), asked))
        tree.run()
        assert answer.result() == ("through all" if to is server else "direct")


def test_when_a_process_is_gone_others_lose_its_actors_behind_their_mail(
    tree: LinkedProcesses, one: LinkedProcess, other: LinkedProcess
) -> None:
    ref, _ = one.spawn()
    watcher, noting = other.spawn()
    there = tree.address(other, ref)
    do(tree, other.runtime, watcher, lambda self: self.monitor(there))
    one.runtime.send(tree.address(one, watcher), bytes(500_000), ref)
    tree.run(0.05)
    tree.network.reset("process", one.name)
    tree.run()
    do(tree, other.runtime, watcher, lambda self: self.monitor(there))
    fresh = tree.address(other, ref)
    do(tree, other.runtime, watcher, lambda self: self.monitor(fresh))

    assert [type(mail) for mail in noting.seen] == [bytes, Down, Down, Down]
    assert [mail.reason for mail in noting.seen[1:]] == ["noconnection"] * 3


def test_a_process_of_a_process_is_reached_from_everywhere(
    tree: LinkedProcesses, one: LinkedProcess, other: LinkedProcess
) -> None:
    below = tree.start(under=one.runtime)
    ref, noting = below.spawn()
    for process in (one, other):
        process.runtime.send(tree.address(process, ref), process.name, process.root)
    tree.runtime.send(tree.runtime.routes.ref(ref.node, ref.num), "p")
    tree.run()

    assert sorted(noting.seen) == ["p", "p.1", "p.2"]
    answered = next(
        sender for sender, mail in zip(noting.senders, noting.seen, strict=True) if mail == "p.2"
    )
    assert answered is not None
    below.runtime.send(answered, "back", ref)
    tree.run()
    assert other.noting.seen == ["back"]


def test_mail_from_below_a_process_to_its_host_stays_below(
    tree: LinkedProcesses, one: LinkedProcess
) -> None:
    below = tree.start(under=one.runtime)
    ref, _ = below.spawn()
    to = below.runtime.routes.ref(tree.runtime.node, one.host.num)
    sent = one.link.peer.connection.sent_messages
    below.runtime.send(to, "hello", ref)
    tree.run()

    assert one.noting.seen == ["hello"]
    assert one.link.peer.connection.sent_messages == sent


def test_an_address_without_a_way_there_is_lost_and_does_not_go_round(
    tree: LinkedProcesses, one: LinkedProcess
) -> None:
    creation = tree.runtime.node.rpartition("/")[2]
    for node in ("q/1", "q.1/1", f"p.99/{creation}", f"p.1.7/{creation}"):
        ref = one.runtime.routes.ref(node, 7)
        one.runtime.send(ref, "lost")
        watcher, noting = one.spawn()
        do(tree, one.runtime, watcher, lambda self, ref=ref: self.monitor(ref))
        assert [mail.reason for mail in noting.seen] == ["noconnection"], node


def test_an_actor_of_a_process_is_reached_from_other_nodes(seed: int) -> None:
    nodes = LinkedNodes(seed)
    tree = LinkedProcesses(seed)
    tree.clock, tree.network, tree.runtime = nodes.clock, nodes.network, nodes.runtimes["a"]
    process = tree.start()
    beside, noting = process.spawn()
    b, noting_b = nodes.spawn("b")
    seen_from_b = nodes.nodes["b"].ref(beside.node, beside.num)
    _run(nodes, "b", b, lambda self: self.monitor(seen_from_b))
    nodes.runtimes["b"].send(seen_from_b, (b, seen_from_b), b)
    nodes.run()
    address = noting.senders[0]
    assert address is not None
    assert noting.seen == [(address, beside)]
    process.runtime.send(address, "back", beside)
    nodes.run()
    process.runtime.exit(beside, "kill")
    nodes.run()

    assert noting_b.seen[0] == "back"
    assert noting_b.senders[0] is seen_from_b
    assert [mail.reason for mail in noting_b.seen[1:]] == ["killed"]


def _run(nodes: LinkedNodes, node: str, ref: Ref, function: Any) -> None:
    nodes.runtimes[node].send(ref, function)
    nodes.run()


class Unknown:
    """Known to the sender only."""


def test_what_the_parent_cannot_read_reaches_the_other_process_as_unreadable(
    tree: LinkedProcesses, one: LinkedProcess, other: LinkedProcess
) -> None:
    def unknown(_: list[Any]) -> Any:
        raise ValueError("no such class")

    register(Unknown, lambda _: [], unknown)
    receiver, noting = other.spawn()
    one.runtime.send(tree.address(one, receiver), Unknown())
    one.runtime.send(tree.address(one, receiver), "after it")
    tree.run()

    assert [type(mail) for mail in noting.seen] == [Unreadable, str]
    assert one.lost == other.lost == []


def test_pieces_arrive_as_one_view_and_behind_the_parent_as_bytes(
    tree: LinkedProcesses, one: LinkedProcess, other: LinkedProcess
) -> None:
    ref, noting = tree.spawn()
    receiver, heard = other.spawn()
    for size in (10, 100_000):
        for to in (ref, receiver):
            one.runtime.send(tree.address(one, to), Pieces([b"a" * size, b"b" * size]))
    tree.run()

    sent = [b"a" * size + b"b" * size for size in (10, 100_000)]
    assert [(type(mail), bytes(mail)) for mail in noting.seen] == [
        (memoryview, each) for each in sent
    ]
    assert heard.seen == sent


def test_what_cannot_be_passed_on_is_logged_and_breaks_no_link(
    tree: LinkedProcesses, one: LinkedProcess, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.setattr(link, "LIMITS", LinkLimits(mail_bytes_max=100_000))
    other = tree.start()
    receiver, noting = other.spawn()
    for mail in ("before", bytes(100_001), "after"):
        one.runtime.send(tree.address(one, receiver), mail)
    tree.run()

    assert noting.seen == ["before", "after"]
    assert "message is not passed on" in caplog.text
    assert one.lost == other.lost == []


def test_names_of_processes_are_never_given_twice() -> None:
    runtime = Runtime(clock=VirtualClock(), name="a.b")

    assert [runtime.routes.new_child() for _ in range(3)] == ["a.b.1", "a.b.2", "a.b.3"]


@pytest.mark.parametrize(
    "signal",
    [
        (signals.EXIT, 2, b"\xc0", 5),
        (signals.EXIT, "2", b"\xc0", None),
        (signals.EXIT, ("p", 2, 3), b"\xc0", None),
        (signals.EXIT, ("p" * 300, 2), b"\xc0", None),
        (signals.LINK_EXIT, 2, b"\xc0", None),
        (signals.MONITOR, [2]),
        (signals.DOWN, (1, 2), b"\xc0", None),
        (signals.LINK, 2, 1),
        (signals.UNLINK, 2, 1),
        (99, 2),
    ],
    ids=str,
)
def test_a_signal_that_is_malformed_breaks_the_link(
    tree: LinkedProcesses, one: LinkedProcess, signal: tuple[Any, ...]
) -> None:
    one.link.peer.signals._send(*signal)
    tree.run()

    assert sorted(one.lost) == ["host", "process"]


def test_a_process_whose_name_would_be_too_long_is_refused() -> None:
    runtime = Runtime(clock=VirtualClock(), name="a" * 300)

    with pytest.raises(ActorError, match="shorten the runtime's name"):
        ProcessLink(runtime, "a" * 300 + ".1/1", lambda: None)


def test_a_host_cannot_be_suspended(tree: LinkedProcesses, one: LinkedProcess) -> None:
    with pytest.raises(ActorError, match="another node"):
        tree.runtime.suspend(one.host)


def test_a_process_that_is_gone_is_the_end_of_links_with_its_actors(
    tree: LinkedProcesses, one: LinkedProcess, other: LinkedProcess
) -> None:
    heard: list[list[Any]] = []
    for linking, linked in ((one, other), (other, one)):
        first, _ = linking.spawn()
        second, _ = linked.spawn()
        there = tree.address(linking, second)
        do(tree, linking.runtime, first, lambda self, there=there: self.link(there))
        survivor = first if linking is one else second
        heard.append(survivor.cell.actor.seen)
    tree.network.reset("process", other.name)
    tree.run()

    assert [[mail.reason for mail in seen] for seen in heard] == [["noconnection"]] * 2
