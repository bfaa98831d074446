"""How children are stopped: in which order, how long they have, and which errors are reported."""

from __future__ import annotations

from typing import Any

import pytest

from leveret.actors.runtime import scheduler
from leveret.actors.runtime.ref import MailHandler, Ref
from leveret.actors.runtime.runtime import Runtime
from leveret.actors.runtime.signals import Crash
from leveret.supervisors.requests import StartChild, TerminateChild
from leveret.supervisors.spec import ChildSpec
from leveret.supervisors.supervisor import STOPS, Supervisor
from leveret.testing.virtual_clock import VirtualClock
from rigs.supervision.children import SIMPLE, Late, Slow, Worker, child_refs, crash, one
from rigs.supervision.runtime_base import send_request


@pytest.mark.parametrize(
    ("shutdown", "needs_s", "expected"),
    [
        (5.0, 3.0, [("b", "shutdown", 3.0), ("a", "shutdown", 3.0)]),
        (2, 3.0, [("a", "shutdown", 2.0)]),
        (0, 3.0, [("a", "shutdown", 0.0)]),
        ("infinity", 15.0, [("b", "shutdown", 15.0), ("a", "shutdown", 15.0)]),
        ("brutal_kill", 3.0, [("a", "shutdown", 0.0)]),
    ],
)
def test_42_to_45_a_child_has_its_time_and_the_next_waits_for_its_death(
    runtime: Runtime, clock: VirtualClock, start: Any, shutdown: Any, needs_s: float, expected: Any
) -> None:
    ends: list[Any] = []
    spec = one(
        ChildSpec("a", Worker, (ends, "a")),
        ChildSpec("b", Slow, (ends, "b", needs_s), shutdown=shutdown),
    )
    ref, _ = start(spec)

    runtime.exit(ref, "shutdown", ref.cell.parent)
    clock.jump(20)

    assert ends == expected
    assert (runtime.actor_count, clock.pending_count) == (1, 0)


def test_43_the_time_out_of_one_stop_does_not_reach_into_the_next(
    runtime: Runtime, clock: VirtualClock, start: Any, ask: Any
) -> None:
    ends: list[Any] = []
    spec = one(
        ChildSpec("a", Slow, (ends, "a", 1.0), shutdown=2.0),
        ChildSpec("b", Slow, (ends, "b", 3.0), shutdown="infinity"),
    )
    ref, _ = start(spec)
    ask(ref, TerminateChild("a"))
    ask(ref, TerminateChild("b"))

    clock.jump(1.5)
    assert clock.pending_count == 1
    clock.jump(10)

    assert ends == [("a", "shutdown", 1.0), ("b", "shutdown", 4.0)]


def test_43_each_of_many_stops_has_its_whole_time(
    runtime: Runtime, clock: VirtualClock, start: Any
) -> None:
    ends: list[Any] = []
    needs = {"a": (0.5, 9.0), "b": (2.0, 9.0), "c": (2.0, 1.5), "d": (2.0, 1.5), "e": (60.0, 1.0)}
    children = [
        ChildSpec(name, Slow, (ends, name, needs_s), shutdown=has_s)
        for name, (has_s, needs_s) in needs.items()
    ]
    ref, _ = start(one(ChildSpec("first", Worker, (ends, "first")), *children))

    runtime.exit(ref, "shutdown", ref.cell.parent)
    clock.jump(20)

    assert [(name, at_s) for name, _, at_s in ends] == [
        ("e", 1.0),
        ("d", 2.5),
        ("c", 4.0),
        ("first", 6.5),
    ]
    assert (runtime.actor_count, clock.pending_count) == (1, 0)


def test_43_no_time_out_is_left_when_a_stop_is_over(
    runtime: Runtime, clock: VirtualClock, start: Any, ask: Any
) -> None:
    ref, _ = start(one(ChildSpec("a", Worker), ChildSpec("b", Worker)))

    for name in ("a", "b"):
        answer = ask(ref, TerminateChild(name))
        runtime.run_until_idle()
        assert (answer.result(), clock.pending_count) == ("ok", 0)


def test_47_a_child_that_unlinked_itself_is_stopped_all_the_same(
    runtime: Runtime, start: Any, ask: Any
) -> None:
    ends: list[Any] = []
    ref, _ = start(one(ChildSpec("a", Worker, (ends, "a"))))
    runtime.send(child_refs(ref)["a"], lambda actor: actor.unlink(actor.parent))
    runtime.run_until_idle()

    answer = ask(ref, TerminateChild("a"))
    runtime.run_until_idle()

    assert (answer.result(), ends) == ("ok", [("a", "shutdown", 0.0)])


