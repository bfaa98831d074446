"""A member's own publications that have not been round: who waits for them, and when publishers must stop."""

from __future__ import annotations

from collections import deque
from typing import Any


class Outbox:
    """The broadcasts that wait for their publications to come round, and the bound of these.

    Args:
        pending_bytes: the bound.

    Attributes:
        is_blocked: publishers have been asked to stop.
    """

    __slots__ = ("_confirms", "_pending_bytes", "is_blocked")

    def __init__(self, pending_bytes: int) -> None:
        self._pending_bytes = pending_bytes
        self._confirms: deque[tuple[int, Any]] = deque()
        self.is_blocked = False

    def await_confirm(self, number: int, tag: Any) -> None:
        """Keep a tag until the publication with this number has been round."""
        self._confirms.append((number, tag))

    def confirmed(self, number: int) -> list[Any]:
        """Return the tags of all publications up to ``number``, which have been round."""
        tags = []
        while self._confirms and self._confirms[0][0] <= number:
            tags.append(self._confirms.popleft()[1])
        return tags

    def flow(self, under_way_bytes: int) -> bool | None:
        """Return whether publishers must stop, or None if that has not changed.

        Args:
            under_way_bytes: of the publications that have not been round.
        """
        if self.is_blocked:
            if under_way_bytes > self._pending_bytes // 2:
                return None
        elif under_way_bytes <= self._pending_bytes:
            return None
        self.is_blocked = not self.is_blocked
        return self.is_blocked
