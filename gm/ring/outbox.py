"""A member's own publications before they are sent, and who waits for them to come round."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from leveret.gm.ring.frames import weight

if TYPE_CHECKING:
    from leveret.gm.ring.frames import Body


class Outbox:
    """Publications that wait for the next flush, confirms, and the bound of both with what is under way.

    Args:
        pending_bytes: bound of the publications that have not been round.

    Attributes:
        bodies: not sent yet.
        size_bytes: what these count for (``frames.weight``).
        is_blocked: publishers have been asked to stop.
    """

    __slots__ = ("_confirms", "_pending_bytes", "bodies", "is_blocked", "size_bytes")

    def __init__(self, pending_bytes: int) -> None:
        self._pending_bytes = pending_bytes
        self._confirms: deque[tuple[int, Any]] = deque()
        self.bodies: list[Body] = []
        self.size_bytes = 0
        self.is_blocked = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits to be sent, and nobody for a confirm."""
        return not self.bodies and not self._confirms

    def add(self, bodies: list[Body]) -> None:
        self.bodies += bodies
        self.size_bytes += weight(bodies)

    def await_confirm(self, number: int, tag: Any) -> None:
        """Keep a tag until the publication with this number has been round."""
        self._confirms.append((number, tag))

    def confirmed(self, number: int) -> list[Any]:
        """Return the tags of all publications up to ``number``, which have been round."""
        tags = []
        while self._confirms and self._confirms[0][0] <= number:
            tags.append(self._confirms.popleft()[1])
        return tags

    def take(self) -> list[Body]:
        """Return what waits to be sent."""
        bodies, self.bodies, self.size_bytes = self.bodies, [], 0
        return bodies

    def flow(self, under_way_bytes: int) -> bool | None:
        """Return whether publishers must stop, or None if that has not changed.

        Args:
            under_way_bytes: of the publications that were sent and have not been round.
        """
        size = self.size_bytes + under_way_bytes
        if self.is_blocked:
            if size > self._pending_bytes // 2:
                return None
        elif size <= self._pending_bytes:
            return None
        self.is_blocked = not self.is_blocked
        return self.is_blocked
