"""SyncPoints: which instructions of a replica are durable, by the seqs that the store reports as safe.

A store reports the messages of a queue as safe mostly in the order in which they came. So an instruction counts as
durable when no message with a seq below those that were known then is on its way to the disk any more. Copies, which
come in any order, may have it wait for longer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from leveret.mirroring.replicas.seq_runs import LiveSeqs

if TYPE_CHECKING:
    from leveret.mirroring.replicas.ports import SyncPoint


class SyncPoints:
    """The messages that are on their way to the disk, and the points that wait for them.

    Args:
        reached: is called with each point, in order.
    """

    __slots__ = ("_end", "_reached", "_unsafe", "_waiting")

    def __init__(self, reached: Callable[[SyncPoint], None]) -> None:
        self._reached = reached
        self._unsafe = LiveSeqs()
        self._end = 0  # above all seqs that were ever waited for
        self._waiting: deque[tuple[int, SyncPoint]] = deque()  # seqs below must be safe

    def wait_for(self, first: int, count: int) -> None:
        """Note messages that are on their way."""
        self._unsafe.add(first, first + count)
        self._end = max(self._end, first + count)

    def add(self, point: SyncPoint) -> None:
        """Wait for all messages noted so far; ``reached`` may be called at once."""
        self._waiting.append((self._end, point))
        self._tell()

    def confirmed(self, runs: Iterable[tuple[int, int]]) -> None:
        """Note ``(first_seq, count)`` that are safe."""
        for first, count in runs:
            self._unsafe.remove(first, first + count)
        self._tell()

    def _tell(self) -> None:
        lowest, _ = self._unsafe.from_seq(0, 1)
        while self._waiting and (not lowest or lowest[0][0] >= self._waiting[0][0]):
            self._reached(self._waiting.popleft()[1])
