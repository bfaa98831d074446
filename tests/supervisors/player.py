"""A driver for the supervisor kernel that has no actors, and the player of recorded scenarios."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from leveret.supervisors.dynamic import make_kernel
from leveret.supervisors.effects import Again, Failed, Later, Operation, Start, Stop, StopAll
from leveret.supervisors.reports import PROGRESS, Report
from leveret.supervisors.spec import ChildSpec, SpecError, SupervisorSpec

TRACES = Path(
    os.environ.get("LEVERET_OTP_TRACES") or Path(__file__).parent / "data" / "otp_traces.json"
)


@dataclass
class Plan:
    """How a scripted child behaves: outcome of its n-th start, and what it does when told to stop.

    ``on_shutdown``: ``no`` obeys, ``stub`` takes nothing but a kill, any other: ends of that.
    """

    starts: list[str] = field(default_factory=list)
    on_shutdown: str = "no"

    def outcome(self, nth: int) -> str:
        return self.starts[nth - 1] if nth <= len(self.starts) else "ok"


class Pid:
    """The address of a scripted child."""

    def __init__(self, number: int, spec: ChildSpec, args: tuple[Any, ...]) -> None:
        self.number = number
        self.spec = spec
        self.args = args
        self.is_alive = True

    def __repr__(self) -> str:
        return f"<{self.spec.id}.{self.number}>"


class FakeDriver:
    """Runs a kernel on scripted children (``actor_class`` is the Plan) and writes the trace."""

    def __init__(self, spec: SupervisorSpec) -> None:
        self.kernel = make_kernel(spec)
        self.trace: list[str] = []
        self.reports: list[Report] = []
        self.now_s = 1000.0
        self.ended: Any = None
        self.starts: Counter[Any] = Counter()
        self.pids: list[Pid] = []
        self._later: list[tuple[float, Again]] = []

    # What tests call.

    def boot(self) -> Any:
        self.ended = self._run(self.kernel.boot())
        return self.ended

    def request(self, name: str, *args: Any) -> Any:
        if name == "terminate_child":
            args = (*args, self)
        elif name == "count_children":
            return self.kernel.count_children(self)
        answer = getattr(self.kernel, name)(*args)
        return self._run(answer) if hasattr(answer, "send") else answer

    def exit(self, pid: Pid, reason: Any) -> None:
        """End a child on its own or by a kill, and let everything settle."""
        self.exit_only(pid, reason)
        self.settle()

    def exit_only(self, pid: Pid, reason: Any) -> None:
        """End a child and handle that, but do not come back to restarts that failed."""
        pid.is_alive = False
        if reason == "kill":
            reason = "killed"
        else:
            self.trace.append(f"-{pid.spec.id}")
        self._finish(self.kernel.exited(pid, reason, self.now_s))

    def settle(self) -> None:
        """Run what is due."""
        while self.ended is None:
            due = [entry for entry in self._later if entry[0] <= self.now_s]
            if not due:
                return
            self._later.remove(due[0])
            self._finish(self.kernel.again(due[0][1], self.now_s))

    def advance(self, seconds: float) -> None:
        self.now_s += seconds
        self.settle()

    def shutdown(self) -> Any:
        if self.ended is None:
            self._run(self.kernel.stop_all())
            self.ended = "shutdown"
        return self.ended

    def running(self) -> list[Pid]:
        pids = [row[1] for row in self.kernel.which_children()]
        return sorted((p for p in pids if isinstance(p, Pid)), key=lambda pid: pid.number)

    def pid(self, child_id: Any) -> Pid:
        (found,) = [p for p in self.running() if p.spec.id == child_id]
        return found

    # The kernel's Addresses.

    def is_address(self, key: Any) -> bool:
        return isinstance(key, Pid)

    def is_alive(self, ref: Any) -> bool:
        return bool(ref.is_alive)

    # Effects.

    def _finish(self, operation: Operation) -> None:
        assert self.ended is None
        self.ended = self._run(operation)

    def _run(self, operation: Operation) -> Any:
        answer = None
        while True:
            try:
                effect = operation.send(answer)
            except StopIteration as end:
                return end.value
            answer = self._carry_out(effect)

    def _carry_out(self, effect: Any) -> Any:
        match effect:
            case Start():
                return self._start(effect)
            case Stop():
                return self._stop(effect.ref, effect.spec)
            case StopAll():
                return [self._stop(ref, effect.spec) for ref in effect.refs]
            case Later():
                self._later.append((self.now_s + effect.delay_s, effect.again))
            case Report():
                self.reports.append(effect)
                if effect.context != PROGRESS:
                    self.trace.append(f"R:{effect.context}:{effect.spec.id}")
        return None

    def _start(self, effect: Start) -> Any:
        spec = effect.spec
        self.starts[spec.id] += 1
        outcome = spec.actor_class.outcome(self.starts[spec.id])
        if outcome == "ign":
            return None
        if outcome != "ok":
            return Failed("nope" if outcome == "err" else ("crash", outcome))
        self.trace.append(f"+{spec.id}")
        self.pids.append(Pid(len(self.pids), spec, effect.args))
        return self.pids[-1]

    def _stop(self, pid: Pid, spec: ChildSpec) -> Any:
        assert pid.is_alive
        pid.is_alive = False
        how = spec.actor_class.on_shutdown
        if spec.shutdown == "brutal_kill" or how == "stub":
            return "killed"
        self.trace.append(f"-{spec.id}")
        return "shutdown" if how == "no" else how


def to_spec(
    scenario: dict[str, Any], start_of: Callable[[dict[str, Any]], tuple[Any, tuple[Any, ...]]]
) -> SupervisorSpec:
    """Make the spec of a recorded scenario; ``start_of`` gives a child's class and arguments."""
    flags = scenario["flags"]
    is_otp = scenario["module"] == "supervisor"
    return SupervisorSpec(
        strategy=flags["strategy"],
        intensity=flags["intensity"],
        period_s=flags["period"],
        auto_shutdown=flags["auto_shutdown"] if is_otp else "never",
        children=tuple(to_child(scenario, row, start_of) for row in scenario["children"]),
        dialect="otp" if is_otp else "rabbitmq",
    )


