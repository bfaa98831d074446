"""How the collector's work is written: tasks on the loop that wait for jobs on a thread.

A *task* is a generator that says what it waits for; whoever drives it (``collector_thread``, a test)
goes on with it when that has come, or throws into it what went wrong. A *job* is a generator that
blocks; it names the points it has reached, and ``TURN`` is where it may be put aside.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Final, TypeAlias

from leveret.msg_store.threads.worker import Steps

TURN: Final = "turn"


class Wait(enum.Enum):
    """What a task may wait for on the loop."""

    TURN = "the next turn of the loop"
    GRACE = "readers that have looked up a place have read there"
    RETRY = "the disk may have room again"


@dataclass(frozen=True, slots=True)
class Job:
    """What must have been done on the thread before the task goes on."""

    steps: Steps[None]


class Moving:
    """Moves that must have been decided about, each, before the task goes on."""

    def __init__(self, count: int) -> None:
        self.used = 0
        self._left = count
        self._then: Callable[[], object] | None = None

    def decided(self, is_used: bool) -> None:
        """Note that one copy is used, or is not."""
        self.used += is_used
        self._left -= 1
        if not self._left and self._then is not None:
            self._then()

    def when_done(self, then: Callable[[], object]) -> None:
        """Call ``then`` when all are decided about."""
        self._then = then
        if not self._left:
            then()


Task: TypeAlias = Generator[Job | Moving | Wait, None, None]
