"""The supervisor as an actor.

A subclass's ``init`` returns its ``SupervisorSpec`` (or IGNORE), as an OTP callback module does::

    class Connections(Supervisor):
        def init(self, vhost: str) -> SupervisorSpec:
            return SupervisorSpec("one_for_all", 5, 10.0, children=(...))

Where thousands of supervisors are alike, ``init`` returns ``(SPEC, args)`` with one spec made once
and for all (checking one costs more than starting the supervisor); every child of the spec gets
``args`` after its own arguments. ``Supervisor`` itself takes the spec as its argument.

The rules are in ``leveret.supervisors.core``; here the core's operations run on the actor runtime.
An operation runs to its end within the turn that began it as long as nothing has to be waited for;
so does a whole ``start_child`` when the child's ``init`` answers at once. A start that answers
later, and every stop, suspends the operation. Mail that arrives meanwhile waits in order in the backlog,
apart from the mail that the operation waits for: the ends of children it stops, its time-out.

Stopping: the child stays linked until it is dead, so that a killed supervisor still takes it along;
the monitor is for children that unlinked themselves, and silent about the others. A child that was dead
before has its ``Exit`` in the backlog or in the mailbox before the monitor's ``Down``, hence the real reason
is found.
"""

from __future__ import annotations

from collections import deque
from functools import partial, wraps
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Final

from leveret.actors.actor import IGNORE, LATER, OtpActor, Ref
from leveret.actors.runtime import links
from leveret.actors.runtime.calls import Request
from leveret.actors.runtime.scheduler import crash_of, reason_of
from leveret.actors.runtime.signals import (
    KILL,
    NOREPLY,
    SHUTDOWN,
    TIMEOUT,
    Constant,
    Crash,
    Down,
    Exit,
    MonitorRef,
    Started,
    StartFailed,
)
from leveret.core.log.loggers import logger
from leveret.supervisors.dynamic import make_core
from leveret.supervisors.effects import Again, Failed, Later, Operation, Start, Stop, StopAll
from leveret.supervisors.reports import CHILD_TERMINATED, START_ERROR, emit
from leveret.supervisors.reports import SHUTDOWN as OVERRUN
from leveret.supervisors.requests import (
    CountChildren,
    DeleteChild,
    GetChildSpec,
    RestartChild,
    StartChild,
    TerminateChild,
    WhichChildren,
)
from leveret.supervisors.spec import Report, Restarted, SpecError, SupervisorSpec
from leveret.supervisors.suspension import Suspension

if TYPE_CHECKING:
    from collections.abc import Callable

    from leveret.actors.runtime.calls import From
    from leveret.actors.runtime.inbox import Mail
    from leveret.actors.runtime.signals import StartResult
    from leveret.supervisors.dynamic import DynamicCore
    from leveret.supervisors.groups import GroupCore
    from leveret.supervisors.spec import ChildSpec

log = logger(__name__)

BACKLOG_MAILS: Final = 200  # handled per turn
STOPS: Final = 200  # children told to stop per turn
TICK_S: Final = 1e-6  # less than this before its time is in time

PENDING: Final = Constant("PENDING")  # an operation has to wait
OVERDUE: Final = Constant("OVERDUE")  # mail of the timer of a stop
LATE: Final = Constant("LATE")  # mail of the timer of a start
CONTINUE: Final = Constant("CONTINUE")  # mail to oneself: the rest of a long piece of work


class StopMonitor(MonitorRef):
    """Monitors a child that is being stopped; says nothing if its exit signal has just said it."""

    __slots__ = ()

    def tell(self, reason: object) -> None:
        """Report the end of a child that was not linked any more."""
        inbox = self.watcher.cell.inbox if self.watcher is not None else None
        last = inbox[-1][0] if inbox else None
        if last.__class__ is not Exit or last.sender is not self.target:
            super().tell(reason)


def _booting(init: Callable[..., Any]) -> Callable[..., Any]:
    """Let ``init`` start the children of the spec it returns, unless another ``init`` has called it."""

    @wraps(init)
    def init_and_boot(self: Supervisor, *args: Any) -> Any:
        if self.is_specifying:
            return init(self, *args)
        self.is_specifying = True
        try:
            spec = init(self, *args)
        except SpecError as error:
            self.stop((error.kind, error.reason))
        self.is_specifying = False
        return self.boot(spec)

    return init_and_boot


