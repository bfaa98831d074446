"""Reading ahead: the contents of what is handed out next are asked for before they are wanted.

While Q3 is taken from, its first messages and, behind its end, delta's first ones stand in a stretch
whose contents have been asked for: so many, or so many bytes. The stretch is looked at again when a
quarter of it has been taken (the *mark*), and what it has then behind its *end* is asked for.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate, islice
from typing import TYPE_CHECKING

from leveret.msg_store.format.kernel import bytes_of
from leveret.queue_backing.status import SEQ, seq_of, size_of
from leveret.queue_backing.variable.delta import BLANK

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leveret.queue_backing.status import Entry
    from leveret.queue_backing.variable.state import Limits, QueueState


def ask(queue: QueueState, entries: Iterable[Entry]) -> None:
    """Have the contents of the first entries read."""
    queue.index.prefetch(_within(list(islice(entries, queue.limits.read_ahead)), queue.limits))


def ask_on(queue: QueueState) -> None:
    """Have the contents of what follows in Q3, which is not empty, and in delta read."""
    ahead = _within(_next(queue), queue.limits)
    new = ahead
    if queue.read_ahead_mark >= 0:
        new = ahead[bisect_right(ahead, queue.read_ahead_end, key=seq_of) :]
    if new:
        queue.index.prefetch(new)
    mark = min(len(ahead) // 2, queue.limits.read_ahead // 4)
    queue.read_ahead_mark, queue.read_ahead_end = ahead[mark][SEQ], ahead[-1][SEQ]


def _next(queue: QueueState) -> list[Entry]:
    """Return what is known of the next messages, and have delta's rows read if there are too few."""
    count, delta = queue.limits.read_ahead, queue.delta
    ahead = list(islice(queue.q3, count))
    if len(ahead) == len(queue.q3) and delta is not BLANK:
        ahead += queue.index.ahead(delta.start, delta.end, max(1, count - len(ahead)))
    return ahead


def _within(ahead: list[Entry], limits: Limits) -> list[Entry]:
    """Leave out what is beyond the bytes; the first never is."""
    if bytes_of(ahead) > limits.read_ahead_bytes:
        reached = accumulate(map(size_of, ahead))
        del ahead[max(1, bisect_right(list(reached), limits.read_ahead_bytes)) :]
    return ahead
