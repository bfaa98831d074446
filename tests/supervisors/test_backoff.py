"""Restarts that wait: per child, longer from time to time.

Tests: supervisors/reports.py
"""

from __future__ import annotations

from typing import Any

import pytest

from leveret.actors.runtime.runtime import Runtime
from leveret.supervisors import Backoff, ChildSpec, Metrics, SpecError, SupervisorSpec
from leveret.supervisors.reports import CHILD_TERMINATED
from leveret.supervisors.requests import RestartChild, TerminateChild, WhichChildren
from leveret.supervisors.spec import Report
from leveret.testing.virtual_clock import VirtualClock
from rigs.supervision.children import SIMPLE, Refusing, Worker, child_refs, crash, one

PATIENT = Backoff(first_s=1.0, factor=2.0, max_s=5.0, reset_s=60.0)


def test_each_restart_waits_longer_up_to_the_limit() -> None:
    delays = [0.0]
    for _ in range(5):
        delays.append(PATIENT.next_delay_s(delays[-1], up_s=0.5))

    assert delays[1:] == [1, 2, 4, 5, 5]
    assert PATIENT.next_delay_s(5.0, up_s=60.0) == 1


@pytest.mark.parametrize(
    "wrong", [{"first_s": 0}, {"max_s": 0.01}, {"factor": 0.5}, {"reset_s": -1}]
)
def test_a_wrong_backoff_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="needs 0 < first_s"):
        Backoff(**wrong)


def restart_delay_s(runtime: Runtime, clock: VirtualClock, ref: Any, name: str) -> float:
    """Crash a child and return after how long it runs again."""
    runtime.send(child_refs(ref)[name], crash)
    runtime.run_until_idle()
    began_s = clock.monotonic_s()
    while not getattr(child_refs(ref)[name], "is_alive", False):
        clock.jump(0.25)
    return clock.monotonic_s() - began_s


def test_restarts_wait_on_the_clock_and_a_long_life_forgets(
    runtime: Runtime, clock: VirtualClock, start: Any
) -> None:
    ref, _ = start(one(ChildSpec("a", Worker, backoff=PATIENT), intensity=99))

    assert [restart_delay_s(runtime, clock, ref, "a") for _ in range(4)] == [1, 2, 4, 5]
    clock.jump(61)
    assert restart_delay_s(runtime, clock, ref, "a") == 1


def test_children_wait_each_for_themselves(
    runtime: Runtime, clock: VirtualClock, start: Any
) -> None:
    specs = (ChildSpec("a", Worker, backoff=PATIENT), ChildSpec("b", Worker, backoff=PATIENT))
    ref, _ = start(one(*specs, ChildSpec("c", Worker), intensity=99))
    restart_delay_s(runtime, clock, ref, "a")

    assert restart_delay_s(runtime, clock, ref, "a") == 2
    assert restart_delay_s(runtime, clock, ref, "b") == 1
    assert restart_delay_s(runtime, clock, ref, "c") == 0


def test_it_is_restarting_meanwhile_and_can_be_taken_back(
    runtime: Runtime, clock: VirtualClock, start: Any, ask: Any
) -> None:
    ref, _ = start(one(ChildSpec("a", Worker, backoff=PATIENT)))
    runtime.send(child_refs(ref)["a"], crash)
    runtime.run_until_idle()

    which, again = ask(ref, WhichChildren()), ask(ref, RestartChild("a"))
    stopped = ask(ref, TerminateChild("a"))
    clock.jump(10)

    assert which.result() == [("a", "restarting", "worker")]
    assert again.result() == ("error", "restarting")
    assert stopped.result() == "ok"
    assert child_refs(ref) == {"a": None}


def test_a_restart_that_waits_counts_when_it_is_decided(
    runtime: Runtime, clock: VirtualClock, start: Any
) -> None:
    ref, _ = start(one(ChildSpec("a", Worker, backoff=PATIENT), intensity=1, period_s=60))
    restart_delay_s(runtime, clock, ref, "a")

    runtime.send(child_refs(ref)["a"], crash)
    runtime.run_until_idle()

    assert not ref.is_alive


def test_starts_that_fail_again_wait_as_well(
    runtime: Runtime, clock: VirtualClock, start: Any
) -> None:
    attempts: list[float] = []

    class Once(Worker):
        def init(self, *_: Any) -> None:
            attempts.append(clock.monotonic_s())
            if len(attempts) > 1:
                self.stop("nope")

    ref, _ = start(one(ChildSpec("a", Once, backoff=PATIENT), intensity=4, period_s=100))
    runtime.send(child_refs(ref)["a"], crash)
    clock.jump(50)

    assert attempts == [0, 1, 3, 7, 12]
    assert not ref.is_alive


@pytest.mark.parametrize(
    ("strategy", "stopped"), [("one_for_all", "ca"), ("rest_for_one", "c"), ("one_for_one", "")]
)
def test_who_goes_with_it_is_stopped_at_once_and_comes_back_with_it(
    runtime: Runtime, clock: VirtualClock, start: Any, strategy: Any, stopped: str
) -> None:
    ends: list[Any] = []
    specs = [ChildSpec(name, Worker, (ends, name), backoff=PATIENT) for name in "abc"]
    ref, _ = start(one(*specs, strategy=strategy))
    before = child_refs(ref)
    runtime.send(before["b"], crash)
    runtime.run_until_idle()

    assert [name for name, _, _ in ends] == ["b", *stopped]
    assert [name for name, ref in child_refs(ref).items() if ref is None] == sorted(stopped)

    clock.jump(1)
    after = child_refs(ref)
    assert all(ref.is_alive for ref in after.values())
    assert {name for name in "abc" if after[name] is not before[name]} == {"b", *stopped}


