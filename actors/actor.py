"""OtpActor: an actor with OTP's rules and the names of Thespian's ``Actor``.

It does not extend Thespian's class; ``ThespianActor`` (``leveret.actors.thespian.thespian_actor``) does. An exception
in a handler ends the actor; nothing is retried and nothing of its state survives. Its links and monitors carry the
reason.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from thespian.actors import ActorAddress, InvalidActorAddress, WakeupMessage

from leveret.actors.runtime import links
from leveret.actors.runtime.actor_ref import TIMER
from leveret.actors.runtime.ref import MailHandler, Ref
from leveret.actors.runtime.signals import IGNORE, LATER, NORMAL, StopActor
from leveret.actors.runtime.timers import Timer
from leveret.core.errors import ActorError
from leveret.core.mypyc import mypyc_attr
from leveret.core.system.fields import clear_fields

if TYPE_CHECKING:
    from leveret.actors.runtime.runtime import Runtime
    from leveret.actors.runtime.signals import MonitorRef

__all__ = ["IGNORE", "LATER", "TIMER", "OtpActor", "Ref"]

_HANDLERS = ("handle_mail", "handle_call", "handle_cast", "handle_info")


@mypyc_attr(allow_interpreted_subclasses=True)
class OtpActor(MailHandler):
    """Base of all actors of Leveret.

    The runtime makes the instance without arguments, then calls ``init`` with the arguments of the start.
    ``__init__`` is not used: there is no ``ref`` yet when it runs.

    Attributes:
        ref: the actor's address.
        runtime: where it runs.
        trap_exits: exit signals arrive as ``Exit`` mails instead of ending the actor. Set it in
            the class or in ``init``.
        unsorted: for a class with ``prioritise``: mails that need no sorting among themselves.
        async_handlers: handlers may be coroutine functions; each such mail costs a Task, and mail
            waits while it runs. Not for queue paths. When the actor ends, the coroutine is
            cancelled; ``self`` is empty by then.
    """

    __slots__ = ("__dict__", "__weakref__", "ref", "runtime")

    ref: Ref
    runtime: Runtime
    trap_exits: bool = False
    async_handlers: ClassVar[bool] = False
    unsorted: ClassVar[frozenset[type]] = frozenset()

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if cls.async_handlers:
            return
        for name in _HANDLERS:
            if inspect.iscoroutinefunction(vars(cls).get(name)):
                raise ActorError(f"{cls.__name__}.{name} is a coroutine: say async_handlers = True")

    # Defined by subclasses.

    def init(self, *args: Any) -> object:
        """Make the state; raising means that the start failed.

        Returns:
            IGNORE, LATER (``started`` will be called), or a value for the starter.
        """
        if args:
            raise TypeError(f"{type(self).__name__}.init takes no arguments, got {len(args)}")
        return None

    def handle_mail(self, message: Any, sender: Ref | None) -> object:
        """Handle one mail: a message, an ``Exit``, a ``Down``, or a timer's (sender TIMER)."""
        raise TypeError(f"{type(self).__name__} does not know {message!r} from {sender}")

    def terminate(self, reason: object) -> None:
        """Clean up before the end; not called after a kill."""

    def receiveMessage(self, message: Any, sender: Ref | None) -> object:
        """Thespian's name for ``handle_mail``."""
        return self.handle_mail(message, sender)

    # Mail.

    def post(self, to: Ref, message: Any) -> None:
        """Send a mail with this actor as its sender."""
        self.runtime.send(to, message, self.ref)

    def charge_to(self, account: int) -> None:
        """Charge the long work of this actor, and of children that it starts from now on, to an account.

        An account is the number of an actor (``runtime/fair_queue.py``); a new actor has its parent's account.
        """
        self.ref.cell.account = account

    def charge_to_callers(self) -> None:
        """Charge this actor's long work to the account whose work wakes it."""
        self.ref.cell.follows = True

    def start_timer(self, delay_s: float, message: Any) -> Timer:
        """Send ``message`` to oneself later, with TIMER as its sender."""
        return Timer(self.runtime.clock, self.ref.cell, delay_s, (message, TIMER))

    def start_bulk_timer(self, delay_s: float, message: Any) -> Timer:
        """Send ``message`` to oneself later, behind the work of others; the timers of thousands may end together."""
        return Timer(self.runtime.clock, self.ref.cell, delay_s, (message, TIMER), is_bulk=True)

    def reply(self, frm: Any, value: object) -> None:
        """Answer the ``frm`` of a ``Request``, now or later."""
        self.runtime.reply(frm, value)

    # Life.

    @property
    def parent(self) -> Ref | None:
        """The actor that started this one with ``start_link``."""
        return self.ref.cell.parent

    def started(self, value: object = None) -> None:
        """Acknowledge the start, for an ``init`` that returns LATER."""
        self.runtime.acknowledge(self.ref.cell, value)

    def stop(self, reason: object = NORMAL) -> NoReturn:
        """End this actor here and now."""
        raise StopActor(reason)

    def stop_after(self, reason: object = NORMAL) -> None:
        """End this actor when the present handler has returned (and its reply is out)."""
        self.runtime.turns.doom(self.ref.cell, reason)

    def exit(self, ref: Ref, reason: object) -> None:
        self.runtime.exit(ref, reason, self.ref)

    # Links and monitors.

    def link(self, ref: Ref) -> None:
        """Die with the other unless exits are trapped; a dead one counts as dying now."""
        self.runtime.link(self.ref, ref)

    def unlink(self, ref: Ref) -> None:
        links.unlink(self.ref, ref)

    def monitor(self, ref: Ref) -> MonitorRef:
        """Ask for a ``Down`` when the other ends; at once, reason ``noproc``, if it is dead."""
        return self.runtime.monitor(self.ref, ref)

    def demonitor(self, monitor: MonitorRef) -> None:
        """Take a monitor back; its ``Down`` is not handled any more."""
        links.unwatch(monitor)

    # Thespian's own names.

    def __str__(self) -> str:
        return f"{{A:{type(self).__name__} @ {self.ref}}}"

    @property
    def myAddress(self) -> Ref:  # noqa: N802
        return self.ref

    def createActor(
        self,
        actorClass: type,  # noqa: N803
        targetActorRequirements: object = None,  # noqa: N803
        globalName: str | None = None,  # noqa: N803
        sourceHash: object = None,  # noqa: N803
    ) -> Ref:
        """Start a child, linked, or find the actor of that name; the end of a child that fails comes over the link.

        Raises:
            ActorError: requirements or a loaded source are asked for, which a runtime does not have.
        """
        if targetActorRequirements or sourceHash:
            raise ActorError("requirements and loaded sources are not supported")
        return self.runtime.child_of(self.ref, actorClass, globalName or "", lambda _: None)

    def send(self, targetAddr: Any, msg: Any) -> None:  # noqa: N803
        if not isinstance(targetAddr, ActorAddress):
            raise InvalidActorAddress(targetAddr, "not an address that can be sent to")
        self.post(targetAddr, msg)

    def wakeupAfter(self, timePeriod: Any, payload: Any = None) -> None:  # noqa: N803
        self.start_timer(timePeriod.total_seconds(), WakeupMessage(timePeriod, payload))

    def drop_attributes(self) -> None:
        """Forget everything but the address; the runtime calls it at the end."""
        ref, runtime = self.ref, self.runtime
        clear_fields(self)
        self.ref, self.runtime = ref, runtime
