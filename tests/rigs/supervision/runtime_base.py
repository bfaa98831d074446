"""Supervisor and scripted children as real actors on virtual time."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from leveret.actors.actor import IGNORE, LATER, OtpActor
from leveret.actors.runtime.calls import Answer, From, Request
from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.runtime import Runtime
from leveret.actors.runtime.signals import StartFailed
from leveret.supervisors.reports import PROGRESS
from leveret.supervisors.requests import (
    CountChildren,
    DeleteChild,
    GetChildSpec,
    RestartChild,
    StartChild,
    TerminateChild,
    WhichChildren,
)
from leveret.supervisors.spec import Report, SupervisorSpec
from leveret.supervisors.supervisor import Supervisor
from leveret.testing.virtual_clock import VirtualClock
from rigs.supervision.player import CALL_FAILED, Plan


class Scripted(OtpActor):
    """A child that follows its Plan and writes the trace."""

    trap_exits = True

    def init(self, base: RuntimeBase, name: str, plan: Plan, *extra: Any) -> Any:
        self.base, self.plan, self.extra = base, plan, extra
        self.name = ":".join((name, *extra))
        base.starts[name] += 1
        self.outcome = plan.outcome(base.starts[name])
        if self.outcome == "ign":
            return IGNORE
        if base.starts_later:
            self.post(self.ref, "go on")
            return LATER
        self.open()
        return None

    def open(self) -> None:
        if self.outcome == "raise":
            raise RuntimeError("oops")
        if self.outcome == "err":
            self.stop("nope")
        self.base.trace.append(f"+{self.name}")
        self.base.last[self.name] = self.ref

    def handle_mail(self, message: Any, sender: Any) -> None:
        if message == "go on":
            self.open()
            self.started()
        elif isinstance(message, tuple):
            self.leave(message[1])
        elif self.plan.on_shutdown != "stub":
            self.leave("wrong" if self.plan.on_shutdown == "wrong" else message.reason)

    def leave(self, reason: Any) -> None:
        self.base.trace.append(f"-{self.name}")
        self.stop(reason)


class Parent(OtpActor):
    """Starts the supervisor and outlives it."""

    trap_exits = True

    def handle_mail(self, message: Any, sender: Any) -> None:
        pass


class RuntimeBase:
    """Supervisor and children as actors on virtual time, driven by hand."""

    actor_class = Scripted

    def __init__(self, starts_later: bool = False) -> None:
        self.starts_later = starts_later
        self.clock = VirtualClock()
        self.runtime = Runtime(clock=self.clock)
        self.parent = self.runtime.spawn(Parent)
        self.trace: list[str] = []
        self.reports: list[Report] = []
        self.starts: Counter[str] = Counter()
        self.last: dict[str, Ref] = {}
        self.ended: Any = None
        self.supervisor: Any = None
        self._spec = SupervisorSpec()

    # Called by the player.

    def boot_with(self, spec: SupervisorSpec) -> RuntimeBase:
        self._spec = self.watched(spec)
        return self

    def watched(self, spec: SupervisorSpec) -> SupervisorSpec:
        """Let the reports of this supervisor go into the trace."""
        return replace(spec, on_report=self._on_report)

    def boot(self) -> Any:
        results: list[Any] = []
        self.supervisor = self.runtime.start_link(
            self.parent, Supervisor, (self._spec,), results.append
        )
        self.runtime.watch(self.supervisor, self._on_end)
        while not results:
            self._pass_time()
        return results[0].reason if isinstance(results[0], StartFailed) else None

    def request(self, name: str, *args: Any) -> Any:
        return self.wait(self.ask(name, *args))

    def exit(self, ref: Any, reason: Any) -> None:
        self._end(ref, reason)
        self.settle()

    def burst(self, steps: list[tuple[Any, ...]]) -> list[Any]:
        answers = []
        self.runtime.suspend(self.supervisor)
        for name, *args in steps:
            if name != "do":
                answers.append(self.ask(name, *args))
            elif args[0] is None:
                self.trace.append("nopid")
            else:
                self._end(*args)
                self.runtime.run_until_idle()
        self.runtime.resume(self.supervisor)
        self.settle()
        return [self.wait(answer) for answer in answers]

    def advance(self, seconds: float) -> None:
        self.clock.jump(seconds)
        self.settle()

    def running(self) -> list[Any]:
        refs = [row[1] for row in self.request("which_children")]
        return sorted((r for r in refs if isinstance(r, Ref)), key=lambda ref: ref.num)

    def below(self, child_id: Any) -> Any:
        ref = self.last.get(child_id)
        return ref if ref is not None and ref.is_alive else None

    def shutdown(self) -> None:
        if self.supervisor.is_alive:
            self.runtime.exit(self.supervisor, "shutdown", self.parent)
        while self.supervisor.is_alive:
            self._pass_time()
        self.settle()

    def _end(self, ref: Any, reason: Any) -> None:
        if reason == "kill":
            self.runtime.exit(ref, "kill")
        else:
            self.runtime.send(ref, ("do", reason))

    # More for tests.

    def ask(self, name: str, *args: Any) -> Future[Any]:
        """Send a request and do not wait."""
        return send_request(self.runtime, self.supervisor, REQUESTS[name](*args))

    def wait(self, answer: Future[Any]) -> Any:
        self.runtime.run_until_idle()
        while not answer.done() and self.supervisor.is_alive:
            self._pass_time()
        self.settle()
        return answer.result() if answer.done() else CALL_FAILED

    def ref(self, child_id: Any) -> Any:
        (found,) = [row[1] for row in self.request("which_children") if row[0] == child_id]
        return found

    def settle(self) -> None:
        """Let everything happen that does not need time; give killed stubs theirs."""
        self.runtime.run_until_idle()
        if self.supervisor.is_alive and self.supervisor.cell.actor.is_busy:
            self._pass_time()
            self.settle()

    def close(self) -> None:
        """End the actors that are left."""
        for ref in (self.supervisor, self.parent):
            if ref is not None:
                self.runtime.exit(ref, "kill")
        self.runtime.run_until_idle()

    def _pass_time(self) -> None:
        assert self.clock.monotonic_s() < 1000, "hung"
        self.clock.jump(0.05)

    def _on_end(self, reason: Any) -> None:
        self.ended = reason

    def _on_report(self, report: Report) -> None:
        self.reports.append(report)
        if report.context != PROGRESS:
            self.trace.append(f"R:{report.context}:{report.spec.id}")


def send_request(runtime: Runtime, to: Ref, request: Any) -> Future[Any]:
    """Call without waiting; the answer comes into a future that needs no loop."""
    answer: Future[Any] = Future()
    runtime.send(to, Request(From(Answer(answer)), request))  # type: ignore[arg-type]
    return answer


REQUESTS = {
    "start_child": StartChild,
    "terminate_child": TerminateChild,
    "restart_child": RestartChild,
    "delete_child": DeleteChild,
    "which_children": WhichChildren,
    "count_children": CountChildren,
    "get_childspec": GetChildSpec,
}