def test_47_also_one_that_unlinks_itself_in_its_last_moment(
    runtime: Runtime, start: Any, ask: Any
) -> None:
    class Sneaky(Worker):
        def terminate(self, reason: Any) -> None:
            self.unlink(self.parent)

    ref, _ = start(one(ChildSpec("a", Sneaky)))

    answer = ask(ref, TerminateChild("a"))
    runtime.run_until_idle()

    assert answer.result() == "ok"


def test_48_during_a_stop_of_all_the_real_reason_is_reported(
    runtime: Runtime, clock: VirtualClock, start: Any
) -> None:
    ends: list[Any] = []
    reports: list[Any] = []
    spec = one(
        ChildSpec("a", Worker),
        ChildSpec("b", Slow, (ends, "b", 3.0)),
        on_report=lambda r: reports.append((r.context, r.spec.id, type(r.reason))),
    )
    ref, _ = start(spec)
    victim = child_refs(ref)["a"]
    runtime.exit(ref, "shutdown", ref.cell.parent)
    runtime.run_until_idle()

    runtime.send(victim, crash)
    clock.jump(4)

    assert reports == [("shutdown_error", "a", Crash)]
    assert (ref.is_alive, runtime.started_count) == (False, 4)


def test_49_dynamic_children_stop_in_parallel_under_one_time_out(
    runtime: Runtime, clock: VirtualClock, start: Any
) -> None:
    ends: list[Any] = []
    reports: list[Any] = []
    template = ChildSpec("a", Slow, (ends,), shutdown=2.0)
    spec = one(template, strategy=SIMPLE, on_report=reports.append)
    ref, _ = start(spec)
    for name, needs_s in (("x", 1.0), ("y", 1.5), ("z", 60.0), ("w", 60.0)):
        runtime.call_inline(ref, StartChild((name, needs_s)))

    runtime.exit(ref, "shutdown", ref.cell.parent)
    clock.jump(1.9)
    assert ref.is_alive
    clock.jump(0.1)

    assert not ref.is_alive
    assert ends == [("x", "shutdown", 1.0), ("y", "shutdown", 1.5)]
    assert [(r.context, r.reason, r.count) for r in reports] == [("shutdown_error", "killed", 2)]


def test_a_stop_of_very_many_children_is_cut_into_turns(runtime: Runtime, start: Any) -> None:
    ends: list[Any] = []
    ref, _ = start(one(ChildSpec("a", Worker, (ends,)), strategy=SIMPLE))
    for number in range(1_234):
        runtime.call_inline(ref, StartChild((number,)))

    runtime.exit(ref, "shutdown", ref.cell.parent)
    runtime.run_until_idle()

    assert sorted(end[0] for end in ends) == list(range(1_234))
    assert runtime.actor_count == 1


def test_very_many_children_are_told_to_stop_between_the_turns_of_others(
    runtime: Runtime, start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "DRAIN_S", -1.0)  # as if each turn were long
    told: list[Any] = []
    send_exit = Runtime.exit
    ref, _ = start(one(ChildSpec("a", Worker, ([],)), strategy=SIMPLE))
    for number in range(5 * STOPS):
        runtime.call_inline(ref, StartChild((number,)))

    def counted(of: Runtime, to: Any, reason: object, sender: Any = None) -> None:
        told.append(to)
        send_exit(of, to, reason, sender)

    runtime.exit(ref, "shutdown", ref.cell.parent)
    monkeypatch.setattr(Runtime, "exit", counted)
    while not runtime.is_idle:
        before = len(told)
        runtime.drain()
        assert len(told) - before <= 2 * STOPS

    assert len(told) == 5 * STOPS


def test_children_that_end_before_they_are_told_keep_no_others_from_being_told(
    runtime: Runtime, start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "DRAIN_S", -1.0)  # as if each turn were long
    ref, _ = start(one(ChildSpec("a", Worker, ([],)), strategy=SIMPLE))
    children = [runtime.call_inline(ref, StartChild((n,)))[1] for n in range(5 * STOPS)]

    runtime.exit(ref, "shutdown", ref.cell.parent)
    runtime.drain()
    for child in children[STOPS : 2 * STOPS]:  # the latest are told first
        runtime.run_as(child, child.cell.actor.stop)
    runtime.run_until_idle()

    assert runtime.actor_count == 1


