"""How actors start, and starts that fail.

Tests: actors/actor.py, actors/runtime/actor_table.py
"""

from __future__ import annotations

from typing import Any

import pytest

from leveret.actors.actor import IGNORE, LATER, OtpActor
from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.runtime import Runtime
from leveret.actors.runtime.signals import (
    Crash,
    Exit,
    Ignored,
    Started,
    StartError,
    StartFailed,
)
from leveret.core.errors import ActorError


class Child(OtpActor):
    def init(self, what: Any = None) -> Any:
        if isinstance(what, BaseException):
            raise what
        if what == "stop":
            self.stop("not today")
        return what

    def handle_mail(self, message: Any, sender: Ref | None) -> None:
        if message == "ack":
            self.started("at last")
        elif message == "die":
            self.stop("gave up")


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        (IGNORE, Ignored()),
        (ValueError("no"), StartFailed(Crash(ValueError("no")))),
        (SystemExit(3), StartFailed(Crash(SystemExit(3)))),
        ("stop", StartFailed("not today")),
    ],
)
def test_a_start_that_does_not_happen_is_told_at_once_and_only_to_then(
    runtime: Runtime, log_class: Any, what: Any, expected: object
) -> None:
    seen: list[Any] = []
    parent = runtime.spawn(log_class, seen)
    results: list[object] = []

    child = runtime.start_link(parent, Child, (what,), results.append)

    assert results == [expected]
    assert not child.is_alive
    runtime.run_until_idle()
    assert seen == []
    assert runtime.actor_count == 1


def test_init_runs_before_start_link_returns_and_its_value_is_told(runtime: Runtime) -> None:
    results: list[object] = []

    child = runtime.start_link(None, Child, (17,), results.append)

    assert results == [Started(child, 17)]
    assert child.is_alive


def test_spawn_raises_what_kept_the_actor_from_starting(runtime: Runtime) -> None:
    with pytest.raises(StartError) as failed:
        runtime.spawn(Child, KeyError("x"))

    assert failed.value.reason == Crash(KeyError("x"))


def test_the_link_to_the_parent_is_there_before_init(runtime: Runtime, log_class: Any) -> None:
    seen: list[Any] = []
    parent = runtime.spawn(log_class, seen)
    linked: list[bool] = []

    class Looks(OtpActor):
        def init(self) -> None:
            linked.append(self.ref.cell.links is parent and self.parent is parent)

    child = runtime.start_link(parent, Looks, (), lambda result: None)
    runtime.exit(child, "boom")
    runtime.run_until_idle()

    assert linked == [True]
    assert seen == [Exit(child, "boom")]


def test_children_started_inside_init_nest_and_die_with_a_failed_parent(runtime: Runtime) -> None:
    order: list[str] = []
    children: list[Ref] = []

    class Parent(OtpActor):
        def init(self, fail: bool) -> None:
            children.append(self.runtime.start_link(self.ref, Child, (), self.child_started))
            order.append("init goes on")
            if fail:
                raise RuntimeError("after the child")

        def child_started(self, result: object) -> None:
            order.append(type(result).__name__)

    results: list[object] = []
    runtime.start_link(None, Parent, (False,), results.append)
    runtime.start_link(None, Parent, (True,), results.append)
    runtime.run_until_idle()

    assert order == ["Started", "init goes on"] * 2
    assert type(results[0]) is Started
    assert results[1] == StartFailed(Crash(RuntimeError("after the child")))
    assert [child.is_alive for child in children] == [True, False]


def test_a_later_start_is_told_when_the_actor_says_so(runtime: Runtime, log_class: Any) -> None:
    parent = runtime.spawn(log_class, [])
    results: list[object] = []
    child = runtime.start_link(parent, Child, (LATER,), results.append)

    runtime.run_until_idle()
    assert results == []
    runtime.send(child, "ack")
    runtime.run_until_idle()

    assert results == [Started(child, "at last")]
    with pytest.raises(ActorError, match="already"):
        runtime.acknowledge(child.cell, None)


def test_an_actor_that_dies_before_its_later_ack_has_failed_to_start(
    runtime: Runtime, log_class: Any
) -> None:
    seen: list[Any] = []
    parent = runtime.spawn(log_class, seen)
    results: list[object] = []
    child = runtime.start_link(parent, Child, (LATER,), results.append)
    other = runtime.start_link(parent, Child, (LATER,), results.append)

    runtime.send(child, "die")
    runtime.exit(other, "kill")
    runtime.run_until_idle()

    assert sorted(results, key=repr) == [StartFailed("gave up"), StartFailed("killed")]
    assert seen == []


def test_then_of_a_later_start_is_code_of_the_parent(runtime: Runtime, mortal_class: Any) -> None:
    parent = runtime.spawn(mortal_class, [])

    def then(result: object) -> None:
        raise LookupError("in then")

    child = runtime.start_link(parent, Child, (LATER,), then)
    reasons: list[object] = []
    runtime.watch(parent, reasons.append)
    runtime.send(child, "ack")
    runtime.run_until_idle()

    assert reasons == [Crash(LookupError("in then"))]
    assert not child.is_alive  # by the link


def test_an_exit_signal_during_init_fails_the_start(runtime: Runtime) -> None:
    class Doomed(OtpActor):
        def init(self) -> None:
            self.runtime.exit(self.ref, "too early")

    with pytest.raises(StartError) as failed:
        runtime.spawn(Doomed)

    assert failed.value.reason == "too early"


def test_mail_sent_during_init_waits_until_init_is_over(runtime: Runtime) -> None:
    order: list[Any] = []

    class Eager(OtpActor):
        def init(self) -> None:
            self.post(self.ref, "mail")
            order.append("init")

        def handle_mail(self, message: Any, sender: Ref | None) -> None:
            order.append((message, sender is self.ref))

    runtime.spawn(Eager)
    runtime.run_until_idle()

    assert order == ["init", ("mail", True)]


def test_a_taken_name_fails_the_start_without_running_init(runtime: Runtime) -> None:
    first = runtime.spawn(Child, name="only one")

    with pytest.raises(StartError) as failed:
        runtime.spawn(Child, ValueError("init ran"), name="only one")

    assert failed.value.reason == ("already_started", first)
    assert runtime.whereis("only one") is first


def test_coroutine_handlers_must_be_announced() -> None:
    with pytest.raises(ActorError, match="async_handlers"):

        class Sneaky(OtpActor):
            async def handle_mail(self, message: Any, sender: Ref | None) -> None:
                """Never runs."""


def test_a_parent_must_be_alive(runtime: Runtime) -> None:
    parent = runtime.spawn(Child)
    runtime.exit(parent, "kill")
    runtime.run_until_idle()

    with pytest.raises(ActorError, match="dead"):
        runtime.start_link(parent, Child, (), lambda result: None)
    assert runtime.actor_count == 0


def test_keyboard_interrupt_in_init_reaches_the_caller_and_leaves_no_actor(
    runtime: Runtime,
) -> None:
    with pytest.raises(KeyboardInterrupt):
        runtime.spawn(Child, KeyboardInterrupt())

    assert runtime.actor_count == 0
