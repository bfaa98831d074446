"""The invariants of a variable queue after every operation; only tests check them, by a walk over it all.

I1 to I13 hold in default mode, L1 to L3 in lazy mode; the messages name the number. RabbitMQ asserts I1 to
I4; the others follow from the operations. Two are weaker here, because nothing waits for the disk: while
rows are awaited Q3 may be empty before a delta, and Q4 may hold messages whose content is on disk only.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, pairwise
from typing import TYPE_CHECKING

from leveret.core.entry import (
    CONTENT_ON_DISK,
    INDEX_ON_DISK,
    MESSAGE,
    PERSISTENT,
    SEQ,
    SIZE,
    seq_of,
)
from leveret.queue_backing.variable.columns import NO_COLUMNS
from leveret.queue_backing.variable.delta import BLANK
from leveret.queue_backing.variable.paged import NOTHING, NOTHING_PAGED
from leveret.queue_backing.variable.pending_acks import NOBODY

if TYPE_CHECKING:
    from leveret.core.entry import Entry
    from leveret.queue_backing.variable.queue import VariableQueue


def check(queue: VariableQueue) -> None:
    """Assert all invariants.

    Raises:
        AssertionError: names the broken invariant.
    """
    assert not NOTHING, "the shared empty deque was written to"
    assert not NOBODY, "the shared empty dict was written to"
    assert queue.can_page or not queue.has_stored, "without an index, but something is stored"
    queue.columns.check()
    assert not NO_COLUMNS.messages, "the shared empty columns were written to"
    assert not NOTHING_PAGED.count(), "the shared empty parts were written to"
    assert not NOTHING_PAGED.paged_bytes, "the shared empty parts were written to"
    assert not NOTHING_PAGED.fetch_is_pending, "the shared empty parts were written to"
    if queue.mode == "lazy":
        _check_lazy(queue)
    else:
        _check_parts(queue)
    _check_delta(queue)
    _check_order(queue)
    _check_entries(queue)
    _check_unacked(queue)
    _check_counters(queue)


def _check_parts(queue: VariableQueue) -> None:
    q1, q2, q3, q4 = len(queue.q1), len(queue.paged.q2), len(queue.paged.q3), queue.len_q4()
    delta, awaited = queue.paged.delta.length, queue.paged.rows_awaited
    assert not q1 or q3 or awaited, "I1: Q1 is not empty, Q3 is"
    assert not q2 or delta, "I2: Q2 is not empty, delta is"
    assert not delta or q3 or awaited, "I3: delta is the head"
    assert (not queue.count) == (not q3 and not q4 and not (awaited and delta)), "I4: len"
    assert q1 + q2 + delta + q3 + q4 == queue.count, "I5: len is not the sum"


def _check_lazy(queue: VariableQueue) -> None:
    assert not queue.q1, "L1: Q1 is not empty"
    assert not queue.paged.q2, "L1: Q2 is not empty"
    assert not queue.len_q4(), "L1: Q4 is not empty"
    assert (not queue.count) == (not queue.paged.delta.length and not queue.paged.q3), "L2: len"
    assert queue.paged.delta.length + len(queue.paged.q3) == queue.count, "L3: len is not the sum"


def _check_delta(queue: VariableQueue) -> None:
    delta = queue.paged.delta
    assert (delta.length == 0) == (delta is BLANK), "a delta without entries is not BLANK"
    assert delta.start + delta.length <= delta.end, "delta is smaller than its count"
    assert 0 <= delta.transient <= delta.length, "delta counts too many transients"
    assert not queue.paged.rows_awaited or delta is not BLANK, "rows are awaited without a delta"


def _check_order(queue: VariableQueue) -> None:
    before = list(map(seq_of, chain(queue.q4, queue.columns.entries(), queue.paged.q3)))
    behind = list(map(seq_of, chain(queue.paged.q2, queue.q1)))
    assert all(a < b for a, b in pairwise(before)), "I6: Q4, Q3 are not sorted"
    assert all(a < b for a, b in pairwise(behind)), "I6: Q2, Q1 are not sorted"
    delta = queue.paged.delta
    if delta is not BLANK:
        assert not before or before[-1] < delta.start, "I6: delta starts before Q3 ends"
        assert not behind or behind[0] >= delta.end, "I6: delta ends after Q2 starts"
    elif before and behind:
        assert before[-1] < behind[0], "I6: Q1 starts before Q3 ends"
    newest = max(
        chain(before[-1:], behind[-1:], queue.pending.in_ram, queue.pending.on_disk), default=-1
    )
    assert newest < queue.next_seq, "I7: a seq was not given out yet"
    assert delta.end <= queue.next_seq, "I7: delta ends beyond the last seq that was given out"


def _check_entries(queue: VariableQueue) -> None:
    assert all(entry[MESSAGE] is not None for entry in queue.q1), "I8: Q1 holds a beta"
    absent = sum(entry[MESSAGE] is None for entry in queue.q4)
    assert absent == queue.absent, "I8: Q4 holds betas"
    assert all(entry[MESSAGE] is None for entry in chain(queue.paged.q2, queue.paged.q3)), (
        "I8: Q2, Q3: an alpha"
    )
    for entry in _known(queue):
        assert type(entry) is tuple, "an entry is not an exact tuple"
        assert entry[INDEX_ON_DISK] or not entry[PERSISTENT] or not queue.can_page, (
            "I10: persistent without a row"
        )
        assert entry[CONTENT_ON_DISK] or not entry[INDEX_ON_DISK], "I10: a row without content"
        assert entry[CONTENT_ON_DISK] or entry[MESSAGE] is not None, "I10: no content anywhere"
        assert queue.has_stored or not entry[CONTENT_ON_DISK], "has_stored is wrong"


def _ready(queue: VariableQueue) -> Iterable[Entry]:
    paged = queue.paged
    return chain(queue.q4, queue.columns.entries(), paged.q3, paged.q2, queue.q1)


def _known(queue: VariableQueue) -> Iterable[Entry]:
    return chain(_ready(queue), queue.pending.entries())


def _check_unacked(queue: VariableQueue) -> None:
    rpa, dpa = queue.pending.in_ram, queue.pending.on_disk
    assert rpa.keys().isdisjoint(dpa), "I11: unacked twice"
    ready = set(map(seq_of, _ready(queue)))
    assert ready.isdisjoint(rpa), "I11: ready and unacked"
    assert ready.isdisjoint(dpa), "I11: ready and unacked"
    assert all(entry[MESSAGE] is not None for entry in rpa.values()), "I12: rpa without content"
    assert all(entry[MESSAGE] is None for entry in dpa.values()), "I12: dpa with content"
    assert all(seq == entry[SEQ] for seq, entry in chain(rpa.items(), dpa.items()))
    assert all(seq < queue.next_deliver for seq in chain(rpa, dpa)), "unacked, never handed out"
    is_sorted = list(rpa) == sorted(rpa)
    assert is_sorted or not queue.pending.is_sorted or not queue.can_page, "rpa_sorted is wrong"


def _check_counters(queue: VariableQueue) -> None:
    unacked_bytes = sum(entry[SIZE] for entry in queue.pending.entries())
    assert queue.pending.size_bytes == unacked_bytes, "unacked_bytes"
    parts = (queue.q1, queue.q4, queue.columns.entries(), queue.pending.in_ram.values())
    ram = [e for e in chain.from_iterable(parts) if e[MESSAGE] is not None]
    in_ram = sum(entry[SIZE] for entry in ram)
    assert queue.ram_bytes == in_ram, "I9: ram_bytes"
    known = [entry[SIZE] for entry in _known(queue) if entry[PERSISTENT]]
    delta = queue.paged.delta
    persistent = len(known) + delta.length - delta.transient
    persistent_count, persistent_bytes = queue.persistent()
    assert persistent_count == persistent or not queue.can_page, "persistent_count"
    assert persistent_bytes >= sum(known) or not queue.can_page, "persistent_bytes"
    ready_bytes = sum(entry[SIZE] for entry in _ready(queue))
    assert queue.ready_bytes >= ready_bytes, "ready_bytes"
    if queue.can_page:
        assert 0 <= queue.ram_count <= queue.count, "I13: ram_count"
        assert 0 <= queue.ram_bytes <= queue.ready_bytes + queue.pending.size_bytes, (
            "I13: ram_bytes"
        )
    stats = (queue.count, queue.ready_bytes, queue.pending.size_bytes)
    assert min(*stats, persistent_count, persistent_bytes) >= 0, "I13: negative"
    assert delta is not BLANK or queue.ready_bytes == ready_bytes, "ready_bytes"
