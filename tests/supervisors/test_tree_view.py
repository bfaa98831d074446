"""The running tree, walked and printed.

Tests: supervisors/metrics.py
"""

from __future__ import annotations

from typing import Any

import pytest

from leveret.actors.actor import IGNORE
from leveret.actors.runtime.runtime import Runtime
from leveret.supervisors.requests import StartChild, TerminateChild
from leveret.supervisors.spec import ChildSpec, SupervisorSpec
from leveret.supervisors.supervisor import Supervisor
from leveret.supervisors.tree_view import render, walk
from leveret.testing.virtual_clock import VirtualClock
from rigs.supervision.children import SIMPLE, Worker, child_refs, crash, one


class Root(Supervisor):
    def init(self) -> SupervisorSpec:
        return one(
            ChildSpec("metadata", Worker),
            ChildSpec("vhost", Queues, label="vhost:/", type="supervisor"),
            ChildSpec("stats", Ignoring, restart="transient"),
        )


class Ignoring(Worker):
    def init(self) -> Any:
        return IGNORE


class Queues(Supervisor):
    def init(self) -> SupervisorSpec:
        queue = ChildSpec("queue", Queue, label=lambda name: f"queue:{name}", type="supervisor")
        return one(queue, strategy=SIMPLE, intensity=5)


class Queue(Supervisor):
    def init(self, name: str) -> SupervisorSpec:
        return one(
            ChildSpec("backing", Worker), ChildSpec("amqqueue", Worker), strategy="one_for_all"
        )


def grown(runtime: Runtime) -> Any:
    root = runtime.spawn(Root, label="leveret")
    vhost = child_refs(root)["vhost"]
    for name in ("orders", "mails"):
        runtime.call_inline(vhost, StartChild((name,)))
    return root


def test_the_tree_is_printed_with_state_restarts_and_mailboxes(runtime: Runtime) -> None:
    root = grown(runtime)
    orders = next(n for n in walk(runtime, root) if n.label == "queue:orders")
    runtime.send(child_refs(orders.ref)["backing"], crash)
    runtime.run_until_idle()
    runtime.send(child_refs(root)["metadata"], "hello")

    text = render(walk(runtime, root))

    assert [line.split() for line in text.splitlines()] == [
        ["leveret", "Root", "running", "restarts=0", "mailbox=0"],
        ["├─", "metadata", "Worker", "running", "restarts=0", "mailbox=1"],
        ["├─", "vhost:/", "Queues", "running", "restarts=0", "mailbox=0"],
        ["│", "├─", "queue:orders", "Queue", "running", "restarts=0", "mailbox=0"],
        ["│", "│", "├─", "backing", "Worker", "running", "restarts=1", "mailbox=0"],
        ["│", "│", "└─", "amqqueue", "Worker", "running", "restarts=1", "mailbox=0"],
        ["│", "└─", "queue:mails", "Queue", "running", "restarts=0", "mailbox=0"],
        ["│", "├─", "backing", "Worker", "running", "restarts=0", "mailbox=0"],
        ["│", "└─", "amqqueue", "Worker", "running", "restarts=0", "mailbox=0"],
        ["└─", "stats", "Ignoring", "undefined", "restarts=0", "mailbox=0"],
    ]


@pytest.mark.parametrize("strategy", ["one_for_one", SIMPLE])
def test_every_node_says_when_it_was_started_again_last(
    runtime: Runtime, clock: VirtualClock, strategy: str
) -> None:
    root = runtime.spawn(Supervisor, one(ChildSpec("a", Worker), strategy=strategy, intensity=9))
    if strategy == SIMPLE:
        runtime.call_inline(root, StartChild(()))
    seen = []
    for _ in range(3):
        (_, node) = walk(runtime, root)
        seen.append((node.restarts, node.restarted_s))
        clock.jump(100.0)
        assert node.ref is not None
        runtime.send(node.ref, crash)
        runtime.run_until_idle()

    assert seen == [(0, None), (1, 100.0), (2, 200.0)]


