"""Supervisor and scripted children on the system bases of Thespian, for scenarios.

The player looks into supervisors (``ObservedActor``), which thereby say when everything has settled.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

from thespian.actors import ActorExitRequest, ActorSystem

from leveret.actors.actor import IGNORE, OtpActor
from leveret.actors.thespian.mail import Began, Begin, Call, Ended, Signal
from leveret.actors.thespian.port import SupervisedActor
from leveret.supervisors.reports import PROGRESS
from leveret.supervisors.spec import Report, SupervisorSpec
from leveret.supervisors.supervisor import Supervisor
from rigs.supervision.player import CALL_FAILED, Plan
from rigs.supervision.runtime_base import REQUESTS
from rigs.supervision.scenario_files import to_spec

TOKEN = 1
ANSWER_S = 20.0  # of real time; simpleSystemBase returns as soon as nothing is left to do
LOOK_S = 0.5  # the actor that is asked may be gone
TURN_S = 0.02
LATE_S = 0.3  # how late events due at the end of a pause may be


class Scripted(OtpActor):
    """A child that follows its Plan; it writes into a file, wherever it runs."""

    trap_exits = True

    def init(self, folder: str, name: str, plan: Plan, *extra: Any) -> Any:
        self.folder, self.name, self.plan = folder, ":".join((name, *extra)), plan
        outcome = plan.outcome(count(folder, f"starts of {name}"))
        if outcome == "ign":
            return IGNORE
        if outcome == "raise":
            raise RuntimeError("oops")
        if outcome == "err":
            self.stop("nope")
        write(folder, "trace", f"+{self.name}")
        return None

    def handle_mail(self, message: Any, sender: Any) -> None:
        if isinstance(message, tuple):
            self.leave(message[1])
        elif self.plan.on_shutdown != "stub":
            self.leave("wrong" if self.plan.on_shutdown == "wrong" else message.reason)

    def leave(self, reason: Any) -> None:
        write(self.folder, "trace", f"-{self.name}")
        self.stop(reason)


def write(folder: str, name: str, line: str) -> None:
    with Path(folder, name).open("a") as file:
        file.write(line + "\n")


def count(folder: str, name: str) -> int:
    """Count one more and return how many there are."""
    write(folder, name, "")
    return len(Path(folder, name).read_text())


def write_report(folder: str, report: Report) -> None:
    if report.context != PROGRESS:
        write(folder, "trace", f"R:{report.context}:{report.spec.id}")


@dataclass
class Look:
    """Asks a supervisor how it is; the answer has the same number."""

    number: int


@dataclass
class Held:
    """Lets a supervisor's mail wait, or no longer."""

    is_held: bool


@dataclass
class Seen:
    """How a supervisor is.

    Attributes:
        number: that of the question.
        is_idle: whether it waits for nothing but mail.
        ends: how many of its children have ended so far.
        children: the running ones.
    """

    number: int
    is_idle: bool = False
    ends: int = 0
    children: tuple[SeenChild, ...] = ()


@dataclass
class SeenChild:
    """A running child; ``number`` says when it was started, ``pid`` where it is."""

    id: Any
    address: Any
    number: int
    pid: int
    is_supervisor: bool


class ObservedActor(SupervisedActor):
    """A supervised actor that lets itself be looked into, and its mail be held up."""

    def receiveMessage(self, message: Any, sender: Any) -> Any:
        if type(message) is Look:
            self.send(sender, self._look(message.number))
            return None
        if type(message) is Held:
            self._hold(message.is_held)
            return None
        return super().receiveMessage(message, sender)

    def create_supervised(self) -> Any:
        return self.createActor(ObservedActor)

    def _look(self, number: int) -> Seen:
        body: Any = self._body
        if body is None:
            return Seen(number)
        runtime = body.runtime
        supervisor = runtime.own.cell.actor
        children = [
            SeenChild(
                child.spec.id,
                runtime.outward(child.ref),
                child.ref.cell.actor.token,
                child.ref.cell.actor.pid or os.getpid(),
                child.spec.actor_class is Supervisor,
            )
            for child in supervisor.supervisor_core.members()
            if child.is_running and child.ref.is_alive
        ]
        ends = runtime._tokens - len(runtime._remote)
        return Seen(number, not supervisor.is_busy, ends, tuple(children))

    def _hold(self, is_held: bool) -> None:
        runtime = self._body.runtime  # type: ignore[union-attr]
        (runtime.suspend if is_held else runtime.resume)(runtime.own)
        runtime.run_until_idle()


