"""A limit of messages per second, without a clock: the caller says what time it is.

The n-th message is due n / rate seconds after the first. What a pause left unused is lost except for a tenth of a
second's worth, so a target that was slow is not flooded afterwards.
"""

from __future__ import annotations

from typing import Final

_BURST_S: Final = 0.1


class Rate:
    """At most ``per_s`` messages per second; 0 is no limit."""

    def __init__(self, per_s: float) -> None:
        self._per_s = per_s
        self._due_s: float | None = None  # of the next message

    def wait_s(self, now_s: float) -> float:
        """Return how long the next message must wait, 0 if it may go."""
        if not self._per_s or self._due_s is None:
            return 0.0
        return max(0.0, self._due_s - now_s)

    def sent(self, now_s: float) -> None:
        """Count one message."""
        if self._per_s:
            due_s = now_s if self._due_s is None else max(self._due_s, now_s - _BURST_S)
            self._due_s = due_s + 1 / self._per_s
