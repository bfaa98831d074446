"""How supervisors start, answer unknown mail, and report.

Tests: supervisors/suspension.py
"""

from __future__ import annotations

import logging
from typing import Any

import pytest

from leveret.actors.actor import IGNORE, OtpActor
from leveret.actors.runtime.runtime import Runtime
from leveret.actors.runtime.signals import Crash, Ignored, Started, StartFailed
from leveret.supervisors.requests import StartChild
from leveret.supervisors.spec import ChildSpec, SupervisorSpec
from leveret.supervisors.supervisor import Supervisor
from leveret.testing.virtual_clock import VirtualClock
from rigs.supervision.children import (
    SIMPLE,
    Above,
    Late,
    Refusing,
    Slow,
    Worker,
    child_refs,
    crash,
    one,
)


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ({"intensity": -1}, ("supervisor_data", ("invalid_intensity", -1))),
        (
            {"children": (ChildSpec("a", Worker),) * 2},
            ("start_spec", ("duplicate_child_name", "a")),
        ),
        ({"strategy": SIMPLE}, ("bad_start_spec", ())),
    ],
)
def test_2_4_28_a_bad_spec_fails_the_start_before_any_child(
    runtime: Runtime, flags: Any, reason: Any
) -> None:
    class Bad(Supervisor):
        def init(self) -> SupervisorSpec:
            return SupervisorSpec(**flags)

    results: list[Any] = []
    runtime.start_link(None, Bad, (), results.append)

    assert (results, runtime.actor_count) == ([StartFailed(reason)], 0)


def test_a_supervisor_that_returns_no_spec_does_not_start(runtime: Runtime, start: Any) -> None:
    _, results = start("one_for_one")

    assert results == [StartFailed(("bad_return", ("Supervisor", "init", "one_for_one")))]


def test_an_init_may_build_on_the_one_it_overrides(runtime: Runtime) -> None:
    class Base(Supervisor):
        def init(self, *children: ChildSpec) -> SupervisorSpec:
            return SupervisorSpec(children=children, intensity=7)

    class Derived(Base):
        def init(self, name: str) -> SupervisorSpec:
            return super().init(ChildSpec(name, Worker))

    ref = runtime.spawn(Derived, "a")

    assert list(child_refs(ref)) == ["a"]
    assert ref.cell.actor.supervisor_core.spec.intensity == 7
    assert runtime.actor_count == 2


@pytest.mark.parametrize("strategy", ["one_for_one", SIMPLE])
def test_one_spec_serves_many_supervisors_with_arguments_of_their_own(
    runtime: Runtime, strategy: str
) -> None:
    shared = one(ChildSpec("a", Worker, ([],)), strategy=strategy)

    class Alike(Supervisor):
        def init(self, name: str) -> Any:
            return shared, (name,)

    for name in ("x", "y"):
        ref = runtime.spawn(Alike, name)
        if strategy == SIMPLE:
            runtime.call_inline(ref, StartChild())
        (child,) = child_refs(ref).values()
        assert child.cell.actor.name == name
        assert ref.cell.actor.supervisor_core.spec is shared


def test_9_a_supervisor_may_ignore_its_start(runtime: Runtime) -> None:
    class Unwanted(Supervisor):
        def init(self) -> Any:
            return IGNORE

    results: list[Any] = []
    parent = runtime.spawn(Above)
    runtime.start_link(parent, Unwanted, (), results.append)
    runtime.run_until_idle()

    assert (results, parent.cell.actor.mail) == ([Ignored()], [])


def test_8_77_a_failed_boot_answers_only_after_the_siblings_are_stopped(
    runtime: Runtime, clock: VirtualClock, start: Any
) -> None:
    ends: list[Any] = []
    spec = one(ChildSpec("a", Slow, (ends, "a", 3.0)), ChildSpec("b", Refusing))

    _, results = start(spec)

    clock.jump(2.9)
    assert results == []
    clock.jump(0.2)
    failed = ("shutdown", ("failed_to_start_child", "b", "nope"))
    assert (results, ends) == ([StartFailed(failed)], [("a", "shutdown", 3.0)])


def test_77_a_boot_waits_for_children_that_answer_later(runtime: Runtime, start: Any) -> None:
    seen: list[Any] = []
    spec = one(ChildSpec("a", Late, (seen,)), ChildSpec("b", Late, (seen,)))
    ref, results = start(spec)
    assert (len(seen), results) == (1, [])

    for n in (0, 1):
        runtime.send(seen[n], "ready")
        runtime.run_until_idle()

    assert results == [Started(ref, None)]
    assert list(child_refs(ref).values()) == seen


