"""Specs: children and the supervisor's own flags, in OTP's words; the reports that a spec's functions are called with.

Specs are immutable and are checked when they are made, so a mistake fails at its own line, and one object can serve
fifty thousand supervisors. A ``SpecError`` lists the allowed values; its ``reason`` is OTP's reason for the same
mistake. A supervisor whose ``init`` raises a ``SpecError`` fails to start with ``start_spec`` (a child) or
``supervisor_data`` (a flag), before any child is started.

Restart kinds: *permanent* (started again after every end), *transient* (unless it ended
normally or was shut down), *temporary* (never), and RabbitMQ's *intrinsic* (as transient, but its
normal end takes the supervisor along). ``("transient", 2.0)`` is RabbitMQ's delayed form: where the
restart intensity would be exceeded, the supervisor stays and tries again two seconds later.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, TypeAlias

from leveret.core.errors import LeveretError

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Hashable

    from leveret.supervisors.backoff import Backoff

RestartKind: TypeAlias = Literal["permanent", "transient", "temporary", "intrinsic"]
Restart: TypeAlias = RestartKind | tuple[RestartKind, float]
Shutdown: TypeAlias = float | Literal["infinity", "brutal_kill"]
ChildType: TypeAlias = Literal["worker", "supervisor"]
Strategy: TypeAlias = Literal["one_for_one", "one_for_all", "rest_for_one", "simple_one_for_one"]
AutoShutdown: TypeAlias = Literal["never", "any_significant", "all_significant"]
Dialect: TypeAlias = Literal["otp", "rabbitmq"]
Isolation: TypeAlias = Literal["none", "process"]

RESTARTS: Final = ("permanent", "transient", "temporary", "intrinsic")
STRATEGIES: Final = ("one_for_one", "one_for_all", "rest_for_one", "simple_one_for_one")
AUTO_SHUTDOWNS: Final = ("never", "any_significant", "all_significant")
DIALECTS: Final = ("otp", "rabbitmq")
WORKER_SHUTDOWN_S: Final = 5.0


class SpecError(LeveretError):
    """A spec that OTP would refuse.

    Args:
        kind: the error of the start: ``start_spec``, ``bad_start_spec`` or ``supervisor_data``.
        reason: OTP's reason.
        text: what is wrong, and what is allowed.
    """

    def __init__(self, kind: str, reason: Any, text: str = "") -> None:
        super().__init__(text or f"{kind}: {reason!r}")
        self.kind = kind
        self.reason = reason


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """How one child is started, stopped and started again.

    Attributes:
        id: Names the child among its siblings.
        actor_class: The class to start; on the actor runtime a subclass of ``OtpActor``.
        args: Arguments of its ``init``; ``simple_one_for_one`` appends the arguments of the request.
        restart: A restart kind, or ``(kind, delay_s)``; not for temporary children.
        shutdown: Seconds from the exit signal to the kill, ``infinity`` or ``brutal_kill``.
            Default: 5 seconds for a worker, ``infinity`` for a supervisor.
        type: ``worker`` or ``supervisor``.
        significant: Whether its end may end the supervisor (``auto_shutdown``).
        label: Name in the printed tree, or a function of the child's arguments; default: the id.
        isolation: ``process`` gives it an OS process of its own (``leveret.actors.processes.host``);
            ``actor_class`` may then be ``"package.module:Class"``.
        start_timeout_s: Seconds its start may take; then the child is killed and the start has failed
            of ``timeout``. Default: no limit.
        backoff: How long a restart waits; default: not at all. Not for dynamic children.
    """

    id: Hashable
    actor_class: Any
    args: tuple[Any, ...] = ()
    restart: Restart = "permanent"
    shutdown: Shutdown | None = None
    type: ChildType = "worker"
    significant: bool = False
    label: str | Callable[..., str] | None = field(default=None, compare=False)
    isolation: Isolation = "none"
    start_timeout_s: float | None = None
    backoff: Backoff | None = None
    kind: RestartKind = field(init=False, repr=False, compare=False)
    delay_s: float | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.id is None:
            raise SpecError(
                "start_spec", "missing_id", "a child needs an id: its name among its siblings"
            )
        try:
            hash(self.id)
        except TypeError:
            self._refuse("invalid_id", self.id, "id", "a text, or another value that can be hashed")
        if self.actor_class is None:
            text = f"child {self.id!r} needs an actor_class"
            raise SpecError("start_spec", "missing_start", text)
        args: object = self.args
        if not isinstance(args, tuple | list):
            self._refuse("invalid_args", args, "args", "a tuple, of one argument (argument,)")
        kind, delay_s = self._restart()
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "delay_s", delay_s)
        object.__setattr__(self, "args", tuple(self.args))
        significant: object = self.significant
        if not isinstance(significant, bool):
            self._refuse("invalid_significant", significant, "significant", "True or False")
        if self.significant and kind not in ("transient", "temporary"):
            raise SpecError(
                "start_spec",
                ("bad_combination", (("restart", kind), ("significant", True))),
                f"child {self.id!r} is significant: its restart must be 'transient' or 'temporary', not {kind!r}",
            )
        if self.type not in ("worker", "supervisor"):
            self._refuse("invalid_child_type", self.type, "type", "'worker' or 'supervisor'")
        object.__setattr__(self, "shutdown", self._shutdown())
        if self.isolation not in ("none", "process"):
            self._refuse("invalid_isolation", self.isolation, "isolation", "'none' or 'process'")
        limit_s = self.start_timeout_s
        if limit_s is not None and not (_is_seconds(limit_s) and limit_s > 0):
            allowed = "seconds, more than 0, or None for no limit"
            self._refuse("invalid_start_timeout", limit_s, "start_timeout_s", allowed)

    def _refuse(self, reason: str, found: object, name: str, allowed: str) -> NoReturn:
        text = f"child {self.id!r}: {name} is {found!r}, must be {allowed}"
        raise SpecError("start_spec", (reason, found), text)

    def _restart(self) -> tuple[RestartKind, float | None]:
        restart: Any = self.restart
        is_delayed = isinstance(restart, tuple) and len(restart) == 2
        kind, delay_s = restart if is_delayed else (restart, None)
        if kind not in RESTARTS or (kind == "temporary" and delay_s is not None):
            allowed = (
                f"{one_of(RESTARTS, kind)}, or with a delay (kind, seconds), but not temporary"
            )
            self._refuse("invalid_restart_type", restart, "restart", allowed)
        if delay_s is not None and not (_is_seconds(delay_s) and delay_s >= 0):
            self._refuse("invalid_delay", delay_s, "the delay of restart", "seconds, 0 or more")
        return kind, delay_s

    def _shutdown(self) -> Shutdown:
        shutdown: Any = self.shutdown
        if shutdown is None:
            return WORKER_SHUTDOWN_S if self.type == "worker" else "infinity"
        is_seconds = _is_seconds(shutdown) and shutdown >= 0
        if not (is_seconds or shutdown in ("infinity", "brutal_kill")):
            allowed = "seconds, 0 or more, 'infinity' or 'brutal_kill'"
            self._refuse("invalid_shutdown", shutdown, "shutdown", allowed)
        return shutdown  # type: ignore[no-any-return]

    def label_of(self, args: tuple[Any, ...] | None) -> str:
        """Name a child of this spec that was started with ``args`` (None: no longer known)."""
        label = self.label
        if label is None:
            return str(self.id)
        if isinstance(label, str):
            return label
        if args is None:
            return str(self.id)
        try:
            return label(*args)
        except Exception as error:  # noqa: BLE001  # a name that says so harms less than none
            return f"{self.id} (no label: {error!r})"


@dataclass(slots=True)
class Report:
    """One report; ``count`` is there when it stands for that many dynamic children.

    ``supervisor`` is filled in by the driver: the supervisor's place in the tree. ``next`` says what follows the
    end of a child: which restart of how many, and when. If a supervisor gives up, ``restarts`` is the number of
    restarts, and ``cause``, which the driver fills in, is the report of the child's last failure. If that child is a
    supervisor which gave up, the cause of the child's report is the child's own report of giving up.
    """

    context: str
    reason: Any
    ref: Any
    spec: ChildSpec
    count: int | None = None
    supervisor: str = ""
    next: str = ""
    restarts: int = 0
    cause: Report | None = None

    def offender(self) -> dict[str, Any]:
        """Return the child that the report is about, with the spec it was started from."""
        spec = self.spec
        subject = {"pid": self.ref} if self.count is None else {"nb_children": self.count}
        return {
            **subject,
            "id": spec.id,
            "start": spec.actor_class,
            "restart": spec.restart,
            "significant": spec.significant,
            "shutdown": spec.shutdown,
            "type": spec.type,
        }


@dataclass(slots=True)
class Restarted:
    """A child has been started again.

    Attributes:
        spec: the child's.
        ref: its new address.
        reason: of its predecessor's end; None if not known, for a start that was tried again.
        restarts: how often it has been started again in all.
        supervisor: the supervisor's place in the tree, filled in by the driver.
    """

    spec: ChildSpec
    ref: Any
    reason: Any
    restarts: int
    supervisor: str = ""


@dataclass(frozen=True, slots=True)
class SupervisorSpec:
    """A supervisor's strategy, restart intensity and children.

    Attributes:
        strategy: Which children are restarted when one ends.
        intensity: Restarts allowed within ``period_s``; one more ends the supervisor.
        period_s: Length of that window.
        children: Specs in start order; exactly one, the template, for ``simple_one_for_one``.
        auto_shutdown: Whether the end of any or of all significant children ends the supervisor.
        dialect: Whose rule holds where OTP and RabbitMQ's supervisor differ for the same spec:
            ``rabbitmq`` restarts transient children that ended of ``("shutdown", "restart")`` and
            reports children that answer the stop with another ``("shutdown", ...)``.
        on_report: Called with every report, after it was logged.
        on_restart: Called when a child has been started again; on ``one_for_all`` and ``rest_for_one``
            once for the group.
        children_max: How many children there may be; a ``StartChild`` beyond it is answered with
            the error ``max_children``.
    """

    strategy: Strategy = "one_for_one"
    intensity: int = 1
    period_s: float = 5.0
    children: tuple[ChildSpec, ...] = ()
    auto_shutdown: AutoShutdown = "never"
    dialect: Dialect = "otp"
    on_report: Callable[[Report], None] | None = field(default=None, compare=False)
    on_restart: Callable[[Restarted], None] | None = field(default=None, compare=False)
    children_max: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "children", tuple(self.children))
        period_s, children_max = self.period_s, self.children_max
        self._check("strategy", STRATEGIES)
        if not _is_count(self.intensity):
            self._refuse("intensity", "a number of restarts, 0 or more")
        if not (_is_seconds(period_s) and period_s > 0):
            self._refuse("period_s", "seconds, more than 0", "invalid_period")
        self._check("auto_shutdown", AUTO_SHUTDOWNS)
        self._check("dialect", DIALECTS)
        if not (children_max is None or _is_count(children_max)):
            self._refuse("children_max", "a number of children, 0 or more, or None for no limit")
        for hook in ("on_report", "on_restart"):
            if getattr(self, hook) is not None and not callable(getattr(self, hook)):
                self._refuse(hook, "a function of one argument")
        self._check_children()

    def _check(self, flag: str, allowed: tuple[str, ...]) -> None:
        found = getattr(self, flag)
        if found not in allowed:
            self._refuse(flag, one_of(allowed, found))

    def _refuse(self, flag: str, allowed: str, reason: str = "") -> NoReturn:
        found = getattr(self, flag)
        text = f"{flag} is {found!r}, must be {allowed}"
        raise SpecError("supervisor_data", (reason or f"invalid_{flag}", found), text)

    def _check_children(self) -> None:
        if self.strategy == "simple_one_for_one" and len(self.children) != 1:
            raise SpecError(
                "bad_start_spec",
                self.children,
                f"simple_one_for_one needs one child, the template of all, not {len(self.children)}",
            )
        ids: set[Hashable] = set()
        for child in self.children:
            problem = self.problem_with(child, ids)
            if problem is not None:
                raise problem
            ids.add(child.id)

    def problem_with(self, child: object, ids: Container[Hashable] = ()) -> SpecError | None:
        """Return why ``child`` cannot be a child here beside the children with the ``ids``; None: it can."""
        if not isinstance(child, ChildSpec):
            text = f"a child is a ChildSpec, not {child!r}"
            return SpecError("start_spec", ("invalid_child_spec", child), text)
        name, reason = child.id, tuple[Any, ...]()
        if child.significant and self.auto_shutdown == "never":
            text = "is significant: auto_shutdown of its supervisor must be 'any_significant' or 'all_significant'"
            reason = (("auto_shutdown", "never"), ("significant", True))
        elif child.backoff is not None and self.strategy == "simple_one_for_one":
            text = "has a backoff, which children of simple_one_for_one (a pool) cannot have"
            reason = (("strategy", self.strategy), ("backoff", child.backoff))
        elif name in ids:
            text = f"two children have the id {name!r}; give one of them another"
            return SpecError("start_spec", ("duplicate_child_name", name), text)
        else:
            return None
        return SpecError("start_spec", ("bad_combination", reason), f"child {name!r} {text}")


def one_of(allowed: tuple[str, ...], found: object) -> str:
    """Return a text with the allowed values, and the most similar one if ``found`` resembles it."""
    from difflib import get_close_matches  # noqa: PLC0415  # only where something is wrong

    near = get_close_matches(str(found), allowed, 1)
    return f"one of {', '.join(allowed)}" + (f" (did you mean {near[0]}?)" if near else "")


def _is_seconds(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