class Supervisor(OtpActor):
    """Starts children, starts them again by OTP's rules, and stops them in order.

    Attributes:
        supervisor_core: the decisions and the list of children; read to print the tree.
        is_specifying: ``init`` is running and returns a spec.
        partner: an actor it is linked with whose exit ends it as its parent's would. A subclass that
            has one sets it in ``init``.
    """

    __slots__ = (
        "_answer",
        "_backlog",
        "_failure",
        "_overrun",
        "_suspension",
        "is_specifying",
        "supervisor_core",
    )

    supervisor_core: GroupCore | DynamicCore
    trap_exits = True
    partner: Ref | None = None

    def __init__(self) -> None:
        self.is_specifying = False
        self._failure: Report | None = None  # the latest report of a failed child
        self._overrun: tuple[Ref, Report] | None = None  # the latest child that gave up
        self._answer: Any = None
        self._backlog: deque[Mail] | None = None
        self._suspension: Suspension | None = None

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if "init" in vars(cls):
            cls.init = _booting(cls.init)  # type: ignore[method-assign]

    @_booting
    def init(self, *args: Any) -> Any:
        """Return the spec, or ``(spec, args)``; subclasses make it of their arguments, or IGNORE.

        After a ``SpecError`` the start fails with its kind and reason.
        """
        return args[0] if len(args) == 1 else args

    def boot(self, spec: Any) -> Any:
        if spec is IGNORE:
            return IGNORE
        args: tuple[Any, ...] = ()
        if isinstance(spec, tuple) and len(spec) == 2:
            spec, args = spec
        if not isinstance(spec, SupervisorSpec):
            self.stop(("bad_return", (type(self).__name__, "init", spec)))
        self.supervisor_core = make_core(spec, args)
        failed = self._advance(self.supervisor_core.boot(), None)
        if failed is PENDING:
            self._when_done(self._booted)
            return LATER
        return self._settled(failed)

    @property
    def is_busy(self) -> bool:
        """Whether an operation waits for a child to start or stop."""
        return self._suspension is not None

    @property
    def path(self) -> str:
        """Where the supervisor is in the tree: ``root > metadata``."""
        names: list[str] = []
        actor: OtpActor | None = self
        while actor is not None:
            names.append(label_of(actor))
            parent = actor.parent
            actor = parent.cell.actor if parent is not None and parent.is_alive else None
        return " > ".join(reversed(names))

    # Mail.

    def handle_mail(self, message: Any, sender: Ref | None) -> None:
        """Handle a mail now, or keep it until the operation under way is over."""
        self._guarded(self._take, message, sender)

    def _guarded(self, function: Callable[..., None], *args: Any) -> None:
        """Call a function; an error in it ends this actor, after its children."""
        try:
            function(*args)
        except Exception as error:  # noqa: BLE001  # the children end first, then this actor with the error
            suspension, self._suspension = self._suspension, None
            if suspension is not None:
                suspension.cancel_timers()
            self._stop_children_and_end(reason_of(error, self.ref.cell))

    def _take(self, message: Any, sender: Ref | None) -> None:
        suspension = self._suspension
        if suspension is not None and self._concerns(suspension, message):
            return
        if message is CONTINUE:
            self._catch_up()
        elif suspension is not None or self._backlog:
            if self._backlog is None:
                self._backlog = deque()
            self._backlog.append((message, sender))
        else:
            self._handle(message, sender)

    def _handle(self, message: Any, sender: Ref | None) -> None:
        kind = type(message)
        if kind is Request:
            value = self.handle_call(message.payload, message.frm)
            if value is not NOREPLY:
                self.runtime.reply(message.frm, value)
        elif kind is Exit:
            self._handle_exit(message)
        elif kind is Again:
            self._perform(self.supervisor_core.again(message, self.runtime.clock.monotonic_s()))
        elif kind is not Down:
            log.error("supervisor received unexpected message=%r sender=%s", message, sender)

    def _handle_exit(self, message: Exit) -> None:
        if message.sender is self.parent or (
            self.partner is not None and message.sender is self.partner
        ):
            self._stop_children_and_end(message.reason)
        else:
            now_s = self.runtime.clock.monotonic_s()
            self._perform(self.supervisor_core.exited(message.sender, message.reason, now_s))

    def handle_call(self, request: Any, frm: From | None) -> Any:
        if self._suspension is not None:
            return NOREPLY  # an inline call cannot wait; the caller is told so
        ask: Callable[[Any, Any], Any] = _REQUESTS.get(type(request), _unknown)
        answer = ask(self, request)
        if isinstance(answer, GeneratorType):
            answer = self._advance(answer, None)
        if answer is not PENDING:
            return answer
        self._when_done(partial(self.runtime.reply, frm) if frm is not None else lambda _: None)
        return NOREPLY

    def _settled(self, reason: Any) -> None:
        """End if the core says so."""
        if reason is not None:
            self.stop(reason)

    def _booted(self, reason: Any) -> None:
        self._settled(reason)
        self.started()

    def _stop_children_and_end(self, reason: Any) -> None:
        self._perform(self.supervisor_core.stop_all(), lambda _: self.stop(reason))

    def _perform(self, operation: Operation, done: Callable[[Any], None] | None = None) -> None:
        done = done or self._settled
        value = self._advance(operation, None)
        if value is PENDING:
            self._when_done(done)
        else:
            done(value)

    # Operations.

    def _advance(self, operation: Operation, answer: Any) -> Any:
        """Run an operation to its end and return its value, or PENDING when it has to wait."""
        while True:
            try:
                effect = operation.send(answer)
            except StopIteration as end:
                return end.value
            if isinstance(effect, Start):
                answer = self._start(effect)
            elif isinstance(effect, Stop | StopAll):
                answer = self._stop(effect)
            else:
                answer = None
                self._note(effect)
            if answer is PENDING:
                self._waiting().operation = operation
                return PENDING

    def _waiting(self) -> Suspension:
        assert self._suspension is not None
        return self._suspension

    def _when_done(self, done: Callable[[Any], None]) -> None:
        self._waiting().done = done

    def _resume(self, suspension: Suspension, answer: Any) -> None:
        operation, done = suspension.operation, suspension.done
        assert operation is not None
        assert done is not None
        value = self._advance(operation, answer)
        if value is PENDING:
            return
        suspension.cancel_timers()
        self._suspension = None
        done(value)
        self._catch_up()

    def _catch_up(self) -> None:
        """Handle the mail that arrived while an operation was suspended."""
        backlog, left = self._backlog, BACKLOG_MAILS
        while backlog and self._suspension is None:
            if not left:
                self.post(self.ref, CONTINUE)
                return
            left -= 1
            self._handle(*backlog.popleft())
        if not backlog:
            self._backlog = None

    # Effects.

    def _start(self, effect: Start) -> Any:
        spec = effect.spec
        label = _label_to_keep(spec, effect.args)
        self._answer = PENDING
        try:
            actor_class, args = spec.actor_class, effect.args
            if spec.isolation != "none":
                from leveret.actors.processes.host import (  # noqa: PLC0415  # loads msgpack
                    ProcessHost,
                )

                actor_class, args = ProcessHost, (actor_class, args)
            child = self.runtime.start_link(self.ref, actor_class, args, self._child_started, label)
        except Exception as error:  # noqa: BLE001  # as OTP: any exception fails the start
            return Failed(crash_of(error, label or str(spec.id)))
        answer, self._answer = self._answer, None
        if answer is PENDING:
            self._suspension = self._suspension or Suspension()
            self._suspension.is_starting = True
            if spec.start_timeout_s is not None:
                self._suspension.starting = child
                self._suspension.start_timer = self.start_timer(spec.start_timeout_s, LATE)
        return answer

    def _child_started(self, result: StartResult) -> None:
        answer: Any = None
        if type(result) is Started:
            answer = result.ref
        elif type(result) is StartFailed:
            answer = Failed(result.reason)
        suspension = self._suspension
        if suspension is None or not suspension.is_starting:
            self._answer = answer
            return
        if suspension.end_start():
            answer = Failed(TIMEOUT)
        self._guarded(self._resume, suspension, answer)

    def _note(self, effect: Report | Restarted | Later) -> None:
        if isinstance(effect, Restarted):
            effect.supervisor = self.path
            assert self.supervisor_core.spec.on_restart is not None
            self.supervisor_core.spec.on_restart(effect)
        elif isinstance(effect, Report):
            effect.supervisor = self.path
            self._find_cause(effect)
            self.log_report(effect)
            if self.supervisor_core.spec.on_report is not None:
                self.supervisor_core.spec.on_report(effect)
        elif effect.delay_s:
            self.start_timer(effect.delay_s, effect.again)
        else:
            self.post(self.ref, effect.again)

    def _find_cause(self, report: Report) -> None:
        """Fill in the cause of a report, and note reports that may be the cause of a later one."""
        if report.context in (CHILD_TERMINATED, START_ERROR):
            if self._overrun is not None and self._overrun[0] is report.ref:
                report.cause = self._overrun[1]
            self._failure = report
        elif report.context == OVERRUN:
            report.cause = self._failure
            parent = self.parent
            above = parent.cell.actor if parent is not None and parent.is_alive else None
            if isinstance(above, Supervisor):
                above._overrun = (self.ref, report)  # noqa: SLF001  # of the same class

    def log_report(self, report: Report) -> None:
        """Write a report to the log; a subclass may know better where something is logged."""
        emit(report, is_crash=isinstance(report.reason, Crash))

    # Stopping.

    def _stop(self, effect: Stop | StopAll) -> Any:
        refs = [effect.ref] if isinstance(effect, Stop) else effect.refs
        how = effect.spec.shutdown
        signal = KILL if how == "brutal_kill" else SHUTDOWN
        suspension = self._suspension or Suspension()
        suspension.wait_for(refs, signal, isinstance(effect, Stop))
        if self._backlog:
            suspension.take_earlier(self._backlog)
            if not suspension.stopping:
                return suspension.take_answer()
        self._suspension = suspension
        if isinstance(how, int | float):
            self._kill_after(suspension, how)
        self._tell_to_stop(suspension)
        return PENDING

    def _kill_after(self, suspension: Suspension, delay_s: float) -> None:
        due_s = suspension.due_s = self.runtime.clock.monotonic_s() + delay_s
        if suspension.stop_timer is None or suspension.stop_timer_due_s > due_s:
            suspension.cancel_stop_timer()
            suspension.stop_timer = self.start_timer(delay_s, OVERDUE)
            suspension.stop_timer_due_s = due_s

    def _time_is_over(self, suspension: Suspension) -> None:
        """Kill the children that have not stopped, if this was their time-out."""
        suspension.stop_timer = None
        if suspension.due_s is None:
            return
        left_s = suspension.due_s - self.runtime.clock.monotonic_s()
        if left_s > TICK_S:
            self._kill_after(suspension, left_s)
            return
        suspension.kill_the_rest()
        self._tell_to_stop(suspension)

    def _tell_to_stop(self, suspension: Suspension) -> None:
        """Send the signal to some; the others get it in the next turns."""
        refs = suspension.next_to_signal(STOPS)
        for ref in refs:
            links.watch(StopMonitor(self.ref, ref))
            self.exit(ref, suspension.signal)
        if not suspension.is_single and refs:
            self.runtime.again(self.ref, CONTINUE)

    def _concerns(self, suspension: Suspension, message: Any) -> bool:
        """Handle mail that a suspended operation waits for; return whether it was such mail."""
        if message is CONTINUE:
            self._tell_to_stop(suspension)
        elif message is LATE:
            self.exit(suspension.late_child(), KILL)
        elif message is OVERDUE:
            self._time_is_over(suspension)
        elif suspension.takes(message):
            if not suspension.stopping:
                self._resume(suspension, suspension.take_answer())
        elif type(message) is not Down:
            return False
        return True

    # The core's Addresses.

    def is_address(self, key: Any) -> bool:
        return isinstance(key, Ref)

    def is_alive(self, ref: Any) -> bool:
        return bool(ref.is_alive)