def to_child(
    scenario: dict[str, Any],
    row: dict[str, Any],
    start_of: Callable[[dict[str, Any]], tuple[Any, tuple[Any, ...]]],
) -> ChildSpec:
    actor_class, args = start_of(row)
    shutdown = row["shutdown"]
    return ChildSpec(
        id=row["id"],
        actor_class=actor_class,
        args=args,
        restart=row["restart"],
        shutdown=shutdown if isinstance(shutdown, str) else shutdown / 1000,
        type=row["type"],
        significant=row["significant"] and scenario["module"] == "supervisor",
    )


class Player:
    """Plays a scenario on a driver: boot, request, exit, running, shutdown, ended, trace."""

    def __init__(
        self,
        scenario: dict[str, Any],
        make_driver: Callable[[SupervisorSpec], Any],
        start_of: Callable[[dict[str, Any]], tuple[Any, tuple[Any, ...]]],
    ) -> None:
        self.scenario = scenario
        self.is_simple = scenario["flags"]["strategy"] == "simple_one_for_one"
        self._make_driver = make_driver
        self._start_of = start_of
        self.driver: Any = None

    def play(self) -> list[str]:
        try:
            spec = to_spec(self.scenario, self._start_of)
        except SpecError as error:
            return [f"STARTERR:{error.kind}"]
        driver = self.driver = self._make_driver(spec)
        failed = driver.boot()
        if failed is not None:
            driver.trace.append(f"STARTERR:failed:{failed[1][1]}")
            return list(driver.trace)
        self._show()
        for action in self.scenario["actions"]:
            self._act(*action)
            if driver.ended is not None:
                break
            self._show()
        driver.shutdown()
        driver.trace.append(f"SUPEXIT:{driver.ended}")
        return list(driver.trace)

    def _act(self, name: str, subject: Any, reason: Any = None) -> None:
        driver = self.driver
        short = {"start_child": "startc", "terminate_child": "term"}
        driver.trace.append("#" + short.get(name, name.removesuffix("_child")))
        if name == "do":
            pid = self._pid(subject)
            if pid is None:
                driver.trace.append("nopid")
            else:
                driver.exit(pid, tuple(reason) if isinstance(reason, list) else reason)
            return
        if name == "terminate_child" and isinstance(subject, int):
            subject = self._pid(subject)
        driver.trace.append(_token(self._request(name, subject)))

    def _request(self, name: str, subject: Any) -> Any:
        if name != "start_child":
            return self.driver.request(name, subject)
        if self.is_simple:
            return self.driver.request(name, tuple(subject))
        try:
            return self.driver.request(name, to_child(self.scenario, subject, self._start_of))
        except SpecError as error:
            return ("error", (error.reason, subject))

    def _pid(self, subject: Any) -> Any:
        running = self.driver.running()
        if isinstance(subject, int):
            return running[subject % len(running)] if running else None
        rows = self.driver.request("which_children")
        return next((row[1] for row in rows if row[0] == subject and row[1] in running), None)

    def _show(self) -> None:
        rows = [
            f"{'undefined' if child_id is None else child_id}={_state(ref)}"
            for child_id, ref, _ in self.driver.request("which_children")
        ]
        if self.is_simple:
            rows.sort()
        count = self.driver.request("count_children")
        numbers = "/".join(str(count[k]) for k in ("specs", "active", "supervisors", "workers"))
        self.driver.trace.append(f"[{','.join(rows)}]{numbers}")


def _state(ref: Any) -> str:
    if ref is None:
        return "undefined"
    return "restarting" if ref == "restarting" else "up"


def _token(result: Any) -> str:
    match result:
        case "ok":
            return "=ok"
        case ("ok", None):
            return "=ok,undefined"
        case ("ok", _):
            return "=ok,pid"
        case ("error", ("already_started", _)):
            return "=error,already_started"
        case ("error", str(reason)):
            return f"=error,{reason}"
        case _:
            return "=error,other"


def scenarios() -> Iterator[Any]:
    """Read the recorded scenarios as pytest parameters."""
    for number, scenario in enumerate(json.loads(TRACES.read_text())):
        name = f"{number}-{scenario['module']}-{scenario['flags']['strategy']}"
        yield pytest.param(scenario, id=name)
