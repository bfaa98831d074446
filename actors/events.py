"""How the loop's callbacks enter: as turns of the actors they are for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.actors.cell import ACTIVE, DEAD, DOOMED, IDLE
from leveret.actors.scheduler import Scheduler

if TYPE_CHECKING:
    from collections.abc import Callable

    from leveret.actors.ref import Ref


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
        others = self._loop_ready
        if was_awake:
            if others is not None and len(others) == 1 and others[0] is self._coming:
                self.drain()
        elif not (self._ready or self._bulk or self._after):
            self._is_awake = False
        elif others is not None and not others:
            self.drain()
        else:
            self._wake()
