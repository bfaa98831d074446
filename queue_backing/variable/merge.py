"""Merge: put entries back to their places in a sorted deque.

Which way is cheaper depends on how many go where: a few into the middle of a long queue are inserted,
many are merged with what lies between the first and the last of them. Nothing walks over the rest.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from typing import TYPE_CHECKING, Final

from leveret.queue_backing.status import SEQ, seq_of

if TYPE_CHECKING:
    from leveret.queue_backing.status import Entry

# Merging an entry costs as much as turning the deque by so many, which an insertion does on average
# by a quarter of its length, twice.
_MERGE_TURNS: Final = 200


def merge(ready: deque[Entry], back: list[Entry]) -> None:
    """Put sorted entries back to their places among the ready ones."""
    low = bisect_left(ready, back[0][SEQ], key=seq_of)
    between = bisect_left(ready, back[-1][SEQ], lo=low, key=seq_of) - low
    if len(back) * len(ready) < _MERGE_TURNS * between:
        for entry in back:
            ready.insert(bisect_left(ready, entry[SEQ], key=seq_of), entry)
        return
    ready.rotate(-low)
    if between:
        back = sorted([*back, *[ready.popleft() for _ in range(between)]])
    ready.extendleft(reversed(back))
    ready.rotate(low)