def test_every_node_has_a_path_a_kind_and_an_address(runtime: Runtime) -> None:
    root = grown(runtime)

    nodes = {node.path: node for node in walk(runtime, root)}

    backing = nodes["leveret > vhost:/ > queue:orders > backing"]
    assert (backing.type, backing.depth, backing.actor_class) == ("worker", 3, "Worker")
    assert backing.ref is child_refs(nodes["leveret > vhost:/ > queue:orders"].ref)["backing"]
    assert nodes["leveret > stats"].ref is None
    assert nodes["leveret > vhost:/"].type == "supervisor"
    assert len(nodes) == 10


def test_the_walk_and_the_supervisors_own_name_agree(runtime: Runtime) -> None:
    root = grown(runtime)

    supervisors = [n for n in walk(runtime, root) if n.type == "supervisor"]

    assert [n.ref.cell.actor.path for n in supervisors if n.ref] == [n.path for n in supervisors]


def test_children_that_do_not_run_are_shown_too(runtime: Runtime, clock: VirtualClock) -> None:
    delayed = ChildSpec("a", Worker, restart=("permanent", 5))
    root = runtime.spawn(Supervisor, one(delayed, ChildSpec("b", Worker), intensity=0))
    runtime.send(child_refs(root)["a"], crash)
    runtime.run_until_idle()

    assert [n.state for n in walk(runtime, root)] == ["running", "restarting", "running"]
    runtime.call_inline(root, TerminateChild("a"))
    assert [n.state for n in walk(runtime, root)] == ["running", "undefined", "running"]


def test_restarting_dynamic_children_are_shown_with_their_names(runtime: Runtime) -> None:
    template = ChildSpec(
        "a", Worker, restart=("permanent", 5), label=lambda *args: f"a:{len(args)}"
    )
    root = runtime.spawn(Supervisor, one(template, strategy=SIMPLE, intensity=1))
    _, ref = runtime.call_inline(root, StartChild(([],)))
    for _ in range(2):
        runtime.send(ref, crash)
        runtime.run_until_idle()
        ref = next(iter(child_refs(root).values()))

    (_, node) = walk(runtime, root)
    assert (node.label, node.state, node.restarts) == ("a:1", "restarting", 1)


def test_temporary_dynamic_children_keep_the_name_that_their_arguments_gave_them(
    runtime: Runtime,
) -> None:
    template = ChildSpec("a", Worker, restart="temporary", label=lambda name: f"a:{name}")
    root = runtime.spawn(Supervisor, one(template, strategy=SIMPLE))
    runtime.call_inline(root, StartChild((None,)))

    assert [n.label for n in walk(runtime, root)] == ["Supervisor", "a:None"]


def test_a_busy_supervisor_and_a_dead_root_can_be_walked(runtime: Runtime, ask: Any) -> None:
    root = grown(runtime)
    ask(root, TerminateChild("metadata"))
    assert len(list(walk(runtime, root))) == 10

    runtime.exit(root, "kill")
    runtime.run_until_idle()

    assert list(walk(runtime, root)) == []


def test_children_that_come_and_go_during_a_walk_do_not_end_it(runtime: Runtime, ask: Any) -> None:
    root = grown(runtime)
    vhost = child_refs(root)["vhost"]
    walked = walk(runtime, root)
    seen = [next(walked).label]
    while not seen[-1].startswith("queue:"):
        seen.append(next(walked).label)

    runtime.call_inline(vhost, StartChild(("later",)))
    children = vhost.cell.actor.supervisor_core.children
    (mails,) = [ref for ref, args in children.items() if args == ("mails",)]
    ask(vhost, TerminateChild(mails))

    seen += [node.label for node in walked]
    assert seen[:4] == ["leveret", "metadata", "vhost:/", "queue:orders"]
    assert "queue:later" not in seen
