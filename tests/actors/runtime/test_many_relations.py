"""The end of an actor with thousands of links and monitors: a bounded number of signals per turn, none lost.

Tests: actors/runtime/links.py, actors/runtime/scheduler.py
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from leveret.actors.runtime import scheduler
from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.runtime import Runtime
from leveret.actors.runtime.scheduler import SIGNALS_MAX
from leveret.actors.runtime.signals import Down, Exit

MANY = 3 * SIGNALS_MAX + 7


@pytest.fixture
def several(runtime: Runtime, log_class: Any) -> tuple[list[Any], list[Ref]]:
    seen: list[Any] = []
    return seen, [runtime.spawn(log_class, seen) for _ in range(MANY)]


def signals_per_drain(runtime: Runtime, count: Callable[[], int]) -> list[int]:
    """Drain until nothing is left to do; return by how much ``count`` grew each time."""
    grown = []
    while not runtime.is_idle:
        before = count()
        runtime.drain()
        grown.append(count() - before)
    return grown


def end_in_several_drains(runtime: Runtime, ref: Ref, relation: str, others: list[Ref]) -> None:
    """Kill an actor; this relation of each of the others ends, a bounded number in a drain."""
    runtime.exit(ref, "kill")

    def ended() -> int:
        return sum(getattr(other.cell, relation) is None for other in others)

    assert max(signals_per_drain(runtime, ended)) <= 2 * SIGNALS_MAX  # its end, and after the drain
    assert ended() == len(others)


def test_monitors_are_told_in_several_drains(
    runtime: Runtime, log_class: Any, several: tuple[list[Any], list[Ref]]
) -> None:
    seen, watchers = several
    target = runtime.spawn(log_class, [])
    for watcher in watchers:
        runtime.monitor(watcher, target)

    end_in_several_drains(runtime, target, "monitors", watchers)

    assert [type(each) for each in seen] == [Down] * MANY
    assert {each.reason for each in seen} == {"killed"}


def test_linked_actors_are_told_in_several_drains(
    runtime: Runtime, log_class: Any, several: tuple[list[Any], list[Ref]]
) -> None:
    seen, linked = several
    target = runtime.spawn(log_class, [])
    for other in linked:
        runtime.link(target, other)

    end_in_several_drains(runtime, target, "links", linked)

    assert seen == [Exit(target, "killed")] * MANY


def test_an_actor_that_monitors_thousands_takes_its_monitors_back_in_several_drains(
    runtime: Runtime, log_class: Any, several: tuple[list[Any], list[Ref]]
) -> None:
    seen, targets = several
    watcher = runtime.spawn(log_class, [])
    for target in targets:
        runtime.monitor(watcher, target)

    end_in_several_drains(runtime, watcher, "watchers", targets)

    assert seen == []


def test_several_ends_share_the_signals_of_a_drain(
    runtime: Runtime, log_class: Any, several: tuple[list[Any], list[Ref]]
) -> None:
    seen, watchers = several
    targets = [runtime.spawn(log_class, []) for _ in range(3)]
    for target in targets:
        for watcher in watchers:
            runtime.monitor(watcher, target)

    for target in targets:
        runtime.exit(target, "kill")
    runtime.drain()

    def told() -> int:
        return len(seen) + sum(watcher.cell.mail_count() for watcher in watchers)

    assert told() <= 4 * SIGNALS_MAX
    assert max(signals_per_drain(runtime, told)) <= SIGNALS_MAX
    assert len(seen) == 3 * MANY


def test_no_signal_comes_of_a_link_or_monitor_that_is_undone_before_its_turn(
    runtime: Runtime, log_class: Any, several: tuple[list[Any], list[Ref]]
) -> None:
    seen, others = several
    target = runtime.spawn(log_class, [])
    monitors = [runtime.monitor(other, target) for other in others]
    for other in others:
        runtime.link(target, other)
    called: list[object] = []
    for _ in range(MANY):
        runtime.watch(target, lambda _: None)
    watch = runtime.watch(target, called.append)

    runtime.exit(target, "kill")
    runtime.drain()
    runtime.send(others[-1], lambda actor: actor.unlink(target))
    runtime.demonitor(monitors[-1])
    runtime.demonitor(watch)
    runtime.exit(others[-2], "kill")
    runtime.run_until_idle()

    assert len(seen) == 2 * (MANY - 2)
    assert called == []


def test_mail_that_was_sent_before_the_end_comes_before_its_down(
    runtime: Runtime, log_class: Any, several: tuple[list[Any], list[Ref]]
) -> None:
    seen, watchers = several
    target = runtime.spawn(log_class, [])
    for watcher in watchers:
        runtime.monitor(watcher, target)

    def last_words(actor: Any) -> None:
        for watcher in watchers:
            actor.post(watcher, watcher)
        actor.stop("done")

    runtime.send(target, last_words)
    runtime.run_until_idle()

    places = {each: place for place, each in enumerate(seen) if isinstance(each, Ref)}
    assert len(places) == MANY == len(seen) - MANY
    downs = [place for place, each in enumerate(seen) if type(each) is Down]
    assert all(before < after for before, after in zip(places.values(), downs, strict=True))


def test_the_parent_hears_last(
    runtime: Runtime, log_class: Any, several: tuple[list[Any], list[Ref]]
) -> None:
    """So what it does then, such as a restart, comes behind all other signals."""
    seen, watchers = several
    parent = runtime.spawn(log_class, heard := list[Any]())
    target = runtime.start_link(parent, log_class, ([],), lambda _: None)
    for watcher in (parent, *watchers):
        runtime.monitor(watcher, target)

    runtime.exit(target, "kill")
    while not heard:
        runtime.drain()

    assert not any(watcher.cell.monitors for watcher in watchers)
    runtime.run_until_idle()
    assert [type(each) for each in heard] == [Exit, Down]
    assert len(seen) == MANY


@pytest.mark.parametrize("is_target_first", [False, True])
def test_a_link_with_a_dead_actor_whose_exit_is_on_its_way_brings_that_exit_only(
    runtime: Runtime,
    log_class: Any,
    several: tuple[list[Any], list[Ref]],
    is_target_first: bool,
) -> None:
    seen, others = several
    target = runtime.spawn(log_class, [])
    for other in others:
        runtime.link(target, other)

    runtime.exit(target, "kill")
    runtime.drain()
    runtime.link(*((target, others[-1]) if is_target_first else (others[-1], target)))
    runtime.run_until_idle()

    assert seen == [Exit(target, "killed")] * MANY


def test_those_who_are_told_leave_the_run_queue_to_the_others(
    runtime: Runtime,
    log_class: Any,
    several: tuple[list[Any], list[Ref]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scheduler, "DRAIN_MAILS", 10)
    seen, watchers = several
    honest, target = runtime.spawn(log_class, seen), runtime.spawn(log_class, [])
    for watcher in watchers:
        runtime.monitor(watcher, target)

    runtime.exit(target, "kill")
    for _ in range(14):  # the next of them are told behind this one
        runtime.drain()
    runtime.send(honest, "honest")
    told_before = len(seen)
    runtime.run_until_idle()

    assert seen.index("honest") - told_before < SIGNALS_MAX


def test_the_next_are_told_when_those_before_have_had_their_turn(
    runtime: Runtime,
    log_class: Any,
    several: tuple[list[Any], list[Ref]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scheduler, "DRAIN_MAILS", 10)
    seen, watchers = several
    target = runtime.spawn(log_class, [])
    for watcher in watchers:
        runtime.monitor(watcher, target)
    runtime.exit(target, "kill")

    while not runtime.is_idle:
        waiting = sum(watcher.cell.mail_count() for watcher in watchers)
        assert waiting <= 2 * SIGNALS_MAX
        runtime.drain()

    assert len(seen) == MANY
