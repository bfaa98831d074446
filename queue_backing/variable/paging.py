"""Paging: how a variable queue gets below its RAM target.

Four transitions, each bounded by a *quota*:

* ``limit_ram_acks``: unacked messages give up their contents, the youngest first.
* ``alphas_to_betas``: Q1's head becomes Q3's tail (Q2's, when there is a delta), then Q4's tail
  becomes Q3's head. Contents of transients go to the store, as far as it gives credit; persistent
  ones are there already. A persistent message is at once a gamma, its row is in the index.
* ``betas_to_deltas``: Q3's tail, but nothing of its head's segment, then Q2's head get their rows and
  leave RAM. So delta grows downwards from Q3 and upwards from Q2.

What is far from being delivered goes first and furthest. Nothing comes back but by being read.

``permitted_betas`` makes the betas fewer as the queue outgrows its target: of B messages behind the
alphas, B * B / (B + target) belong into delta.

One call makes one bounded step; ``bump`` asks for the next turn, except when the store has no credit:
then its ``resume`` is the next turn. Source: ``rabbit_variable_queue:reduce_memory_use/1``, 3.10.8.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from leveret.msg_store.format.kernel import bytes_of
from leveret.queue_backing.status import (
    CONTENT_ON_DISK,
    INDEX_ON_DISK,
    MESSAGE,
    PERSISTENT,
    SEQ,
    SIZE,
    seq_of,
    trimmed,
)
from leveret.queue_backing.variable.delta import BLANK, expand, next_boundary
from leveret.queue_backing.variable.state import INFINITE, NOBODY, NOTHING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from leveret.queue_backing.status import Entry
    from leveret.queue_backing.variable.state import QueueState

SORT_MAX: Final = 20_000  # unacked messages that are sorted in one turn
TARGET_SLACK_DIVISOR: Final = 16


def reduce_above(target: float, slack: int) -> float:
    """Return up to how many messages in RAM a publish does not reduce."""
    return target if target == INFINITE else target + max(slack, target // TARGET_SLACK_DIVISOR)


def excess(current: int, permitted: float) -> int:
    """Return by how much ``current`` is more than permitted."""
    return 0 if permitted >= current else int(current - permitted)


def permitted_betas(queue: QueueState, target: float) -> float:
    """Return how many entries Q2 and Q3 may hold."""
    if not queue.count:
        return INFINITE
    if queue.mode == "lazy":
        return target
    segment = queue.limits.segment
    if target == 0:
        return min(len(queue.q3), segment)
    behind = queue.count - len(queue.q1) - queue.len_q4()
    return max(segment, behind - behind * behind // (behind + int(target)))


def reduce_memory_use(queue: QueueState) -> None:
    """Make one step towards the target; ``bump`` says afterwards whether more is to do at once."""
    queue.bump = False
    if not queue.can_page:
        return
    target = 0.0 if queue.to_lazy else queue.target
    if target == INFINITE:
        return
    if queue.mode == "lazy":
        _reduce_lazy(queue, target)
        return
    io_batch = 0 if queue.to_lazy else queue.limits.io_batch
    step = queue.limits.step
    too_many = excess(queue.ram_count + len(queue.rpa), target)
    left, blocked = _page_contents(queue, min(too_many, step), target)
    # Part of the quota may have gone to messages of Q4 whose contents are on disk only.
    goes_on = left == 0 and queue.ram_count + len(queue.rpa) > target
    too_many = excess(len(queue.q2) + len(queue.q3), permitted_betas(queue, target))
    if too_many and too_many >= io_batch:
        betas_to_deltas(queue, min(too_many, step))
        goes_on = goes_on or too_many > step
    queue.bump = goes_on and not blocked
    if queue.to_lazy:
        _finish_to_lazy(queue, blocked)


def _page_contents(queue: QueueState, quota: int, target: float) -> tuple[int, bool]:
    """Return what is left of the quota, and whether the store has no credit."""
    if not quota:
        return 0, False
    transitions = (limit_ram_acks, alphas_to_betas)
    if not queue.rates.acks_grow_faster():
        transitions = (alphas_to_betas, limit_ram_acks)
    for transition in transitions:
        quota, blocked = transition(queue, quota, target)
        if blocked:
            return quota, True
    return quota, False


def _reduce_lazy(queue: QueueState, target: float) -> None:
    step = queue.limits.step
    unacked = excess(queue.ram_count + len(queue.rpa), target)
    blocked = False
    if unacked:
        _, blocked = limit_ram_acks(queue, min(unacked, step), target)
    betas = excess(len(queue.q3), permitted_betas(queue, target))
    if queue.wanted:
        betas = 0  # or what is being read would be forgotten before it is there, again and again
    if betas:
        betas_to_deltas(queue, min(betas, step))
    queue.bump = betas > step or (unacked > step and not blocked)


def _finish_to_lazy(queue: QueueState, blocked: bool) -> None:
    if queue.q4 and not queue.ram_count:
        _push_absent(queue)
    if queue.q1 or queue.q2 or queue.q4 or queue.columns.messages:
        queue.bump = not blocked
        return
    queue.mode, queue.to_lazy = "lazy", False
    queue.uses_columns = False
    queue.bump = not blocked  # unacked messages and betas may be more than a lazy queue keeps
    queue.reduce_above = reduce_above(queue.target, queue.limits.slack)


# Contents.


def page_out(queue: QueueState, entries: list[Entry], must: bool = False) -> int:
    """See to it that contents are on disk; return for how many of the first ones they are."""
    missing = [entry for entry in entries if not entry[CONTENT_ON_DISK]]
    if not missing:
        return len(entries)
    taken = queue.index.page_out(missing, must)
    if taken:
        queue.has_stored = True
        queue.disk_writes += taken
    return len(entries) if taken == len(missing) else entries.index(missing[taken])


def limit_ram_acks(queue: QueueState, quota: int, target: float) -> tuple[int, bool]:
    """Trim the youngest unacked messages; return the quota left and whether credit ran out."""
    rpa = queue.rpa
    if not rpa:
        return quota, False
    if not queue.rpa_sorted and len(rpa) <= SORT_MAX:
        rpa = queue.rpa = dict(sorted(rpa.items()))
        queue.rpa_sorted, queue.rpa_last = True, next(reversed(rpa))
    take = rpa.popitem
    batch = [take()[1] for _ in range(min(quota, len(rpa)))]
    done = page_out(queue, batch)
    blocked = done < len(batch)
    if blocked:
        rest = batch[done:]
        rest.reverse()
        rpa.update(zip(map(seq_of, rest), rest, strict=True))
        del batch[done:]
    queue.ram_bytes -= bytes_of(batch)
    if queue.dpa is NOBODY:
        queue.dpa = {}
    queue.dpa.update(zip(map(seq_of, batch), trimmed(batch), strict=True))
    return quota - done, blocked


def alphas_to_betas(queue: QueueState, quota: int, target: float) -> tuple[int, bool]:
    """Trim Q1's head, then Q4's tail; return the quota left and whether credit ran out."""
    if queue.q1 and queue.ram_count > target:
        quota, blocked = _push_q1(queue, quota, target)
        if blocked:
            return quota, True
    while quota and (queue.q4 or queue.columns.messages) and queue.ram_count > target:
        push = _push_columns if queue.columns.messages else _push_q4
        quota, blocked = push(queue, quota, target)
        if blocked:
            return quota, True
    return quota, False


def _push_q1(queue: QueueState, quota: int, target: float) -> tuple[int, bool]:
    count = min(quota, excess(queue.ram_count, target), len(queue.q1))
    batch = _paged_out(queue, count, queue.q1.popleft, queue.q1.extendleft)
    _count_trimmed(queue, batch)
    if queue.delta is BLANK:
        if queue.q3 is NOTHING:
            queue.q3 = deque()
        queue.q3.extend(trimmed(batch))
    else:
        if queue.q2 is NOTHING:
            queue.q2 = deque()
        queue.q2.extend(trimmed(batch))
    return quota - len(batch), len(batch) < count


def _push_columns(queue: QueueState, quota: int, target: float) -> tuple[int, bool]:
    columns = queue.columns
    count = min(quota, excess(queue.ram_count, target), len(columns.messages))
    batch = columns.take_youngest(count)
    done = page_out(queue, batch)
    if done < count:
        columns.put_back(batch[done:])
        del batch[done:]
    _count_trimmed(queue, batch)
    if queue.q3 is NOTHING:
        queue.q3 = deque()
    queue.q3.extendleft(trimmed(batch))
    queue.read_ahead_mark = -1
    return quota - len(batch), len(batch) < count


def _push_q4(queue: QueueState, quota: int, target: float) -> tuple[int, bool]:
    count = min(quota, excess(queue.ram_count, target), len(queue.q4))
    batch = _paged_out(queue, count, queue.q4.pop, queue.q4.extend)
    if queue.absent:
        present = [entry for entry in batch if entry[MESSAGE] is not None]
        queue.absent -= len(batch) - len(present)
        _count_trimmed(queue, present)
    else:
        _count_trimmed(queue, batch)
    if queue.q3 is NOTHING:
        queue.q3 = deque()
    queue.q3.extendleft(trimmed(batch))
    queue.read_ahead_mark = -1
    return quota - len(batch), len(batch) < count


def _paged_out(
    queue: QueueState,
    count: int,
    take: Callable[[], Entry],
    put_back: Callable[[Iterable[Entry]], None],
) -> list[Entry]:
    """Take ``count`` alphas off an end and page them out; what the store has no credit for goes back."""
    batch = [take() for _ in range(count)]
    done = page_out(queue, batch)
    if done < count:
        put_back(reversed(batch[done:]))
        del batch[done:]
    return batch


def _push_absent(queue: QueueState) -> None:
    """Push Q4's tail to Q3, when all of Q4 is without content."""
    take = queue.q4.pop
    batch = [take() for _ in range(min(queue.limits.step, len(queue.q4)))]
    queue.absent -= len(batch)
    if queue.q3 is NOTHING:
        queue.q3 = deque()
    queue.q3.extendleft(batch)
    queue.read_ahead_mark = -1


