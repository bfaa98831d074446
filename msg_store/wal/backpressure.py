"""Backpressure: publishers wait when the disk does not keep up.

Backpressure goes on when so much waits for a flush, or so many memtables for the index, that more would only
fill the RAM; it goes off when half of that is written. A connection that publishes while it is on stops reading
from its client until it is called back. Acks never wait: they make room.

Like RabbitMQ's credit from the store back to the connections, but counted for all publishers together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from leveret.msg_store.wal.group_commit import GroupCommit

Resume: TypeAlias = Callable[[], None]


@dataclass(frozen=True, slots=True)
class BackpressureLimits:
    """How much may wait for a flush: publishes and acks, and bytes of bodies."""

    ops: int = 40_000
    size_bytes: int = 64 * 1024 * 1024


class Backpressure:
    """The backpressure of one store. For the loop."""

    def __init__(self, core: GroupCommit, limits: BackpressureLimits) -> None:
        self.is_on = False
        self._core = core
        self._limits = limits
        self._waiting: dict[Resume, None] = {}

    def update(self) -> None:
        """Update ``is_on``; when it goes off, call the waiting publishers back."""
        core, limits, was_on = self._core, self._limits, self.is_on
        divisor = 2 if was_on else 1
        self.is_on = core.error is None and (
            core.pending_ops > limits.ops // divisor
            or core.holds.body_bytes > limits.size_bytes // divisor
            or core.memtables.is_behind
        )
        if was_on and not self.is_on:
            self.release()

    def wait(self, resume: Resume) -> None:
        """Call ``resume`` when the backpressure is off, or the store has ended."""
        self._waiting[resume] = None

    def forget(self, resume: Resume) -> None:
        self._waiting.pop(resume, None)

    def release(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for resume in waiting:
            resume()
