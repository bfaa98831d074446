"""Runs the kernel's operations on the actor runtime.

An operation runs to its end within the turn that began it as long as nothing has to be waited for;
so does a whole ``start_child`` when the child's ``init`` answers at once. A start that answers
later, and every stop, suspends the operation. What arrives meanwhile waits in order in the backlog,
apart from what the operation waits for: the end of children it stops, its time-out.

Stopping: the child stays linked until it is dead, so that a killed supervisor still takes it along;
the monitor is for children that unlinked themselves. A child that was dead before has its ``Exit``
in the backlog or in the mailbox before the monitor's ``Down``, hence the real reason is found.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from leveret.actors.actor import OtpActor, Ref
from leveret.actors.signals import KILL, SHUTDOWN, Constant, Crash, Down, Started, StartFailed
from leveret.supervisors.effects import Failed, Later, Operation, Start, Stop, StopAll
from leveret.supervisors.reports import Report, emit
from leveret.supervisors.suspension import Suspension

if TYPE_CHECKING:
    from collections.abc import Callable

    from leveret.actors.cell import Mail
    from leveret.actors.signals import StartResult
    from leveret.supervisors.dynamic import DynamicKernel
    from leveret.supervisors.groups import GroupKernel
    from leveret.supervisors.spec import ChildSpec

BACKLOG_MAILS: Final = 200  # handled per turn
STOPS: Final = 500  # children told to stop per turn

PENDING: Final = Constant("PENDING")  # an operation has to wait
OVERDUE: Final = Constant("OVERDUE")  # mail of the timer of a stop
GO_ON: Final = Constant("GO_ON")  # mail to oneself: the rest of a long piece of work


class Driver(OtpActor, ABC):
    """What a supervisor does with the kernel's operations.

    Attributes:
        kernel: the decisions and the list of children; read by whoever prints the tree.
    """

    __slots__ = ("_answer", "_backlog", "_suspension", "is_specifying", "kernel")

    kernel: GroupKernel | DynamicKernel
    trap_exits = True

    def __init__(self) -> None:
        self.is_specifying = False
        self._answer: Any = None
        self._backlog: deque[Mail] | None = None
        self._suspension: Suspension | None = None

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
        suspension = self._suspension
        if suspension is not None and self._concerns(suspension, message):
            return
        if message is GO_ON:
            self._catch_up()
        elif suspension is not None or self._backlog:
            if self._backlog is None:
                self._backlog = deque()
            self._backlog.append((message, sender))
        else:
            self._handle(message, sender)

    @abstractmethod
    def _handle(self, message: Any, sender: Ref | None) -> None:
        """Handle a mail while no operation is under way."""

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
        self._suspension = None
        done(value)
        self._catch_up()

    def _catch_up(self) -> None:
        """Handle what arrived while an operation was suspended."""
        backlog, left = self._backlog, BACKLOG_MAILS
        while backlog and self._suspension is None:
            if not left:
                self.post(self.ref, GO_ON)
                return
            left -= 1
            self._handle(*backlog.popleft())
        if not backlog:
            self._backlog = None

    # Effects.

    def _start(self, effect: Start) -> Any:
        spec = effect.spec
        label = "" if spec.label is None else _label_to_keep(spec, effect.args)
        self._answer = PENDING
        try:
            self.runtime.start_link(
                self.ref, spec.actor_class, effect.args, self._child_started, label
            )
        except Exception as error:  # noqa: BLE001  # as OTP: whatever it is, the start failed
            return Failed(Crash(error))
        answer, self._answer = self._answer, None
        if answer is PENDING:
            self._suspension = self._suspension or Suspension()
            self._suspension.is_starting = True
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
        suspension.is_starting = False
        self._resume(suspension, answer)

    def _note(self, effect: Report | Later) -> None:
        if isinstance(effect, Report):
            effect.supervisor = self.path
            emit(effect)
            if self.kernel.spec.on_report is not None:
                self.kernel.spec.on_report(effect)
        elif effect.delay_s:
            self.start_timer(effect.delay_s, effect.again)
        else:
            self.post(self.ref, effect.again)

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
            suspension.timer = self.start_timer(how, OVERDUE)
        self._tell_to_stop(suspension)
        return PENDING

    def _tell_to_stop(self, suspension: Suspension) -> None:
        """Send the signal to some; the others get it in the next turns."""
        refs = suspension.next_to_tell(STOPS)
        for ref in refs:
            self.monitor(ref)
            self.exit(ref, suspension.signal)
        if not suspension.is_single and refs:
            self.post(self.ref, GO_ON)

    def _concerns(self, suspension: Suspension, message: Any) -> bool:
        """Handle what a suspended operation waits for."""
        if message is GO_ON:
            self._tell_to_stop(suspension)
        elif message is OVERDUE:
            suspension.timer = None
            suspension.kill_the_rest()
            self._tell_to_stop(suspension)
        elif suspension.takes(message):
            if not suspension.stopping:
                self._resume(suspension, suspension.take_answer())
        elif type(message) is not Down:
            return False
        return True


def label_of(actor: OtpActor) -> str:
    """Return an actor's name among its siblings: its label, its child id or its class."""
    cell = actor.ref.cell
    parent = cell.parent.cell.actor if cell.parent is not None else None
    kernel = getattr(parent, "kernel", None)
    label = kernel.label_of(actor.ref) if kernel is not None and not cell.label else None
    return label or cell.describe()


def _label_to_keep(spec: ChildSpec, args: tuple[Any, ...]) -> str:
    """Return the label that the child has to carry itself.

    One that is made of the arguments can be made again when somebody asks, except for temporary
    children, whose arguments are not kept.
    """
    if isinstance(spec.label, str):
        return spec.label
    return spec.label_of(args) if spec.kind == "temporary" else ""
