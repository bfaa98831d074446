"""Contents that have come in part and that nobody will take: they are freed a slice per iteration of the event loop.

The system needs 70 to 150 us to take back a MiB, a body of 128 MiB may be half there, and a hundred connections may
end in one iteration. So all connections of a node share one slice.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from leveret.amqp.kernel import Scanner
    from leveret.core.clock import Clock, TimerHandle

# Per iteration, 5 to 10 ms. With less, clients could send more than is freed.
FREED_BYTES: Final = 64 * 1024 * 1024


class ContentRelease:
    """The scanners of a node whose incomplete contents are to be freed."""

    __slots__ = ("_clock", "_scanners", "_timer")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._scanners: deque[Scanner] = deque()
        self._timer: TimerHandle | None = None  # while this iteration has had its slice

    def take(self, scanner: Scanner) -> None:
        """Free what a scanner holds of contents: at once, if this iteration has freed nothing yet."""
        if not scanner.pending:
            return
        self._scanners.append(scanner)
        if self._timer is None:
            self._free_some()

    def _free_some(self) -> None:
        self._timer = None
        left_bytes = FREED_BYTES
        while self._scanners and left_bytes > 0:
            scanner = self._scanners[0]
            before = scanner.buffered
            scanner.swallow(left_bytes)
            freed_bytes = before - scanner.buffered
            left_bytes -= freed_bytes
            if left_bytes > 0 or not freed_bytes:
                self._scanners.popleft()
        if left_bytes < FREED_BYTES:
            self._timer = self._clock.call_later(0.0, self._free_some)
