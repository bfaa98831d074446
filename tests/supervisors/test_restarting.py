"""Restarts of real actors: attempts, delays, time, addresses, escalation."""

from __future__ import annotations

from typing import Any

import pytest

from leveret.actors.runtime.runtime import Runtime
from leveret.supervisors.requests import TerminateChild
from leveret.supervisors.spec import ChildSpec
from leveret.supervisors.supervisor import Supervisor
from leveret.testing.virtual_clock import VirtualClock
from rigs.supervision.children import Worker, child_refs, crash, one


def test_39_a_request_that_waits_comes_before_the_next_attempt(
    runtime: Runtime, start: Any, ask: Any
) -> None:
    attempts: list[Any] = []

    class Once(Worker):
        def init(self, *_: Any) -> None:
            attempts.append(self.ref)
            if len(attempts) > 1:
                ask(ref, TerminateChild("a"))
                self.stop("nope")

    ref, _ = start(one(ChildSpec("a", Once), intensity=5))
    runtime.send(attempts[0], lambda actor: actor.stop("boom"))
    runtime.run_until_idle()

    assert len(attempts) == 2
    assert child_refs(ref) == {"a": None}


def test_18_63_a_delayed_restart_waits_on_the_clock_and_dies_with_the_supervisor(
    runtime: Runtime, clock: VirtualClock, start: Any
) -> None:
    ref, _ = start(one(ChildSpec("a", Worker, restart=("permanent", 5.0)), intensity=0))
    runtime.send(child_refs(ref)["a"], crash)
    clock.jump(4)
    assert clock.pending_count == 1

    runtime.exit(ref, "shutdown", ref.cell.parent)
    runtime.run_until_idle()

    assert (clock.pending_count, runtime.actor_count) == (0, 1)


def test_37_restarts_are_counted_on_the_runtimes_clock(
    runtime: Runtime, clock: VirtualClock, start: Any
) -> None:
    ref, _ = start(one(ChildSpec("a", Worker), intensity=1, period_s=1.0))
    for _ in range(3):
        runtime.send(child_refs(ref)["a"], crash)
        clock.jump(1.15)
    assert ref.is_alive

    for _ in range(2):
        runtime.send(child_refs(ref)["a"], crash)
        clock.jump(0.5)
        clock.set_wall_s(0.0)

    assert not ref.is_alive


@pytest.mark.parametrize(("restart", "comes_back"), [("permanent", True), ("transient", False)])
def test_53_a_supervisor_that_gave_up_is_a_child_that_ended_of_shutdown(
    runtime: Runtime, start: Any, restart: str, comes_back: bool
) -> None:
    inner = one(ChildSpec("worker", Worker), intensity=0)
    spec = one(ChildSpec("inner", Supervisor, (inner,), restart=restart, type="supervisor"))
    ref, _ = start(spec)
    old = child_refs(ref)["inner"]

    runtime.send(child_refs(old)["worker"], crash)
    runtime.run_until_idle()

    new = child_refs(ref)["inner"]
    assert (new is not None, old.is_alive) == (comes_back, False)
    if comes_back:
        assert child_refs(new)["worker"].is_alive


def test_54_an_overrun_climbs_to_the_root(runtime: Runtime, start: Any) -> None:
    spec = one(ChildSpec("worker", Worker), intensity=0)
    for name in ("inner", "middle", "outer"):
        child = ChildSpec(name, Supervisor, (spec,), type="supervisor")
        spec = one(child, intensity=0, strategy="one_for_all")
    ref, _ = start(spec)
    at = ref
    for name in ("outer", "middle", "inner", "worker"):
        at = child_refs(at)[name]
    seen: list[Any] = []
    runtime.watch(ref, seen.append)

    runtime.send(at, crash)
    runtime.run_until_idle()

    assert (seen, runtime.actor_count) == (["shutdown"], 1)


def test_75_the_name_of_a_dead_child_is_free_when_its_restart_begins(
    runtime: Runtime, start: Any
) -> None:
    class Named(Worker):
        def init(self, *_: Any) -> None:
            super().init()
            self.runtime.register("the one", self.ref)

    ref, _ = start(one(ChildSpec("a", Named)))
    old = runtime.whereis("the one")
    assert old is not None

    runtime.send(old, crash)
    runtime.run_until_idle()

    assert runtime.whereis("the one") is child_refs(ref)["a"]
    assert child_refs(ref)["a"] is not old


def test_76_mail_to_the_old_address_never_reaches_the_new_child(
    runtime: Runtime, start: Any
) -> None:
    ref, _ = start(one(ChildSpec("a", Worker)))
    old = child_refs(ref)["a"]
    letters: list[Any] = []
    runtime.turns.on_dead_letter = lambda message, sender: letters.append(message)
    runtime.send(old, crash)
    runtime.run_until_idle()

    runtime.send(old, "for the old one")
    runtime.run_until_idle()

    assert letters == ["for the old one"]
    assert child_refs(ref)["a"].is_alive
