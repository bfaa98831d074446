"""How the loop's callbacks enter: as turns of the actors they are for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.actors.runtime.cell import ACTIVE, DEAD, DOOMED, IDLE
from leveret.actors.runtime.scheduler import Scheduler

if TYPE_CHECKING:
    from collections.abc import Callable

    from leveret.actors.runtime.ref import Ref


_QUIET: Final = 2  # handles that bring no mail


class Events(Scheduler):
    """Turns that the loop begins."""

    def run_as(self, ref: Ref, function: Callable[..., object], *args: object) -> None:
        """Run ``function`` as a turn of an actor: what it raises ends that actor.

        This is how asyncio's callbacks enter. A dead actor is a dead letter. If the actor's code
        is on the stack already, the call is part of its present turn. A suspended actor is run all
        the same: only its mail waits.
        """
        cell = ref.cell
        state = cell.state
        if state & (DEAD | ACTIVE | DOOMED):
            if state & ACTIVE:
                function(*args)
            else:
                self._dead_letter(function, None)
            return
        cell.state = state | ACTIVE
        try:
            function(*args)
        except BaseException as error:  # noqa: BLE001  # whatever it is, it ends this actor
            self._failed(cell, error)
            return
        if cell.state == ACTIVE and not cell.inbox and not cell.kind:
            cell.state = IDLE
        else:
            self._leave(cell)

    def run_event(self, ref: Ref, function: Callable[..., object], *args: object) -> None:
        """Run a socket event as a turn of an actor (``run_as``), and drain when it is the last one.

        A drain that waits for the loop's next round costs a poll of the selector. It is worth it only
        while other sockets have events in this round, whose mail then is handled together.
        """
        was_awake = self._is_awake
        self._is_awake = True
        cell = ref.cell
        if cell.state:
            self.run_as(ref, function, *args)
        else:  # the same, spelled out for what happens at every event
            cell.state = ACTIVE
            try:
                function(*args)
            except BaseException as error:  # noqa: BLE001  # whatever it is, it ends this actor
                self._failed(cell, error)
            else:
                if cell.state == ACTIVE and not cell.inbox and not cell.kind:
                    cell.state = IDLE
                else:
                    self._leave(cell)
        self._drain_if_last(was_awake)

    def run_callback(self, function: Callable[..., object], *args: object) -> None:
        """Run what another thread has put on the loop, and drain as after a socket event."""
        was_awake = self._is_awake
        self._is_awake = True
        try:
            function(*args)
        finally:
            self._drain_if_last(was_awake)

    def _drain_if_last(self, was_awake: bool) -> None:
        if was_awake:
            if self._coming is not None and self._is_last():
                self.drain()
        elif not (self._ready or self._bulk or self._after):
            self._is_awake = False
        elif self._is_last():
            self.drain()
        else:
            self._wake()

    def _is_last(self) -> bool:
        """Tell whether nothing that may bring mail is left in this round of the loop.

        A drain that is coming brings none, nor does what empties the pipe by which threads wake the
        loop; it stands behind what they have put there.
        """
        others = self._loop_ready
        if not others:
            return others is not None
        count = len(others)
        if count > _QUIET:
            return False
        for index in range(count):  # not an iterator: threads put more behind them at any moment
            handle = others[index]
            callback = handle._callback  # noqa: SLF001  of asyncio, as `_ready`
            if handle is not self._coming and callback != self._loop_waker:
                return False
        return True
