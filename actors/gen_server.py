"""GenServer: calls, casts and infos, told apart as in OTP.

A call is a mail ``Request(frm, payload)`` that is answered by a mail ``Reply``; a monitor makes a
dead server an immediate failure and a timer ends the waiting. The reply travels through the
caller's mailbox, so it comes after everything the server sent before it. A reply to a call that is
over is dropped.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final

from leveret.actors.actor import OtpActor
from leveret.actors.runtime import links
from leveret.actors.runtime.actor_ref import TIMER
from leveret.actors.runtime.calls import Forward, From, Reply, ReplyMonitor, Request
from leveret.actors.runtime.ref import COROUTINES, Ref
from leveret.actors.runtime.signals import NOREPLY, TIMEOUT, CallFailed, Down, Exit
from leveret.actors.runtime.timers import Timer
from leveret.core.mypyc import mypyc_attr

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from leveret.actors.runtime.signals import MonitorRef

__all__ = ["NOREPLY", "CallFailed", "From", "GenServer"]

_NOT_CASTS: Final = frozenset({Request, Reply, Exit, Down})


@mypyc_attr(allow_interpreted_subclasses=True)
class GenServer(OtpActor):
    """An actor whose mail is sorted into calls, casts and infos.

    A class may define ``prioritise(self, message) -> int`` (higher first); it gets the mail as it
    travels: casts and timer messages as they are, ``Request``, ``Reply``, ``Exit``, ``Down``.
    """

    # Calls under way, by their numbers: continuation, monitor of the server, time-out.
    _calls: dict[int, tuple[Callable[[Any], object], MonitorRef, Timer | None]] | None = None
    _call_count = 0

    # Defined by subclasses.

    def handle_call(self, request: Any, frm: From | None) -> Any:
        """Answer a call: return the reply, or NOREPLY when ``reply(frm, value)`` will be called.

        ``frm`` is None in an inline call, which must be answered by returning.
        """
        raise TypeError(f"{type(self).__name__} does not know the request {request!r}")

    def handle_cast(self, message: Any) -> object:
        """Handle a mail that is neither a call, nor Exit, Down or a timer's."""
        raise TypeError(f"{type(self).__name__} does not know the message {message!r}")

    def handle_info(self, message: Any) -> object:
        """Handle Exit, Down and timer messages."""
        raise TypeError(f"{type(self).__name__} does not know the info {message!r}")

    # Calling.

    def call(
        self,
        to: Ref,
        request: Any,
        then: Callable[[Any], object],
        timeout_s: float | None = 5.0,
        via: Ref | None = None,
    ) -> None:
        """Ask another actor; ``then`` gets the reply or a ``CallFailed``, in a turn of this one.

        The request is sent to ``via``, if given, as a ``Forward``. That actor must live as long as ``to``: only the
        end of ``to`` ends the call.
        """
        if self._calls is None:
            self._calls = {}
        self._call_count = tag = self._call_count + 1
        monitor = ReplyMonitor(self.ref, to, tag)
        timer = None
        if timeout_s is not None:
            failed = Reply(tag, CallFailed(TIMEOUT))
            timer = Timer(self.runtime.clock, self.ref.cell, timeout_s, (failed, TIMER))
        self._calls[tag] = (then, monitor, timer)
        links.watch(monitor)
        if to.is_alive:
            mail: object = Request(From(self.ref, tag), request)
            if via is not None:
                to, mail = via, Forward(to, mail)
            self.runtime.send(to, mail, self.ref)

    def handle_mail(self, message: Any, sender: Ref | None) -> object:
        """Sort a mail."""
        kind = type(message)
        if sender is not TIMER and kind not in _NOT_CASTS:
            return self.handle_cast(message)
        if kind is Request:
            return self._handle_request(message)
        if kind is Reply:
            return self._handle_reply(message)
        if kind is Exit and sender is self.parent:
            self.stop(message.reason)
        return self.handle_info(message)

    def _handle_request(self, request: Request) -> object:
        value = self.handle_call(request.payload, request.frm)
        if self.ref.cell.kind & COROUTINES and inspect.iscoroutine(value):
            return self._reply_later(request.frm, value)
        if value is not NOREPLY:
            self.runtime.reply(request.frm, value)
        return None

    async def _reply_later(self, frm: From, answer: Coroutine[Any, Any, object]) -> None:
        value = await answer
        if value is not NOREPLY:
            self.runtime.reply(frm, value)

    def _handle_reply(self, reply: Reply) -> object:
        call = self._calls.pop(reply.tag, None) if self._calls else None
        if call is None:
            return None
        then, monitor, timer = call
        links.unwatch(monitor)
        if timer is not None:
            timer.cancel()
        return then(reply.value)
