"""Exit signals between linked actors.

Tests: actors/runtime/signals.py
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.runtime import Runtime
from leveret.actors.runtime.signals import Crash, Down, Exit

Reasons = Callable[[Ref], list[object]]


@pytest.mark.parametrize("reason", ["normal", "shutdown", ("shutdown", 7), {"plain": "data"}])
def test_who_traps_exits_gets_them_as_mail_in_order(
    runtime: Runtime, log_class: Any, reason: object
) -> None:
    seen: list[Any] = []
    ref, other = runtime.spawn(log_class, seen), runtime.spawn(log_class, [])

    runtime.send(ref, "before", other)
    runtime.exit(ref, reason, other)
    runtime.run_until_idle()

    assert seen == ["before", Exit(other, reason)]
    assert ref.is_alive


def test_an_exit_signal_acts_before_any_waiting_mail(
    runtime: Runtime, mortal_class: Any, reason_of: Reasons
) -> None:
    seen: list[Any] = []
    ref = runtime.spawn(mortal_class, seen)
    reasons = reason_of(ref)

    runtime.send(ref, "waits")
    runtime.exit(ref, "boom")
    runtime.run_until_idle()

    assert seen == []
    assert reasons == ["boom"]
    assert runtime.dead_letters == 1


def test_an_exit_signal_sent_by_a_handler_to_its_own_actor_acts_after_that_handler(
    runtime: Runtime, mortal_class: Any, reason_of: Reasons
) -> None:
    seen: list[Any] = []
    ref = runtime.spawn(mortal_class, seen)
    reasons = reason_of(ref)

    def handler(actor: Any) -> None:
        actor.exit(actor.ref, "normal")
        seen.append("rest of the handler")

    runtime.send(ref, handler)
    runtime.send(ref, "never seen")
    runtime.run_until_idle()

    assert seen == ["rest of the handler"]
    assert reasons == ["normal"]


def test_kill_cannot_be_trapped_and_others_see_killed(
    runtime: Runtime, log_class: Any, reason_of: Reasons
) -> None:
    seen: list[Any] = []
    ref, linked = runtime.spawn(log_class, []), runtime.spawn(log_class, seen)
    runtime.link(ref, linked)
    reasons = reason_of(ref)

    runtime.exit(ref, "kill", linked)
    runtime.run_until_idle()

    assert reasons == ["killed"]
    assert seen == [Exit(ref, "killed")]


def test_kill_as_the_reason_of_a_linked_actor_can_be_trapped(
    runtime: Runtime, log_class: Any
) -> None:
    seen: list[Any] = []
    ref, linked = runtime.spawn(log_class, []), runtime.spawn(log_class, seen)
    runtime.link(ref, linked)

    runtime.send(ref, lambda actor: actor.stop("kill"))
    runtime.run_until_idle()

    assert seen == [Exit(ref, "kill")]
    assert linked.is_alive


def test_a_kill_overrules_an_exit_that_has_not_acted_yet(
    runtime: Runtime, mortal_class: Any, reason_of: Reasons
) -> None:
    ref = runtime.spawn(mortal_class, [])
    reasons = reason_of(ref)

    runtime.exit(ref, "first")
    runtime.exit(ref, "second")
    runtime.exit(ref, "kill")
    runtime.run_until_idle()

    assert reasons == ["killed"]


def test_of_two_exits_the_first_counts(
    runtime: Runtime, mortal_class: Any, reason_of: Reasons
) -> None:
    ref = runtime.spawn(mortal_class, [])
    reasons = reason_of(ref)

    runtime.exit(ref, "first")
    runtime.exit(ref, "second")
    runtime.run_until_idle()

    assert reasons == ["first"]


def test_normal_from_another_is_ignored_by_who_does_not_trap(
    runtime: Runtime, mortal_class: Any
) -> None:
    ref, other = runtime.spawn(mortal_class, []), runtime.spawn(mortal_class, [])
    runtime.link(ref, other)

    runtime.exit(ref, "normal", other)
    runtime.send(other, lambda actor: actor.stop())
    runtime.run_until_idle()

    assert ref.is_alive
    assert not other.is_alive


def test_links_work_in_both_directions_and_only_once(runtime: Runtime, log_class: Any) -> None:
    seen: dict[str, list[Any]] = {"a": [], "b": [], "c": []}
    a, b, c = (runtime.spawn(log_class, seen[name]) for name in "abc")
    runtime.link(a, b)
    runtime.link(b, a)
    runtime.link(c, a)

    runtime.exit(a, "kill")
    runtime.run_until_idle()

    assert seen == {"a": [], "b": [Exit(a, "killed")], "c": [Exit(a, "killed")]}
    assert b.cell.links is None


def test_no_exit_comes_over_a_link_that_was_undone(runtime: Runtime, log_class: Any) -> None:
    seen: list[Any] = []
    one, two = runtime.spawn(log_class, seen), runtime.spawn(log_class, [])
    runtime.link(one, two)

    runtime.send(one, lambda actor: actor.unlink(two))
    runtime.run_until_idle()
    runtime.exit(two, "kill")
    runtime.run_until_idle()

    assert seen == []


def test_linking_with_the_dead_gives_the_exit_noproc(
    runtime: Runtime, log_class: Any, mortal_class: Any, reason_of: Reasons
) -> None:
    seen: list[Any] = []
    trapper, mortal = runtime.spawn(log_class, seen), runtime.spawn(mortal_class, [])
    dead = runtime.spawn(mortal_class, [])
    runtime.exit(dead, "kill")
    runtime.run_until_idle()
    reasons = reason_of(mortal)

    runtime.send(trapper, lambda actor: actor.link(dead))
    runtime.link(dead, mortal)
    runtime.run_until_idle()

    assert seen == [Exit(dead, "noproc")]
    assert reasons == ["noproc"]


def test_a_chain_of_ten_thousand_links_dies_without_recursion(
    runtime: Runtime, mortal_class: Any, reason_of: Reasons
) -> None:
    refs = [runtime.spawn(mortal_class, []) for _ in range(10_000)]
    for one, two in itertools.pairwise(refs):
        runtime.link(one, two)
    reasons = reason_of(refs[-1])

    runtime.exit(refs[0], "domino")
    runtime.run_until_idle()

    assert runtime.actor_count == 0
    assert reasons == ["domino"]


def test_each_monitor_gives_one_down(runtime: Runtime, log_class: Any) -> None:
    seen: list[Any] = []
    watcher, target = runtime.spawn(log_class, seen), runtime.spawn(log_class, [])
    first, second = runtime.monitor(watcher, target), runtime.monitor(watcher, target)

    runtime.send(target, lambda actor: actor.stop(("shutdown", "x")))
    runtime.run_until_idle()

    assert seen == [
        Down(first, target, ("shutdown", "x")),
        Down(second, target, ("shutdown", "x")),
    ]
    assert watcher.cell.monitors is None


def test_a_monitor_on_the_dead_gives_noproc(runtime: Runtime, log_class: Any) -> None:
    seen: list[Any] = []
    watcher, target = runtime.spawn(log_class, seen), runtime.spawn(log_class, [])
    runtime.exit(target, "kill")
    runtime.run_until_idle()

    monitor = runtime.monitor(watcher, target)
    runtime.run_until_idle()

    assert seen == [Down(monitor, target, "noproc")]


@pytest.mark.parametrize("is_told", [False, True])
def test_no_down_is_handled_after_demonitor(
    runtime: Runtime, log_class: Any, is_told: bool
) -> None:
    seen: list[Any] = []
    watcher, target = runtime.spawn(log_class, seen), runtime.spawn(log_class, [])
    monitor = runtime.monitor(watcher, target)

    if is_told:
        runtime.suspend(watcher)
        runtime.exit(target, "kill")
        runtime.run_until_idle()
        assert watcher.cell.mail_count() == 1
    runtime.demonitor(monitor)
    runtime.exit(target, "kill")
    runtime.resume(watcher)
    runtime.run_until_idle()

    assert seen == []


def test_a_dead_watcher_leaves_no_monitor_behind(runtime: Runtime, log_class: Any) -> None:
    watcher, target = runtime.spawn(log_class, []), runtime.spawn(log_class, [])
    runtime.monitor(watcher, target)

    runtime.exit(watcher, "kill")
    runtime.run_until_idle()

    assert target.cell.watchers is None


def test_crash_knows_kind_text_and_place_but_keeps_no_frame(
    runtime: Runtime, mortal_class: Any, reason_of: Reasons
) -> None:
    ref = runtime.spawn(mortal_class, [])
    reasons = reason_of(ref)

    def fails(actor: Any) -> None:
        try:
            raise KeyError("cause")
        except KeyError as cause:
            raise ValueError("effect") from cause

    runtime.send(ref, fails)
    runtime.run_until_idle()

    crash = reasons[0]
    assert isinstance(crash, Crash)
    assert crash.kind is ValueError
    assert crash.text == "effect"
    assert "in test_crash_knows" in crash.traceback
    assert 'raise ValueError("effect") from cause' in crash.traceback
    assert "Caused by KeyError" in crash.traceback
    assert crash.traceback.endswith("ValueError: effect")
