"""The times at which the messages of a delay queue are due.

A heap of integers, time and seq in one: 48 bytes for each message, which the garbage collector does not look at, and
messages of one millisecond come in the order of their seqs. The place of a message that is withdrawn stays in the heap
until its time: to find it would be a walk over all.

Sans-IO.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_SEQ_BITS: Final = 64
_SEQ: Final = (1 << _SEQ_BITS) - 1


class Schedule:
    """Seqs, each with the time when it is due, ms since 1970.

    Attributes:
        taken_ms: no message that is due later has been taken as due.
    """

    __slots__ = ("_heap", "_withdrawn", "taken_ms")

    def __init__(self) -> None:
        self.taken_ms = 0
        self._heap: list[int] = []
        self._withdrawn: set[int] = set()

    def __len__(self) -> int:
        return len(self._heap) - len(self._withdrawn)

    def add(self, times_ms: Iterable[int], seqs: Iterable[int]) -> None:
        heap = self._heap
        for time_ms, seq in zip(times_ms, seqs, strict=True):
            heappush(heap, time_ms << _SEQ_BITS | seq)

    def first_ms(self) -> int | None:
        """Return when the next message is due, None when there is none; it may be one that was withdrawn."""
        return self._heap[0] >> _SEQ_BITS if self._heap else None

    def take_due(self, now_ms: int, limit: int) -> list[int]:
        """Take out seqs that are due, the first of them first; at most so many."""
        heap, withdrawn, end = self._heap, self._withdrawn, (now_ms + 1) << _SEQ_BITS
        due: list[int] = []
        for _ in range(limit):
            if not heap or heap[0] >= end:
                break
            key = heappop(heap)
            self.taken_ms, seq = max(self.taken_ms, key >> _SEQ_BITS), key & _SEQ
            if seq in withdrawn:
                withdrawn.remove(seq)
            else:
                due.append(seq)
        return due

    def withdraw(self, seqs: Iterable[int]) -> None:
        """Take out these seqs, each of which is there."""
        self._withdrawn.update(seqs)

    def take_all(self) -> list[int]:
        """Take everything out; return what ``keys`` does."""
        keys, self._heap, self._withdrawn = self._heap, [], set()
        return keys

    def keys(self) -> list[int]:
        """Return a number for each place, in no order; sorted, they are in the order of the times.

        ``seq_of`` tells the seq of each, which may have been withdrawn.
        """
        return self._heap.copy()


def seq_of(key: int) -> int:
    """Return the seq of a place."""
    return key & _SEQ