def test_a_child_that_cannot_even_be_made_is_a_start_that_failed(
    runtime: Runtime, start: Any, ask: Any
) -> None:
    class Broken(OtpActor):
        def __init__(self) -> None:
            raise ValueError("broken")

    ref, _ = start(one())

    for broken in (Broken, "no class"):
        answer = ask(ref, StartChild(ChildSpec("a", broken)))
        runtime.run_until_idle()
        outcome, (reason, _) = answer.result()
        assert (outcome, type(reason)) == ("error", Crash)
    assert child_refs(ref) == {}


@pytest.mark.parametrize("name", ["core", "kernel", "supervisor_core"])
def test_a_supervisor_may_have_a_parent_of_another_class_with_any_attributes(
    runtime: Runtime, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Parent(OtpActor):
        trap_exits = True

    parent = runtime.spawn(Parent)
    setattr(parent.cell.actor, name, {"mine": 1})
    results: list[Any] = []

    class Crashing(Supervisor):
        def init(self) -> SupervisorSpec:
            return one(ChildSpec("a", Worker))

    runtime.start_link(parent, Crashing, (), results.append)
    (started,) = results
    runtime.exit(child_refs(started.ref)["a"], "boom", None)
    runtime.run_until_idle()

    assert started.ref.is_alive
    (record,) = [each for each in caplog.records if "boom" in each.getMessage()]
    assert "Crashing" in record.getMessage()


def test_10_the_exit_of_a_other_is_ignored(runtime: Runtime, start: Any) -> None:
    ref, _ = start(one(ChildSpec("a", Worker)))
    other = runtime.spawn(Worker)
    runtime.exit(ref, "shutdown", other)
    runtime.run_until_idle()

    assert ref.is_alive


def test_11_other_messages_are_logged_and_the_supervisor_lives(
    runtime: Runtime, start: Any, ask: Any, caplog: pytest.LogCaptureFixture
) -> None:
    ref, _ = start(one())
    runtime.send(ref, "hello")
    answer = ask(ref, "hello?")
    runtime.run_until_idle()

    assert answer.result() == ("error", ("unknown_request", "hello?"))
    assert [record.message.split(" sup")[0].split(" sender")[0] for record in caplog.records] == [
        "supervisor received unexpected message='hello'",
        "supervisor received unexpected request='hello?'",
    ]
    assert ref.is_alive


def test_70_reports_are_structured_log_records(
    runtime: Runtime, start: Any, caplog: pytest.LogCaptureFixture
) -> None:
    inner = ChildSpec(
        "inner", Supervisor, (one(ChildSpec("a", Worker), intensity=0),), type="supervisor"
    )
    with caplog.at_level(logging.INFO, "leveret.supervisors.reports"):
        ref, _ = start(one(inner))
        child = child_refs(child_refs(ref)["inner"])["a"]
        runtime.send(child, crash)
        runtime.run_until_idle()

    records = [record for record in caplog.records if record.name == "leveret.supervisors.reports"]
    first = records[0]
    assert (first.levelname, first.supervisor_context) == ("INFO", "child_terminated")
    assert first.supervisor_name == "Above > Supervisor > inner"
    assert first.supervisor_reason == Crash(ValueError("boom"))
    offender = first.supervisor_offender
    assert (offender["pid"], offender["id"], offender["restart"]) == (child, "a", "permanent")
    contexts = [record.supervisor_context for record in records]
    assert contexts == ["child_terminated", "shutdown", "child_terminated"]
    errors = [text for name, level, text in caplog.record_tuples if level == logging.ERROR]
    assert [text.partition("\n")[0] for text in errors] == [
        "actor crashed actor=a reason=Crash(ValueError: boom)",
        'supervisor report context=shutdown supervisor="Above > Supervisor > inner" child=a '
        'reason=reached_max_restart_intensity next="gives up after 0 restarts in 5 s"',
        'supervisor report context=child_terminated supervisor="Above > Supervisor" child=inner '
        'reason=shutdown next="restart 1 of 1 in 5 s, now"',
    ]


@pytest.mark.parametrize("strategy", ["one_for_one", SIMPLE])
def test_69_started_children_are_progress_but_not_dynamic_ones(
    runtime: Runtime, start: Any, caplog: pytest.LogCaptureFixture, strategy: str
) -> None:
    with caplog.at_level(logging.DEBUG, "leveret.supervisors.reports"):
        ref, _ = start(one(ChildSpec("a", Worker), strategy=strategy))
        if strategy == SIMPLE:
            runtime.call_inline(ref, StartChild())

    found = [(r.levelname, r.supervisor_context) for r in caplog.records]
    assert found == ([] if strategy == SIMPLE else [("DEBUG", "progress")])
