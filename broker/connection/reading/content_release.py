"""Contents that have come in part and that nobody will take: they are freed a slice per iteration of the event loop.

The system needs 70 to 200 us to take back a MiB, a body of 128 MiB may be half there, and a hundred connections may
end in one iteration. So all connections of a node share one slice. The slice is larger while more contents wait, since
clients could send more than the smallest slice in each iteration. A virtual machine may need 1.5 ms for a MiB, so a
slice also ends when it has taken its time.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from leveret.amqp.kernel import Scanner
    from leveret.core.clock import Clock, TimerHandle

FREED_BYTES: Final = 16 * 1024 * 1024  # the smallest slice, some 2 ms
FREED_BYTES_MAX: Final = 64 * 1024 * 1024  # the largest slice
STEP_BYTES: Final = 4 * 1024 * 1024  # of a slice; then the clock is read
SLICE_S: Final = 0.008
FREED_PART: Final = 32  # between these a slice is this part of the bytes that wait


class ContentRelease:
    """The scanners of a node whose incomplete contents are to be freed."""

    __slots__ = ("_clock", "_scanners", "_timer")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._scanners: deque[Scanner] = deque()
        self._timer: TimerHandle | None = None  # while this iteration has had its slice

    def take(self, scanner: Scanner) -> None:
        """Free what a scanner holds of contents: at once, if this iteration has freed nothing yet."""
        if not scanner.buffered:
            return
        self._scanners.append(scanner)
        if self._timer is None:
            self._free_some()

    def _free_some(self) -> None:
        self._timer = None
        waiting_bytes = sum(each.buffered for each in self._scanners)
        slice_bytes = min(max(waiting_bytes // FREED_PART, FREED_BYTES), FREED_BYTES_MAX)
        left_bytes = slice_bytes
        until_s = self._clock.monotonic_s() + SLICE_S
        while self._scanners and left_bytes > 0:
            scanner = self._scanners[0]
            before, step_bytes = scanner.buffered, min(left_bytes, STEP_BYTES)
            scanner.swallow(step_bytes)
            freed_bytes = before - scanner.buffered
            left_bytes -= freed_bytes
            if freed_bytes < step_bytes:
                self._scanners.popleft()
            if self._clock.monotonic_s() >= until_s:
                break
        if self._scanners or left_bytes < slice_bytes:
            self._timer = self._clock.call_later(0.0, self._free_some)
