"""Messages on their way back into a queue: a turn's worth at a time, the youngest first.

Refused messages (``Requeue``) are first settled, those of ended channels taken out of the channels' records. Both are
sorted into buckets of neighbouring seqs; that costs no turn the sort of a million. Not before all are in their buckets
does the first go back: then each turn's messages are older than those of the turn before, so that they go to the
front of the queue, whoever held them.

Sans-IO. Invariant: a seq of a refused message that is not settled yet is still owed by its channel. So a channel
that ends takes its part of ``_refused`` along (``forget``), and gives back what is left in its record.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

from leveret.core.limits import TURN_MESSAGES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leveret.actors.runtime.ref import Ref
    from leveret.broker.mail import Requeue

_BUCKET_BITS: Final = 10


class _Settling(Protocol):
    """The queue's consumers."""

    def settle(self, channel: Ref, tag: bytes | None, seqs: list[int]) -> bool: ...


class Requeueing:
    """The messages that a queue is requeueing."""

    __slots__ = ("_buckets", "_keys", "_refused", "_returned")

    def __init__(self) -> None:
        self._refused: deque[Requeue] = deque()
        self._returned: list[set[int]] = []
        self._buckets: dict[int, list[int]] = {}
        self._keys: list[int] | None = None  # of all buckets, sorted; None: there are others

    def refuse(self, requeue: Requeue) -> None:
        """Take messages that a channel refused and its record still has."""
        self._refused.append(requeue)

    def give_back(self, owed: list[set[int]]) -> None:
        """Take all that a channel owed which has ended."""
        self._returned += owed

    def forget(self, channel: Ref) -> None:
        """A channel ends: what it refused and is not settled comes with all that it owed."""
        if self._refused:
            self._refused = deque(each for each in self._refused if each.channel is not channel)

    def is_done(self) -> bool:
        return not (self._refused or self._returned or self._buckets)

    def turn(self, consumers: _Settling | None) -> list[int]:
        """Do a turn's work; return the messages that go back now, sorted."""
        left = TURN_MESSAGES
        while self._refused and left:
            left -= self._settle_some(consumers, left)
        while self._returned and left:
            left -= self._sort_in_returned(left)
        return self._take_youngest() if left else []

    def _settle_some(self, consumers: _Settling | None, limit: int) -> int:
        requeue = self._refused[0]
        some = requeue.seqs[-limit:]
        del requeue.seqs[-limit:]
        if not requeue.seqs:
            self._refused.popleft()
        if consumers is not None:
            consumers.settle(requeue.channel, requeue.consumer, some)
        self._sort_in(some)
        return len(some)

    def _sort_in_returned(self, limit: int) -> int:
        owed = self._returned[-1]
        count = min(len(owed), limit)
        self._sort_in([owed.pop() for _ in range(count)])
        if not owed:
            self._returned.pop()
        return count

    def _sort_in(self, seqs: Iterable[int]) -> None:
        buckets = self._buckets
        self._keys = None
        for seq in seqs:
            bucket = buckets.get(key := seq >> _BUCKET_BITS)
            if bucket is None:
                buckets[key] = [seq]
            else:
                bucket.append(seq)

    def _take_youngest(self) -> list[int]:
        if self._keys is None:
            self._keys = sorted(self._buckets)
        found: list[int] = []
        while self._keys and len(found) < TURN_MESSAGES:
            found += self._buckets.pop(self._keys.pop())
        found.sort()
        return found