def _count_trimmed(queue: QueueState, batch: list[Entry]) -> None:
    queue.ram_count -= len(batch)
    queue.ram_bytes -= bytes_of(batch)


# Positions.


def betas_to_deltas(queue: QueueState, quota: int) -> None:
    """Push Q3's tail, then Q2's head to delta; in lazy mode also what is in the head's segment."""
    q3 = queue.q3
    if q3:
        head: int = q3[0][SEQ]
        lowest = head if queue.mode == "lazy" else next_boundary(head, queue.limits.segment)
        batch: list[Entry] = []
        while q3 and len(batch) < quota and q3[-1][SEQ] >= lowest:
            batch.append(q3.pop())
        to_delta(queue, batch)
        quota -= len(batch)
    count = min(quota, len(queue.q2))
    if count and queue.mode != "lazy":
        take = queue.q2.popleft
        to_delta(queue, [take() for _ in range(count)])


def to_delta(queue: QueueState, entries: list[Entry]) -> None:
    """Add entries to delta, sorted up or down, contents on disk; rows are written where missing."""
    if not entries:
        return
    missing = [entry for entry in entries if not entry[INDEX_ON_DISK]]
    if missing:
        queue.index.add(missing)
    queue.delta = expand(queue.delta, entries)
    sizes = [entry[SIZE] for entry in entries if not entry[PERSISTENT]]
    queue.delta_transient_bytes += sum(sizes)
