"""Restarts with growing delays, for children that fail again at once; not in OTP.

The first restart waits ``first_s``, each further one ``factor`` times as long, up to ``max_s``; a child that has
run for ``reset_s`` begins anew. Each counts for the restart intensity when it is decided, so a child that
is to be tried for ever needs an intensity that its waits cannot reach within the period.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long restarts of a child wait, in seconds."""

    first_s: float = 0.1
    factor: float = 2.0
    max_s: float = 30.0
    reset_s: float = 60.0

    def __post_init__(self) -> None:
        if not (0 < self.first_s <= self.max_s and self.factor >= 1 and self.reset_s >= 0):
            raise ValueError(f"{self} needs 0 < first_s <= max_s, factor >= 1 and reset_s >= 0")

    def next_delay_s(self, last_delay_s: float, up_s: float) -> float:
        """Return how long to wait now.

        Args:
            last_delay_s: how long the restart before has waited; 0 if there was none.
            up_s: how long it is since that restart.
        """
        if not last_delay_s or up_s >= self.reset_s:
            return self.first_s
        return min(last_delay_s * self.factor, self.max_s)
