"""Requeue: unacked messages go back to their places.

Sorted by seq they fall into three stages: what lies before Q3's head belongs into Q4, what lies before
delta into Q3, all the rest into delta; Q2 and Q1 hold only what was never handed out, which is younger.
Each is brought into the state of its place: contents for Q4, none for Q3, a row as well for delta.

Q4 wants contents. RabbitMQ reads the missing ones; here those that are in RAM are taken, the others are
asked for and go into Q4 without (``absent``): who takes them finds them there or must wait.

This is where the store is not asked whether it has credit: a message cannot stay half put back.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from typing import TYPE_CHECKING

from leveret.core.message import LOST
from leveret.queue_backing.status import (
    MESSAGE,
    SEQ,
    seq_of,
    size_of,
    trimmed,
    with_messages,
)
from leveret.queue_backing.variable import read_ahead
from leveret.queue_backing.variable.delta import BLANK
from leveret.queue_backing.variable.fetch import fetch_contents
from leveret.queue_backing.variable.merge import merge
from leveret.queue_backing.variable.paging import page_out, to_delta
from leveret.queue_backing.variable.state import NOTHING

if TYPE_CHECKING:
    from leveret.queue_backing.status import Entry
    from leveret.queue_backing.variable.state import QueueState


def requeue(queue: QueueState, seqs: list[int]) -> int:
    """Put unacked messages back; unknown seqs are passed over. Return how many there were."""
    in_ram, on_disk = queue.settle(seqs)
    back = in_ram + on_disk
    if not back:
        return 0
    back.sort()
    before_delta = len(back)
    if queue.delta is not BLANK:
        before_delta = bisect_left(back, queue.delta.start, key=seq_of)
    before_q3 = 0
    if queue.mode != "lazy":
        before_q3 = before_delta
        if queue.q3:
            before_q3 = bisect_left(back, queue.q3[0][SEQ], 0, before_delta, key=seq_of)
    queue.count += len(back)
    queue.incoming += len(back)
    queue.ready_bytes += sum(map(size_of, back))
    if before_q3:
        _into_q4(queue, back[:before_q3])
    if before_q3 < before_delta:
        _into_q3(queue, back[before_q3:before_delta])
    if before_delta < len(back):
        rest = back[before_delta:]
        page_out(queue, rest, must=True)
        to_delta(queue, trimmed(rest))
        queue.read_ahead_mark = -1
    return len(back)


def _into_q4(queue: QueueState, back: list[Entry]) -> None:
    missing = [entry for entry in back if entry[MESSAGE] is None]
    if missing:
        found = fetch_contents(queue, back)
        if LOST in found:  # that it is damaged matters to who takes it
            found = [None if each is LOST else each for each in found]
        back = with_messages(back, found)
        absent = [entry for entry in back if entry[MESSAGE] is None]
        if absent:
            queue.absent += len(absent)
            read_ahead.ask(queue, absent)
        present = [entry for entry in back if entry[MESSAGE] is not None]
    else:
        absent, present = [], back
    queue.ram_count += len(present)
    queue.ram_bytes += sum(map(size_of, present))
    if queue.q4 is NOTHING:
        queue.q4 = deque()
    merge(queue.q4, back)


def _into_q3(queue: QueueState, back: list[Entry]) -> None:
    page_out(queue, back, must=True)
    if queue.q3 is NOTHING:
        queue.q3 = deque()
    merge(queue.q3, trimmed(back))
    queue.read_ahead_mark = -1
