"""The sweeper: gives back the memory of mailboxes that idle actors do not need.

A mailbox that was used once keeps about 700 bytes; most queues and connections are idle. A slice of
the actors is looked at every ``PERIOD_S``, which costs well under a millisecond.
"""

from __future__ import annotations

from typing import Final

from leveret.actors.gen_server import GenServer

PERIOD_S: Final = 2.0
ACTORS_PER_PERIOD: Final = 5_000

_SWEEP: Final = "sweep"


class Sweeper(GenServer):
    """Sweeps the runtime's mailboxes, slice by slice, for ever."""

    def init(self) -> None:
        """Wait for the first time."""
        self.start_timer(PERIOD_S, _SWEEP)

    def handle_info(self, message: object) -> None:
        """Sweep a slice."""
        assert message == _SWEEP
        self.runtime.sweep(ACTORS_PER_PERIOD)
        self.start_timer(PERIOD_S, _SWEEP)
