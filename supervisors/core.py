"""The supervisor's decisions, free of I/O: OTP's rules as generators that a driver runs.

Theory. A supervisor is a list of children in start order and a list of the times of its latest
restarts. Everything that happens to it is one operation: ``boot``, a request, ``exited`` (a child
ended), ``again`` (a restart is tried again), ``stop_all``. An operation is a generator that yields
effects (``leveret.supervisors.effects``) and is told their outcome; the kernel knows no event
loop, no actors and no clock, so that one kernel serves every driver and replays recorded traces.

The driver promises to run one operation at a time, to keep what arrives meanwhile in order, and
to stop asking once an operation has returned a reason to end.

When a child ends, the kernel decides in three steps:

1. ``verdict``: restart it, forget it, or end (an intrinsic child's normal end), by its restart
   kind and the reason.
2. Intensity: a restart more than allowed within the period ends the supervisor, or, for a delayed
   restart kind, is put off.
3. Strategy: which siblings stop (newest first) and start again (oldest first).

A start that fails within a restart leaves the child ``restarting`` and comes back as ``again``,
behind the requests that wait: a ``terminate_child`` sent meanwhile wins. Each try counts.

This module has the strategies with named children; ``leveret.supervisors.dynamic`` has
``simple_one_for_one``. What RabbitMQ's supervisor2 adds (intrinsic and delayed restart kinds) is
always there; where the two answer differently for the same spec, ``SupervisorSpec.dialect`` says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from leveret.supervisors.effects import Again, Child, Failed, Later, Operation, Start, Stop
from leveret.supervisors.intensity import add_restart
from leveret.supervisors.reports import (
    CHILD_TERMINATED,
    MAX_INTENSITY,
    PROGRESS,
    SHUTDOWN,
    SHUTDOWN_ERROR,
    START_ERROR,
    Report,
    wants_progress,
)

if TYPE_CHECKING:
    from collections.abc import Hashable

    from leveret.supervisors.effects import Addresses
    from leveret.supervisors.spec import ChildSpec, SupervisorSpec

RESTART: Final = "restart"
FORGET: Final = "forget"
END: Final = "end"
EXPLICIT_RESTART: Final = ("shutdown", "restart")


def is_shutdown_tuple(reason: Any) -> bool:
    """Tell whether ``reason`` is ``("shutdown", something)``."""
    return isinstance(reason, tuple) and len(reason) == 2 and reason[0] == "shutdown"


def is_abnormal(reason: Any) -> bool:
    """Tell whether a transient child that ended of ``reason`` is started again."""
    if isinstance(reason, str):
        return reason not in ("normal", "shutdown")
    return not is_shutdown_tuple(reason)


def verdict(spec: ChildSpec, reason: Any, dialect: str) -> str:
    """Decide by the restart kind: ``RESTART``, ``FORGET`` or ``END`` the supervisor too."""
    kind = spec.kind
    if kind == "permanent":
        return RESTART
    if kind == "temporary":
        return FORGET
    if is_abnormal(reason):
        return RESTART
    is_rabbitmq = kind == "intrinsic" or spec.delay_s is not None or dialect == "rabbitmq"
    if is_rabbitmq and isinstance(reason, tuple) and reason == EXPLICIT_RESTART:
        return RESTART
    return END if kind == "intrinsic" else FORGET


def is_expected_stop(spec: ChildSpec, reason: Any, dialect: str) -> bool:
    """Tell whether a child that was told to stop ended as it should (else it is reported)."""
    if isinstance(reason, str):
        if reason == ("killed" if spec.shutdown == "brutal_kill" else "shutdown"):
            return True
        if spec.kind == "permanent":
            return False
        return reason == "normal" or (reason == "shutdown" and dialect == "otp")
    return is_shutdown_tuple(reason) and spec.kind != "permanent" and dialect == "otp"


class Kernel:
    """What the strategies have in common: from a child's end to a decision.

    Subclasses keep the children and say how they are found, forgotten, started again and stopped.
    """

    __slots__ = ("_restarts_s", "spec")

    def __init__(self, spec: SupervisorSpec) -> None:
        self.spec = spec
        self._restarts_s: list[float] | None = None

    def exited(self, ref: Any, reason: Any, now_s: float) -> Operation:
        """Handle the end of whoever had the address ``ref``; strangers are ignored."""
        child = self._find(ref)
        if child is None:
            return None
        return (yield from self._ended(child, reason, now_s))

    def again(self, again: Again, now_s: float) -> Operation:
        """Try a restart again, unless somebody settled the child meanwhile."""
        if again.child.ref is not again:
            return None
        if again.is_delayed:
            self._restarts_s = None
            if again.report is not None:
                yield again.report
        return (yield from self._restart(again.child, again.report, now_s))

    def stop_all(self) -> Operation:
        """Stop every child, the newest first."""
        raise NotImplementedError

    def _find(self, ref: Any) -> Child | None:
        raise NotImplementedError

    def _forget(self, child: Child) -> None:
        raise NotImplementedError

    def _start_again(self, child: Child) -> Operation:
        """Start by the strategy; return the ``Again`` of the child that failed, or None."""
        raise NotImplementedError

    def _others_matter(self) -> bool:
        """Tell whether a significant child is still there."""
        raise NotImplementedError

    def _wait(self, again: Again) -> None:
        """Put ``again.child`` into the state of waiting for ``again``."""
        again.child.ref = again

    def _ended(self, child: Child, reason: Any, now_s: float) -> Operation:
        spec = child.spec
        report = None
        if spec.kind == "permanent" or is_abnormal(reason):
            report = Report(CHILD_TERMINATED, reason, child.ref, spec)
            yield report
        what = verdict(spec, reason, self.spec.dialect)
        if what == RESTART:
            return (yield from self._restart(child, report, now_s))
        self._forget(child)
        if what == END or self._is_auto_shutdown(spec):
            return (yield from self._end())
        return None

    def _restart(self, child: Child, report: Report | None, now_s: float) -> Operation:
        if self._restarts_s is None:
            self._restarts_s = []
        spec = self.spec
        if not add_restart(self._restarts_s, now_s, spec.intensity, spec.period_s):
            return (yield from self._overrun(child, report))
        again = yield from self._start_again(child)
        if again is not None:
            yield Later(0, again)
        return None

    def _overrun(self, child: Child, report: Report | None) -> Operation:
        delay_s = child.spec.delay_s
        if delay_s is None:
            yield Report(SHUTDOWN, MAX_INTENSITY, child.last_ref, child.spec)
            self._forget(child)
            return (yield from self._end())
        again = Again(child, child.last_ref, is_delayed=True, report=report)
        self._wait(again)
        yield Later(delay_s, again)
        return None

    def _is_auto_shutdown(self, spec: ChildSpec) -> bool:
        mode = self.spec.auto_shutdown
        if mode == "never" or not spec.significant:
            return False
        return mode == "any_significant" or not self._others_matter()

    def _end(self) -> Operation:
        yield from self.stop_all()
        return "shutdown"


class GroupKernel(Kernel):
    """one_for_one, one_for_all and rest_for_one: children by id, in start order."""

    __slots__ = ("children",)

    def __init__(self, spec: SupervisorSpec) -> None:
        super().__init__(spec)
        self.children: dict[Hashable, Child] = {c.id: Child(c, c.args) for c in spec.children}

    def boot(self) -> Operation:
        """Start the children; after a failure stop those already started and say why."""
        failed = yield from self._start_each(list(self.children.values()))
        if failed is None:
            return None
        child, reason = failed
        child.ref = None
        yield from self.stop_all()
        return ("shutdown", ("failed_to_start_child", child.spec.id, reason))

    def stop_all(self) -> Operation:
        """Stop every child, the newest first, each waited for."""
        yield from self._stop_each(list(self.children.values()))

    # Requests: the answer is what OTP's functions return.

    def start_child(self, spec: ChildSpec) -> Operation:
        """Start a new child behind all others; its spec is kept if that succeeds."""
        problem = self.spec.problem_with(spec)
        if problem is not None:
            return ("error", problem)
        there = self.children.get(spec.id)
        if there is not None:
            running = there.is_running
            return ("error", ("already_started", there.ref) if running else "already_present")
        child = Child(spec, spec.args)
        answer = yield from self._start(child)
        if answer.__class__ is Failed:
            return ("error", (answer.reason, spec))
        if answer is not None or spec.kind != "temporary":
            self.children[spec.id] = child
        return ("ok", answer)

    def terminate_child(self, child_id: Hashable, addresses: Addresses) -> Operation:
        """Stop a child and keep its spec (but a temporary one's); takes a restart back too."""
        del addresses
        child = self.children.get(child_id)
        if child is None:
            return ("error", "not_found")
        yield from self._stop(child)
        self._forget(child)
        return "ok"

    def restart_child(self, child_id: Hashable) -> Operation:
        """Start a child that was stopped; does not count as a restart."""
        child = self.children.get(child_id)
        problem = self._not_stopped(child)
        if child is None or problem is not None:
            return ("error", problem)
        answer = yield from self._start(child)
        if answer.__class__ is Failed:
            return ("error", answer.reason)
        return ("ok", answer)

    def delete_child(self, child_id: Hashable) -> Any:
        """Forget the spec of a child that was stopped."""
        problem = self._not_stopped(self.children.get(child_id))
        if problem is not None:
            return ("error", problem)
        del self.children[child_id]
        return "ok"

    def which_children(self) -> list[tuple[Hashable, Any, str]]:
        """List (id, address | None | ``restarting``, type), the newest first."""
        return [(c.spec.id, c.state, c.spec.type) for c in reversed(self.children.values())]

    def count_children(self, addresses: Addresses) -> dict[str, int]:
        """Count specs, living children, supervisors and workers (these two also if stopped)."""
        children = self.children.values()
        supervisors = sum(child.spec.type == "supervisor" for child in children)
        return {
            "specs": len(children),
            "active": sum(child.is_running and addresses.is_alive(child.ref) for child in children),
            "supervisors": supervisors,
            "workers": len(children) - supervisors,
        }

    def get_childspec(self, child_id: Hashable) -> Any:
        """Return a child's spec with all defaults filled in."""
        child = self.children.get(child_id)
        return ("error", "not_found") if child is None else ("ok", child.spec)

    # Kernel's hooks.

    def _find(self, ref: Any) -> Child | None:
        if ref is None:
            return None
        for child in self.children.values():
            if child.ref is ref:
                return child
        return None

    def _forget(self, child: Child) -> None:
        child.ref = None
        if child.spec.kind == "temporary":
            del self.children[child.spec.id]

    def _others_matter(self) -> bool:
        children = self.children.values()
        return any(child.spec.significant and child.ref is not None for child in children)

    def _start_again(self, child: Child) -> Operation:
        old_ref = child.last_ref
        child.ref = None
        group = yield from self._stop_each(self._group(child))
        failed = yield from self._start_each(group, restarts=1)
        if failed is None:
            return None
        culprit: Child = failed[0]
        again = Again(culprit, old_ref if culprit is child else None)
        self._wait(again)
        return again

    def _group(self, child: Child) -> list[Child]:
        strategy = self.spec.strategy
        if strategy == "one_for_one":
            return [child]
        children = list(self.children.values())
        return children if strategy == "one_for_all" else children[children.index(child) :]

    # Starting and stopping, in order.

    def _start(self, child: Child) -> Operation:
        answer = yield Start(child.spec, child.args or ())
        if answer is None or answer.__class__ is Failed:
            return answer
        child.ref = answer
        if wants_progress():
            yield Report(PROGRESS, None, answer, child.spec)
        return answer

    def _start_each(self, children: list[Child], restarts: int = 0) -> Operation:
        """Start in order; return None, or (child, reason) of the first that failed."""
        for child in children:
            answer = yield from self._start(child)
            if answer.__class__ is Failed:
                yield Report(START_ERROR, answer.reason, child.ref, child.spec)
                return (child, answer.reason)
            if answer is not None:
                child.restarts += restarts
            elif child.spec.kind == "temporary":
                del self.children[child.spec.id]
        return None

    def _stop_each(self, children: list[Child]) -> Operation:
        """Stop the newest first and return those whose spec stays: all but temporary ones."""
        for child in reversed(children):
            yield from self._stop(child)
            self._forget(child)
        return [child for child in children if child.spec.id in self.children]

    def _stop(self, child: Child) -> Operation:
        ref = child.ref
        if not child.is_running:
            child.ref = None
            return
        reason = yield Stop(ref, child.spec)
        if not is_expected_stop(child.spec, reason, self.spec.dialect):
            yield Report(SHUTDOWN_ERROR, reason, ref, child.spec)

    def _not_stopped(self, child: Child | None) -> str | None:
        if child is None:
            return "not_found"
        if child.ref is None:
            return None
        return "running" if child.is_running else "restarting"
