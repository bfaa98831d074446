"""Supervisor and scripted children on a stock system base of Thespian, for recorded scenarios."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from thespian.actors import ActorAddress, ActorExitRequest, ActorSystem

from leveret.actors.actor import IGNORE, OtpActor
from leveret.actors.thespian_mail import Began, Begin, Call, Ended, Signal
from leveret.actors.thespian_port import SupervisedActor
from leveret.supervisors.reports import PROGRESS, Report
from leveret.supervisors.spec import SupervisorSpec
from leveret.supervisors.supervisor import Supervisor
from supervisors.player import CALL_FAILED, Plan
from supervisors.stage import REQUESTS

TOKEN = 1
ANSWER_S = 10.0  # of real time; simpleSystemBase returns as soon as nothing is left to do
TURN_S = 0.1


class Scripted(OtpActor):
    """A child that follows its Plan; what it writes goes into a file, wherever it runs."""

    trap_exits = True

    def init(self, folder: str, name: str, plan: Plan, *extra: Any) -> Any:
        self.folder, self.name, self.plan = folder, ":".join((name, *extra)), plan
        self.number = count(folder, "starts")
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
        if message == "number":
            self.post(sender, self.number)
        elif isinstance(message, tuple):
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


class FileTrace:
    """The trace, in the file to which the children add."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)

    def append(self, token: str) -> None:
        write(self._folder, "trace", token)

    def __iter__(self) -> Any:
        return iter(Path(self._folder, "trace").read_text().splitlines())


class ThespianStage:
    """What the player calls: boot, request, exit, running, shutdown, ended, trace."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.system = ActorSystem("simpleSystemBase", logDefs=False, transientUnique=True)
        self.address: Any = self.system.createActor(SupervisedActor)
        self.trace = FileTrace(folder)
        self.ended: Any = None
        self._spec = SupervisorSpec()

    def start_of(self, row: dict[str, Any]) -> tuple[Any, tuple[Any, ...]]:
        """Return class and arguments of a child."""
        plan = Plan(list(row["starts"]), row["on_shutdown"])
        return Scripted, (str(self.folder), row["id"], plan)

    def boot_with(self, spec: SupervisorSpec) -> ThespianStage:
        self._spec = replace(spec, on_report=partial(write_report, str(self.folder)))
        return self

    def boot(self) -> Any:
        answer = self._ask(self.address, Begin(TOKEN, os.getpid(), Supervisor, (self._spec,)))
        assert self.ended is not None or type(answer) is Began
        return self.ended

    def request(self, name: str, *args: Any) -> Any:
        answer = self._ask(self.address, Call(REQUESTS[name](*args)))
        self._take(self.system.listen(0))
        return CALL_FAILED if answer is None and self.ended is not None else answer

    def exit(self, address: Any, reason: Any) -> None:
        self.system.tell(address, Signal("kill") if reason == "kill" else ("do", reason))
        self._take(self.system.listen(0))
        while self.ended is None and self._is_restarting():
            pass

    def _is_restarting(self) -> bool:
        """Tell whether a restart that failed is still to be tried again; waits for stops."""
        rows = self.request("which_children")
        return rows != CALL_FAILED and any(row[1] == "restarting" for row in rows)

    def running(self) -> list[Any]:
        rows = self.request("which_children")
        addresses = [row[1] for row in rows if isinstance(row[1], ActorAddress)]
        return sorted(addresses, key=lambda address: int(self._ask(address, "number")))

    def below(self, child_id: Any) -> None:
        """Return who has this id below a child: nobody, since trees are not played here."""

    def shutdown(self) -> None:
        if self.ended is None:
            self.system.tell(self.address, Signal("shutdown"))
        while self.ended is None:
            self._take(self.system.listen(TURN_S))

    def close(self) -> None:
        self.system.shutdown()

    def _ask(self, address: Any, message: Any) -> Any:
        answer = self.system.ask(address, message, ANSWER_S)
        return self.system.listen(0) if self._take(answer) else answer

    def _take(self, message: Any) -> bool:
        """Take note of the supervisor's end, if it is that."""
        if type(message) is not Ended:
            return False
        assert message.token == TOKEN
        self.ended = message.reason
        self.system.tell(self.address, ActorExitRequest())
        return True