class FileTrace:
    """The trace, in the file to which the children add."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)

    def append(self, token: str) -> None:
        write(self._folder, "trace", token)

    def __iter__(self) -> Any:
        return iter(Path(self._folder, "trace").read_text().splitlines())


class ThespianBase:
    """A ``player.Base`` on a system of Thespian."""

    def __init__(self, folder: Path, system: ActorSystem) -> None:
        self.folder = folder
        self.system = system
        self.address: Any = system.createActor(ObservedActor)
        self.trace = FileTrace(folder)
        self.ended: Any = None
        self._spec = SupervisorSpec()
        self._looks = 0

    def start_of(self, row: dict[str, Any]) -> tuple[Any, tuple[Any, ...]]:
        """Return class and arguments of a child."""
        if row["tree"] is not None:
            return Supervisor, (self._watched(to_spec(row["tree"], self.start_of)),)
        plan = Plan(list(row["starts"]), row["on_shutdown"])
        return Scripted, (str(self.folder), row["id"], plan)

    def _watched(self, spec: SupervisorSpec) -> SupervisorSpec:
        return replace(spec, on_report=partial(write_report, str(self.folder)))

    def boot_with(self, spec: SupervisorSpec) -> ThespianBase:
        self._spec = self._watched(spec)
        return self

    def boot(self) -> Any:
        self.system.tell(self.address, Begin(TOKEN, os.getpid(), Supervisor, (self._spec,)))
        self._receive(lambda message: type(message) is Began, ANSWER_S)
        return self.ended

    def request(self, name: str, *args: Any) -> Any:
        self.system.tell(self.address, Call(REQUESTS[name](*args)))
        return self._answer()

    def exit(self, address: Any, reason: Any) -> None:
        before = self._ends()
        self._end(address, reason)
        self._wait_until(lambda: self._ends() != before)
        self._settle()

    def burst(self, steps: list[tuple[Any, ...]]) -> list[Any]:
        self.system.tell(self.address, Held(True))
        requests = [step for step in steps if step[0] != "do"]
        for name, *args in steps:
            if name != "do":
                self.system.tell(self.address, Call(REQUESTS[name](*args)))
            elif args[0] is None:
                self.trace.append("nopid")
            else:
                before = self._ends()
                self._end(*args)
                self._wait_until(lambda before=before: self._ends() != before)
        self.system.tell(self.address, Held(False))
        answers = [self._answer() for _ in requests]
        self._settle()
        return answers

    def advance(self, seconds: float) -> None:
        until_s = monotonic() + seconds + LATE_S
        self._wait_until(lambda: monotonic() >= until_s)
        self._settle()

    def running(self) -> list[Any]:
        children = sorted(self._look(self.address).children, key=lambda child: child.number)
        return [child.address for child in children]

    def below(self, child_id: Any) -> Any:
        seen = (child for look in self._look_at_all() for child in look.children)
        return next((child.address for child in seen if child.id == child_id), None)

    def shutdown(self) -> None:
        if self.ended is None:
            self.system.tell(self.address, Signal("shutdown"))
        self._receive(lambda _: False, ANSWER_S)
        assert self.ended is not None

    # Ends.

    def _end(self, address: Any, reason: Any) -> None:
        """Let a child end itself, or kill it: the process that it has to itself, if so."""
        if reason != "kill":
            self.system.tell(address, ("do", reason))
            return
        seen = (child for look in self._look_at_all() for child in look.children)
        pid = next(child.pid for child in seen if child.address == address)
        if pid == os.getpid():
            self.system.tell(address, Signal("kill"))
        else:
            os.kill(pid, signal.SIGKILL)

    def _ends(self) -> list[int]:
        """Say how many have ended, by supervisor; it is never the same again after an end."""
        return [look.ends for look in self._look_at_all()]

    def _settle(self) -> None:
        """Wait until every supervisor waits for nothing but mail."""
        self._wait_until(lambda: all(look.is_idle for look in self._look_at_all()))

    def _wait_until(self, is_so: Callable[[], bool]) -> None:
        deadline_s = monotonic() + ANSWER_S
        while self.ended is None and not is_so() and self.ended is None:
            assert monotonic() < deadline_s, "hung"
            self._receive(lambda _: False, TURN_S)

    # Looks.

    def _look_at_all(self) -> list[Seen]:
        """Look at the supervisor and the actors below it; a missing one is not idle."""
        looks = [self._look(self.address)]
        for look in looks:
            looks += [self._look(child.address) for child in look.children if child.is_supervisor]
        return looks

    def _look(self, address: Any) -> Seen:
        self._looks += 1
        number = self._looks
        self.system.tell(address, Look(number))
        seen = self._receive(lambda it: type(it) is Seen and it.number == number, LOOK_S)
        return seen or Seen(number)

    # The one mailbox that a program has.

    def _answer(self) -> Any:
        answer = self._receive(lambda message: type(message) is not Seen, ANSWER_S)
        assert answer is not None or self.ended is not None, "no answer"
        return CALL_FAILED if answer is None else answer

    def _receive(self, is_wanted: Callable[[Any], bool], timeout_s: float) -> Any:
        """Return the first message that is wanted; None when the supervisor or the time is over."""
        deadline_s = monotonic() + timeout_s
        while self.ended is None:
            message = self.system.listen(min(TURN_S, max(0.0, deadline_s - monotonic())))
            if type(message) is Ended:
                assert message.token == TOKEN
                self.ended = message.reason
                self.system.tell(self.address, ActorExitRequest())
            elif message is not None and is_wanted(message):
                return message
            elif monotonic() >= deadline_s:
                break
        return None
