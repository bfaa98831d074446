"""Folding: walk over a variable queue without changing it.

A fold goes by seq over the ready messages, part by part, delta read in windows, and over the unacked
ones beside them. Contents are fetched in chunks. What is not in RAM ends the walk with a marker, which
the step gets as None; the caller goes on from there when it has been read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING, Final

from leveret.queue_backing.backing_queue import Accumulator
from leveret.queue_backing.delta import BLANK, window_end
from leveret.queue_backing.status import MESSAGE, MSG_NO, PERSISTENT, SEQ, seq_of, with_messages
from leveret.queue_backing.taking import fetch_contents

if TYPE_CHECKING:
    from leveret.queue_backing.queue_state import QueueState
    from leveret.queue_backing.status import Entry

_CHUNK: Final = 256
_NO_ROW: Final = -1  # the msg_no of the marker: from this seq on rows must be read


def ackfold(
    queue: QueueState,
    step: Callable[[Entry, Accumulator], Accumulator],
    start: Accumulator,
    seqs: list[int],
) -> Accumulator:
    """Fold over unacked messages in the order of ``seqs``; unknown ones are passed over."""
    rpa, dpa = queue.rpa, queue.dpa
    entries = [rpa.get(seq) or dpa[seq] for seq in seqs if seq in rpa or seq in dpa]
    entries = with_messages(entries, fetch_contents(queue, entries))
    absent = [entry for entry in entries if entry[MESSAGE] is None]
    if absent:
        queue.waiting = True
        queue.index.prefetch(absent)
    for entry in entries:
        start = step(entry, start)
    return start


def fold(
    queue: QueueState,
    step: Callable[[Entry | None, bool, Accumulator], tuple[bool, Accumulator]],
    start: Accumulator,
    from_seq: int,
) -> Accumulator:
    """Fold over ready and unacked messages with ``seq >= from_seq``."""
    rpa, dpa = queue.rpa, queue.dpa
    unacked = sorted(
        entry for part in (rpa, dpa) for entry in part.values() if entry[SEQ] >= from_seq
    )
    both = merge(
        _with_contents(queue, _ready(queue, from_seq)),
        _with_contents(queue, iter(unacked)),
        key=seq_of,
    )
    for entry in both:
        if entry[MESSAGE] is None:
            queue.waiting = True
            return step(None, False, start)[1]
        is_unacked = entry[SEQ] in rpa or entry[SEQ] in dpa
        go_on, start = step(entry, is_unacked, start)
        if not go_on:
            break
    return start


def _with_contents(queue: QueueState, entries: Iterator[Entry]) -> Iterator[Entry]:
    """Yield the entries with their contents; one without is the last, and has been asked for."""
    while chunk := list(islice(entries, _CHUNK)):
        end = chunk.pop() if chunk[-1][MSG_NO] == _NO_ROW else None
        full = with_messages(chunk, fetch_contents(queue, chunk))
        yield from full
        absent = [entry for entry in full if entry[MESSAGE] is None]
        if absent:
            queue.index.prefetch(absent)
            return
        if end is not None:
            yield end


def _ready(queue: QueueState, from_seq: int) -> Iterator[Entry]:
    for part in (queue.q4, queue.q3):
        yield from (entry for entry in part if entry[SEQ] >= from_seq)
    for entry in _in_delta(queue, from_seq):
        yield entry
        if entry[MSG_NO] == _NO_ROW:
            return
    for part in (queue.q2, queue.q1):
        yield from (entry for entry in part if entry[SEQ] >= from_seq)


def _in_delta(queue: QueueState, from_seq: int) -> Iterator[Entry]:
    delta, limits = queue.delta, queue.limits
    if delta is BLANK:
        return
    low, high = max(delta.start, from_seq), delta.end
    while low < high:
        end = window_end(delta._replace(start=low), limits.segment, limits.read_max)
        rows = queue.index.read(low, end, limits.read_max)
        if rows is None:
            yield (low, None, 0, True, _NO_ROW, 0, True, True)
            return
        yield from (row for row in rows if _is_ready(queue, row))
        low = end
        if not rows:
            following = queue.index.read(end, high, 1)
            low = high if following == [] else following[0][SEQ] if following else end


def _is_ready(queue: QueueState, row: Entry) -> bool:
    seq = row[SEQ]
    is_left = seq < queue.transient_threshold and not row[PERSISTENT]
    return not is_left and seq not in queue.rpa and seq not in queue.dpa