def test_42_a_supervisor_that_fails_itself_stops_its_children_in_order_first(
    runtime: Runtime, clock: VirtualClock, start: Any
) -> None:
    class Clumsy(Supervisor):
        def handle_call(self, request: Any, frm: Any) -> Any:
            raise ValueError(request)

    ends: list[Any] = []
    children = (ChildSpec("a", Worker, (ends, "a")), ChildSpec("b", Slow, (ends, "b", 2.0)))
    ref, _ = start(one(*children), Clumsy)
    seen: list[Any] = []
    runtime.watch(ref, seen.append)

    send_request(runtime, ref, "oops")
    clock.jump(3)

    assert ends == [("b", "shutdown", 2.0), ("a", "shutdown", 2.0)]
    assert seen == [Crash(ValueError("oops"))]


def test_42_so_does_one_that_fails_when_a_start_is_acknowledged_later(
    runtime: Runtime, clock: VirtualClock, start: Any
) -> None:
    def fail(_: object) -> None:
        raise ValueError("oops")

    ends: list[Any] = []
    late: list[Any] = []
    slow = [ChildSpec(name, Slow, (ends, name, 2.0)) for name in ("a", "b")]
    children = (*slow, ChildSpec("late", Late, (late,)))
    ref, _ = start(one(*children, on_restart=fail))
    seen: list[Any] = []
    runtime.watch(ref, seen.append)
    runtime.send(late[0], "ready")
    runtime.run_until_idle()
    runtime.exit(late[0], "boom")
    runtime.run_until_idle()

    runtime.send(late[1], "ready")
    clock.jump(5)

    assert ends == [("b", "shutdown", 2.0), ("a", "shutdown", 4.0)]
    assert seen == [Crash(ValueError("oops"))]


@pytest.mark.parametrize("reason", ["shutdown", "normal", ("shutdown", "x"), "boom"])
def test_50_the_supervisor_ends_with_its_parents_reason(
    runtime: Runtime, start: Any, reason: Any
) -> None:
    ends: list[Any] = []
    ref, _ = start(one(ChildSpec("a", Worker, (ends, "a"))))
    seen: list[Any] = []
    runtime.watch(ref, seen.append)

    runtime.exit(ref, reason, ref.cell.parent)
    runtime.run_until_idle()

    assert (seen, ends) == ([reason], [("a", "shutdown", 0.0)])


def test_the_exit_of_a_partner_ends_the_supervisor_as_its_parents_would(
    runtime: Runtime, start: Any
) -> None:
    class Linked(Supervisor):
        def init(self, partner: Any) -> Any:
            self.partner = partner
            self.link(partner)
            return one(ChildSpec("a", Worker, (ends, "a")))

    ends: list[Any] = []
    reader = runtime.spawn(Worker)
    ref, _ = start(reader, Linked)
    runtime.exit(reader, "boom")
    runtime.run_until_idle()

    assert (ref.is_alive, ends) == (False, [("a", "shutdown", 0.0)])


def test_50_a_supervisor_without_a_parent_obeys_whoever_is_outside(runtime: Runtime) -> None:
    ref = runtime.spawn(Supervisor, one(ChildSpec("a", Worker)))

    runtime.exit(ref, "shutdown")
    runtime.run_until_idle()

    assert runtime.actor_count == 0


def test_52_a_killed_supervisor_takes_its_children_along(runtime: Runtime, start: Any) -> None:
    ends: list[Any] = []
    got: list[Any] = []

    class Stubborn(Slow):
        def handle_mail(self, message: Any, sender: Any) -> None:
            got.append(message.reason)

    spec = one(
        ChildSpec("a", Worker, (ends, "a")),
        ChildSpec("b", Stubborn, (ends, "b", 1.0)),
    )
    ref, _ = start(spec)
    refs = child_refs(ref)

    runtime.exit(ref, "kill")
    runtime.run_until_idle()

    assert (ends, got) == ([("a", "killed", 0.0)], ["killed"])
    assert (refs["a"].is_alive, refs["b"].is_alive) == (False, True)


def test_52_also_while_it_stops_a_child(runtime: Runtime, start: Any, ask: Any) -> None:
    ref, _ = start(one(ChildSpec("a", Slow, ([], "a", 60.0), shutdown="infinity")))
    child = child_refs(ref)["a"]
    signals: list[Any] = []

    class Noting(MailHandler):
        def handle_mail(self, message: Any, sender: Ref | None) -> None:
            signals.append(message)

    noting = Noting()
    runtime.send(child, lambda actor: setattr(actor.ref.cell, "handler", noting))
    ask(ref, TerminateChild("a"))
    runtime.run_until_idle()

    runtime.exit(ref, "kill")
    runtime.run_until_idle()

    assert [signal.reason for signal in signals] == ["shutdown", "killed"]
