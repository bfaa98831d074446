"""Timers of actors: a mail to oneself, later."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.actors.runtime.ref import DEAD, QUEUED, Cell
from leveret.core import small_set

if TYPE_CHECKING:
    from leveret.actors.runtime.inbox import Mail
    from leveret.core.clock import Clock, TimerHandle


class Timer:
    """One mail to come. It dies with its actor.

    With ``is_bulk`` it waits in the bulk queue when it is due. Its actor does not: other mail goes before.
    """

    __slots__ = ("_cell", "_handle", "_is_bulk", "_mail")

    def __init__(
        self, clock: Clock, cell: Cell, delay_s: float, mail: Mail, is_bulk: bool = False
    ) -> None:
        self._is_bulk = is_bulk
        self._cell: Cell | None = cell
        self._mail: Mail | None = mail
        self._handle: TimerHandle | None = clock.call_later(delay_s, self._fire)
        cell.timers = small_set.add(cell.timers, self)

    @property
    def is_pending(self) -> bool:
        return self._handle is not None

    def cancel(self) -> None:
        """Take the mail back, even if it waits in the mailbox already."""
        cell, mail = self._cell, self._mail
        if cell is None or mail is None:
            return
        self._cell = self._mail = None
        if self._handle is None:
            cell.remove_mail(lambda waiting: waiting is mail)
        else:
            self._handle.cancel()
            self._handle = None
            cell.timers = small_set.discard(cell.timers, self)

    def _fire(self) -> None:
        cell, mail = self._cell, self._mail
        self._handle = None
        if cell is not None and mail is not None:
            cell.timers = small_set.discard(cell.timers, self)
            if self._is_bulk:
                cell.turns.defer(self, cell)
            else:
                cell.turns.put(cell, mail)

    def run(self) -> Cell | None:
        """Put the mail into the mailbox; an idle actor has its turn now."""
        cell, mail = self._cell, self._mail
        if cell is None or mail is None or cell.state & DEAD:
            return None
        is_idle = not cell.state and not cell.has_mail()
        if is_idle:
            cell.state = QUEUED  # ``put`` will not queue it
        cell.turns.put(cell, mail)
        return cell if is_idle else None


def cancel_all(cell: Cell) -> None:
    """Cancel the pending timers of a dying actor."""
    for timer in small_set.items(cell.timers):
        timer.cancel()
    cell.timers = None