def test_it_is_not_for_dynamic_children() -> None:
    with pytest.raises(SpecError, match="'a' has a backoff") as caught:
        SupervisorSpec(SIMPLE, children=(ChildSpec("a", Worker, backoff=PATIENT),))
    assert caught.value.reason[0] == "bad_combination"


def test_the_supervisors_end_takes_a_restart_that_waits_along(
    runtime: Runtime, clock: VirtualClock, start: Any
) -> None:
    ref, _ = start(one(ChildSpec("a", Worker, backoff=PATIENT)))
    runtime.send(child_refs(ref)["a"], crash)
    runtime.run_until_idle()
    assert clock.pending_count == 1

    runtime.exit(ref, "shutdown", ref.cell.parent)
    runtime.run_until_idle()

    assert (clock.pending_count, runtime.actor_count) == (0, 1)


# Hooks.


def test_restarts_are_told_with_their_reason_and_count(runtime: Runtime, start: Any) -> None:
    told: list[Any] = []
    ref, _ = start(one(ChildSpec("a", Worker), intensity=9, on_restart=told.append))
    for _ in range(2):
        runtime.send(child_refs(ref)["a"], lambda actor: actor.stop("boom"))
        runtime.run_until_idle()

    assert [(note.spec.id, note.reason, note.restarts) for note in told] == [
        ("a", "boom", 1),
        ("a", "boom", 2),
    ]
    assert told[1].ref is child_refs(ref)["a"]
    assert told[0].supervisor == "Above > Supervisor"


def test_a_group_is_told_once_and_dynamic_children_each(
    runtime: Runtime, start: Any, ask: Any
) -> None:
    from leveret.supervisors.requests import StartChild

    told: list[Any] = []
    specs = (ChildSpec("a", Worker), ChildSpec("b", Worker))
    group, _ = start(one(*specs, strategy="one_for_all", on_restart=told.append))
    pool, _ = start(one(ChildSpec("w", Worker), strategy=SIMPLE, on_restart=told.append))
    ask(pool, StartChild())
    runtime.run_until_idle()

    runtime.send(child_refs(group)["b"], lambda actor: actor.stop("boom"))
    runtime.run_until_idle()
    runtime.send(child_refs(pool)["w"], lambda actor: actor.stop("bang"))
    runtime.run_until_idle()

    assert [(note.spec.id, note.reason, note.restarts) for note in told] == [
        ("b", "boom", 1),
        ("w", "bang", 1),
    ]
    assert told[1].ref is child_refs(pool)["w"]


def test_metrics_count_by_path(runtime: Runtime, start: Any) -> None:
    metrics = Metrics()
    hooks = {"on_report": metrics.on_report, "on_restart": metrics.on_restart}
    ref, _ = start(one(ChildSpec("a", Worker), ChildSpec("b", Worker), intensity=2, **hooks))
    start(one(ChildSpec("r", Refusing), **hooks))
    for _ in range(3):
        runtime.send(child_refs(ref)["a"], crash)
        runtime.run_until_idle()

    path = "Above > Supervisor"
    assert metrics.failures == {f"{path} > a": 3}
    assert metrics.restarts == {f"{path} > a": 2}
    assert metrics.start_failures == {f"{path} > r": 1}
    assert metrics.overruns == {path: 1}


@pytest.mark.parametrize(
    ("spec", "intensity", "expected"),
    [
        (
            ChildSpec("a", Worker, restart=("permanent", 1.0)),
            1,
            [
                "restart 1 of 1 in 10 s, now",
                "too many: restart 2 of 1 in 10 s, in 1 s",
                "restart 1 of 1 in 10 s, now",
            ],
        ),
        (
            ChildSpec("a", Worker, backoff=PATIENT),
            9,
            ["restart 1 of 9 in 10 s, in 1 s", "restart 2 of 9 in 10 s, in 2 s"],
        ),
        (ChildSpec("a", Worker), 0, ["too many: restart 1 of 0 in 10 s, the supervisor ends"]),
    ],
)
def test_the_log_says_which_restart_follows_and_when(
    runtime: Runtime,
    clock: VirtualClock,
    start: Any,
    spec: ChildSpec,
    intensity: int,
    expected: list[str],
) -> None:
    reports: list[Report] = []
    shop = SupervisorSpec("one_for_one", intensity, 10.0, (spec,), on_report=reports.append)
    ref, _ = start(shop)
    for _ in range(min(2, len(expected))):
        runtime.send(child_refs(ref)["a"], crash)
        runtime.run_until_idle()
        clock.jump(1.5)

    assert [each.next for each in reports if each.context == CHILD_TERMINATED] == expected


class CountedTime(float):
    """A time that counts how often it is compared."""

    compared = 0

    def __lt__(self, other: float) -> bool:
        CountedTime.compared += 1
        return float(self) < other

    def __ge__(self, other: float) -> bool:
        CountedTime.compared += 1
        return float(self) >= other


def test_a_restart_looks_at_few_of_the_restarts_before_it(runtime: Runtime, start: Any) -> None:
    ref, _ = start(one(ChildSpec("a", Worker), intensity=10**9))
    runtime.send(child_refs(ref)["a"], crash)
    runtime.run_until_idle()
    CountedTime.compared = 0
    ref.cell.actor.supervisor_core._restarts_s[:] = map(CountedTime, [0.0] * 10_000)

    runtime.send(child_refs(ref)["a"], crash)
    runtime.run_until_idle()

    assert "a" in child_refs(ref)
    assert CountedTime.compared < 50
