"""A driver for the core of a supervisor that has no actors, and the player of recorded scenarios."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from leveret.supervisors.dynamic import make_core
from leveret.supervisors.effects import Again, Failed, Later, Operation, Start, Stop, StopAll
from leveret.supervisors.reports import PROGRESS
from leveret.supervisors.spec import ChildSpec, Report, SpecError, SupervisorSpec
from rigs.supervision.scenario_files import (
    SIMPLE,
    Scenario,
    StartOf,
    checked,
    erlang,
    to_child,
    to_spec,
)

CALL_FAILED = "callfail"  # the answer of a request whose supervisor ended instead


@dataclass
class Plan:
    """How a scripted child behaves: outcome of its n-th start, and its answer to a stop.

    ``on_shutdown``: ``no`` obeys, ``stub`` takes nothing but a kill, any other: ends of that.
    """

    starts: list[str] = field(default_factory=list)
    on_shutdown: str = "no"

    def outcome(self, nth: int) -> str:
        return self.starts[nth - 1] if nth <= len(self.starts) else "ok"


class Base(Protocol):
    """A runner of a supervisor with scripted children, as the player needs it.

    A child follows the ``Plan`` that the scenario's ``start_of`` gave it. Each method returns when
    everything has settled.

    Attributes:
        trace: tokens so far; the base writes ``+id``, ``-id``, ``R:context:id`` and, for a step of a
            burst that nobody is there for, ``nopid``. Dynamic children with an extra argument are
            ``id:extra``.
        ended: the reason that the supervisor ended of, or None.
    """

    trace: list[str]
    ended: Any

    def boot(self) -> Any:
        """Start the supervisor; return None or the reason that the start failed of."""

    def request(self, name: str, *args: Any) -> Any:
        """Ask it; ``CALL_FAILED`` if it ended instead of answering."""

    def exit(self, pid: Any, reason: Any) -> None:
        """Let a running child end itself of ``reason``, or kill it (``kill``)."""

    def running(self) -> list[Any]:
        """Return the addresses of running children, the oldest first."""

    def below(self, child_id: Any) -> Any:
        """Return the running child of this id of a child that is a supervisor, or None."""

    def burst(self, steps: list[tuple[Any, ...]]) -> list[Any]:
        """Let all steps wait in the supervisor's mailbox before it handles the first.

        A step is ``("do", pid | None, reason)`` or a request. Returns the requests' answers.
        """

    def advance(self, seconds: float) -> None:
        """Let time pass."""

    def shutdown(self) -> Any:
        """Let the parent tell the supervisor to shut down, if it is still there."""


class Pid:
    """The address of a scripted child."""

    def __init__(self, number: int, spec: ChildSpec, args: tuple[Any, ...]) -> None:
        self.number = number
        self.spec = spec
        self.args = args
        self.is_alive = True
        self.name = ":".join(map(str, (spec.id, *args)))

    def __repr__(self) -> str:
        return f"<{self.spec.id}.{self.number}>"


class FakeDriver:
    """Runs a core on scripted children (``actor_class`` is the Plan) and writes the trace."""

    def __init__(self, spec: SupervisorSpec) -> None:
        self.core = make_core(spec)
        self.trace: list[str] = []
        self.reports: list[Report] = []
        self.now_s = 1000.0
        self.ended: Any = None
        self.starts: Counter[Any] = Counter()
        self.pids: list[Pid] = []
        self._later: list[tuple[float, Again]] = []
        self._exits: dict[Pid, Any] = {}  # ends in the mailbox

    # Called by tests.

    def boot(self) -> Any:
        self.ended = self._run(self.core.boot())
        return self.ended

    def request(self, name: str, *args: Any) -> Any:
        if name == "terminate_child":
            args = (*args, self)
        elif name == "count_children":
            return self.core.count_children(self)
        answer = getattr(self.core, name)(*args)
        return self._run(answer) if hasattr(answer, "send") else answer

    def exit(self, pid: Pid, reason: Any) -> None:
        """End a child on its own or by a kill, and let everything settle."""
        self.exit_only(pid, reason)
        self.settle()

    def exit_only(self, pid: Pid, reason: Any) -> None:
        """End a child and handle that, but do not come back to restarts that failed."""
        self._end(pid, reason)
        self._handle_exit(pid)

    def burst(self, steps: list[tuple[Any, ...]]) -> list[Any]:
        mailbox: deque[Callable[[], Any]] = deque()
        answers: list[Any] = []
        for name, *args in steps:
            if name != "do":
                mailbox.append(partial(self._answer, answers, name, args))
            elif args[0] is None:
                self.trace.append("nopid")
            elif args[0].is_alive:
                self._end(*args)
                mailbox.append(partial(self._handle_exit, args[0]))
        while mailbox:
            mailbox.popleft()()
        self.settle()
        return answers

    def _answer(self, answers: list[Any], name: str, args: list[Any]) -> None:
        answers.append(CALL_FAILED if self.ended is not None else self.request(name, *args))

    def _end(self, pid: Pid, reason: Any) -> None:
        pid.is_alive = False
        self._exits[pid] = "killed" if reason == "kill" else reason
        if reason != "kill":
            self.trace.append(f"-{pid.name}")

    def _handle_exit(self, pid: Pid) -> None:
        if pid in self._exits and self.ended is None:
            self._finish(self.core.exited(pid, self._exits.pop(pid), self.now_s))

    def settle(self) -> None:
        """Run due actions."""
        while self.ended is None:
            due = [entry for entry in self._later if entry[0] <= self.now_s]
            if not due:
                return
            self._later.remove(due[0])
            self._finish(self.core.again(due[0][1], self.now_s))

    def advance(self, seconds: float) -> None:
        until_s = self.now_s + seconds
        while self.ended is None:
            due_s = min((at_s for at_s, _ in self._later), default=until_s)
            self.now_s = min(max(self.now_s, due_s), until_s)
            self.settle()
            if due_s >= until_s:
                break
        self.now_s = until_s

    def shutdown(self) -> Any:
        """End as the parent says."""
        if self.ended is None:
            self._run(self.core.stop_all())
            self.ended = "shutdown"
        return self.ended

    def running(self) -> list[Pid]:
        pids = [row[1] for row in self.core.which_children()]
        return sorted((p for p in pids if isinstance(p, Pid)), key=lambda pid: pid.number)

    def below(self, child_id: Any) -> None:
        """There are no children of children."""

    def pid(self, child_id: Any) -> Pid:
        (found,) = [p for p in self.running() if p.spec.id == child_id]
        return found

    # The core's Addresses.

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
        pid = Pid(len(self.pids), spec, effect.args)
        self.trace.append(f"+{pid.name}")
        self.pids.append(pid)
        return pid

    def _stop(self, pid: Pid, spec: ChildSpec) -> Any:
        if pid in self._exits:  # it was dead before; this is its real reason
            return self._exits.pop(pid)
        assert pid.is_alive
        pid.is_alive = False
        how = spec.actor_class.on_shutdown
        if spec.shutdown == "brutal_kill" or how == "stub":
            return "killed"
        self.trace.append(f"-{pid.name}")
        return "shutdown" if how == "no" else how


class Player:
    """Plays a scenario on a ``Base`` and returns the trace."""

    def __init__(
        self, scenario: Scenario, make_base: Callable[[SupervisorSpec], Any], start_of: StartOf
    ) -> None:
        self.scenario = checked(scenario)
        self.is_simple = self.scenario["flags"]["strategy"] == SIMPLE
        self._make_base = make_base
        self._start_of = start_of
        self.base: Any = None

    def play(self) -> list[str]:
        """Play it to the end."""
        try:
            spec = to_spec(self.scenario, self._start_of)
        except SpecError as error:
            kind, reason = error.kind, error.reason
            return [f"STARTERR:{erlang((kind, reason)) if kind == 'supervisor_data' else kind}"]
        base = self.base = self._make_base(spec)
        failed = base.boot()
        if failed is not None:
            base.trace.append(f"STARTERR:{_start_error(failed)}")
            return list(base.trace)
        self._show()
        for action in self.scenario["actions"]:
            self._act(*action)
            if base.ended is not None:
                break
            self._show()
        base.shutdown()
        base.trace.append(f"SUPEXIT:{erlang(base.ended)}")
        return list(base.trace)

    def _act(self, name: str, subject: Any, reason: Any = None) -> None:
        base = self.base
        short = {"start_child": "startc", "terminate_child": "term"}
        base.trace.append("#" + short.get(name, name.removesuffix("_child")))
        if name == "sleep":
            base.advance(subject / 1000)
        elif name == "burst":
            steps = [self._step(*step) for step in subject]
            sent = [step for step in steps if step[0] != "refused"]
            answers = iter(base.burst(sent))
            for step in steps:
                if step[0] != "do":
                    base.trace.append(_token(step[1] if step[0] == "refused" else next(answers)))
        elif name == "do":
            pid = self._pid(subject)
            base.trace.append("nopid") if pid is None else base.exit(pid, reason)
        else:
            step = self._step(name, subject)
            base.trace.append(_token(step[1] if step[0] == "refused" else base.request(*step)))

    def _step(self, name: str, subject: Any, reason: Any = None) -> tuple[Any, ...]:
        """Make a request of an action, or ``("refused", answer)`` of one that no spec can be made of."""
        if name == "do":
            return (name, self._pid(subject), reason)
        if name == "terminate_child" and isinstance(subject, int):
            return (name, self._pid(subject))
        if name != "start_child" or isinstance(subject, list):
            return (name, tuple(subject) if isinstance(subject, list) else subject)
        try:
            return (name, to_child(self.scenario, subject, self._start_of))
        except SpecError as error:
            return ("refused", ("error", (error.reason, subject)))

    def _pid(self, subject: Any) -> Any:
        running = self.base.running()
        if isinstance(subject, int):
            return running[subject % len(running)] if running else None
        rows = {row[0]: row[1] for row in self.base.request("which_children")}
        if subject not in rows:
            return None if self.is_simple else self.base.below(subject)
        return rows[subject] if rows[subject] in running else None

    def _show(self) -> None:
        rows = [
            f"{'undefined' if child_id is None else child_id}={_state(ref)}"
            for child_id, ref, _ in self.base.request("which_children")
        ]
        if self.is_simple:
            rows.sort()
        count = self.base.request("count_children")
        numbers = "/".join(str(count[k]) for k in ("specs", "active", "supervisors", "workers"))
        self.base.trace.append(f"[{','.join(rows)}]{numbers}")


def _start_error(reason: Any) -> str:
    match reason:
        case ("shutdown", ("failed_to_start_child", child_id, _)):
            return f"failed:{child_id}"
        case (("start_spec" | "bad_start_spec") as kind, _):
            return str(kind)
    return erlang(reason)


def _state(ref: Any) -> str:
    if ref is None:
        return "undefined"
    return "restarting" if ref == "restarting" else "up"


def _token(result: Any) -> str:
    match result:
        case "callfail" | "ok":
            return CALL_FAILED if result == CALL_FAILED else "=ok"
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
