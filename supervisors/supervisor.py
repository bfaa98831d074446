"""The supervisor as an actor.

A subclass's ``init`` returns its ``SupervisorSpec`` (or IGNORE), as an OTP callback module does::

    class Connections(Supervisor):
        def init(self, vhost: str) -> SupervisorSpec:
            return SupervisorSpec("one_for_all", 5, 10.0, children=(...))

Where thousands of supervisors are alike, ``init`` returns ``(SPEC, args)`` with one spec made once
and for all (checking one costs more than starting the supervisor); every child of the spec gets
``args`` after its own arguments.

``Supervisor`` itself takes the spec as its argument. The rules are in ``leveret.supervisors.core``,
what waits for what is in ``leveret.supervisors.driver``; here is what a supervisor is asked and
told.
"""

from __future__ import annotations

import logging
from functools import partial, wraps
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Final

from leveret.actors.actor import IGNORE, LATER, Ref
from leveret.actors.runtime.calls import Request
from leveret.actors.runtime.signals import NOREPLY, Down, Exit
from leveret.supervisors.driver import PENDING, Driver
from leveret.supervisors.dynamic import make_kernel
from leveret.supervisors.effects import Again, Operation
from leveret.supervisors.requests import (
    CountChildren,
    DeleteChild,
    GetChildSpec,
    RestartChild,
    StartChild,
    TerminateChild,
    WhichChildren,
)
from leveret.supervisors.spec import SpecError, SupervisorSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from leveret.actors.runtime.calls import From

log = logging.getLogger(__name__)


def _booting(init: Callable[..., Any]) -> Callable[..., Any]:
    """Let an ``init`` that returns a spec start what the spec says, unless called by another."""

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


class Supervisor(Driver):
    """Starts children, starts them again by OTP's rules, and stops them in order.

    Attributes:
        partner: an actor it is linked with whose exit ends it as its parent's would. A subclass that
            has one sets it in ``init``.
    """

    __slots__ = ()

    partner: Ref | None = None

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if "init" in vars(cls):
            cls.init = _booting(cls.init)  # type: ignore[method-assign]

    @_booting
    def init(self, *args: Any) -> Any:
        """Return the spec, or ``(spec, args)``; subclasses make it of their arguments, or IGNORE.

        Raises:
            SpecError: the start fails with its kind and reason.
        """
        return args[0] if len(args) == 1 else args

    def boot(self, spec: Any) -> Any:
        """Start the children, for ``init``."""
        if spec is IGNORE:
            return IGNORE
        args: tuple[Any, ...] = ()
        if isinstance(spec, tuple) and len(spec) == 2:
            spec, args = spec
        if not isinstance(spec, SupervisorSpec):
            self.stop(("bad_return", (type(self).__name__, "init", spec)))
        self.kernel = make_kernel(spec, args)
        failed = self._advance(self.kernel.boot(), None)
        if failed is PENDING:
            self._when_done(self._booted)
            return LATER
        return self._settled(failed)

    # Mail.

    def _handle(self, message: Any, sender: Ref | None) -> None:
        kind = type(message)
        if kind is Request:
            value = self.handle_call(message.payload, message.frm)
            if value is not NOREPLY:
                self.runtime.reply(message.frm, value)
        elif kind is Exit:
            self._handle_exit(message)
        elif kind is Again:
            self._perform(self.kernel.again(message, self.runtime.clock.monotonic_s()))
        elif kind is not Down:
            log.error("supervisor received unexpected message=%r sender=%s", message, sender)

    def _handle_exit(self, message: Exit) -> None:
        if message.sender is self.parent or (
            self.partner is not None and message.sender is self.partner
        ):
            self._stop_children_and_end(message.reason)
        else:
            now_s = self.runtime.clock.monotonic_s()
            self._perform(self.kernel.exited(message.sender, message.reason, now_s))

    def handle_call(self, request: Any, frm: From | None) -> Any:
        """Answer one of ``leveret.supervisors.requests``."""
        if self._suspension is not None:
            return NOREPLY  # an inline call cannot wait; the caller is told so
        ask: Callable[[Any, Any], Any] = _REQUESTS.get(type(request), _unknown)
        answer = ask(self, request)
        if isinstance(answer, GeneratorType):
            answer = self._advance(answer, None)
        if answer is not PENDING:
            return answer
        self._when_done(_nobody if frm is None else partial(self.runtime.reply, frm))
        return NOREPLY

    def _settled(self, reason: Any) -> None:
        """End if the kernel says so."""
        if reason is not None:
            self.stop(reason)

    def _booted(self, reason: Any) -> None:
        self._settled(reason)
        self.started()

    def _stop_children_and_end(self, reason: Any) -> None:
        self._perform(self.kernel.stop_all(), partial(self._end, reason))

    def _end(self, reason: Any, _: Any) -> None:
        self.stop(reason)

    def _perform(self, operation: Operation, done: Callable[[Any], None] | None = None) -> None:
        done = done or self._settled
        value = self._advance(operation, None)
        if value is PENDING:
            self._when_done(done)
        else:
            done(value)

    # The kernel's Addresses.

    def is_address(self, key: Any) -> bool:
        """Tell an address from an id."""
        return isinstance(key, Ref)

    def is_alive(self, ref: Any) -> bool:
        """Tell whether a child's address is that of a living actor."""
        return bool(ref.is_alive)


def _nobody(_: Any) -> None:
    """Take the answer of an inline call that could not wait for it."""


def _unknown(supervisor: Supervisor, request: Any) -> Any:
    log.error("supervisor received unexpected request=%r supervisor=%s", request, supervisor.path)
    return ("error", ("unknown_request", request))


_REQUESTS: Final[dict[type, Callable[[Any, Any], Any]]] = {
    StartChild: lambda actor, request: actor.kernel.start_child(request.child),
    TerminateChild: lambda actor, request: actor.kernel.terminate_child(request.child, actor),
    RestartChild: lambda actor, request: actor.kernel.restart_child(request.child),
    DeleteChild: lambda actor, request: actor.kernel.delete_child(request.child),
    WhichChildren: lambda actor, _: actor.kernel.which_children(),
    CountChildren: lambda actor, _: actor.kernel.count_children(actor),
    GetChildSpec: lambda actor, request: actor.kernel.get_childspec(request.child),
}
