"""An operation of the core that waits for something, and the children it is stopping."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from leveret.actors.runtime.signals import KILL, SHUTDOWN, Down, Exit

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Iterator

    from leveret.actors.runtime.inbox import Mail
    from leveret.actors.runtime.ref import Ref
    from leveret.actors.runtime.timers import Timer
    from leveret.supervisors.effects import Operation


@dataclass(slots=True, eq=False)
class Suspension:
    """The state of a suspended operation; most supervisors never have one."""

    operation: Operation | None = None
    done: Callable[[Any], None] | None = None  # gets the operation's value when it is over
    is_starting: bool = False  # a child has not acknowledged its start
    starting: Ref | None = None  # that child, if its start may take only so long
    start_timer: Timer | None = None
    is_late: bool = False  # that time is over
    stopping: dict[Ref, None] | None = None  # children whose end is waited for, if any
    unsignalled: Iterator[Ref] | None = None  # children that have not got ``signal`` yet
    is_single: bool = True  # the answer is one reason, not a list
    signal: str = SHUTDOWN  # sent to them, or ``kill``
    reasons: list[Any] = field(default_factory=list)  # of the children that have ended
    due_s: float | None = None  # when the rest is killed, on the runtime's clock; None: never
    # Fires at ``due_s`` of this stop or of an earlier one: it serves many stops in a row, most of
    # which are over long before.
    stop_timer: Timer | None = None
    stop_timer_due_s: float = 0.0

    def late_child(self) -> Ref:
        assert self.starting is not None
        self.start_timer, self.is_late = None, True
        return self.starting

    def end_start(self) -> bool:
        """Note that the start is over; return whether it was too late."""
        self._cancel_start_timer()
        is_late, self.starting = self.is_late, None
        self.is_starting = self.is_late = False
        return is_late

    def wait_for(self, refs: list[Ref], signal: str, is_single: bool) -> None:
        """Wait for the end of these children; ``signal`` is sent to them."""
        self.stopping = dict.fromkeys(refs)
        self.unsignalled = iter(refs)
        self.signal = signal
        self.is_single = is_single
        self.reasons = []

    def takes(self, message: object) -> bool:
        """Take in the end of a child that is being stopped."""
        if type(message) is Exit:
            ref = message.sender
        elif type(message) is Down:
            ref = message.ref
        else:
            return False
        if not self.stopping or ref not in self.stopping:
            return False
        del self.stopping[ref]
        self.reasons.append(message.reason)
        return True

    def take_earlier(self, backlog: deque[Mail]) -> None:
        """Take in the ends that had arrived before the stop."""
        left = [mail for mail in backlog if not self.takes(mail[0])]
        backlog.clear()
        backlog.extend(left)

    def kill_the_rest(self) -> None:
        """Send a kill to the children that still live."""
        self.unsignalled = iter(tuple(self.stopping or ()))
        self.signal = KILL

    def cancel_timers(self) -> None:
        self._cancel_start_timer()
        self.cancel_stop_timer()

    def cancel_stop_timer(self) -> None:
        if self.stop_timer is not None:
            self.stop_timer.cancel()
            self.stop_timer = None

    def _cancel_start_timer(self) -> None:
        if self.start_timer is not None:
            self.start_timer.cancel()
            self.start_timer = None

    def next_to_signal(self, count: int) -> list[Ref]:
        """Return the next ``count`` children that get the signal; fewer are the last."""
        stopping = self.stopping or ()
        return list(islice((ref for ref in self.unsignalled or () if ref in stopping), count))

    def take_answer(self) -> Any:
        """Return the answer of the stop, once all are dead."""
        self.due_s = self.stopping = self.unsignalled = None
        reasons, self.reasons = self.reasons, []
        return reasons[0] if self.is_single else reasons
