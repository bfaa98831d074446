"""AsyncioBase, beyond Thespian's own suite.

Tests: actors/thespian/base.py
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from thespian.actors import (
    Actor,
    ActorExitRequest,
    ActorSystem,
    ChildActorExited,
    PoisonMessage,
    ThespianWatch,
)

from leveret.actors.gen_server import GenServer
from leveret.actors.runtime.runtime import Runtime
from leveret.actors.runtime.signals import StartError
from leveret.actors.thespian.base import AsyncioBase, register
from leveret.core.errors import ActorError
from leveret.testing.virtual_clock import VirtualClock
from rigs.waiting import eventually, wait_until


class Echo(Actor):
    def receiveMessage(self, message: Any, sender: Any) -> None:
        if message == "boom":
            raise ValueError("boom")
        if not isinstance(message, ActorExitRequest):
            self.send(sender, ("echo", message))


class Keeper(Actor):
    """Has a child of a class of ours and tells when it has gone."""

    asker: Any = None

    def receiveMessage(self, message: Any, sender: Any) -> None:
        if isinstance(message, ChildActorExited):
            self.send(self.asker, "it is gone")
        elif not isinstance(message, ActorExitRequest):
            self.asker = sender
            self.send(self.createActor(Ours), message)


class Ours(GenServer):
    def handle_cast(self, message: Any) -> None:
        raise ValueError(message)


class Unstartable(GenServer):
    def init(self) -> None:
        self.stop("not today")


@pytest.fixture
def system() -> Iterator[ActorSystem]:
    system = ActorSystem(AsyncioBase(capabilities={"colour": "red"}), transientUnique=True)
    yield system
    system.shutdown()


def test_a_failure_is_tried_again_then_poison_and_the_actor_lives(system: ActorSystem) -> None:
    echo = system.createActor(Echo)

    poison = system.ask(echo, "boom", 10)

    assert isinstance(poison, PoisonMessage)
    assert "ValueError: boom" in poison.details
    assert system.ask(echo, 1, 10) == ("echo", 1)


def test_addresses_in_a_message_that_is_tried_again_stay_what_they_are(
    system: ActorSystem,
) -> None:
    class FailsOnce(Actor):
        failed = False

        def receiveMessage(self, message: Any, sender: Any) -> None:
            if not self.failed:
                self.failed = True
                raise ValueError("at first")
            self.send(sender, message)

    echo = system.createActor(Echo)

    assert system.ask(system.createActor(FailsOnce), [echo], 10)[0] is echo


def test_our_actors_beside_thespians_end_at_once_and_the_parent_is_told(
    system: ActorSystem,
) -> None:
    assert system.ask(system.createActor(Keeper), "boom", 10) == "it is gone"

    with pytest.raises(StartError, match="not today"):
        system.createActor(Unstartable)


def test_capabilities_are_those_of_the_base(system: ActorSystem) -> None:
    class NeedsRed(Echo):
        @staticmethod
        def actorSystemCapabilityCheck(caps: Any, reqs: Any) -> bool:  # noqa: N802
            return bool(caps["colour"] == "red")

    red = system.createActor(NeedsRed)
    assert system.ask(red, 1, 10) == ("echo", 1)

    system.updateCapability("colour", "blue")

    wait_until(lambda: not red.is_alive)


def test_threads_have_ways_in_of_their_own(system: ActorSystem) -> None:
    echo = system.createActor(Echo)
    answers: list[Any] = []

    def ask(number: int) -> None:
        with system.private() as private:
            answers.append((number, private.ask(echo, number, 10)))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(answers) == [(number, ("echo", number)) for number in range(5)]


def test_after_the_shutdown_no_actor_is_left_and_nothing_raises(system: ActorSystem) -> None:
    echo = system.createActor(Echo)
    base = system._systemBase
    base.shutdown()

    base.tell(echo, 1)

    assert not echo.is_alive
    assert base.ask(echo, 1, 0.01) is None


async def test_on_a_running_loop_one_may_tell_but_not_wait() -> None:
    runtime = Runtime()
    system = ActorSystem(AsyncioBase(runtime=runtime), transientUnique=True)
    seen: list[Any] = []

    class Seer(Actor):
        def receiveMessage(self, message: Any, sender: Any) -> None:
            seen.append(message)

    seer = system.createActor(Seer)
    system.tell(seer, 1)
    await eventually(lambda: seen == [1])
    with pytest.raises(ActorError, match="ask would wait on the event loop"):
        system.ask(seer, 2, 10)
    with pytest.raises(ActorError, match="listen would wait on the event loop"):
        system.listen(10)

    system.shutdown()
    await eventually(lambda: runtime.actor_count == 0)
    await runtime.shutdown()


def test_a_runtime_without_a_loop_is_refused() -> None:
    with pytest.raises(ActorError, match="needs a runtime with an event loop"):
        AsyncioBase(runtime=Runtime(clock=VirtualClock()))


def test_it_has_a_name_for_those_who_ask_by_name() -> None:
    register()
    system = ActorSystem("asyncioBase", {"colour": "green"}, logDefs=False, transientUnique=True)

    assert system.ask(system.createActor(Echo), 1, 10) == ("echo", 1)
    assert system.capabilities["Thespian Watch Supported"] is False

    system.shutdown()


def test_what_it_has_not_is_an_error(system: ActorSystem, caplog: pytest.LogCaptureFixture) -> None:
    class Asks(Actor):
        def receiveMessage(self, message: Any, sender: Any) -> Any:
            if message == "watch":
                return ThespianWatch([0])
            return self.preRegisterRemoteSystem("1.2.3.4:5", {})

    actor = system.createActor(Asks)

    system.tell(actor, "watch")
    poison = system.ask(actor, "register", 10)

    assert "ThespianWatch, which is not supported" in caplog.text
    assert isinstance(poison, PoisonMessage)
    assert "preRegisterRemoteSystem is not supported" in poison.details
