"""Limits beyond OTP: how long a start may take, how many children there may be, where they run."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from leveret.actors.links.sendable import WireError
from leveret.actors.runtime.runtime import Runtime
from leveret.actors.runtime.signals import StartFailed
from leveret.supervisors import ChildSpec, SpecError, SupervisorSpec
from leveret.supervisors.requests import (
    CountChildren,
    DeleteChild,
    GetChildSpec,
    RestartChild,
    StartChild,
    TerminateChild,
    WhichChildren,
)
from leveret.supervisors.supervisor import Supervisor
from leveret.testing.virtual_clock import VirtualClock
from rigs.hosted_actors import Clerk, Slow
from rigs.supervision.children import SIMPLE, Apart, Late, Notes, Worker, child_refs, one
from rigs.waiting import eventually


@pytest.mark.parametrize(
    "field", [{"start_timeout_s": 0}, {"start_timeout_s": "1"}, {"isolation": "thread"}]
)
def test_wrong_fields_are_refused(field: Any) -> None:
    with pytest.raises(SpecError, match=f"{next(iter(field))} is .*, must be") as caught:
        ChildSpec("a", Worker, **field)
    assert caught.value.kind == "start_spec"


@pytest.mark.parametrize("wrong", [-1, 1.5, True])
def test_a_wrong_limit_of_children_is_refused(wrong: Any) -> None:
    with pytest.raises(SpecError, match=r"children_max is .*, must be") as caught:
        SupervisorSpec(children_max=wrong)
    assert caught.value.reason == ("invalid_children_max", wrong)


# Start time-outs.


def test_a_start_that_takes_too_long_is_killed_and_has_failed(
    runtime: Runtime, clock: VirtualClock, start: Any
) -> None:
    seen: list[Any] = []
    ends: list[Any] = []
    first = ChildSpec("first", Worker, (ends, "first"))
    _, results = start(one(first, ChildSpec("late", Late, (seen,), start_timeout_s=3)))
    clock.jump(2.9)
    assert (results, seen[0].is_alive) == ([], True)

    clock.jump(0.2)

    assert results == [StartFailed(("shutdown", ("failed_to_start_child", "late", "timeout")))]
    assert not seen[0].is_alive
    assert [name for name, *_ in ends] == ["first"]


def test_a_start_in_time_leaves_no_timer(runtime: Runtime, clock: VirtualClock, start: Any) -> None:
    seen: list[Any] = []
    ref, results = start(one(ChildSpec("late", Late, (seen,), start_timeout_s=3)))
    clock.jump(1)
    runtime.send(seen[0], "ready")
    clock.jump(10)

    assert len(results) == 1
    assert (clock.pending_count, child_refs(ref)["late"]) == (0, seen[0])


def test_the_time_out_of_a_stop_and_that_of_the_start_behind_it_do_not_meet(
    runtime: Runtime, clock: VirtualClock, start: Any
) -> None:
    seen: list[Any] = []
    late = ChildSpec("late", Late, (seen,), shutdown=5, start_timeout_s=10)
    ref, _ = start(one(ChildSpec("first", Worker), late, strategy="rest_for_one"))
    runtime.send(seen[0], "ready")
    runtime.run_until_idle()
    runtime.exit(child_refs(ref)["first"], "boom")
    clock.jump(7)
    assert (len(seen), seen[1].is_alive) == (2, True)

    runtime.send(seen[1], "ready")
    runtime.run_until_idle()

    assert (child_refs(ref)["late"], clock.pending_count) == (seen[1], 0)


def test_a_restart_that_takes_too_long_counts_and_is_tried_again(
    runtime: Runtime, clock: VirtualClock, start: Any
) -> None:
    seen: list[Any] = []
    late = ChildSpec("late", Late, (seen,), start_timeout_s=3)
    ref, _ = start(one(late, intensity=2, period_s=60))
    runtime.send(seen[0], "ready")
    runtime.run_until_idle()
    runtime.send(seen[0], "boom")
    clock.jump(3.5)
    assert (len(seen), ref.is_alive) == (3, True)

    clock.jump(3)

    assert (len(seen), ref.is_alive) == (3, False)


def test_a_request_to_start_is_answered_with_the_time_out(
    runtime: Runtime, clock: VirtualClock, start: Any, ask: Any
) -> None:
    seen: list[Any] = []
    ref, _ = start(one(ChildSpec("a", Worker)))
    answer = ask(ref, StartChild(ChildSpec("late", Late, (seen,), start_timeout_s=3)))
    clock.jump(4)

    assert answer.result()[0] == "error"
    assert answer.result()[1][0] == "timeout"
    assert list(child_refs(ref)) == ["a"]


# A limit of children.


@pytest.mark.parametrize("strategy", [SIMPLE, "one_for_one"])
def test_there_are_no_more_children_than_allowed(
    runtime: Runtime, start: Any, ask: Any, strategy: Any
) -> None:
    first = ChildSpec("a", Worker)
    ref, _ = start(one(first, strategy=strategy, children_max=2))
    children: list[Any] = [(), (), ()]
    if strategy != SIMPLE:
        children = [ChildSpec("b", Worker), ChildSpec("c", Worker)]
    answers = [ask(ref, StartChild(child)) for child in children]
    runtime.run_until_idle()

    *others, last = [answer.result() for answer in answers]
    assert all(answer[0] == "ok" for answer in others)
    assert last == ("error", "max_children")


def test_a_place_that_is_free_again_can_be_taken(runtime: Runtime, start: Any, ask: Any) -> None:
    spec = ChildSpec("a", Worker, restart="temporary")
    ref, _ = start(one(spec, strategy=SIMPLE, children_max=1))
    first = ask(ref, StartChild())
    runtime.run_until_idle()
    runtime.exit(first.result()[1], "boom")
    runtime.run_until_idle()

    again = ask(ref, StartChild())
    runtime.run_until_idle()

    assert again.result()[0] == "ok"


# Isolation.


async def test_a_child_in_a_process_is_restarted_after_kill_9() -> None:
    runtime = Runtime()
    children = (ChildSpec("clerk", Clerk, isolation="process"), ChildSpec("slow", Worker))
    spec = SupervisorSpec("rest_for_one", 3, 60, children)
    root = runtime.spawn(Supervisor, spec)
    _, (_, clerk, _) = await runtime.call(root, WhichChildren(), 30)
    pid = await runtime.call(clerk, ("pid",), 30)

    os.kill(pid, signal.SIGKILL)

    assert await runtime.join(clerk) == "noconnection"
    _, (_, again, _) = await runtime.call(root, WhichChildren(), 30)
    assert again is not clerk
    assert await runtime.call(again, ("pid",), 30) != pid
    await runtime.shutdown()
    assert runtime.actor_count == 0


async def test_a_process_that_does_not_start_fails_the_supervisors_start() -> None:
    runtime = Runtime()
    results: list[Any] = []
    children = (
        ChildSpec("fine", Slow, isolation="process"),
        ChildSpec("clerk", "actors.nobody:Clerk", isolation="process"),
    )
    runtime.start_link(None, Supervisor, (SupervisorSpec(children=children),), results.append)

    await eventually(lambda: results, within_s=30)

    ((_, (what, who, crash)),) = [result.reason for result in results]
    assert (what, who, crash.kind) == ("failed_to_start_child", "clerk", ModuleNotFoundError)
    assert runtime.actor_count == 0
    await runtime.shutdown()


async def test_dynamic_children_may_have_processes_each() -> None:
    runtime = Runtime()
    template = ChildSpec("clerk", Clerk, isolation="process", restart="temporary")
    pool = runtime.spawn(Supervisor, SupervisorSpec(SIMPLE, children=(template,)))

    answers = [await runtime.call(pool, StartChild(("hello",)), 30) for _ in range(2)]
    pids = {await runtime.call(ref, ("pid",), 30) for _, ref in answers}

    assert len(pids) == 2
    await runtime.shutdown()


async def test_a_supervisor_may_have_a_process_of_its_own() -> None:
    runtime = Runtime()
    notes = runtime.spawn(Notes)
    seen = notes.cell.actor.seen
    apart = ChildSpec("apart", Apart, (notes,), type="supervisor", isolation="process")
    root = runtime.spawn(Supervisor, SupervisorSpec(children=(apart,)))
    await runtime.call(root, WhichChildren(), 30)
    await eventually(lambda: len(seen) == 1)

    runtime.send(seen[0], "crash")  # is dealt with there
    await eventually(lambda: len(seen) == 3)
    runtime.exit(root, "shutdown")
    await runtime.join(root)
    await eventually(lambda: len(seen) == 4)

    first, crashed, again, stopped = seen
    assert (crashed, stopped) == ("Crash(ValueError: crash)", "shutdown")
    assert again is not first
    await runtime.shutdown()


async def test_a_supervisor_in_another_process_is_asked_as_one_that_is_here() -> None:
    runtime = Runtime()
    notes = runtime.spawn(Notes)
    spec = ChildSpec("apart", Apart, (notes,), type="supervisor", isolation="process")
    root = runtime.spawn(Supervisor, SupervisorSpec(children=(spec,)))
    ((_, apart, _),) = await runtime.call(root, WhichChildren(), 30)

    async def ask(request: Any) -> Any:
        return await runtime.call(apart, request, 30)

    ((child_id, told, kind),) = await ask(WhichChildren())
    assert (child_id, told.is_alive, kind) == ("told", True, "worker")
    assert await ask(CountChildren()) == {"specs": 1, "active": 1, "supervisors": 0, "workers": 1}
    assert await ask(DeleteChild("told")) == ("error", "running")
    assert await ask(TerminateChild("told")) == "ok"
    assert await ask(WhichChildren()) == [("told", None, "worker")]
    answer, again = await ask(RestartChild("told"))
    assert (answer, again.is_alive, await runtime.join(told)) == ("ok", True, "noproc")
    assert await ask(TerminateChild("told")) == "ok"
    assert await ask(DeleteChild("told")) == "ok"
    assert await ask(WhichChildren()) == []
    with pytest.raises(WireError):
        await ask(GetChildSpec("told"))
    await runtime.shutdown()
