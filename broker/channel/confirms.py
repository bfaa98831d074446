"""Publisher confirms: which publishes wait for which queues, and how the answers are worded.

Publishes are numbered from 1 at confirm.select. A *run* is a stretch of numbers that was routed to the
same queues; it is safe when each of them has said so, and refused when one refuses. Queues answer in
stretches too, normally whole runs; an answer for a part splits the run.

Wording follows RabbitMQ (``rabbit_channel:coalesce_and_send``): of the numbers that came together, all
below the smallest one still waiting go out as one frame with multiple=true, the rest singly.

Sans-IO: the channel feeds it and sends what ``take_answers`` gives.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from leveret.actors.runtime.ref import Ref
from leveret.broker.channel.records import OwedRun

_FEW: Final = 16  # runs, waiting and settled, that need no tidying up
_SETTLED_MAX: Final = 64

Answer: TypeAlias = tuple[bool, int, bool]
"""basic.ack (or nack, when the first is False), delivery tag, multiple."""


class Confirms:
    """The confirm state of one channel.

    Attributes:
        acked, nacked: stretches settled since the answers were taken, as first number and count.
        next_seqno: the number of the next publish.
    """

    __slots__ = ("_firsts", "_owed", "_runs", "acked", "nacked", "next_seqno")

    def __init__(self) -> None:
        self.next_seqno = 1
        self._runs: dict[int, OwedRun] = {}  # by first number
        # Their first numbers, ascending, among some that are settled. (The first key of a dict is found
        # by a walk over all that were deleted before it.)
        self._firsts: deque[int] = deque()
        self._owed: dict[Ref, set[int]] = {}  # queue -> first numbers of the runs it owes
        self.acked: list[tuple[int, int]] = []
        self.nacked: list[tuple[int, int]] = []

    @property
    def is_waiting(self) -> bool:
        """Whether some queue owes an answer."""
        return bool(self._runs)

    def unconfirmed(self) -> int:
        """Return how many publishes some queue has not answered; it takes a step for each run."""
        return sum([run.count for run in self._runs.values()])

    def number(self, count: int) -> int:
        first = self.next_seqno
        self.next_seqno = first + count
        return first

    def wait(self, first: int, count: int, queues: Iterable[Ref]) -> None:
        """Remember a run and the queues that have to confirm it."""
        owing = 0
        for queue in queues:
            owing += 1
            owed = self._owed.get(queue)
            if owed is None:
                owed = self._owed[queue] = set()
            owed.add(first)
        self._runs[first] = OwedRun(count, owing)
        self._firsts.append(first)

    def wait_also(self, owner: Ref, queues: Sequence[Ref]) -> None:
        """Have more queues confirm the runs that ``owner`` owes."""
        firsts = self._owed.get(owner, set())
        for first in firsts:
            self._runs[first].owing += len(queues)
        for queue in queues:
            owed = self._owed.get(queue)
            if owed is None:
                self._owed[queue] = firsts.copy()
            else:
                owed |= firsts

    def settle_now(self, first: int, count: int, ok: bool = True) -> None:
        """Answer numbers at once: unroutable messages, or refused ones."""
        (self.acked if ok else self.nacked).append((first, count))

    def answer(self, queue: Ref, ranges: list[tuple[int, int]], ok: bool) -> None:
        """Take a queue's answer for some stretches; those answered already are ignored."""
        owed = self._owed.get(queue)
        if owed is None:
            return
        for first, count in ranges:
            run = self._runs.get(first)
            if run is None or run.count != count or first not in owed:
                self._answer_part(queue, owed, first, count, ok)
            else:
                owed.discard(first)
                self._answered(first, run, ok)

    def gone(self, queue: Ref, ok: bool) -> bool:
        """Settle all that a queue owes: ok if it was deleted; return whether it owed anything."""
        owed = self._owed.pop(queue, None)
        for first in sorted(owed or ()):
            self._answered(first, self._runs[first], ok)
        return bool(owed)

    def forget(self, queue: Ref) -> bool:
        """Forget a queue, unless it owes something; return whether it owes nothing."""
        if self._owed.get(queue):
            return False
        self._owed.pop(queue, None)
        return True

    def take_answers(self) -> list[Answer]:
        """Return the frames' contents for the numbers settled since the last call, in order."""
        acked, nacked = self.acked, self.nacked
        self.acked = []
        if not nacked and len(acked) == 1 and acked[0][1] == 1 and len(self._firsts) < _FEW:
            return [(True, acked[0][0], False)]
        smallest = self._smallest()
        if not nacked:
            if len(acked) == 1:
                first, count = acked[0]
                if count == 1:
                    return [(True, first, False)]
                if first + count <= smallest:
                    return [(True, first + count - 1, True)]
            return [(True, tag, multiple) for tag, multiple in _worded(acked, smallest)]
        self.nacked = []
        cutoff = min(smallest, *(first for first, _ in nacked))
        answers = [(True, tag, multiple) for tag, multiple in _worded(acked, cutoff)]
        # The acks of this batch are sent before, so only unanswered publishes hold a nack back.
        answers += [(False, tag, multiple) for tag, multiple in _worded(nacked, smallest)]
        return answers

    def _smallest(self) -> int:
        """Return the smallest number that waits, or the next one."""
        firsts, runs = self._firsts, self._runs
        while firsts and firsts[0] not in runs:
            firsts.popleft()
        if len(firsts) > 2 * len(runs) + _SETTLED_MAX:  # one run waits long, others come and go
            firsts = self._firsts = deque(sorted(runs))
        return firsts[0] if firsts else self.next_seqno

    def _answered(self, first: int, run: OwedRun, ok: bool) -> None:
        run.owing -= 1
        run.refused |= not ok
        if run.owing == 0:
            del self._runs[first]
            (self.nacked if run.refused else self.acked).append((first, run.count))

    def _answer_part(self, queue: Ref, owed: set[int], first: int, count: int, ok: bool) -> None:
        """Answer a stretch that is not a run: cut the runs at its edges, then answer the pieces."""
        self._cut(first)
        self._cut(first + count)
        stretch = range(first, first + count)
        few, many = (stretch, owed) if count <= len(owed) else (owed, stretch)
        for start in sorted(each for each in few if each in many):
            owed.discard(start)
            self._answered(start, self._runs[start], ok)

    def _cut(self, at: int) -> None:
        """Make a run begin at ``at`` if one spans it."""
        place = bisect_right(self._firsts, at)
        start = self._firsts[place - 1] if place else at
        run = self._runs.get(start)
        if run is None or not start < at < start + run.count:
            return
        self._runs[at] = OwedRun(start + run.count - at, run.owing, run.refused)
        run.count = at - start
        self._firsts.insert(place, at)
        for owed in self._owed.values():
            if start in owed:
                owed.add(at)


def _worded(ranges: list[tuple[int, int]], cutoff: int) -> Iterator[tuple[int, bool]]:
    """Yield (tag, multiple) for the ranges, given the smallest number still waiting."""
    ranges.sort()
    last_below = 0
    singles_below = 0
    rest: list[int] = []
    for first, count in ranges:
        below = min(count, max(0, cutoff - first))
        if below:
            last_below = first + below - 1
            singles_below += below
        rest.extend(range(first + below, first + count))
    if last_below:
        yield last_below, singles_below > 1
    for tag in rest:
        yield tag, False
