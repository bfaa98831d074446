"""The supervisor's decisions, free of I/O: OTP's rules as generators that a driver runs.

Theory. A supervisor is a list of children in start order and a list of the times of its latest
restarts. Everything that happens to it is one operation: ``boot``, a request, ``exited`` (a child
ended), ``again`` (a restart is tried again), ``stop_all``. An operation is a generator that yields
effects (``leveret.supervisors.effects``) and is told their outcome; the core knows no event
loop, no actors and no clock, so that one core serves every driver and replays recorded traces.

The driver promises to run one operation at a time, to keep later events in order, and to ask no more
once an operation has returned a reason to end.

When a child ends, the core decides in three steps:

1. ``verdict``: restart it, forget it, or end (an intrinsic child's normal end), by its restart
   kind and the reason.
2. Intensity: a restart more than allowed within the period ends the supervisor, or, for a delayed
   restart kind, is put off.
3. Strategy: which siblings stop (newest first) and start again (oldest first).

Beyond OTP, a child with a back-off stays ``restarting`` for a while between 2 and 3; siblings that the strategy
stops are stopped before.

A start that fails within a restart leaves the child ``restarting`` and comes back as ``again``,
behind the requests that wait: a ``terminate_child`` sent meanwhile wins. Each try counts.

This module is shared by the strategies; ``leveret.supervisors.groups`` has the strategies with named children,
``leveret.supervisors.dynamic`` has ``simple_one_for_one``. The additions of RabbitMQ's supervisor2 (intrinsic and
delayed restart kinds) are always there; where the two answer differently for the same spec,
``SupervisorSpec.dialect`` decides.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from leveret.supervisors.effects import Again, Child, Later, Operation
from leveret.supervisors.reports import CHILD_TERMINATED, MAX_INTENSITY, SHUTDOWN
from leveret.supervisors.spec import Report, Restarted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leveret.supervisors.spec import ChildSpec, SupervisorSpec

RESTART: Final = "restart"
FORGET: Final = "forget"
END: Final = "end"
EXPLICIT_RESTART: Final = ("shutdown", "restart")
MAX_CHILDREN: Final = "max_children"


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
    """Return whether a child ended as its stop signal asked (else it is reported)."""
    if isinstance(reason, str):
        if reason == ("killed" if spec.shutdown == "brutal_kill" else "shutdown"):
            return True
        if spec.kind == "permanent":
            return False
        return reason == "normal" or (reason == "shutdown" and dialect == "otp")
    return is_shutdown_tuple(reason) and spec.kind != "permanent" and dialect == "otp"


def add_restart(times_s: list[float], now_s: float, intensity: int, period_s: float) -> bool:
    """Count a restart at ``now_s``, in place, and return whether it is still allowed.

    The window slides: times older than the period are dropped; more than ``intensity`` in it are too many.
    A restart exactly one period ago still counts.

    Differs from OTP: seconds are floats. OTP counts whole monotonic seconds, so that a gap between
    the period and one second more counts or not by the phase of the clock.
    """
    oldest_s = now_s - period_s
    expired = 0
    while expired < len(times_s) and times_s[expired] < oldest_s:
        expired += 1
    del times_s[:expired]
    times_s.append(now_s)
    return len(times_s) <= intensity


class SupervisorCore(ABC):
    """The part common to all strategies: from a child's end to a decision.

    Subclasses keep the children and say how they are found, forgotten, started again and stopped.
    """

    __slots__ = ("_restarts_s", "spec")

    def __init__(self, spec: SupervisorSpec) -> None:
        self.spec = spec
        self._restarts_s: list[float] | None = None

    def exited(self, ref: Any, reason: Any, now_s: float) -> Operation:
        """Handle the end of the child with the address ``ref``; other actors are ignored."""
        child = self._find(ref)
        if child is None:
            return None
        return (yield from self._ended(child, reason, now_s))

    def again(self, again: Again, now_s: float) -> Operation:
        """Try a restart again, unless a request has started or stopped the child meanwhile."""
        if again.child.ref is not again:
            return None
        if again.is_counted:
            return (yield from self._start_counted(again.child, again.report, now_s))
        if again.is_delayed:
            self._restarts_s = None
            if again.report is not None:
                outlook = self._outlook(again.child, RESTART, now_s)
                yield replace(again.report, next=outlook)
        return (yield from self._restart(again.child, again.report, now_s))

    @abstractmethod
    def stop_all(self) -> Operation:
        """Stop every child, the newest first."""

    def label_of(self, ref: Any) -> str | None:
        child = self._find(ref)
        return None if child is None else child.spec.label_of(child.args)

    @abstractmethod
    def members(self) -> Iterator[Child]:
        """Iterate over the children of this moment, the oldest first, to print the tree."""

    @abstractmethod
    def _find(self, ref: Any) -> Child | None:
        """Return the child with this address."""

    @abstractmethod
    def _forget(self, child: Child) -> None:
        """Note that the child is gone; whether its spec stays is the strategy's."""

    @abstractmethod
    def _start_again(self, child: Child, now_s: float) -> Operation:
        """Start by the strategy; return the ``Again`` of the child that failed, or None."""

    @abstractmethod
    def _stop_group(self, child: Child) -> Operation:
        """Stop the siblings that are started again together with ``child``."""

    @abstractmethod
    def _others_matter(self) -> bool:
        """Return whether a significant child still runs."""

    def _wait(self, again: Again) -> None:
        """Put ``again.child`` into the state of waiting for ``again``."""
        again.child.ref = again

    def _ended(self, child: Child, reason: Any, now_s: float) -> Operation:
        spec = child.spec
        report = None
        decision = verdict(spec, reason, self.spec.dialect)
        if spec.kind == "permanent" or is_abnormal(reason):
            report = Report(CHILD_TERMINATED, reason, child.ref, spec)
            report.next = self._outlook(child, decision, now_s)
            yield report
        if decision == RESTART:
            return (yield from self._restart(child, report, now_s))
        self._forget(child)
        if decision == END or self._is_auto_shutdown(spec):
            return (yield from self._end())
        return None

    def _outlook(self, child: Child, decision: str, now_s: float) -> str:
        """Return a text on what follows the end of a child."""
        if decision != RESTART:
            return "not started again"
        spec, times_s = self.spec, self._restarts_s or ()
        number = 1 + len(times_s) - bisect_left(times_s, now_s - spec.period_s)
        restart = f"restart {number} of {spec.intensity} in {spec.period_s:g} s"
        if number > spec.intensity:
            delay_s = child.spec.delay_s
            end = "the supervisor ends" if delay_s is None else f"in {delay_s:g} s"
            return f"too many: {restart}, {end}"
        backoff, delay_s = child.spec.backoff, 0.0
        if backoff is not None:
            delay_s = backoff.next_delay_s(child.waited_s, now_s - child.due_s)
        return f"{restart}, {f'in {delay_s:g} s' if delay_s else 'now'}"

    def _restart(self, child: Child, report: Report | None, now_s: float) -> Operation:
        if self._restarts_s is None:
            self._restarts_s = []
        spec = self.spec
        if not add_restart(self._restarts_s, now_s, spec.intensity, spec.period_s):
            return (yield from self._overrun(child, report))
        if child.spec.backoff is not None:
            return (yield from self._back_off(child, report, now_s))
        return (yield from self._start_counted(child, report, now_s))

    def _start_counted(self, child: Child, report: Report | None, now_s: float) -> Operation:
        """Start a child by the strategy when the restart has been counted."""
        again = yield from self._start_again(child, now_s)
        if again is not None:
            yield Later(0, again)
        elif self.spec.on_restart is not None and child.is_running:
            reason = None if report is None else report.reason
            yield Restarted(child.spec, child.ref, reason, child.restarts)
        return None

    def _back_off(self, child: Child, report: Report | None, now_s: float) -> Operation:
        """Put a restart off; siblings that stop for it are stopped now."""
        backoff = child.spec.backoff
        assert backoff is not None
        delay_s = backoff.next_delay_s(child.waited_s, now_s - child.due_s)
        child.waited_s, child.due_s = delay_s, now_s + delay_s
        again = Again(child, child.last_ref, report=report, is_counted=True)
        yield from self._stop_group(child)
        self._wait(again)
        yield Later(delay_s, again)
        return None

    def _overrun(self, child: Child, report: Report | None) -> Operation:
        """End, or restart the child later where its spec says so (the delayed restart of RabbitMQ's supervisor2)."""
        delay_s = child.spec.delay_s
        if delay_s is None:
            end = Report(SHUTDOWN, MAX_INTENSITY, child.last_ref, child.spec)
            end.restarts = len(self._restarts_s or ()) - 1
            restarts = f"{end.restarts} restart{'s' * (end.restarts != 1)}"
            end.next = f"gives up after {restarts} in {self.spec.period_s:g} s"
            yield end
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
