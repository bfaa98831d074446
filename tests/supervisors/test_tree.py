"""A tree written down in pieces gives the specs that say the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from thespian.actors import Actor

from leveret.actors.processes.command import Command, CommandSpec
from leveret.actors.processes.functions import FunctionService
from leveret.actors.service import Service
from leveret.core.errors import ActorError
from leveret.supervisors import Backoff, ChildSpec, SpecError, Supervisor, SupervisorSpec, Tree
from rigs.hosted_actors import work
from rigs.supervision.children import Worker


async def body(*args: Any) -> None:
    await asyncio.Event().wait()


def test_flags_are_those_of_a_supervisor() -> None:
    tree = Tree("t", strategy="rest_for_one", intensity=7, period_s=3.0, children_max=9)

    assert tree.spec() == SupervisorSpec("rest_for_one", 7, 3.0, children_max=9)


def test_children_come_in_the_order_they_are_written_in() -> None:
    tree = Tree("t")

    @tree.service
    async def first() -> None: ...

    tree.actor("second", Worker)
    below = tree.subtree("third")
    tree.command("fourth", ["ls"])
    tree.pool("fifth", body)
    tree.add(ChildSpec("sixth", Worker))
    below.actor("inner", Worker)

    assert [child.id for child in tree.spec().children] == [
        "first", "second", "third", "fourth", "fifth", "sixth"
    ]  # fmt: skip


def test_a_function_stays_what_it_was() -> None:
    tree = Tree("t")

    assert tree.service(body) is body
    assert tree.service(id="again", args=(1,), restart="temporary")(body) is body

    once, again = tree.spec().children
    assert (once.id, once.kind, once.actor_class) == ("body", "permanent", Service)
    assert (again.id, again.kind) == ("again", "temporary")
    assert again.args[0].args == (body, 1)


def test_a_service_may_take_most_of_its_shutdown_to_stop() -> None:
    tree = Tree("t")
    tree.service(shutdown=60.0)(body)

    assert tree.spec().children[0].args[0].stop_timeout_s == 48


def test_options_are_those_of_a_child() -> None:
    backoff = Backoff()
    tree = Tree("t", auto_shutdown="any_significant")
    tree.actor("a", Worker, 1, 2, restart="transient", significant=True, backoff=backoff)

    (child,) = tree.spec().children
    assert child == ChildSpec("a", Worker, (1, 2), "transient", significant=True, backoff=backoff)


def test_kinds_of_actors() -> None:
    class Below(Supervisor):
        def init(self) -> SupervisorSpec:
            return SupervisorSpec()

    tree = Tree("t")
    tree.actor("below", Below)
    tree.actor("thespian", Actor)

    assert [child.type for child in tree.spec().children] == ["supervisor", "worker"]


def test_programs() -> None:
    tree = Tree("t")
    tree.command("ls", ["ls", "-l"], cwd="/", output="log", ready_text="up", shutdown=1.0)

    (child,) = tree.spec().children
    assert child == ChildSpec(
        "ls",
        Command,
        (CommandSpec(("ls", "-l"), "/", output="log", ready_text="up"),),
        shutdown=1.0,
    )


def test_a_service_in_a_process_is_named() -> None:
    tree = Tree("t")
    tree.service(isolation="process", args=("a",), waits_for_ready=True)(work)

    (child,) = tree.spec().children
    assert (child.actor_class, child.isolation) == (FunctionService, "process")
    assert child.args == (["rigs.hosted_actors", "", "work"], ("a",), True, 4.0)


def test_hooks_reach_the_supervisors_below_unless_they_have_their_own() -> None:
    def mine(_: Any) -> None: ...

    def other(_: Any) -> None: ...

    tree = Tree("t", on_report=mine, on_restart=mine)
    below = tree.subtree("below", on_restart=other, intensity=9)
    below.subtree("deeper")
    tree.pool("pool", body)

    below_spec, pool = (child.args[0] for child in tree.spec().children)
    deeper = below_spec.children[0].args[0]
    assert [
        (spec.on_report, spec.on_restart, spec.intensity) for spec in (below_spec, deeper, pool)
    ] == [(mine, other, 9), (mine, other, 1), (mine, mine, 1)]


def test_a_tree_may_be_a_child_of_another_supervisor() -> None:
    tree = Tree("t")
    tree.actor("a", Worker)

    spec = tree.child_spec(restart="transient")

    assert (spec.id, spec.kind, spec.type, spec.shutdown) == (
        "t", "transient", "supervisor", "infinity"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (
            {"strategy": "one_for_two"},
            "strategy is 'one_for_two', must be one of one_for_one, one_for_all, rest_for_one, "
            "simple_one_for_one (did you mean one_for_one?)",
        ),
        ({"intensity": -1}, "intensity is -1, must be a number of restarts, 0 or more"),
        ({"period_s": 0}, "period_s is 0, must be seconds, more than 0"),
        ({"children_max": "9"}, "children_max is '9', must be a number of children"),
        ({"on_report": 3}, "on_report is 3, must be a function of one argument"),
    ],
)
def test_a_wrong_flag_is_refused_where_it_is_written(flags: dict[str, Any], text: str) -> None:
    for write in (Tree, Tree("t").subtree):
        with pytest.raises(SpecError) as caught:
            write("a", **flags)
        assert str(caught.value).startswith(text)


def plain(*_: Any) -> int:
    return 3


async def needs_one(_: Any) -> None: ...


WRONG_CHILDREN: list[tuple[str, Callable[[Tree], Any]]] = [
    ("two children have the id 'a'; give one of them another", lambda t: t.actor("a", Worker)),
    ("two children have the id 'a'", lambda t: t.service(id="a")(body)),
    ("two children have the id 'a'", lambda t: t.subtree("a")),
    ("is not a coroutine function; write it with async def", lambda t: t.service(plain)),
    ("is not a coroutine function; write it with async def", lambda t: t.pool("p", plain)),
    ("but pools have simple_one_for_one", lambda t: t.pool("p", body, strategy="one_for_all")),
    ("intensity is -1", lambda t: t.pool("p", body, intensity=-1)),
    ("pass the function itself", lambda t: t.service(body())),
    ("a child needs an id", lambda t: t.service(partial(body))),
    ("missing a required argument: '_'", lambda t: t.service(needs_one)),
    ("args is 'abc', must be a tuple", lambda t: t.service(args="abc")(body)),
    ("restart is 'allways', must be one of perm", lambda t: t.subtree("b", restart="allways")),
    ("auto_shutdown of its supervisor must be", lambda t: t.actor(
        "b", Worker, restart="transient", significant=True)),
    ("shutdown is 'kill', must be seconds", lambda t: t.command("b", ["ls"], shutdown="kill")),
    ("a coroutine function is added by service()", lambda t: t.actor("b", body)),
    ("with isolation='process'", lambda t: t.actor("b", "module:Name")),
    ("not of the form 'package.module:name'", lambda t: t.actor(
        "b", "Name", isolation="process")),
    ("not 'sleep 5'; write ['sleep', '5']", lambda t: t.command("b", "sleep 5")),
    ("texts, not 5", lambda t: t.command("b", ["sleep", 5])),
    ("texts, not 1", lambda t: t.command("b", ["ls"], env={"ROUNDS": 1})),
]  # fmt: skip


@pytest.mark.parametrize(("text", "write"), WRONG_CHILDREN)
def test_a_wrong_child_is_refused_where_it_is_written(
    text: str, write: Callable[[Tree], Any]
) -> None:
    tree = Tree("t")
    tree.actor("a", Worker)

    with pytest.raises((SpecError, ActorError)) as caught:
        write(tree)

    assert text in str(caught.value)
    assert [child.id for child in tree.spec().children] == ["a"]


def test_what_is_awaitable_in_its_own_way_is_a_service() -> None:
    class Sleeper:
        async def __call__(self) -> None: ...

    tree = Tree("t")
    tree.service(id="a")(Sleeper())
    tree.service(id="b", args=(1,))(partial(body, 2))
    tree.service(id="c")(lambda: body(3))

    assert [child.id for child in tree.spec().children] == ["a", "b", "c"]
