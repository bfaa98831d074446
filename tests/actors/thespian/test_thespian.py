"""Actors of the runtime under the API of Thespian.

Tests: actors/runtime/actor_ref.py, actors/runtime/thespian_host.py,
    actors/thespian/thespian_actor.py
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from thespian.actors import (
    Actor,
    ActorAddress,
    ActorExitRequest,
    ActorTypeDispatcher,
    ChildActorExited,
    InvalidActorAddress,
    WakeupMessage,
)

from leveret.actors.actor import OtpActor
from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.runtime import Runtime
from leveret.actors.thespian.thespian_actor import ThespianActor
from leveret.core.errors import ActorError
from leveret.testing.virtual_clock import VirtualClock


class Greeter(Actor):
    def receiveMessage(self, msg: Any, sender: Any) -> None:
        if msg == "boom":
            raise ValueError("boom")
        if msg == "name":
            self.send(sender, self.globalName)
        elif not isinstance(msg, ActorExitRequest):
            self.send(sender, f"hello {msg}")


class Parent(Actor):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []
        self.child: Any = None

    def receiveMessage(self, msg: Any, sender: Any) -> None:
        if msg == "create":
            self.child = self.createActor(Greeter)
        elif msg == "create named":
            self.child = self.createActor(Greeter, globalName="greeter")
        elif msg == "create broken":
            self.child = self.createActor(Broken)
        elif msg == "wake me":
            self.wakeupAfter(timedelta(seconds=3), "payload")
        elif isinstance(msg, tuple):
            self.send(self.child, msg[0])
        else:
            self.seen.append(msg)


class Broken(Actor):
    def __init__(self) -> None:
        raise OSError("cannot be made")


@pytest.fixture
def parent(runtime: Runtime) -> tuple[Ref, Parent]:
    ref = runtime.spawn(Parent)
    return ref, ref.cell.actor.inner


def send(runtime: Runtime, ref: Ref, *messages: Any) -> None:
    for message in messages:
        runtime.send(ref, message)
    runtime.run_until_idle()


def test_a_plain_thespian_actor_creates_sends_and_is_answered(
    runtime: Runtime, parent: tuple[Ref, Parent]
) -> None:
    ref, inner = parent

    send(runtime, ref, "create", ("world",))

    assert inner.seen == ["hello world"]
    assert isinstance(inner.child, ActorAddress)
    assert inner.myAddress is ref


def test_an_exception_ends_the_child_at_once_and_the_parent_hears_of_it(
    runtime: Runtime, parent: tuple[Ref, Parent]
) -> None:
    ref, inner = parent

    send(runtime, ref, "create", ("boom",), ("dead letter",))

    assert inner.seen == [ChildActorExited(inner.child)]
    assert runtime.dead_letters == 1


def test_a_child_that_cannot_be_made_is_a_child_that_exited(
    runtime: Runtime, parent: tuple[Ref, Parent]
) -> None:
    ref, inner = parent

    send(runtime, ref, "create broken")

    assert inner.seen == [ChildActorExited(inner.child)]


def test_global_names_find_the_actor_that_is_there(
    runtime: Runtime, parent: tuple[Ref, Parent]
) -> None:
    ref, inner = parent

    send(runtime, ref, "create named")
    first = inner.child
    send(runtime, ref, "create named", ("name",))

    assert inner.child is first
    assert inner.seen == ["greeter"]


def test_wakeups_come_on_time(
    runtime: Runtime, clock: VirtualClock, parent: tuple[Ref, Parent]
) -> None:
    ref, inner = parent
    send(runtime, ref, "wake me")
    clock.jump(2.9)
    assert inner.seen == []

    clock.jump(0.1)

    assert inner.seen == [WakeupMessage(timedelta(seconds=3), "payload")]


def test_an_exit_request_is_delivered_and_ends_parent_and_children(
    runtime: Runtime, parent: tuple[Ref, Parent]
) -> None:
    ref, inner = parent
    send(runtime, ref, "create")

    send(runtime, ref, ActorExitRequest())

    assert inner.seen == [ActorExitRequest()]
    assert runtime.actor_count == 0


def test_what_the_runtime_has_nothing_for_ends_the_actor(runtime: Runtime) -> None:
    class Wants(Actor):
        def receiveMessage(self, msg: Any, sender: Any) -> None:
            self.updateCapability("x", 1)

    ref = runtime.spawn(Wants)
    reasons: list[Any] = []
    runtime.watch(ref, reasons.append)

    send(runtime, ref, 1)

    assert "updateCapability is not supported" in reasons[0].text


def test_thespians_type_dispatcher_works(runtime: Runtime) -> None:
    seen: list[Any] = []

    class Dispatches(ActorTypeDispatcher):
        def receiveMsg_str(self, message: str, sender: Any) -> None:
            seen.append(message)

    send(runtime, runtime.spawn(Dispatches), "text", 1)

    assert seen == ["text"]


def test_otp_actors_have_thespians_names_too(runtime: Runtime, clock: VirtualClock) -> None:
    seen: list[Any] = []

    class Both(OtpActor):
        def init(self) -> None:
            self.send(self.myAddress, "to myself")
            self.wakeupAfter(timedelta(seconds=1), 7)

        def handle_mail(self, message: Any, sender: Any) -> None:
            seen.append(message)

    ref = runtime.spawn(Both)
    clock.jump(1.0)
    ref.cell.actor.receiveMessage("direct", None)

    assert seen == ["to myself", WakeupMessage(timedelta(seconds=1), 7), "direct"]
    with pytest.raises(InvalidActorAddress):
        ref.cell.actor.send("nobody", 1)
    assert str(ref) in str(ref.cell.actor)
    assert ref.addressDetails == ref.actorAddressString


def test_otp_actors_create_children_by_thespians_name_too(
    runtime: Runtime, clock: VirtualClock
) -> None:
    seen: list[Any] = []

    class Child(OtpActor):
        def handle_mail(self, message: Any, sender: Any) -> None:
            seen.append((message, self.parent))

    class Both(OtpActor):
        def init(self) -> None:
            child = self.createActor(Child, globalName="the child")
            assert self.createActor(Child, globalName="the child") is child
            self.send(child, "hello")

    parent = runtime.spawn(Both)
    clock.jump(1.0)

    assert seen == [("hello", parent)]
    with pytest.raises(ActorError, match="requirements"):
        parent.cell.actor.createActor(Child, {"a": 1})
    runtime.exit(runtime.whereis("the child"), "broken")
    clock.jump(1.0)
    assert not parent.is_alive


def test_a_thespian_actor_with_otps_rules_is_an_actor_of_thespians(runtime: Runtime) -> None:
    seen: list[Any] = []

    class Both(ThespianActor):
        def handle_mail(self, message: Any, sender: Any) -> None:
            seen.append(message)
            if message == "fail":
                self.updateCapability("x", 1)

    ref = runtime.spawn(Both)
    reasons: list[Any] = []
    runtime.watch(ref, reasons.append)
    assert isinstance(ref.cell.actor, Actor)
    assert isinstance(ref.cell.actor, OtpActor)

    send(runtime, ref, "text", "fail", "behind")

    assert seen == ["text", "fail"]
    assert "updateCapability is not supported" in reasons[0].text
