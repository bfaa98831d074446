"""Fold: a walk over a variable queue that changes nothing.

A fold goes over the ready and the unacked messages, merged by seq; the ready ones part by part, delta read in
windows. Contents are fetched in chunks. A message that is not in RAM ends the walk with a marker, which the
step gets as None; the caller goes on there when the message has been read. Damaged messages are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import chain, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Final, TypeAlias

from leveret.core.entry import MESSAGE, MSG_NO, PERSISTENT, SEQ, with_messages
from leveret.core.message import LOST
from leveret.queue_backing.api import Accumulator, AckStep, FoldStep
from leveret.queue_backing.variable.delta import BLANK, window_end

if TYPE_CHECKING:
    from leveret.core.entry import Entry
    from leveret.queue_backing.variable.queue import VariableQueue

_Step: TypeAlias = "tuple[int, Entry, bool, VariableQueue]"  # seq, entry, unacked, of which queue

_CHUNK: Final = 256
_NO_ROW: Final = -1  # the msg_no of the marker: from this seq on rows must be read


def ackfold(
    queue: VariableQueue, step: AckStep[Accumulator], start: Accumulator, seqs: list[int]
) -> Accumulator:
    """Fold over unacked messages in the order of ``seqs``; unknown seqs are passed over."""
    rpa, dpa = queue.pending.in_ram, queue.pending.on_disk
    entries = [rpa.get(seq) or dpa[seq] for seq in seqs if seq in rpa or seq in dpa]
    entries = _with_found(queue, entries)
    absent = [entry for entry in entries if entry[MESSAGE] is None]
    if absent:
        queue.paged.fetch_is_pending = True
        queue.paged.prefetch(absent)
    for entry in entries:
        start = step(entry, start)
    return start


def fold(
    queues: Sequence[VariableQueue], step: FoldStep[Accumulator], start: Accumulator, from_seq: int
) -> Accumulator:
    """Fold over the messages with ``seq >= from_seq`` of queues that have no seq in common."""
    walks = [walk for queue in queues for walk in _walks(queue, from_seq)]
    for _, entry, is_unacked, queue in merge(*walks, key=itemgetter(0)):
        if entry[MESSAGE] is None:
            queue.paged.fetch_is_pending = True
            return step(None, False, start)[1]
        go_on, start = step(entry, is_unacked, start)
        if not go_on:
            break
    return start


def _walks(queue: VariableQueue, from_seq: int) -> list[Iterator[_Step]]:
    unacked = chain(queue.pending.in_ram.values(), queue.pending.on_disk.values())
    of_unacked = sorted(entry for entry in unacked if entry[SEQ] >= from_seq)
    return [
        _walk(queue, _with_contents(queue, _ready(queue, from_seq)), False),
        _walk(queue, _with_contents(queue, iter(of_unacked)), True),
    ]


def _walk(queue: VariableQueue, entries: Iterator[Entry], is_unacked: bool) -> Iterator[_Step]:
    return ((entry[SEQ], entry, is_unacked, queue) for entry in entries)


def _with_contents(queue: VariableQueue, entries: Iterator[Entry]) -> Iterator[Entry]:
    """Yield the entries with their contents; one without is the last, and has been asked for."""
    while chunk := list(islice(entries, _CHUNK)):
        end = chunk.pop() if chunk[-1][MSG_NO] == _NO_ROW else None
        full = _with_found(queue, chunk)
        absent = [entry for entry in full if entry[MESSAGE] is None]
        if absent:
            queue.paged.prefetch(absent)  # before the first of them ends the walk
        yield from full
        if absent:
            return
        if end is not None:
            yield end


def _with_found(queue: VariableQueue, entries: list[Entry]) -> list[Entry]:
    found = with_messages(entries, queue.paged.fetch_contents(entries))
    return [entry for entry in found if entry[MESSAGE] is not LOST]


def _ready(queue: VariableQueue, from_seq: int) -> Iterator[Entry]:
    yield from (entry for entry in queue.q4 if entry[SEQ] >= from_seq)
    if queue.columns.messages:
        yield from queue.columns.from_seq(from_seq)
    yield from (entry for entry in queue.paged.q3 if entry[SEQ] >= from_seq)
    for entry in _in_delta(queue, from_seq):
        yield entry
        if entry[MSG_NO] == _NO_ROW:
            return
    for part in (queue.paged.q2, queue.q1):
        yield from (entry for entry in part if entry[SEQ] >= from_seq)


def _in_delta(queue: VariableQueue, from_seq: int) -> Iterator[Entry]:
    delta, limits = queue.paged.delta, queue.paged.limits
    if delta is BLANK:
        return
    low, high = max(delta.start, from_seq), delta.end
    while low < high:
        end = window_end(delta._replace(start=low), limits.segment, limits.read_max)
        rows = queue.index.read(low, end, limits.read_max)
        if rows is None:
            yield _awaited(low)
            return
        yield from (row for row in rows if _is_ready(queue, row))
        low = end
        if not rows:  # a hole, which may be long
            following = queue.index.read(end, high, 1)
            if following is None:
                yield _awaited(end)
                return
            low = following[0][SEQ] if following else high


def _awaited(seq: int) -> Entry:
    """Return the marker that rows from this seq on must be read."""
    return (seq, None, 0, True, _NO_ROW, 0, True, True)


def _is_ready(queue: VariableQueue, row: Entry) -> bool:
    seq = row[SEQ]
    is_left = seq < queue.paged.transient_threshold and not row[PERSISTENT]
    return not is_left and seq not in queue.pending.in_ram and seq not in queue.pending.on_disk
