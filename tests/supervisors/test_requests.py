"""Requests to supervisors, in particular to busy ones."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from leveret.actors.gen_server import GenServer
from leveret.actors.runtime.runtime import Runtime
from leveret.actors.runtime.signals import CallExit
from leveret.core.errors import ActorError
from leveret.supervisors.requests import (
    CountChildren,
    DeleteChild,
    GetChildSpec,
    RestartChild,
    StartChild,
    TerminateChild,
    WhichChildren,
)
from leveret.supervisors.spec import ChildSpec
from leveret.supervisors.supervisor import Supervisor
from leveret.supervisors.tree_view import walk
from leveret.testing.virtual_clock import VirtualClock
from rigs.supervision.children import SIMPLE, Late, Slow, Worker, child_refs, one


def test_51_requests_during_a_stop_are_answered_after_it_in_order(
    runtime: Runtime, clock: VirtualClock, start: Any, ask: Any
) -> None:
    ends: list[Any] = []
    ref, _ = start(one(ChildSpec("a", Slow, (ends, "a", 3.0))))
    stop = ask(ref, TerminateChild("a"))
    requests = [StartChild(ChildSpec("b", Worker)), WhichChildren(), CountChildren()]
    answers = [ask(ref, request) for request in requests]

    clock.jump(2.9)
    assert [answer.done() for answer in (stop, *answers)] == [False] * 4
    clock.jump(0.2)

    b = child_refs(ref)["b"]
    assert stop.result() == "ok"
    assert [answer.result() for answer in answers] == [
        ("ok", b),
        [("b", b, "worker"), ("a", None, "worker")],
        {"specs": 2, "active": 1, "supervisors": 0, "workers": 2},
    ]


def test_51_very_many_requests_keep_their_order(
    runtime: Runtime, clock: VirtualClock, start: Any, ask: Any
) -> None:
    ends: list[Any] = []
    ref, _ = start(one(ChildSpec("a", Slow, (ends, "a", 3.0))))
    ask(ref, TerminateChild("a"))
    for number in range(1_000):
        ask(ref, StartChild(ChildSpec(number, Worker)))

    clock.jump(4)

    assert list(child_refs(ref)) == ["a", *range(1_000)]


async def test_51_requests_fail_when_the_supervisor_ends_instead() -> None:
    clock = VirtualClock()
    runtime = Runtime(clock=clock)
    ref = runtime.spawn(Supervisor, one(ChildSpec("a", Slow, ([], "a", 3.0))))
    runtime.exit(ref, "shutdown")
    await clock.settle()
    task = asyncio.create_task(runtime.call(ref, WhichChildren(), timeout_s=None))
    await clock.advance(4)

    with pytest.raises(CallExit) as caught:
        await task
    assert caught.value.reason == "shutdown"
    await runtime.shutdown()


def test_an_actor_asks_a_supervisor_by_a_call(runtime: Runtime, start: Any) -> None:
    class Client(GenServer):
        def handle_cast(self, message: Any) -> None:
            self.call(message, CountChildren(), seen.append)

    seen: list[Any] = []
    ref, _ = start(one(ChildSpec("a", Worker)))
    runtime.send(runtime.spawn(Client), ref)
    runtime.run_until_idle()

    assert [answer["active"] for answer in seen] == [1]


def test_start_child_is_done_within_one_turn_when_the_child_answers_at_once(
    runtime: Runtime, start: Any
) -> None:
    ref, _ = start(one(ChildSpec("a", Worker), strategy=SIMPLE))

    outcome, child = runtime.call_inline(ref, StartChild())

    assert (outcome, child.is_alive, runtime.is_idle) == ("ok", True, True)


def test_an_inline_request_that_would_have_to_wait_is_refused(runtime: Runtime, start: Any) -> None:
    seen: list[Any] = []
    ref, _ = start(one(ChildSpec("a", Late, (seen,)), strategy=SIMPLE))

    for _ in range(2):
        with pytest.raises(ActorError, match="NOREPLY"):
            runtime.call_inline(ref, StartChild())

    runtime.send(seen[0], "ready")
    runtime.run_until_idle()
    assert len(seen) == 1
    assert runtime.call_inline(ref, CountChildren())["active"] == 1


@pytest.mark.parametrize(("message", "outcome"), [("ready", "ok"), ("nope", "error")])
def test_start_child_answers_when_the_child_has(
    runtime: Runtime, start: Any, ask: Any, message: str, outcome: str
) -> None:
    seen: list[Any] = []
    ref, _ = start(one(ChildSpec("a", Late, (seen,)), strategy=SIMPLE))
    first, second = ask(ref, StartChild()), ask(ref, CountChildren())
    runtime.run_until_idle()
    assert [first.done(), second.done()] == [False, False]

    runtime.send(seen[0], message)
    runtime.run_until_idle()

    assert first.result() == (outcome, seen[0] if outcome == "ok" else "nope")
    assert second.result()["active"] == (outcome == "ok")


@pytest.mark.parametrize("strategy", ["one_for_one", SIMPLE])
@pytest.mark.parametrize(
    ("request_class", "reason"),
    [
        (TerminateChild, "not_found"),
        (RestartChild, "not_found"),
        (DeleteChild, "not_found"),
        (GetChildSpec, "not_found"),
    ],
)
def test_an_id_that_no_child_can_have_is_not_found(
    runtime: Runtime, start: Any, strategy: str, request_class: type, reason: str
) -> None:
    ref, _ = start(one(ChildSpec("a", Worker), strategy=strategy))

    answer = runtime.call_inline(ref, request_class(["a", {}]))

    is_refused = strategy == SIMPLE and request_class is not GetChildSpec
    assert answer == ("error", SIMPLE if is_refused else reason)


@pytest.mark.parametrize("extra", [5, None, "abc", ChildSpec("a", Worker)])
def test_extra_arguments_that_are_no_sequence_are_refused(
    runtime: Runtime, start: Any, extra: Any
) -> None:
    ref, _ = start(one(ChildSpec("a", Worker), strategy=SIMPLE))

    answer = runtime.call_inline(ref, StartChild(extra))

    assert answer == ("error", ("invalid_arguments", extra))
    assert runtime.call_inline(ref, CountChildren())["active"] == 0


@pytest.mark.parametrize("restart", ["permanent", "temporary"])
def test_a_label_that_cannot_be_made_says_why_and_does_no_harm(
    runtime: Runtime, start: Any, restart: Any
) -> None:
    template = ChildSpec("a", Worker, restart=restart, label=lambda name: f"a:{name}")
    ref, _ = start(one(template, strategy=SIMPLE))

    outcome, _ = runtime.call_inline(ref, StartChild(()))

    (_, node) = walk(runtime, ref)
    assert (outcome, node.label.split(" ")[:2]) == ("ok", ["a", "(no"])
    assert "TypeError" in node.label