def _unknown(supervisor: Supervisor, request: Any) -> Any:
    log.error("supervisor received unexpected request=%r supervisor=%s", request, supervisor.path)
    return ("error", ("unknown_request", request))


_REQUESTS: Final[dict[type, Callable[[Any, Any], Any]]] = {
    StartChild: lambda actor, request: actor.supervisor_core.start_child(request.child),
    TerminateChild: lambda actor, request: actor.supervisor_core.terminate_child(
        request.child, actor
    ),
    RestartChild: lambda actor, request: actor.supervisor_core.restart_child(request.child),
    DeleteChild: lambda actor, request: actor.supervisor_core.delete_child(request.child),
    WhichChildren: lambda actor, _: actor.supervisor_core.which_children(),
    CountChildren: lambda actor, _: actor.supervisor_core.count_children(actor),
    GetChildSpec: lambda actor, request: actor.supervisor_core.get_childspec(request.child),
}


def label_of(actor: OtpActor) -> str:
    """Return an actor's name among its siblings: its label, its child id or its class."""
    cell = actor.ref.cell
    parent = cell.parent.cell.actor if cell.parent is not None else None
    label = None
    if isinstance(parent, Supervisor) and not cell.label and hasattr(parent, "supervisor_core"):
        label = parent.supervisor_core.label_of(actor.ref)
    return label or cell.describe()


def _label_to_keep(spec: ChildSpec, args: tuple[Any, ...]) -> str:
    """Return the label that the child has to carry itself.

    A label made of the arguments can be made again at any time, except for temporary children, whose
    arguments are not kept.
    """
    if callable(spec.label) and spec.kind != "temporary":
        return ""
    return spec.label_of(args)
