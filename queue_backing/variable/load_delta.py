"""Loading: delta's next window becomes betas in Q3.

RabbitMQ reads the index there and then (``maybe_deltas_to_betas``). Here the rows may have to be read
first: then nothing changes but ``rows_awaited``, and the queue's ``resume`` tries again. Meanwhile the
queue is in order: a new message goes to Q1 as if Q3 held something, and a fetch says ``pending``.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from leveret.queue_backing.status import PERSISTENT, SEQ, SIZE, seq_of
from leveret.queue_backing.variable import read_ahead
from leveret.queue_backing.variable.delta import BLANK, Delta, window_end, window_start
from leveret.queue_backing.variable.state import NOTHING

if TYPE_CHECKING:
    from leveret.queue_backing.status import Entry
    from leveret.queue_backing.variable.state import QueueState


def deltas_to_betas(queue: QueueState) -> bool:
    """Append the next entries of delta to Q3, if there is a delta.

    Returns:
        Whether Q3 has got them; if not, they are awaited.
    """
    limits = queue.limits
    for _ in range(limits.windows):
        delta = queue.delta
        if delta is BLANK:
            return True
        end = window_end(delta, limits.segment, limits.read_max)
        rows = queue.index.read(delta.start, end, limits.read_max)
        if rows is None:
            queue.rows_awaited = True
            return False
        betas = _ready(queue, rows) if rows else rows
        if betas:
            _append(queue, betas, end)
            return True
        if not rows and not _skip_hole(queue, end):
            return False
        if rows:
            queue.delta = delta._replace(start=end)
    queue.rows_awaited = queue.loading_goes_on = (
        True  # it all was unacked; on with it in the next turn
    )
    return False


def _ready(queue: QueueState, rows: list[Entry]) -> list[Entry]:
    """Leave out what is unacked; drop transients that a restart has left."""
    rpa, dpa = queue.rpa, queue.dpa
    for unacked in (rpa, dpa):
        if unacked and not unacked.keys().isdisjoint(map(seq_of, rows)):
            rows = [row for row in rows if row[SEQ] not in unacked]
    threshold = queue.transient_threshold
    if rows and rows[0][SEQ] < threshold:
        left = [row for row in rows if row[SEQ] < threshold and not row[PERSISTENT]]
        if left:
            queue.index.ack(left)
            rows = [row for row in rows if row[SEQ] >= threshold or row[PERSISTENT]]
    return rows


def _skip_hole(queue: QueueState, end: int) -> bool:
    """Go on to the window that holds the next row; return False when rows are awaited."""
    delta, limits = queue.delta, queue.limits
    following = queue.index.read(end, delta.end, 1)
    if following is None:
        queue.rows_awaited = True
        return False
    assert following, f"{delta} has {delta.length} messages without rows"
    start = window_start(end, following[0][SEQ], limits.segment, limits.read_max)
    queue.delta = delta._replace(start=start)
    return True


def _append(queue: QueueState, betas: list[Entry], end: int) -> None:
    if queue.q3 is NOTHING:
        queue.q3 = deque()
    queue.q3.extend(betas)
    delta = queue.delta
    transient = 0
    if delta.transient:
        sizes = [row[SIZE] for row in betas if not row[PERSISTENT]]
        transient = len(sizes)
        queue.delta_transient_bytes -= sum(sizes)
    left = delta.length - len(betas)
    assert left >= 0, f"{delta} has more rows than messages"
    if left:
        queue.delta = Delta(end, left, delta.transient - transient, delta.end)
    else:
        queue.delta = BLANK
        queue.q3.extend(queue.q2)
        queue.q2 = NOTHING
    queue.rows_awaited = False


def q3_was_taken_from(queue: QueueState) -> None:
    """See to what must follow when the last of Q3 is taken, and ask early for what comes next."""
    q3 = queue.q3
    if q3:
        if q3[0][SEQ] > queue.read_ahead_mark:
            read_ahead.ask_on(queue)
    elif queue.mode == "lazy":
        return
    elif queue.delta is BLANK:
        assert not queue.q2, "Q2 is not empty, but delta is"
        assert not queue.q4, "Q3 was taken from while Q4 was the head"
        queue.q4, queue.q1 = queue.q1, NOTHING
    else:
        deltas_to_betas(queue)
