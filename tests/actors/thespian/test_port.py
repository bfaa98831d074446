"""SupervisedActor, alone on Thespian's simplest base.

Tests: actors/thespian/port_runtime.py, actors/thespian/wakeup_clock.py
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from thespian.actors import Actor, ActorExitRequest, ActorSystem, PoisonMessage

from leveret.actors.actor import OtpActor
from leveret.actors.gen_server import GenServer
from leveret.actors.runtime.signals import Crash, StartError
from leveret.actors.thespian import port as thespian_port
from leveret.actors.thespian.mail import Began, Begin, Call, Ended, Signal
from leveret.actors.thespian.port import SupervisedActor
from leveret.actors.thespian.start import start, stop
from leveret.core.errors import ActorError


class Echo(Actor):
    def receiveMessage(self, message: Any, sender: Any) -> None:
        if message == "boom":
            raise ValueError(lambda: "cannot be pickled")
        self.send(sender, ("echo", message))


class Reaches(GenServer):
    """Tries links, monitors, exits and calls, which do not reach out of its runtime."""

    def init(self) -> None:
        self.foreign: Any = None

    def handle_mail(self, message: Any, sender: Any) -> Any:
        if message == "here I am":
            self.foreign = sender
            return None
        return super().handle_mail(message, sender)

    def handle_call(self, request: Any, frm: Any) -> Any:
        try:
            if request == "call":
                self.call(self.foreign, 1, print)
            else:
                getattr(self, request)(self.foreign, *(("kill",) if request == "exit" else ()))
        except ActorError as error:
            return str(error)
        return "it reached"


@pytest.fixture
def system() -> Iterator[ActorSystem]:
    system = ActorSystem("simpleSystemBase", logDefs=False, transientUnique=True)
    yield system
    system.shutdown()


def begin(system: ActorSystem, actor_class: type, token: int | None = 1) -> Any:
    address = system.createActor(SupervisedActor)
    assert system.ask(address, Begin(token, os.getpid(), actor_class, ())) == Began(
        token, os.getpid()
    )
    return address


def test_the_last_words_come_before_the_exit_which_waits_for_the_supervisor(
    system: ActorSystem,
) -> None:
    address = begin(system, Echo)

    told, request = system.ask(address, Signal("shutdown"))

    assert (told, type(request)) == ("echo", ActorExitRequest)
    assert system.listen() == Ended(1, "shutdown")
    assert address.actorAddressString in registry(system)


def test_a_dead_actor_without_an_exit_request_exits_by_itself(
    system: ActorSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thespian_port, "UNHEARD_S", 0.0)
    address = begin(system, OtpActor)

    assert system.ask(address, Signal("shutdown")) == Ended(1, "shutdown")
    system.listen(0.01)

    assert registry(system)[address.actorAddressString] is None


def registry(system: ActorSystem) -> dict[str, Any]:
    """Return the actors of the base by address; a dead one is None or has no instance."""
    found = system._systemBase.actorRegistry
    return {name: ref and ref.instance for name, ref in found.items()}


class Fails(Actor):
    def receiveMessage(self, message: Any, sender: Any) -> None:
        raise ValueError(message)


class FailsInOtp(OtpActor):
    def handle_mail(self, message: Any, sender: Any) -> None:
        raise ValueError(message)


@pytest.mark.parametrize("kind", [Fails, FailsInOtp])
def test_the_record_of_a_crash_has_the_places_of_the_actors_own_code(
    system: ActorSystem, caplog: pytest.LogCaptureFixture, kind: type
) -> None:
    address = begin(system, kind)

    assert system.ask(address, "boom") == Ended(1, Crash(ValueError("boom")))

    (text,) = [text for text in caplog.messages if "actor crashed" in text]
    _, header, place, line, last = text.splitlines()
    assert header == "Traceback (most recent call last):"
    assert place.startswith(f'  File "{__file__}"')
    assert (line.strip(), last) == ("raise ValueError(message)", "ValueError: boom")


def test_a_reason_that_cannot_be_pickled_travels_as_text(system: ActorSystem) -> None:
    class Local(Echo):
        def receiveMessage(self, message: Any, sender: Any) -> None:
            raise LocalError(message)

    class LocalError(Exception):
        pass

    address = begin(system, Local)

    assert system.ask(address, "boom") == Ended(1, "Crash(LocalError: boom)")


def test_what_is_ours_and_comes_back_as_poison_is_dropped(system: ActorSystem) -> None:
    address = begin(system, Echo)

    system.tell(address, PoisonMessage(Signal("shutdown"), ""))

    assert system.ask(address, 1) == ("echo", 1)
    assert system.ask(address, Call("plain")) == ("echo", "plain")


@pytest.mark.parametrize("request_name", ["link", "monitor", "exit", "call"])
def test_links_monitors_signals_and_calls_do_not_reach_strangers(
    system: ActorSystem, request_name: str
) -> None:
    address = start(system, Reaches)
    system.tell(address, "here I am")

    assert system.ask(address, Call(request_name)) != "it reached"


def test_a_start_that_fails_says_why(system: ActorSystem) -> None:
    class Fails(OtpActor):
        def init(self) -> None:
            raise OSError("no disk")

    with pytest.raises(StartError) as caught:
        start(system, Fails)

    assert caught.value.reason == Crash(OSError("no disk"))


def test_one_that_has_ended_is_stopped_at_once(system: ActorSystem) -> None:
    address = begin(system, OtpActor)
    system.ask(address, Signal("shutdown"))

    assert stop(system, address) == "noproc"
