"""Inline calls: a call to an actor of the same loop that is answered before it returns.

When caller and callee share a loop, "send a request, let the callee handle its waiting mail and then the
request, get the answer" is one of the schedules the run queue could have chosen anyhow. Taking it
at once costs a method call, and the pair stays two actors to supervisors, monitors and tests.

Rules: only downwards in a fixed order; never to an actor on the call stack, which is refused. In the
broker an amqqueue calls its backing actor in this way (``InlineTurn``) and nothing else does;
``call_inline`` is for services and tests. An error in the callee ends the callee, and the caller gets
``CallExit``, which ends it, too.

The callee's waiting mail is handled first. If more than ``INLINE_MAILS`` wait, the request
overtakes the rest. A suspended callee is run: it is the caller's turn that is being spent. An ``InlineTurn`` overtakes
mail that the callee has sent itself, if no other waits: that is long work left for later turns, a step in each, and a
caller with many calls would have all the steps done in its own turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from leveret.actors.runtime.ref import (
    ACTIVE,
    AFAR,
    COROUTINES,
    DEAD,
    DOOMED,
    IDLE,
    SUSPENDED,
    UNACKED,
    Cell,
)
from leveret.actors.runtime.scheduler import Turns, reason_of
from leveret.actors.runtime.signals import NOPROC, NOREPLY, CallExit
from leveret.core.errors import ActorError

if TYPE_CHECKING:
    from leveret.actors.runtime.ref import Ref

INLINE_MAILS: Final = 1_000


class InlineCalls:
    """The inline call of ``handle_call``; ``InlineTurn`` is that of methods."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns

    def call_inline(self, to: Ref, request: Any) -> Any:
        """Return what the callee's ``handle_call(request, None)`` returns.

        Raises:
            CallExit: the callee is dead, has not acknowledged its start, or fails.
            ActorError: the callee is on the call stack, or does not answer at once.
        """
        cell = to.cell
        if cell.state or cell.inbox or cell.kind:
            _make_ready(self._turns, to, cell)
        cell.state |= ACTIVE
        try:
            reply = cell.actor.handle_call(request, None)
        except BaseException as error:  # noqa: BLE001  # any exception ends the callee
            raise _callee_failed(self._turns, to, cell, error) from None
        if cell.state == ACTIVE and not cell.inbox:
            cell.state = IDLE
        else:
            self._turns.leave(cell)
        if reply is NOREPLY:
            raise ActorError(f"{to!r} answered an inline call with NOREPLY")
        return reply


class InlineTurn:
    """Makes a block a turn of an actor, to call an object of that actor: ``with turn: answer = queue.method(...)``.

    The block is the turn; it raises as ``call_inline`` does. The object is kept and used
    again for every call.

    Args:
        turns: of the runtime of both actors.
        to: the callee.
    """

    __slots__ = ("_cell", "_to", "_turns")

    def __init__(self, turns: Turns, to: Ref) -> None:
        self._turns = turns
        self._to = to
        self._cell: Cell = to.cell

    def __enter__(self) -> None:
        cell = self._cell
        if cell.state or cell.inbox or cell.kind:
            _make_ready(self._turns, self._to, cell, _has_only_own_mail(cell, self._to))
        cell.state |= ACTIVE

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        cell = self._cell
        if error is not None:
            raise _callee_failed(self._turns, self._to, cell, error) from None
        if cell.state == ACTIVE and not cell.inbox:
            cell.state = IDLE
        else:
            self._turns.leave(cell)


def _has_only_own_mail(cell: Cell, to: Ref) -> bool:
    return not cell.levels and all(sender is to for _, sender in cell.inbox or ())


def _make_ready(turns: Turns, to: Ref, cell: Cell, may_overtake: bool = False) -> None:
    """Let the callee handle its waiting mail, unless the request may overtake it, or end."""
    if cell.state & ACTIVE:
        raise ActorError(f"{to!r} is on the call stack; inline calls go downwards only")
    if cell.kind & COROUTINES:
        what = "is on another node" if cell.state & AFAR else "has coroutine handlers"
        raise ActorError(f"{to!r} {what} and cannot be called inline")
    if cell.state & DEAD or cell.kind & UNACKED:
        raise CallExit(to, NOPROC)
    suspended = cell.state & SUSPENDED
    cell.state &= ~SUSPENDED
    if cell.state & DOOMED:
        turns.end_doomed(cell)
    waiting = 0 if may_overtake else min(cell.mail_count(), INLINE_MAILS)
    while waiting > 0 and cell.has_mail() and not cell.state & (DEAD | SUSPENDED):
        waiting -= turns.handle_waiting(cell, waiting) - 1  # fewer, if one leaves work for later
    if cell.state & DEAD:
        raise CallExit(to, cell.doom)
    cell.state |= suspended


def _callee_failed(turns: Turns, to: Ref, cell: Cell, error: BaseException) -> BaseException:
    """End the callee; return the exception for the caller."""
    cell.state &= ~ACTIVE
    reason = reason_of(error, cell)
    turns.end(cell, reason)
    return error if isinstance(error, KeyboardInterrupt) else CallExit(to, reason)
