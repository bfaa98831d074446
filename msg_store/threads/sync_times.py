"""How long the disk takes to sync, for status: taken on the writer threads, read on the loop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

_BEFORE: Final = "written"
_AFTER: Final = "synced"


class SyncTimes:
    """Listens to the points that writer threads reach, or is told.

    Args:
        monotonic_s: the clock.

    Attributes:
        count: syncs since the start.
        total_s: what they took together.
        longest_s: what the longest took.
    """

    __slots__ = ("_began_s", "_lock", "_monotonic_s", "count", "longest_s", "total_s")

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s
        self._began_s: dict[int, float] = {}  # by thread
        self._lock = threading.Lock()
        self.count = 0
        self.total_s = self.longest_s = 0.0

    def reached(self, point: str) -> None:
        """Note a point of a job, on its thread."""
        if point == _BEFORE:
            self._began_s[threading.get_ident()] = self._monotonic_s()
        elif point == _AFTER:
            began_s = self._began_s.pop(threading.get_ident(), None)
            if began_s is not None:
                self.took(self._monotonic_s() - began_s)

    def took(self, seconds: float) -> None:
        """Count a sync, from any thread."""
        with self._lock:
            self.count += 1
            self.total_s += seconds
            self.longest_s = max(self.longest_s, seconds)
