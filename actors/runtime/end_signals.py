"""The signals of an actor's end: an exit to each linked actor, a ``Down`` to each actor that monitors it.

Thousands may be linked with one actor or monitor it, and it may monitor thousands. The turn in which it ends sends
``SIGNALS_MAX`` signals. Each later round of the bulk queue sends as many again, first those of the actor that ended
first. So a few hundred actors at a time handle their signal, and the mails and timers that this causes are never in
memory for all of them. An actor whose signal is not sent yet still has its link or monitor, and can remove it. The
parent's signal is the last: it restarts the actor, or answers who asked for the stop, after all others were told.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Final

from leveret.actors.runtime import links
from leveret.actors.runtime.links import MonitorRef
from leveret.actors.runtime.scheduler import WOKEN_MAX
from leveret.core import small_set

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from leveret.actors.runtime.cell import Cell
    from leveret.actors.runtime.ref import Ref
    from leveret.actors.runtime.scheduler import Scheduler

SIGNALS_MAX: Final = 200


class EndSignals:
    """Sends the signals of actors that have ended.

    Args:
        scheduler: tells when a round of the bulk queue is over.
        send_exit: sends a live actor an exit signal.
    """

    def __init__(
        self, scheduler: Scheduler, send_exit: Callable[[Cell, object, Ref | None, bool], None]
    ) -> None:
        self._scheduler = scheduler
        self._send_exit = send_exit
        self._ends: deque[Iterator[bool]] = deque()

    def send(self, cell: Cell, reason: object, parent: Ref | None) -> None:
        """Send the signals of an actor that has just ended, or begin to."""
        signals = self._signals(cell, reason, parent)
        if next(islice(signals, SIGNALS_MAX - 1, None), False):
            self._ends.append(signals)
            if len(self._ends) == 1:
                self._scheduler.after_bulk_round(self._go_on)

    def _go_on(self) -> None:
        scheduler, ends, left = self._scheduler, self._ends, SIGNALS_MAX
        longest = len(scheduler.ready) + WOKEN_MAX
        try:
            while ends and left:
                left -= sum(1 for _ in islice(ends[0], left))
                if left:
                    ends.popleft()
        finally:  # also when a callback from outside has failed
            if len(scheduler.ready) > longest:
                scheduler.limit_woken(longest)
            if ends:
                scheduler.after_bulk_round(self._go_on)

    def _signals(self, cell: Cell, reason: object, parent: Ref | None) -> Iterator[bool]:
        ref = cell.ref
        told: list[Ref | MonitorRef]
        told = [*small_set.items(cell.links), *small_set.items(cell.watchers)]
        monitors = small_set.items(cell.monitors)
        cell.links = cell.watchers = cell.monitors = None
        if len(told) > SIGNALS_MAX and parent is not None:  # else all are told in this turn
            told.sort(key=lambda each: _hearer(each) is parent)
        for each in told:
            if isinstance(each, MonitorRef):
                if links.leave_watcher(each):
                    each.tell(reason)
            elif links.leave_link(each.cell, ref):
                self._send_exit(each.cell, reason, ref, True)
            yield True
        for monitor in monitors:
            links.leave_monitor(monitor)
            yield True


def _hearer(signal: Ref | MonitorRef) -> Ref | None:
    return signal.watcher if isinstance(signal, MonitorRef) else signal
